package devdocs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// document is the part of an OpenAPI document that the pages show.
type document struct {
	Info struct {
		Contract struct {
			APIVersion        string `json:"api_version"`
			SchemaVersion     string `json:"schema_version"`
			DeprecationPolicy string `json:"deprecation_policy"`
		} `json:"x-gatehouse-contract"`
	} `json:"info"`
	Paths      map[string]map[string]*rawOperation `json:"paths"`
	Components struct {
		Schemas    map[string]*schema       `json:"schemas"`
		Parameters map[string]*rawParameter `json:"parameters"`
		Headers    map[string]*rawParameter `json:"headers"`
	} `json:"components"`
}

type rawOperation struct {
	ID             string                  `json:"operationId"`
	Summary        string                  `json:"summary"`
	Description    string                  `json:"description"`
	Tags           []string                `json:"tags"`
	Deprecated     bool                    `json:"deprecated"`
	Parameters     []*rawParameter         `json:"parameters"`
	Body           *rawBody                `json:"requestBody"`
	Responses      map[string]*rawResponse `json:"responses"`
	Security       []map[string][]string   `json:"security"`
	Permission     string                  `json:"x-permission"`
	AlsoPermission string                  `json:"x-permission-also"`
	Reach          string                  `json:"x-environment"`
}

type rawParameter struct {
	Ref         string  `json:"$ref"`
	Name        string  `json:"name"`
	In          string  `json:"in"`
	Description string  `json:"description"`
	Required    bool    `json:"required"`
	Schema      *schema `json:"schema"`
}

type rawBody struct {
	Required bool               `json:"required"`
	Content  map[string]content `json:"content"`
}

type content struct {
	Schema *schema `json:"schema"`
}

type rawResponse struct {
	Description string                   `json:"description"`
	Content     map[string]content       `json:"content"`
	Headers     map[string]*rawParameter `json:"headers"`
}

// operation is one operation as the pages show it.
type operation struct {
	*rawOperation
	Method, Path string
	// Area is the operation's first tag, AreaID the tag in an address.
	Area, AreaID string
	// Auth says which credentials callers need: public, optional, bearer or any.
	Auth    string
	Params  []parameter
	Request *request
	Answers []answer // answers with a status below 400
	Faults  []answer // the other answers, sorted by status
	Samples []sample
	// Socket means that the operation opens a WebSocket connection.
	Socket bool
}

type parameter struct {
	*rawParameter
	Field field
	// Example is a value for a first try. It may be empty.
	Example string
}

type request struct {
	Required bool
	Media    []string
	Fields   []field
	// Example is a small body in JSON.
	Example string
	// Form means that the body is a form, and cannot be JSON.
	Form bool
}

type answer struct {
	Status  int
	Text    string
	Media   []string
	Headers []parameter
	Fields  []field
	Example string // in JSON; empty for other media
	Shape   string // name of the schema
}

// area has the operations with one tag.
type area struct {
	Name, ID   string
	Operations []*operation
}

// methods are the HTTP methods in the order of the pages.
var methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}

// read decodes a document and groups its operations by area. The operations do not have their
// details yet.
func read(body []byte) (*document, []*area, error) {
	var doc document
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, nil, fmt.Errorf("devdocs: the document: %w", err)
	}
	byName := map[string]*area{}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		item := doc.Paths[path]
		for _, method := range methods {
			raw := item[strings.ToLower(method)]
			if raw == nil {
				continue
			}
			op := newOperation(method, path, raw)
			a := byName[op.Area]
			if a == nil {
				a = &area{Name: op.Area, ID: op.AreaID}
				byName[op.Area] = a
			}
			a.Operations = append(a.Operations, op)
		}
	}
	return &doc, slices.SortedFunc(maps.Values(byName), func(a, b *area) int { return strings.Compare(a.Name, b.Name) }), nil
}

// resolve sets the target of each schema that refers to a shared one.
func (d *document) resolve() {
	r := resolver{shared: d.Components.Schemas, seen: map[*schema]bool{}}
	for _, s := range d.Components.Schemas {
		r.schema(s)
	}
	for _, p := range d.Components.Parameters {
		r.schema(p.Schema)
	}
	for _, p := range d.Components.Headers {
		r.schema(p.Schema)
	}
	for _, item := range d.Paths {
		for _, op := range item {
			r.operation(op)
		}
	}
}

// resolver resolves references to shared schemas.
type resolver struct {
	shared map[string]*schema
	seen   map[*schema]bool
}

func (r resolver) schema(s *schema) {
	if s == nil || r.seen[s] {
		return
	}
	r.seen[s] = true
	if s.Ref != "" {
		s.name = s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		s.target = r.shared[s.name]
		return
	}
	r.schema(s.Items)
	r.schema(s.Additional.schema)
	for _, p := range s.Properties {
		r.schema(p)
	}
}

func (r resolver) operation(op *rawOperation) {
	for _, p := range op.Parameters {
		r.schema(p.Schema)
	}
	if op.Body != nil {
		r.content(op.Body.Content)
	}
	for _, res := range op.Responses {
		r.content(res.Content)
		for _, h := range res.Headers {
			r.schema(h.Schema)
		}
	}
}

func (r resolver) content(all map[string]content) {
	for _, c := range all {
		r.schema(c.Schema)
	}
}

func newOperation(method, path string, raw *rawOperation) *operation {
	op := &operation{rawOperation: raw, Method: method, Path: path, Area: "Other", Auth: authOf(raw.Security)}
	if len(raw.Tags) > 0 {
		op.Area = raw.Tags[0]
	}
	op.AreaID = slug(op.Area)
	return op
}

// detail sets everything that the operation's page shows. Call resolve first.
func (d *document) detail(op *operation) {
	raw := op.rawOperation
	for _, p := range raw.Parameters {
		op.Params = append(op.Params, d.parameter(p))
		op.Socket = op.Socket || strings.EqualFold(p.Name, "Upgrade")
	}
	// Path parameters come first, then those of the query, then headers. In each group the
	// required ones come first.
	order := []string{"path", "query", "header"}
	slices.SortStableFunc(op.Params, func(a, b parameter) int {
		if by := slices.Index(order, a.In) - slices.Index(order, b.In); by != 0 {
			return by
		}
		return less(a.Required, b.Required)
	})
	if raw.Body != nil {
		op.Request = requestOf(raw.Body)
	}
	for _, status := range slices.Sorted(maps.Keys(raw.Responses)) {
		a := d.answer(status, raw.Responses[status])
		if a.Status < 400 {
			op.Answers = append(op.Answers, a)
		} else {
			op.Faults = append(op.Faults, a)
		}
	}
	op.Samples = samples(op)
}

// less compares two booleans for sorting. true comes first.
func less(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

func (d *document) parameter(p *rawParameter) parameter {
	if p.Ref != "" {
		name := p.Ref[strings.LastIndexByte(p.Ref, '/')+1:]
		if target := d.Components.Parameters[name]; target != nil {
			p = target
		} else if target := d.Components.Headers[name]; target != nil {
			p = target
		}
	}
	f := fieldOf(p.Name, p.Schema, p.Required, nil)
	if p.Description != "" {
		f.Description = p.Description
	}
	out := parameter{rawParameter: p, Field: f}
	if p.Schema != nil && (p.Required || len(p.Schema.Examples) > 0) {
		out.Example = plain(example(p.Name, p.Schema, nil, false))
	}
	return out
}

func requestOf(b *rawBody) *request {
	r := &request{Required: b.Required, Media: slices.Sorted(maps.Keys(b.Content))}
	json, ok := b.Content["application/json"]
	if !ok && len(r.Media) > 0 {
		json, r.Form = b.Content[r.Media[0]], true
	}
	if json.Schema != nil {
		r.Fields = fieldsOf(json.Schema, nil)
		r.Example = indented(example("", json.Schema, nil, true))
	}
	return r
}

func (d *document) answer(status string, raw *rawResponse) answer {
	code, _ := strconv.Atoi(status) // "default" is not used
	a := answer{Status: code, Text: raw.Description, Media: slices.Sorted(maps.Keys(raw.Content))}
	for _, name := range slices.Sorted(maps.Keys(raw.Headers)) {
		h := d.parameter(raw.Headers[name])
		h.Field.Name = name
		a.Headers = append(a.Headers, h)
	}
	if c, ok := raw.Content["application/json"]; ok && c.Schema != nil {
		a.Fields = fieldsOf(c.Schema, nil)
		a.Example = indented(example("", c.Schema, nil, false))
		a.Shape = c.Schema.name
	}
	return a
}

// authOf returns which credentials callers need: public, optional, bearer or any.
func authOf(security []map[string][]string) string {
	if len(security) == 0 {
		return "public"
	}
	key, none := false, false
	for _, s := range security {
		if _, ok := s["apiKey"]; ok {
			key = true
		}
		none = none || len(s) == 0
	}
	switch {
	case none:
		return "optional"
	case key:
		return "any"
	default:
		return "bearer"
	}
}

// slug converts a name to a part of an address: in lower case, with dashes for all characters but
// letters and digits.
func slug(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '-'
		}
	}, name)
}

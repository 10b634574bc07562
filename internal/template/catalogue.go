// Package template is the catalogue of shipped controls and the rules by which
// they are suggested. It is pure: the catalogue is part of the program.
//
//	catalogue/<ID>/control.rego    the control: parameters as literals, then the rules
//	               words.txt       long word lists, written into the control (words.go)
//	               template.json   title, description, parameters, inputs
//	               cases.json      its test cases, run by both evaluators
//	               traffic.json    example traffic with the expected outcome
//
//	Load ─► Catalogue.Get(id) ─► Template.Fill(enrichment) ─► control to be created unchanged
package template

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
)

// files are the shipped templates: catalogue/<ID>/{control.rego, template.json,
// cases.json, traffic.json}, and words.txt if a control has long lists.
//
//go:embed catalogue
var files embed.FS

// Template is one shipped control, as its folder defines it.
type Template struct {
	// ID is the id in the specification, such as EGRESS_PII_MASKING.
	ID            string      `json:"id"`
	Title         string      `json:"title"`
	Description   string      `json:"description"`
	ResourceKinds []string    `json:"resource_kinds"`
	Inputs        []string    `json:"inputs"`
	Parameters    []Parameter `json:"parameters"`

	source  string
	places  []place
	cases   []Case
	traffic Traffic
}

// Parameter is a value that an author may change. It is a literal in the control's text.
type Parameter struct {
	Name        string `json:"name" doc:"Name of the Rego rule that holds the value." example:"tokens_per_minute"`
	Description string `json:"description" doc:"What it does."`
	Type        string `json:"type" enum:"string,number,boolean,array,object" doc:"JSON type of the value."`
	Default     any    `json:"default" doc:"Default value."`
	From        string `json:"from,omitempty" doc:"Enrichment field that the value comes from. The control reads this field at every decision; the literal applies while the field is not set." example:"pii_categories"`
	Value       any    `json:"value" doc:"Value in rego_code: from the resource's enrichment when from names a field that is set, else the default."`
}

// Case is a test case of a control. A stored test case has only Expected. Only the catalogue's own
// tests check the effect, the reason and the mask.
type Case struct {
	Name     string            `json:"name"`
	Input    map[string]any    `json:"input"`
	Expected bool              `json:"expected"`
	Effect   string            `json:"effect"`
	Reason   string            `json:"reason,omitempty"`
	Mask     map[string]string `json:"mask,omitempty"`
	// Needs names the parameters that must have their defaults for this case. Fill drops the
	// case if one of them has another value.
	Needs []string `json:"needs,omitempty"`
}

// Traffic is example traffic of a protected resource.
type Traffic struct {
	// Resource is a resource as POST /resources accepts it.
	Resource  map[string]any `json:"resource"`
	Exchanges []Exchange     `json:"exchanges"`
}

// Exchange is one request, with the outcome that the control must produce.
type Exchange struct {
	Name string `json:"name"`
	// Input is the decision input that the PEP builds from the request, without the resource.
	Input map[string]any `json:"input"`
	// Request and Answer are the same exchange over HTTP, for tests with a whole bouncer.
	Request *Message `json:"request,omitempty"`
	Answer  *Message `json:"answer,omitempty"`
	Want    Want     `json:"want"`
}

// Message is an HTTP request, or the protected application's answer to it.
type Message struct {
	Method  string            `json:"method,omitempty"`
	Path    string            `json:"path,omitempty"`
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    json.RawMessage   `json:"body,omitempty"`
}

// Want is the expected outcome: the effect, a part of the reason, and the complete mask.
type Want struct {
	Effect string            `json:"effect"`
	Reason string            `json:"reason,omitempty"`
	Mask   map[string]string `json:"mask,omitempty"`
}

// Catalogue contains all templates. Load reads and checks them. It is safe for concurrent use.
type Catalogue struct{ byID map[string]Template }

// Load reads the shipped catalogue. An error means that the build is broken.
func Load() (*Catalogue, error) {
	root, err := fs.Sub(files, "catalogue")
	if err != nil {
		return nil, err
	}
	return load(root)
}

func load(root fs.FS) (*Catalogue, error) {
	dirs, err := fs.ReadDir(root, ".")
	if err != nil {
		return nil, err
	}
	c := &Catalogue{byID: map[string]Template{}}
	for _, d := range dirs {
		t, err := read(root, d.Name())
		if err != nil {
			return nil, fmt.Errorf("template %s: %w", d.Name(), err)
		}
		c.byID[t.ID] = t
	}
	return c, nil
}

// IDs returns the ids of all templates, sorted.
func (c *Catalogue) IDs() []string { return slices.Sorted(maps.Keys(c.byID)) }

// Get returns the template with this id.
func (c *Catalogue) Get(id string) (Template, bool) {
	t, ok := c.byID[id]
	return t, ok
}

// Source returns the control as shipped, with the defaults of its parameters.
func (t Template) Source() string { return t.source }

// Traffic returns the example traffic.
func (t Template) Traffic() Traffic { return t.traffic }

func read(root fs.FS, id string) (Template, error) {
	t := Template{ID: id}
	source, err := fs.ReadFile(root, path.Join(id, "control.rego"))
	if err != nil {
		return t, err
	}
	if t.source, err = withWords(root, id, string(source)); err != nil {
		return t, err
	}
	var cases struct {
		Base  map[string]any `json:"base"`
		Cases []Case         `json:"cases"`
	}
	for name, into := range map[string]any{"template.json": &t, "cases.json": &cases, "traffic.json": &t.traffic} {
		text, err := fs.ReadFile(root, path.Join(id, name))
		if err != nil {
			return t, err
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(into); err != nil {
			return t, fmt.Errorf("%s: %w", name, err)
		}
	}
	if t.ID != id {
		return t, fmt.Errorf("template.json says it is %q", t.ID)
	}
	for _, c := range cases.Cases {
		c.Input = mergeInto(cases.Base, c.Input)
		t.cases = append(t.cases, c)
	}
	return t, t.find()
}

// mergeInto merges a case's input into the base that all cases of a template share, as a JSON merge
// patch (RFC 7396): it merges objects member by member, replaces other values, and removes the
// members that are null.
func mergeInto(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range over {
		below, isObject := v.(map[string]any)
		under, wasObject := out[k].(map[string]any)
		switch {
		case v == nil:
			delete(out, k)
		case isObject && wasObject:
			out[k] = mergeInto(under, below)
		default:
			out[k] = v
		}
	}
	return out
}

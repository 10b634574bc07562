package rest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// param is a parameter of an operation, ready to be checked.
type param struct {
	in, name string
	header   string // canonical
	required bool
	explode  bool
	schema   *huma.Schema
}

// params lists the parameters of an operation.
func (v *validator) params(op *huma.Operation) []param {
	var ps []param
	for _, p := range op.Parameters {
		if p.Ref != "" {
			continue // common ones are read elsewhere
		}
		q := param{in: p.In, name: p.Name, required: p.Required, schema: v.deref(p.Schema)}
		q.explode = p.Explode != nil && *p.Explode
		if p.In == "header" {
			q.header = http.CanonicalHeaderKey(p.Name)
		}
		ps = append(ps, q)
	}
	return ps
}

// checkParams checks all parameters of a request. A path parameter that no object
// can have is a 404. Every other offence is a 400.
func (r *Router) checkParams(rt *route, req *http.Request) error {
	var ds []fault.Detail
	query, err := parseQuery(req)
	if err != nil {
		return err
	}
	if err := rt.checkQueryNames(query); err != nil {
		return err
	}
	for i := range rt.params {
		p := &rt.params[i]
		values := p.values(req, query)
		if p.in == "path" {
			if len(r.valid.wrong(p, values)) > 0 {
				return fault.New(fault.NotFound, "not_found", "there is no such object")
			}
			continue
		}
		for _, message := range r.valid.wrong(p, values) {
			ds = append(ds, fault.Detail{Pointer: p.in + "." + p.name, Message: message})
		}
	}
	if len(ds) == 0 {
		return nil
	}
	e := BadRequest("invalid_parameter", "%s: %s", ds[0].Pointer, ds[0].Message)
	e.Details = ds
	return e
}

// queriedByAll are the query parameters that every operation takes.
var queriedByAll = []string{"environment", "tenant_id"}

// checkQueryNames refuses query parameters that the operation does not have: a
// typo in a filter must not answer the whole list.
func (rt *route) checkQueryNames(query url.Values) error {
	if len(query) == 0 || rt.area.AnyQuery {
		return nil
	}
	known := slices.Clone(queriedByAll)
	for i := range rt.params {
		if rt.params[i].in == "query" {
			known = append(known, rt.params[i].name)
		}
	}
	var ds []fault.Detail
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) && len(ds) < MaxDetails {
			ds = append(ds, fault.Detail{Pointer: "query." + clipped(name), Message: "there is no such parameter here" + fault.DidYouMean(name, known)})
		}
	}
	if len(ds) == 0 {
		return nil
	}
	e := BadRequest("unknown_parameter", "%s: %s", ds[0].Pointer, ds[0].Message)
	e.Details = ds
	return e
}

// clipped is the beginning of a name that the caller chose, fit for an answer.
func clipped(name string) string {
	const most = 64
	if len(name) > most {
		name = name[:most] + "..."
	}
	return strings.ToValidUTF8(name, "?")
}

func (p *param) values(req *http.Request, query url.Values) []string {
	switch p.in {
	case "path":
		return []string{req.PathValue(p.name)}
	case "query":
		return query[p.name]
	case "header":
		return req.Header[p.header]
	default:
		return nil
	}
}

// wrong lists what is wrong with the values of a parameter.
func (v *validator) wrong(p *param, values []string) []string {
	if len(values) == 0 {
		if p.required {
			return []string{"this parameter is required"}
		}
		return nil
	}
	if p.schema == nil {
		return nil
	}
	if p.schema.Type == huma.TypeArray {
		return v.wrongList(p, values)
	}
	if len(values) > 1 {
		return []string{"this parameter may be sent once only"}
	}
	if values[0] == "" && (p.schema.Type != huma.TypeString || len(p.schema.Enum) > 0 || p.schema.Format != "" || p.schema.MinLength != nil) {
		return []string{"this parameter is empty"} // an empty filter must not answer the whole list
	}
	if values[0] == "" && !p.required {
		return nil
	}
	return v.wrongText(p.schema, values[0])
}

func (v *validator) wrongList(p *param, values []string) []string {
	if !p.explode {
		if len(values) > 1 {
			return []string{"this parameter may be sent once only, with commas between its values"}
		}
		values = strings.Split(values[0], ",")
	}
	var messages []string
	if p.schema.MaxItems != nil && len(values) > *p.schema.MaxItems {
		messages = append(messages, "expected at most "+strconv.Itoa(*p.schema.MaxItems)+" values")
	}
	items := v.deref(p.schema.Items)
	for _, text := range values {
		messages = append(messages, v.wrongText(items, text)...)
	}
	return messages
}

// wrongText checks one parameter's text against a scalar schema.
func (v *validator) wrongText(s *huma.Schema, text string) []string {
	switch s.Type {
	case huma.TypeInteger:
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil || strconv.FormatInt(i, 10) != text { // an id has one spelling: neither 01 nor +1
			return []string{"expected an integer"}
		}
		return v.scalar(s, i)
	case huma.TypeNumber:
		f, err := json.Number(text).Float64()
		if err != nil {
			return []string{"expected a number"}
		}
		return v.scalar(s, f)
	case huma.TypeBoolean:
		if text != "true" && text != "false" {
			return []string{"expected true or false"}
		}
		return nil
	default:
		return v.scalar(s, text)
	}
}

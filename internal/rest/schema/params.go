package schema

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Param is a parameter of an operation, prepared for checks.
type Param struct {
	// In is path, query or header.
	In string
	// Name is its name in the document.
	Name     string
	header   string // canonical
	required bool
	explode  bool
	schema   *huma.Schema
}

// Params lists the parameters of an operation.
func (c *Checker) Params(op *huma.Operation) []Param {
	var ps []Param
	for _, p := range op.Parameters {
		if p.Ref != "" {
			continue // common ones are read elsewhere
		}
		q := Param{In: p.In, Name: p.Name, required: p.Required, schema: c.deref(p.Schema)}
		q.explode = p.Explode != nil && *p.Explode
		if p.In == "header" {
			q.header = http.CanonicalHeaderKey(p.Name)
		}
		ps = append(ps, q)
	}
	return ps
}

// Values returns the texts that a request has for p. query is its parsed query.
func (p *Param) Values(req *http.Request, query url.Values) []string {
	switch p.In {
	case "path":
		return []string{req.PathValue(p.Name)}
	case "query":
		return query[p.Name]
	case "header":
		return req.Header[p.header]
	default:
		return nil
	}
}

// CheckParam lists the errors in the values of a parameter. No message quotes them.
func (c *Checker) CheckParam(p *Param, values []string) []string {
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
		return c.checkList(p, values)
	}
	if len(values) > 1 {
		return []string{"this parameter may be sent once only"}
	}
	if values[0] == "" && (p.schema.Type != huma.TypeString || len(p.schema.Enum) > 0 || p.schema.Format != "" || p.schema.MinLength != nil) {
		return []string{"this parameter is empty"} // an empty filter must not return the whole list
	}
	if values[0] == "" && !p.required {
		return nil
	}
	return c.checkText(p.schema, values[0])
}

func (c *Checker) checkList(p *Param, values []string) []string {
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
	items := c.deref(p.schema.Items)
	for _, text := range values {
		messages = append(messages, c.checkText(items, text)...)
	}
	return messages
}

// checkText checks one parameter's text against a scalar schema.
func (c *Checker) checkText(s *huma.Schema, text string) []string {
	switch s.Type {
	case huma.TypeInteger:
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil || strconv.FormatInt(i, 10) != text { // an id has one spelling: neither 01 nor +1
			return []string{"expected an integer"}
		}
		return c.scalar(s, i)
	case huma.TypeBoolean:
		if text != "true" && text != "false" {
			return []string{"expected true or false"}
		}
		return nil
	default:
		return c.scalar(s, text)
	}
}

package rest

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest/schema"
)

// checkParams checks all parameters of a request. An invalid path parameter is a 404. Every other
// offence is a 400.
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
		values := p.Values(req, query)
		if p.In == "path" {
			if len(r.valid.CheckParam(p, values)) > 0 {
				return fault.New(fault.NotFound, "not_found", "there is no such object")
			}
			continue
		}
		for _, message := range r.valid.CheckParam(p, values) {
			ds = append(ds, fault.Detail{Pointer: p.In + "." + p.Name, Message: message})
		}
	}
	return badParameters("invalid_parameter", ds)
}

// badParameters returns the fault for the offences in parameters; nil for none.
func badParameters(code string, ds []fault.Detail) error {
	if len(ds) == 0 {
		return nil
	}
	e := BadRequest(code, "%s: %s", ds[0].Pointer, ds[0].Message)
	e.Details = ds
	return e
}

// queriedByAll are the query parameters that all operations accept.
var queriedByAll = []string{"environment", "tenant_id"}

// checkQueryNames refuses unknown query parameters: a typo in a filter must not return the whole
// list.
func (rt *route) checkQueryNames(query url.Values) error {
	if len(query) == 0 || rt.area.AnyQuery {
		return nil
	}
	known := slices.Clone(queriedByAll)
	for i := range rt.params {
		if rt.params[i].In == "query" {
			known = append(known, rt.params[i].Name)
		}
	}
	var ds []fault.Detail
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) && len(ds) < schema.MaxDetails {
			ds = append(ds, fault.Detail{Pointer: "query." + clipped(name), Message: "there is no such parameter here" + fault.DidYouMean(name, known)})
		}
	}
	return badParameters("unknown_parameter", ds)
}

// clipped returns the beginning of a name that the caller chose, in a form that is safe in an
// answer.
func clipped(name string) string {
	const most = 64
	if len(name) > most {
		name = name[:most] + "..."
	}
	return strings.ToValidUTF8(name, "?")
}

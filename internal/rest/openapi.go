package rest

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/memory"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rest/measure"
	"github.com/gatehouse-dev/gatehouse/internal/rest/schema"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// New returns a Router without operations. Register them, then call Finish.
func New(c Config) (*Router, error) {
	tuneHuma()
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	r := &Router{cfg: c, mux: http.NewServeMux(), static: map[string]map[string]*route{}, bodyPools: memory.ForBodies(128 << 20), briefBodyPools: memory.ForBodies(64 << 20)}
	r.pool.New = func() any { return &exchange{} }
	r.mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		if x, ok := w.(*exchange); ok {
			x.unmatched(req)
		}
	})
	var err error
	if r.metrics, err = measure.New(c.Registry, c.Version, c.Meter); err != nil {
		return nil, err
	}
	r.unmatchedStats = r.metrics.Prepare("none", "any")
	r.limiter = &limiter{limits: c.Limits, counts: c.Count, now: c.Now}
	registry := huma.NewMapRegistry("#/components/schemas/", c.Document.schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[value.Value](), reflect.TypeFor[any]())
	r.valid = &schema.Checker{Registry: registry, Names: c.Document.Names}
	r.api = documenter{huma.NewAPI(huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: c.Document.Title, Version: c.Document.Version, Description: c.Document.Description,
				License:    &huma.License{Name: c.Document.License, Identifier: c.Document.License},
				Extensions: c.Document.Extensions,
			},
			Servers: []*huma.Server{{URL: "/"}},
			Components: &huma.Components{
				Schemas:    registry,
				Parameters: commonParameters(),
				Headers:    rateDocs(),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"apiKey": {Type: "apiKey", In: "header", Name: "X-API-Key", Description: "An API key of a tenant"},
					"bearer": {Type: "http", Scheme: "bearer", Description: "An access token of a person, or an API key"},
					"token":  {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "An access token of a person; API keys are not accepted"},
					"cookie": {Type: "apiKey", In: "cookie", Name: scope.SecureSessionCookie, Description: "A browser's session, from POST /auth/sessions. Without TLS the cookie is named gatehouse. Requests must come from a page of this origin"},
				},
			},
		},
		Formats:       map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json",
	}, documentAdapter{})}
	return r, nil
}

// OpenAPI returns the document, for descriptions of anything but operations.
func (r *Router) OpenAPI() *huma.OpenAPI { return r.api.OpenAPI() }

// documentAdapter is a huma.Adapter that serves nothing.
type documentAdapter struct{}

func (documentAdapter) Handle(*huma.Operation, func(huma.Context))         {}
func (documentAdapter) ServeHTTP(w http.ResponseWriter, req *http.Request) { http.NotFound(w, req) }

// documenter writes operations into the document.
type documenter struct{ huma.API }

// schemaOf returns the schema of a Go type, by reference if it has one.
func (d documenter) schemaOf(t reflect.Type) *huma.Schema {
	return d.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// operation starts the document's entry for a route.
func (d documenter) operation(rt *route) *huma.Operation {
	op := rt.op
	doc := &huma.Operation{
		OperationID: op.ID, Method: op.Method, Path: strings.ReplaceAll(rt.pattern, "...}", "}"),
		Summary: op.Summary, Description: op.Description, Tags: op.Tags,
		DefaultStatus: op.Status, MaxBodyBytes: -1, BodyReadTimeout: -1,
		SkipValidateBody: true, SkipValidateParams: true,
		Responses: map[string]*huma.Response{},
	}
	doc.Extensions = map[string]any{}
	if op.Permission != "" {
		doc.Extensions["x-permission"] = string(op.Permission)
	}
	if op.Also != "" {
		doc.Extensions["x-permission-also"] = string(op.Also)
	}
	if !op.Public {
		doc.Extensions["x-environment"] = op.Reach.String()
	}
	if kinds := op.kinds(); kinds != nil {
		doc.Extensions["x-callers"] = kinds
	}
	doc.Security = []map[string][]string{{"apiKey": {}}, {"bearer": {}}, {"cookie": {}}}
	switch {
	case op.Caller != "":
		doc.Security = []map[string][]string{{"apiKey": {}}, {"bearer": {}}}
	case op.Token:
		doc.Security = []map[string][]string{{"token": {}}, {"cookie": {}}}
	case op.Bearer:
		doc.Security = []map[string][]string{{"bearer": {}}, {"cookie": {}}}
	case op.Public:
		doc.Security = []map[string][]string{}
	case op.Optional:
		doc.Security = []map[string][]string{{"apiKey": {}}, {"bearer": {}}, {}}
	}
	if !op.Public && !op.Root && op.Family == "" {
		for _, name := range []string{"Tenant", "TenantQuery"} {
			doc.Parameters = append(doc.Parameters, &huma.Param{Ref: "#/components/parameters/" + name})
		}
	}
	if op.Creates {
		doc.Parameters = append(doc.Parameters, &huma.Param{Ref: "#/components/parameters/IdempotencyKey"})
	}
	for _, status := range rt.failures() {
		d.respond(doc, rt, status)
	}
	return doc
}

// failures lists the error statuses of a route.
func (rt *route) failures() []int {
	op := rt.op
	set := append([]int{http.StatusBadRequest, http.StatusInternalServerError, http.StatusServiceUnavailable}, op.Errors...)
	if !op.Public {
		// 404: a platform administrator may name a tenant that does not exist
		set = append(set, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests)
	}
	if strings.Contains(rt.pattern, "{") {
		set = append(set, http.StatusNotFound)
	}
	if op.Method == http.MethodPost || op.Method == http.MethodPut || op.Method == http.MethodPatch || op.Method == http.MethodDelete {
		set = append(set, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusInsufficientStorage, rt.area.status(fault.Invalid))
	}
	if op.Creates {
		set = append(set, http.StatusConflict)
	}
	return slices.Compact(slices.Sorted(slices.Values(set)))
}

func (d documenter) respond(doc *huma.Operation, rt *route, status int) {
	t := errorType(rt.area.Errors, status)
	if own, ok := rt.op.OwnErrors[status]; ok {
		t = own
	}
	resp := &huma.Response{Description: http.StatusText(status), Content: map[string]*huma.MediaType{
		rt.area.Errors.media()[0]: {Schema: d.schemaOf(t)},
	}}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		resp.Headers = map[string]*huma.Param{"Retry-After": {Description: "Seconds to wait before trying again", Schema: &huma.Schema{Type: huma.TypeInteger}}}
	}
	doc.Responses[strconv.Itoa(status)] = resp
}

// rateDocs documents the headers of every answer to an API key.
func rateDocs() map[string]*huma.Header {
	number := &huma.Schema{Type: huma.TypeInteger}
	return map[string]*huma.Header{
		"X-RateLimit-Limit":     {Schema: number, Description: "Requests that the API key may make in an hour. Sent with every answer to an API key, errors included; absent for people, bouncers, and where there is no limit"},
		"X-RateLimit-Remaining": {Schema: number, Description: "Number of entries left"},
		"X-RateLimit-Reset":     {Schema: number, Description: "When the hour ends, in Unix seconds"},
	}
}

// documentLimits documents the headers of the rate limit on success and on 429.
func (d documenter) documentLimits(rt *route) {
	if rt.op.Public {
		return
	}
	for status, resp := range rt.doc.Responses {
		if status[0] != '2' && status != strconv.Itoa(http.StatusTooManyRequests) {
			continue
		}
		if resp.Headers == nil {
			resp.Headers = map[string]*huma.Param{}
		}
		for name := range d.OpenAPI().Components.Headers {
			resp.Headers[name] = &huma.Param{Ref: "#/components/headers/" + name}
		}
	}
}

// documented finds the operation that huma put into the document.
func (d documenter) documented(rt *route) *huma.Operation {
	item := d.OpenAPI().Paths[rt.doc.Path]
	for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete, item.Head, item.Options} {
		if op != nil && op.OperationID == rt.op.ID {
			return op
		}
	}
	panic("rest: huma did not document " + rt.op.ID)
}

// describe documents a Raw operation.
func (d documenter) describe(rt *route, docs RawDocs) {
	doc := rt.doc
	if docs.Params != nil {
		doc.Parameters = append(doc.Parameters, d.params(docs.Params)...)
	}
	if docs.Request != nil {
		doc.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{}}
		for m := range strings.SplitSeq(cmp.Or(docs.RequestType, "application/json"), ",") {
			doc.RequestBody.Content[strings.TrimSpace(m)] = &huma.MediaType{Schema: d.schemaOf(docs.Request)}
		}
	}
	status := cmp.Or(rt.op.Status, http.StatusOK)
	resp := &huma.Response{Description: http.StatusText(status)}
	if docs.Response != nil {
		resp.Content = map[string]*huma.MediaType{}
		for m := range strings.SplitSeq(cmp.Or(docs.ResponseType, "application/json"), ",") {
			resp.Content[strings.TrimSpace(m)] = &huma.MediaType{Schema: d.schemaOf(docs.Response)}
		}
	}
	doc.Responses[strconv.Itoa(status)] = resp
	d.OpenAPI().AddOperation(doc)
}

// params documents the tagged fields of a struct as parameters.
func (d documenter) params(t reflect.Type) []*huma.Param {
	var ps []*huma.Param
	for _, f := range reflect.VisibleFields(t) {
		for _, in := range []string{"path", "query", "header"} {
			name, _, _ := strings.Cut(f.Tag.Get(in), ",")
			if name == "" || f.Anonymous {
				continue
			}
			s := huma.SchemaFromField(d.OpenAPI().Components.Schemas, f, "")
			ps = append(ps, &huma.Param{
				Name: name, In: in, Description: s.Description, Schema: s,
				Required: in == "path" || f.Tag.Get("required") == "true",
			})
		}
	}
	return ps
}

func contentOf(doc *huma.Operation) map[string]*huma.MediaType {
	if doc.RequestBody == nil {
		return nil
	}
	return doc.RequestBody.Content
}

func jsonSchema(doc *huma.Operation) *huma.Schema {
	if m := contentOf(doc)["application/json"]; m != nil {
		return m.Schema
	}
	return nil
}

// commonParameters returns parameters that many operations share.
func commonParameters() map[string]*huma.Param {
	text := &huma.Schema{Type: huma.TypeString}
	return map[string]*huma.Param{
		"Tenant":         {Name: "X-Tenant-ID", In: "header", Schema: text, Description: "The tenant to work in; absent: the tenant of the host name, else that of the credential. Conflicting values are a 400."},
		"TenantQuery":    {Name: "tenant_id", In: "query", Schema: text, Description: "The same as X-Tenant-ID, for clients that cannot set headers"},
		"IdempotencyKey": {Name: idempotencyHeader, In: "header", Schema: text, Description: "1 to 255 visible ASCII characters. For 24 hours, a request with the same key gets the answer of the first success. The same key with a different request is a 422."},
	}
}

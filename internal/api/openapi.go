package api

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The version of the API (semantic), as info.x-gatehouse-contract reports it. A
// removed operation, member or value, or a narrower type, needs a new major
// version: a test compares the document with the last one.
const (
	APIVersion    = "2.0.0"
	SchemaVersion = "1.0.0"
)

// productName is the document's title, the same in all languages.
const productName = "gatehouse"

var (
	stringType = reflect.TypeFor[string]()
	objectType = reflect.TypeFor[map[string]any]()
)

// Contract is info.x-gatehouse-contract.
type Contract struct {
	APIVersion        string `json:"api_version"`
	SchemaVersion     string `json:"schema_version"`
	DeprecationPolicy string `json:"deprecation_policy"`
}

func newRouter(s *Server) (*Router, error) {
	tuneHuma()
	r := &Router{s: s, mux: http.NewServeMux(), static: map[string]map[string]*route{}, large: semaphore.NewWeighted(largeBodies)}
	r.pool.New = func() any { return &exchange{} }
	r.mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		if x, ok := w.(*exchange); ok {
			x.lost(req)
		}
	})
	if s.Registry == nil {
		s.Registry = prometheus.NewRegistry()
	}
	var err error
	if r.metrics, err = newMetrics(s.Registry, s.Version); err != nil {
		return nil, err
	}
	r.limiter = &limiter{limits: s.Limits, counts: s.Count, now: s.Now}
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[value.Value](), reflect.TypeFor[any]())
	r.valid = &validator{registry: registry}
	r.api = huma.NewAPI(huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       productName,
				Version:     APIVersion,
				Description: "Policies, protected resources, decisions and the bouncers that enforce them.",
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
				Extensions: map[string]any{"x-gatehouse-contract": Contract{
					APIVersion: APIVersion, SchemaVersion: SchemaVersion,
					DeprecationPolicy: "A breaking change comes with a new major api_version and is announced in the change log at least 180 days before; what is deprecated is marked so in this document and keeps working until then.",
				}},
			},
			Servers: []*huma.Server{{URL: "/"}},
			Components: &huma.Components{
				Schemas:    registry,
				Parameters: commonParameters(),
				Headers:    rateDocs(),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"apiKey": {Type: "apiKey", In: "header", Name: "X-API-Key", Description: "An API key of a tenant"},
					"bearer": {Type: "http", Scheme: "bearer", Description: "An access token of a person, or an API key"},
				},
			},
		},
		Formats:       map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json",
	}, r)
	return r, nil
}

// schemaOf is the schema of a Go type, by reference where it has one.
func (r *Router) schemaOf(t reflect.Type) *huma.Schema {
	return r.api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// operation starts the document's entry for a route.
func (r *Router) operation(rt *route) *huma.Operation {
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
	doc.Security = []map[string][]string{{"apiKey": {}}, {"bearer": {}}}
	switch {
	case op.Bearer:
		doc.Security = []map[string][]string{{"bearer": {}}}
	case op.Public:
		doc.Security = []map[string][]string{}
	case op.Optional:
		doc.Security = append(doc.Security, map[string][]string{})
	}
	if !op.Public && !op.Root {
		for _, name := range []string{"Tenant", "TenantQuery"} {
			doc.Parameters = append(doc.Parameters, &huma.Param{Ref: "#/components/parameters/" + name})
		}
	}
	if op.Creates {
		doc.Parameters = append(doc.Parameters, &huma.Param{Ref: "#/components/parameters/IdempotencyKey"})
	}
	for _, status := range rt.failures() {
		r.respond(doc, rt, status)
	}
	return doc
}

// failures lists the error statuses that a route may answer.
func (rt *route) failures() []int {
	op := rt.op
	set := append([]int{http.StatusBadRequest, http.StatusInternalServerError, http.StatusServiceUnavailable}, op.Errors...)
	if !op.Public {
		// 404: a platform administrator may name a tenant that is not there.
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
	slices.Sort(set)
	return slices.Compact(set)
}

func (r *Router) respond(doc *huma.Operation, rt *route, status int) {
	t := errorType(rt.area, status)
	if own, ok := rt.op.OwnErrors[status]; ok {
		t = own
	}
	resp := &huma.Response{Description: http.StatusText(status), Content: map[string]*huma.MediaType{
		"application/json": {Schema: r.schemaOf(t)},
	}}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		resp.Headers = map[string]*huma.Param{"Retry-After": {Description: "Seconds to wait before trying again", Schema: &huma.Schema{Type: huma.TypeInteger}}}
	}
	doc.Responses[strconv.Itoa(status)] = resp
}

// rateDocs documents what every answer to an API key carries.
func rateDocs() map[string]*huma.Header {
	number := &huma.Schema{Type: huma.TypeInteger}
	return map[string]*huma.Header{
		"X-RateLimit-Limit":     {Schema: number, Description: "On every answer to an API key, refusals too: the requests that it may make in an hour. Absent for people, bouncers and where there is no limit"},
		"X-RateLimit-Remaining": {Schema: number, Description: "How many of them are left"},
		"X-RateLimit-Reset":     {Schema: number, Description: "When the hour ends, in Unix seconds"},
	}
}

// meter documents the rate limit's headers where a reader looks for them: on
// success and on 429.
func (r *Router) meter(rt *route) {
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
		for name := range r.api.OpenAPI().Components.Headers {
			resp.Headers[name] = &huma.Param{Ref: "#/components/headers/" + name}
		}
	}
}

// documented finds the operation that huma has put into the document.
func (r *Router) documented(rt *route) *huma.Operation {
	item := r.api.OpenAPI().Paths[rt.doc.Path]
	for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete, item.Head, item.Options} {
		if op != nil && op.OperationID == rt.op.ID {
			return op
		}
	}
	panic("api: huma did not document " + rt.op.ID)
}

// describe documents a Raw operation.
func (r *Router) describe(rt *route, docs RawDocs) {
	doc := rt.doc
	if docs.Params != nil {
		doc.Parameters = append(doc.Parameters, r.params(docs.Params)...)
	}
	if docs.Request != nil {
		doc.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{}}
		for m := range strings.SplitSeq(media(docs.RequestType), ",") {
			doc.RequestBody.Content[strings.TrimSpace(m)] = &huma.MediaType{Schema: r.schemaOf(docs.Request)}
		}
	}
	status := rt.op.Status
	if status == 0 {
		status = http.StatusOK
	}
	resp := &huma.Response{Description: http.StatusText(status)}
	if docs.Response != nil {
		resp.Content = map[string]*huma.MediaType{}
		for m := range strings.SplitSeq(media(docs.ResponseType), ",") {
			resp.Content[strings.TrimSpace(m)] = &huma.MediaType{Schema: r.schemaOf(docs.Response)}
		}
	}
	doc.Responses[strconv.Itoa(status)] = resp
	r.api.OpenAPI().AddOperation(doc)
}

// params documents the tagged fields of a struct as parameters.
func (r *Router) params(t reflect.Type) []*huma.Param {
	var ps []*huma.Param
	for _, f := range reflect.VisibleFields(t) {
		for _, in := range []string{"path", "query", "header"} {
			name, _, _ := strings.Cut(f.Tag.Get(in), ",")
			if name == "" || f.Anonymous {
				continue
			}
			s := huma.SchemaFromField(r.api.OpenAPI().Components.Schemas, f, "")
			ps = append(ps, &huma.Param{
				Name: name, In: in, Description: s.Description, Schema: s,
				Required: in == "path" || f.Tag.Get("required") == "true",
			})
		}
	}
	return ps
}

func media(m string) string {
	if m == "" {
		return "application/json"
	}
	return m
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

// commonParameters are those that whole families of operations take.
func commonParameters() map[string]*huma.Param {
	text := &huma.Schema{Type: huma.TypeString}
	return map[string]*huma.Param{
		"Tenant":         {Name: "X-Tenant-ID", In: "header", Schema: text, Description: "The tenant to work in; absent: that of the host name, else the credential's own. Sources that disagree are a 400."},
		"TenantQuery":    {Name: "tenant_id", In: "query", Schema: text, Description: "The same as X-Tenant-ID, for clients that cannot send headers"},
		"IdempotencyKey": {Name: idempotencyHeader, In: "header", Schema: text, Description: "1 to 255 visible ASCII characters. The first success is replayed for 24 hours to whoever sends the key again; the same key with another request is a 422."},
	}
}

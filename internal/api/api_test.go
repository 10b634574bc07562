package api

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// widget is a record as the operations of the tests answer it.
type widget struct {
	ID        int64          `json:"id" doc:"Id" readOnly:"true"`
	Name      string         `json:"name" doc:"Name"`
	Kind      string         `json:"kind" doc:"Kind"`
	Parts     []part         `json:"parts" doc:"Parts"`
	Settings  map[string]any `json:"settings" doc:"Settings"`
	Colour    *string        `json:"colour" doc:"Colour; null for none"`
	CreatedAt time.Time      `json:"created_at" doc:"When it was made"`
}

type part struct {
	Size     int64  `json:"size" doc:"Size" minimum:"1"`
	Material string `json:"material,omitempty" doc:"Material" enum:"oak,ash"`
	Secret   string `json:"-"`
}

type widgetDraft struct {
	Name     string         `json:"name" doc:"Name" minLength:"1" maxLength:"10"`
	Kind     string         `json:"kind,omitempty" doc:"Kind" enum:"a,b"`
	Parts    []part         `json:"parts,omitempty" doc:"Parts" maxItems:"3"`
	Settings map[string]any `json:"settings,omitempty" doc:"Settings"`
	Contact  string         `json:"contact,omitempty" doc:"Contact" format:"email"`
	Home     string         `json:"home,omitempty" doc:"Home" format:"uri"`
	Weight   *float64       `json:"weight,omitempty" doc:"Weight" nullable:"true"`
	Colour   string         `json:"colour,omitempty" doc:"Colour"`
}

type (
	widgetIn struct {
		ID   int64 `path:"id" minimum:"1"`
		Body widgetDraft
	}
	createIn  struct{ Body widgetDraft }
	widgetOut struct {
		ETag string `header:"ETag"`
		Body widget
	}
	listIn struct {
		Page
		Kind   string    `query:"kind" enum:"a,b" doc:"Kind"`
		Since  time.Time `query:"since" doc:"Since"`
		Strict bool      `query:"strict" doc:"Strict"`
	}
	listOut struct {
		Body struct {
			Skip  int `json:"skip" doc:"Skip"`
			Limit int `json:"limit" doc:"Limit"`
		}
	}
)

// rig is a Router with operations of the tests and what they need.
type rig struct {
	*Router
	server  *Server
	logs    *bytes.Buffer
	panics  atomic.Int32
	created atomic.Int64
	auths   atomic.Int64
	spec    *openapi3.T
}

// callers are the credentials that the tests know.
var callers = map[string]scope.Scope{
	"full":     {Tenant: "t1", Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Key, ID: "1"}},
	"reader":   {Tenant: "t1", Permissions: scope.Permissions{List: []scope.Permission{"resources:read"}}, Actor: scope.Actor{Kind: scope.Key, ID: "2"}},
	"person":   {Tenant: "t1", Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Person, ID: "3"}},
	"platform": {Tenant: "default", Permissions: scope.Permissions{All: true}, Platform: true, Actor: scope.Actor{Kind: scope.Person, ID: "4"}},
}

func newRig(t testing.TB, change func(*Server), register func(*rig)) *rig {
	t.Helper()
	g := &rig{logs: &bytes.Buffer{}}
	var ids atomic.Int64
	g.server = &Server{
		Version: "test", Now: time.Now, Log: slog.New(slog.NewTextHandler(g.logs, nil)), Panics: &fault.Panics{Add: func(string) { g.panics.Add(1) }},
		NewID: func() string { return "made-" + strconv.FormatInt(ids.Add(1), 10) },
	}
	g.server.Authenticate = func(_ context.Context, c Credential) (scope.Scope, Principal, error) {
		g.auths.Add(1)
		sc, ok := callers[c.APIKey+c.Bearer]
		if !ok {
			return sc, Principal{}, fault.New(fault.Unauthenticated, "invalid_credentials", "the credential is not valid")
		}
		who := Principal{KeyID: sc.Actor.ID, Tenant: sc.Tenant, Plan: "standard", RateLimited: sc.Actor.Kind == scope.Key}
		if c.TenantHint != "" && c.TenantHint != sc.Tenant && !sc.Platform {
			return scope.Scope{}, who, TenantDenied(string(c.TenantHint))
		}
		sc.RequestID, sc.Env = c.RequestID, c.EnvHint
		return sc, who, nil
	}
	if change != nil {
		change(g.server)
	}
	r, err := newRouter(g.server)
	if err != nil {
		t.Fatal(err)
	}
	g.Router = r
	g.server.health(r)
	g.server.exposition(r)
	g.server.documentation(r)
	g.widgets()
	if register != nil {
		register(g)
	}
	if err := r.finish(); err != nil {
		t.Fatal(err)
	}
	if g.spec, err = openapi3.NewLoader().LoadFromData(r.docs["en"].body); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *rig) widgets() {
	tags := []string{"Widgets"}
	save := func(_ context.Context, _ scope.Scope, in *widgetIn) (*widgetOut, error) {
		b := in.Body
		return &widgetOut{ETag: ETag(1), Body: widget{ID: in.ID, Name: b.Name, Kind: b.Kind, Parts: b.Parts, Settings: b.Settings}}, nil
	}
	Register(g.Router, Op{ID: "update-widget", Method: "PUT", Path: "/widgets/{id}", Tags: tags, Permission: "resources:write", Record: reflect.TypeFor[widget]()}, save)
	Register(g.Router, Op{ID: "create-widget", Method: "POST", Path: "/widgets", Tags: tags, Permission: "resources:write", Status: 201, Creates: true},
		func(ctx context.Context, sc scope.Scope, in *createIn) (*widgetOut, error) {
			return save(ctx, sc, &widgetIn{ID: g.created.Add(1), Body: in.Body})
		})
	Register(g.Router, Op{ID: "list-widgets", Method: "GET", Path: "/widgets", Tags: tags, Permission: "resources:read"},
		func(_ context.Context, _ scope.Scope, in *listIn) (*listOut, error) {
			var out listOut
			out.Body.Skip, out.Body.Limit = in.Skip, in.Limit
			return &out, nil
		})
	for id, path := range map[string]string{"pis-widget": "/pis/widgets/{id}", "ide-widget": "/ide-integration/widgets/{id}", "tenant-widget": "/tenants/{tenant_id}/widgets/{id}"} {
		if id == "tenant-widget" {
			type in struct {
				Tenant string `path:"tenant_id"`
				ID     int64  `path:"id" minimum:"1"`
				Body   widgetDraft
			}
			Register(g.Router, Op{ID: id, Method: "PUT", Path: path, Tags: tags}, func(ctx context.Context, sc scope.Scope, i *in) (*widgetOut, error) {
				return save(ctx, sc, &widgetIn{ID: i.ID, Body: i.Body})
			})
			continue
		}
		Register(g.Router, Op{ID: id, Method: "PUT", Path: path, Tags: tags}, save)
	}
	Raw(g.Router, Op{ID: "raw-widget", Method: "POST", Path: "/raw", Tags: tags, MaxBody: 1000}, RawDocs{Request: reflect.TypeFor[widgetDraft](), Response: stringType},
		func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
			body, err := Body(w, req)
			if err != nil {
				Fail(w, err)
				return
			}
			WriteJSON(w, 200, strconv.Itoa(len(body)))
		})
	Raw(g.Router, Op{ID: "failing-widget", Method: "GET", Path: "/failing/{how}", Tags: tags}, RawDocs{},
		func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
			switch req.PathValue("how") {
			case "panic":
				panic("secret of the program")
			case "late":
				_, _ = w.Write([]byte("half"))
				panic("late")
			case "unforeseen":
				Fail(w, io.ErrUnexpectedEOF)
			case "timeout":
				Fail(w, context.DeadlineExceeded)
			case "down":
				Fail(w, fault.New(fault.Unavailable, "store_unavailable", "the store does not answer").After(500*time.Millisecond))
			}
		})
}

// do sends a request and holds the answer to the document.
func (g *rig) do(t testing.TB, req *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	g.ServeHTTP(w, req)
	if g.spec != nil {
		g.conforms(t, req, w)
	}
	return w
}

// conforms checks an answer against the document, where the request is one of
// its operations.
func (g *rig) conforms(t testing.TB, req *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	under, ok := resolve(req)
	if !ok {
		return
	}
	_, pattern := g.mux.Handler(under)
	_, path, _ := strings.Cut(pattern, " ")
	item := g.spec.Paths.Value(path)
	if item == nil || item.GetOperation(req.Method) == nil {
		return
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: req, Route: &routers.Route{Spec: g.spec, Path: path, PathItem: item, Method: req.Method, Operation: item.GetOperation(req.Method)},
		},
		Status: w.Code, Header: w.Header(),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	in.SetBodyBytes(w.Body.Bytes())
	if err := openapi3filter.ValidateResponse(t.Context(), in); err != nil {
		t.Errorf("%s %s: the answer is not as documented: %v\n%d %s", req.Method, req.URL, err, w.Code, w.Body)
	}
}

// call is a request of the tests, in a line.
type call struct {
	method, path, body string
	key                string
	headers            []string // name, value, name, value
}

func (c call) request() *http.Request {
	var body io.Reader
	if c.body != "" {
		body = strings.NewReader(c.body)
	}
	req := httptest.NewRequest(c.method, "/", body)
	u, err := url.Parse("http://example.com" + c.path)
	if err != nil {
		panic(err)
	}
	req.URL.Path, req.URL.RawPath, req.URL.RawQuery = u.Path, u.RawPath, u.RawQuery
	if c.key != "" {
		req.Header.Set("X-API-Key", c.key)
	}
	for i := 0; i+1 < len(c.headers); i += 2 {
		req.Header.Add(c.headers[i], c.headers[i+1])
	}
	return req
}

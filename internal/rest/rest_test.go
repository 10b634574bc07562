package rest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// widget is a record that the test operations return.
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

// rig is a Router with test operations and their dependencies.
type rig struct {
	*Router
	*resttest.Recorder
	config  Config
	logs    *bytes.Buffer
	panics  atomic.Int32
	created atomic.Int64
	auths   atomic.Int64
}

// callers are the credentials that the tests know.
var callers = map[string]scope.Scope{
	"full":     {Tenant: "t1", Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Key, ID: "1"}},
	"reader":   {Tenant: "t1", Permissions: scope.Permissions{List: []scope.Permission{"resources:read"}}, Actor: scope.Actor{Kind: scope.Key, ID: "2"}},
	"person":   {Tenant: "t1", Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Person, ID: "3"}},
	"platform": {Tenant: "default", Permissions: scope.Permissions{All: true}, Platform: true, Actor: scope.Actor{Kind: scope.Person, ID: "4"}},
}

// newRig returns a Router with the test operations. change changes its configuration, register adds
// operations.
func newRig(t testing.TB, change func(*Config), register func(*rig)) *rig {
	t.Helper()
	g := &rig{logs: &bytes.Buffer{}}
	var ids atomic.Int64
	g.config = Config{
		Version: "test", Now: time.Now, Log: slog.New(slog.NewTextHandler(g.logs, nil)), Panics: &fault.Panics{Add: func(string) { g.panics.Add(1) }},
		NewID:    func() string { return "made-" + strconv.FormatInt(ids.Add(1), 10) },
		Document: Document{Title: "test", Version: "1.0.0", License: "Apache-2.0", Languages: []string{"en"}, Names: []string{"name"}},
		Areas: []Area{
			{Prefix: Root + "/tenants", Errors: ShapeTenant},
			{Prefix: Root + "/telemetry", Errors: ShapeDetail},
			{Prefix: Root + "/pis", Errors: ShapeDetail},
			{Prefix: Root + "/ide-integration", Errors: ShapeEditor},
			{Prefix: Root + "/auth/token", Errors: ShapeOAuth},
			{Prefix: Root + "/decisions", OwnLimit: true},
			{Prefix: "/v1/data", Errors: ShapeOPA},
			{Prefix: "/access/v1", Errors: ShapeAuthZEN},
		},
		Canonical: canonical, IsAPI: func(path string) bool { return IsBelow(path, "/api") || IsBelow(path, "/v1") },
	}
	g.config.Authenticate = func(_ context.Context, c Credential) (scope.Scope, Principal, error) {
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
		change(&g.config)
	}
	r, err := New(g.config)
	errtest.Must(t, err)
	g.Router = r
	g.widgets()
	if register != nil {
		register(g)
	}
	errtest.Must(t, r.Finish())
	document := r.Edition("", "en").Body
	spec, err := openapi3.NewLoader().LoadFromData(document)
	errtest.Must(t, err)
	g.Recorder = &resttest.Recorder{Handler: r, Spec: spec, Pattern: r.Pattern}
	return g
}

// canonical maps the aliases of the tests.
func canonical(path string) string {
	switch {
	case IsBelow(path, Root+"/v1"):
		return Root + path[len(Root+"/v1"):]
	case IsBelow(path, Root), IsBelow(path, "/v1/data"):
		return path
	case IsBelow(path, "/api"):
		return Root + path[len("/api"):]
	case IsBelow(path, "/v1"):
		return Root + path[len("/v1"):]
	case IsBelow(path, "/health"):
		return Root + path
	}
	return path
}

// widgets registers the test operations.
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
	Register(g.Router, Op{ID: "get-health", Method: "GET", Path: "/health", Public: true, Tags: tags}, func(context.Context, scope.Scope, *struct{}) (*struct{ Body part }, error) {
		return &struct{ Body part }{part{Size: 1}}, nil
	})
	Raw(g.Router, Op{ID: "raw-widget", Method: "POST", Path: "/raw", Tags: tags, MaxBody: 1000}, RawDocs{Request: reflect.TypeFor[widgetDraft](), Response: reflect.TypeFor[string]()},
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
			case "starting":
				Fail(w, fault.New(fault.Unavailable, "not_ready", "not yet").Because(fault.ErrStarting))
			case "stopping":
				Fail(w, fault.Stopping())
			case "down":
				Fail(w, fault.New(fault.Unavailable, "store_unavailable", "the store does not answer").After(500*time.Millisecond))
			}
		})
}

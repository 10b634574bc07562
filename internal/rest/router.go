package rest

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-dev/gatehouse/internal/rest/bind"
	"github.com/gatehouse-dev/gatehouse/internal/rest/edition"
	"github.com/gatehouse-dev/gatehouse/internal/rest/measure"
	"github.com/gatehouse-dev/gatehouse/internal/rest/schema"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Op describes one operation. Its path, its permission and its limits stand here
// and nowhere else.
type Op struct {
	// ID is the operationId: lower case words joined by dashes, unique.
	ID     string
	Method string
	// Path is relative to /api/v1, with {parameters} as in net/http patterns.
	Path string
	// Family is the name of the family (Document.Families) that the operation belongs to:
	// Path is relative to the family's root, and the family's document has the operation.
	// Empty: it belongs to none.
	Family string
	// Caller is the dedicated kind of credential that the operation takes, and no other
	// kind (scope.ActorKind.Dedicated). Empty: it takes those of people, API keys and
	// bouncers.
	Caller scope.ActorKind
	// Agents says that the operation also takes the keys of AI agents (scope.Agent). Its
	// use case limits them to themselves.
	Agents bool
	// Root says that Path is absolute: foreign protocols at the host's root.
	Root bool
	// Summary is one line, Description what a caller has to know beyond it.
	Summary     string
	Description string
	Tags        []string
	// Permission is what the credential must hold; empty: any credential will do.
	Permission scope.Permission
	// Also is what the credential must hold besides Permission; empty: nothing.
	Also scope.Permission
	// Reach says what the operation touches. The zero value refuses every
	// credential that is bound to one environment.
	Reach Reach
	// Public operations take no credential. Their Scope holds the tenant that
	// the request names (else the default one), the address and the request id,
	// and no permission.
	Public bool
	// Optional operations take a credential but need none. Without one, their
	// Scope is that of a Public operation, with an Actor of no kind.
	Optional bool
	// Signed are headers of which an Optional operation needs one where it gets no
	// credential. A request without any is refused before its body is read.
	Signed []string
	// Bearer operations take their credential, a token or a key, from the
	// Authorization header, or from a browser's cookie.
	Bearer bool
	// Token operations take an access token, or a browser's cookie, and no API key.
	Token bool
	// BadValues are JSON pointers to members of the body of which a bad value is a
	// 400, where it would be a 422 elsewhere.
	BadValues []string
	// Only narrows the operation to some callers, whatever their permissions are.
	Only Callers
	// Enrols operations serve people who must enrol a second factor before anything else.
	Enrols bool
	// Status is that of success: 0 means 200, or 204 where there is no body.
	Status int
	// MaxBody bounds the request body in bytes; 0 means 1 MiB.
	MaxBody int64
	// Record is the type that answers hold. A request body may have its members
	// too, and they are ignored where the body's own schema does not take them:
	// what a client has read it can send back.
	Record reflect.Type
	// Errors are error statuses beyond those that follow from the other fields.
	Errors []int
	// Creates marks a POST that creates: Idempotency-Key is honoured.
	Creates bool
	// Lenient lets unknown members of a body pass, where a foreign protocol
	// demands it.
	Lenient bool
	// Slow exempts the answer from the write deadline: long polls, streams.
	Slow bool
	// Brief operations, of method POST, answer from memory at once and need not
	// know whether their caller has gone. Package lane may serve them.
	Brief bool
	// Unattended operations are called by pages with nobody at the screen. They do
	// not keep a browser's session from expiring.
	Unattended bool
	// Gzip lets the request body be compressed. The handler bounds what it
	// unpacks. For Raw operations only.
	Gzip bool
	// OwnErrors are the body types of statuses that do not have the error body of
	// their area.
	OwnErrors map[int]reflect.Type
	// FailurePage is the path of a page. A browser that navigates to the operation,
	// and so asks for HTML, is sent there when it fails, with the error's code.
	FailurePage string
}

// RawDocs documents an operation whose handler reads and writes by itself.
type RawDocs struct {
	// Params is a struct with path, query and header tags; nil for none. The
	// parameters are checked before the handler is called.
	Params reflect.Type
	// Request is the type of the body; nil for none. RequestType is its media
	// type, or several with commas between them; application/json when empty.
	Request     reflect.Type
	RequestType string
	// Response is the type of the success body; nil for none. ResponseType is
	// its media type, or several with commas between them; application/json
	// when empty.
	Response     reflect.Type
	ResponseType string
}

// route is a registered operation.
type route struct {
	op      Op
	pattern string // path as the mux knows it
	area    Area
	doc     *huma.Operation
	params  []schema.Param
	// body is the schema that JSON bodies are checked against; nil: not checked here.
	body     *huma.Schema
	record   *huma.Schema
	bodyType reflect.Type
	hasBody  bool
	media    []string
	serve    func(x *exchange, req *http.Request, sc scope.Scope)
	stats    measure.Operation
	// namesTenant is set where the path has the parameter tenant_id.
	namesTenant bool
}

// Router collects the operations and serves them.
type Router struct {
	cfg     Config
	api     documenter
	mux     *http.ServeMux
	static  map[string]map[string]*route // path without parameters → method → route
	routes  []*route
	valid   *schema.Checker
	pool    sync.Pool
	docs    *edition.Set
	empty   filler
	metrics *measure.Metrics
	// unmatchedStats are those of requests that no operation takes.
	unmatchedStats measure.Operation
	// leaving is set while the server is about to stop. Each answer then ends its connection.
	leaving atomic.Bool
	limiter *limiter
	large   *semaphore.Weighted // room for large bodies
	buffers sync.Pool           // of *[]byte, for large bodies
	answers sync.Pool           // of *bytes.Buffer
	idem    *idempotency
}

// Register adds an operation whose input and output are typed. I is a struct
// with path, query and header tags and perhaps a Body; O one with header tags
// and perhaps a Body or Status. h gets the input filled in, its parameters and body
// checked against the document. The handler's error is a fault. A bad operation is
// a mistake in the program, so it panics.
func Register[I, O any](r *Router, op Op, h func(ctx context.Context, sc scope.Scope, in *I) (*O, error)) {
	rt := r.route(op)
	// Huma documents the types. It serves nothing.
	huma.Register(r.api.API, *rt.doc, func(context.Context, *I) (*O, error) { return nil, errNoExchange })
	rt.doc = r.api.documented(rt)
	if t, ok := reflect.TypeFor[I]().FieldByName("Body"); ok {
		rt.hasBody = true
		rt.bodyType = t.Type
		rt.body = jsonSchema(rt.doc)
		if rt.body == nil {
			panic(fmt.Sprintf("rest: %s: body %s has no JSON schema", op.ID, t.Type))
		}
		if !op.Lenient { // foreign protocols have their own rules
			r.valid.MarkNames(rt.body)
		}
	}
	input, output := bind.InputOf(reflect.TypeFor[I]()), bind.OutputOf(reflect.TypeFor[O]())
	rt.serve = func(x *exchange, req *http.Request, sc scope.Scope) {
		in := new(I)
		if err := r.read(x, req, input, reflect.ValueOf(in).Elem()); err != nil {
			x.fail(err)
			return
		}
		x.scope = sc
		out, err := h(context.WithValue(req.Context(), exchangeKey{}, x), sc, in)
		switch {
		case err != nil:
			x.fail(err)
		case out == nil:
			x.WriteHeader(rt.doc.DefaultStatus)
		default:
			r.write(x, output, reflect.ValueOf(out).Elem())
		}
	}
	r.add(rt)
}

// Raw adds an operation whose handler reads the request and writes the answer
// itself: hot paths, streams, foreign protocols. Credential, rate limit,
// permission, parameters, media type and size are checked before it is called.
// It reads the body with Body and fails with Fail.
func Raw(r *Router, op Op, docs RawDocs, h func(w http.ResponseWriter, req *http.Request, sc scope.Scope)) {
	rt := r.route(op)
	r.api.describe(rt, docs)
	rt.hasBody = docs.Request != nil
	rt.serve = func(x *exchange, req *http.Request, sc scope.Scope) {
		if err := r.precheck(x, req); err != nil {
			x.fail(err)
			return
		}
		x.scope = sc
		h(x, req, sc)
	}
	r.add(rt)
}

// route starts the description of op.
func (r *Router) route(op Op) *route {
	if op.ID == "" || op.Method == "" || !strings.HasPrefix(op.Path, "/") {
		panic(fmt.Sprintf("rest: operation %q needs an id, a method and a path", op.ID))
	}
	if op.MaxBody == 0 {
		op.MaxBody = 1 << 20
	}
	path := r.cfg.Document.root(op.Family) + op.Path
	if op.Root {
		path = op.Path
	}
	rt := &route{op: op, pattern: path, area: r.areaOf(path), namesTenant: strings.Contains(path, "{tenant_id}")}
	rt.doc = r.api.operation(rt)
	return rt
}

// add puts a finished route into the mux and, where its path has no
// parameters, into the table that is looked up first.
func (r *Router) add(rt *route) {
	rt.params = r.valid.Params(rt.doc)
	for media := range contentOf(rt.doc) {
		rt.media = append(rt.media, media)
	}
	if rt.op.Record != nil {
		rt.record = r.api.schemaOf(rt.op.Record)
	}
	r.api.documentLimits(rt)
	rt.stats = r.metrics.Prepare(rt.op.ID, rt.op.Method)
	r.routes = append(r.routes, rt)
	if !strings.Contains(rt.pattern, "{") {
		methods := r.static[rt.pattern]
		if methods == nil {
			methods = map[string]*route{}
			r.static[rt.pattern] = methods
		}
		methods[rt.op.Method] = rt
	}
	r.mux.HandleFunc(rt.op.Method+" "+rt.pattern, func(w http.ResponseWriter, req *http.Request) {
		if x, ok := w.(*exchange); ok {
			x.dispatch(rt, req)
		}
	})
}

// Routes lists the operations in order of registration, with absolute paths.
func (r *Router) Routes() []Op {
	ops := make([]Op, 0, len(r.routes))
	for _, rt := range r.routes {
		op := rt.op
		op.Path, op.Root = rt.pattern, true
		ops = append(ops, op)
	}
	return ops
}

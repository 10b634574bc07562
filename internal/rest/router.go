package rest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gatehouse-dev/gatehouse/internal/memory"
	"github.com/gatehouse-dev/gatehouse/internal/rest/bind"
	"github.com/gatehouse-dev/gatehouse/internal/rest/edition"
	"github.com/gatehouse-dev/gatehouse/internal/rest/measure"
	"github.com/gatehouse-dev/gatehouse/internal/rest/schema"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Op describes one operation. Its path, its permission and its limits are defined only here.
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
	// Caller is the only kind of credential that the operation accepts, if it is dedicated to that
	// kind (scope.ActorKind.Dedicated). Empty: it accepts those of people, API keys and bouncers.
	Caller scope.ActorKind
	// Agents means that the operation also accepts the keys of AI agents (scope.Agent). Its use
	// case limits them to themselves.
	Agents bool
	// Root means that Path is absolute: foreign protocols at the root of the host.
	Root bool
	// Summary is one line. Description is what else a caller must know.
	Summary     string
	Description string
	Tags        []string
	// Permission is the permission that the credential must have; empty: any credential is
	// accepted.
	Permission scope.Permission
	// Also is a second permission that the credential must have; empty: none.
	Also scope.Permission
	// Reach says what data the operation uses. The zero value refuses every credential for one
	// environment.
	Reach Reach
	// Public operations need no credential. Their Scope has the tenant that the request names
	// (otherwise the default one), the address and the request id, and no permission.
	Public bool
	// Optional operations accept a credential but do not need one. Without one, their Scope is that
	// of a Public operation, with an Actor without a kind.
	Optional bool
	// Signed are headers of which an Optional operation needs one if there is no credential. A
	// request without any is refused before its body is read.
	Signed []string
	// Bearer operations accept a credential, a token or a key, in the Authorization header, or a
	// browser's cookie.
	Bearer bool
	// Token operations accept an access token or a browser's cookie, but no API key.
	Token bool
	// BadValues are JSON pointers to members of the body whose invalid values are a 400, instead of
	// a 422.
	BadValues []string
	// Only narrows the operation to some callers, whatever their permissions are.
	Only Callers
	// Enrols operations serve people who must enrol a second factor before anything else.
	Enrols bool
	// Status is the status of success: 0 means 200, or 204 without a body.
	Status int
	// MaxBody limits the request body, in bytes; 0 means 1 MiB.
	MaxBody int64
	// Record is the type in the answers. A request body may have its members too, which are ignored
	// if the body's own schema lacks them: a client can send back what it has read.
	Record reflect.Type
	// Errors are error statuses in addition to those that follow from the other fields.
	Errors []int
	// Creates marks a POST that creates an object: Idempotency-Key works.
	Creates bool
	// Lenient allows unknown members of a body, if a foreign protocol requires it.
	Lenient bool
	// Slow exempts the answer from the write deadline: long polls, streams.
	Slow bool
	// Brief operations use method POST, answer from memory at once and need not know whether their
	// caller has disconnected. Package lane may serve them.
	Brief bool
	// Unattended operations are called by pages without a person. They do not keep a browser's
	// session from expiring.
	Unattended bool
	// Gzip allows a compressed request body. The handler limits what it decompresses. For Raw
	// operations only.
	Gzip bool
	// OwnErrors are the body types of statuses that do not have the error body of
	// their area.
	OwnErrors map[int]reflect.Type
	// FailurePage is the path of a page. A browser that navigates to the operation,
	// and so asks for HTML, is sent there when it fails, with the error's code.
	FailurePage string
}

// RawDocs documents an operation whose handler reads the request and writes the answer itself.
type RawDocs struct {
	// Params is a struct with path, query and header tags; nil for none. The parameters are checked
	// before the handler runs.
	Params reflect.Type
	// Request is the type of the body; nil for none. RequestType is its media type, or several
	// separated by commas; application/json if empty.
	Request     reflect.Type
	RequestType string
	// Response is the type of the success body; nil for none. ResponseType is its media type, or
	// several separated by commas; application/json if empty.
	Response     reflect.Type
	ResponseType string
}

// route is a registered operation.
type route struct {
	op      Op
	pattern string // path in the form of the mux
	area    Area
	doc     *huma.Operation
	params  []schema.Param
	// body is the schema for JSON bodies; nil: they are not checked here.
	body     *huma.Schema
	record   *huma.Schema
	bodyType reflect.Type
	hasBody  bool
	media    []string
	serve    func(x *exchange, req *http.Request, sc scope.Scope)
	stats    measure.Operation
	// namesTenant is true if the path has the parameter tenant_id.
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
	// unmatchedStats count requests without an operation.
	unmatchedStats measure.Operation
	// stopping is set while the server is about to stop. Each answer then ends its connection.
	stopping atomic.Bool
	limiter  *limiter
	// bodyPools are the memory pools for bodies, briefBodyPools those for bodies of Brief operations.
	bodyPools, briefBodyPools memory.Pools
	buffers                   sync.Pool // of *[]byte, for large bodies
	answers                   sync.Pool // of *bytes.Buffer
	idem                      *idempotency
}

// Register adds an operation with typed input and output. I is a struct with path, query and header
// tags and an optional Body; O is one with header tags and an optional Body or Status. h receives
// the input after its parameters and body were checked against the document. The handler's error is
// a fault. An invalid operation is an error in the program, so it panics.
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

// RegisterChange is Register for a change of a versioned object under If-Match, which the input
// embeds. As with Matching, h must change nothing if the object has another version.
func RegisterChange[I interface{ condition() string }, O any](r *Router, op Op, h func(ctx context.Context, sc scope.Scope, in *I, version int64) (*O, error)) {
	Register(r, op, func(ctx context.Context, sc scope.Scope, in *I) (*O, error) {
		return Matching((*in).condition(), func(version int64) (*O, error) { return h(ctx, sc, in, version) })
	})
}

// Raw adds an operation whose handler reads the request and writes the answer itself: hot paths,
// streams, foreign protocols. Credential, rate limit, permission, parameters, media type and size
// are checked before it runs. It reads the body with Body and fails with Fail.
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
	op.MaxBody = cmp.Or(op.MaxBody, 1<<20)
	path := r.cfg.Document.root(op.Family) + op.Path
	if op.Root {
		path = op.Path
	}
	rt := &route{op: op, pattern: path, area: r.areaOf(path), namesTenant: strings.Contains(path, "{tenant_id}")}
	rt.doc = r.api.operation(rt)
	return rt
}

// add adds a finished route to the mux and, if its path has no parameters, to the table for the
// first lookup.
func (r *Router) add(rt *route) {
	rt.params = r.valid.Params(rt.doc)
	rt.media = slices.Sorted(maps.Keys(contentOf(rt.doc)))
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

// Routes lists the operations in the order of registration, with absolute paths.
func (r *Router) Routes() []Op {
	ops := make([]Op, 0, len(r.routes))
	for _, rt := range r.routes {
		op := rt.op
		op.Path, op.Root = rt.pattern, true
		ops = append(ops, op)
	}
	return ops
}

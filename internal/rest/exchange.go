package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest/measure"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// exchange is one request with its answer, and the ResponseWriter that handlers get.
type exchange struct {
	http.ResponseWriter
	r     *Router
	req   *http.Request // as received
	route *route
	path  string // canonical
	id    string // request id
	start time.Time
	scope scope.Scope
	// authenticated is true if scope is that of a credential.
	authenticated bool
	// status is the status of the answer; 0 before it has begun.
	status int
	billed bool
	tenant *measure.Tenant                    // of the scope, after the first lookup
	body   []byte                             // scratch for Body
	free   [2]func()                          // release memory.Bodies and memory.Decoded; nil: none is taken
	ids    [1]string                          // holds id for the header
	traced func(operation string, status int) // ends the span; nil: there is none
}

// errNoExchange is the error for a ResponseWriter or context that does not belong to the kit.
var errNoExchange = errors.New("rest: not an exchange of a Router")

// JSONMedia is the Content-Type of JSON, for WriteBytes.
var JSONMedia = []string{"application/json"}

// SCIMMedia is the Content-Type of SCIM, for WriteBytes.
var SCIMMedia = []string{"application/scim+json"}

// statusClientClosed is the status of an answer whose client has disconnected.
const statusClientClosed = 499

// exchangeKey finds the exchange in the context of typed handlers.
type exchangeKey struct{}

// Shared header values: assign them, do not append to them.
var (
	nosniff    = []string{"nosniff"}
	noReferrer = []string{"no-referrer"}
	denyFrame  = []string{"DENY"}
	noStore    = []string{"no-store"}
	apiPolicy  = []string{"default-src 'none'; frame-ancestors 'none'"}
)

// ServeHTTP serves one request.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.stopping.Load() {
		w.Header().Set("Connection", "close")
	}
	x := r.pool.Get().(*exchange)
	if r.cfg.Trace != nil {
		req, x.traced = r.cfg.Trace(req)
	}
	x.ResponseWriter, x.r, x.req, x.start = w, r, req, r.cfg.Now()
	x.id = requestID(req)
	if x.id == "" {
		x.id = r.cfg.NewID()
	}
	x.ids[0] = x.id
	h := w.Header()
	h["X-Request-Id"] = slices.Clone(x.ids[:])
	h["X-Content-Type-Options"] = nosniff
	h["Referrer-Policy"] = noReferrer
	h["X-Frame-Options"] = denyFrame
	h["Cache-Control"] = noStore
	h["Content-Security-Policy"] = apiPolicy
	visit{r, req}.sendHSTS(h)
	defer x.finish()
	x.find(req)
}

// find finds the operation of a request.
func (x *exchange) find(req *http.Request) {
	r := x.r
	req, ok := r.resolve(req)
	x.path = req.URL.Path
	if !ok {
		x.fail(noSuchPath())
		return
	}
	if err := r.cfg.Hosts.Check(req, req.TLS != nil && visit{r, req}.proxied()); err != nil {
		x.fail(err)
		return
	}
	if methods := r.static[x.path]; methods != nil && req.URL.RawPath == "" {
		if rt := methods[req.Method]; rt != nil {
			x.dispatch(rt, req)
			return
		}
	}
	r.mux.ServeHTTP(x, req)
}

// unmatched answers a request without an operation. A key's request still counts against its limit.
func (x *exchange) unmatched(req *http.Request) {
	r := x.r
	if c, _ := r.credential(x, req); c.APIKey != "" || c.Bearer != "" {
		_, who, _ := r.cfg.Authenticate(req.Context(), c) // the answer is the same for everybody
		if err := r.limiter.count(req.Context(), x, noRoute, who); err != nil {
			x.fail(err)
			return
		}
	}
	if allow := r.allowed(req); allow != "" {
		x.Header().Set("Allow", allow)
		x.fail(fault.Newf(fault.MethodNotAllowed, "method_not_allowed", "this path answers %s only", allow))
		return
	}
	if r.cfg.Console != nil && !r.isAPI(x.path) {
		if v := (visit{r, req}); v.secure() && v.site().Tenant == "" { // domains of tenants ask for it themselves
			x.Header().Set("Strict-Transport-Security", "max-age=31536000") // RFC 6797: a year, without subdomains
		}
		r.cfg.Console.ServeHTTP(x, req)
		return
	}
	x.fail(noSuchPath())
}

// noRoute is the route of requests without an operation.
var noRoute = &route{}

// noSuchPath returns the answer to a path without an operation, the same for everybody.
func noSuchPath() *fault.Error {
	return fault.New(fault.NotFound, "not_found", "there is nothing at this path")
}

// verbs are the methods that operations have, in the order of Allow.
var verbs = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// allowed lists the methods of a path, in the form of Allow.
func (r *Router) allowed(req *http.Request) string {
	var allow string
	probe := *req
	for _, verb := range verbs {
		probe.Method = verb
		if _, pattern := r.mux.Handler(&probe); pattern != "/" {
			if allow != "" {
				allow += ", "
			}
			allow += verb
		}
	}
	return allow
}

// dispatch admits a request to its operation and serves it. The caller is
// authenticated before the body is read.
func (x *exchange) dispatch(rt *route, req *http.Request) {
	x.route = rt
	sc, err := x.r.admit(x, rt, req)
	if err != nil {
		x.fail(err)
		return
	}
	if rt.op.Slow {
		x.slowDown(req.ContentLength == 0)
	}
	if rt.op.Creates && x.r.idem != nil {
		if key, ok := req.Header[idempotencyHeader]; ok {
			x.r.idem.serve(x, rt, req, sc, key)
			return
		}
	}
	rt.serve(x, req, sc)
}

// admit authenticates and counts a request, and checks its environment and its permission. Nothing
// else does.
func (r *Router) admit(x *exchange, rt *route, req *http.Request) (scope.Scope, error) {
	if rt.op.Public || rt.op.Optional && len(req.Header["X-Api-Key"]) == 0 && len(req.Header["Authorization"]) == 0 {
		if len(rt.op.Signed) > 0 && !slices.ContainsFunc(rt.op.Signed, func(name string) bool { return req.Header.Get(name) != "" }) {
			return scope.Scope{}, fault.New(fault.Unauthenticated, "authentication_required", "sign the request, or send an API key or an access token")
		}
		return r.anonymous(x, req)
	}
	sc, err := r.authenticate(x, rt, req)
	if err != nil {
		return scope.Scope{}, err
	}
	if err := rt.checkCaller(sc); err != nil {
		return scope.Scope{}, err
	}
	if err := rt.checkReach(req, sc); err != nil {
		return scope.Scope{}, err
	}
	for _, p := range [2]scope.Permission{rt.op.Permission, rt.op.Also} {
		if p == "" {
			continue
		}
		if err := sc.Require(p); err != nil {
			return scope.Scope{}, err
		}
	}
	if err := rt.checkOnly(sc); err != nil {
		return scope.Scope{}, err
	}
	if r.cfg.DiskFull != nil && rt.op.needsDisk() && r.cfg.DiskFull() {
		return scope.Scope{}, fault.New(fault.StorageFull, "storage_full", "the disk is full: the remaining space is reserved for decisions and sign-in").After(diskRetry)
	}
	return sc, nil
}

// diskRetry is when clients should try again while the disk is full.
const diskRetry = 30 * time.Second

// needsDisk reports whether an operation may write data that can wait: changes and simulations, but
// not removals. Decisions, reports of bouncers and sign-in need no permission to write, so they
// continue.
func (op *Op) needsDisk() bool {
	switch op.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return strings.HasSuffix(string(op.Permission), ":write") || strings.HasSuffix(string(op.Permission), ":edit")
	}
	return false
}

// slowDown lifts the deadlines of a Slow operation's exchange once its caller is admitted. A body
// keeps its deadline until it is read: otherwise a client could hold the connection open with
// a body that it never sends.
func (x *exchange) slowDown(read bool) {
	if read {
		x.liftDeadlines()
		return
	}
	_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(time.Time{}) // not supported by a test's recorder
}

// liftDeadlines lifts the server's deadlines for this exchange.
func (x *exchange) liftDeadlines() {
	c := http.NewResponseController(x.ResponseWriter)
	_ = c.SetWriteDeadline(time.Time{}) // not supported by a test's recorder
	_ = c.SetReadDeadline(time.Time{})
}

// LiftDeadlines allows the handler of a Register operation to take longer than the server's
// deadlines. ctx is the handler's.
func LiftDeadlines(ctx context.Context) {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		x.liftDeadlines()
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= 200 {
		x.status = status
		x.bill()
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
		x.bill()
	}
	return x.ResponseWriter.Write(p)
}

// answer prepares err for the area of this exchange.
func (x *exchange) answer(err error) *answer {
	f := AsFault(err)
	a := x.r.areaOf(x.path)
	if x.route != nil {
		a = x.route.area
	}
	out := &answer{fault: f, shape: a.Errors, id: x.id, status: a.status(f.Kind)}
	if x.route != nil && f.Kind == fault.Invalid && x.route.op.namesBadValue(f.Details) {
		out.status = http.StatusBadRequest
	}
	if out.status >= http.StatusInternalServerError {
		x.log(err, out.status)
	}
	return out
}

func (x *exchange) log(err error, status int) {
	level := slog.LevelError
	if fault.IsTransient(err) {
		level = slog.LevelInfo // an orderly start or stop, not a failure
	}
	x.r.cfg.Log.Log(x.req.Context(), level, "request failed", "request_id", x.id, "operation", x.operation(), "status", status, "tenant", x.scope.Tenant, "error", err)
}

// fail answers with err, unless the answer has begun.
func (x *exchange) fail(err error) {
	if x.status != 0 {
		x.log(err, x.status)
		return
	}
	if errors.Is(err, context.Canceled) {
		x.status = statusClientClosed
		return
	}
	a := x.answer(err)
	if x.sendToPage(a.fault) {
		return
	}
	body, merr := Encode(a)
	if merr != nil {
		body = []byte(`{"error":"internal_error"}` + "\n")
	}
	h := x.Header()
	a.headers(h)
	h["Content-Type"] = a.shape.media()
	h.Del("ETag")
	more := x.bodyPending()
	x.WriteHeader(a.status)
	_, _ = x.Write(body) // the peer may have gone
	if more {
		x.drain()
	}
}

// finish handles panics, counts the request and recycles the exchange.
func (x *exchange) finish() {
	if p := recover(); p != nil {
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			x.status = cmp.Or(x.status, statusClientClosed)
			x.end()
			panic(p)
		}
		x.r.cfg.Panics.Count("request")
		err := fmt.Errorf("panic: %s\n%s", fault.DescribePanic(p), debug.Stack())
		if x.status != 0 {
			x.log(err, x.status)
			x.end()
			panic(http.ErrAbortHandler) // the client must see that the answer is incomplete
		}
		x.fail(err)
	}
	x.end()
	reusable := x.body
	if cap(reusable) > 64<<10 {
		reusable = nil
	}
	slow := x.route != nil && x.route.op.Slow
	r := x.r
	*x = exchange{body: reusable[:0]}
	if !slow { // a stream's writer may still be held by its handler's goroutines
		r.pool.Put(x)
	}
}

// end counts the request, ends its span, and frees the memory that its body holds.
func (x *exchange) end() {
	x.observe()
	x.endTrace()
	x.releaseRoom()
}

// endTrace ends the span of the request.
func (x *exchange) endTrace() {
	if x.traced == nil {
		return
	}
	status := cmp.Or(x.status, http.StatusOK)
	x.traced(x.operation(), status)
}

// operation returns the id of the operation; empty: there is none.
func (x *exchange) operation() string {
	if x.route == nil {
		return ""
	}
	return x.route.op.ID
}

// Fail answers a Raw operation's request with err, in the shape of its area. Once
// the answer has begun, it only logs.
func Fail(w http.ResponseWriter, err error) {
	if x, ok := w.(*exchange); ok {
		x.fail(err)
		return
	}
	http.Error(w, http.StatusText(statuses[fault.KindOf(err)]), statuses[fault.KindOf(err)])
}

// Body reads the whole body of a Raw operation's request, up to the limit of the operation. The
// bytes are valid until the handler returns. Faults: TooLarge, BadRequest, Unavailable.
func Body(w http.ResponseWriter, req *http.Request) ([]byte, error) {
	x, ok := w.(*exchange)
	if !ok {
		return nil, errNoExchange
	}
	return x.read(req, false)
}

// TakeOver records that another protocol has taken over the connection of a Raw operation. No HTTP
// answer follows.
func TakeOver(w http.ResponseWriter) {
	if x, ok := w.(*exchange); ok {
		x.status = http.StatusSwitchingProtocols
	}
}

// WriteJSON answers a Raw operation with v, if speed does not matter.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := Encode(v)
	if err != nil {
		Fail(w, err)
		return
	}
	WriteBytes(w, status, JSONMedia, body)
}

// Encode renders v as JSON with a newline at its end. It does not escape <, > and &.
func Encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return out.Bytes(), err
}

// WriteBytes answers with a finished body. media is the value of Content-Type, as a slice that may
// be shared.
func WriteBytes(w http.ResponseWriter, status int, media []string, body []byte) {
	h := w.Header()
	h["Content-Type"] = media
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the peer may have gone
}

// RequestID returns the request id of the exchange that w belongs to.
func RequestID(w http.ResponseWriter) string {
	if x, ok := w.(*exchange); ok {
		return x.id
	}
	return ""
}

// requestID returns the caller's request id if it was sent once and has 1 to 128 characters, only
// letters, digits and . _ - : . Anything else could forge a line of a log.
func requestID(req *http.Request) string {
	ids := req.Header["X-Request-Id"]
	if len(ids) != 1 || len(ids[0]) > 128 {
		return ""
	}
	for _, c := range []byte(ids[0]) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.' || c == '_' || c == '-' || c == ':':
		default:
			return ""
		}
	}
	return ids[0]
}

// TooLarge returns the fault for a body with more than limit bytes.
func TooLarge(limit int64) *fault.Error {
	return fault.Newf(fault.TooLarge, "payload_too_large", "the body may have at most %d bytes", limit).With("limit", limit)
}

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// exchange is one request and its answer: the ResponseWriter that handlers get.
type exchange struct {
	http.ResponseWriter
	r     *Router
	req   *http.Request // as it came
	route *route
	path  string // canonical
	id    string // request id
	start time.Time
	scope scope.Scope
	// known is set when scope is that of a credential.
	known bool
	// status is that of the answer, 0 before it has begun.
	status int
	body   []byte // scratch for Body
	held   int64  // bytes taken of the room for large bodies
	ids    [1]string
}

// statusGone is the status of an answer that nobody waited for.
const statusGone = 499

// exchangeKey finds the exchange in the context of typed handlers.
type exchangeKey struct{}

// Shared header values: assigned, never appended to in place.
var (
	nosniff   = []string{"nosniff"}
	noReferer = []string{"no-referrer"}
	denyFrame = []string{"DENY"}
	noStore   = []string{"no-store"}
	apiPolicy = []string{"default-src 'none'; frame-ancestors 'none'"}
	jsonMedia = []string{"application/json"}
)

// ServeHTTP serves one request.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	x := r.pool.Get().(*exchange)
	x.ResponseWriter, x.r, x.req, x.start = w, r, req, r.s.Now()
	x.id = requestID(req)
	if x.id == "" {
		x.id = r.s.NewID()
	}
	x.ids[0] = x.id
	h := w.Header()
	h["X-Request-Id"] = slices.Clone(x.ids[:])
	h["X-Content-Type-Options"] = nosniff
	h["Referrer-Policy"] = noReferer
	h["X-Frame-Options"] = denyFrame
	h["Cache-Control"] = noStore
	h["Content-Security-Policy"] = apiPolicy
	defer x.finish()
	x.find(req)
}

// find looks for the operation of a request.
func (x *exchange) find(req *http.Request) {
	r := x.r
	req, ok := resolve(req)
	x.path = req.URL.Path
	if !ok {
		x.fail(notThere())
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

// lost answers a request that no operation takes. That of a key counts.
func (x *exchange) lost(req *http.Request) {
	r := x.r
	if c, _ := r.shown(x, req); c.APIKey != "" || c.Bearer != "" {
		_, who, _ := r.s.Authenticate(req.Context(), c) // who it is not changes nothing
		if err := r.limiter.count(req.Context(), x, nowhere, who); err != nil {
			x.fail(err)
			return
		}
	}
	if allow := r.allowed(req); allow != "" {
		x.Header().Set("Allow", allow)
		x.fail(fault.Newf(fault.MethodNotAllowed, "method_not_allowed", "this path answers %s only", allow))
		return
	}
	if r.s.Console != nil && !apiPath(x.path) {
		h := x.Header()
		delete(h, "Cache-Control")
		r.s.Console.ServeHTTP(x, req)
		return
	}
	x.fail(notThere())
}

// nowhere is the route of requests that no operation takes.
var nowhere = &route{}

// notThere is the answer to a path without an operation; the same for all.
func notThere() *fault.Error {
	return fault.New(fault.NotFound, "not_found", "there is nothing at this path")
}

// verbs are the methods that operations have, in the order of Allow.
var verbs = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// allowed lists the methods that a path answers, as Allow wants them.
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

// dispatch admits a request to its operation and serves it. Who asks is settled
// before a byte of the body is read.
func (x *exchange) dispatch(rt *route, req *http.Request) {
	x.route = rt
	if rt.op.Slow {
		x.unhurried()
	}
	sc, err := x.r.admit(x, rt, req)
	if err != nil {
		x.fail(err)
		return
	}
	if rt.op.Creates && x.r.idem != nil {
		if key, ok := req.Header[idempotencyHeader]; ok {
			x.r.idem.serve(x, rt, req, sc, key)
			return
		}
	}
	rt.serve(x, req, sc)
}

// admit authenticates, counts, and checks the environment and the permission:
// the one place.
func (r *Router) admit(x *exchange, rt *route, req *http.Request) (scope.Scope, error) {
	if rt.op.Public || rt.op.Optional && len(req.Header["X-Api-Key"]) == 0 && len(req.Header["Authorization"]) == 0 {
		if len(rt.op.Signed) > 0 && !slices.ContainsFunc(rt.op.Signed, func(name string) bool { return req.Header.Get(name) != "" }) {
			return scope.Scope{}, fault.New(fault.Unauthenticated, "authentication_required", "sign the request, or send an API key or an access token")
		}
		return r.stranger(x, req)
	}
	sc, err := r.authenticate(x, rt, req)
	if err != nil {
		return scope.Scope{}, err
	}
	if err := rt.reaches(req, sc); err != nil {
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
	if r.s.DiskFull != nil && rt.op.needsRoom() && r.s.DiskFull() {
		return scope.Scope{}, fault.New(fault.StorageFull, "storage_full", "the disk is full: what is left is held back for decisions and sign-in").After(roomRetry)
	}
	return sc, nil
}

// roomRetry is when who found the disk full may try again.
const roomRetry = 30 * time.Second

// needsRoom reports whether an operation may write what can wait: changes and
// simulations, but for removals. Decisions, reports of bouncers and sign-in need
// no permission to write.
func (op *Op) needsRoom() bool {
	switch op.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return strings.HasSuffix(string(op.Permission), ":write") || strings.HasSuffix(string(op.Permission), ":edit")
	}
	return false
}

// unhurried lifts the deadlines of the server for this exchange.
func (x *exchange) unhurried() {
	c := http.NewResponseController(x.ResponseWriter)
	_ = c.SetWriteDeadline(time.Time{}) // not supported by a test's recorder
	_ = c.SetReadDeadline(time.Time{})
}

// Unwrap lets http.ResponseController reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= 200 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	return x.ResponseWriter.Write(p)
}

// answer prepares err for the area of this exchange.
func (x *exchange) answer(err error) *answer {
	f := asFault(err)
	a := areaOf(x.path)
	if x.route != nil {
		a = x.route.area
	}
	out := &answer{fault: f, area: a, id: x.id, status: a.status(f.Kind)}
	if out.status >= http.StatusInternalServerError {
		x.log(err, out.status)
	}
	return out
}

func (x *exchange) log(err error, status int) {
	op := ""
	if x.route != nil {
		op = x.route.op.ID
	}
	x.r.s.Log.Error("request failed", "request_id", x.id, "operation", op, "status", status, "tenant", x.scope.Tenant, "error", err)
}

// fail answers with err, unless the answer has begun.
func (x *exchange) fail(err error) {
	if x.status != 0 {
		x.log(err, x.status)
		return
	}
	if errors.Is(err, context.Canceled) {
		x.status = statusGone
		return
	}
	a := x.answer(err)
	body, merr := encode(a)
	if merr != nil {
		body = []byte(`{"error":"internal_error"}` + "\n")
	}
	h := x.Header()
	for name, values := range a.GetHeaders() {
		h[name] = values
	}
	h["Content-Type"] = jsonMedia
	h.Del("ETag")
	more := x.refusing()
	x.WriteHeader(a.status)
	_, _ = x.Write(body) // the peer may have gone
	if more {
		x.linger()
	}
}

// finish deals with panics, counts the request and returns the exchange.
func (x *exchange) finish() {
	if p := recover(); p != nil {
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p)
		}
		x.r.s.Panics.Count("request")
		err := fmt.Errorf("panic: %s\n%s", fault.Thrown(p), debug.Stack())
		if x.status != 0 {
			x.log(err, x.status)
			panic(http.ErrAbortHandler) // half an answer is no answer
		}
		x.fail(err)
	}
	x.r.metrics.observe(x)
	reusable := x.body
	if cap(reusable) > 64<<10 {
		reusable = nil
	}
	x.leaveRoom()
	slow := x.route != nil && x.route.op.Slow
	r := x.r
	*x = exchange{body: reusable[:0]}
	if !slow { // a stream's writer may still be held by its handler's goroutines
		r.pool.Put(x)
	}
}

// Fail answers a Raw operation's request with err in the shape of its area.
// It does nothing but log when the answer has begun.
func Fail(w http.ResponseWriter, err error) {
	if x, ok := w.(*exchange); ok {
		x.fail(err)
		return
	}
	http.Error(w, http.StatusText(statuses[fault.KindOf(err)]), statuses[fault.KindOf(err)])
}

// Body reads the whole body of a Raw operation's request, up to the
// operation's bound. The bytes are good until the handler returns. Faults:
// TooLarge, BadRequest.
func Body(w http.ResponseWriter, req *http.Request) ([]byte, error) {
	x, ok := w.(*exchange)
	if !ok {
		return nil, errors.New("api: not an exchange of ours")
	}
	return x.read(req, false)
}

// WriteJSON answers with v. Raw operations use it where speed is no concern.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := encode(v)
	if err != nil {
		Fail(w, err)
		return
	}
	WriteBytes(w, status, jsonMedia, body)
}

// encode renders v as JSON, with < and > as they are and a line's end behind it.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return out.Bytes(), err
}

// WriteBytes answers with a finished body; media is the Content-Type, as a
// slice that may be shared.
func WriteBytes(w http.ResponseWriter, status int, media []string, body []byte) {
	h := w.Header()
	h["Content-Type"] = media
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the peer may have gone
}

// RequestID is the request id of the exchange that w belongs to.
func RequestID(w http.ResponseWriter) string {
	if x, ok := w.(*exchange); ok {
		return x.id
	}
	return ""
}

// requestID is the caller's request id if it is a sane one: 1 to 128 letters,
// digits and . _ - : sent once. Anything else could forge a line of a log.
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

func tooLarge(limit int64) *fault.Error {
	return fault.Newf(fault.TooLarge, "payload_too_large", "the body may hold at most %d bytes", limit).With("limit", limit)
}

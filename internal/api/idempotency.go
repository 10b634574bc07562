package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// idempotencyHeader is the canonical form of Idempotency-Key.
const idempotencyHeader = "Idempotency-Key"

const (
	keepAnswers = 24 * time.Hour
	// A running request renews its lease well before it ends; when the process
	// dies, a repetition waits for no longer than the lease.
	leaseTime  = 5 * time.Second
	leaseRenew = leaseTime / 3
	// How often and how long a repetition looks whether the first is done.
	lookAgain = 25 * time.Millisecond
	waitLong  = 20 * time.Second
)

// Idempotency is what first answers are kept with. With a
// nil Cluster, Idempotency-Key is ignored.
type Idempotency struct {
	Cluster *db.Cluster
	// Seal and Open encrypt answers at rest (package secret).
	Seal func(plain []byte, aad string) ([]byte, error)
	Open func(sealed []byte, aad string) ([]byte, error)
	// Outcome says what a request had done when its process died: the id of the
	// object that its administrative audit entry names. Entry and object were
	// written in one transaction, so no entry means nothing was created.
	Outcome func(ctx context.Context, sc scope.Scope, requestID string, since time.Time) (objectID string, found bool, err error)
}

// idempotency serves creating requests that carry a key.
type idempotency struct {
	Idempotency
	r *Router
}

func newIdempotency(r *Router) (*idempotency, error) {
	cfg := r.s.Idempotency
	if cfg.Cluster == nil {
		return nil, nil
	}
	if cfg.Seal == nil || cfg.Open == nil {
		return nil, errors.New("api: answers cannot be kept without encryption")
	}
	return &idempotency{Idempotency: cfg, r: r}, nil
}

// serve executes the request once, however often it is sent: it claims the key,
// or waits for who holds it and replays the answer.
func (i *idempotency) serve(x *exchange, rt *route, req *http.Request, sc scope.Scope, keys []string) {
	if len(keys) != 1 || !printable(keys[0]) {
		x.fail(badRequest("invalid_idempotency_key", "Idempotency-Key must be sent once and hold 1 to 255 visible ASCII characters"))
		return
	}
	if err := i.r.precheck(x, req); err != nil {
		x.fail(err)
		return
	}
	body, err := x.read(req, true)
	if err != nil {
		x.fail(err)
		return
	}
	replayable := *req
	replayable.Body, replayable.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))

	d, err := i.Cluster.Tenant(req.Context(), sc.Tenant)
	if err != nil {
		x.fail(err)
		return
	}
	now := i.r.s.Now().UTC().Truncate(time.Microsecond)
	k := kept{
		Key:       digest(string(sc.Actor.Kind), sc.Actor.ID, rt.op.ID, x.path, keys[0]),
		Request:   digest(req.Method, req.URL.RawQuery, string(sc.Env), string(body)),
		RequestID: x.id, Headers: map[string]string{}, Body: []byte{}, CreatedAt: now, LeaseUntil: now.Add(leaseTime),
	}
	row, mine, err := i.claim(req.Context(), d, k, sc)
	switch {
	case err != nil:
		x.fail(err)
	case row.Request != k.Request:
		x.fail(fault.New(fault.Invalid, "idempotency_key_reused", "this Idempotency-Key was sent with another request before"))
	case mine:
		i.execute(x, rt, &replayable, sc, d, k)
	case row.Status == 0:
		i.recall(x, rt, req, sc, row)
	default:
		i.replay(x, sc, row)
	}
}

// claim takes the key or waits until its holder is done. A row that is neither
// ours nor finished is answered when its holder died after it had created.
func (i *idempotency) claim(ctx context.Context, d *db.DB, k kept, sc scope.Scope) (kept, bool, error) {
	deadline := i.r.s.Now().Add(waitLong)
	stale := ""
	for {
		var row kept
		var mine bool
		err := d.Write(ctx, func(tx *db.Tx) (err error) {
			row, mine, err = claim(ctx, tx, k, k.CreatedAt.Add(-keepAnswers), stale)
			return err
		})
		if err != nil || mine || row.Status != 0 || row.Request != k.Request {
			return row, mine, err
		}
		row, err = i.await(ctx, d, row, deadline)
		if err != nil || row.Status != 0 {
			return row, false, err
		}
		if row.Key == "" { // released: it created nothing
			continue
		}
		if i.Outcome != nil {
			_, done, err := i.Outcome(ctx, sc, row.RequestID, row.CreatedAt)
			if err != nil || done {
				return row, false, err
			}
		}
		stale = row.RequestID
		k.LeaseUntil = i.r.s.Now().Add(leaseTime)
	}
}

// await looks until a running request is done, its lease has ended, or it has
// given its key back (a row without a key).
func (i *idempotency) await(ctx context.Context, d *db.DB, row kept, deadline time.Time) (kept, error) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		now := i.r.s.Now()
		if now.After(row.LeaseUntil) {
			return row, nil
		}
		if now.After(deadline) {
			return row, fault.New(fault.Conflict, "request_in_progress", "the first request with this Idempotency-Key is still running").After(time.Second)
		}
		select {
		case <-ctx.Done():
			return row, ctx.Err()
		case <-tick.C:
		}
		next, ok, err := standing(ctx, d, row.Key)
		if err != nil {
			return row, err
		}
		if !ok {
			return kept{}, nil
		}
		if next.Status != 0 {
			return next, nil
		}
		row = next
	}
}

// execute runs the handler, keeps a success and sends it. The answer leaves
// only when it is kept, so that nobody has seen an answer that a repetition
// would not get.
func (i *idempotency) execute(x *exchange, rt *route, req *http.Request, sc scope.Scope, d *db.DB, k kept) {
	out := &recorder{header: http.Header{}}
	client := x.ResponseWriter
	for name, values := range client.Header() {
		out.header[name] = values
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(req.Context()))
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		i.renew(ctx, d, k)
	}()
	x.ResponseWriter = out
	func() {
		defer func() {
			x.ResponseWriter = client
			cancel()
			<-renewed
			if p := recover(); p != nil {
				i.settle(x, d, k, out, sc)
				x.status = 0
				panic(p)
			}
		}()
		rt.serve(x, req, sc)
	}()
	i.settle(x, d, k, out, sc)
	out.send(client)
}

func (i *idempotency) renew(ctx context.Context, d *db.DB, k kept) {
	tick := time.NewTicker(leaseRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			err := d.Write(ctx, func(tx *db.Tx) error {
				return renew(ctx, tx, k.Key, k.RequestID, i.r.s.Now().Add(leaseTime))
			})
			if err != nil && ctx.Err() == nil {
				i.r.s.Log.Warn("the lease of an Idempotency-Key was not renewed", "request_id", k.RequestID, "error", err)
			}
		}
	}
}

// settle keeps a success and gives the key back otherwise. When the store fails
// now, the answer still stands; a repetition finds its outcome in the audit.
func (i *idempotency) settle(x *exchange, d *db.DB, k kept, out *recorder, sc scope.Scope) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTime)
	defer cancel()
	created := out.status >= 200 && out.status < 300
	var err error
	if created {
		k.Status = out.status
		for _, name := range []string{"Content-Type", "Etag", "Location"} {
			if v := out.header.Get(name); v != "" {
				k.Headers[name] = v
			}
		}
		k.Body, err = i.Seal(out.body.Bytes(), sealedFor(sc, k.Key))
	}
	if err == nil {
		err = d.Write(ctx, func(tx *db.Tx) error {
			if created {
				return settle(ctx, tx, k)
			}
			return release(ctx, tx, k.Key, k.RequestID)
		})
	}
	if err != nil {
		i.r.s.Log.Error("the first answer to an Idempotency-Key was not kept", "request_id", x.id, "error", err)
	}
}

// replay sends the answer that was kept.
func (i *idempotency) replay(x *exchange, sc scope.Scope, row kept) {
	body, err := i.Open(row.Body, sealedFor(sc, row.Key))
	if err != nil {
		x.fail(err)
		return
	}
	h := x.Header()
	for name, v := range row.Headers {
		h.Set(name, v)
	}
	h.Set("Idempotent-Replayed", "true")
	x.WriteHeader(row.Status)
	_, _ = x.Write(body) // the peer may have gone
}

// recall answers for a request whose process died between its commit and its
// answer: the object is read and sent as it would have been.
func (i *idempotency) recall(x *exchange, rt *route, req *http.Request, sc scope.Scope, row kept) {
	id, found, err := i.Outcome(req.Context(), sc, row.RequestID, row.CreatedAt)
	if err == nil && !found {
		err = fault.New(fault.Conflict, "request_in_progress", "the first request with this Idempotency-Key has not ended").After(time.Second)
	}
	if err != nil {
		x.fail(err)
		return
	}
	status := rt.op.Status
	if status == 0 {
		status = http.StatusOK
	}
	read := req.Clone(req.Context())
	read.Method, read.Body, read.ContentLength = http.MethodGet, http.NoBody, 0
	read.URL.Path, read.URL.RawPath = x.path+"/"+id, ""
	delete(read.Header, "Content-Type")
	out := &recorder{header: http.Header{}}
	i.r.ServeHTTP(out, read)
	if out.status != http.StatusOK {
		x.fail(fault.New(fault.Conflict, "already_created", "the first request with this Idempotency-Key has created the object; its answer is lost").With("id", id))
		return
	}
	h := x.Header()
	for _, name := range []string{"Content-Type", "Etag"} {
		if v := out.header.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	h.Set("Idempotent-Replayed", "true")
	x.WriteHeader(status)
	_, _ = x.Write(out.body.Bytes()) // the peer may have gone
}

// PurgeIdempotency deletes kept answers that are older than a day, of all tenants.
func (r *Router) PurgeIdempotency(ctx context.Context) error {
	if r.idem == nil {
		return nil
	}
	tenants, err := r.idem.Cluster.Tenants(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, id := range tenants {
		d, err := r.idem.Cluster.Tenant(ctx, id)
		if err == nil {
			err = purge(ctx, d, r.s.Now().Add(-keepAnswers))
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// recorder keeps an answer in memory.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (o *recorder) Header() http.Header { return o.header }

// WriteHeader implements http.ResponseWriter.
func (o *recorder) WriteHeader(status int) {
	if o.status == 0 {
		o.status = status
	}
}

// Write implements http.ResponseWriter.
func (o *recorder) Write(p []byte) (int, error) {
	if o.status == 0 {
		o.status = http.StatusOK
	}
	return o.body.Write(p)
}

// send passes the answer on.
func (o *recorder) send(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range o.header {
		h[name] = values
	}
	if o.status == 0 {
		o.status = http.StatusOK
	}
	h.Set("Content-Length", strconv.Itoa(o.body.Len()))
	w.WriteHeader(o.status)
	_, _ = w.Write(o.body.Bytes()) // the peer may have gone
}

// sealedFor binds an encrypted answer to its place.
func sealedFor(sc scope.Scope, key string) string {
	return "idempotency/" + string(sc.Tenant) + "/" + key
}

// digest is the SHA-256 of the parts, each with its length in front.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		_, _ = io.WriteString(h, strconv.Itoa(len(part))+":"+part) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

// printable reports whether s is 1 to 255 visible ASCII characters.
func printable(s string) bool {
	if len(s) == 0 || len(s) > 255 {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

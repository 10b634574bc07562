package rest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
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
	// A running request renews its lease in time. If its process dies, a repetition waits no longer
	// than the lease.
	leaseTime  = 5 * time.Second
	leaseRenew = leaseTime / 3
	// How often and how long a repetition checks whether the first request is done.
	pollEvery = 25 * time.Millisecond
	waitMost  = 20 * time.Second
)

// Idempotency stores first answers. If Cluster is nil, Idempotency-Key is ignored.
type Idempotency struct {
	Cluster *db.Cluster
	// Seal and Open encrypt answers at rest (package secret).
	Seal func(plain []byte, aad string) ([]byte, error)
	Open func(sealed []byte, aad string) ([]byte, error)
	// Admit refuses a caller who was removed since the request began, in the transaction that
	// inserts a row for the caller; nil: it refuses nobody.
	Admit func(ctx context.Context, tx *db.Tx, sc scope.Scope) error
	// Outcome finds what a request had created when its process died: the id of the object in its
	// administrative log entry. One transaction writes the entry and the object, so without an
	// entry nothing was created.
	Outcome func(ctx context.Context, sc scope.Scope, requestID string, since time.Time) (objectID string, found bool, err error)
}

// idempotency serves requests with a key that create objects.
type idempotency struct {
	Idempotency
	r *Router
}

func newIdempotency(r *Router) (*idempotency, error) {
	cfg := r.cfg.Idempotency
	if cfg.Cluster == nil {
		return nil, nil
	}
	if cfg.Seal == nil || cfg.Open == nil {
		return nil, errors.New("rest: answers cannot be stored without encryption")
	}
	return &idempotency{Idempotency: cfg, r: r}, nil
}

// serve executes a request once, even if it is sent several times. It claims the key, or waits for
// the request that holds it and replays its answer.
func (i *idempotency) serve(x *exchange, rt *route, req *http.Request, sc scope.Scope, keys []string) {
	if len(keys) != 1 || !printable(keys[0]) {
		x.fail(BadRequest("invalid_idempotency_key", "Idempotency-Key must be sent once and have 1 to 255 visible ASCII characters"))
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
	now := i.r.cfg.Now().UTC().Truncate(time.Microsecond)
	k := entry{
		Key:       digest(string(sc.Actor.Kind), sc.Actor.ID, rt.op.ID, x.path, keys[0]),
		Actor:     actorOf(sc.Actor),
		Request:   digest(req.Method, req.URL.RawQuery, string(sc.Env), string(body)),
		RequestID: x.id, Headers: map[string]string{}, Body: []byte{}, CreatedAt: now, LeaseUntil: now.Add(leaseTime),
	}
	row, claimed, err := i.claim(req.Context(), d, k, sc)
	switch {
	case err != nil:
		x.fail(err)
	case row.Request != k.Request:
		x.fail(fault.New(fault.Invalid, "idempotency_key_reused", "this Idempotency-Key was already used for another request"))
	case claimed:
		i.execute(x, rt, &replayable, sc, d, k)
	case row.Status == 0:
		i.reconstruct(x, rt, req, sc, row)
	default:
		i.replay(x, rt, req, sc, row)
	}
}

// claim takes the key or waits until its holder is done. It returns an unfinished row of another
// request only if that one created its object and then died.
func (i *idempotency) claim(ctx context.Context, d *db.DB, k entry, sc scope.Scope) (entry, bool, error) {
	deadline := i.r.cfg.Now().Add(waitMost)
	stale := ""
	for {
		var row entry
		var claimed bool
		err := d.Write(ctx, func(tx *db.Tx) (err error) {
			if i.Admit != nil {
				if err := i.Admit(ctx, tx, sc); err != nil {
					return err
				}
			}
			row, claimed, err = claim(ctx, tx, k, k.CreatedAt.Add(-keepAnswers), stale)
			return err
		})
		if err != nil || claimed || row.Status != 0 || row.Request != k.Request {
			return row, claimed, err
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
		k.LeaseUntil = i.r.cfg.Now().Add(leaseTime)
	}
}

// await waits until a running request is done, its lease has ended, or it has freed
// its key (a row without a key).
func (i *idempotency) await(ctx context.Context, d *db.DB, row entry, deadline time.Time) (entry, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		now := i.r.cfg.Now()
		if now.After(row.LeaseUntil) || row.LeaseUntil.After(db.MaxLeaseEnd(now, leaseTime)) {
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
		next, ok, err := find(ctx, d, row.Key)
		if err != nil {
			return row, err
		}
		if !ok {
			return entry{}, nil
		}
		if next.Status != 0 {
			return next, nil
		}
		row = next
	}
}

// execute runs the handler, stores a success and sends it. The answer is sent only
// after it is stored, so that a repetition gets the same.
func (i *idempotency) execute(x *exchange, rt *route, req *http.Request, sc scope.Scope, d *db.DB, k entry) {
	out := &recorder{header: http.Header{}}
	client := x.ResponseWriter
	maps.Copy(out.header, client.Header())
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
				i.complete(x, d, k, out, sc)
				x.status = 0
				panic(p)
			}
		}()
		rt.serve(x, req, sc)
	}()
	i.complete(x, d, k, out, sc)
	out.send(client)
}

func (i *idempotency) renew(ctx context.Context, d *db.DB, k entry) {
	tick := time.NewTicker(leaseRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			err := d.Write(ctx, func(tx *db.Tx) error {
				return renew(ctx, tx, k.Key, k.RequestID, i.r.cfg.Now().Add(leaseTime))
			})
			if err != nil && ctx.Err() == nil {
				i.r.cfg.Log.Warn("the lease of an Idempotency-Key could not be renewed", "request_id", k.RequestID, "error", err)
			}
		}
	}
}

// complete stores a success, and frees the key otherwise. If storing fails, the answer is still
// sent; a repetition finds the result in the audit.
func (i *idempotency) complete(x *exchange, d *db.DB, k entry, out *recorder, sc scope.Scope) {
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
				return complete(ctx, tx, k)
			}
			return release(ctx, tx, k.Key, k.RequestID)
		})
	}
	if err != nil {
		i.r.cfg.Log.Error("the first answer to an Idempotency-Key could not be stored", "request_id", x.id, "error", err)
	}
}

// replay sends the stored answer. If it cannot be decrypted, because the encryption key was lost, it
// sends what reconstruct makes.
func (i *idempotency) replay(x *exchange, rt *route, req *http.Request, sc scope.Scope, row entry) {
	body, err := i.Open(row.Body, sealedFor(sc, row.Key))
	if err != nil {
		i.r.cfg.Log.Warn("the first answer to an Idempotency-Key could not be decrypted", "request_id", x.id, "first_request_id", row.RequestID, "error", err)
		i.reconstruct(x, rt, req, sc, row)
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

// reconstruct answers for a request whose answer is lost, because its process died between its commit
// and its answer, or because the answer cannot be decrypted. It reads the object and sends it as that
// request would have.
func (i *idempotency) reconstruct(x *exchange, rt *route, req *http.Request, sc scope.Scope, row entry) {
	var id string
	var found bool
	var err error
	if i.Outcome != nil {
		id, found, err = i.Outcome(req.Context(), sc, row.RequestID, row.CreatedAt)
	}
	lost := fault.New(fault.Conflict, "already_created", "the first request with this Idempotency-Key created the object; its answer is lost")
	switch {
	case err != nil || found:
	case row.Status != 0:
		err = lost
	default:
		err = fault.New(fault.Conflict, "request_in_progress", "the first request with this Idempotency-Key has not ended").After(time.Second)
	}
	if err != nil {
		x.fail(err)
		return
	}
	status := cmp.Or(rt.op.Status, http.StatusOK)
	read := req.Clone(req.Context())
	read.Method, read.Body, read.ContentLength = http.MethodGet, http.NoBody, 0
	read.URL.Path, read.URL.RawPath = x.path+"/"+id, ""
	delete(read.Header, "Content-Type")
	out := &recorder{header: http.Header{}}
	i.r.ServeHTTP(out, read)
	if out.status != http.StatusOK {
		x.fail(lost.With("id", id))
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

// PurgeIdempotency deletes stored answers of all tenants that are older than a day.
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
			err = purge(ctx, d, r.cfg.Now().Add(-keepAnswers))
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// recorder holds an answer in memory.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (o *recorder) Header() http.Header { return o.header }

// WriteHeader implements http.ResponseWriter.
func (o *recorder) WriteHeader(status int) {
	o.status = cmp.Or(o.status, status)
}

// Write implements http.ResponseWriter.
func (o *recorder) Write(p []byte) (int, error) {
	o.status = cmp.Or(o.status, http.StatusOK)
	return o.body.Write(p)
}

// send writes the answer to w.
func (o *recorder) send(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, o.header)
	o.status = cmp.Or(o.status, http.StatusOK)
	h.Set("Content-Length", strconv.Itoa(o.body.Len()))
	w.WriteHeader(o.status)
	_, _ = w.Write(o.body.Bytes()) // the peer may have gone
}

// sealedFor binds an encrypted answer to its tenant and key.
func sealedFor(sc scope.Scope, key string) string {
	return "idempotency/" + string(sc.Tenant) + "/" + key
}

// digest returns the SHA-256 of the parts, each prefixed with its length.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		_, _ = io.WriteString(h, strconv.Itoa(len(part))+":"+part) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

// IdempotencyKey returns the key of a call of a Creates operation; empty for none. ctx is the
// handler's.
func IdempotencyKey(ctx context.Context) string {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x.req.Header.Get(idempotencyHeader)
	}
	return ""
}

// printable reports whether s consists of 1 to 255 visible ASCII characters.
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

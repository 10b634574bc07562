package shadow

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Relay forwards a request whose body the controls need. They get a copy of what the application
// reads.
func (d *Decider) Relay(w http.ResponseWriter, r *http.Request, st *settings.State, in *request.Inbound, who *identity.Caller, idErr error, refs lang.Refs) {
	seen := &request.Inspection{Refs: refs, Head: request.HeadOf(r.Header, r.ContentLength)}
	in.Seen = seen
	if refs.Usage {
		seen.Account = d.accounts.Open(in.UsageSubject(st, who))
	}
	v := &judge.Verdict{Pass: true, Mode: settings.Shadowing}
	lists := d.tools.Tap(r, st, in, who, v)
	seen.Refusal = request.Unreadable(seen.Head)
	if r.Body == nil || r.Body == http.NoBody || !request.NeedsBody(refs) || seen.Refusal != nil {
		seen.Whole = seen.Refusal == nil
		d.Decide(st, in, who, idErr)
		d.relay.Forward(w, r, in, st, who, v)
		return
	}
	decided := *in // Forward goes on to use in
	o := &shadowBody{ReadCloser: r.Body, head: seen.Head, waiting: d.Held}
	o.done = func(state bodyState) {
		switch state {
		case complete:
			seen.Body, seen.Whole, seen.ShadowBytes = o.data, true, int64(len(o.data))
			lists.NoteRequest(o.data)
		case overLimit:
			seen.Refusal = request.TooLarge("body", bodies.MaxBody)
		case collecting:
			seen.Refusal = request.BadRequest("the request body is incomplete")
		case overRoom:
			d.RecordSkipped(Job{st, decided, who, idErr})
			return
		}
		d.Decide(st, &decided, who, idErr)
	}
	r.Body = o
	defer o.finish(false)
	d.relay.Forward(w, r, in, st, who, v)
}

// shadowBody collects a body while the application reads it.
type shadowBody struct {
	io.ReadCloser
	head    request.BodyHead
	waiting *atomic.Int64 // bytes of all bodies that wait for a decision
	done    func(bodyState)

	mu    sync.Mutex // the transport may still read after the answer is complete
	data  []byte
	state bodyState
	told  bool
}

type bodyState uint8

const (
	collecting bodyState = iota
	notJSON              // not JSON: nothing to collect
	overLimit
	overRoom
	complete
)

// Read implements io.Reader.
func (b *shadowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.collect(p[:n])
	if errors.Is(err, io.EOF) {
		b.finish(true)
	}
	return n, err
}

func (b *shadowBody) collect(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != collecting || b.told {
		return
	}
	switch {
	case len(b.data)+len(p) > bodies.MaxBody:
		b.state = overLimit
	case b.waiting.Add(int64(len(p))) > bodies.MaxShadow:
		b.waiting.Add(-int64(len(p)))
		b.state = overRoom
	default:
		if b.data = append(b.data, p...); len(b.data) > 64 && !request.MayBeJSON(b.head, b.data) {
			b.state = notJSON
		}
	}
	if b.state != collecting {
		b.waiting.Add(-int64(len(b.data)))
		b.data = nil
	}
}

// finish queues the decision with the body, once. ended is false if the body was incomplete.
func (b *shadowBody) finish(ended bool) {
	b.mu.Lock()
	if b.told {
		b.mu.Unlock()
		return
	}
	b.told = true
	if b.state == collecting && ended {
		b.state = complete
	}
	if b.state == collecting {
		b.waiting.Add(-int64(len(b.data)))
		b.data = nil
	}
	state := b.state
	b.mu.Unlock()
	b.done(state)
}

// releaseBody releases the memory of a body after its shadow decision.
func (d *Decider) releaseBody(seen *request.Inspection) {
	if seen != nil {
		d.Held.Add(-seen.ShadowBytes)
		seen.Body, seen.ShadowBytes = nil, 0
	}
}

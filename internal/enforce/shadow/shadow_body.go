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
func (s *Decider) Relay(w http.ResponseWriter, r *http.Request, st *settings.State, in *request.Inbound, who *identity.Caller, idErr error, refs lang.Refs) {
	seen := &request.Inspection{Refs: refs, Head: request.HeadOf(r.Header, r.ContentLength)}
	in.Seen = seen
	if refs.Usage {
		seen.Meter = s.accounts.Open(in.UsageSubject(st, who))
	}
	v := &judge.Verdict{Pass: true, Mode: settings.Shadowing}
	lists := s.tools.Tap(r, st, in, who, v)
	seen.Refusal = request.Unreadable(seen.Head)
	if r.Body == nil || r.Body == http.NoBody || !request.NeedsBody(refs) || seen.Refusal != nil {
		seen.Whole = seen.Refusal == nil
		s.Decide(st, in, who, idErr)
		s.relay.Forward(w, r, in, st, who, v)
		return
	}
	decided := *in // Forward goes on to use in
	o := &shadowBody{ReadCloser: r.Body, head: seen.Head, waiting: s.Held}
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
			s.RecordSkipped(Job{st, decided, who, idErr})
			return
		}
		s.Decide(st, &decided, who, idErr)
	}
	r.Body = o
	defer o.finish(false)
	s.relay.Forward(w, r, in, st, who, v)
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
func (o *shadowBody) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	o.collect(p[:n])
	if errors.Is(err, io.EOF) {
		o.finish(true)
	}
	return n, err
}

func (o *shadowBody) collect(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state != collecting || o.told {
		return
	}
	switch {
	case len(o.data)+len(p) > bodies.MaxBody:
		o.state = overLimit
	case o.waiting.Add(int64(len(p))) > bodies.MaxShadow:
		o.waiting.Add(-int64(len(p)))
		o.state = overRoom
	default:
		if o.data = append(o.data, p...); len(o.data) > 64 && !request.MayBeJSON(o.head, o.data) {
			o.state = notJSON
		}
	}
	if o.state != collecting {
		o.waiting.Add(-int64(len(o.data)))
		o.data = nil
	}
}

// finish queues the decision with the body, once. ended is false if the body was incomplete.
func (o *shadowBody) finish(ended bool) {
	o.mu.Lock()
	if o.told {
		o.mu.Unlock()
		return
	}
	o.told = true
	if o.state == collecting && ended {
		o.state = complete
	}
	if o.state == collecting {
		o.waiting.Add(-int64(len(o.data)))
		o.data = nil
	}
	state := o.state
	o.mu.Unlock()
	o.done(state)
}

// releaseBody releases the memory of a body after its shadow decision.
func (s *Decider) releaseBody(seen *request.Inspection) {
	if seen != nil {
		s.Held.Add(-seen.ShadowBytes)
		seen.Body, seen.ShadowBytes = nil, 0
	}
}

package enforce

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// watch lets a request pass in shadow mode whose controls want to see its body:
// they are given what the application read, while it reads it.
func (b *Bouncer) watch(w http.ResponseWriter, r *http.Request, st *settings.State, in *inbound, who *identity.Caller, idErr error, refs lang.Refs) {
	seen := &inspection{refs: refs, head: headOf(r.Header, r.ContentLength)}
	in.seen = seen
	if refs.Usage {
		seen.meter = b.accounts.Open(subjectOf(st, in, who))
	}
	v := &verdict{pass: true, mode: settings.Shadowing}
	lists := b.hearTools(r, st, in, who, v)
	seen.no = unreadable(seen.head)
	if r.Body == nil || r.Body == http.NoBody || !needsBody(refs) || seen.no != nil {
		seen.whole = seen.no == nil
		b.observe(st, in, who, idErr)
		b.relay(w, r, in, st, who, v)
		return
	}
	decided := *in // relay goes on with its own
	o := &overheard{ReadCloser: r.Body, head: seen.head, waiting: &b.overheard}
	o.done = func(state listening) {
		switch state {
		case through:
			seen.body, seen.whole, seen.waits = o.data, true, int64(len(o.data))
			lists.asked(o.data)
		case tooMuch:
			seen.no = tooLarge("body", bodies.MaxBody)
		case listens:
			seen.no = badRequest("the body broke off")
		case crowded:
			b.undecided(shadowJob{st, decided, who, idErr})
			return
		}
		b.observe(st, &decided, who, idErr)
	}
	r.Body = o
	defer o.finish(false)
	b.relay(w, r, in, st, who, v)
}

// overheard is a body that the application reads while we listen.
type overheard struct {
	io.ReadCloser
	head    bodyHead
	waiting *atomic.Int64 // bytes of all bodies that wait for a decision
	done    func(listening)

	mu    sync.Mutex // the transport may still read when the answer is through
	data  []byte
	state listening
	told  bool
}

type listening uint8

const (
	listens listening = iota
	passes            // no JSON: nothing to hear
	tooMuch
	crowded
	through
)

// Read implements io.Reader.
func (o *overheard) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	o.hear(p[:n])
	if errors.Is(err, io.EOF) {
		o.finish(true)
	}
	return n, err
}

func (o *overheard) hear(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state != listens || o.told {
		return
	}
	switch {
	case len(o.data)+len(p) > bodies.MaxBody:
		o.state = tooMuch
	case o.waiting.Add(int64(len(p))) > bodies.MaxShadow:
		o.waiting.Add(-int64(len(p)))
		o.state = crowded
	default:
		if o.data = append(o.data, p...); len(o.data) > 64 && !mayBeJSON(o.data, o.head) {
			o.state = passes
		}
	}
	if o.state != listens {
		o.waiting.Add(-int64(len(o.data)))
		o.data = nil
	}
}

// finish hands the body over, once. ended is false for one that broke off.
func (o *overheard) finish(ended bool) {
	o.mu.Lock()
	if o.told {
		o.mu.Unlock()
		return
	}
	o.told = true
	if o.state == listens && ended {
		o.state = through
	}
	if o.state == listens {
		o.waiting.Add(-int64(len(o.data)))
		o.data = nil
	}
	state := o.state
	o.mu.Unlock()
	o.done(state)
}

// Package usage counts the requests and tokens of callers and resources for budgets, as input.usage
// shows them. A request reserves its estimated cost before it is forwarded. The reservation is
// replaced by the real cost after the answer.
package usage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/llm"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Count adds n to a counter of the current window and returns its value. The key begins
// with the tenant and a colon. Windows are fixed and follow the clock, so that all
// bouncers that share a counter agree on them. It cannot fail: while a shared store is
// away, the process counts by itself.
type Count func(ctx context.Context, key string, n int64, window time.Duration) int64

// usageWindows are the windows of input.usage.
var usageWindows = [...]struct {
	name   string
	length time.Duration
}{{"minute", time.Minute}, {"hour", time.Hour}, {"day", 24 * time.Hour}}

const (
	// maxReserve limits the tokens that one request can reserve.
	maxReserve = 1 << 30
	// maxSubjects limits the subjects that a process counts. Beyond it, those that were
	// least recently used are forgotten.
	maxSubjects = 1 << 17
)

// What is counted for each subject.
const (
	countRequests = iota
	countTokens
	countKinds
)

// Tally counts in this process. It keeps two generations, so that it is bounded and keeps
// what is used.
type Tally struct {
	now func() time.Time

	mu         sync.Mutex
	young, old map[string]*windowCount
}

type windowCount struct {
	start time.Time
	n     int64
}

// NewTally returns an empty tally. now is the clock.
func NewTally(now func() time.Time) *Tally {
	return &Tally{now: now, young: map[string]*windowCount{}, old: map[string]*windowCount{}}
}

// Add implements Count.
func (t *Tally) Add(_ context.Context, key string, n int64, window time.Duration) int64 {
	start := windowStart(t.now(), window)
	key = window.String() + key
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.young[key]
	if c == nil {
		if c = t.old[key]; c == nil {
			c = &windowCount{start: start}
		}
		if len(t.young) >= maxSubjects*countKinds*len(usageWindows)/2 {
			t.young, t.old = map[string]*windowCount{}, t.young
		}
		t.young[key] = c
	}
	if !c.start.Equal(start) {
		c.start, c.n = start, 0
	}
	c.n += n
	return c.n
}

// Renewals yields, for each window, input.usage as it will be once that window and the
// shorter ones have started again, and the time until then.
func Renewals(usage value.Value, now time.Time) iter.Seq2[value.Value, time.Duration] {
	return func(yield func(value.Value, time.Duration) bool) {
		renewed := map[string]bool{}
		for _, w := range usageWindows {
			renewed[w.name] = true
			if !yield(resetWindows(usage, renewed), windowStart(now, w.length).Add(w.length).Sub(now)) {
				return
			}
		}
	}
}

func windowStart(now time.Time, window time.Duration) time.Time {
	return now.UTC().Truncate(window)
}

// resetWindows returns input.usage with zero counts in the renewed windows.
func resetWindows(usage value.Value, renewed map[string]bool) value.Value {
	members := make([]value.Member, 0, usage.Len())
	usage.Each(func(name string, v value.Value) bool {
		switch {
		case v.Kind() == value.ObjectKind:
			v = resetWindows(v, renewed)
		case renewed[name]:
			v = value.Int(0)
		}
		members = append(members, value.Member{Key: name, Value: v})
		return true
	})
	return value.Object(members...)
}

// Account is the account of one request: its reservation, and the cost that replaces it. In shadow
// mode the two may come in either order.
type Account struct {
	count Count
	now   func() time.Time
	// subjects are the user on this resource, the user, the agent ("" if there is none)
	// and the resource.
	subjects [4]string

	mu        sync.Mutex
	at        time.Time
	estimated int64 // tokens of the prompt
	reserved  int64
	prompted  bool // the request is to a model
	taken     bool // Reserve was called
	refunded  bool
	charged   bool
	total     func(estimated int64) int64 // what the answer cost, if that was known before Reserve
}

// The names of subjects in the order of Account.subjects. The first one is input.usage
// itself.
var subjectNames = [...]string{"", "user", "agent", "resource"}

// Accounts opens the accounts of requests. Both fields are required.
type Accounts struct {
	count Count
	now   func() time.Time
}

// New returns accounts that use count.
func New(count Count, now func() time.Time) *Accounts { return &Accounts{count, now} }

// Subject says whose use is counted: use of Resource by Who, or by the client's address
// if nobody is proven.
type Subject struct {
	Tenant, Environment, Resource string
	Client                        string
	Who                           *identity.Caller
}

// Open opens the account of a request.
func (a *Accounts) Open(of Subject) *Account {
	user, who := "ip:"+of.Client, of.Who
	if who != nil && who.IsKnown() {
		user = "id:" + who.ID
	}
	m := &Account{count: a.count, now: a.now}
	key := func(kind string, names ...string) string {
		// Callers choose these names. A digest bounds them and keeps them out of a shared
		// store. Quotes keep "a b", "c" apart from "a", "b c".
		sum := sha256.Sum256(fmt.Appendf(nil, "%q", names))
		// Two tenants may have a resource or a user of the same name.
		return of.Tenant + ":" + of.Environment + ":" + kind + ":" + hex.EncodeToString(sum[:12])
	}
	m.subjects[0] = key("caller", of.Resource, user)
	m.subjects[1] = key("user", user)
	if who != nil && who.Agent != "" {
		m.subjects[2] = key("agent", who.Agent)
	}
	m.subjects[3] = key("resource", of.Resource)
	return m
}

// Reserve counts the request and its tokens, and returns input.usage: the use before it.
// It counts first and reads second, so that requests at the same time cannot exceed a
// budget: each sees all that came before.
func (a *Account) Reserve(ctx context.Context, at time.Time, req *llm.Request) value.Value {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.taken = at, true
	if req != nil {
		a.prompted, a.estimated = true, req.Estimated
		a.reserved = clampTokens(req.Estimated + clampTokens(req.MaxTokens))
		if a.charged {
			a.reserved = clampTokens(a.total(a.estimated))
		}
	}
	var state [len(subjectNames)][countKinds][len(usageWindows)]int64
	var wait sync.WaitGroup
	for s, subject := range a.subjects {
		if subject == "" {
			continue
		}
		wait.Go(func() {
			for w, window := range usageWindows {
				state[s][countRequests][w] = a.count(ctx, subject+":requests", 1, window.length) - 1
				state[s][countTokens][w] = a.count(ctx, subject+":tokens", a.reserved, window.length) - a.reserved
			}
		})
	}
	wait.Wait()
	members := make([]value.Member, 0, 5)
	for s, subject := range a.subjects {
		if subject == "" {
			continue
		}
		doc := counts(state[s])
		if s == 0 {
			doc.Each(func(k string, v value.Value) bool {
				members = append(members, value.Member{Key: k, Value: v})
				return true
			})
			continue
		}
		members = append(members, value.Member{Key: subjectNames[s], Value: doc})
	}
	return value.Object(members...)
}

// counts returns {requests: {minute, hour, day}, tokens: {minute, hour, day}}.
func counts(state [countKinds][len(usageWindows)]int64) value.Value {
	var kinds [countKinds]value.Value
	for k := range state {
		members := make([]value.Member, len(usageWindows))
		for w, n := range state[k] {
			members[w] = value.Member{Key: usageWindows[w].name, Value: value.Int(max(n, 0))}
		}
		kinds[k] = value.Object(members...)
	}
	return value.Object(value.Member{Key: "requests", Value: kinds[countRequests]}, value.Member{Key: "tokens", Value: kinds[countTokens]})
}

// Refund takes everything back, because the request was not forwarded.
func (a *Account) Refund(ctx context.Context) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.taken && !a.refunded {
		a.refunded = true
		a.correct(ctx, -1, -a.reserved)
	}
}

// Charge replaces the reservation with the real cost, which total computes from the estimated prompt.
// Only the first call counts.
func (a *Account) Charge(ctx context.Context, total func(estimated int64) int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refunded || a.charged {
		return
	}
	a.charged, a.total = true, total
	if a.taken && a.prompted {
		a.correct(ctx, 0, clampTokens(total(a.estimated))-a.reserved)
	}
}

func clampTokens(tokens int64) int64 { return min(max(tokens, 0), maxReserve) }

// NoCost returns the cost of a request that no model answered.
func NoCost(int64) int64 { return 0 }

// correct changes the counts. A reservation of an earlier window does not change the current one.
func (a *Account) correct(ctx context.Context, requests, tokens int64) {
	now := a.now()
	for _, subject := range a.subjects {
		if subject == "" {
			continue
		}
		for _, w := range usageWindows {
			same := windowStart(now, w.length).Equal(windowStart(a.at, w.length))
			if requests != 0 && same {
				a.count(ctx, subject+":requests", requests, w.length)
			}
			if tokens > 0 || tokens < 0 && same {
				a.count(ctx, subject+":tokens", tokens, w.length)
			}
		}
	}
}

// Meter measures the cost of an answer while it is forwarded. It charges the account before the
// caller has the end of the answer, because the next request may follow at once. The returned
// function charges for an answer that was not read to its end. Compressed answers and errors are
// not measured.
func (a *Account) Meter(ctx context.Context, model string, ans *upstream.Answer) (done func()) {
	ctx = context.WithoutCancel(ctx)
	encoding := ans.Header.Get("Content-Encoding")
	switch {
	case ans.StatusCode < 200 || ans.StatusCode >= 300:
		return func() { a.Charge(ctx, NoCost) }
	case encoding != "" && encoding != "identity":
		return func() { a.Charge(ctx, func(estimated int64) int64 { return estimated }) }
	}
	read := llm.NewMeter(model, bodies.IsEvents(ans.Header.Get("Content-Type")))
	done = func() { a.Charge(ctx, read.Cost().Total) }
	ans.Body = &meteredBody{TeeBody: bodies.TeeBody{ReadCloser: ans.Body, To: read}, read: read, left: ans.ContentLength, done: done}
	return done
}

// meteredBody charges the account with the last bytes of a body.
type meteredBody struct {
	bodies.TeeBody
	read *llm.Meter
	left int64 // bytes that are left; negative if unknown
	done func()
}

// Read implements io.Reader.
func (m *meteredBody) Read(p []byte) (int, error) {
	n, err := m.TeeBody.Read(p)
	m.left -= int64(n)
	if err != nil || m.left == 0 || m.read.IsOver() {
		m.done()
	}
	return n, err
}

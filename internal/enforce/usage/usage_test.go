package usage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// Names that contain separators do not collide with other subjects.
func TestSubjectsAreDistinct(t *testing.T) {
	all := New(nil, time.Now)
	seen := map[string]string{}
	for _, c := range [][2]string{{"a", "q id:a"}, {"a id:q", "a"}, {"a", "a"}, {"host:a", "x\" \"id:y"}, {"host:a\" \"id:x", "y"}} {
		m := all.Open(Subject{Environment: "sandbox", Client: "192.0.2.1", Who: &identity.Caller{ID: c[1]}, Resource: c[0]})
		if other, taken := seen[m.subjects[0]]; taken {
			t.Errorf("%q has the subject of %s, want its own", c, other)
		}
		seen[m.subjects[0]] = fmt.Sprint(c)
	}
}

// A refused request is not counted, and a reservation becomes the real cost.
func TestMetering(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 59, 0, time.UTC)
	tally := NewTally(func() time.Time { return now })
	ctx := context.Background()
	all := New(tally.Add, func() time.Time { return now })
	open := func() *Account {
		return all.Open(Subject{Environment: "sandbox", Client: "192.0.2.1", Who: &identity.Caller{ID: "ann", Agent: "helper"}, Resource: "7"})
	}
	peek := func() string { return string(open().Reserve(ctx, now, nil).AppendJSON(nil)) }
	m := open()
	if got := string(m.Reserve(ctx, now, nil).AppendJSON(nil)); !strings.HasPrefix(got, `{"requests":{"minute":0,"hour":0,"day":0},"tokens":{"minute":0`) || !strings.Contains(got, `"agent":{`) || !strings.Contains(got, `"resource":{`) {
		t.Errorf("at first: %s, want no use, also for agent and resource", got)
	}
	m.Refund(ctx)
	m.Refund(ctx)
	if got := peek(); !strings.HasPrefix(got, `{"requests":{"minute":0`) {
		t.Errorf("after a refused request: %s, want no use", got)
	}
	// A reservation in a window that has ended is not returned to the next one.
	m = open()
	m.Reserve(ctx, now, nil)
	m.prompted, m.reserved = true, 50
	for _, s := range m.subjects {
		tally.Add(ctx, s+":tokens", 50, time.Minute)
		tally.Add(ctx, s+":tokens", 50, time.Hour)
		tally.Add(ctx, s+":tokens", 50, 24*time.Hour)
	}
	now = now.Add(2 * time.Second)
	m.Charge(ctx, func(int64) int64 { return 10 })
	m.Charge(ctx, func(int64) int64 { return 1000 })
	if got := peek(); !strings.HasPrefix(got, `{"requests":{"minute":0,"hour":2,"day":2},"tokens":{"minute":0,"hour":10,"day":10}`) {
		t.Errorf("over the end of a minute: %s, want 2 requests and 10 tokens in hour and day", got)
	}
}

// The memory for counters is limited.
func TestTallyIsBounded(t *testing.T) {
	fulltest.Only(t)
	tally := NewTally(time.Now)
	for i := range 3 * maxSubjects * countKinds * len(usageWindows) / 2 {
		tally.Add(context.Background(), fmt.Sprint(i), 1, time.Hour)
	}
	if n := len(tally.young) + len(tally.old); n > maxSubjects*countKinds*len(usageWindows) {
		t.Errorf("%d counters, want at most %d", n, maxSubjects*countKinds*len(usageWindows))
	}
}

package user

import (
	"context"
	"crypto/rand"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// quick is a cost for tests.
var quick = Cost{Passes: 1, MemoryKiB: 64, Lanes: 1}

// hasher returns a hasher of a cost.
func hasher(t testing.TB, c Cost) *Hasher {
	t.Helper()
	h, err := NewHasher(c, 0, rand.Reader)
	errtest.Must(t, err)
	return h
}

// TestHash: a hash is a salted PHC string that only its password fits, in any form of Unicode.
func TestHash(t *testing.T) {
	ctx, h := context.Background(), hasher(t, quick)
	a, err := h.Hash(ctx, "correct horse")
	errtest.Must(t, err)
	b, _ := h.Hash(ctx, "correct horse")
	if a == b {
		t.Error("two hashes of one password are equal, want different salts")
	}
	if !strings.HasPrefix(a, "$argon2id$v=19$m=64,t=1,p=1$") {
		t.Errorf("hash = %q, want a PHC string with its cost", a)
	}
	for password, want := range map[string]bool{
		"correct horse": true, "correct horse ": false, "Correct horse": false, "": false, "correct hors": false,
		"correct horse\x00": false, strings.Repeat("x", MaxPassword+1): false,
	} {
		if ok, stale := h.verify(a, password); ok != want || stale {
			t.Errorf("verify(%q) = %v, renew: %v, want %v", password, ok, stale, want)
		}
	}
	composed, _ := h.Hash(ctx, "pass\u00e9word")
	if ok, _ := h.verify(composed, "passe\u0301word"); !ok {
		t.Error("verify of a decomposed password = false, want true")
	}
	if ok, stale := hasher(t, Cost{Passes: 2, MemoryKiB: 64, Lanes: 1}).verify(a, "correct horse"); !ok || !stale {
		t.Error("a hash of another cost is not renewed, or does not fit")
	}
}

// TestUnreadableHash: no password fits a hash that cannot be read.
func TestUnreadableHash(t *testing.T) {
	h := hasher(t, quick)
	for _, bad := range []string{
		"", "x", "$argon2id$", "$argon2i$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$AAAA", "$argon2id$v=19$m=99999999,t=1,p=1$c2FsdHNhbHQ$AAAA",
		"$argon2id$v=19$m=64,t=0,p=1$c2FsdHNhbHQ$AAAA", "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$",
		h.dummy + "$", "$2a$10$abcdefghijklmnopqrstuv",
	} {
		for _, password := range []string{"", "x", "no password has this hash"} {
			if ok, _ := h.verify(bad, password); ok {
				t.Errorf("verify(%q, %q) = true, want false", bad, password)
			}
		}
	}
}

// TestTurns: the number of concurrent hashes is limited, known people go before strangers but do
// not starve them, and a caller that gives up frees its place.
func TestTurns(t *testing.T) {
	h, err := NewHasher(quick, 1, rand.Reader)
	errtest.Must(t, err)
	ctx := t.Context()
	held, err := h.AcquireSlot(ctx, true)
	errtest.Must(t, err)
	impatient, cancel := context.WithCancel(ctx)
	order := make(chan string, 20)
	waitQueued := func(n int) {
		t.Helper()
		for {
			h.slots.mu.Lock()
			got := len(h.slots.known) + len(h.slots.strangers)
			h.slots.mu.Unlock()
			if got == n {
				return
			}
			runtime.Gosched()
		}
	}
	var all sync.WaitGroup
	wait := func(ctx context.Context, who string, known bool) {
		all.Go(func() {
			turn, err := h.AcquireSlot(ctx, known)
			if err != nil {
				order <- who + " gave up"
				return
			}
			order <- who
			turn.Release()
		})
	}
	wait(impatient, "impatient", true)
	waitQueued(1)
	cancel()
	if got := <-order; got != "impatient gave up" {
		t.Errorf("the cancelled caller: %s, want that it gives up", got)
	}
	for i := range 2 {
		wait(ctx, "stranger", false)
		waitQueued(i + 1)
	}
	for i := range 6 {
		wait(ctx, "known", true)
		waitQueued(i + 3)
	}
	held.Release()
	all.Wait()
	close(order)
	var got []string
	for who := range order {
		got = append(got, who)
	}
	if s := strings.Join(got, " "); s != "known known known stranger known known known stranger" {
		t.Errorf("order of the turns = %s", s)
	}
	if h.slots.free != 1 {
		t.Errorf("%d turns are free in the end, want 1", h.slots.free)
	}
	last, _ := h.AcquireSlot(ctx, true)
	defer last.Release()
	over, end := context.WithCancel(ctx)
	for range maxWaiting {
		all.Go(func() {
			if _, err := h.AcquireSlot(over, false); err == nil {
				t.Error("Turn of a cancelled caller succeeds, want an error")
			}
		})
	}
	waitQueued(maxWaiting)
	if _, err := h.AcquireSlot(ctx, false); !fault.Is(err, fault.RateLimited) {
		t.Errorf("Turn with a full queue: got %v, want rate limited", err)
	}
	end()
	all.Wait()
}

func BenchmarkVerify(b *testing.B) {
	h := hasher(b, DefaultCost())
	hash, _ := h.Hash(context.Background(), "correct horse")
	b.ReportAllocs()
	for b.Loop() {
		if ok, _ := h.verify(hash, "correct horse"); !ok {
			b.Fatal("wrong")
		}
	}
}

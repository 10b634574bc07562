package user

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
)

// quick is a cost for tests.
var quick = Cost{Passes: 1, MemoryKiB: 64, Lanes: 1}

func hasher(t testing.TB, c Cost) *Hasher {
	t.Helper()
	h, err := NewHasher(c, 0, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHash(t *testing.T) {
	ctx, h := context.Background(), hasher(t, quick)
	a, err := h.Hash(ctx, "correct horse")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := h.Hash(ctx, "correct horse")
	if a == b {
		t.Error("two hashes of one password are equal: no salt")
	}
	if !strings.HasPrefix(a, "$argon2id$v=19$m=64,t=1,p=1$") {
		t.Errorf("hash %q is no PHC string", a)
	}
	for password, want := range map[string]bool{
		"correct horse": true, "correct horse ": false, "Correct horse": false, "": false, "correct hors": false,
		"correct horse\x00": false, strings.Repeat("x", MaxPassword+1): false,
	} {
		if ok, stale, err := h.Verify(ctx, a, password); ok != want || stale || err != nil {
			t.Errorf("Verify(%q) = %v, %v, %v", password, ok, stale, err)
		}
	}
	composed, _ := h.Hash(ctx, "pass\u00e9word")
	if ok, _, _ := h.Verify(ctx, composed, "passe\u0301word"); !ok {
		t.Error("a decomposed password is another one")
	}
	if ok, stale, _ := hasher(t, Cost{Passes: 2, MemoryKiB: 64, Lanes: 1}).Verify(ctx, a, "correct horse"); !ok || !stale {
		t.Error("a hash of another cost is not renewed")
	}
}

func TestUnreadableHash(t *testing.T) {
	ctx, h := context.Background(), hasher(t, quick)
	for _, bad := range []string{
		"", "x", "$argon2id$", "$argon2i$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$AAAA", "$argon2id$v=19$m=99999999,t=1,p=1$c2FsdHNhbHQ$AAAA",
		"$argon2id$v=19$m=64,t=0,p=1$c2FsdHNhbHQ$AAAA", "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$",
		h.dummy + "$", "$2a$10$abcdefghijklmnopqrstuv",
	} {
		for _, password := range []string{"", "x", "no password is this one"} {
			if ok, _, err := h.Verify(ctx, bad, password); ok || err != nil {
				t.Errorf("Verify(%q, %q) = %v, %v", bad, password, ok, err)
			}
		}
	}
}

func TestHashWaitsInLine(t *testing.T) {
	h, err := NewHasher(quick, 1, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h.gate <- struct{}{}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := h.Hash(ctx, "password"); err == nil {
		t.Error("a hash ran although the gate was full")
	}
}

func BenchmarkVerify(b *testing.B) {
	h := hasher(b, DefaultCost())
	hash, _ := h.Hash(context.Background(), "correct horse")
	b.ReportAllocs()
	for b.Loop() {
		if ok, _, _ := h.Verify(context.Background(), hash, "correct horse"); !ok {
			b.Fatal("wrong")
		}
	}
}

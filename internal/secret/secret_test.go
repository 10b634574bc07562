package secret

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func key(b byte) [KeyBytes]byte { return [KeyBytes]byte{b, 1} }

func box(t testing.TB, keys ...[KeyBytes]byte) *Box {
	t.Helper()
	b, err := New(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSealAndOpen(t *testing.T) {
	b := box(t, key(1))
	for _, plain := range []string{"", "a", "a much longer secret than the others"} {
		one, _ := b.Seal([]byte(plain), "t1/channels/1")
		two, _ := b.Seal([]byte(plain), "t1/channels/1")
		if bytes.Equal(one, two) || (len(plain) > 8 && bytes.Contains(one, []byte(plain))) {
			t.Error("it does not hide")
		}
		got, err := b.Open(one, "t1/channels/1")
		if err != nil || string(got) != plain || got == nil {
			t.Errorf("got %q, %v", got, err)
		}
		for _, aad := range []string{"", "t2/channels/1", "t1/channels/11"} {
			if _, err := b.Open(one, aad); !errors.Is(err, ErrOpen) {
				t.Errorf("it opens as %q: %v", aad, err)
			}
		}
		for i := range one {
			bad := bytes.Clone(one)
			bad[i] ^= 1
			if _, err := b.Open(bad, "t1/channels/1"); !errors.Is(err, ErrOpen) {
				t.Errorf("byte %d: %v", i, err)
			}
			if _, err := b.Open(one[:i], "t1/channels/1"); !errors.Is(err, ErrOpen) {
				t.Errorf("%d bytes: %v", i, err)
			}
		}
	}
}

func TestRotation(t *testing.T) {
	old, both, fresh := box(t, key(1)), box(t, key(2), key(1)), box(t, key(2))
	sealed, _ := old.Seal([]byte("x"), "row")
	if old.IsStale(sealed) || !both.IsStale(sealed) {
		t.Error("stale is wrong")
	}
	plain, err := both.Open(sealed, "row")
	if err != nil {
		t.Fatal(err)
	}
	again, _ := both.Seal(plain, "row")
	if both.IsStale(again) {
		t.Error("stale after sealing anew")
	}
	if _, err := fresh.Open(again, "row"); err != nil {
		t.Error(err)
	}
	if _, err := fresh.Open(sealed, "row"); !errors.Is(err, ErrOpen) {
		t.Error("the old key is gone, yet it opens")
	}
}

func TestPurposes(t *testing.T) {
	b := box(t, key(1))
	mail, err := b.For("mail")
	if err != nil {
		t.Fatal(err)
	}
	sealed, _ := mail.Seal([]byte("x"), "row")
	if _, err := b.Open(sealed, "row"); !errors.Is(err, ErrOpen) {
		t.Error("another purpose opens it")
	}
}

// TestKeyIDsCollide: with 256 ids two keys may share one, and both must open.
func TestKeyIDsCollide(t *testing.T) {
	var keys [][KeyBytes]byte
	for i := range 200 {
		keys = append(keys, [KeyBytes]byte{byte(i), 7})
	}
	all := box(t, keys...)
	for _, k := range keys {
		sealed, _ := box(t, k).Seal([]byte("x"), "row")
		if _, err := all.Open(sealed, "row"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBadKeys(t *testing.T) {
	if _, err := New(); err == nil {
		t.Error("no key")
	}
	if _, err := New([KeyBytes]byte{}); err == nil {
		t.Error("zeros")
	}
	good := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, KeyBytes))
	if keys, err := ParseKeys(good + " , " + good); err != nil || len(keys) != 2 {
		t.Errorf("%v %v", keys, err)
	}
	for _, bad := range []string{"", "x", good + ",", good[:20]} {
		if _, err := ParseKeys(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "encryption.key")
	var wg sync.WaitGroup
	got := make([][KeyBytes]byte, 8)
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = LoadOrCreateKeyFile(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range got {
		if k != got[0] || k == ([KeyBytes]byte{}) {
			t.Error("not one key")
		}
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(files) != 1 {
		t.Errorf("left over: %v", files)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreateKeyFile(path); err == nil {
		t.Error("a key that others may read passes")
	}
}

func BenchmarkSeal(b *testing.B) {
	x := box(b, key(1))
	plain := make([]byte, 100)
	for range b.N {
		if _, err := x.Seal(plain, "t1/channels/1"); err != nil {
			b.Fatal(err)
		}
	}
}

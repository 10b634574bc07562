package secret

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

func key(b byte) [KeyBytes]byte { return [KeyBytes]byte{b, 1} }

func box(t testing.TB, keys ...[KeyBytes]byte) *Box {
	t.Helper()
	b, err := New(keys...)
	errtest.Must(t, err)
	return b
}

func TestSealAndOpen(t *testing.T) {
	b := box(t, key(1))
	for _, plain := range []string{"", "a", "a much longer secret than the others"} {
		one, _ := b.Seal([]byte(plain), "t1/channels/1")
		two, _ := b.Seal([]byte(plain), "t1/channels/1")
		if bytes.Equal(one, two) || (len(plain) > 8 && bytes.Contains(one, []byte(plain))) {
			t.Errorf("Seal of %q twice = %x and %x, want two texts without it", plain, one, two)
		}
		got, err := b.Open(one, "t1/channels/1")
		if err != nil || string(got) != plain || got == nil {
			t.Errorf("Open = %q, %v, want %q", got, err, plain)
		}
		for _, aad := range []string{"", "t2/channels/1", "t1/channels/11"} {
			if _, err := b.Open(one, aad); !errors.Is(err, ErrOpen) {
				t.Errorf("Open for %q = %v, want ErrOpen", aad, err)
			}
		}
		for i := range one {
			bad := bytes.Clone(one)
			bad[i] ^= 1
			if _, err := b.Open(bad, "t1/channels/1"); !errors.Is(err, ErrOpen) {
				t.Errorf("Open with another byte %d = %v, want ErrOpen", i, err)
			}
			if _, err := b.Open(one[:i], "t1/channels/1"); !errors.Is(err, ErrOpen) {
				t.Errorf("Open of the first %d bytes = %v, want ErrOpen", i, err)
			}
		}
	}
}

func TestRotation(t *testing.T) {
	old, both, fresh := box(t, key(1)), box(t, key(2), key(1)), box(t, key(2))
	sealed, _ := old.Seal([]byte("x"), "row")
	if again, err := old.Reseal(sealed, "row"); err != nil || again != nil {
		t.Errorf("Reseal with the key in use = %x, %v, want nothing", again, err)
	}
	again, err := both.Reseal(sealed, "row")
	if err != nil || again == nil {
		t.Fatalf("Reseal with a newer key = %x, %v, want a new value", again, err)
	}
	if more, err := both.Reseal(again, "row"); err != nil || more != nil {
		t.Errorf("Reseal of the new value = %x, %v, want nothing", more, err)
	}
	if plain, err := fresh.Open(again, "row"); err != nil || string(plain) != "x" {
		t.Errorf("Open with the newer key alone = %q, %v, want x", plain, err)
	}
	if _, err := fresh.Open(sealed, "row"); !errors.Is(err, ErrOpen) {
		t.Error("Open of an old text with the newer key alone succeeds, want ErrOpen")
	}
	if _, err := both.Reseal(sealed, "another row"); !errors.Is(err, ErrOpen) {
		t.Errorf("Reseal for another place = %v, want ErrOpen", err)
	}
}

func TestPurposes(t *testing.T) {
	b := box(t, key(1))
	mail, err := b.For("mail")
	errtest.Must(t, err)
	sealed, _ := mail.Seal([]byte("x"), "row")
	if _, err := b.Open(sealed, "row"); !errors.Is(err, ErrOpen) {
		t.Error("Open by a box of another purpose succeeds, want ErrOpen")
	}
}

// TestKeyIDsCollide: with 256 ids two keys may share one. Both must open, and what is under the
// older one must be sealed again.
func TestKeyIDsCollide(t *testing.T) {
	var keys [][KeyBytes]byte
	for i := range 200 {
		keys = append(keys, [KeyBytes]byte{byte(i), 7})
	}
	all := box(t, keys...)
	ids := map[byte][KeyBytes]byte{}
	collisions := 0
	for _, k := range keys {
		sealed, _ := box(t, k).Seal([]byte("x"), "row")
		errtest.Must(t, errtest.Of(all.Open(sealed, "row")))
		if newer, taken := ids[sealed[0]]; taken {
			collisions++
			if again, err := box(t, newer, k).Reseal(sealed, "row"); err != nil || again == nil {
				t.Errorf("Reseal under a key with the same id = %x, %v, want a new value", again, err)
			}
		}
		ids[sealed[0]] = k
	}
	if collisions == 0 {
		t.Error("no two keys share an id: the test shows nothing")
	}
}

func TestBadKeys(t *testing.T) {
	if _, err := New(); err == nil {
		t.Error("New without a key succeeds, want an error")
	}
	if _, err := New([KeyBytes]byte{}); err == nil {
		t.Error("New with a key of zeros succeeds, want an error")
	}
	good := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, KeyBytes))
	if keys, err := parseKeys(good + " , " + good); err != nil || len(keys) != 2 {
		t.Errorf("parseKeys of two = %v, %v", keys, err)
	}
	for _, bad := range []string{"", "x", good + ",", good[:20]} {
		if _, err := parseKeys(bad); err == nil {
			t.Errorf("parseKeys(%q) succeeds, want an error", bad)
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
				t.Errorf("LoadOrCreateKeyFile: %v", err)
			}
		})
	}
	wg.Wait()
	for _, k := range got {
		if k != got[0] || k == ([KeyBytes]byte{}) {
			t.Error("concurrent callers have different keys, want one")
		}
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(files) != 1 {
		t.Errorf("files = %v, want only the key", files)
	}
	errtest.Must(t, os.Chmod(path, 0o644))
	if _, err := LoadOrCreateKeyFile(path); err == nil {
		t.Error("LoadOrCreateKeyFile of a file that others may read succeeds, want an error")
	}
}

func BenchmarkSeal(b *testing.B) {
	x := box(b, key(1))
	plain := make([]byte, 100)
	for range b.N {
		errtest.Must(b, errtest.Of(x.Seal(plain, "t1/channels/1")))
	}
}

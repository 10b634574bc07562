package controlplane

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// Every flipped bit and every truncation of the saved bundle is detected.
func TestSavedBundleDetectsEveryChange(t *testing.T) {
	bundle := bytes.Repeat([]byte("bundle bytes "), 100)
	good, err := encodeLastGood(SavedHead{Bouncer: "7", Revision: "r12", ETag: `"r12"`}, bundle)
	errtest.Must(t, err)
	head, got, err := decodeLastGood(good)
	if err != nil || head.Revision != "r12" || !bytes.Equal(got, bundle) {
		t.Fatalf("decodeLastGood = %+v %v, want what was encoded", head, err)
	}
	if len(good) < 1000 {
		t.Fatalf("the file has %d bytes, want at least 1000", len(good))
	}
	for i := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			if _, _, err := decodeLastGood(bad); !errors.Is(err, errDamaged) {
				t.Fatalf("bit %d of byte %d flipped: %v, want errDamaged", bit, i, err)
			}
		}
		if _, _, err := decodeLastGood(good[:i]); !errors.Is(err, errDamaged) {
			t.Fatalf("cut to %d bytes: %v, want errDamaged", i, err)
		}
	}
	if _, _, err := decodeLastGood(append(good, 0)); !errors.Is(err, errDamaged) {
		t.Fatalf("a byte too many: %v, want errDamaged", err)
	}
}

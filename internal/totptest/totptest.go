// Package totptest plays authenticator apps (RFC 6238) in tests. It shares no code with the
// service.
package totptest

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the algorithm of RFC 6238
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"testing"
	"time"
)

// Code is what an app shows at a time for a secret in base32.
func Code(t testing.TB, secret string, at time.Time) string {
	t.Helper()
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	if err != nil {
		t.Fatalf("the secret is not base32: %v", err)
	}
	mac := hmac.New(sha1.New, key)
	if err := binary.Write(mac, binary.BigEndian, at.Unix()/30); err != nil {
		t.Fatal(err)
	}
	sum := mac.Sum(nil)
	at4 := sum[sum[19]&15:][:4]
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(at4)&0x7fffffff%1000000)
}

// Next is the app of a person in a test that cannot move the server's clock. The server takes
// each step's code once, so that a test which signs in twice would wait for half a minute.
// Next gives the codes of the steps that the server accepts at the same time, one after the
// other.
type Next struct {
	Secret string
	// Now is the clock; tests pass time.Now.
	Now  func() time.Time
	used map[int64]bool
}

// Code is a code that the server accepts now and that was not used: that of the last step,
// of this one or of the next. If all are used, it waits for the next step.
func (n *Next) Code(t testing.TB) string {
	t.Helper()
	if n.used == nil {
		n.used = map[int64]bool{}
	}
	for {
		now := n.Now()
		// The oldest step that is accepted may end on the way to the server, so it is used
		// only while this step has some seconds left.
		first := int64(0)
		if now.Unix()%30 < 20 {
			first = -1
		}
		for d := first; d <= 1; d++ {
			if step := now.Unix()/30 + d; !n.used[step] {
				n.used[step] = true
				return Code(t, n.Secret, time.Unix(step*30, 0))
			}
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the test ended before the next step")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

package identity

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// The address of the client comes from X-Forwarded-For only as far as trusted proxies wrote it.
func TestClientAddress(t *testing.T) {
	trusted, err := ParseProxies([]string{"10.0.0.0/8", "::1", "192.0.2.7"})
	errtest.Must(t, err)
	for _, tc := range []struct {
		peer, want string
		xff        []string
	}{
		{"203.0.113.9", "203.0.113.9", []string{"1.1.1.1"}}, // not trusted: its header is ignored
		{"10.0.0.1", "10.0.0.1", nil},
		{"10.0.0.1", "1.1.1.1", []string{"9.9.9.9, 1.1.1.1"}},
		{"10.0.0.1", "1.1.1.1", []string{"9.9.9.9, 1.1.1.1, 10.2.3.4"}},
		{"10.0.0.1", "1.1.1.1", []string{"9.9.9.9", "1.1.1.1", "10.2.3.4"}},
		{"10.0.0.1", "10.2.3.4", []string{"rubbish, 10.2.3.4"}},
		{"::ffff:10.0.0.1", "1.1.1.1", []string{"1.1.1.1"}},
	} {
		peer := netip.MustParseAddr(tc.peer).Unmap()
		if got := trusted.ClientOf(peer, http.Header{"X-Forwarded-For": tc.xff}).String(); got != tc.want {
			t.Errorf("ClientOf(%s) with X-Forwarded-For %v = %s, want %s", tc.peer, tc.xff, got, tc.want)
		}
	}
	if _, err := ParseProxies([]string{"10.0.0.0/33"}); err == nil {
		t.Error("ParseProxies(10.0.0.0/33): no error")
	}
}

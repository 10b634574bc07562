package origin

import (
	"net/http"
	"testing"
)

// TestParse: an origin is a scheme and a host; everything else is refused.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"http://example.com": "http example.com", "https://example.com:8443": "https example.com:8443", "http://[::1]:80": "http [::1]:80",
		"null": "", "": "", "example.com": "", "//example.com": "", "ftp://example.com": "", "http://": "", "http://example.com/": "", "http://example.com/x": "",
		"http://a@example.com": "", "http://example.com@evil.example": "", "http://example.com?x": "", "http://example.com?": "", "http://example.com#": "", "HTTP://example.com": "http example.com",
		"http://example.com http://evil.example": "", " http://example.com": "",
	} {
		scheme, host, ok := Parse(text)
		got := ""
		if ok {
			got = scheme + " " + host
		}
		if got != want {
			t.Errorf("Parse(%q) = %q, want %q", text, got, want)
		}
	}
	if !IsOf("https", "Example.com", "https://example.com/base") || IsOf("http", "example.com", "https://example.com") || IsOf("https", "example.com", "") {
		t.Error("IsOf accepts another scheme or an empty origin, or refuses its own")
	}
}

// TestRelayed: proxies are detected by the header fields that they add.
func TestRelayed(t *testing.T) {
	for name, want := range map[string]bool{"Via": true, "X-Forwarded-Anything": true, "Cf-Connecting-Ip": true, "Accept": false, "X-Forward": false} {
		if got := Relayed(http.Header{name: {"x"}}); got != want {
			t.Errorf("Relayed with %s = %v, want %v", name, got, want)
		}
	}
}

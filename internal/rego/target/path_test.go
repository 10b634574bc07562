package target

import (
	"net/url"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

func TestParsePattern(t *testing.T) {
	for _, good := range []string{"", "/", "/a/*", "/a/{id}/b", "/**", "/a/**", "a/b", "/a/**/", "/café", "/a%20b"} {
		if _, err := ParsePattern(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"/a*", "/**/b", "/{a", "/a{b}", "/a/../b", "/a%2fb", "/a\\b", "/{a}{b}", "/a?b"} {
		if _, err := ParsePattern(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

func FuzzNormalisePath(f *testing.F) {
	for _, s := range []string{"/", "//a", "/a/../b", "/%2e%2e/a", "/a%2fb", "/..;/a", "/a b", "/%zz", "/\xff", "/a?b", "/é", "/a/./b/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := NormalisePath(raw)
		if err != nil {
			return
		}
		if again, err := NormalisePath(got); err != nil || again != got {
			t.Fatalf("%q became %q, and that %q (%v)", raw, got, again, err)
		}
		if got[0] != '/' || strings.Contains(got, "//") || len(got) > 1 && strings.HasSuffix(got, "/") {
			t.Fatalf("%q became %q", raw, got)
		}
		for seg := range strings.SplitSeq(got[1:], "/") {
			dec, err := url.PathUnescape(seg)
			if err != nil || dec == "." || dec == ".." || strings.ContainsAny(dec, "/\\\x00") {
				t.Fatalf("%q became %q: segment %q", raw, got, dec)
			}
		}
	})
}

func BenchmarkNormalisePath(b *testing.B) {
	for _, p := range []string{"/api/v1/users/17/orders", "/api//v1/%75sers/../x/"} {
		b.Run(p, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				errtest.Must(b, errtest.Of(NormalisePath(p)))
			}
		})
	}
}

// What a client wrote is what is forwarded: no escape but of unreserved characters is
// ever removed.
func TestNormaliseKeepsReserved(t *testing.T) {
	for raw, want := range map[string]string{
		"/a%3bb%2bc%2cd%3de%40f%3ag%24h%26": "/a%3Bb%2Bc%2Cd%3De%40f%3Ag%24h%26",
		"/a;b+c,d=e@f:g$h&":                 "/a;b+c,d=e@f:g$h&",
		"/%41%7e%2d%5f%2e":                  "/A~-_.",
		"/%21%27%28%29%2a":                  "/%21%27%28%29%2A",
		"/a b/%20/\u00e9/%c3%a9":            "/a%20b/%20/%C3%A9/%C3%A9",
		"/%2541":                            "/%2541",
		"/x/%2e%2e/y":                       "/y",
	} {
		got, err := NormalisePath(raw)
		again, _ := NormalisePath(got)
		if err != nil || got != want || again != got {
			t.Errorf("%q: %q %v, then %q; want %q", raw, got, err, again, want)
		}
	}
}

package resource

import (
	"slices"
	"testing"
)

// TestCheckPattern: a path may have placeholders and a wildcard at its end, and no ambiguous segment.
func TestCheckPattern(t *testing.T) {
	for _, p := range []string{"/", "/a", "/a/*", "/a/**", "/**", "/a/{id}/b/{name}", "/a.b/c-d/~x", "/ü/ж", "/a;v=1/b"} {
		if msg := checkPattern(p); msg != "" {
			t.Errorf("checkPattern(%q) = %q, want it accepted", p, msg)
		}
	}
	for _, p := range []string{
		"", "a", "/a/", "//", "/a//b", "/a/../b", "/./a", "/a/**/b", "/a*", "/{id}x", "/{}", "/{1}", "/{id}/{id}",
		"/a%2fb", `/a\b`, "/..;x", "/.;a/b", "/a?b", "/a#b", "/a\x00b", "/a\nb", "/a\xff", "/***",
	} {
		if checkPattern(p) == "" {
			t.Errorf("checkPattern(%q) accepts it, want a reason", p)
		}
	}
}

// TestNormalMethodsAndHosts: methods and hosts are normalised, and wrong ones named.
func TestNormalMethodsAndHosts(t *testing.T) {
	var wrong []int
	note := func(i int, _ string) { wrong = append(wrong, i) }
	got := normalMethods([]string{"post", " GET", "POST"}, note)
	if len(wrong) != 0 || len(got) != 2 || got[0] != "GET" || got[1] != "POST" {
		t.Errorf("normalMethods = %v, wrong at %v, want GET and POST", got, wrong)
	}
	if got = normalMethods([]string{"GET", "*"}, note); len(wrong) != 0 || len(got) != 0 {
		t.Errorf("normalMethods of * = %v, wrong at %v, want none", got, wrong)
	}
	if normalMethods([]string{"get", "GET POST", "*", "a/b"}, note); !slices.Equal(wrong, []int{1, 3}) {
		t.Errorf("normalMethods finds wrong methods at %v, want 1 and 3", wrong)
	}
	for in, want := range map[string]string{"Pay.Example.COM.": "pay.example.com", "localhost:8080": "localhost:8080", "[::1]:80": "[::1]:80", "": ""} {
		if got, msg := normalHost(in); got != want || msg != "" {
			t.Errorf("normalHost(%q) = %q, %q, want %q", in, got, msg, want)
		}
	}
	for _, in := range []string{"a b", "a/b", "-x.com", "a:99999", "a..b"} {
		if got, msg := normalHost(in); msg == "" {
			t.Errorf("normalHost(%q) = %q, want a reason", in, got)
		}
	}
	for _, in := range []string{"ftp://x", "https://u:p@x", "/x", "https://"} {
		if checkURL(in) == "" {
			t.Errorf("checkURL(%q) accepts it, want a reason", in)
		}
	}
}

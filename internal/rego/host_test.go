package rego

import (
	"slices"
	"strings"
	"testing"
)

func TestHostName(t *testing.T) {
	for host, want := range map[string]string{
		"api.openai.com": "api.openai.com", "API.OpenAI.com.": "api.openai.com", "models:8443": "models", "my_app.internal:80": "my_app.internal",
		"xn--bcher-kva.example": "xn--bcher-kva.example", strings.Repeat("a", 63) + ".example": strings.Repeat("a", 63) + ".example",

		"": "", ".": "", "a..b": "", ".a": "", "-a.example": "", "a-.example": "", strings.Repeat("a", 64): "", strings.Repeat("a.", 126) + "ab": "",
		"127.0.0.1": "", "127.0.0.1:80": "", "127.1": "", "2130706433": "", "0x7f.1": "", "0x7f000001": "", "10.0.0.0x1": "", "[::1]": "", "[::1]:80": "", "::1": "", "1.2.3.4.": "",
		"localhost": "", "localhost:8081": "", "x.localhost": "", "a:b": "", "a:80:80": "", "a:": "", "user@example.com": "", "a/b": "", "a b": "", "a\r\nb": "",
		"<script>": "", "ex%61mple.com": "", "exämple.com": "", "a,b": "", "*.example.com": "", "=cmd": "",
	} {
		got, ok := HostName(host)
		if got != want || ok != (want != "") {
			t.Errorf("HostName(%q) = %q, %v, want %q", host, got, ok, want)
		}
	}
}

func TestUnknownHosts(t *testing.T) {
	set := NewSet(SetSpec{Resources: []Resource{{ID: 1, Host: "Known.example"}, {ID: 2, Host: "port.example:8443"}, {ID: 3, Path: "/x"}, {ID: 4, Host: "gone.example"}}})
	set = set.With(Change{RemovedResources: []int64{4}})
	got := set.UnknownHosts([]string{"known.example", "new.example", "port.example", "gone.example", "new.example"})
	if want := []string{"new.example", "gone.example"}; !slices.Equal(got, want) {
		t.Errorf("unknown: %v, want %v", got, want)
	}
}

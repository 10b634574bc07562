package target

import (
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

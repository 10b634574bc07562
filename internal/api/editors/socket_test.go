package editors

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
)

// FuzzSocketMessage: any frame is read, or fails with the fault of a 400.
func FuzzSocketMessage(f *testing.F) {
	for _, seed := range []string{
		`{"type":"ping","data":{}}`, `{"type":"validate","data":{"policy_content":"package a"}}`, `{"type":"deployment_status","data":{"deployment_id":"x"}}`,
		`{"type":7}`, `{"type":"ping","data":[]}`, `{"type":"ping","type":"validate"}`, `{"type":"ping","Type":"validate"}`, `null`, `[]`, `{`, ``, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m := socketMessage(body)
		if m.size != int64(len(body)) {
			t.Errorf("socketMessage(%q) counts %d bytes, want %d", body, m.size, len(body))
		}
		if m.bad != nil {
			if !fault.Is(m.bad, fault.BadRequest) || m.kind != "" && m.given {
				t.Errorf("socketMessage(%q) = %+v, want a bad request", body, m)
			}
			return
		}
		var plain map[string]any
		if json.Unmarshal(body, &plain) != nil || plain["type"] != m.kind || m.kind == "" {
			t.Errorf("socketMessage(%q) = %+v, want as encoding/json reads it", body, m)
		}
		data, _ := plain["data"].(map[string]any)
		if text, _ := data[socketNeeds[m.kind]].(string); m.given && (text != m.data || !utf8.ValidString(text)) {
			t.Errorf("socketMessage(%q) = %+v, want as encoding/json reads it", body, m)
		}
	})
}

// TestSocketMessage: a message has a type and an object as data; members that the type does not need are
// ignored.
func TestSocketMessage(t *testing.T) {
	for text, want := range map[string]socketIncoming{
		`{"type":"ping","data":{}}`:                                       {kind: "ping"},
		`{"type":"ping"}`:                                                 {kind: "ping"},
		`{"type":"ping","data":null}`:                                     {kind: "ping"},
		`{"type":"validate","data":{"policy_content":"package a"}}`:       {kind: "validate", data: "package a", given: true},
		`{"type":"validate","data":{"policy_content":""}}`:                {kind: "validate", given: true},
		`{"type":"validate","data":{"policy_content":7}}`:                 {kind: "validate"},
		`{"type":"validate","data":{"deployment_id":"x"}}`:                {kind: "validate"},
		`{"type":"validate"}`:                                             {kind: "validate"},
		`{"type":"deployment_status","data":{"deployment_id":"x","y":1}}`: {kind: "deployment_status", data: "x", given: true},
		`{"type":"explode","data":{"policy_content":"x"}}`:                {kind: "explode"},
	} {
		want.size = int64(len(text))
		if got := socketMessage([]byte(text)); got != want {
			t.Errorf("socketMessage(%s) = %+v, want %+v", text, got, want)
		}
	}
	for text, code := range map[string]string{
		`{`: "invalid_json", ``: "invalid_json", `{"type":"ping","type":"ping"}`: "invalid_json", `{"type":"ping","Type":"ping"}`: "invalid_json",
		strings.Repeat("[", 100) + strings.Repeat("]", 100): "invalid_json", `{"type":"ping"} x`: "invalid_json", `{"type":"ping","data":1e999}`: "invalid_json",
		`{}`: "invalid_message", `[]`: "invalid_message", `null`: "invalid_message", `{"type":""}`: "invalid_message", `{"type":1}`: "invalid_message",
		`{"Type":"ping"}`: "invalid_message", `{"type":"ping","data":[]}`: "invalid_message", `{"type":"ping","data":"x"}`: "invalid_message",
	} {
		if got := socketMessage([]byte(text)); got.bad == nil || rest.AsFault(got.bad).Code != code {
			t.Errorf("socketMessage(%s) = %+v, want %s", text, got, code)
		}
	}
}

// TestSameOrigin: only the host of the request and the public address are origins of the socket.
func TestSameOrigin(t *testing.T) {
	const host, public = "api.example:8443", "https://gate.example/base"
	for origin, want := range map[string]bool{
		"https://api.example:8443": true, "http://api.example:8443": true, "https://API.example:8443": true, "https://gate.example": true, "HTTPS://gate.example": true,
		"http://gate.example": false, // the public address is https
		"https://api.example": false, "https://api.example:443": false, "https://gate.example:8443": false, "https://gate.example.evil.example": false,
		"https://evil.example": false, "null": false, "": false, "file://": false, "//api.example:8443": false, "api.example:8443": false, "ftp://api.example:8443": false,
		"https://x@gate.example": false, "https://gate.example/": false, "https://gate.example?x": false, "https://gate.example#x": false, "https://gate.example\x00": false,
		"https://evil.example https://gate.example": false, "https://gate.example:": false, "chrome-extension://api.example:8443": false,
	} {
		if got := sameOrigin(origin, host, public); got != want {
			t.Errorf("sameOrigin(%q) = %v, want %v", origin, got, want)
		}
	}
	if sameOrigin("https://", "", "") || sameOrigin("https://", host, "") {
		t.Error("sameOrigin of an origin without a host = true, want false")
	}
}

// TestUpgrades: a request upgrades with all header fields of RFC 6455, section 4.2.1.
func TestUpgrades(t *testing.T) {
	good := func() http.Header {
		return http.Header{"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
	}
	if !upgrades(good()) {
		t.Error("upgrades of the example of RFC 6455 = false, want true")
	}
	for what, c := range map[string]struct {
		name   string
		values []string
		want   bool
	}{
		"in capitals":             {"Upgrade", []string{"WebSocket"}, true},
		"one of several":          {"Upgrade", []string{"h2c, websocket"}, true},
		"in a second header":      {"Connection", []string{"keep-alive", "upgrade"}, true},
		"no Upgrade":              {"Upgrade", nil, false},
		"another protocol":        {"Upgrade", []string{"websockets"}, false},
		"no Connection":           {"Connection", nil, false},
		"Connection without it":   {"Connection", []string{"keep-alive"}, false},
		"an old version":          {"Sec-Websocket-Version", []string{"8"}, false},
		"no version":              {"Sec-Websocket-Version", nil, false},
		"no key":                  {"Sec-Websocket-Key", nil, false},
		"a short key":             {"Sec-Websocket-Key", []string{"AAAA"}, false},
		"a key that is no base64": {"Sec-Websocket-Key", []string{"!!!!!!!!!!!!!!!!!!!!!!=="}, false},
		"two keys":                {"Sec-Websocket-Key", []string{"dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ=="}, false},
	} {
		h := good()
		delete(h, c.name)
		if c.values != nil {
			h[c.name] = c.values
		}
		if got := upgrades(h); got != c.want {
			t.Errorf("upgrades with %s = %v, want %v", what, got, c.want)
		}
	}
}

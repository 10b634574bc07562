package enforce

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// guardOrders denies everything below /orders and permits the rest.
func guardOrders(t testing.TB, p *plane, matching string) {
	p.publish(policySet{
		revision: 1, mode: "enforce", controls: []control{{id: 1, source: denyAll, resource: 5}, {id: 2, source: allowAll}},
		resources: []target.Resource{
			{ID: 5, Type: "api", Path: "/orders/**", PathMatching: matching, Doc: valuetest.Decode(t, `{"id":5}`)},
			{ID: 6, Type: "api", Path: "/**", Doc: valuetest.Decode(t, `{"id":6}`)},
		},
		config: loopbackProxies(),
	})
}

// TestExactPaths checks that a resource with exact matching covers only its own spelling. Other
// spellings belong to the resources that they name.
func TestExactPaths(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	for matching, others := range map[string]int{"": 403, target.PathExact: 200} {
		p := newPlane(t)
		guardOrders(t, p, matching)
		b := start(t, p, app.URL, nil).at(t, 1)
		if got := fetch(t, "GET", b.url+"/orders/1", nil); got.status != 403 {
			t.Errorf("matching %q: %s, want 403", matching, got)
		}
		for _, path := range []string{"/ORDERS/1", "/orders;a=1/1", "/orders./1", "/orders%20/1"} {
			wantAnswer(t, fmt.Sprintf("matching %q, %s", matching, path), fetch(t, "GET", b.url+path, nil), others)
		}
	}
}

// TestBothReadings checks a path that names one resource as it is spelled and another after folding.
// The controls of both must allow it, also if one has none or reads the body.
func TestBothReadings(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(policySet{
		revision: 1, mode: "enforce",
		controls: []control{
			{id: 1, source: denyAll, resource: 5},
			{id: 2, source: allowAll, resource: 6},
			{id: 3, source: "package tools\n\nallow if input.mcp.tool == \"read\"\n", resource: 8},
			{id: 4, source: allowAll, resource: 9},
		},
		resources: []target.Resource{
			{ID: 5, Type: "api", Path: "/users/**", Doc: valuetest.Decode(t, `{"id":5}`)},
			{ID: 6, Type: "api", Path: "/users/guest/**", Doc: valuetest.Decode(t, `{"id":6}`)},
			{ID: 7, Type: "api", Path: "/users/public/**", Doc: valuetest.Decode(t, `{"id":7}`)},
			{ID: 8, Type: "api", Path: "/tools/**", Doc: valuetest.Decode(t, `{"id":8}`)},
			{ID: 9, Type: "api", Path: "/tools/open", Doc: valuetest.Decode(t, `{"id":9}`)},
		},
	})
	b := start(t, p, app.URL, nil).at(t, 1)
	for path, want := range map[string]int{
		"/users/guest/1": 200, "/users/GUEST/1": 403, "/users/guest;x/1": 403, "/users/%67uest/1": 200, "/users/%2567uest/1": 403,
		"/users/public/1": 200, "/users/PUBLIC/1": 403, "/users/public./1": 403,
	} {
		wantAnswer(t, path, fetch(t, "GET", b.url+path, nil), want)
	}
	for tool, denied := range map[string]bool{"read": false, "drop_table": true} {
		got := post(t, b.url+"/tools/OPEN", "application/json", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`, nil)
		// A JSON-RPC call is refused in its own form, with 200.
		if got.status != 200 || strings.Contains(got.body, `"error":"access_denied"`) != denied {
			t.Errorf("the tool %s: %s, want it denied: %v", tool, got, denied)
		}
	}
}

// reading is what a server does to a path.
type reading func(string) string

// decode decodes percent-encoding once, and keeps what is malformed.
func decode(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := url.PathUnescape(s[i : i+3]); err == nil {
				b.WriteString(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// eachSegment replaces each segment of a path.
func eachSegment(s string, fn func(string) string) string {
	segs := strings.Split(s, "/")
	for i := range segs {
		segs[i] = fn(segs[i])
	}
	return strings.Join(segs, "/")
}

// dropParameters removes the parameters of segments, as servlets do.
func dropParameters(s string) string {
	return eachSegment(s, func(seg string) string { before, _, _ := strings.Cut(seg, ";"); return before })
}

// trimEnds removes final dots and spaces, as Windows does.
func trimEnds(s string) string {
	return eachSegment(s, func(seg string) string {
		if seg == "." || seg == ".." {
			return seg
		}
		return strings.TrimRight(seg, ". ")
	})
}

func slashes(s string) string { return strings.ReplaceAll(s, `\`, "/") }

func clean(s string) string { return path.Clean("/" + s) }

// readings are servers: each a row of what it does to a path, in order.
var readings = map[string][]reading{
	"plain":                       {decode, clean},
	"routes without case":         {decode, strings.ToLower, clean},
	"IIS":                         {decode, slashes, clean, trimEnds, strings.ToLower, clean},
	"IIS behind a decoding proxy": {decode, decode, slashes, clean, trimEnds, strings.ToLower, clean},
	"servlet":                     {dropParameters, decode, clean},
	"servlet that decodes first":  {decode, dropParameters, clean},
	"servlet behind a proxy":      {decode, dropParameters, decode, dropParameters, clean},
	"decodes twice":               {decode, decode, clean},
	"decodes thrice":              {decode, decode, decode, clean},
	"normalises Unicode":          {decode, norm.NFKC.String, clean},
	"all of it":                   {decode, norm.NFKC.String, decode, norm.NFKC.String, slashes, dropParameters, clean, trimEnds, strings.ToLower, norm.NFKC.String, strings.ToLower, clean},
	"C strings":                   {decode, decode, func(s string) string { before, _, _ := strings.Cut(s, "\x00"); return before }, clean},
	"Rails": {decode, clean, func(s string) string {
		if i := strings.LastIndexByte(s, '.'); i > strings.LastIndexByte(s, '/') {
			return s[:i] // the format
		}
		return s
	}},
	"Django": {decode, clean, func(s string) string { return strings.TrimSuffix(s, "/") }},
}

// servedAs returns the name of one of servers that serves an order for a path; empty: none does.
func servedAs(raw string, servers map[string][]reading) string {
	for name, steps := range servers {
		s := raw
		for _, step := range steps {
			s = step(s)
		}
		if s == "/orders" || strings.HasPrefix(s, "/orders/") {
			return name
		}
	}
	return ""
}

// spelling writes /orders/17 in a way that somebody may read as just that.
func spelling(rng *rand.Rand) string {
	segs := []string{"orders", "17"}
	for range rng.IntN(4) {
		i := rng.IntN(len(segs))
		s := segs[i]
		at := func() int { return rng.IntN(len(s) + 1) }
		switch rng.IntN(12) {
		case 0:
			k := rng.IntN(len(s) + 1)
			s = strings.ToUpper(s[:k]) + s[k:]
		case 1:
			s += []string{";", ";x", ";x=1;y", "%3b", "%3Bx", "%253b"}[rng.IntN(6)]
		case 2:
			s += []string{".", "..", "%2e", "%20", " ", "%2520", "%252e", ".%20"}[rng.IntN(8)]
		case 3, 4:
			if k := rng.IntN(max(len(s), 1)); s != "" && s[k] != '%' {
				s = s[:k] + fmt.Sprintf("%%%02x", s[k]) + s[k+1:]
			}
		case 5:
			s = strings.ReplaceAll(s, "%", "%25")
		case 6:
			s = strings.Map(func(r rune) rune {
				if r > 0x20 && r < 0x7f && r != '%' && rng.IntN(2) == 0 {
					return r + 0xfee0 // full width
				}
				return r
			}, s)
		case 7:
			s = strings.Replace(s, "s", "\u017f", 1)
		case 8:
			k := at()
			s = s[:k] + []string{"%252f", "%255c", "\uff0f", "%2500", "%2e%2e", "%252e%252e%252f"}[rng.IntN(6)] + s[k:]
		case 9:
			segs = append(segs[:i:i], append([]string{[]string{"", ".", "x/..", "x/%2e%2e", ";x", "%20", "...", "%252e"}[rng.IntN(8)]}, segs[i:]...)...)
			continue
		case 10:
			s = url.PathEscape(s)
		case 11:
			s = strings.Replace(s, "o", []string{"%EF%BD%8F", "%25ef%25bd%258f", "\u2134", "%6F", "%256f"}[rng.IntN(5)], 1)
		}
		segs[i] = s
	}
	return "/" + strings.Join(segs, "/")
}

// inASCII escapes what may not stand in a request line.
func inASCII(s string) string {
	var out strings.Builder
	for i := range len(s) {
		if s[i] > ' ' && s[i] < 0x7f && s[i] != '\\' {
			out.WriteByte(s[i])
		} else {
			fmt.Fprintf(&out, "%%%02X", s[i])
		}
	}
	return out.String()
}

// While a control denies /orders/**, no spelling of a path makes the server serve anything below
// /orders, in the proxy or by forward-auth.
func TestEverySpellingIsDecidedOn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var last string
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _, _ := strings.Cut(r.RequestURI, "?")
		mu.Lock()
		last = raw
		mu.Unlock()
	}))
	defer app.Close()
	p := newPlane(t)
	p.discard = true
	guardOrders(t, p, "")
	b := start(t, p, app.URL, nil).at(t, 1)
	var conn net.Conn
	var br *bufio.Reader
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	send := func(head string) int {
		if conn == nil {
			c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
			errtest.Must(t, err)
			_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
			conn, br = c, bufio.NewReader(c)
		}
		errtest.Must(t, errtest.Of(io.WriteString(conn, head)))
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.Close {
			conn.Close()
			conn = nil
		}
		return resp.StatusCode
	}
	rounds := fulltest.Rounds(1000, 50_000)
	rng := rand.New(rand.NewPCG(1, 2))
	passed, refused, permitted := 0, 0, 0
	for range rounds {
		ascii := inASCII(spelling(rng))
		mu.Lock()
		last = ""
		mu.Unlock()
		status := send("GET " + ascii + " HTTP/1.1\r\nHost: a\r\n\r\n")
		mu.Lock()
		seen := last
		mu.Unlock()
		if seen != "" {
			passed++
			if server := servedAs(seen, readings); server != "" {
				t.Errorf("%q was forwarded as %q, which a server serves as an order: %s", ascii, seen, server)
			}
		}
		if status == 400 {
			refused++
		}
		if send("GET /_bouncer/auth HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Host: a\r\nX-Forwarded-Uri: "+ascii+"\r\n\r\n") == 200 {
			permitted++
			if server := servedAs(ascii, readings); server != "" {
				t.Errorf("forward-auth permits %q, which a server serves as an order: %s", ascii, server)
			}
		}
	}
	t.Logf("of %d spellings %d passed, %d were refused; forward-auth permitted %d", rounds, passed, refused, permitted)
	if refused == rounds || passed == 0 {
		t.Errorf("of %d spellings %d passed and %d were refused, want some of each", rounds, passed, refused)
	}
}

package decisions_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// connection is a connection to a server for raw requests.
type connection struct {
	conn net.Conn
	read *bufio.Reader
}

func connect(t *testing.T, s *apptest.Server) *connection {
	t.Helper()
	u, err := url.Parse(s.URL)
	errtest.Must(t, err)
	conn, err := net.DialTimeout("tcp", u.Host, 30*time.Second)
	errtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	errtest.Must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return &connection{conn, bufio.NewReader(conn)}
}

// ask sends a request and reports whether the fast path answered it. net/http writes the date after our
// headers, the fast path before.
func (l *connection) ask(t *testing.T, text string) (res *http.Response, body string, fast bool) {
	t.Helper()
	errtest.Must(t, errtest.Of(io.WriteString(l.conn, text)))
	const status = len("HTTP/1.1 200 OK\r\n")
	start, err := l.read.Peek(status)
	errtest.Must(t, err)
	if end := bytes.IndexByte(start, '\n'); end > 0 {
		start, err = l.read.Peek(end + len("\nDate"))
	} else if start, err = l.read.Peek(4 * status); err == nil {
		start = start[:bytes.IndexByte(start, '\n')+len("\nDate")]
	}
	errtest.Must(t, err)
	fast = bytes.HasSuffix(start, []byte("\nDate"))
	if res, err = http.ReadResponse(l.read, nil); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	all, err := io.ReadAll(res.Body)
	errtest.Must(t, err)
	return res, string(all), fast
}

// varying matches what differs in two answers to the same request.
var varying = regexp.MustCompile(`"(evaluation_time_ms|decision_id|timestamp|cache_hit)":("[^"]*"|[^,}]*)`)

// TestFastPath checks that the fast path, which serves kept connections with plain requests, and net/http give the
// same answers, also to wrong requests.
func TestFastPath(t *testing.T) {
	s := apptest.StartServer(t, "sqlite", "GATEHOUSE_DECISION_RATE_LIMIT=1000")
	apptest.Activate(t, s.Admin, "readers", "production", "package team\n\nallow if input.user.id == \"ada\"\n\nmask contains {\"path\": \"$.salary\"} if input.user.id == \"bob\"\n", nil)
	key, weak := s.Key(t, s.Admin, "production", "decisions:read"), s.Key(t, s.Admin, "production", "policies:read")
	json, mine := "Content-Type: application/json", "X-API-Key: "+key.APIKey
	const at = "/api/v1/decisions/evaluate"
	ada := `{"user":{"id":"ada"},"action":{"name":"read"},"resource":{"type":"api","path":"/x"}}`
	kept := connect(t, s)
	for _, tc := range []struct {
		name, target, body string
		status             int
		headers            []string
	}{
		{"permitted", at, ada, 200, []string{mine, json}},
		{"denied", at, strings.Replace(ada, "ada", "eve", 1), 200, []string{mine, json}},
		{"by token", at, ada, 200, []string{"Authorization: Bearer " + s.Admin.Bearer, json}},
		{"alias", "/v1/decisions/evaluate", ada, 200, []string{mine, json}},
		{"as OPA's clients ask", "/v1/data/gatehouse/decision", `{"input":` + ada + `}`, 200, []string{mine, json}},
		{"environment", at + "?environment=production", ada, 200, []string{mine}},
		{"the other environment", at + "?environment=sandbox", ada, 403, []string{mine, json}},
		{"no such environment", at + "?environment=moon", ada, 400, []string{mine, json}},
		{"environment twice", at + "?environment=production&environment=sandbox", ada, 400, []string{mine, json}},
		{"query that is none", at + "?a=%zz", ada, 400, []string{mine, json}},
		{"own id", at, ada, 200, []string{mine, json, "X-Request-Id: mine-7"}},
		{"id that is none", at, ada, 200, []string{mine, json, "X-Request-Id: a b"}},
		{"nobody", at, ada, 401, []string{json}},
		{"no such key", at, ada, 401, []string{"X-API-Key: ghk_nothing", json}},
		{"key twice", at, ada, 400, []string{mine, mine, json}},
		{"key and token", at, ada, 400, []string{mine, "Authorization: Bearer " + s.Admin.Bearer, json}},
		{"not allowed to ask", at, ada, 403, []string{"X-API-Key: " + weak.APIKey, json}},
		{"no such tenant", at, ada, 403, []string{mine, json, "X-Tenant-ID: others"}},
		{"no body", at, "", 400, []string{mine, json}},
		{"no JSON", at, `{"user":`, 400, []string{mine, json}},
		{"a member twice", at, `{"user":{},"user":{}}`, 400, []string{mine, json}},
		{"no object", at, `[]`, 422, []string{mine, json}},
		{"unknown member", at, `{"usr":{}}`, 422, []string{mine, json}},
		{"media type", at, ada, 415, []string{mine, "Content-Type: text/plain"}},
		{"encoding", at, ada, 415, []string{mine, json, "Content-Encoding: gzip"}},
	} {
		text := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n", tc.target, len(tc.body), strings.Join(tc.headers, "\r\n"))
		short, shortBody, fast := kept.ask(t, text+"\r\n"+tc.body)
		long, longBody, other := connect(t, s).ask(t, text+"Connection: close\r\n\r\n"+tc.body)
		if !fast || other {
			t.Fatalf("%s: the fast path answers the kept connection: %v and the other: %v, want true and false", tc.name, fast, other)
		}
		if short.StatusCode != tc.status || short.Status != long.Status || short.Close || !long.Close {
			t.Errorf("%s = %s, by net/http %s, want %d: %s", tc.name, short.Status, long.Status, tc.status, shortBody)
		}
		if (short.Header.Get("X-Ratelimit-Remaining") == "") != (long.Header.Get("X-Ratelimit-Remaining") == "") {
			t.Errorf("%s: X-RateLimit-Remaining is %q, by net/http %q", tc.name, short.Header, long.Header)
		}
		ids := [2]string{short.Header.Get("X-Request-Id"), long.Header.Get("X-Request-Id")}
		for _, name := range []string{"Date", "X-Ratelimit-Remaining", "Content-Length", "X-Request-Id"} {
			if short.Header.Get(name) == "" && name != "X-Ratelimit-Remaining" {
				t.Errorf("%s: the answer has no header %s", tc.name, name)
			}
			short.Header.Del(name)
			long.Header.Del(name)
		}
		if d := cmp.Diff(long.Header, short.Header); d != "" {
			t.Errorf("%s: the headers of net/http (-) and the fast path (+) differ:\n%s", tc.name, d)
		}
		same := func(body, id string) string {
			return varying.ReplaceAllString(strings.ReplaceAll(body, id, "ID"), `"$1":0`)
		}
		if a, b := same(shortBody, ids[0]), same(longBody, ids[1]); a != b {
			t.Errorf("%s = %s\nwant, as by net/http: %s", tc.name, a, b)
		}
	}
}

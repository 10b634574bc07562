package gateways_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// spellings returns the spellings of a header's name that a receiver may normalise to it.
func spellings(name string) []string {
	return []string{
		name, strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(strings.ToLower(name), "-", "_"),
		strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1), strings.ReplaceAll(name, "-", "~"),
	}
}

// folded returns the name under which CGI, WSGI, Rack or PHP finds a header.
func folded(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name))
}

// TestGatewayHeaders checks that no client's value of a header that applications trust passes a
// gateway with the configuration of its page, in any spelling, and that other headers do.
// TestReservedHeadersDoNotPass of package enforce checks the bouncer.
func TestGatewayHeaders(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app := s.Admin, apptest.NewBackend(t, nil)
	a.Do(t, "PUT", "/environments/sandbox/enforcement", body{"mode": "enforce"}).Want(200)
	apptest.Activate(t, a, "all", "sandbox", "package all\n\nallow := true\n", nil)
	b := s.Bouncer(t, a, body{"name": "gateway", "environment": "sandbox"}, app.Addr)
	apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/open", 200, 5*time.Second)

	reserved := header.Reserved()
	// nginx removes what is listed alone; who can remove whole families does.
	families := []string{"X-Auth-Request-Anything", "X-Original-Anything", "X-Remote-Anything", "X-Forwarded-Anything"}
	ways := maps.Clone(gateways)
	ways["an older traefik"] = func(t *testing.T, bouncer, app string) string {
		return startTraefik(t, bouncer, app, func(static string) string { return strings.Replace(static, "aliasHeadersStrategy: delete", "", 1) })
	}
	for name, start := range ways {
		t.Run(name, func(t *testing.T) {
			url := start(t, strings.TrimPrefix(b.URL, "http://"), app.Addr)
			app.Take()
			through, names := 0, reserved
			if name != "nginx" {
				names = append(slices.Clone(reserved), families...)
			}
			for _, h := range names {
				for _, spelling := range spellings(h) {
					through += forge(t, app, name, url, []string{spelling})
				}
			}
			for batch := range slices.Chunk(names, 20) {
				through += forge(t, app, name, url, batch)
			}
			if through < len(names) {
				t.Errorf("%d requests reached the application, so the test checked little", through)
			}
		})
	}
}

// forge sends a request with the headers and returns the number of requests at the application.
func forge(t *testing.T, app *apptest.Backend, way, url string, headers []string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/open", nil)
	errtest.Must(t, err)
	for _, h := range headers {
		req.Header[h] = []string{"forged"} // as it is written
	}
	req.Header.Set("X-Custom", "kept")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s with %v: %v", way, headers, err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	seen := app.Take()
	if len(seen) != map[bool]int{true: 1}[res.StatusCode == 200] || res.StatusCode != 200 && res.StatusCode/100 != 4 {
		t.Errorf("%s with %v = %d with %d requests at the application, want one and 200, or none and a refusal", way, headers, res.StatusCode, len(seen))
	}
	for _, r := range seen {
		for name, values := range r.Header {
			// A request id is a caller's to choose.
			if strings.Contains(fmt.Sprint(values), "forged") && folded(name) != "X-Request-Id" {
				t.Errorf("%s with %v: the application gets %s: %v, want no forged value", way, headers, name, values)
			}
		}
		if r.Method != http.MethodGet || r.URL.Path != "/open" || r.Header.Get("X-Custom") != "kept" {
			t.Errorf("%s with %v: the application gets %s %s %v, want GET /open with X-Custom", way, headers, r.Method, r.URL, r.Header)
		}
	}
	return len(seen)
}

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
)

// spellings are the ways to write a header's name that a receiver may fold into it.
func spellings(name string) []string {
	return []string{
		name, strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(strings.ToLower(name), "-", "_"),
		strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1), strings.ReplaceAll(name, "-", "~"),
	}
}

// folded is the name that CGI, WSGI, Rack or PHP would look a header up by.
func folded(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name))
}

// TestGatewayHeaders: of the headers that applications believe, no client's value
// comes through a gateway that is configured as its page shows, in any spelling;
// others do. TestReservedHeadersDoNotPass of package enforce holds the bouncer itself to it.
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
				t.Errorf("%d requests came through: little was shown", through)
			}
		})
	}
}

// forge sends one request with the headers and gives how many reached the application.
func forge(t *testing.T, app *apptest.Backend, way, url string, headers []string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/open", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		req.Header[h] = []string{"forged"} // as it is written
	}
	req.Header.Set("X-Custom", "kept")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s: %v: %v", way, headers, err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	seen := app.Take()
	if len(seen) != map[bool]int{true: 1}[res.StatusCode == 200] || res.StatusCode != 200 && res.StatusCode/100 != 4 {
		t.Errorf("%s: %v: %d, and the application saw %d requests", way, headers, res.StatusCode, len(seen))
	}
	for _, r := range seen {
		for name, values := range r.Header {
			// A request id is a caller's to choose.
			if strings.Contains(fmt.Sprint(values), "forged") && folded(name) != "X-Request-Id" {
				t.Errorf("%s: %v: the application sees %s: %v", way, headers, name, values)
			}
		}
		if r.Method != http.MethodGet || r.URL.Path != "/open" || r.Header.Get("X-Custom") != "kept" {
			t.Errorf("%s: %v: the application sees %s %s %v", way, headers, r.Method, r.URL, r.Header)
		}
	}
	return len(seen)
}

package gateways_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestGatewayAnswers checks that an application behind a gateway with the configuration of its page
// cannot send the bouncer's own headers to the client.
func TestGatewayAnswers(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	app := apptest.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Own", "own")
		for _, name := range header.OfAnswers() {
			switch r.URL.Path {
			case "/plain":
				h[name] = []string{"forged", "forged again"}
			case "/odd":
				h[strings.ToLower(name)] = []string{"forged"}
				h[strings.ToUpper(name)] = []string{"forged"}
				h[strings.ReplaceAll(name, "-", "_")] = []string{"forged"}
				h[strings.ToLower(strings.ReplaceAll(name, "-", "_"))] = []string{"forged"}
			case "/announced":
				h.Add("Trailer", name)
			case "/family":
				h.Set(name+"-Anything", "forged")
			}
		}
		switch r.URL.Path {
		case "/error":
			h.Set("X-Decision", "forged")
			w.WriteHeader(http.StatusInternalServerError)
		case "/redirect":
			h.Set("X-Gatehouse-Status", "forged")
			http.Redirect(w, r, "/plain", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, strings.Repeat("body ", 2000))
		w.(http.Flusher).Flush()
		for _, name := range header.OfAnswers() {
			switch r.URL.Path {
			case "/announced":
				h.Set(name, "forged")
			case "/unannounced":
				h.Set(http.TrailerPrefix+name, "forged")
			}
		}
	})
	a.Do(t, "PUT", "/environments/sandbox/enforcement", body{"mode": "enforce"}).Want(200)
	apptest.Activate(t, a, "all", "sandbox", "package all\n\nallow if input.resource.path != \"/denied\"\n", nil)
	b := s.Bouncer(t, a, body{"name": "gateway", "environment": "sandbox"}, app.Addr)
	apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/open", 200, 5*time.Second)
	for name, start := range gateways {
		t.Run(name, func(t *testing.T) { checkAnswers(t, name, start(t, strings.TrimPrefix(b.URL, "http://"), app.Addr)) })
	}
	t.Run("the bouncer", func(t *testing.T) { checkAnswers(t, "the bouncer", b.URL) })
}

// checkAnswers requests each page and searches for forged headers.
func checkAnswers(t *testing.T, way, url string) {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for path, status := range map[string]int{
		"/plain": 200, "/odd": 200, "/family": 200, "/announced": 200, "/unannounced": 200, "/error": 500, "/redirect": 302,
	} {
		if path == "/family" && (way == "nginx" || way == "traefik") {
			continue // they remove what is listed; the pages say so
		}
		if strings.HasSuffix(path, "announced") && (way == "caddy" || way == "traefik") {
			continue // they touch no trailers; the pages say so
		}
		res, err := client.Get(url + path)
		if err != nil {
			t.Errorf("GET %s: %v", path, err)
			continue
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if all := fmt.Sprint(res.Header, res.Trailer); res.StatusCode != status || strings.Contains(all, "forged") || res.Header.Get("X-Own") != "own" || len(text) == 0 {
			t.Errorf("GET %s = %d %s, want %d with the application's own header and no forged ones", path, res.StatusCode, all, status)
		}
	}
	// A refusal is the bouncer's, and says so.
	res, err := client.Get(url + "/denied")
	errtest.Must(t, err)
	res.Body.Close()
	if res.StatusCode/100 != 4 || res.Header.Get("X-Decision-Id") == "" {
		t.Errorf("the denial = %d %v, want a refusal with X-Decision-Id", res.StatusCode, res.Header)
	}
}

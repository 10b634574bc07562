package gateways_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// balanced starts a real nginx in front of replicas, configured as in docs/scaling.md: if a replica
// refuses a connection, or ends one without an answer, nginx sends the request to the next one. It
// never leaves a replica out for a while (max_fails), because the other one is restarted soon.
func balanced(t *testing.T, replicas ...string) (url, file string) {
	bin, err := exec.LookPath("nginx")
	if err != nil {
		bin = "/usr/sbin/nginx"
	}
	if _, err := os.Stat(bin); err != nil {
		apptest.SkipMissing(t, "nginx is not installed")
	}
	dir, addr := t.TempDir(), freeport.Addr(t)
	var temp, servers strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	for _, r := range replicas {
		fmt.Fprintf(&servers, "server %s max_fails=0;\n", r)
	}
	conf := fmt.Sprintf(`daemon off;
master_process off;
pid %s/pid;
events { worker_connections 2048; }
http {
access_log off;
%s
upstream replicas {
%skeepalive 64;
}
server {
    listen %s;
    location / {
        proxy_pass http://replicas;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_next_upstream error timeout;
    }
}
}
`, dir, temp.String(), servers.String(), addr)
	file = filepath.Join(dir, "nginx.conf")
	errtest.Must(t, os.WriteFile(file, []byte(conf), 0o600))
	program(t, addr, exec.Command(bin, "-p", dir, "-c", file, "-e", filepath.Join(dir, "error.log")))
	return "http://" + addr, file
}

// load sends rate requests a second until ctx ends. It returns the numbers of requests and of
// failures.
func load(ctx context.Context, url string, rate int) (sent, failed int64, last string) {
	var ok, bad atomic.Int64
	var why atomic.Pointer[string]
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	due := make(chan struct{}, rate)
	var workers sync.WaitGroup
	for range 50 {
		workers.Go(func() {
			for range due {
				res, err := client.Get(url) //nolint:noctx // has a timeout
				var body []byte
				if err == nil {
					body, err = io.ReadAll(res.Body)
					res.Body.Close()
				}
				if err != nil || res.StatusCode != 200 {
					text := fmt.Sprint(err)
					if err == nil {
						text = fmt.Sprintf("%s %.200s", res.Status, body)
					}
					why.Store(&text)
					bad.Add(1)
				} else {
					ok.Add(1)
				}
			}
		})
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			for range rate / 50 {
				select {
				case due <- struct{}{}:
				default:
				}
			}
		case <-ctx.Done():
		}
	}
	close(due)
	workers.Wait()
	if p := why.Load(); p != nil {
		last = *p
	}
	return ok.Load() + bad.Load(), bad.Load(), last
}

// TestRollingRestarts: replicas of a bouncer restart one after the other, under load, behind a real
// nginx, and no request is lost.
func TestRollingRestarts(t *testing.T) {
	restarts, rate := fulltest.Rounds(2, 20), fulltest.Rounds(200, 1000)
	if !fulltest.Run() && testing.Short() {
		t.Skip("restarts take seconds")
	}
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app := s.Admin, apptest.NewBackend(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	a.Do(t, "PUT", "/environments/sandbox/enforcement", body{"mode": "enforce"}).Want(200)
	apptest.Activate(t, a, "all", "sandbox", "package all\n\nallow := true\n", nil)
	var replicas []*apptest.BouncerProcess
	var addrs []string
	for _, name := range []string{"one", "two"} {
		b := s.Bouncer(t, a, body{"name": name, "environment": "sandbox"}, app.Addr, "GATEHOUSE_STOP_DELAY=1s")
		replicas = append(replicas, b)
		addrs = append(addrs, strings.TrimPrefix(b.URL, "http://"))
	}
	url, conf := balanced(t, addrs...)
	url += "/x"
	ctx, stop := context.WithCancel(t.Context())
	var sent, failed int64
	var why string
	var under sync.WaitGroup
	under.Go(func() { sent, failed, why = load(ctx, url, rate) })
	for i := range restarts {
		replicas[i%2].Stop()
		replicas[i%2].Start()
		app.Take() // drop the recorded requests
	}
	stop()
	under.Wait()
	if failed != 0 || sent < int64(restarts*rate/2) {
		log, _ := os.ReadFile(filepath.Join(filepath.Dir(conf), "error.log"))
		t.Errorf("%d of %d requests failed, the last with %s\nnginx says: %.2000s", failed, sent, why, log)
	}
	t.Logf("%d requests over %d restarts", sent, restarts)
}

// TestServerLeaves: a server that is told to stop is not ready at once, still answers requests and
// closes their connections, and then stops without an error.
func TestServerLeaves(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_STOP_DELAY=2s")
	s.Interrupt()
	apptest.Eventually(t, 5*time.Second, func() error {
		if res := s.Admin.Do(t, "GET", "/health/ready", nil); res.Status != 503 {
			return fmt.Errorf("GET /health/ready of the stopping server = %d, want 503", res.Status)
		}
		return nil
	})
	question := `{"action":{"name":"read"},"resource":{"path":"/x"}}`
	for method, path := range map[string]string{"GET": "/policies", "POST": "/decisions/evaluate?environment=sandbox"} { // the way of net/http, and the short one
		req, err := http.NewRequestWithContext(t.Context(), method, s.Admin.Base+path, strings.NewReader(question))
		errtest.Must(t, err)
		req.Header.Set("Authorization", "Bearer "+s.Admin.Bearer)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultTransport.RoundTrip(req)
		errtest.Must(t, err)
		res.Body.Close()
		if res.StatusCode != 200 || !res.Close {
			t.Errorf("GET %s = %d, closing: %v, want 200 and the end of the connection", path, res.StatusCode, res.Close)
		}
	}
	if code := s.Wait(15 * time.Second); code != 0 {
		t.Errorf("the server ended with %d, want 0", code)
	}
	if log := s.Log.String(); strings.Contains(log, "ERROR") {
		t.Errorf("the log has an error for an orderly stop:\n%s", log)
	}
}

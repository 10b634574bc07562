package delivery_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// logTap is a proxy between a bouncer and its server that reads the decision log.
type logTap struct {
	*httptest.Server
	mu   sync.Mutex
	held bool // no chunk of the log passes
	cut  bool // nothing passes
	seen bytes.Buffer
}

// tapLogs starts a proxy of a server.
func tapLogs(t *testing.T, server string) *logTap {
	t.Helper()
	target, err := url.Parse(server)
	errtest.Must(t, err)
	tap := &logTap{}
	forward := httputil.NewSingleHostReverseProxy(target)
	tap.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tap.isCut() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if !strings.HasSuffix(r.URL.Path, "/bridge/logs") {
			forward.ServeHTTP(w, r)
			return
		}
		sent, _ := io.ReadAll(r.Body)
		if !tap.record(t, sent) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(sent))
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(tap.Close)
	return tap
}

// record records a chunk. It returns false while chunks are held.
func (l *logTap) record(t *testing.T, sent []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held {
		return false
	}
	z, err := gzip.NewReader(bytes.NewReader(sent))
	if err == nil {
		_, err = io.Copy(&l.seen, z)
	}
	if err != nil {
		t.Errorf("a chunk of the decision log is not readable: %v", err)
	}
	return true
}

// hold sets what does not pass from now on.
func (l *logTap) hold(logs, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.cut = logs, all
}

func (l *logTap) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

func (l *logTap) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen.String()
}

// spooledLog returns the files of a bouncer's decision log.
func spooledLog(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "decisions", "*"))
	errtest.Must(t, err)
	var all strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

// TestReplayOffReachesBouncers checks that while a tenant keeps no inputs for replay, a bouncer neither
// stores nor sends them, also after a restart without its server, and that it does again after the
// setting is on. Inputs that an audit level keeps are kept all the time.
func TestReplayOffReachesBouncers(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app := s.Admin, apptest.NewBackend(t, nil)
	tap := tapLogs(t, s.URL)
	basic := a.Do(t, "POST", "/resources", body{"name": "basic", "type": "api", "path": "/basic/**", "environment": "sandbox"}).Want(201).ID()
	detailed := a.Do(t, "POST", "/resources", body{"name": "detailed", "type": "api", "path": "/detailed/**", "environment": "sandbox"}).Want(201).ID()
	a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", detailed), body{"audit_level": "detailed"}).Want(200)
	apptest.Activate(t, a, "opened", "sandbox", opened, nil)
	b := s.Register(t, a, body{"name": "edge", "environment": "sandbox", "resource_ids": []int64{basic, detailed}}, app.Addr)
	launch := func() {
		b.StartDetached(t, tap.URL, app.Addr)
		apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/_bouncer/ready", 200, 10*time.Second)
	}
	launch()
	set := func(v any) {
		t.Helper()
		was, _, _ := revisions(t, a, b.ID)
		a.Do(t, "PUT", "/tenants/default", body{"settings": body{"replay": v}}).Want(200)
		apptest.Eventually(t, 30*time.Second, func() error {
			if now, _, _ := revisions(t, a, b.ID); now <= was {
				return fmt.Errorf("the bouncer still runs the revision %d, want a newer one", now)
			}
			return nil
		})
	}
	// Only the whole input has a caller's groups. The part that every audit level keeps does not.
	ask := func(name string, alone, kept bool) {
		t.Helper()
		where := map[string]func() string{"spool": func() string { return spooledLog(t, b.Dir) }, "wire": tap.text}
		check := func(place string) {
			t.Helper()
			apptest.Eventually(t, 30*time.Second, func() error {
				if text := where[place](); !strings.Contains(text, name+"-basic-id") || !strings.Contains(text, name+"-detailed-id") {
					return fmt.Errorf("%s: the %s lacks the decisions", name, place)
				}
				return nil
			})
			text := where[place]()
			if got := strings.Contains(text, name+"-basic-team"); got != kept {
				t.Errorf("%s: the %s has the input: %v, want %v", name, place, got, kept)
			}
			if !strings.Contains(text, name+"-detailed-team") {
				t.Errorf("%s: the %s lacks the input that the audit keeps", name, place)
			}
		}
		tap.hold(true, alone)
		for _, level := range []string{"basic", "detailed"} {
			b.As("ada", name+"-"+level+"-team").With("X-Request-Id", name+"-"+level+"-id").Do(t, "GET", "/"+level+"/1", nil).Want(200)
		}
		check("spool")
		tap.hold(false, false)
		check("wire")
	}
	ask("first", false, true)
	set("off")
	ask("off", false, false)
	b.Stop()
	tap.hold(true, true)
	launch()
	ask("restarted", true, false)
	set(nil)
	ask("again", false, true)
	set("off")
	set(body{"hours": 2})
	ask("hours", false, true)
}

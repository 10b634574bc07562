package faults_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/cache/cachetest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// faultProxy forwards TCP connections to a target. While it hangs, it keeps all connections and
// forwards nothing.
type faultProxy struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	open     chan struct{} // closed while bytes pass
}

func newFaultProxy(t *testing.T, target string) *faultProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.Must(t, err)
	t.Cleanup(func() { l.Close() })
	p := &faultProxy{listener: l, target: target, open: make(chan struct{})}
	close(p.open)
	go p.serve()
	return p
}

func (p *faultProxy) serve() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		go p.pass(in, out)
		go p.pass(out, in)
	}
}

func (p *faultProxy) pass(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		open := p.open
		p.mu.Unlock()
		<-open
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err != io.EOF {
				from.Close()
			}
			return
		}
	}
}

// hang stops all bytes until resume.
func (p *faultProxy) hang() {
	p.mu.Lock()
	p.open = make(chan struct{})
	p.mu.Unlock()
}

func (p *faultProxy) resume() {
	p.mu.Lock()
	close(p.open)
	p.mu.Unlock()
}

// TestStoreThatHangs checks that while PostgreSQL does not answer, decisions continue, also for
// unknown people and after a change that could not be read, readiness says no, and writes end.
func TestStoreThatHangs(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	cfg := dbtest.Config(t, dbtest.Postgres)
	u, err := url.Parse(cfg.URL)
	errtest.Must(t, err)
	proxy := newFaultProxy(t, u.Host)
	u.Host = proxy.listener.Addr().String()
	s := apptest.StartServerOn(t, t.TempDir(), u.String())
	a := s.Admin
	a.Do(t, "POST", "/policies", body{"name": "any", "environment": "production", "status": "active", "rego_code": "package any\n\nallow if input.action.name == \"read\"\n"}).Want(201)
	ask := func(user string) {
		t.Helper()
		if got := a.Within(5*time.Second).Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": user}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/x"}}).Want(200).Get("decision"); got != "PERMIT" {
			t.Errorf("the decision for %s = %v, want PERMIT", user, got)
		}
	}
	ask("ann")
	proxy.hang()
	hung := time.Now()
	for i := range 30 {
		ask(fmt.Sprint("never-seen-", i))
	}
	if all := time.Since(hung); all > 20*time.Second { // not each waits for the store
		t.Errorf("30 decisions took %s, want at most 20 s", all)
	}
	s.Anonymous().Within(3*time.Second).Do(t, "GET", "/health/ready", nil).Want(503)
	a.Within(25*time.Second).Do(t, "POST", "/policies", body{"name": "more", "rego_code": "package more\n\nallow if true\n"}).Want(503)
	apptest.Eventually(t, time.Minute, func() error {
		if !strings.Contains(s.Log.String(), "the connection that announces changes of other replicas is lost") {
			return errors.New("the log has no warning that announcements are missed")
		}
		return nil
	})
	proxy.resume()
	apptest.Eventually(t, 30*time.Second, func() error {
		if res := s.Anonymous().Do(t, "GET", "/health/ready", nil); res.Status != 200 {
			return fmt.Errorf("readiness = %d, want 200", res.Status)
		}
		return nil
	})
	ask("ann")
}

// TestRedisThatHangs checks that while Redis does not answer, decisions and sign-in do not wait for
// it, the server is ready and says that it counts alone, and that it uses Redis again afterwards.
func TestRedisThatHangs(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(cachetest.Start(t).URL())
	errtest.Must(t, err)
	proxy := newFaultProxy(t, u.Host)
	u.Host = proxy.listener.Addr().String()
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_REDIS_URL="+u.String(), "GATEHOUSE_RATE_LIMIT=100000", "GATEHOUSE_DECISION_RATE_LIMIT=100000")
	a := s.Key(t, s.Admin, "production", "decisions:read").Within(2 * time.Second)
	remaining := func() (left int64) {
		t.Helper()
		res := a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ann"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/x"}}).Want(200)
		if _, err := fmt.Sscan(res.Header.Get("X-RateLimit-Remaining"), &left); err != nil {
			t.Fatalf("the answer has no limit: %v", res.Header)
		}
		return left
	}
	redis := func() any {
		return s.Anonymous().Do(t, "GET", "/health", nil).Want(200).Get("components", "redis", "status")
	}
	for range 5 {
		remaining()
	}
	before := remaining()
	proxy.hang()
	hung := time.Now()
	for i := range int64(100) {
		if left := remaining(); left != before-i-1 {
			t.Fatalf("%d requests remain after %d, so the count started again", left, before-i)
		}
	}
	if all := time.Since(hung); all > 10*time.Second {
		t.Errorf("100 decisions took %s, want at most 10 s", all)
	}
	s.Login(t, "admin", apptest.Password)
	apptest.Eventually(t, 30*time.Second, func() error {
		if status := redis(); status != "degraded" {
			return fmt.Errorf("the status of Redis is %v, want degraded", status)
		}
		return nil
	})
	s.Anonymous().Within(time.Second).Do(t, "GET", "/health/ready", nil).Want(200)
	proxy.resume()
	apptest.Eventually(t, 30*time.Second, func() error {
		if status := redis(); status != "up" {
			return fmt.Errorf("the status of Redis is %v, want up", status)
		}
		return nil
	})
	remaining()
}

package faults_test

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/cache/cachetest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// faultProxy passes TCP connections on to a target, until it hangs: then it keeps
// all connections and passes nothing.
type faultProxy struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	open     chan struct{} // closed while bytes pass
}

func newFaultProxy(t *testing.T, target string) *faultProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// hang stops all bytes; resume lets them go on.
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

// TestStoreThatHangs: while PostgreSQL keeps its connections and answers nothing,
// decisions go on, of people who were never seen too and after a change that could
// not be read; readiness says no at once, and writes end.
func TestStoreThatHangs(t *testing.T) {
	t.Parallel()
	cfg := dbtest.Config(t, dbtest.Postgres)
	u, err := url.Parse(cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := newFaultProxy(t, u.Host)
	u.Host = proxy.listener.Addr().String()
	s := apptest.StartServerOn(t, t.TempDir(), u.String())
	a := s.Admin
	a.Do(t, "POST", "/policies", body{"name": "any", "environment": "production", "status": "active", "rego_code": "package any\n\nallow if input.action.name == \"read\"\n"}).Want(201)
	ask := func(user string) time.Duration {
		t.Helper()
		began := time.Now()
		if got := a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": user}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/x"}}).Want(200).Get("decision"); got != "PERMIT" {
			t.Errorf("%s: %v", user, got)
		}
		return time.Since(began)
	}
	ask("ann")
	proxy.hang()
	hung := time.Now()
	for i := range 30 {
		if took := ask(fmt.Sprint("never-seen-", i)); took > 5*time.Second {
			t.Errorf("a decision took %s", took)
		}
	}
	if all := time.Since(hung); all > 20*time.Second {
		t.Errorf("30 decisions took %s", all)
	}
	began := time.Now()
	if res := s.Anonymous().Do(t, "GET", "/health/ready", nil); res.Status != 503 || time.Since(began) > 3*time.Second {
		t.Errorf("readiness: %d after %s", res.Status, time.Since(began))
	}
	began = time.Now()
	if res := a.Do(t, "POST", "/policies", body{"name": "more", "rego_code": "package more\n\nallow if true\n"}); res.Status != 503 || time.Since(began) > 25*time.Second {
		t.Errorf("a write: %d after %s", res.Status, time.Since(began))
	}
	proxy.resume()
	apptest.Eventually(t, 30*time.Second, func() error {
		if res := s.Anonymous().Do(t, "GET", "/health/ready", nil); res.Status != 200 {
			return fmt.Errorf("readiness answers %d", res.Status)
		}
		return nil
	})
	ask("ann")
}

// TestRedisThatHangs: while Redis keeps its connections and answers nothing,
// decisions and sign-in go on without waiting for it, the server is ready and says
// that it counts alone, and it uses Redis again when that answers.
func TestRedisThatHangs(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(cachetest.Start(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := newFaultProxy(t, u.Host)
	u.Host = proxy.listener.Addr().String()
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_REDIS_URL="+u.String(), "GATEHOUSE_RATE_LIMIT=100000", "GATEHOUSE_DECISION_RATE_LIMIT=100000")
	a := s.Key(t, s.Admin, "production", "decisions:read")
	remaining := func() (left int64) {
		t.Helper()
		began := time.Now()
		res := a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ann"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/x"}}).Want(200)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a decision took %s", took)
		}
		if _, err := fmt.Sscan(res.Header.Get("X-RateLimit-Remaining"), &left); err != nil {
			t.Fatalf("no limit in %v", res.Header)
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
			t.Fatalf("%d requests are left after %d: the count begins anew", left, before-i)
		}
	}
	if all := time.Since(hung); all > 10*time.Second {
		t.Errorf("100 decisions took %s", all)
	}
	s.Login(t, "admin", apptest.Password)
	apptest.Eventually(t, 30*time.Second, func() error {
		if status := redis(); status != "degraded" {
			return fmt.Errorf("Redis is said to be %v", status)
		}
		return nil
	})
	began := time.Now()
	if s.Anonymous().Do(t, "GET", "/health/ready", nil).Want(200); time.Since(began) > time.Second {
		t.Errorf("readiness took %s", time.Since(began))
	}
	proxy.resume()
	apptest.Eventually(t, 30*time.Second, func() error {
		if status := redis(); status != "up" {
			return fmt.Errorf("Redis is said to be %v", status)
		}
		return nil
	})
	remaining()
}

package faults_test

import (
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// TestCallsUnderWayWhenTheStoreHangs checks that running lists, reads and changes end with 503
// within their deadline when PostgreSQL stops to answer, and so do later ones. When it answers
// again, all succeed.
func TestCallsUnderWayWhenTheStoreHangs(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	u, err := url.Parse(dbtest.Config(t, dbtest.Postgres).URL)
	errtest.Must(t, err)
	proxy := newFaultProxy(t, u.Host)
	u.Host = proxy.listener.Addr().String()
	s := apptest.StartServerOn(t, t.TempDir(), u.String())
	policy := s.Admin.Do(t, "POST", "/policies", body{"name": "any", "rego_code": "package any\n\nallow if true\n"}).Want(201).ID()
	calls := []struct {
		method, path string
		body         func(n int) any
	}{
		{"GET", "/policies?environment=sandbox", nil},
		{"GET", fmt.Sprint("/policies/", policy), nil},
		{"GET", "/resources?environment=sandbox", nil},
		{"GET", "/users", nil},
		{"GET", "/tenants", nil},
		{"GET", "/bouncers", nil},
		{"GET", "/audit/events", nil},
		{"GET", "/decisions/audit?environment=sandbox", nil},
		{"GET", "/auth/sessions", nil},
		{"POST", "/resources?environment=sandbox", func(n int) any { return body{"name": fmt.Sprint("r", n), "type": "api", "path": fmt.Sprint("/r", n)} }},
	}
	type end struct {
		status int
		began  time.Time
		took   time.Duration
	}
	var mu sync.Mutex
	ends := make([][]end, len(calls))
	var hung time.Time // zero: not yet
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for i, call := range calls {
		if res := s.Admin.Do(t, call.method, call.path, payload(call.body, 0)); res.Status >= 300 {
			t.Fatalf("%s %s = %d %s, want success", call.method, call.path, res.Status, res.Body)
		}
		for w := range 3 { // so that one is always under way
			workers.Go(func() {
				for n := 1; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					began := time.Now()
					res, err := s.Admin.Try(call.method, call.path, payload(call.body, w*1_000_000+n))
					e := end{began: began, took: time.Since(began)}
					if err == nil {
						e.status = res.Status
					}
					mu.Lock()
					if !hung.IsZero() {
						ends[i] = append(ends[i], e)
					}
					mu.Unlock()
				}
			})
		}
	}
	proxy.hang()
	mu.Lock()
	hung = time.Now()
	mu.Unlock()
	apptest.Eventually(t, 90*time.Second, func() error {
		mu.Lock()
		defer mu.Unlock()
		for i, call := range calls {
			under, after := 0, 0
			for _, e := range ends[i] {
				switch {
				case e.status == 503 && e.began.Before(hung):
					under++
				case e.status == 503:
					after++
				}
			}
			if under+after < 3 || after == 0 {
				return fmt.Errorf("%s %s: %d running and %d later calls have ended with 503: %+v", call.method, call.path, under, after, ends[i])
			}
		}
		return nil
	})
	close(stop)
	workers.Wait()
	for i, call := range calls {
		for _, e := range ends[i] {
			// A call that has its answer from the store succeeds.
			if e.status != 503 && (e.status < 200 || e.status >= 300 || e.took > 30*time.Second) || e.took > 60*time.Second {
				t.Errorf("%s %s, started %s after the store hung, = %d after %s, want 503 or success in time", call.method, call.path, e.began.Sub(hung), e.status, e.took)
			}
		}
	}
	proxy.resume()
	apptest.WaitForStatus(t, s.Anonymous(), "/health/ready", 200, 60*time.Second)
	for _, call := range calls {
		apptest.Eventually(t, 60*time.Second, func() error {
			if res := s.Admin.Do(t, call.method, call.path, payload(call.body, 999_999_999)); res.Status >= 300 {
				return fmt.Errorf("%s %s afterwards = %d %s, want success", call.method, call.path, res.Status, res.Body)
			}
			return nil
		})
	}
}

// payload returns the body of the n-th call; nil for none.
func payload(of func(n int) any, n int) any {
	if of == nil {
		return nil
	}
	return of(n)
}

package delivery_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// poller is a bouncer that only fetches its bundle.
type poller struct {
	id    int64
	token string
	tag   string
}

// poll asks once; sent is called when the request is on the wire.
func (p *poller) poll(c *http.Client, base string, wait int, sent func()) (int, error) {
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent() }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/api/v1/bridge/bundles/%d", base, p.id), nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Prefer", "modes=snapshot,delta;wait="+strconv.Itoa(wait))
	if p.tag != "" {
		req.Header.Set("If-None-Match", p.tag)
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0, err
	}
	if res.StatusCode == http.StatusOK {
		p.tag = res.Header.Get("ETag")
	}
	return res.StatusCode, nil
}

// residentMiB is what a process holds in memory.
func residentMiB(t testing.TB, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc here")
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib / 1024
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// TestFanOut: a change reaches all parked bouncers, in 200 ms for the middle one
// and a second for the last, and parked polls cost next to no memory.
func TestFanOut(t *testing.T) {
	n := 500
	if v := os.Getenv("GATEHOUSE_PARKED"); v != "" {
		n, _ = strconv.Atoi(v)
	}
	if testing.Short() {
		n = 50
	}
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		policy := a.Do(t, "POST", "/policies", body{"name": "all", "rego_code": "package all\n\nallow := true\n", "environment": "production", "status": "active"}).Want(201).ID()
		pollers := make([]*poller, n)
		for i := range pollers {
			b := s.Register(t, a, body{"name": fmt.Sprint("edge-", i), "environment": "production"}, "127.0.0.1:9")
			pollers[i] = &poller{id: b.ID, token: b.Token}
		}
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n, MaxConnsPerHost: 0}}
		defer client.CloseIdleConnections()
		var first sync.WaitGroup
		for _, p := range pollers {
			first.Go(func() {
				if code, err := p.poll(client, s.URL, 0, func() {}); err != nil || code != 200 {
					t.Errorf("first fetch: %d, error %v", code, err)
				}
			})
		}
		first.Wait()
		before := residentMiB(t, s.Pid())
		var asked atomic.Int64
		arrived := make([]time.Time, n)
		var all sync.WaitGroup
		for i, p := range pollers {
			all.Go(func() {
				code, err := p.poll(client, s.URL, 60, func() { asked.Add(1) })
				arrived[i] = time.Now()
				if err != nil || code != 200 || p.tag != `"2"` {
					t.Errorf("parked: %d with %s, error %v", code, p.tag, err)
				}
			})
		}
		apptest.Eventually(t, 20*time.Second, func() error {
			health := a.Do(t, "GET", "/health/policy-bridge", nil).Want(200)
			if asked.Load() != int64(n) || health.Get("connected_clients") != float64(n) || health.Get("sync_completed") != true {
				return fmt.Errorf("%d have asked, %s", asked.Load(), health.Body)
			}
			return nil
		})
		if grown := residentMiB(t, s.Pid()) - before; n <= 1000 && grown > 64 {
			t.Errorf("%d parked polls took %.1f MiB, over 64", n, grown)
		} else {
			t.Logf("%d parked polls took %.1f MiB", n, grown)
		}
		began := time.Now()
		a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": "package all\n\nallow := false\n"}).Want(200)
		answered := time.Since(began)
		all.Wait()
		late := make([]time.Duration, n)
		for i, at := range arrived {
			late[i] = at.Sub(began) - answered
		}
		slices.Sort(late)
		t.Logf("the change was answered after %s; after that the middle bouncer had it in %s, the last in %s", answered.Round(time.Millisecond), late[n/2].Round(time.Millisecond), late[n-1].Round(time.Millisecond))
		if late[n/2] > 200*time.Millisecond || late[n-1] > time.Second {
			t.Errorf("too slow: middle %s, last %s", late[n/2], late[n-1])
		}
		apptest.Eventually(t, 20*time.Second, func() error {
			// Nobody has asked with the new tag, so nobody runs it as far as we know.
			if v := a.Do(t, "GET", "/deployments/revisions/production", nil).Want(200).Get("converged"); v != false {
				return fmt.Errorf("converged: %v", v)
			}
			return nil
		})
	})
}

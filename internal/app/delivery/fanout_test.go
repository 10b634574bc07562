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
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// poller is a bouncer that only fetches its bundle.
type poller struct {
	id    int64
	token string
	tag   string
	at    time.Time // when the last poll ended
}

// poll polls once. It calls sent after the request is sent.
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
	p.at = time.Now()
	if res.StatusCode == http.StatusOK {
		p.tag = res.Header.Get("ETag")
	}
	return res.StatusCode, nil
}

// residentMiB returns the memory of a process.
func residentMiB(t testing.TB, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc here")
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			errtest.Must(t, err)
			return kib / 1024
		}
	}
	t.Fatal("the status of the process has no VmRSS")
	return 0
}

// TestFanOut checks that a change ends the waiting polls of many bouncers soon after its answer, and that
// these polls take little memory.
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
		policy := apptest.Activate(t, a, "all", "production", "package all\n\nallow := true\n", nil)
		f := newFleet(t, s, n)
		f.fetch(t)
		before := residentMiB(t, s.Pid())
		polls := f.park(t, 60)
		apptest.Eventually(t, 20*time.Second, func() error {
			if health := a.Do(t, "GET", "/health/policy-bridge", nil).Want(200); health.Get("connected_clients") != float64(n) || health.Get("sync_completed") != true {
				return fmt.Errorf("GET /health/policy-bridge = %s, want %d clients in sync", health.Body, n)
			}
			return nil
		})
		if grown := residentMiB(t, s.Pid()) - before; n <= 1000 && grown > 64 {
			t.Errorf("%d waiting polls take %.1f MiB, want at most 64", n, grown)
		}
		a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": "package all\n\nallow := false\n"}).Want(200)
		changed := time.Now()
		polls.Wait()
		late := make([]time.Duration, 0, n)
		for _, p := range f.pollers {
			if p.tag != `"2"` {
				t.Errorf("the poll of the bouncer %d got the revision %s, want \"2\"", p.id, p.tag)
			}
			late = append(late, p.at.Sub(changed))
		}
		slices.Sort(late)
		if late[n/2] > 200*time.Millisecond || late[n-1] > time.Second {
			t.Errorf("the middle poll ended %s after the change, the last %s, want at most 200 ms and 1 s", late[n/2], late[n-1])
		}
		apptest.Eventually(t, 20*time.Second, func() error {
			// No bouncer has polled with the new tag, so none runs it as far as the server knows.
			if v := a.Do(t, "GET", "/deployments/revisions/production", nil).Want(200).Get("converged"); v != false {
				return fmt.Errorf("converged is %v, want false", v)
			}
			return nil
		})
	})
}

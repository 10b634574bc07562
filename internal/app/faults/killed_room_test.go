package faults_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// saidMissing adds up what the log says is missing.
func saidMissing(log []apptest.LogEntry) (n int) {
	for _, e := range log {
		var one int
		if _, err := fmt.Sscanf(e.Reason, "%d decisions are missing", &one); err == nil {
			n += one
		}
	}
	return n
}

// TestBouncerKilledWithoutRoom kills a bouncer whose log takes nothing more, because
// its disk is full or its spool at the ceiling, and starts it again, three times.
// What passed and was answered is in the log once, or among those that the log says
// are missing: a kill forgets none of these.
func TestBouncerKilledWithoutRoom(t *testing.T) {
	for _, posture := range []string{"required", "best_effort"} {
		for _, why := range []string{"disk", "ceiling"} {
			t.Run(posture+"/"+why, func(t *testing.T) {
				t.Parallel()
				bouncerKilledWithoutRoom(t, posture, why)
			})
		}
	}
}

func bouncerKilledWithoutRoom(t *testing.T, posture, why string) {
	t.Helper()
	s := apptest.StartServer(t, dbtest.SQLite)
	app := apptest.NewBackend(t, nil)
	apptest.Enforce(t, s.Admin, "sandbox")
	apptest.Activate(t, s.Admin, "not closed", "sandbox", notBelow("/closed"), nil)
	b := s.Register(t, s.Admin, body{"name": "guard", "environment": "sandbox", "configuration": body{"audit": posture}}, app.Addr)
	free := func() {}
	if why == "disk" {
		b.Dir = apptest.SmallDisk(t, "24m")
		b.Detached(t, s.URL, app.Addr, "GATEHOUSE_BOUNCER_DISK_RESERVE=2097152")
	} else {
		b.Detached(t, s.URL, app.Addr, fmt.Sprint("GATEHOUSE_BOUNCER_SPOOL_BYTES=", 17<<20), "GATEHOUSE_BOUNCER_DISK_RESERVE=0")
	}
	c := &apptest.Client{Base: b.URL}
	apptest.Answers(t, c, "/_bouncer/ready", 200, 10*time.Second)
	apptest.Answers(t, c, "/closed", 403, 5*time.Second)
	s.Kill() // nothing is shipped from here on

	var mu sync.Mutex
	var permitted []string
	sent := 0
	ask := func() int {
		mu.Lock()
		sent++
		id := fmt.Sprint("room-", sent)
		mu.Unlock()
		status := c.With("X-Request-Id", id).Do(t, "GET", "/open/"+strings.Repeat("x", 900), nil).Status
		if status == 200 {
			mu.Lock()
			permitted = append(permitted, id)
			mu.Unlock()
		}
		return status
	}
	refuses := func() bool {
		var part logPart
		c.Do(t, "GET", "/_bouncer/ready", nil).Into(&part)
		return !part.Audit.Writable
	}
	if got := ask(); got != 200 {
		t.Fatalf("with room: %d", got)
	}
	apptest.Eventually(t, 60*time.Second, func() error {
		if why == "disk" {
			free = apptest.Stuff(t, b.Dir)
			ask()
		} else {
			var many sync.WaitGroup
			for range 8 {
				many.Go(func() {
					for range 50 {
						ask()
					}
				})
			}
			many.Wait()
		}
		if !refuses() {
			return fmt.Errorf("after %d requests there is room still", sent)
		}
		return nil
	})
	for range 3 {
		for range 7 {
			ask()
		}
		b.Kill()
		b.Start()
		if why == "disk" {
			apptest.Stuff(t, b.Dir)
		}
		for range 7 {
			ask()
		}
	}
	b.Kill()
	free()
	s.Start()
	b.Start()
	apptest.Answers(t, c, "/_bouncer/ready", 200, 10*time.Second)
	apptest.Eventually(t, 20*time.Second, func() error {
		if got := ask(); got != 200 {
			return fmt.Errorf("with room again: %d", got)
		}
		return nil
	})
	apptest.Eventually(t, 60*time.Second, func() error {
		log := apptest.DecisionLog(t, s.Admin, "sandbox")
		known, absent, lost := apptest.ByRequest(log), 0, 0
		for i := range sent {
			switch n := len(known[fmt.Sprint("room-", i+1)]); n {
			case 0:
				absent++
			case 1:
			default:
				return fmt.Errorf("request %d is in the log %d times", i+1, n)
			}
		}
		for _, id := range permitted {
			if len(known[id]) == 0 {
				lost++
			}
		}
		if said := saidMissing(log); absent == 0 || said != absent || posture == "required" && lost > 0 {
			return fmt.Errorf("of %d requests %d are absent, %d of them permitted; the log says %d", sent, absent, lost, said)
		}
		return nil
	})
	if v := s.Admin.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
		t.Error("the audit does not verify")
	}
}

// TestKilledOnFullDisk kills a server whose disk is full to the last byte, while it
// decides, and starts it again on the full disk. What was answered is in the log
// once, or among those that the log says are missing, and the chain verifies.
func TestKilledOnFullDisk(t *testing.T) {
	fulltest.Only(t)
	for _, posture := range []string{"required", "best_effort"} {
		t.Run(posture, func(t *testing.T) {
			t.Parallel()
			dir := apptest.SmallDisk(t, "48m")
			s := apptest.StartServerIn(t, dir, "GATEHOUSE_DISK_RESERVE=4194304", "GATEHOUSE_AUDIT="+posture)
			a := s.Admin
			a.Do(t, "POST", "/policies", body{"name": "any", "environment": "production", "status": "active", "rego_code": "package any\n\nallow if true\n"}).Want(201)
			var promised []string
			ask := func() int {
				t.Helper()
				res := a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ann"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/x"}})
				if id, ok := res.Get("decision_id").(string); ok && res.Status == 200 {
					promised = append(promised, id)
				}
				return res.Status
			}
			var free func()
			full := func() {
				t.Helper()
				until(t, s, "a full disk", func(int, string, auditPart) bool {
					free = apptest.Stuff(t, dir)
					status := ask()
					_, _, audit := vitals(t, s)
					return audit.Status == "down" && (status == 503 || posture == "best_effort")
				})
			}
			full()
			for range 3 {
				for range 5 {
					ask()
				}
				s.Kill()
				s.Start()
				full()
			}
			s.Kill()
			free()
			s.Start()
			apptest.Eventually(t, 20*time.Second, func() error {
				if status := ask(); status != 200 {
					return fmt.Errorf("with room again: %d", status)
				}
				return nil
			})
			apptest.Eventually(t, 20*time.Second, func() error {
				log := apptest.DecisionLog(t, a, "production")
				logged, absent := map[string]int{}, 0
				for _, e := range log {
					logged[e.ID]++
				}
				for _, id := range promised {
					switch logged[id] {
					case 0:
						absent++
					case 1:
					default:
						return fmt.Errorf("%s is in the log %d times", id, logged[id])
					}
				}
				if said := saidMissing(log); said != absent || posture == "best_effort" && absent < 15 {
					return fmt.Errorf("of %d decisions %d are absent; the log says %d", len(promised), absent, said)
				}
				return nil
			})
			if v := a.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
				t.Error("the audit does not verify")
			}
		})
	}
}

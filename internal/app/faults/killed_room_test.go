package faults_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

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
	free, size, settings := func() {}, "64m", []string{fmt.Sprint("GATEHOUSE_BOUNCER_SPOOL_BYTES=", 17<<20), "GATEHOUSE_BOUNCER_DISK_RESERVE=0"}
	if why == "disk" {
		size, settings = "24m", []string{"GATEHOUSE_BOUNCER_DISK_RESERVE=2097152"}
	}
	dir := apptest.SmallDisk(t, size) // the ceiling, too: without a reserve, no other program may fill its disk
	s, b, c := alone(t, posture, dir, settings...)

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
			free = apptest.FillDisk(t, b.Dir)
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
			apptest.FillDisk(t, b.Dir)
		}
		for range 7 {
			ask()
		}
	}
	b.Kill()
	free()
	s.Start()
	b.Start()
	apptest.WaitForStatus(t, c, "/_bouncer/ready", 200, 10*time.Second)
	apptest.Eventually(t, 30*time.Second, func() error {
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
	for _, posture := range []string{"required", "best_effort"} {
		t.Run(posture, func(t *testing.T) {
			t.Parallel()
			c := newCramped(t, posture, 4<<20)
			s, a := c.Server, c.Admin
			free := c.fill(t)
			for range 3 {
				for range 5 {
					c.ask(t)
				}
				s.Kill()
				s.Start()
				free = c.fill(t)
			}
			s.Kill()
			free()
			s.Start()
			apptest.Eventually(t, 30*time.Second, func() error {
				if status := c.ask(t).Status; status != 200 {
					return fmt.Errorf("with room again: %d", status)
				}
				return nil
			})
			apptest.Eventually(t, 30*time.Second, func() error {
				absent, said, err := counted(t, a, c.promised)
				if err != nil {
					return err
				}
				if said != absent || posture == "best_effort" && absent < 15 {
					return fmt.Errorf("of %d decisions %d are absent; the log says %d", len(c.promised), absent, said)
				}
				return nil
			})
			if v := a.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
				t.Error("the audit does not verify")
			}
		})
	}
}

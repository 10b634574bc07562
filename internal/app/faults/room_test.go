package faults_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// cramped is a server on a small disk of its own, with one control that permits all.
type cramped struct {
	*apptest.Server
	dir, posture string
	promised     []string // the decisions that were answered
}

// newCramped starts a server with a reserve of some bytes on a disk of 48 MiB.
func newCramped(t *testing.T, posture string, reserve int) *cramped {
	t.Helper()
	dir := apptest.SmallDisk(t, "48m")
	s := apptest.StartServerIn(t, dir, fmt.Sprint("GATEHOUSE_DISK_RESERVE=", reserve), "GATEHOUSE_AUDIT="+posture)
	apptest.Activate(t, s.Admin, "any", "production", "package any\n\nallow if true\n", nil)
	return &cramped{Server: s, dir: dir, posture: posture}
}

// ask asks for a decision and remembers what was answered.
func (c *cramped) ask(t *testing.T) *apptest.Response {
	t.Helper()
	res := c.Admin.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ann"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/x"}})
	if id, ok := res.Get("decision_id").(string); ok && res.Status == 200 {
		c.promised = append(c.promised, id)
	}
	return res
}

// fill fills the disk, the reserve too, until the decision log takes nothing more;
// free removes what it wrote.
func (c *cramped) fill(t *testing.T) (free func()) {
	t.Helper()
	until(t, c.Server, "a full disk", func(int, string, auditPart) bool {
		free = apptest.FillDisk(t, c.dir)
		status := c.ask(t).Status
		_, _, audit := vitals(t, c.Server)
		return audit.Status == "down" && (status == 503 || c.posture == "best_effort")
	})
	return free
}

// counted compares the log with the decisions that were answered: how many of them
// are absent, and how many the log says are missing. None may be in it twice.
func counted(t *testing.T, a *apptest.Client, promised []string) (absent, said int64, err error) {
	t.Helper()
	log := apptest.DecisionLog(t, a, "production")
	times := map[string]int{}
	for _, e := range log {
		times[e.ID]++
	}
	for _, id := range promised {
		switch times[id] {
		case 0:
			absent++
		case 1:
		default:
			return 0, 0, fmt.Errorf("%s is in the log %d times", id, times[id])
		}
	}
	return absent, int64(saidMissing(log)), nil
}

// accountedFor holds the log to what was answered: each decision is in it once,
// or among those that it says are missing.
func accountedFor(t *testing.T, a *apptest.Client, promised []string, missing int64) error {
	t.Helper()
	absent, said, err := counted(t, a, promised)
	if err == nil && (absent != missing || said != missing) {
		err = fmt.Errorf("%d decisions are absent; the log says %d, health %d", absent, said, missing)
	}
	return err
}

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

// alone starts a bouncer that enforces one control, with the disk dir where it is
// given, and then kills its server: nothing is shipped from there on.
func alone(t *testing.T, posture, dir string, env ...string) (s *apptest.Server, b *apptest.BouncerProcess, c *apptest.Client) {
	t.Helper()
	s = apptest.StartServer(t, dbtest.SQLite)
	app := apptest.NewBackend(t, nil)
	apptest.Enforce(t, s.Admin, "sandbox")
	apptest.Activate(t, s.Admin, "not closed", "sandbox", notBelow("/closed"), nil)
	b = s.Register(t, s.Admin, body{"name": "guard", "environment": "sandbox", "configuration": body{"audit": posture}}, app.Addr)
	b.Dir = dir
	b.StartDetached(t, s.URL, app.Addr, env...)
	c = &apptest.Client{Base: b.URL}
	apptest.WaitForStatus(t, c, "/_bouncer/ready", 200, 10*time.Second)
	apptest.WaitForStatus(t, c, "/closed", 403, 5*time.Second)
	s.Kill()
	return s, b, c
}

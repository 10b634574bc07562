package faults_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// audit is the decision log's part of /health, or of /health/ready.
type auditPart struct {
	Status   string `json:"status"`
	Posture  string `json:"posture"`
	Refusing bool   `json:"refusing"`
	Refused  int64  `json:"refused"`
	Missing  int64  `json:"missing"`
	Reserve  int64  `json:"reserve_bytes"`
}

// vitals asks a server how it is.
func vitals(t *testing.T, s *apptest.Server) (status int, overall string, audit auditPart) {
	t.Helper()
	var out struct {
		Status     string `json:"status"`
		Components struct {
			Audit auditPart `json:"audit"`
		} `json:"components"`
	}
	res := s.Anonymous().Do(t, "GET", "/health", nil)
	res.Into(&out)
	return res.Status, out.Status, out.Components.Audit
}

// openAlerts are the types and messages of the open alerts of the default tenant.
func openAlerts(t *testing.T, s *apptest.Server) string {
	t.Helper()
	var list []struct {
		Type     string  `json:"type"`
		Message  string  `json:"message"`
		Resolved *string `json:"resolved_at"`
	}
	s.Admin.Do(t, "GET", "/tenants/default/alerts", nil).Want(200).Into(&list)
	var out []string
	for _, a := range list {
		if a.Resolved == nil {
			out = append(out, a.Type+": "+a.Message)
		}
	}
	return strings.Join(out, "\n")
}

// until waits for a server's health to be so.
func until(t *testing.T, s *apptest.Server, what string, holds func(status int, overall string, a auditPart) bool) {
	t.Helper()
	apptest.Eventually(t, 30*time.Second, func() error {
		if status, overall, a := vitals(t, s); !holds(status, overall, a) {
			return fmt.Errorf("%s: %d %s %+v\n%s", what, status, overall, a, s.Log)
		}
		return nil
	})
}

// TestTroubleAtTheStart: a problem that is there when the server starts raises its alert,
// and one that is not there says nothing in the log.
func TestTroubleAtTheStart(t *testing.T) {
	apptest.Inner(t)
	t.Parallel()
	s := apptest.StartServerIn(t, apptest.SmallDisk(t, "48m"), fmt.Sprint("GATEHOUSE_DISK_RESERVE=", 30<<20))
	apptest.Eventually(t, 30*time.Second, func() error {
		if alerts := openAlerts(t, s); !strings.Contains(alerts, "disk_space: less than") {
			return errors.New("no alert: " + alerts)
		}
		return nil
	})
	if log := s.Log.String(); !strings.Contains(log, `"msg":"alert raised"`) || strings.Contains(log, "alert resolved") {
		t.Errorf("the log says\n%s", log)
	}
}

// TestDiskFull: when the disk is full decisions and sign-in go on with the room
// that was held back, changes are refused, and the operators are told before.
// When that is used up the posture says what decisions do, readiness and health
// say so, and all heals by itself once there is room.
func TestDiskFull(t *testing.T) {
	for _, posture := range []string{"required", "best_effort"} {
		t.Run(posture, func(t *testing.T) {
			t.Parallel()
			c := newCramped(t, posture, 8<<20)
			s, a, ask := c.Server, c.Admin, func() *apptest.Response { return c.ask(t) }
			ask().Want(200)
			if status, overall, audit := vitals(t, s); status != 200 || overall != "healthy" || audit.Status != "up" || audit.Reserve != 8<<20 {
				t.Fatalf("with room: %d %s %+v", status, overall, audit)
			}
			free := apptest.FillDisk(t, c.dir)
			until(t, s, "the reserve in use", func(_ int, overall string, a auditPart) bool {
				return overall == "degraded" && a.Reserve < 8<<20 && a.Status == "degraded" && !a.Refusing
			})
			for range 20 {
				ask().Want(200)
			}
			s.Login(t, "admin", apptest.Password)
			s.Anonymous().Do(t, "GET", "/health/ready", nil).Want(200)
			if res := a.Do(t, "POST", "/resources", body{"name": "r", "type": "api", "path": "/r"}); res.Status != 507 || res.Get("error") != "storage_full" {
				t.Errorf("a change on a full disk: %d %s", res.Status, res.Body)
			}
			apptest.Eventually(t, 30*time.Second, func() error {
				if alerts := openAlerts(t, s); !strings.Contains(alerts, "disk_space: the disk is full") {
					return errors.New("no alert: " + alerts)
				}
				return nil
			})
			c.fill(t) // whoever fills the disk takes the reserve, too
			before := len(c.promised)
			ready := s.Anonymous().Do(t, "GET", "/health/ready", nil)
			status, overall, audit := vitals(t, s)
			if posture == "required" {
				if res := ask(); res.Status != 503 || res.Get("error") != "audit_unavailable" || res.Header.Get("Retry-After") == "" {
					t.Errorf("a decision that cannot be logged: %d %s", res.Status, res.Body)
				}
				if ready.Status != 503 || status != 503 || overall != "unhealthy" || !audit.Refusing || audit.Refused == 0 {
					t.Errorf("ready %d, health %d %s %+v", ready.Status, status, overall, audit)
				}
				if !strings.Contains(string(ready.Body), `"refusing":true`) {
					t.Errorf("readiness says %s", ready.Body)
				}
			} else {
				for range 5 {
					ask().Want(200)
				}
				if ready.Status != 200 || status != 200 || overall != "degraded" || audit.Refusing || audit.Missing == 0 {
					t.Errorf("ready %d, health %d %s %+v", ready.Status, status, overall, audit)
				}
			}
			free()
			until(t, s, "room again", func(_ int, overall string, a auditPart) bool {
				return overall == "healthy" && a.Status == "up" && a.Reserve == 8<<20
			})
			s.Anonymous().Do(t, "GET", "/health/ready", nil).Want(200)
			ask().Want(200)
			a.Do(t, "POST", "/resources", body{"name": "r", "type": "api", "path": "/r"}).Want(201)
			_, _, audit = vitals(t, s)
			apptest.Eventually(t, 30*time.Second, func() error { return accountedFor(t, a, c.promised, audit.Missing) })
			if posture == "best_effort" && (audit.Missing < 5 || len(c.promised) <= before) {
				t.Errorf("%d are missing of %d", audit.Missing, len(c.promised))
			}
			apptest.Eventually(t, 30*time.Second, func() error {
				if alerts := openAlerts(t, s); alerts != "" {
					return errors.New("open still: " + alerts)
				}
				return nil
			})
			if v := a.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
				t.Error("the audit does not verify")
			}
		})
	}
}

package faults_test

import (
	"bufio"
	"bytes"
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// figures returns a server's metrics without labels, by name.
func figures(t *testing.T, s *apptest.Server) map[string]float64 {
	t.Helper()
	page := (&apptest.Client{Base: s.URL, Bearer: s.Admin.Bearer}).Do(t, "GET", "/metrics", nil).Want(200).Body
	out := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(page)); lines.Scan(); {
		name, text, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(text, 64); ok && err == nil {
			out[name] = v
		}
	}
	return out
}

// openSubjects returns the types and subjects of the open alerts of the default tenant.
func openSubjects(t *testing.T, s *apptest.Server) string {
	t.Helper()
	var list []struct{ Type, Subject string }
	var raw []map[string]any
	s.Admin.Do(t, "GET", "/tenants/default/alerts", nil).Want(200).Into(&list).Into(&raw)
	var out []string
	for i, a := range list {
		if raw[i]["resolved_at"] == nil {
			out = append(out, a.Type+" "+a.Subject)
		}
	}
	return strings.Join(out, "\n")
}

// holdStore blocks a tenant's SQLite file for other writers until free is called.
func holdStore(t *testing.T, s *apptest.Server, tenant string) (free func()) {
	t.Helper()
	other, err := sql.Open("sqlite", "file:"+filepath.Join(s.Dir, "tenants", tenant+".db"))
	errtest.Must(t, err)
	t.Cleanup(func() { other.Close() })
	other.SetMaxOpenConns(1)
	for _, statement := range []string{"PRAGMA busy_timeout = 10000", "BEGIN IMMEDIATE"} {
		errtest.Must(t, errtest.Of(other.Exec(statement)))
	}
	return func() {
		if _, err := other.Exec("ROLLBACK"); err != nil {
			t.Error(err)
		}
	}
}

// bulk makes many decisions with one call. It returns the status and the ids of permitted
// decisions.
func bulk(t *testing.T, c *apptest.Client, path string, n int) (status int, permitted []string) {
	t.Helper()
	items := make([]body, n)
	for i := range items {
		items[i] = body{"user": body{"id": "ann"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": path + strconv.Itoa(i) + strings.Repeat("x", 900)}}
	}
	var out struct {
		Results []struct {
			ID       string `json:"audit_id"`
			Decision string `json:"decision"`
		} `json:"results"`
	}
	res := c.Do(t, "POST", "/decisions/evaluate/bulk?environment=production", body{"decisions": items})
	if res.Status == 200 {
		res.Into(&out)
	}
	for _, one := range out.Results {
		if one.Decision == "PERMIT" {
			permitted = append(permitted, one.ID)
		}
	}
	return res.Status, permitted
}

// TestSpoolAtItsCeiling checks that while a tenant's store is blocked, its decisions wait in the
// spool: the figures grow, an alert comes before the ceiling, refusals end before permits, and at
// the ceiling decisions are refused. A server that is killed there keeps its ceiling and loses no
// permitted decision.
func TestSpoolAtItsCeiling(t *testing.T) {
	t.Parallel()
	const ceiling = 16 << 20
	s := apptest.StartServer(t, dbtest.SQLite, fmt.Sprint("GATEHOUSE_SPOOL_BYTES=", ceiling))
	s.Admin.Do(t, "POST", "/tenants", body{"id": "acme", "name": "Acme"}).Want(201)
	a := s.Admin.With("X-Tenant-ID", "acme")
	apptest.Activate(t, a, "not closed", "production", notBelow("/closed"), nil)
	var promised []string
	ask := func(path string, n int) int {
		t.Helper()
		status, ids := bulk(t, a, path, n)
		promised = append(promised, ids...)
		return status
	}
	if status := ask("/open/", 10); status != 200 || len(promised) != 10 {
		t.Fatalf("the decisions with room = %d with %d permitted, want 200 with 10", status, len(promised))
	}
	free := holdStore(t, s, "acme")

	filled := 0.0
	for filled < 0.82 {
		if status := ask("/open/", 200); status != 200 {
			t.Fatalf("the decisions at %v of the ceiling = %d, want 200", filled, status)
		}
		f := figures(t, s)
		filled = f["gatehouse_audit_spool_bytes"] / f["gatehouse_audit_spool_limit_bytes"]
		if f["gatehouse_audit_spool_limit_bytes"] != ceiling || f["gatehouse_audit_spool_records"] == 0 || f["gatehouse_audit_refused_total"] != 0 || f["gatehouse_audit_failing"] != 0 || f["gatehouse_audit_missing_total"] != 0 {
			t.Fatalf("the metrics while the spool fills are %v, want records and no failure", f)
		}
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		if subjects := openSubjects(t, s); !strings.Contains(subjects, "audit_pipeline filling at ") {
			return fmt.Errorf("the open alerts are %q, want the filling spool", subjects)
		}
		if lag := figures(t, s)["gatehouse_audit_spool_lag_seconds"]; lag <= 0 {
			return fmt.Errorf("the lag is %v, want more than 0", lag)
		}
		return nil
	})
	waitForHealth(t, s, "before the ceiling", func(status int, overall string, p auditPart) bool {
		return status == 200 && overall == "degraded" && p.Status == "degraded" && !p.Refusing && p.Refused == 0
	})

	apptest.Eventually(t, 60*time.Second, func() error {
		if status := ask("/closed/", 50); status != 503 {
			return fmt.Errorf("the refusals = %d, want 503", status)
		}
		return nil
	})
	if status := ask("/open/", 1); status != 200 {
		t.Errorf("a permit without room for refusals = %d, want 200", status)
	}
	apptest.Eventually(t, 60*time.Second, func() error {
		if status := ask("/open/", 100); status != 503 {
			return fmt.Errorf("the permits = %d, want 503", status)
		}
		return nil
	})
	full := func(what string) {
		t.Helper()
		waitForHealth(t, s, what, func(status int, overall string, p auditPart) bool {
			return status == 503 && overall == "unhealthy" && p.Status == "down" && p.Refusing && p.Refused > 0
		})
		f := figures(t, s)
		if f["gatehouse_audit_failing"] != 1 || f["gatehouse_audit_refused_total"] == 0 || f["gatehouse_audit_spool_bytes"] > ceiling || f["gatehouse_audit_missing_total"] != 0 {
			t.Errorf("%s: the metrics are %v, want a full spool without missing decisions", what, f)
		}
		apptest.Eventually(t, 30*time.Second, func() error {
			if subjects := openSubjects(t, s); !strings.Contains(subjects, "audit_pipeline full at ") {
				return fmt.Errorf("the open alerts are %q, want the full spool", subjects)
			}
			return nil
		})
	}
	full("at the ceiling")
	for range 2 {
		waiting := figures(t, s)["gatehouse_audit_spool_records"]
		s.Kill()
		s.Process.Start()
		if after := figures(t, s)["gatehouse_audit_spool_records"]; after != waiting {
			t.Errorf("%v decisions waited before the kill and %v after it, want the same", waiting, after)
		}
		apptest.Eventually(t, 60*time.Second, func() error {
			if status := ask("/open/", 100); status != 503 {
				return fmt.Errorf("the permits after the kill = %d, want 503", status)
			}
			return nil
		})
		full("after a kill at the ceiling")
	}
	free()
	waitForHealth(t, s, "with room again", func(status int, overall string, p auditPart) bool {
		return status == 200 && overall == "healthy" && p.Status == "up"
	})
	if status := ask("/open/", 10); status != 200 {
		t.Errorf("the permits with room again = %d, want 200", status)
	}
	apptest.Eventually(t, 60*time.Second, func() error { return accountedFor(t, a, promised, 0) })
	apptest.Eventually(t, 30*time.Second, func() error {
		if f := figures(t, s); f["gatehouse_audit_spool_records"] != 0 || f["gatehouse_audit_failing"] != 0 {
			return fmt.Errorf("the metrics afterwards are %v, want an empty spool", f)
		}
		if alerts := openAlerts(t, s); alerts != "" {
			return fmt.Errorf("the open alerts are %s, want none", alerts)
		}
		return nil
	})
	if v := a.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
		t.Error("the audit is not valid")
	}
}

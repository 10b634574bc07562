package decisions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestDashboard compares the dashboard's figures for each environment and for both with the objects and
// decisions that it makes.
func TestDashboard(t *testing.T) {
	apptest.Both(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		empty := a.Do(t, "GET", "/dashboard/stats", nil).Want(200)
		for _, name := range []string{"totalPolicies", "authDecisions24h", "allowedPercentage", "anomalousActivity", "deployedPEPs", "smartConnections"} {
			if empty.Get(name) != float64(0) {
				t.Errorf("%s of an empty tenant is %v, want 0", name, empty.Get(name))
			}
		}
		place := func(env, path string) int64 {
			return a.With("X-Environment", env).Do(t, "POST", "/resources", body{"name": path, "type": "api", "path": path}).Want(201).ID()
		}
		control := func(env, name, status, rule string, resource int64) {
			b := body{"name": name, "rego_code": "package " + name + "\n\n" + rule + "\n", "status": status}
			if resource != 0 {
				b["resource_id"] = resource
			}
			a.With("X-Environment", env).Do(t, "POST", "/policies", b).Want(201)
		}
		open, shut, broken := place("production", "/open"), place("production", "/shut"), place("production", "/broken")
		place("sandbox", "/sand")
		control("production", "letin", "active", "allow := true", open)
		control("production", "keepout", "active", "deny := true", shut)
		control("production", "breaks", "active", "allow if input.context.n / 0 > 1", broken)
		control("production", "later", "draft", "allow := true", 0)
		control("sandbox", "sandy", "active", "allow := true", 0)
		ask := func(env, path string, n int) {
			for range n {
				a.With("X-Environment", env).Do(t, "POST", "/decisions/evaluate", body{
					"user": body{"id": "ada"}, "action": body{"name": "read", "method": "GET"}, "resource": body{"path": path, "type": "api"}, "context": body{"n": 1},
				}).Want(200)
			}
		}
		ask("production", "/open", 6)
		ask("production", "/shut", 3)
		ask("production", "/broken", 1)
		ask("production", "/nowhere", 2)
		ask("sandbox", "/sand", 8)
		a.With("X-Environment", "production").Do(t, "POST", "/bouncers", body{"name": "b", "hostname": "h", "port": 1}).Want(201)

		for env, want := range map[string]map[string]any{
			"production": {
				"totalPolicies": 4, "activePolicies": 3, "draftPolicies": 1, "policiesProtectingResources": 3, "totalResources": 3,
				"deployedPEPs": 1, "operationalPEPs": 0, "warningPEPs": 1, "authDecisions24h": 12, "allowedPercentage": 50, "deniedPercentage": 50,
				"realTimeMetrics.totalRequestsPerHour": 12, "realTimeMetrics.totalRequestsPerMinute": 12, "realTimeMetrics.totalErrors": 1,
				"realTimeMetrics.overallErrorRate": 8.333, "realTimeMetrics.totalPolicyDenials": 4, "realTimeMetrics.averageHealthScore": 0, "realTimeMetrics.activePEPsCount": 0,
			},
			"sandbox": {
				"totalPolicies": 1, "activePolicies": 1, "totalResources": 1, "deployedPEPs": 0, "authDecisions24h": 8, "allowedPercentage": 100, "deniedPercentage": 0,
				"realTimeMetrics.totalRequestsPerHour": 8, "realTimeMetrics.averageHealthScore": 100,
			},
			"": {"totalPolicies": 5, "totalResources": 4, "deployedPEPs": 1, "authDecisions24h": 20, "allowedPercentage": 70, "deniedPercentage": 30, "anomalousActivity": 0},
		} {
			query := ""
			if env != "" {
				query = "?environment=" + env
			}
			var got *apptest.Response
			apptest.Eventually(t, 30*time.Second, func() error {
				got = a.Do(t, "GET", "/dashboard/stats"+query, nil).Want(200)
				if n := got.Get("authDecisions24h"); n != number(want["authDecisions24h"]) {
					return fmt.Errorf("the figures of %q have %v decisions, want %v", env, n, want["authDecisions24h"])
				}
				return nil
			})
			for name, v := range want {
				if x := got.Get(strings.Split(name, ".")...); x != number(v) {
					t.Errorf("%s of %q is %v, want %v", name, env, x, v)
				}
			}
			if p := got.Get("realTimeMetrics", "latencyP99"); p.(float64) <= 0 {
				t.Errorf("latencyP99 of %q is %v, want more than 0", env, p)
			}
		}
		checkSeries(t, a)
		checkTop(t, a, fmt.Sprint(shut))
	})
}

// number converts an int to a number of JSON.
func number(v any) any {
	switch n := v.(type) {
	case int:
		return float64(n)
	default:
		return v
	}
}

// checkSeries compares each window's points with the decisions.
func checkSeries(t *testing.T, a *apptest.Client) {
	t.Helper()
	for _, window := range []string{"15m", "1h", "6h", "24h", "7d", "30d", "90d", "365d"} {
		var got struct {
			Step     int64 `json:"step_seconds"`
			From, To time.Time
			Points   []struct {
				Start                             time.Time
				Permitted, Denied, Masked, Errors int64
			}
		}
		a.Do(t, "GET", "/dashboard/series?environment=production&window="+window, nil).Want(200).Into(&got)
		var permitted, denied, errors int64
		for i, p := range got.Points {
			permitted, denied, errors = permitted+p.Permitted, denied+p.Denied, errors+p.Errors
			if want := got.From.Add(time.Duration(i) * time.Duration(got.Step) * time.Second); !p.Start.Equal(want) {
				t.Fatalf("the point %d of the window %s starts at %s, want %s", i, window, p.Start, want)
			}
		}
		if permitted != 6 || denied != 6 || errors != 1 || len(got.Points) < 60 || len(got.Points) > 182 {
			t.Errorf("the window %s has %d permitted, %d denied and %d errors in %d points, want 6, 6 and 1 in 60 to 182", window, permitted, denied, errors, len(got.Points))
		}
	}
	a.Do(t, "GET", "/dashboard/series?window=2h", nil).Want(400)
}

// checkTop checks the lists of what denies most.
func checkTop(t *testing.T, a *apptest.Client, shut string) {
	t.Helper()
	got := a.Do(t, "GET", "/dashboard/top?by=resource&environment=production", nil).Want(200)
	if got.Get("items", "0", "id") != shut || got.Get("items", "0", "denied") != float64(3) || got.Get("items", "0", "permitted") != float64(0) {
		t.Errorf("the top resources are %s, want %s first with 3 denials", got.Body, shut)
	}
	policies := a.Do(t, "GET", "/dashboard/top?environment=production", nil).Want(200)
	if items, _ := policies.Get("items").([]any); len(items) != 3 {
		t.Errorf("the top policies are %s, want 3", policies.Body)
	}
}

// TestAnomalies checks that after six quiet hours, an address that tries many people is reported once,
// with its evidence and an audit entry.
func TestAnomalies(t *testing.T) {
	s := apptest.StartServer(t, "sqlite", "GATEHOUSE_ANOMALY_INTERVAL=200ms")
	a := s.Admin.With("X-Environment", "production")
	guard := s.WithToken(a.Do(t, "POST", "/bouncers", body{"name": "b", "hostname": "h", "port": 1}).Want(201).Text("token"))
	ids := 0
	ship := func(at time.Time, n int, ip, decision string, user func(int) string) {
		var events []any
		for i := range n {
			ids++
			events = append(events, body{
				"decision_id": fmt.Sprint("d", ids), "timestamp": at.Format(time.RFC3339Nano), "path": "gatehouse/decision",
				"input":  body{"user": body{"id": user(i)}, "action": body{"name": "read"}, "resource": body{"path": "/x", "type": "api"}, "context": body{"ip_address": ip}},
				"result": body{"decision": decision, "allow": decision == "PERMIT", "effect": "NO_MATCH", "reason": "r"},
			})
		}
		guard.Do(t, "POST", "/bridge/logs", events).Want(200, 202, 204)
	}
	for hour := range 6 {
		ship(time.Now().Add(-time.Duration(hour+2)*time.Hour), 60, "192.0.2.1", "PERMIT", func(i int) string { return fmt.Sprint("u", i%7) })
	}
	ship(time.Now(), 40, "203.0.113.66", "DENY", func(i int) string { return fmt.Sprint("guess", i) })

	var got *apptest.Response
	apptest.Eventually(t, 30*time.Second, func() error {
		got = a.Do(t, "GET", "/dashboard/anomalies?kind=suspicious_source_ip", nil).Want(200)
		if got.Get("total") != float64(1) {
			return fmt.Errorf("the anomalies are %s, want one", got.Body)
		}
		return nil
	})
	for _, want := range []string{`"subject":"203.0.113.66"`, `40 of 40 requests`, `"environment":"production"`} {
		if !strings.Contains(string(got.Body), want) {
			t.Errorf("the anomaly is %s, want %s", got.Body, want)
		}
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		if n := a.Do(t, "GET", "/dashboard/anomalies?kind=denial_spike", nil).Want(200).Get("total"); n != float64(1) {
			return fmt.Errorf("the dashboard has %v spikes of denials, want 1", n)
		}
		return nil
	})
	stats := a.Do(t, "GET", "/dashboard/stats", nil).Want(200)
	if stats.Get("anomalousActivity") != float64(2) {
		t.Errorf("anomalousActivity is %v, want 2", stats.Get("anomalousActivity"))
	}
	events := a.Do(t, "GET", "/audit/events?type=AI_ANOMALY_DETECTED", nil).Want(200)
	if n := strings.Count(string(events.Body), `"type":"AI_ANOMALY_DETECTED"`); n != 2 || !strings.Contains(string(events.Body), "203.0.113.66") {
		t.Errorf("the audit has %d anomalies, want 2 with the address: %s", n, events.Body)
	}
	viewer := s.Key(t, s.Admin, "production", "dashboard:read")
	viewer.Do(t, "GET", "/dashboard/stats", nil).Want(200)
	viewer.Do(t, "GET", "/dashboard/anomalies", nil).Want(403)
	for _, bad := range []any{"on", 1, 21, true, body{}} {
		s.Admin.Do(t, "PUT", "/tenants/default", body{"settings": body{"anomalies": bad}}).Want(422)
	}
	s.Admin.Do(t, "PUT", "/tenants/default", body{"settings": body{"anomalies": "off"}}).Want(200)
}

// TestDashboardGuide runs the commands of docs/dashboard.md.
func TestDashboardGuide(t *testing.T) {
	s := apptest.StartServer(t, "sqlite")
	env := fmt.Sprintf("set -eu\nexport API=%s/api/v1 TENANT=default TOKEN=%s\n", s.URL, s.Admin.Bearer)
	wants := [][]string{{`"totalPolicies":0`, `"step_seconds":30`, `"by":"resource"`, `"anomalies":[]`}, {`"anomalies":5`}}
	blocks := apptest.Blocks(apptest.Page(t, "dashboard.md"), "bash")
	if len(blocks) != len(wants) {
		t.Fatalf("docs/dashboard.md has %d blocks, want %d", len(blocks), len(wants))
	}
	for i, block := range blocks {
		apptest.WantTexts(t, apptest.RunShell(t, t.TempDir(), env+block), wants[i]...)
	}
}

package connections_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// licenseKey is the API key of the tests' license servers.
const licenseKey = "canary-license-key-1f7c"

// licenseServer is a license server that records its reports.
type licenseServer struct {
	*httptest.Server
	mu      sync.Mutex
	status  int
	license string
	reports []string
}

func newLicenseServer(t *testing.T) *licenseServer {
	l := &licenseServer{status: 200, license: `{"subscription_tier":"pro","subscription_status":"active"}`}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, _ := io.ReadAll(req.Body)
		l.mu.Lock()
		defer l.mu.Unlock()
		if req.Header.Get("Authorization") != "Bearer "+licenseKey {
			w.WriteHeader(401)
			return
		}
		w.WriteHeader(l.status)
		if req.URL.Path == "/telemetry" {
			l.reports = append(l.reports, string(raw))
			return
		}
		_, _ = io.WriteString(w, l.license)
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *licenseServer) set(status int, license string) {
	l.mu.Lock()
	l.status, l.license = status, license
	l.mu.Unlock()
}

// update sends a license update that is signed with a key.
func update(t *testing.T, s *apptest.Server, key string, members body) *apptest.Response {
	t.Helper()
	canonical, err := json.Marshal(members)
	errtest.Must(t, err)
	signed := body{"webhook_signature": outbound.Signature([]byte(key), canonical)}
	maps.Copy(signed, members)
	return s.Anonymous().Do(t, "POST", "/telemetry/webhook/license-update", signed)
}

// TestTelemetry tests telemetry and license, from an installation without a configuration to the
// end of a subscription.
func TestTelemetry(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, l := s.Admin, newLicenseServer(t)
		checkUnconfigured(t, s)

		// What is wrong is said.
		config := body{"business_admin_url": l.URL, "api_key": licenseKey, "enabled": false}
		for _, bad := range []any{"hourly", "", "Daily", 7, nil, []string{"daily"}} {
			res := a.Do(t, "PUT", "/telemetry/config", body{"frequency": bad}).Want(400)
			detail, _ := res.Get("detail").(string)
			for _, allowed := range []string{"twice_monthly", "weekly", "monthly", "daily"} {
				if !strings.Contains(detail, allowed) {
					t.Errorf("PUT with the frequency %v = %s, want the allowed values", bad, res.Body)
				}
			}
		}
		for name, draft := range map[string]body{
			"address":               {"business_admin_url": "http://10.0.0.8/", "api_key": "x"},
			"/local_retention_days": {"local_retention_days": 0},
			"business_admin_url":    {"enabled": true},
			"/api_keys":             {"api_keys": "x"},
		} {
			if res := a.Do(t, "PUT", "/telemetry/config", draft).Want(422); !strings.Contains(fmt.Sprint(res.Get("detail")), name) {
				t.Errorf("PUT of %s = %s, want its name", name, res.Body)
			}
		}

		made := a.Do(t, "PUT", "/telemetry/config", config).Want(200)
		if made.Get("api_key_configured") != true || made.Get("frequency") != "twice_monthly" || made.Get("next_scheduled_at") != nil || made.Get("updated_at") == nil {
			t.Errorf("the configured telemetry = %s, want its key configured and no schedule", made.Body)
		}
		var back body // what was read can be sent back
		a.Do(t, "GET", "/telemetry/config", nil).Want(200).Into(&back)
		a.Do(t, "PUT", "/telemetry/config", back).Want(200)
		elsewhere := newLicenseServer(t)
		if res := a.Do(t, "PUT", "/telemetry/config", body{"business_admin_url": elsewhere.URL}).Want(422); !strings.Contains(string(res.Body), "API key") {
			t.Errorf("PUT of another host without the key = %s, want a refusal because of the API key", res.Body)
		}
		a.With("If-Match", `"99"`).Do(t, "PUT", "/telemetry/config", body{"frequency": "daily"}).Want(412)
		if res := a.Do(t, "POST", "/telemetry/send-now", nil).Want(400); !strings.Contains(fmt.Sprint(res.Get("detail")), "telemetry is not enabled") {
			t.Errorf("POST /telemetry/send-now of disabled telemetry = %s, want a refusal", res.Body)
		}
		if res := a.Do(t, "GET", "/telemetry/health", nil).Want(200); res.Get("status") != "disabled" || res.Get("connection_status") != "connected" {
			t.Errorf("the health of disabled telemetry = %s, want disabled and connected", res.Body)
		}

		for frequency, day := range map[string]func(time.Time) bool{
			"weekly":  func(d time.Time) bool { return d.Weekday() == time.Monday },
			"monthly": func(d time.Time) bool { return d.Day() == 1 },
			"daily":   func(d time.Time) bool { return time.Until(d) <= 24*time.Hour },
			// The last one stays.
			"twice_monthly": func(d time.Time) bool { return d.Day() == 1 || d.Day() == 15 },
		} {
			res := a.Do(t, "PUT", "/telemetry/config", body{"enabled": true, "frequency": frequency}).Want(200)
			next, err := time.Parse(time.RFC3339, fmt.Sprint(res.Get("next_scheduled_at")))
			if err != nil || !day(next) || !next.After(time.Now()) {
				t.Errorf("PUT of the frequency %s = %s, want the next report", frequency, res.Body)
			}
		}
		if res := a.Do(t, "GET", "/telemetry/scheduler-status", nil).Want(200); res.Get("scheduler_running") != true || res.Get("enabled") != true {
			t.Errorf("the schedule = %s, want it running", res.Body)
		}
		checkReports(t, s, l)
		if res := a.Do(t, "POST", "/telemetry/test-connection", nil).Want(200); res.Get("status") != "success" || res.Get("url") != l.URL {
			t.Errorf("the test of the license server = %s, want it connected", res.Body)
		}
		checkGates(t, s, l)
		if kept := s.StoredText(t); strings.Contains(kept, licenseKey) || strings.Contains(s.Log.String(), licenseKey) {
			t.Error("the store or the log has the API key in clear")
		}
	})
}

// checkUnconfigured checks that without a configuration nothing is gated and nothing is sent.
func checkUnconfigured(t *testing.T, s *apptest.Server) {
	t.Helper()
	a := s.Admin
	for _, call := range []string{
		"GET config", "GET preview", "POST test-connection", "POST send-now", "GET license-check/test-policies", "GET license-check/promote-production",
		"POST history/1/retry",
	} {
		method, path, _ := strings.Cut(call, " ")
		if res := a.Do(t, method, "/telemetry/"+path, nil).Want(404); res.Get("detail") == nil {
			t.Errorf("%s without a configuration = %s, want a refusal", call, res.Body)
		}
	}
	if res := a.Do(t, "GET", "/telemetry/history", nil).Want(200); strings.TrimSpace(string(res.Body)) != "[]" {
		t.Errorf("the history without a configuration = %s, want none", res.Body)
	}
	if res := a.Do(t, "GET", "/telemetry/health", nil).Want(200); res.Get("status") != "not_configured" {
		t.Errorf("the health without a configuration = %s, want not_configured", res.Body)
	}
	st := a.Do(t, "GET", "/telemetry/license-status", nil).Want(200)
	if st.Get("tier") != "community" || st.Get("features_gated") != false || st.Get("can_promote_to_production") != true || st.Get("can_test_policies") != true {
		t.Errorf("the license without a configuration = %s, want the community's", st.Body)
	}
	update(t, s, "", body{"customer_id": "default"}).Want(404)
	key := s.WithToken(a.Do(t, "POST", "/tenants/default/api-keys", body{"name": "reports", "scopes": []string{"telemetry:write"}}).Want(201).Text("key"))
	key.Do(t, "GET", "/telemetry/health", nil).Want(401) // a JWT is due
	key.Bearer, key.APIKey = "", key.Bearer
	key.Do(t, "GET", "/telemetry/health", nil).Want(401)
	token := s.WithToken(key.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Text("access_token"))
	token.Do(t, "GET", "/telemetry/health", nil).Want(200)

	p := apptest.Activate(t, a, "free", "sandbox", "package free\n\nallow := true\n", nil)
	a.Do(t, "POST", fmt.Sprintf("/policies/%d/test", p), nil).Want(200)
	a.Do(t, "POST", fmt.Sprintf("/policies/%d/promote", p), body{}).Want(200)
	apptest.Enforce(t, a, "sandbox", "production")
	a.Do(t, "PUT", "/environments/production/enforcement", body{"mode": "shadow"}).Want(200)
}

// checkReports checks that the preview is what is sent, and that a failed report is listed and can
// be sent again.
func checkReports(t *testing.T, s *apptest.Server, l *licenseServer) {
	t.Helper()
	a := s.Admin
	for range 3 {
		a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "u"}, "action": body{"method": "GET"}, "resource": body{"type": "api", "path": "/x"}}).Want(200)
	}
	var shown *apptest.Response
	apptest.Eventually(t, time.Minute, func() error {
		if shown = a.Do(t, "GET", "/telemetry/preview", nil).Want(200); shown.Get("sandbox_events") != 3.0 || shown.Get("total_events") != 3.0 {
			return fmt.Errorf("the preview = %s, want 3 decisions", shown.Body)
		}
		return nil
	})
	if id := fmt.Sprint(shown.Get("customer_id")); !strings.HasPrefix(id, "anon-") || shown.Get("tier") != "pro" || shown.Get("deployment_version") == nil {
		t.Errorf("the preview = %s, want an anonymous customer with tier and version", shown.Body)
	}
	if res := a.Do(t, "POST", "/telemetry/send-now", nil).Want(200); res.Get("status") != "success" || res.Get("records_sent") != 1.0 {
		t.Errorf("the report = %s, want it sent", res.Body)
	}
	l.mu.Lock()
	if len(l.reports) != 1 || l.reports[0] != string(shown.Body) {
		t.Errorf("the license server got %q, the preview was %q", l.reports, shown.Body)
	}
	l.mu.Unlock()
	if res := a.Do(t, "GET", "/telemetry/health", nil).Want(200); res.Get("status") != "healthy" {
		t.Errorf("the health after a report = %s, want it in order", res.Body)
	}
	l.set(503, "the license server's own words")
	res := a.Do(t, "POST", "/telemetry/send-now", nil).Want(500)
	if detail := fmt.Sprint(res.Get("detail")); !strings.Contains(detail, "503") || strings.Contains(detail, "own words") {
		t.Errorf("the failed report = %s, want 503 without the server's text", res.Body)
	}
	var page []body
	a.Do(t, "GET", "/telemetry/history?limit=1", nil).Want(200).Into(&page)
	if len(page) != 1 || page[0]["status"] != "failed" || page[0]["response_code"] != 503.0 || page[0]["error_details"] == nil {
		t.Fatalf("the last entry of the history = %v, want the failed report", page)
	}
	retry := fmt.Sprintf("/telemetry/history/%.0f/retry", page[0]["id"])
	a.Do(t, "POST", retry, nil).Want(500)
	l.set(200, `{"subscription_tier":"pro","subscription_status":"active"}`)
	if res := a.Do(t, "POST", retry, nil).Want(200); res.Get("status") != "success" || res.Get("retry_count") != 2.0 || res.Get("log_id") != page[0]["id"] {
		t.Errorf("the repeated report = %s, want it sent", res.Body)
	}
	a.Do(t, "POST", retry, nil).Want(409)
	a.Do(t, "POST", "/telemetry/history/99999/retry", nil).Want(404)
	a.Do(t, "GET", "/telemetry/history?limit=0", nil).Want(400)
}

// checkGates checks that promotion, enforcement and tests follow the license and its server, and
// that decisions do not.
func checkGates(t *testing.T, s *apptest.Server, l *licenseServer) {
	t.Helper()
	a := s.Admin
	p := apptest.Activate(t, a, "gated", "sandbox", "package gated\n\nallow := true\n", nil)
	tests, promotion := fmt.Sprintf("/policies/%d/test", p), fmt.Sprintf("/policies/%d/promote", p)
	ended := body{
		"customer_id": "default", "subscription_tier": "trial", "subscription_status": "active", "trial_end_date": "2020-01-31T00:00:00Z",
		"effective_date": "2026-11-01T00:00:00Z",
	}
	for range 2 {
		if res := update(t, s, "another key", ended).Want(401); res.Get("detail") == nil {
			t.Errorf("an update with a wrong signature = %s, want a refusal", res.Body)
		}
	}
	first := update(t, s, licenseKey, ended).Want(200)
	if first.Get("status") != "success" || first.Get("subscription_tier") != "trial" || first.Get("updated_users") != 1.0 {
		t.Errorf("the license update = %s, want trial for one user", first.Body)
	}
	if again := update(t, s, licenseKey, ended).Want(200); string(again.Body) != string(first.Body) {
		t.Errorf("the repeated license update = %s, want the same answer", again.Body)
	}
	if res := a.Do(t, "GET", "/telemetry/license-check/promote-production", nil).Want(200); res.Get("allowed") != false || res.Get("reason") != "trial_expired" || res.Get("trial_end_date") != "2020-01-31T00:00:00Z" {
		t.Errorf("the check of the license = %s, want trial_expired", res.Body)
	}
	if res := a.Do(t, "POST", promotion, body{}).Want(403); res.Get("error") != "license_required" || res.Get("reason") != "trial_expired" {
		t.Errorf("the promotion without a license = %s, want license_required", res.Body)
	}
	if res := a.Do(t, "GET", fmt.Sprintf("/policies/%d", p), nil).Want(200); res.Get("environment") != "sandbox" {
		t.Errorf("the policy after a refused promotion = %s, want it in sandbox", res.Body)
	}
	a.Do(t, "PUT", "/environments/production/enforcement", body{"mode": "enforce"}).Want(403)
	a.Do(t, "POST", tests, nil).Want(200)
	if res := a.Do(t, "GET", "/telemetry/license-check/test-policies", nil).Want(200); res.Get("allowed") != true {
		t.Errorf("the check of the license = %s, want tests allowed", res.Body)
	}

	bought := body{"customer_id": "default", "subscription_tier": "pro", "subscription_status": "active", "trial_end_date": nil, "effective_date": "2026-11-02T00:00:00Z"}
	update(t, s, licenseKey, bought).Want(200)
	if res := update(t, s, licenseKey, ended).Want(200); res.Get("status") != "ignored" {
		t.Errorf("an old license update = %s, want it ignored", res.Body)
	}
	a.Do(t, "POST", promotion, body{}).Want(200)
	a.Do(t, "PUT", "/environments/production/enforcement", body{"mode": "enforce"}).Want(200)

	l.set(500, "")
	if res := a.Do(t, "POST", "/telemetry/test-connection", nil).Want(200); res.Get("status") != "failed" {
		t.Errorf("the test of a failing license server = %s, want failed", res.Body)
	}
	if res := a.Do(t, "GET", "/telemetry/license-check/test-policies", nil).Want(403); res.Get("detail") == nil {
		t.Errorf("the check of tests with a failing license server = %s, want a detail", res.Body)
	}
	a.Do(t, "POST", tests, nil).Want(403)
	a.Do(t, "POST", "/policies-as-code/test", body{"files": apptest.CodeFiles("a.rego", "package a\n")}).Want(403)
	if res := a.Do(t, "GET", "/telemetry/license-status", nil).Want(200); res.Get("connected") != false || res.Get("can_promote_to_production") != true || res.Get("promote_warning") == nil {
		t.Errorf("the license with a failing license server = %s, want promotion with a warning", res.Body)
	}
	a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "u"}, "action": body{"method": "GET"}, "resource": body{"type": "api", "path": "/x"}}).Want(200)
	a.Do(t, "PUT", "/environments/production/enforcement", body{"mode": "enforce"}).Want(200)
	var alerts []body
	a.Do(t, "GET", "/tenants/default/alerts", nil).Want(200).Into(&alerts)
	alerted := false
	for _, alert := range alerts {
		alerted = alerted || alert["type"] == "license_warning" && alert["resolved_at"] == nil
	}
	if !alerted {
		t.Errorf("the alerts are %v, want one about the license", alerts)
	}
	log := string(a.Do(t, "GET", "/audit/events?limit=200", nil).Want(200).Body)
	for _, kind := range []string{"TELEMETRY_CONFIGURED", "TELEMETRY_SENT", "TELEMETRY_FAILED", "LICENSE_UPDATED"} {
		if !strings.Contains(log, kind) {
			t.Errorf("the audit lacks %s", kind)
		}
	}
}

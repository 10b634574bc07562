package tenancy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

const prices = `{"currency": "EUR", "plans": {"pro": {"base": 49, "users": {"included": 1, "price": 10}, "api_calls": {"per": 10, "price": "0.5"}}}}`

// metrics is the answer of GET /metrics of a tenant.
type metrics struct {
	Metrics struct {
		APICalls struct {
			Total      int64            `json:"total"`
			ByEndpoint map[string]int64 `json:"by_endpoint"`
		} `json:"api_calls"`
		Policies map[string]int64   `json:"policies"`
		Bouncers map[string]float64 `json:"bouncers"`
		Users    map[string]int64   `json:"users"`
	} `json:"metrics"`
	Period struct{ Start, End time.Time } `json:"period"`
	Series []struct {
		Start    time.Time `json:"start"`
		APICalls int64     `json:"api_calls"`
	} `json:"series"`
}

// TestUsageSurvivesAKill checks that every answered call is counted once, also if the server is killed,
// and that nobody else's calls are counted.
func TestUsageSurvivesAKill(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		acme, other := newCompany(t, s, body{"name": "Acme"}), newCompany(t, s, body{"name": "Other"})
		read := func(c company) (m metrics) {
			t.Helper()
			c.key.Do(t, "GET", c.path("/metrics?granularity=hour"), nil).Want(200).Into(&m)
			sum := int64(0)
			for _, p := range m.Series {
				sum += p.APICalls
			}
			if sum != m.Metrics.APICalls.Total {
				t.Errorf("the series has %d calls in all, want %d", sum, m.Metrics.APICalls.Total)
			}
			return m
		}
		rounds, each := fulltest.Rounds(1, 3), 17
		for range rounds {
			for range each {
				acme.key.Do(t, "GET", "/policies", nil).Want(200)
				acme.key.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ann"}, "resource": body{"type": "api", "path": "/x"}}).Want(200)
			}
			acme.key.Do(t, "GET", "/policies/999999", nil).Want(404)
			s.Admin.With("X-Tenant-ID", acme.id).Do(t, "GET", "/policies", nil).Want(200) // does not count for acme
			s.Anonymous().With("X-Tenant-ID", acme.id).Do(t, "GET", "/policies", nil).Want(401)
			s.Kill()
			s.Start()
		}
		got := read(acme).Metrics.APICalls.ByEndpoint
		if got["list-policies"] != int64(rounds*each) || got["evaluate-decision"] != int64(rounds*each) || got["get-policy"] != int64(rounds) {
			t.Errorf("after %d kills, the calls are %v, want %d of each list and decision and %d refused ones", rounds, got, rounds*each, rounds)
		}
		if n := read(other).Metrics.APICalls.ByEndpoint; n["list-policies"] != 0 {
			t.Errorf("another tenant has the calls %v, want none", n)
		}
		if again := read(acme).Metrics.APICalls.ByEndpoint; again["list-policies"] != int64(rounds*each) || again["get-tenant-metrics"] != 1 {
			t.Errorf("the second answer has the calls %v, want one call of the metrics more", again)
		}
	})
}

// TestUsageSurvivesADamagedFile truncates the files of the counters while the server uses them. The
// server must go on, lose no call, and start again.
func TestUsageSurvivesADamagedFile(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	acme := newCompany(t, s, body{"name": "Acme"})
	calls := func() any {
		return acme.key.Do(t, "GET", acme.path("/metrics"), nil).Want(200).Get("metrics", "api_calls", "by_endpoint", "list-policies")
	}
	for round, size := range []int64{100, 0} {
		acme.key.Do(t, "GET", "/policies", nil).Want(200)
		files, err := filepath.Glob(filepath.Join(s.Dir, "usage", "*.tally"))
		if err != nil || len(files) == 0 {
			t.Fatalf("the server has the counter files %v (%v), want some", files, err)
		}
		for _, name := range files {
			errtest.Must(t, os.Truncate(name, size))
		}
		for range 5 {
			acme.key.Do(t, "GET", "/policies", nil).Want(200)
			acme.key.Do(t, "GET", "/policies/999", nil).Want(404) // this operation has no counter yet
		}
		if n, want := calls(), float64(6*(round+1)); n != want {
			t.Errorf("the metrics show %v calls, want %v", n, want)
		}
		s.Kill()
		s.Start()
		if n, want := calls(), float64(6*(round+1)); n != want {
			t.Errorf("after a kill, the metrics show %v calls, want %v", n, want)
		}
	}
}

// TestMetricsOfATenant checks that the figures are those of the tenant, for the period of the request.
func TestMetricsOfATenant(t *testing.T) {
	apptest.Inner(t)
	s := apptest.StartServer(t, dbtest.SQLite)
	acme := newCompany(t, s, body{"name": "Acme"})
	acme.admin.Do(t, "POST", "/users", body{"username": "ann", "email": "ann@acme.example"}).Want(201)
	acme.key.Do(t, "POST", "/policies", body{"name": "one", "status": "active", "environment": "production", "rego_code": "package p\n\nallow := true\n"}).Want(201)
	acme.key.Do(t, "POST", "/policies", body{"name": "two", "rego_code": "package p\n\nallow := true\n"}).Want(201)
	acme.admin.Do(t, "POST", "/bouncers", body{"name": "edge", "hostname": "edge.acme.example", "port": 443}).Want(201)
	var m metrics
	acme.key.Do(t, "GET", acme.path("/metrics"), nil).Want(200).Into(&m)
	f := m.Metrics
	if f.Policies["total"] != 2 || f.Policies["active"] != 1 || f.Policies["sandbox"] != 1 || f.Users["total"] != 2 || f.Users["active"] != 1 || f.Bouncers["total"] != 1 || f.Bouncers["active"] != 0 {
		t.Errorf("the figures are %+v, want 2 policies (1 active, 1 in sandbox), 2 users (1 active), 1 bouncer", f)
	}
	if days := len(m.Series); days != 31 && days != 30 || m.Period.End.Sub(m.Period.Start) < 30*24*time.Hour {
		t.Errorf("the default period %+v has %d points, want 30 days", m.Period, days)
	}
	acme.key.Do(t, "GET", acme.path("/metrics?start_date=2020-01-01&end_date=2020-03-31&granularity=month"), nil).Want(200).Into(&m)
	if len(m.Series) != 3 || m.Period.Start.Format(time.DateOnly) != "2020-01-01" || m.Period.End.Format(time.DateOnly) != "2020-03-31" {
		t.Errorf("the metrics by month are %+v, want three months of 2020", m)
	}
	var past metrics
	acme.key.Do(t, "GET", acme.path("/metrics?start_date=2020-01-01&end_date=2020-01-01"), nil).Want(200).Into(&past)
	if past.Metrics.APICalls.Total != 0 || past.Metrics.APICalls.ByEndpoint == nil || len(past.Series) != 1 {
		t.Errorf("the metrics of a day without calls are %+v, want one empty point", past)
	}
	for query, status := range map[string]int{
		"granularity=minute": 400, "start_date=yesterday": 400, "start_date=2026-02-02&end_date=2026-02-01": 400,
		"start_date=2020-01-01&end_date=2021-01-01&granularity=hour": 400, "since=2020": 400,
	} {
		if got := acme.key.Do(t, "GET", acme.path("/metrics?"+query), nil); got.Status != status || got.Get("error") == nil {
			t.Errorf("GET /metrics?%s = %d %s, want %d with an error", query, got.Status, got.Body, status)
		}
	}
}

// TestBillOfATenant checks that the plan's prices apply to the usage, and that nobody else sees how the
// tenant pays.
func TestBillOfATenant(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_PRICES="+prices)
			acme, other := newCompany(t, s, body{"name": "Acme", "plan_type": "pro"}), newCompany(t, s, body{"name": "Other"})
			acme.admin.Do(t, "POST", "/users", body{"username": "ann", "email": "ann@acme.example"}).Want(201)
			const calls = 40
			for range calls {
				acme.key.Do(t, "GET", "/policies", nil).Want(200)
			}
			b := acme.key.Do(t, "GET", acme.path("/billing"), nil).Want(200)
			var bill struct {
				ID     string    `json:"subscription_id"`
				Status string    `json:"status"`
				Plan   string    `json:"plan"`
				Start  time.Time `json:"current_period_start"`
				End    time.Time `json:"current_period_end"`
				Usage  struct {
					Policies, Users, Bouncers int64
					APICalls                  int64   `json:"api_calls"`
					StorageGB                 float64 `json:"storage_gb"`
				}
				Billing struct {
					Base     float64 `json:"base_cost"`
					Usage    float64 `json:"usage_cost"`
					Total    float64 `json:"total_cost"`
					Currency string
				}
			}
			b.Into(&bill)
			now := time.Now().UTC()
			if bill.Status != "active" || bill.Plan != "pro" || !strings.HasPrefix(bill.ID, "sub_") || bill.Start.After(now) || !bill.End.After(now) {
				t.Errorf("the subscription is %+v, want pro and active in a current period", bill)
			}
			if bill.Usage.Users != 2 || bill.Usage.APICalls < calls || bill.Usage.StorageGB <= 0 {
				t.Errorf("the usage is %+v, want 2 users, at least %d calls and some storage", bill.Usage, calls)
			}
			cents := 1000 + bill.Usage.APICalls*5 // a second person, and 0.50 for ten calls
			if bill.Billing.Base != 49 || int64(bill.Billing.Usage*100+0.5) != cents || int64(bill.Billing.Total*100+0.5) != 4900+cents || bill.Billing.Currency != "EUR" {
				t.Errorf("the bill is %+v, want EUR 49 and %d cents", bill.Billing, cents)
			}

			changed := acme.admin.Do(t, "PUT", acme.path("/billing"), body{"payment_method": "pm_secret_token", "billing_address": body{"line1": "1 Main St", "city": "Springfield"}}).Want(200)
			if changed.Get("payment_method_set") != true || changed.Get("billing_address", "city") != "Springfield" || changed.Get("subscription_id") != bill.ID {
				t.Errorf("PUT /billing = %s, want the payment method set and the address", changed.Body)
			}
			changed = acme.admin.Do(t, "PUT", acme.path("/billing"), body{"billing_address": body{"country": "US", "city": nil}}).Want(200)
			if changed.Get("payment_method_set") != true || changed.Get("billing_address", "line1") != "1 Main St" || changed.Get("billing_address", "country") != "US" || changed.Get("billing_address", "city") != "" {
				t.Errorf("PUT /billing of some members = %s, want the others unchanged", changed.Body)
			}
			var back map[string]any
			errtest.Must(t, json.Unmarshal(changed.Body, &back))
			acme.admin.Do(t, "PUT", acme.path("/billing"), back).Want(200) // a client may send back what it read
			for _, res := range []*apptest.Response{changed, acme.admin.Do(t, "GET", "/audit/events?type=BILLING_UPDATED", nil).Want(200)} {
				if text := string(res.Body); strings.Contains(text, "pm_secret") {
					t.Errorf("the answer shows the payment token: %s", text)
				}
			}
			if log := string(acme.admin.Do(t, "GET", "/audit/events?type=BILLING_UPDATED", nil).Body); !strings.Contains(log, "payment_method") || strings.Contains(log, "Main St") {
				t.Errorf("the audit = %s, want payment_method without the address", log)
			}
			if res := acme.admin.Do(t, "PUT", acme.path("/billing"), body{"payment_method": "4242 4242 4242 4242"}); res.Status != 422 || strings.Contains(string(res.Body), "4242") {
				t.Errorf("PUT /billing with the number of a card = %d %s, want 422 without the number", res.Status, res.Body)
			}
			acme.admin.Do(t, "PUT", acme.path("/billing"), body{"iban": "x"}).Want(422)
			cleared := acme.admin.Do(t, "PUT", acme.path("/billing"), body{"payment_method": nil, "billing_address": nil}).Want(200)
			if cleared.Get("payment_method_set") != false || cleared.Get("billing_address") != nil {
				t.Errorf("PUT /billing with null = %s, want neither method nor address", cleared.Body)
			}

			acme.key.Do(t, "PUT", acme.path("/billing"), body{}).Want(403) // the key may only read bills
			for _, path := range []string{"/billing", "/metrics", "/alerts"} {
				other.admin.Do(t, "GET", acme.path(path), nil).ExpectError("another tenant", 403, "tenant_access_denied")
				s.Admin.Do(t, "GET", acme.path(path), nil).Want(200)
				s.Admin.Do(t, "GET", "/tenants/never-was"+path, nil).ExpectError("an unknown tenant", 404, "tenant_not_found")
			}
			if free := other.admin.Do(t, "GET", other.path("/billing"), nil).Want(200); free.Get("billing", "total_cost") != 0.0 || free.Get("plan") != "standard" {
				t.Errorf("GET /billing of a plan without prices = %s, want 0", free.Body)
			}
		})
	}
}

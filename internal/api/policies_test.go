package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// inProcess is an Evaluator that runs in the test's process instead of a worker.
type inProcess struct{}

func (inProcess) Validate(_ context.Context, _ scope.TenantID, source string, libs ...lang.Library) (worker.Validation, error) {
	issues := lang.CheckModule(source, libs...)
	return worker.Validation{Valid: len(issues) == 0, Errors: issues, Warnings: []lang.Issue{}}, nil
}

func (e inProcess) Check(ctx context.Context, id scope.TenantID, source string, libs ...lang.Library) (worker.Validation, error) {
	return e.Validate(ctx, id, source, libs...)
}

func (inProcess) Test(ctx context.Context, _ scope.TenantID, r worker.TestRequest) ([]suite.TestResult, error) {
	c, issues := rego.Compile(rego.Meta{ID: 1, Name: r.Name}, r.Source, r.Libraries...)
	if len(issues) > 0 {
		return nil, errors.New(issues[0].Message)
	}
	return suite.RunTests(ctx, c, r.Cases, nil, rego.Limits{}, time.Now), nil
}

// controlPlane returns a rig with policies, resources and bouncers on a store.
func controlPlane(t *testing.T, c *db.Cluster) *rig {
	return newRig(t, func(s *Config) {
		tenants := &tenant.Service{Stores: c, Now: time.Now}
		s.Policies = &policy.Service{
			Stores: c, Now: time.Now, Compiler: policy.Compiler{Evaluator: inProcess{}}, Tenants: tenants,
			Links:      policy.Links{DestinationExists: func(context.Context, *db.Tx, scope.Env, actions.Action) (bool, error) { return false, nil }},
			MayPromote: func(context.Context, scope.Scope) error { return nil },
			SyncErrors: func(context.Context, *db.Tx, int64, int64) (map[int64][]policy.SyncError, error) {
				return map[int64][]policy.SyncError{1: {{BouncerID: 9, Version: 1, Message: "no"}}}, nil
			},
		}
		s.Bouncers = &bouncer.Service{
			Stores: c, Now: time.Now, Random: rand.Reader, Tenants: tenants, Root: "https://gate.example/api/v1", LinksOf: policy.LinksOfBouncer,
		}
		s.Resources = &resource.Service{Stores: c, Now: time.Now, PoliciesOf: policy.ByResource, BouncersOf: bouncer.LinkedTo}
		s.Policies.Resources = s.Resources
		s.Policies.BouncerEnv, s.Policies.BouncerTwin = bouncer.EnvironmentOf, bouncer.FindTwin
		tenants.Counters = map[string]func(context.Context, *db.Tx) (int64, error){tenant.Policies: policy.Count, tenant.Bouncers: bouncer.Count}
	})
}

// ask sends one request as a platform administrator and reads the answer.
func (g *rig) ask(t *testing.T, method, path, body string, header ...string) (*httptest.ResponseRecorder, map[string]any) {
	t.Helper()
	req := httptest.NewRequest(method, "/api/v1"+path, bytes.NewReader([]byte(body)))
	req.Header.Set("Authorization", "Bearer platform")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := g.Do(t, req)
	var out map[string]any
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
		}
	}
	return w, out
}

// expect is ask with the expected status. It returns the body.
func (g *rig) expect(t *testing.T, status int, method, path, body string, header ...string) map[string]any {
	t.Helper()
	w, out := g.ask(t, method, path, body, header...)
	if w.Code != status {
		t.Fatalf("%s %s = %d, want %d: %s", method, path, w.Code, status, w.Body)
	}
	return out
}

const moduleJSON = `"package pay\n\nallow if input.user.id == \"ada\"\n"`

// TestPoliciesOverHTTP follows a control from its creation over versions and a promotion to its deletion.
func TestPoliciesOverHTTP(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		g := controlPlane(t, c)
		res := g.expect(t, 201, "POST", "/resources", `{"name":"pay","type":"api","path":"/pay","methods":["GET"],"attributes":{"x":1},"data_classification":"restricted","compliance_tags":["GDPR"]}`)
		bnc := g.expect(t, 201, "POST", "/bouncers", `{"name":"edge","hostname":"edge.example","port":8080,"target_app":"app:80","configuration":{"cache_ttl":"5s","x-own":{"deep":[1]}}}`)
		made := g.expect(t, 201, "POST", "/policies", fmt.Sprintf(`{"name":"pay","rego_code":%s,"resource_id":%v,"bouncer_id":%v,
			"test_cases":[{"name":"ada","input":{"user":{"id":"ada"}},"expected":true}]}`, moduleJSON, res["id"], bnc["id"]))
		if made["status"] != "draft" || made["environment"] != "sandbox" || made["message"] == "" {
			t.Errorf("POST /policies = %v", made)
		}
		w, got := g.ask(t, "GET", "/policies/1", "")
		if w.Header().Get("ETag") != `"1"` || got["resource_id"] != 1.0 || got["deleted_at"] != nil || len(got["sync_errors"].([]any)) != 1 {
			t.Errorf("GET /policies/1 = %s %v", w.Header(), got)
		}
		// What was read can be sent back. It changes nothing, so like an empty change it creates no version.
		g.expect(t, 200, "PUT", "/policies/1", w.Body.String(), "If-Match", `"1"`)
		if same := g.expect(t, 200, "PUT", "/policies/1", `{}`); same["version"] != 1.0 {
			t.Errorf("version after an empty change = %v, want 1", same["version"])
		}
		g.expect(t, 200, "PUT", "/policies/1", `{"description":"another"}`, "If-Match", `"1"`)
		g.expect(t, 412, "PUT", "/policies/1", `{"name":"x"}`, "If-Match", `"1"`)
		g.expect(t, 412, "PUT", "/policies/1", `{"name":"x"}`, "If-Match", `"1", W/"2"`)
		wrong := fmt.Sprint(g.expect(t, 422, "PUT", "/policies/1", `{"resource_id":{},"bouncer_id":[],"status":"zz","name":null,"description":null}`)["details"])
		for _, at := range []string{"/resource_id", "/bouncer_id", "/status", "/name"} {
			if !strings.Contains(wrong, at) {
				t.Errorf("offences = %s, want %s among them", wrong, at)
			}
		}
		if strings.Contains(wrong, "/description") {
			t.Errorf("offences = %s, want none of null for a description", wrong)
		}
		up := g.expect(t, 200, "PUT", "/policies/1", `{"status":"active","description":null}`, "If-Match", `"7", "2"`)
		if up["version"] != 3.0 || up["status"] != "active" || up["name"] != "pay" {
			t.Errorf("PUT /policies/1 = %v, want version 3, active", up)
		}
		list := g.expect(t, 200, "GET", "/policies?limit=1&status=active&name=PA&environment=sandbox", "")
		if list["total"] != 1.0 || list["page"] != 1.0 || list["page_size"] != 1.0 {
			t.Errorf("GET /policies = %v, want one", list)
		}
		report := g.expect(t, 200, "POST", "/policies/1/test", "")
		if report["summary"].(map[string]any)["pass_rate"] != 1.0 {
			t.Errorf("POST /policies/1/test = %v, want all passed", report)
		}
		g.expect(t, 200, "POST", "/policies/1/test", `{"test_cases":[{"name":"x","input":{"any":["thing"]},"expected":false}]}`)
		if v := g.expect(t, 200, "POST", "/policies/validate", `{"rego_code":"package x\n\nallow if nope(1)\n"}`); v["valid"] != false || v["warnings"] != nil {
			t.Errorf("validation of a wrong source = %v, want not valid", v)
		}
		if v := g.expect(t, 200, "POST", "/policies/validate", `{"rego_code":`+moduleJSON+`}`); v["valid"] != true || v["message"] == nil || len(v) != 3 {
			t.Errorf("validation of a good source = %v, want valid", v)
		} else if list, ok := v["warnings"].([]any); !ok || len(list) != 0 {
			t.Errorf("validation of a good source = %v, want no warnings", v)
		}
		bad := g.expect(t, 422, "PUT", "/policies/1", `{"rego_code":"package x\n\nallow if nope(1)\n"}`)
		if bad["error"] != "invalid_policy" || bad["errors"].([]any)[0].(map[string]any)["line"] != 3.0 {
			t.Errorf("PUT of a wrong source = %v, want invalid_policy in line 3", bad)
		}
		promoted := g.expect(t, 200, "POST", "/policies/1/promote", `{"deployment_notes":"go","approver":"bob"}`)
		if promoted["environment"] != "production" || promoted["policy_id"] != 1.0 || promoted["promoted_at"] == nil {
			t.Errorf("POST /policies/1/promote = %v", promoted)
		}
		g.expect(t, 409, "POST", "/policies/1/promote", "")
		if h := g.expect(t, 200, "GET", "/policies/1/versions", ""); h["total"] != 4.0 {
			t.Errorf("GET /policies/1/versions = %v, want 4", h)
		}
		g.expect(t, 200, "GET", "/policies/1/versions/2", "")
		g.expect(t, 404, "GET", "/policies/1/versions/99", "")
		g.expect(t, 200, "GET", "/policies/1/versions/diff?from=1&to=4", "")
		g.expect(t, 200, "POST", "/policies/1/versions/1/restore", "")
		if gone := g.expect(t, 200, "DELETE", "/policies/1", ""); gone["deleted_at"] == nil || gone["id"] != 1.0 {
			t.Errorf("deleted %v", gone)
		}
		g.expect(t, 404, "GET", "/policies/1", "")
		g.expect(t, 200, "POST", "/policies/1/restore", "")
		g.expect(t, 200, "DELETE", "/policies/1?hard_delete=true", "")
		g.expect(t, 404, "POST", "/policies/1/restore", "")
	})
}

// TestResourcesAndBouncersOverHTTP follows a resource and its bouncer from the creation to the deletion.
func TestResourcesAndBouncersOverHTTP(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		g := controlPlane(t, c)
		g.expect(t, 201, "POST", "/resources", `{"name":"pay","type":"api","path":"/pay","policies":[7],"auto_discovered":true,"id":99,"version":5}`)
		w, got := g.ask(t, "GET", "/resources/1", "")
		if got["auto_discovered"] != false || got["version"] != 1.0 || len(got["policies"].([]any)) != 0 || w.Header().Get("ETag") != `"1"` {
			t.Errorf("GET /resources/1 = %v, want the read-only members as they are", got)
		}
		g.expect(t, 200, "PUT", "/resources/1", w.Body.String(), "If-Match", `"1"`)
		g.expect(t, 404, "GET", "/resources/1?environment=production", "")
		g.expect(t, 422, "PUT", "/resources/1/enrich", `{"data_classification":"confidential"}`)
		rich := g.expect(t, 200, "PUT", "/resources/1/enrich", `{"data_classification":"confidential","compliance_tags":["SOX"],"owner_email":"a@b.example"}`)
		if rich["impacts"] == nil || rich["data_classification"] != "confidential" {
			t.Errorf("PUT /resources/1/enrich = %v", rich)
		}
		if list := g.expect(t, 200, "GET", "/resources?type=api", ""); list["total"] != 1.0 {
			t.Errorf("GET /resources = %v, want one", list)
		}
		for body, pointer := range map[string]string{
			`{"name":"x","type":"api","path":"/x","data_classification":"secret"}`:                        "/data_classification",
			`{"name":"x","type":"api","path":"/x","business_context":"` + strings.Repeat("x", 501) + `"}`: "/business_context",
			`{"name":"x","type":"api","path":"/x","agent_capabilities":["fly"]}`:                          "/agent_capabilities/0",
			`{"name":"x","type":"api","path":"x"}`:                                                        "/path",
			`{"name":"x","type":"api","path":"/x","typo":1}`:                                              "/typo",
			`{"type":"api","path":"/x"}`:                                                                  "/name",
			`{"name":"x","type":"api","path":"/x","environment":"staging"}`:                               "/environment",
		} {
			out := g.expect(t, 422, "POST", "/resources", body)
			if !strings.Contains(fmt.Sprint(out["details"]), pointer) {
				t.Errorf("POST /resources of %s = %v, want an offence at %s", body, out, pointer)
			}
		}

		made := g.expect(t, 201, "POST", "/bouncers", `{"name":"edge","hostname":"edge.example","port":8080,"resource_ids":[1],"token":"mine"}`)
		if !strings.HasPrefix(made["token"].(string), "gh_bouncer_") || made["last_heartbeat"] != nil || made["status"] != "disconnected" {
			t.Errorf("POST /bouncers = %v", made)
		}
		w, _ = g.ask(t, "GET", "/bouncers/1", "")
		if strings.Contains(w.Body.String(), "token") {
			t.Errorf("GET /bouncers/1 = %s, want no token", w.Body)
		}
		g.expect(t, 200, "PUT", "/bouncers/1", w.Body.String(), "If-Match", w.Header().Get("ETag"))
		g.expect(t, 409, "DELETE", "/resources/1", "")
		health := g.expect(t, 200, "GET", "/bouncers/1/health", "")
		if _, there := health["policy-bridge_connected"]; !there || health["bouncer_id"] != 1.0 {
			t.Errorf("GET /bouncers/1/health = %v", health)
		}
		if sync := g.expect(t, 200, "GET", "/peps/1/sync-status", ""); sync["pep_id"] != 1.0 || sync["status"] != "pending" {
			t.Errorf("GET /peps/1/sync-status = %v, want pending", sync)
		}
		w, _ = g.ask(t, "GET", "/bouncers/1/opa-config", "")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "/bundles/1/discovery") {
			t.Errorf("GET /bouncers/1/opa-config = %d %s", w.Code, w.Body)
		}
		next := g.expect(t, 200, "POST", "/bouncers/1/rotate-token", "")
		if next["token"] == made["token"] {
			t.Error("the rotated token equals the old one")
		}
		g.expect(t, 200, "DELETE", "/bouncers/1", "")
		for _, path := range []string{"/bouncers/1", "/bouncers/1/health", "/bouncers/1/opa-config", "/peps/1/sync-status"} {
			g.expect(t, 404, "GET", path, "")
		}
		g.expect(t, 200, "DELETE", "/resources/1", "")
		for _, q := range []string{"limit=0", "limit=1001", "limit=abc", "skip=-1", "limit=1&limit=2", "limit=1e18"} {
			for _, list := range []string{"/policies?", "/resources?", "/bouncers?"} {
				g.expect(t, 400, "GET", list+q, "")
			}
		}
		g.expect(t, 200, "GET", "/policies?skip=1000000000000000000", "")
	})
}

// TestCreatesAreIdempotent: each POST that creates an object takes an Idempotency-Key.
func TestCreatesAreIdempotent(t *testing.T) {
	for _, op := range whole(t).Routes() {
		if op.Method == http.MethodPost && op.Status == http.StatusCreated && !op.Creates {
			t.Errorf("%s creates an object and takes no Idempotency-Key", op.ID)
		}
	}
}

// TestAllOffences: one answer has the errors of the schema and of the use case, each with
// its place, also in lists.
func TestAllOffences(t *testing.T) {
	g := controlPlane(t, dbtest.Open(t, dbtest.SQLite))
	g.expect(t, 201, "POST", "/resources", `{"name":"pay","type":"api","path":"/pay"}`)
	g.expect(t, 201, "POST", "/bouncers", `{"name":"edge","hostname":"edge.example","port":8080}`)
	for _, tc := range []struct{ method, path, body, want string }{
		{"POST", "/resources", `{"name":"x","type":"api","path":"x","methods":["get","FOO BAR","a/b"],"owner_email":"nobody","egress_destinations":["ok.example","a b"],"url":"ftp://x"}`, "/egress_destinations/1 /methods/1 /methods/2 /owner_email /path /url"},
		{"POST", "/resources", `{"name":{},"path":"x","methods":["get","FOO BAR"],"data_classification":"secret","owner_email":"nobody","typo":1}`, "/data_classification /methods/1 /name /owner_email /path /type /typo"},
		{"POST", "/resources", `{"name":7,"type":"api","path":"/x","data_classification":"restricted"}`, "/compliance_tags /name"},
		{"POST", "/resources", `{"name":7,"type":"api","path":"/x","data_classification":"restricted","compliance_tags":[1]}`, "/compliance_tags/0 /name"},
		{"PUT", "/resources/1", `{"environment":"production","path":"x","methods":["FOO BAR"]}`, "/environment /methods/0 /path"},
		{"PUT", "/resources/1", `{"sla_tier":"x","methods":["FOO BAR"],"data_classification":"restricted"}`, "/methods/0 /sla_tier"},
		{"PUT", "/resources/1/enrich", `{"sla_tier":"x","owner_email":"nobody","egress_destinations":["a b"]}`, "/egress_destinations/0 /owner_email /sla_tier"},
		{"POST", "/resources/1/apply-classification", `{"classification_source":"me","owner_email":"nobody"}`, "/classification_source /owner_email"},
		{"POST", "/bouncers", `{"name":"x","hostname":"h","port":1,"target_app":"nowhere","resource_ids":[9,1,8],"configuration":{"enforcement_mode":"off","headers":["x-a","cookie"]}}`, "/configuration/enforcement_mode /configuration/headers/1 /resource_ids/0 /resource_ids/2 /target_app"},
		{"POST", "/bouncers", `{"port":"80","target_app":"nowhere","configuration":{"enforcement_mode":"off"}}`, "/configuration/enforcement_mode /hostname /name /port /target_app"},
		{"PUT", "/bouncers/1", `{"port":[],"configuration":{"identity":{"trusted_proxies":["10.0.0.0/8","x"]}}}`, "/configuration/identity/trusted_proxies/1 /port"},
		{"PUT", "/bouncers/1", `{"environment":"production","target_app":"nowhere","resource_ids":[1,9]}`, "/environment /resource_ids/1 /target_app"},
	} {
		out := g.expect(t, 422, tc.method, tc.path, tc.body)
		var got []string
		for _, d := range out["details"].([]any) {
			got = append(got, d.(map[string]any)["pointer"].(string))
		}
		slices.Sort(got)
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s %s %s names\n%s, want\n%s", tc.method, tc.path, tc.body, got, tc.want)
		}
	}
}

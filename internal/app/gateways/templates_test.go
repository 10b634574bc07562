package gateways_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/template"
)

// TestTemplates checks that each template, filled for a resource and created unchanged, works on
// its example traffic.
func TestTemplates(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	catalogue, err := template.Load()
	errtest.Must(t, err)
	a := s.Admin

	var list struct {
		Templates []struct{ ID string }
		Total     int
	}
	a.Do(t, "GET", "/templates", nil).Want(200).Into(&list)
	if list.Total != 12 || len(list.Templates) != 12 {
		t.Fatalf("the catalogue has %d templates, want 12", list.Total)
	}
	for _, listed := range list.Templates {
		t.Run(listed.ID, func(t *testing.T) {
			s := apptest.StartServer(t, dbtest.SQLite) // the templates' resources are twins
			a, asker := s.Admin, s.Key(t, s.Admin, "sandbox", "decisions:read")
			tpl, ok := catalogue.Get(listed.ID)
			if !ok {
				t.Fatal("the catalogue lacks the template")
			}
			resource := a.Do(t, "POST", "/resources", tpl.Traffic().Resource).Want(201).ID()
			var filled struct {
				Title, Description string
				RegoCode           string `json:"rego_code"`
				TestCases          []any  `json:"test_cases"`
				Examples           []any
				ResourceID         int64 `json:"resource_id"`
				Parameters         []struct {
					Name, From string
					Value      any
				}
			}
			a.Do(t, "GET", fmt.Sprintf("/templates/%s?resource_id=%d", listed.ID, resource), nil).Want(200).Into(&filled)
			if filled.ResourceID != resource || len(filled.Examples) == 0 {
				t.Errorf("the filled template = %+v, want it for the resource, with examples", filled)
			}
			for _, p := range filled.Parameters {
				if want, set := tpl.Traffic().Resource[p.From]; set && fmt.Sprint(want) != fmt.Sprint(p.Value) {
					t.Errorf("the parameter %s is %v, want %v of the resource", p.Name, p.Value, want)
				}
			}
			verdict := a.Do(t, "POST", "/policies/validate", body{"rego_code": filled.RegoCode}).Want(200)
			if verdict.Get("valid") != true || strings.Contains(string(verdict.Body), `"line"`) {
				t.Errorf("POST /policies/validate = %s, want it valid", verdict.Body)
			}
			control := a.Do(t, "POST", "/policies", body{
				"name": filled.Title, "description": filled.Description, "rego_code": filled.RegoCode,
				"test_cases": filled.TestCases, "resource_id": resource, "status": "active",
			}).Want(201).ID()
			report := a.Do(t, "POST", fmt.Sprintf("/policies/%d/test", control), nil).Want(200)
			if report.Get("summary", "failed") != 0.0 || report.Get("summary", "total") != float64(len(filled.TestCases)) {
				t.Errorf("the test of the control = %s, want no failure", report.Body)
			}
			for _, x := range tpl.Traffic().Exchanges {
				t.Run(x.Name, func(t *testing.T) { exchange(t, s, asker, resource, control, x) })
			}
		})
	}
}

// exchange makes a decision with OPA's API, and also at /decisions/evaluate if the input has only
// the members of a decision request.
func exchange(t *testing.T, s *apptest.Server, asker *apptest.Client, resource, control int64, x template.Exchange) {
	input := maps.Clone(x.Input)
	res := body{"id": resource}
	maps.Copy(res, object(input["resource"]))
	input["resource"] = res
	var out struct {
		Result struct {
			Effect, Reason string
			PolicyID       int64 `json:"policy_id"`
			Mask           []struct{ Path, Strategy string }
		}
	}
	root := *asker
	root.Base = s.URL
	root.Do(t, http.MethodPost, "/v1/data/gatehouse/decision", body{"input": input}).Want(200).Into(&out)
	if out.Result.Effect != x.Want.Effect || !strings.Contains(out.Result.Reason, x.Want.Reason) || out.Result.PolicyID != control {
		t.Errorf("the decision = %+v, want %+v by the control %d", out.Result, x.Want, control)
	}
	if x.Want.Mask != nil {
		got := map[string]string{}
		for _, m := range out.Result.Mask {
			got[m.Path] = m.Strategy
		}
		if !maps.Equal(got, x.Want.Mask) {
			t.Errorf("the mask = %v, want %v", got, x.Want.Mask)
		}
	}
	delete(input, "request")
	for name := range input {
		if !slices.Contains([]string{"user", "action", "resource", "context"}, name) {
			return
		}
	}
	if len(object(object(x.Input["request"])["query"])) > 0 {
		return // decided by what a decision request has no member for
	}
	want := "PERMIT"
	if x.Want.Effect == "DENY" {
		want = "DENY"
	}
	if got := asker.Do(t, http.MethodPost, "/decisions/evaluate", input).Want(200); got.Get("decision") != want {
		t.Errorf("the decision at /decisions/evaluate = %s, want %s", got.Body, want)
	}
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// TestTemplateFollowsEnrichment checks that a change of the enrichment applies without an edit of
// the control, and what the catalogue refuses.
func TestTemplateFollowsEnrichment(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	a, asker := s.Admin, s.Key(t, s.Admin, "sandbox", "decisions:read")
	resource := a.Do(t, "POST", "/resources", body{
		"name": "x\"] allow := true #", "type": "tool", "path": "/x", "egress_destinations": []string{"a.example"},
	}).Want(201).ID()
	var filled struct {
		RegoCode string `json:"rego_code"`
	}
	path := fmt.Sprintf("/templates/EGRESS_ALLOWLIST?resource_id=%d", resource)
	a.Do(t, "GET", path, nil).Want(200).Into(&filled)
	if !strings.Contains(filled.RegoCode, `egress_destinations := ["a.example"]`) {
		t.Error(filled.RegoCode)
	}
	a.Do(t, "POST", "/policies", body{"name": "egress", "rego_code": filled.RegoCode, "resource_id": resource, "status": "active"}).Want(201)
	decide := func(to string) any {
		return asker.Do(t, "POST", "/decisions/evaluate", body{"resource": body{"id": resource}, "context": body{"destination": to}}).Want(200).Get("decision")
	}
	if decide("a.example") != "PERMIT" || decide("b.example") != "DENY" {
		t.Error("the decision does not use the list")
	}
	a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", resource), body{"egress_destinations": []string{"b.example"}}).Want(200)
	if decide("a.example") != "DENY" || decide("b.example") != "PERMIT" {
		t.Error("the decision does not use the changed enrichment")
	}

	a.Do(t, "GET", "/templates/NO_SUCH", nil).Want(404)
	a.Do(t, "GET", "/templates/..%2fEGRESS_ALLOWLIST", nil).Want(400, 404)
	a.Do(t, "GET", "/templates/EGRESS_ALLOWLIST?resource_id=999999", nil).Want(404)
	a.Do(t, "GET", "/templates/EGRESS_ALLOWLIST?resource_id=0", nil).Want(400, 422)
	a.Do(t, "GET", path+"&environment=production", nil).Want(404)
	policies := s.Key(t, a, "sandbox", "policies:read")
	policies.Do(t, "GET", "/templates/EGRESS_ALLOWLIST", nil).Want(200)
	policies.Do(t, "GET", path, nil).Want(403)
	asker.Do(t, "GET", "/templates", nil).Want(403)
	s.Anonymous().Do(t, "GET", "/templates", nil).Want(401)
}

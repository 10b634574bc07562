package resource

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// bindControl stores a control for a resource, with a status.
func bindControl(t *testing.T, c *db.Cluster, id int64, status string) {
	t.Helper()
	errtest.Must(t, c.Write(context.Background(), scope.DefaultTenant, func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), `INSERT INTO policies (name, name_folded, status, environment, rego_code, version, resource_id, created_at, updated_at)
			VALUES ('c', 'c', $1, 'sandbox', '', 1, $2, 0, 0)`, status, id)
		return err
	}))
}

// TestInventory: the inventory counts the resources of an environment and lists at most 25 that need
// attention, those that lack most first.
func TestInventory(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		bare := create(t, s, Draft{Name: "bare"})
		good := create(t, s, Draft{Name: "good", EnrichmentChange: EnrichmentChange{Kind: patch.Set("api"), DataClassification: patch.Set("restricted"), ComplianceTags: patch.Set([]string{"GDPR", "SOX"})}})
		llm := create(t, s, Draft{Name: "llm", EnrichmentChange: EnrichmentChange{Kind: patch.Set("llm_endpoint"), DataClassification: patch.Set("internal"), ComplianceTags: patch.Set([]string{"GDPR"})}})
		idle := create(t, s, Draft{Name: "idle", EnrichmentChange: EnrichmentChange{Kind: patch.Set("tool"), DataClassification: patch.Set("public")}})
		create(t, s, Draft{Name: "prod", Environment: scope.Production})
		bindControl(t, c, good.ID, "active")
		bindControl(t, c, good.ID, "active")
		bindControl(t, c, bare.ID, "draft")

		got, err := s.Inventory(ctx, sc(scope.Sandbox))
		errtest.Must(t, err)
		env := scope.Sandbox
		want := Inventory{
			Environment: &env, Total: 4, Protected: 1, Classified: 3, AICount: 1,
			ByKind:  map[string]int64{"unknown": 1, "api": 1, "llm_endpoint": 1, "tool": 1},
			ByLevel: map[string]int64{"unset": 1, "restricted": 1, "internal": 1, "public": 1},
			ByTag:   map[string]int64{"GDPR": 2, "SOX": 1},
			Attention: []Attention{
				{bare.ID, "bare", env, "unknown", "unset", []string{"no_resource_kind", "no_data_classification", "no_control"}},
				{llm.ID, "llm", env, "llm_endpoint", "internal", []string{"no_ai_provider", "no_control"}},
				{idle.ID, "idle", env, "tool", "public", []string{"no_control"}},
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Inventory of sandbox (-want +got): %s", diff)
		}
		both, err := s.Inventory(ctx, sc(""))
		if err != nil || both.Environment != nil || both.Total != 5 || both.ByKind["unknown"] != 2 {
			t.Errorf("Inventory of both environments = %+v, %v", both, err)
		}
		for i := range 30 {
			create(t, s, Draft{Name: fmt.Sprint("more ", i)})
		}
		if got, err = s.Inventory(ctx, sc(scope.Sandbox)); err != nil || len(got.Attention) != 25 || got.Attention[0].ID != bare.ID {
			t.Errorf("Inventory lists %d resources, %v, want 25 from %d", len(got.Attention), err, bare.ID)
		}
		empty, err := s.Inventory(ctx, scope.Scope{Tenant: dbtest.Second})
		if err != nil || empty.Total != 0 || empty.Attention == nil || empty.ByKind == nil {
			t.Errorf("Inventory of an empty tenant = %+v, %v", empty, err)
		}
	})
}

// TestGapsAreReasons: the order in SQL and the reasons in Go count the same things.
func TestGapsAreReasons(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		for _, kind := range []string{"", "api", "llm_endpoint", "agent", "mcp_server"} {
			for _, level := range []string{"", "public"} {
				for _, provider := range []string{"", "openai"} {
					r := create(t, s, Draft{Name: "r", EnrichmentChange: EnrichmentChange{Kind: patch.Set(kind), DataClassification: patch.Set(level), AIProvider: patch.Set(provider)}})
					if provider != "" {
						conf := 0.4
						errtest.Must(t, errtest.Of(s.ApplyClassification(ctx, sc(""), r.ID, ClassificationChange{Source: "heuristic", Confidence: &conf}, 0)))
					}
				}
			}
		}
		store := tenantStore(t, c)
		err := store.Read(ctx, func(tx *db.Tx) error {
			list, err := incomplete(ctx, tx, scope.Sandbox, 100)
			if err != nil {
				return err
			}
			rest, err := unprotected(ctx, tx, scope.Sandbox, 0, 1000, 100)
			for _, x := range list {
				rest = slices.DeleteFunc(rest, func(y suspect) bool { return y.ID == x.ID })
			}
			last := 100
			for _, x := range append(list, rest...) {
				n := len(slices.DeleteFunc(x.attention().Reasons, func(r string) bool { return r == "no_control" }))
				if n > last {
					t.Errorf("%+v lacks %d and comes after one that lacks %d", x, n, last)
				}
				last = n
			}
			if len(list)+len(rest) != 20 || last != 0 {
				t.Errorf("%d lack something, %d nothing, the last one %d, want 20 in all", len(list), len(rest), last)
			}
			return err
		})
		errtest.Must(t, err)
	})
}

// TestSuggestions: a resource gets the templates that fit it, and hints at those that would.
func TestSuggestions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		r := create(t, s, Draft{Name: "gw", URL: "https://api.openai.com/v1/chat/completions", EnrichmentChange: EnrichmentChange{
			Kind: patch.Set("llm_endpoint"), PIICategories: patch.Set([]string{"ssn"}), EgressDestinations: patch.Set([]string{"api.openai.com"}), OwnerEmail: patch.Set("canary@corp.example"),
		}})
		got, err := s.SuggestControls(ctx, sc(""), r.ID)
		if err != nil || !slices.Equal(got.TemplateIDs, []string{"EGRESS_ALLOWLIST"}) || got.Summary.AIProvider != nil || got.Summary.ComplianceTags != nil ||
			*got.Summary.Kind != "llm_endpoint" || got.Suggestions[0].Builder != fmt.Sprintf("/policies/new?template=EGRESS_ALLOWLIST&resource_id=%d", r.ID) {
			t.Errorf("SuggestControls = %+v, %v", got, err)
		}
		hints, err := s.SmartSuggest(ctx, sc(""), r.ID)
		errtest.Must(t, err)
		want := []Hint{
			{"EGRESS_ALLOWLIST", "egress_destinations", []string{"api.openai.com"}, "The control can use egress_destinations as the resource has it."},
			{"EGRESS_PII_MASKING", "data_classification", nil, "Set data_classification to confidential or restricted and the control is suggested."},
			{"AI_INGRESS_GUARDRAIL", "ai_provider", "openai", "Set ai_provider and the control is suggested."},
			{"AI_PROMPT_INJECTION_DEFENSE", "ai_provider", "openai", "Set ai_provider and the control is suggested."},
			{"AI_TOKEN_RATE_LIMIT", "ai_provider", "openai", "Set ai_provider and the control is suggested."},
		}
		if diff := cmp.Diff(want, hints.Suggestions); diff != "" {
			t.Errorf("SmartSuggest (-want +got): %s", diff)
		}
	})
}

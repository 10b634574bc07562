package resource

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

var now = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// sc is the scope of alice in an environment.
func sc(env scope.Env) scope.Scope {
	return scope.Scope{Tenant: scope.DefaultTenant, Env: env, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "alice"}}
}

// service returns a Service. bound and linked have the controls and bouncers of resources.
func service(c *db.Cluster, bound, linked map[int64][]int64) *Service {
	return &Service{
		Stores: c, Now: func() time.Time { return now },
		PoliciesOf: func(context.Context, *db.Tx, int64, int64) (map[int64][]int64, error) { return bound, nil },
		BouncersOf: func(_ context.Context, _ *db.Tx, id int64) ([]int64, error) { return linked[id], nil },
	}
}

// wantKind fails unless err is a fault of a kind that names a member, if there is one to name.
func wantKind(t *testing.T, err error, kind fault.Kind, pointer string) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Fatalf("got %v, want a fault of kind %d", err, kind)
	}
	f, _ := err.(*fault.Error)
	if pointer == "" {
		return
	}
	for _, d := range f.Details {
		if d.Pointer == pointer {
			return
		}
	}
	t.Fatalf("the fault names %+v, want %s", f.Details, pointer)
}

// revision returns the revision of an environment.
func revision(t *testing.T, c *db.Cluster, env scope.Env) int64 {
	t.Helper()
	n, err := tenantStore(t, c).Revision(context.Background(), Revision(env))
	errtest.Must(t, err)
	return n
}

// TestLifeOfAResource follows a resource from its creation to its deletion.
func TestLifeOfAResource(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		s := service(c, map[int64][]int64{1: {5}}, nil)
		made, err := s.Create(ctx, sc(""), Draft{
			Name: " Pay ", Type: "api", Path: "/pay/{id}", Methods: []string{"post", "get"}, OriginalHost: "PAY.example.com",
			Attributes: map[string]any{"owner": "bob", "n": 3.0},
			EnrichmentChange: EnrichmentChange{
				DataClassification: patch.Set("restricted"), ComplianceTags: patch.Set([]string{"GDPR"}), OwnerEmail: patch.Set("a@b.example"),
			},
		})
		errtest.Must(t, err)
		if made.Name != "Pay" || made.Environment != scope.Sandbox || made.OriginalHost != "pay.example.com" || made.Version != 1 {
			t.Errorf("Create = %+v", made)
		}
		got, err := s.Get(ctx, sc(""), made.ID)
		errtest.Must(t, err)
		want := made
		want.Policies = []int64{5}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Get (-created +read): %s", diff)
		}
		if _, err := s.Get(ctx, sc(scope.Production), made.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("Get from production: got %v, want not found", err)
		}
		other := sc("")
		other.Tenant = dbtest.Second
		if _, err := s.Get(ctx, other, made.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("Get from another tenant: got %v, want not found", err)
		}

		before := revision(t, c, scope.Sandbox)
		path := "/pay/**"
		up, err := s.Update(ctx, sc(""), made.ID, Change{Path: &path, EnrichmentChange: EnrichmentChange{DataClassification: patch.Clear[string]()}}, 1)
		errtest.Must(t, err)
		if up.Version != 2 || up.Path != path || up.DataClassification != "" || up.Name != "Pay" || len(up.ComplianceTags) != 1 {
			t.Errorf("Update = %+v", up)
		}
		if after := revision(t, c, scope.Sandbox); after != before+1 {
			t.Errorf("revision = %d, want %d", after, before+1)
		}
		if _, err := s.Update(ctx, sc(""), made.ID, Change{Path: &path}, 1); !fault.Is(err, fault.Precondition) {
			t.Errorf("Update with an old version: got %v, want a failed precondition", err)
		}
		if _, err := s.Delete(ctx, sc(""), made.ID, 0); !fault.Is(err, fault.Conflict) {
			t.Errorf("Delete of a resource with a control: got %v, want a conflict", err)
		}
		s = service(c, nil, nil)
		errtest.Must(t, errtest.Of(s.Delete(ctx, sc(""), made.ID, 0)))
		if _, err := s.Get(ctx, sc(""), made.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("Get of a deleted resource: got %v, want not found", err)
		}
	})
}

// TestOffences: a refusal names every wrong member, and nothing is stored.
func TestOffences(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		_, err := s.Create(ctx, sc(""), Draft{
			Name: " ", Type: "api", Path: "pay", Methods: []string{"G T"}, URL: "x", OriginalHost: "a b",
			EnrichmentChange: EnrichmentChange{DataClassification: patch.Set("confidential"), OwnerEmail: patch.Set("Bob <b@x.example>")},
		})
		for _, p := range []string{"/name", "/path", "/methods/0", "/url", "/original_host", "/compliance_tags", "/owner_email"} {
			wantKind(t, err, fault.Invalid, p)
		}
		r, err := s.Create(ctx, sc(""), Draft{Name: "x", Type: "api", Path: "/"})
		errtest.Must(t, err)
		_, err = s.Enrich(ctx, sc(""), r.ID, EnrichmentChange{DataClassification: patch.Set("restricted")}, 0)
		wantKind(t, err, fault.Invalid, "/compliance_tags")
		prod := scope.Production
		_, err = s.Update(ctx, sc(""), r.ID, Change{Environment: &prod}, 0)
		wantKind(t, err, fault.Invalid, "/environment")
		bound := sc(scope.Sandbox)
		bound.EnvBound = true
		_, err = s.Create(ctx, bound, Draft{Name: "x", Type: "api", Path: "/", Environment: prod})
		wantKind(t, err, fault.Forbidden, "")
		page, err := s.List(ctx, sc(""), Filter{Limit: 100})
		if err != nil || page.Total != 1 || len(page.Resources) != 1 {
			t.Errorf("List after the refusals = %+v, %v, want 1", page, err)
		}
	})
}

// TestListFilters: List filters by environment and type, and counts beyond its page.
func TestListFilters(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		for _, d := range []Draft{
			{Name: "a", Type: "api", Path: "/a"},
			{Name: "b", Type: "dataset", Path: "/b"},
			{Name: "c", Type: "api", Path: "/c", Environment: scope.Production},
		} {
			errtest.Must(t, errtest.Of(s.Create(ctx, sc(""), d)))
		}
		for _, tc := range []struct {
			env   scope.Env
			f     Filter
			names string
			total int64
		}{
			{"", Filter{Limit: 100}, "abc", 3},
			{"", Filter{Limit: 1, Skip: 1}, "b", 3},
			{"", Filter{Limit: 9, Type: "api"}, "ac", 2},
			{scope.Production, Filter{Limit: 9}, "c", 1},
			{"", Filter{Limit: 9, Skip: 1e18}, "", 3},
			{"", Filter{Limit: 9, Type: "%"}, "", 0},
		} {
			page, err := s.List(ctx, sc(tc.env), tc.f)
			errtest.Must(t, err)
			names := ""
			for _, r := range page.Resources {
				names += r.Name
			}
			if names != tc.names || page.Total != tc.total || page.Resources == nil {
				t.Errorf("List in %q of %+v = %q of %d, want %q of %d", tc.env, tc.f, names, page.Total, tc.names, tc.total)
			}
		}
	})
}

// TestDocsAndCounterpart: a resource has one counterpart in production, and its document has the members
// that are set.
func TestDocsAndCounterpart(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		r, err := s.Create(ctx, sc(""), Draft{
			Name: "pay", Type: "api", Path: "/pay", URL: "https://Pay.example.com/x", Attributes: map[string]any{"owner": "bob"},
			EnrichmentChange: EnrichmentChange{OwnerEmail: patch.Set("a@b.example"), AuditLevel: patch.Set("detailed"), ComplianceTags: patch.Set([]string{"SOX"})},
		})
		errtest.Must(t, err)
		store := tenantStore(t, c)
		var first, second int64
		err = store.Write(ctx, func(tx *db.Tx) (err error) {
			if first, err = s.Counterpart(ctx, tx, sc(""), r.ID); err != nil {
				return err
			}
			second, err = s.Counterpart(ctx, tx, sc(""), r.ID)
			return err
		})
		if err != nil || first != second || first == r.ID {
			t.Fatalf("Counterpart = %d, then %d, %v, want one new resource", first, second, err)
		}
		copied, err := s.Get(ctx, sc(scope.Production), first)
		if err != nil || copied.AuditLevel != "detailed" || copied.Version != 1 || copied.Attributes["owner"] != "bob" {
			t.Errorf("counterpart = %+v, %v", copied, err)
		}
		err = store.Read(ctx, func(tx *db.Tx) error {
			docs, err := Docs(ctx, tx, scope.Sandbox)
			if err != nil || len(docs) != 1 {
				t.Fatalf("Docs = %d, %v, want 1", len(docs), err)
			}
			d := docs[0]
			doc := string(d.Doc.AppendJSON(nil))
			if d.Host != "pay.example.com" || d.AuditLevel != "detailed" || !strings.Contains(doc, `"owner_email":"a@b.example"`) {
				t.Errorf("document = %s of %+v", doc, d)
			}
			for _, absent := range []string{"data_classification", "pii_categories", "description", "sla_tier"} {
				if strings.Contains(doc, absent) {
					t.Errorf("document = %s, want no empty %s", doc, absent)
				}
			}
			return nil
		})
		errtest.Must(t, err)
	})
}

// TestEnrichKeepsOwnerEmailOutOfSnapshots: snapshots and changes do not show the owner's e-mail address.
func TestEnrichKeepsOwnerEmailOutOfSnapshots(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, map[int64][]int64{1: {9}}, nil)
		r, err := s.Create(ctx, sc(""), Draft{Name: "pay", Type: "api", Path: "/pay"})
		errtest.Must(t, err)
		out, err := s.Enrich(ctx, sc(""), r.ID, EnrichmentChange{
			Kind: patch.Set("llm_endpoint"), AIProvider: patch.Set("openai"), OwnerEmail: patch.Set("secret@b.example"), PIICategories: patch.Set([]string{"ssn"}),
		}, 1)
		errtest.Must(t, err)
		if out.Version != 2 || out.Kind != "llm_endpoint" || len(out.Impacts) != 4 || out.Impacts[0].PolicyID != 9 || out.Impacts[1].TemplateID != "AI_INGRESS_GUARDRAIL" {
			t.Errorf("Enrich = %+v", out)
		}
		snap := out.Snapshot()
		if _, there := snap["owner_email"]; there || snap["version"] != int64(2) || snap["resource_kind"] != "llm_endpoint" {
			t.Errorf("Snapshot = %v", snap)
		}
		if diff := changesOf(r, out.Resource); strings.Contains(cmp.Diff(nil, diff), "secret@") {
			t.Errorf("changes = %v, want no address", diff)
		}
	})
}

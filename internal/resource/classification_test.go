package resource

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/classify"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

func make1(t *testing.T, s *Service, d Draft) Resource {
	t.Helper()
	if d.Type == "" {
		d.Type = "api"
	}
	if d.Path == "" {
		d.Path = "/" + rand.Text() // every resource has another path
	}
	r, err := s.Create(context.Background(), sc(""), d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// entries returns the audit rows, the newest last.
func entries(t *testing.T, c *db.Cluster) []audit.Event {
	t.Helper()
	store, err := c.Tenant(context.Background(), scope.DefaultTenant)
	if err != nil {
		t.Fatal(err)
	}
	var out []audit.Event
	err = store.Read(context.Background(), func(tx *db.Tx) (err error) {
		out, err = db.All[audit.Event](context.Background(), tx, `SELECT seq, at, type, object, object_id, object_name, environment, actor_kind,
			actor_id, actor_name, ip_address, request_id, changes, event_context FROM audit_events ORDER BY seq`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestProposeWritesNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := service(c, nil, nil)
		r := make1(t, s, Draft{Name: "OpenAI", URL: "https://api.openai.com/v1/chat/completions"})
		before, rows := revision(t, c, scope.Sandbox), len(entries(t, c))
		p, err := s.Propose(context.Background(), sc(""), r.ID)
		if err != nil || p.Kind != classify.LLMEndpoint || p.Source != classify.Heuristic || p.Confidence != 0.7 {
			t.Fatalf("%+v %v", p, err)
		}
		got, err := s.Get(context.Background(), sc(""), r.ID)
		if err != nil || got.Version != 1 || got.Source != "" || got.Kind != "" {
			t.Errorf("proposing wrote: %+v %v", got, err)
		}
		if revision(t, c, scope.Sandbox) != before || len(entries(t, c)) != rows {
			t.Error("proposing left a trace")
		}
		if _, err := s.Propose(context.Background(), sc(scope.Production), r.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("from production: %v", err)
		}
	})
}

type assistant func(classify.Prompt) ([]byte, error)

func (a assistant) Answer(_ context.Context, p classify.Prompt) ([]byte, error) { return a(p) }

func TestAssistedFallback(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := service(c, nil, nil)
		asked, on, answer := 0, false, `{"resource_kind":"dataset","confidence":0.9}`
		var fail error
		s.Assist = assistant(func(p classify.Prompt) ([]byte, error) {
			asked++
			if strings.Contains(p.User+p.System, "canary") {
				t.Errorf("personal data in the prompt: %s", p.User)
			}
			return []byte(answer), fail
		})
		s.AssistOn = func(context.Context, *db.Tx) (bool, error) { return on, nil }
		vague := make1(t, s, Draft{Name: "warehouse", EnrichmentChange: EnrichmentChange{
			OwnerEmail: patch.Set("canary@corp.example"), BusinessContext: patch.Set("ask canary@corp.example"), OwnerTeam: patch.Set("canary team"),
		}})
		sure := make1(t, s, Draft{Name: "mcp"})
		try := func(id int64) classify.Proposal {
			t.Helper()
			p, err := s.Propose(context.Background(), sc(""), id)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		if p := try(vague.ID); p.Source != classify.Heuristic || asked != 0 {
			t.Fatalf("flag off: %+v, asked %d", p, asked)
		}
		on = true
		if p := try(sure.ID); p.Source != classify.Heuristic || asked != 0 {
			t.Fatalf("sure enough: %+v, asked %d", p, asked)
		}
		if p := try(vague.ID); p.Source != classify.Assist || p.Kind != "dataset" || p.Confidence != 0.9 || asked != 1 {
			t.Fatalf("asked %d: %+v", asked, p)
		}
		answer = `{"resource_kind":"admin","confidence":1}`
		if p := try(vague.ID); p.Source != classify.Heuristic || p.Kind != "api" {
			t.Fatalf("a kind that is not allowed: %+v", p)
		}
		fail = fault.New(fault.BadGateway, "target_unreachable", "no")
		if p := try(vague.ID); p.Source != classify.Heuristic || !slices.Contains(p.Rationale, "assist: no answer") {
			t.Fatalf("no answer: %+v", p)
		}
	})
}

func TestApplyClassification(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		r := make1(t, s, Draft{Name: "crm", EnrichmentChange: EnrichmentChange{OwnerTeam: patch.Set("sales")}})
		out, err := s.ApplyClassification(ctx, sc(""), r.ID, ClassificationChange{EnrichmentChange: EnrichmentChange{
			Kind: patch.Set("api"), DataClassification: patch.Set("restricted"), ComplianceTags: patch.Set([]string{"GDPR"}), PIICategories: patch.Set([]string{"ssn"}),
		}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if out.Source != "manual" || *out.Confidence != 1 || !out.LastClassifiedAt.Equal(now) || out.OwnerTeam != "sales" || out.Version != 2 {
			t.Errorf("%+v", out)
		}
		if !slices.Equal(out.Classification.Tags, []string{"pii", "regulated"}) {
			t.Errorf("tags %v", out.Classification.Tags)
		}
		var templates []string
		for _, i := range out.Impacts {
			templates = append(templates, i.TemplateID+" "+i.Effect)
		}
		if !slices.Equal(templates, []string{"EGRESS_PII_MASKING suggested", "REGULATED_DATA_EGRESS suggested"}) {
			t.Errorf("impacts %v", templates)
		}
		last := entries(t, c)[1]
		snap, _ := last.EventContext["resource_snapshot"].(map[string]any)
		if last.Type != "RESOURCE_UPDATED" || snap["version"] != 2.0 || snap["data_classification"] != "restricted" {
			t.Errorf("audit %+v", last)
		}
		low := 0.7
		out, err = s.ApplyClassification(ctx, sc(""), r.ID, ClassificationChange{Source: "assist", Confidence: &low, EnrichmentChange: EnrichmentChange{PIICategories: patch.Clear[[]string]()}}, 0)
		if err != nil || out.Source != "assist" || *out.Confidence != 0.7 || out.Impacts[len(out.Impacts)-1].Effect != "no_longer_suggested" {
			t.Errorf("%+v %v", out, err)
		}
		_, err = s.ApplyClassification(ctx, sc(""), r.ID, ClassificationChange{EnrichmentChange: EnrichmentChange{ComplianceTags: patch.Set([]string{})}}, 0)
		wantKind(t, err, fault.Invalid, "/compliance_tags")
		if _, err = s.ApplyClassification(ctx, sc(scope.Production), r.ID, ClassificationChange{}, 0); !fault.Is(err, fault.NotFound) {
			t.Errorf("in the other environment: %v", err)
		}
	})
}

func TestClassifyBulk(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		at := now
		s.Now = func() time.Time { at = at.Add(time.Second); return at }
		plain := make1(t, s, Draft{Name: "orders"})
		llm := make1(t, s, Draft{Name: "gw", URL: "https://api.openai.com/v1/chat/completions", EnrichmentChange: EnrichmentChange{
			DataClassification: patch.Set("public"), AIProvider: patch.Set("azure"),
		}})
		pii := make1(t, s, Draft{Name: "medical card"})
		manual := make1(t, s, Draft{Name: "mcp by hand"})
		if _, err := s.ApplyClassification(ctx, sc(""), manual.ID, ClassificationChange{EnrichmentChange: EnrichmentChange{Kind: patch.Set("tool")}}, 0); err != nil {
			t.Fatal(err)
		}
		elsewhere := make1(t, s, Draft{Name: "mcp", Environment: scope.Production})
		broken := make1(t, s, Draft{Name: "broken"})
		spoil(t, c, broken.ID)

		before, rows := revision(t, c, scope.Sandbox), len(entries(t, c))
		out, err := s.ClassifyBulk(ctx, sc(scope.Sandbox), 100)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d: not an e-mail address", broken.ID)
		if out.Environment != scope.Sandbox || out.Examined != 4 || out.Classified != 3 || out.Unchanged != 0 || out.Skipped != 1 || !slices.Equal(out.Errors, []string{want}) {
			t.Errorf("%+v", out)
		}
		read := func(id int64) Resource {
			t.Helper()
			r, err := s.Get(ctx, sc(""), id)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := read(llm.ID); r.Kind != "llm_endpoint" || r.AIProvider != "azure" || r.DataClassification != "public" || r.Source != "heuristic" || *r.Confidence != 0.7 || r.LastClassifiedAt == nil || r.Version != 2 {
			t.Errorf("what was set stays, what was empty is filled: %+v", r)
		}
		if r := read(pii.ID); r.DataClassification != "restricted" || !slices.Equal(r.ComplianceTags, []string{"HIPAA", "PCI-DSS"}) || !slices.Equal(r.PIICategories, []string{"card_numbers", "health_records"}) {
			t.Errorf("%+v", r)
		}
		if r := read(plain.ID); r.Kind != "api" || r.DataClassification != "" || *r.Confidence != 0.4 {
			t.Errorf("%+v", r)
		}
		if r := read(manual.ID); r.Kind != "tool" || r.Source != "manual" || r.Version != 2 {
			t.Errorf("classified by a person: %+v", r)
		}
		if r := read(elsewhere.ID); r.Source != "" {
			t.Errorf("in the other environment: %+v", r)
		}
		if got := revision(t, c, scope.Sandbox); got != before+1 {
			t.Errorf("revision went from %d to %d", before, got)
		}
		log := entries(t, c)
		if len(log) != rows+1 || log[rows].Type != "RESOURCE_UPDATED" || log[rows].Changes["classified"] != 3.0 || len(log[rows].EventContext["resources"].([]any)) != 3 {
			t.Errorf("%d audit rows: %+v", len(log)-rows, log[len(log)-1])
		}

		// A second call finds nothing to fill in, and the revision stays.
		out, err = s.ClassifyBulk(ctx, sc(scope.Sandbox), 100)
		if err != nil || out.Classified != 0 || out.Unchanged != 3 || len(out.Errors) != 1 {
			t.Errorf("%+v %v", out, err)
		}
		if got := revision(t, c, scope.Sandbox); got != before+1 || read(llm.ID).Version != 2 {
			t.Errorf("a call that changes nothing bumped: %d", got)
		}
		// With a limit, repeated calls reach all: first the unclassified resources, then those
		// classified longest ago.
		fresh := make1(t, s, Draft{Name: "vector"})
		if out, err = s.ClassifyBulk(ctx, sc(scope.Sandbox), 2); err != nil || out.Examined != 2 || out.Classified != 1 || read(fresh.ID).Kind != "rag_index" {
			t.Errorf("%+v %v", out, err)
		}
		// A resource that cannot be classified is examined, too, and does not block the others.
		late := make1(t, s, Draft{Name: "vector index"})
		if out, err = s.ClassifyBulk(ctx, sc(scope.Sandbox), 1); err != nil || out.Classified != 1 || read(late.ID).Kind != "rag_index" {
			t.Errorf("the unclassified one waits behind one that fails: %+v %v", out, err)
		}
		if r := read(broken.ID); r.Source != "" || r.Version != 1 {
			t.Errorf("one that cannot be classified changed: %+v", r)
		}
		if out, err = s.ClassifyBulk(ctx, scope.Scope{Tenant: dbtest.Second}, 100); err != nil || out.Examined != 0 || out.Environment != scope.Sandbox {
			t.Errorf("an empty tenant: %+v %v", out, err)
		}
	})
}

// spoil stores an enrichment that no request could set.
func spoil(t *testing.T, c *db.Cluster, id int64) {
	t.Helper()
	store, err := c.Tenant(context.Background(), scope.DefaultTenant)
	if err != nil {
		t.Fatal(err)
	}
	err = store.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), `UPDATE resources SET owner_email = 'nobody' WHERE id = $1`, id)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCanary: owner_email is not in audit rows, events or texts of documents, even if
// somebody wrote it into the business context.
func TestCanary(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		r := make1(t, s, Draft{Name: "crm", EnrichmentChange: EnrichmentChange{OwnerEmail: patch.Set("canary@corp.example"), BusinessContext: patch.Set("ask canary@corp.example")}})
		out, err := s.Enrich(ctx, sc(""), r.ID, EnrichmentChange{BusinessContext: patch.Set("ask canary@corp.example, or not"), Kind: patch.Set("tool")}, 0)
		if err != nil || out.BusinessContext != "ask canary@corp.example, or not" {
			t.Fatalf("%+v %v", out, err)
		}
		if _, err := s.ApplyClassification(ctx, sc(""), r.ID, ClassificationChange{EnrichmentChange: EnrichmentChange{BusinessContext: patch.Set("canary@corp.example again")}}, 0); err != nil {
			t.Fatal(err)
		}
		rows, err := json.Marshal(entries(t, c))
		if err != nil || strings.Contains(string(rows), "canary") {
			t.Errorf("audit: %s %v", rows, err)
		}
		if !strings.Contains(string(rows), "business_context") {
			t.Error("the change itself is missing from the audit")
		}
		doc, err := out.Doc()
		text := string(doc.Doc.AppendJSON(nil))
		if err != nil || strings.Count(text, "canary") != 1 || !strings.Contains(text, `"business_context":"ask [e-mail], or not"`) {
			t.Errorf("document: %s", text)
		}
	})
}

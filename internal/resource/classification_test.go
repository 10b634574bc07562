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
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// create creates a resource, with a type and a path of its own if the draft has none.
func create(t *testing.T, s *Service, d Draft) Resource {
	t.Helper()
	if d.Type == "" {
		d.Type = "api"
	}
	if d.Path == "" {
		d.Path = "/" + rand.Text()
	}
	r, err := s.Create(context.Background(), sc(""), d)
	errtest.Must(t, err)
	return r
}

// entries returns the administrative log, oldest first.
func entries(t *testing.T, c *db.Cluster) []audit.Event {
	t.Helper()
	var out []audit.Event
	err := c.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
		out, err = db.All[audit.Event](context.Background(), tx, `SELECT seq, at, type, object, object_id, object_name, environment, actor_kind,
			actor_id, actor_name, ip_address, request_id, changes, event_context FROM audit_events ORDER BY seq`)
		return err
	})
	errtest.Must(t, err)
	return out
}

// TestProposeWritesNothing: a proposal changes neither the resource nor the log nor the revision.
func TestProposeWritesNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := service(c, nil, nil)
		r := create(t, s, Draft{Name: "OpenAI", URL: "https://api.openai.com/v1/chat/completions"})
		before, rows := revision(t, c, scope.Sandbox), len(entries(t, c))
		p, err := s.Propose(context.Background(), sc(""), r.ID)
		if err != nil || p.Kind != classify.LLMEndpoint || p.Source != classify.Heuristic || p.Confidence != 0.7 {
			t.Fatalf("Propose = %+v, %v", p, err)
		}
		got, err := s.Get(context.Background(), sc(""), r.ID)
		if err != nil || got.Version != 1 || got.Source != "" || got.Kind != "" {
			t.Errorf("resource after Propose = %+v, %v, want version 1 as it was", got, err)
		}
		if revision(t, c, scope.Sandbox) != before || len(entries(t, c)) != rows {
			t.Error("Propose changes the revision or the log")
		}
		if _, err := s.Propose(context.Background(), sc(scope.Production), r.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("Propose from production: got %v, want not found", err)
		}
	})
}

type assistant func(classify.Prompt) ([]byte, error)

func (a assistant) Answer(_ context.Context, p classify.Prompt) ([]byte, error) { return a(p) }

// TestAssistedFallback: the assistant is asked only if it is on and the heuristic is unsure, without
// personal data. If its answer is of no use, the heuristic decides.
func TestAssistedFallback(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := service(c, nil, nil)
		asked, on, answer := 0, false, `{"resource_kind":"dataset","confidence":0.9}`
		var fail error
		s.Assist = assistant(func(p classify.Prompt) ([]byte, error) {
			asked++
			if strings.Contains(p.User+p.System, "canary") {
				t.Errorf("prompt = %s, want no personal data", p.User)
			}
			return []byte(answer), fail
		})
		s.AssistOn = func(context.Context, *db.Tx) (bool, error) { return on, nil }
		vague := create(t, s, Draft{Name: "warehouse", EnrichmentChange: EnrichmentChange{
			OwnerEmail: patch.Set("canary@corp.example"), BusinessContext: patch.Set("ask canary@corp.example"), OwnerTeam: patch.Set("canary team"),
		}})
		sure := create(t, s, Draft{Name: "mcp"})
		propose := func(id int64) classify.Proposal {
			t.Helper()
			p, err := s.Propose(context.Background(), sc(""), id)
			errtest.Must(t, err)
			return p
		}
		if p := propose(vague.ID); p.Source != classify.Heuristic || asked != 0 {
			t.Fatalf("Propose with the assistant off = %+v after %d requests", p, asked)
		}
		on = true
		if p := propose(sure.ID); p.Source != classify.Heuristic || asked != 0 {
			t.Fatalf("Propose of a sure case = %+v after %d requests", p, asked)
		}
		if p := propose(vague.ID); p.Source != classify.Assist || p.Kind != "dataset" || p.Confidence != 0.9 || asked != 1 {
			t.Fatalf("Propose of an unsure case = %+v after %d requests, want the assistant's", p, asked)
		}
		answer = `{"resource_kind":"admin","confidence":1}`
		if p := propose(vague.ID); p.Source != classify.Heuristic || p.Kind != "api" {
			t.Fatalf("Propose when the assistant names an unknown kind = %+v, want the heuristic's", p)
		}
		fail = fault.New(fault.BadGateway, "target_unreachable", "no")
		if p := propose(vague.ID); p.Source != classify.Heuristic || !slices.Contains(p.Rationale, "assist: no answer") {
			t.Fatalf("Propose without an answer = %+v, want the heuristic's with a reason", p)
		}
	})
}

// TestApplyClassification: a classification is stored with its source and audited, and its answer says
// which controls it suggests.
func TestApplyClassification(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		r := create(t, s, Draft{Name: "crm", EnrichmentChange: EnrichmentChange{OwnerTeam: patch.Set("sales")}})
		out, err := s.ApplyClassification(ctx, sc(""), r.ID, ClassificationChange{EnrichmentChange: EnrichmentChange{
			Kind: patch.Set("api"), DataClassification: patch.Set("restricted"), ComplianceTags: patch.Set([]string{"GDPR"}), PIICategories: patch.Set([]string{"ssn"}),
		}}, 1)
		errtest.Must(t, err)
		if out.Source != "manual" || *out.Confidence != 1 || !out.LastClassifiedAt.Equal(now) || out.OwnerTeam != "sales" || out.Version != 2 {
			t.Errorf("ApplyClassification = %+v", out)
		}
		if !slices.Equal(out.Classification.Tags, []string{"pii", "regulated"}) {
			t.Errorf("tags = %v, want pii and regulated", out.Classification.Tags)
		}
		var templates []string
		for _, i := range out.Impacts {
			templates = append(templates, i.TemplateID+" "+i.Effect)
		}
		if !slices.Equal(templates, []string{"EGRESS_PII_MASKING suggested", "REGULATED_DATA_EGRESS suggested"}) {
			t.Errorf("impacts = %v", templates)
		}
		last := entries(t, c)[1]
		snap, _ := last.EventContext["resource_snapshot"].(map[string]any)
		if last.Type != "RESOURCE_UPDATED" || snap["version"] != 2.0 || snap["data_classification"] != "restricted" {
			t.Errorf("audit entry = %+v", last)
		}
		low := 0.7
		out, err = s.ApplyClassification(ctx, sc(""), r.ID, ClassificationChange{Source: "assist", Confidence: &low, EnrichmentChange: EnrichmentChange{PIICategories: patch.Clear[[]string]()}}, 0)
		if err != nil || out.Source != "assist" || *out.Confidence != 0.7 || out.Impacts[len(out.Impacts)-1].Effect != "no_longer_suggested" {
			t.Errorf("ApplyClassification of an assistant = %+v, %v", out, err)
		}
		_, err = s.ApplyClassification(ctx, sc(""), r.ID, ClassificationChange{EnrichmentChange: EnrichmentChange{ComplianceTags: patch.Set([]string{})}}, 0)
		wantKind(t, err, fault.Invalid, "/compliance_tags")
		if _, err = s.ApplyClassification(ctx, sc(scope.Production), r.ID, ClassificationChange{}, 0); !fault.Is(err, fault.NotFound) {
			t.Errorf("ApplyClassification from production: got %v, want not found", err)
		}
	})
}

// TestClassifyBulk: a batch fills what is empty and changes nothing that a person set, in one revision.
func TestClassifyBulk(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		at := now
		s.Now = func() time.Time { at = at.Add(time.Second); return at }
		plain := create(t, s, Draft{Name: "orders"})
		llm := create(t, s, Draft{Name: "gw", URL: "https://api.openai.com/v1/chat/completions", EnrichmentChange: EnrichmentChange{
			DataClassification: patch.Set("public"), AIProvider: patch.Set("azure"),
		}})
		pii := create(t, s, Draft{Name: "medical card"})
		manual := create(t, s, Draft{Name: "mcp by hand"})
		errtest.Must(t, errtest.Of(s.ApplyClassification(ctx, sc(""), manual.ID, ClassificationChange{EnrichmentChange: EnrichmentChange{Kind: patch.Set("tool")}}, 0)))
		elsewhere := create(t, s, Draft{Name: "mcp", Environment: scope.Production})
		broken := create(t, s, Draft{Name: "broken"})
		spoil(t, c, broken.ID)

		before, rows := revision(t, c, scope.Sandbox), len(entries(t, c))
		out, err := s.ClassifyBulk(ctx, sc(scope.Sandbox), 100)
		errtest.Must(t, err)
		want := fmt.Sprintf("%d: not an e-mail address", broken.ID)
		if out.Environment != scope.Sandbox || out.Examined != 4 || out.Classified != 3 || out.Unchanged != 0 || out.Skipped != 1 || !slices.Equal(out.Errors, []string{want}) {
			t.Errorf("ClassifyBulk = %+v", out)
		}
		read := func(id int64) Resource {
			t.Helper()
			r, err := s.Get(ctx, sc(""), id)
			errtest.Must(t, err)
			return r
		}
		if r := read(llm.ID); r.Kind != "llm_endpoint" || r.AIProvider != "azure" || r.DataClassification != "public" || r.Source != "heuristic" || *r.Confidence != 0.7 || r.LastClassifiedAt == nil || r.Version != 2 {
			t.Errorf("the model endpoint = %+v, want only its empty members filled", r)
		}
		if r := read(pii.ID); r.DataClassification != "restricted" || !slices.Equal(r.ComplianceTags, []string{"HIPAA", "PCI-DSS"}) || !slices.Equal(r.PIICategories, []string{"card_numbers", "health_records"}) {
			t.Errorf("the medical card = %+v", r)
		}
		if r := read(plain.ID); r.Kind != "api" || r.DataClassification != "" || *r.Confidence != 0.4 {
			t.Errorf("the orders = %+v", r)
		}
		if r := read(manual.ID); r.Kind != "tool" || r.Source != "manual" || r.Version != 2 {
			t.Errorf("a resource that a person classified = %+v, want it unchanged", r)
		}
		if r := read(elsewhere.ID); r.Source != "" {
			t.Errorf("a resource of production = %+v, want it unchanged", r)
		}
		if got := revision(t, c, scope.Sandbox); got != before+1 {
			t.Errorf("revision = %d, want %d", got, before+1)
		}
		log := entries(t, c)
		if len(log) != rows+1 || log[rows].Type != "RESOURCE_UPDATED" || log[rows].Changes["classified"] != 3.0 || len(log[rows].EventContext["resources"].([]any)) != 3 {
			t.Errorf("%d new audit entries, the last %+v, want 1 for 3 resources", len(log)-rows, log[len(log)-1])
		}

		// A second call finds nothing to fill in, and the revision stays.
		out, err = s.ClassifyBulk(ctx, sc(scope.Sandbox), 100)
		if err != nil || out.Classified != 0 || out.Unchanged != 3 || len(out.Errors) != 1 {
			t.Errorf("ClassifyBulk again = %+v, %v, want 3 unchanged", out, err)
		}
		if got := revision(t, c, scope.Sandbox); got != before+1 || read(llm.ID).Version != 2 {
			t.Errorf("revision after a call without changes = %d, want %d", got, before+1)
		}
		// With a limit, repeated calls reach all: first the unclassified resources, then those
		// classified longest ago.
		fresh := create(t, s, Draft{Name: "vector"})
		if out, err = s.ClassifyBulk(ctx, sc(scope.Sandbox), 2); err != nil || out.Examined != 2 || out.Classified != 1 || read(fresh.ID).Kind != "rag_index" {
			t.Errorf("ClassifyBulk of 2 = %+v, %v, want the new resource classified", out, err)
		}
		// A resource that cannot be classified is examined, too, and does not block the others.
		late := create(t, s, Draft{Name: "vector index"})
		if out, err = s.ClassifyBulk(ctx, sc(scope.Sandbox), 1); err != nil || out.Classified != 1 || read(late.ID).Kind != "rag_index" {
			t.Errorf("ClassifyBulk of 1 = %+v, %v, want the new resource before the one that fails", out, err)
		}
		if r := read(broken.ID); r.Source != "" || r.Version != 1 {
			t.Errorf("a resource that cannot be classified = %+v, want it unchanged", r)
		}
		if out, err = s.ClassifyBulk(ctx, scope.Scope{Tenant: dbtest.Second}, 100); err != nil || out.Examined != 0 || out.Environment != scope.Sandbox {
			t.Errorf("ClassifyBulk of an empty tenant = %+v, %v", out, err)
		}
	})
}

// spoil stores an enrichment that no request could set.
func spoil(t *testing.T, c *db.Cluster, id int64) {
	t.Helper()
	errtest.Must(t, c.Write(context.Background(), scope.DefaultTenant, func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), `UPDATE resources SET owner_email = 'nobody' WHERE id = $1`, id)
		return err
	}))
}

// TestCanary: the owner's e-mail address is not in audit entries, events or texts of documents, even if
// somebody wrote it into the business context.
func TestCanary(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		r := create(t, s, Draft{Name: "crm", EnrichmentChange: EnrichmentChange{OwnerEmail: patch.Set("canary@corp.example"), BusinessContext: patch.Set("ask canary@corp.example")}})
		out, err := s.Enrich(ctx, sc(""), r.ID, EnrichmentChange{BusinessContext: patch.Set("ask canary@corp.example, or not"), Kind: patch.Set("tool")}, 0)
		if err != nil || out.BusinessContext != "ask canary@corp.example, or not" {
			t.Fatalf("Enrich = %+v, %v", out, err)
		}
		errtest.Must(t, errtest.Of(s.ApplyClassification(ctx, sc(""), r.ID, ClassificationChange{EnrichmentChange: EnrichmentChange{BusinessContext: patch.Set("canary@corp.example again")}}, 0)))
		rows, err := json.Marshal(entries(t, c))
		if err != nil || strings.Contains(string(rows), "canary") {
			t.Errorf("audit = %s, %v, want no address", rows, err)
		}
		if !strings.Contains(string(rows), "business_context") {
			t.Errorf("audit = %s, want the change of business_context", rows)
		}
		doc, err := out.Doc()
		text := string(doc.Doc.AppendJSON(nil))
		if err != nil || strings.Count(text, "canary") != 1 || !strings.Contains(text, `"business_context":"ask [e-mail], or not"`) {
			t.Errorf("document = %s, want the address only in owner_email", text)
		}
	})
}

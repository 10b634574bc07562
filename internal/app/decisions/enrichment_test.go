package decisions_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// seesEnrichment is a control that decides by the enrichment and shows as its
// reason which members of it are there.
const seesEnrichment = `package enriched

default allow := false

allow if {
	input.resource.data_classification == "restricted"
	"GDPR" in input.resource.compliance_tags
}

reason := concat(",", sort([k | some k, _ in input.resource])) if not allow
`

// canary is personal data that must be nowhere but in the resource itself.
const canary = "canary@corp.example"

// TestEnrichment: what an operator says of a resource reaches every decision,
// here and at the bouncer, and the audit; owner_email reaches neither.
func TestEnrichment(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		upstream, _ := apptest.Application(t)
		a := s.Admin
		a.Do(t, "PUT", "/environments/sandbox/enforcement", body{"mode": "enforce"}).Want(200)
		id := a.Do(t, "POST", "/resources", body{"name": "Payroll", "type": "api", "path": "/employees/**", "environment": "sandbox"}).Want(201).ID()
		bouncer := s.Bouncer(t, a, body{"name": "payroll", "environment": "sandbox"}, upstream)
		policy := a.Do(t, "POST", "/policies", body{
			"name": "enriched", "rego_code": seesEnrichment, "environment": "sandbox", "resource_id": id, "bouncer_id": bouncer.ID, "status": "active",
		}).Want(201).ID()
		path := fmt.Sprintf("/resources/%d", id)
		caller := bouncer.As("ann", "staff")
		apptest.WaitForStatus(t, caller, "/employees/1", 403, 5*time.Second)

		// Nothing is set, so nothing of it is in the input.
		ask := body{"user": body{"id": "ann"}, "resource": body{"id": id}, "action": body{"name": "read", "method": "GET"}}
		if got := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", ask).Want(200); got.Get("decision") != "DENY" || got.Get("reason") != "environment,id,name,path,type" {
			t.Errorf("the bare resource: %s", got.Body)
		}

		// Who may.
		s.Key(t, a, "sandbox", "resources:read").Do(t, "PUT", path+"/enrich", body{"sla_tier": "gold"}).Want(403)
		editor := s.Key(t, a, "sandbox", "resources:write")
		for member, v := range map[string]any{
			"resource_kind": "toaster", "data_classification": "secret", "audit_level": "all", "sla_tier": "platinum", "ai_provider": "acme", "owner_email": "nobody",
			"business_context": strings.Repeat("x", 501), "agent_capabilities": []string{"fly"}, "pii_categories": []string{"dna"}, "egress_destinations": []string{"a b"}, "unknown_member": 1,
		} {
			if res := editor.Do(t, "PUT", path+"/enrich", body{member: v}).Want(422); !bytes.Contains(res.Body, []byte("/"+member)) {
				t.Errorf("%s: %s", member, res.Body)
			}
		}
		if res := editor.Do(t, "PUT", path+"/enrich", body{"data_classification": "restricted"}).Want(422); !bytes.Contains(res.Body, []byte("/compliance_tags")) {
			t.Errorf("the compliance-tag rule: %s", res.Body)
		}
		a.Do(t, "PUT", path+"/enrich?environment=production", body{"sla_tier": "gold"}).Want(404)

		res := editor.Do(t, "PUT", path+"/enrich", body{
			"data_classification": "restricted", "compliance_tags": []string{"GDPR"}, "pii_categories": []string{"ssn"}, "owner_email": canary,
			"business_context": "salaries; ask " + canary, "audit_level": "detailed",
		}).Want(200)
		var out struct {
			Version int64
			Impacts []struct {
				PolicyID   int64  `json:"policy_id"`
				TemplateID string `json:"template_id"`
				Effect     string
				Detail     string
			}
		}
		res.Into(&out)
		var impacts []string
		for _, i := range out.Impacts {
			impacts = append(impacts, fmt.Sprint(i.PolicyID, i.TemplateID, " ", i.Effect))
		}
		if want := []string{fmt.Sprint(policy, " input_changed"), "0EGRESS_PII_MASKING suggested", "0REGULATED_DATA_EGRESS suggested", "0DETAILED_AUDIT_TRAIL suggested"}; !slices.Equal(impacts, want) || out.Version != 2 {
			t.Errorf("version %d, impacts %q, want %q", out.Version, impacts, want)
		}
		a.Do(t, "PUT", path+"/enrich", body{"sla_tier": "gold"}).Want(200)
		a.With("If-Match", `"2"`).Do(t, "PUT", path+"/enrich", body{"sla_tier": "gold"}).Want(412)

		// It decides, here and there, without waiting for a poll.
		if got := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", ask).Want(200); got.Get("decision") != "PERMIT" {
			t.Errorf("the enriched resource: %s", got.Body)
		}
		apptest.WaitForStatus(t, caller, "/employees/1", 200, 5*time.Second)

		// The audit has the regimes and the snapshot, and not the address.
		apptest.Eventually(t, 30*time.Second, func() error {
			logs := a.Do(t, "GET", "/decisions/audit?environment=sandbox&decision=PERMIT", nil).Want(200)
			if n := bytes.Count(logs.Body, []byte(`"regulation_tags":["GDPR"]`)); n < 2 || bytes.Contains(logs.Body, []byte("canary")) {
				return fmt.Errorf("%d of two decisions have the tag: %s", n, logs.Body)
			}
			return nil
		})
		events := a.Do(t, "GET", "/audit/events?type=RESOURCE_UPDATED&object_id="+fmt.Sprint(id), nil).Want(200)
		for _, text := range []string{`"resource_snapshot"`, `"version":2`, `"version":3`, `"data_classification":"restricted"`} {
			if !bytes.Contains(events.Body, []byte(text)) {
				t.Errorf("no %s in %s", text, events.Body)
			}
		}
		for where, text := range map[string][]byte{"audit events": events.Body, "bundle": bundle(t, s, bouncer)} {
			if bytes.Contains(text, []byte("canary")) || bytes.Contains(text, []byte("owner_email\":\"")) {
				t.Errorf("owner_email is in the %s: %s", where, text)
			}
		}
	})
}

// bundle is what a bouncer is given, unpacked as far as gzip goes.
func bundle(t *testing.T, s *apptest.Server, b *apptest.BouncerProcess) []byte {
	t.Helper()
	c := s.Anonymous()
	c.Bearer = b.Token
	res := c.Do(t, http.MethodGet, fmt.Sprintf("/bridge/bundles/%d", b.ID), nil).Want(200)
	z, err := gzip.NewReader(bytes.NewReader(res.Body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || !bytes.Contains(text, []byte("restricted")) {
		t.Fatalf("no bundle with the enrichment: %v %s", err, text)
	}
	return text
}

package decisions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

const payrollControl = `package payroll

default allow := false

allow if {
	is_clerk
	input.user.attributes.password == "open sesame"
}

is_clerk if "clerk" in input.user.roles
`

// leakyControl is a control whose reason shows what no log may contain.
const leakyControl = `package tells

deny contains sprintf("%v of %v", [input.user.attributes.password, input.resource.owner_email]) if input.user.id == "ann"

allow if to_number(input.user.attributes.password) > 1
`

// TestReasonsInTheLog checks that the caller gets the author's reason unchanged, and that the log has no
// secret and no owner_email in a reason or an error, at any level.
func TestReasonsInTheLog(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		for _, level := range []string{"basic", "detailed", "comprehensive"} {
			path := "/" + level
			res := a.Do(t, "POST", "/resources", body{"name": level, "type": "api", "path": path, "environment": "sandbox", "audit_level": level}).Want(201).ID()
			a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", res), body{"owner_email": "boss@canary.example"}).Want(200)
			apptest.Activate(t, a, "Tells "+level, "sandbox", leakyControl, body{"resource_id": res})
			for user, want := range map[string]string{"ann": "canary-77 of boss@canary.example", "bob": "canary-77"} {
				ask := body{"user": body{"id": user, "attributes": body{"password": "canary-77"}}, "resource": body{"type": "api", "path": path}}
				d := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", ask).Want(200)
				if reason, _ := d.Get("reason").(string); !strings.Contains(reason, want) {
					t.Errorf("the decision for %s = %s, want the reason %q", user, d.Body, want)
				}
				one := a.Do(t, "GET", fmt.Sprintf("/decisions/audit/%v?environment=sandbox", d.Get("decision_id")), nil).Want(200)
				if one.Get("decision_id") != d.Get("decision_id") || one.Get("user", "id") != user || strings.Contains(string(one.Body), "canary") {
					t.Errorf("the entry at level %s = %s, want the decision without secrets", level, one.Body)
				}
				a.Do(t, "GET", fmt.Sprintf("/decisions/audit/%v?environment=production", d.Get("decision_id")), nil).Want(404)
				e := a.Do(t, "GET", fmt.Sprintf("/decisions/audit/%v/explanation", d.Get("decision_id")), nil).Want(200)
				if reason, _ := e.Get("reason").(string); strings.Contains(string(e.Body), "canary") || !strings.Contains(reason, "[redacted]") {
					t.Errorf("the explanation at level %s = %s, want it redacted", level, e.Body)
				}
			}
		}
		logs := a.Do(t, "GET", "/decisions/audit?environment=sandbox", nil).Want(200)
		if strings.Contains(string(logs.Body), "canary") || strings.Count(string(logs.Body), "[redacted] of [redacted]") < 3 {
			t.Errorf("the log = %s, want it redacted", logs.Body)
		}
	})
}

// TestWhyDenied checks that the explanation of a decision has the rule, the line and what was missing,
// and no secret, and that it says so if the log has no input.
func TestWhyDenied(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		ask := func(level string) *apptest.Response {
			res := a.Do(t, "POST", "/resources", body{"name": level, "type": "api", "path": "/" + level + "/**", "environment": "sandbox", "audit_level": level}).Want(201).ID()
			apptest.Activate(t, a, "Payroll "+level, "sandbox", payrollControl, body{"resource_id": res})
			d := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{
				"user":   body{"id": "ann", "roles": []string{"guest"}, "attributes": body{"password": "canary-77"}},
				"action": body{"name": "read"}, "resource": body{"type": "api", "path": "/" + level + "/1"},
			}).Want(200)
			if d.Get("decision") != "DENY" {
				t.Fatalf("the decision = %s, want DENY", d.Body)
			}
			e := a.Do(t, "GET", fmt.Sprintf("/decisions/audit/%v/explanation", d.Get("decision_id")), nil).Want(200)
			if strings.Contains(string(e.Body), "canary-77") {
				t.Errorf("the explanation at level %s has a secret: %s", level, e.Body)
			}
			return e
		}
		for _, level := range []string{"detailed", "comprehensive"} {
			e := ask(level)
			var got struct {
				Available    bool
				Text, Public string
				Explanations []struct {
					Rule    string
					Line    int
					Nearest struct {
						Line    int
						Missing []struct {
							Line   int
							Source string
						}
					}
				}
			}
			if err := e.Decode(&got); err != nil || !got.Available || len(got.Explanations) != 1 {
				t.Fatalf("the explanation at level %s = %s (%v), want one", level, e.Body, err)
			}
			x := got.Explanations[0]
			if x.Rule != "allow" || x.Line != 3 || x.Nearest.Line != 5 || len(x.Nearest.Missing) != 2 ||
				x.Nearest.Missing[0].Line != 10 || x.Nearest.Missing[0].Source != `"clerk" in input.user.roles` || x.Nearest.Missing[1].Line != 7 {
				t.Errorf("the explanation at level %s = %s, want allow in line 3, nearest line 5, and what is missing", level, e.Body)
			}
			if !strings.Contains(got.Text, `"clerk" in input.user.roles`) || strings.Contains(got.Public, "clerk") || strings.Contains(got.Public, "Payroll") {
				t.Errorf("the explanation at level %s has the text %q and the public text %q, want the rule only in the first", level, got.Text, got.Public)
			}
		}
		if e := ask("basic"); e.Get("available") != true || e.Get("note") == nil || len(e.Get("explanations").([]any)) == 0 { // from the input for replay
			t.Errorf("the explanation at level basic = %s, want one with a note", e.Body)
		}
		log := a.Do(t, "GET", "/decisions/audit?environment=sandbox", nil).Want(200)
		if strings.Contains(string(log.Body), "canary-77") {
			t.Errorf("the log has a secret: %s", log.Body)
		}
		var page struct {
			Logs []struct {
				AuditLevel  string `json:"audit_level"`
				Trace       []struct{ StepType string }
				Explanation []any
			}
		}
		log.Into(&page)
		for _, l := range page.Logs {
			if (len(l.Explanation) > 0) != (l.AuditLevel != "basic") || (len(l.Trace) > 2) != (l.AuditLevel == "comprehensive") {
				t.Errorf("the log at level %s has %d explanations and %d steps, want explanations above basic and steps for comprehensive", l.AuditLevel, len(l.Explanation), len(l.Trace))
			}
		}
		a.Do(t, "GET", "/decisions/audit/no-such-decision/explanation", nil).Want(404)
	})
}

// TestWhyDeniedAtBouncer checks that a refused person gets a text without the control's name or rules,
// and that an administrator finds the explanation by the decision's id.
func TestWhyDeniedAtBouncer(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	res := a.Do(t, "POST", "/resources", body{"name": "pay", "type": "api", "path": "/pay/**", "environment": "sandbox", "audit_level": "detailed"}).Want(201).ID()
	apptest.Activate(t, a, "Secret payroll control", "sandbox", strings.ReplaceAll(payrollControl, `input.user.attributes.password == "open sesame"`, `input.action.method == "GET"`), body{"resource_id": res})
	own := a.Do(t, "POST", "/resources", body{"name": "shop", "type": "api", "path": "/shop/**", "environment": "sandbox"}).Want(201).ID()
	apptest.Activate(t, a, "Shop", "sandbox", "package shop\n\ndeny contains \"The shop is closed on Sundays.\" if true\n", body{"resource_id": own})
	apptest.Enforce(t, a, "sandbox")
	app := apptest.NewBackend(t, nil)
	b := s.Bouncer(t, a, body{"name": "gate", "environment": "sandbox", "resource_ids": []int64{res, own}}, app.Addr)
	c := &apptest.Client{Base: b.URL}
	apptest.WaitForStatus(t, c, "/pay/1", 403, 5*time.Second)
	no := c.Do(t, "GET", "/pay/1", nil).Want(403)
	text, _ := no.Get("message").(string)
	if text == "" || strings.Contains(text, "payroll") || strings.Contains(text, "clerk") || strings.Contains(text, "allow") {
		t.Errorf("the person gets the text %q, want one without the control", text)
	}
	if m := c.Do(t, "GET", "/shop/1", nil).Want(403).Get("message"); m != "The shop is closed on Sundays." {
		t.Errorf("the person gets %q, want the author's reason", m)
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		e := a.Do(t, "GET", fmt.Sprintf("/decisions/audit/%v/explanation", no.Get("decision_id")), nil)
		if e.Status != 200 {
			return fmt.Errorf("the explanation = %d %s, want 200", e.Status, e.Body)
		}
		if e.Get("available") != true || e.Get("public") != text {
			return fmt.Errorf("the explanation = %s, want the public text %q", e.Body, text)
		}
		if got, _ := e.Get("text").(string); !strings.Contains(got, `"clerk" in input.user.roles`) {
			return fmt.Errorf("the explanation's text is %s, want the missing condition", got)
		}
		return nil
	})
}

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

// tellsAll is a control that writes into its reason what no log may hold.
const tellsAll = `package tells

deny contains sprintf("%v of %v", [input.user.attributes.password, input.resource.owner_email]) if input.user.id == "ann"

allow if to_number(input.user.attributes.password) > 1
`

// TestReasonsInTheLog: the caller is given the author's reason as it is; the log
// has neither secret nor owner_email in it, nor in an error, at any level.
func TestReasonsInTheLog(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		for _, level := range []string{"basic", "detailed", "comprehensive"} {
			path := "/" + level
			res := a.Do(t, "POST", "/resources", body{"name": level, "type": "api", "path": path, "environment": "sandbox", "audit_level": level}).Want(201).ID()
			a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", res), body{"owner_email": "boss@canary.example"}).Want(200)
			apptest.Activate(t, a, "Tells "+level, "sandbox", tellsAll, body{"resource_id": res})
			for user, want := range map[string]string{"ann": "canary-77 of boss@canary.example", "bob": "canary-77"} {
				ask := body{"user": body{"id": user, "attributes": body{"password": "canary-77"}}, "resource": body{"type": "api", "path": path}}
				d := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", ask).Want(200)
				if reason, _ := d.Get("reason").(string); !strings.Contains(reason, want) {
					t.Errorf("the caller is told %s", d.Body)
				}
				one := a.Do(t, "GET", fmt.Sprintf("/decisions/audit/%v?environment=sandbox", d.Get("decision_id")), nil).Want(200)
				if one.Get("decision_id") != d.Get("decision_id") || one.Get("user", "id") != user || strings.Contains(string(one.Body), "canary") {
					t.Errorf("%s: the entry is %s", level, one.Body)
				}
				a.Do(t, "GET", fmt.Sprintf("/decisions/audit/%v?environment=production", d.Get("decision_id")), nil).Want(404)
				e := a.Do(t, "GET", fmt.Sprintf("/decisions/audit/%v/explanation", d.Get("decision_id")), nil).Want(200)
				if reason, _ := e.Get("reason").(string); strings.Contains(string(e.Body), "canary") || !strings.Contains(reason, "[redacted]") {
					t.Errorf("%s: the explanation is %s", level, e.Body)
				}
			}
		}
		logs := a.Do(t, "GET", "/decisions/audit?environment=sandbox", nil).Want(200)
		if strings.Contains(string(logs.Body), "canary") || strings.Count(string(logs.Body), "[redacted] of [redacted]") < 3 {
			t.Errorf("the log: %s", logs.Body)
		}
	})
}

// TestWhyDenied: an administrator finds the rule, the line and what was missing
// behind a decision's id; the log keeps no secret for it, and where the input was
// not kept it says so.
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
				t.Fatalf("decided %s", d.Body)
			}
			e := a.Do(t, "GET", fmt.Sprintf("/decisions/audit/%v/explanation", d.Get("decision_id")), nil).Want(200)
			if strings.Contains(string(e.Body), "canary-77") {
				t.Errorf("%s: a secret is in the explanation: %s", level, e.Body)
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
				t.Fatalf("%s: %v %s", level, err, e.Body)
			}
			x := got.Explanations[0]
			if x.Rule != "allow" || x.Line != 3 || x.Nearest.Line != 5 || len(x.Nearest.Missing) != 2 ||
				x.Nearest.Missing[0].Line != 10 || x.Nearest.Missing[0].Source != `"clerk" in input.user.roles` || x.Nearest.Missing[1].Line != 7 {
				t.Errorf("%s: %s", level, e.Body)
			}
			if !strings.Contains(got.Text, `"clerk" in input.user.roles`) || strings.Contains(got.Public, "clerk") || strings.Contains(got.Public, "Payroll") {
				t.Errorf("%s: text %q, public %q", level, got.Text, got.Public)
			}
		}
		if e := ask("basic"); e.Get("available") != true || e.Get("note") == nil || len(e.Get("explanations").([]any)) == 0 { // from the input that is kept for replay
			t.Errorf("basic: %s", e.Body)
		}
		log := a.Do(t, "GET", "/decisions/audit?environment=sandbox", nil).Want(200)
		if strings.Contains(string(log.Body), "canary-77") {
			t.Errorf("a secret is in the log: %s", log.Body)
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
				t.Errorf("%s keeps %d explanations and %d steps", l.AuditLevel, len(l.Explanation), len(l.Trace))
			}
		}
		a.Do(t, "GET", "/decisions/audit/no-such-decision/explanation", nil).Want(404)
	})
}

// TestWhyDeniedAtBouncer: a person who is refused gets words without the
// control's name or rules, and the decision's id leads an administrator to the
// same explanation that the server gives.
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
		t.Errorf("the person is told %q", text)
	}
	if m := c.Do(t, "GET", "/shop/1", nil).Want(403).Get("message"); m != "The shop is closed on Sundays." {
		t.Errorf("the author's own reason is %q", m)
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		e := a.Do(t, "GET", fmt.Sprintf("/decisions/audit/%v/explanation", no.Get("decision_id")), nil)
		if e.Status != 200 {
			return fmt.Errorf("%d %s", e.Status, e.Body)
		}
		if e.Get("available") != true || e.Get("public") != text {
			return fmt.Errorf("%s", e.Body)
		}
		if got, _ := e.Get("text").(string); !strings.Contains(got, `"clerk" in input.user.roles`) {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
}

package decisions_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

const salaries = `package salaries

default allow := false

allow if {
	input.user.role == "hr"
	input.resource.data_classification != "restricted"
}

allow if {
	input.user.department == "finance"
	input.action.method == "GET"
	data.resources[format_int(input.resource.id, 10)].owner_team == "people"
}

mask["salary"] := "redact" if {
	input.user.role == "hr"
	not input.user.clearance
}

deny contains "not on Sundays" if input.context.day == "sunday"

reason := "only HR and finance may read salaries" if not allow
`

type simulation struct {
	ID       int64   `json:"simulation_id"`
	Decision string  `json:"decision"`
	Reason   string  `json:"reason"`
	Took     float64 `json:"execution_time_ms"`
	Checksum string  `json:"checksum"`
	Trace    []struct {
		Number      int            `json:"step_number"`
		Type        string         `json:"step_type"`
		Description string         `json:"description"`
		Details     map[string]any `json:"details"`
	} `json:"trace"`
	Explanation struct {
		Rule string `json:"rule"`
		Line int    `json:"line"`
		Text string `json:"text"`
	} `json:"explanation"`
	Input     map[string]any `json:"input_json"`
	Evaluated map[string]any `json:"evaluated_input"`
	Output    map[string]any `json:"output_json"`
	Notes     []string       `json:"notes"`
	Timestamp string         `json:"timestamp"`
	TestType  string         `json:"test_type"`
}

// desk is a tenant with a control on salaries and its resource.
type desk struct {
	t                *testing.T
	s                *apptest.Server
	a                *apptest.Client
	resource, policy int64
}

func newDesk(t *testing.T, s *apptest.Server, status string) *desk {
	t.Helper()
	d := &desk{t: t, s: s, a: s.Admin}
	d.resource = d.a.Do(t, "POST", "/resources", body{
		"name": "Salaries", "type": "api", "path": "/salaries/**", "methods": []string{"GET", "POST"}, "environment": "sandbox",
	}).Want(201).ID()
	d.a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", d.resource), body{
		"data_classification": "confidential", "compliance_tags": []string{"GDPR"}, "owner_team": "people", "owner_email": "boss@example.com",
	}).Want(200)
	d.policy = d.control(body{"name": "salaries", "rego_code": salaries, "resource_id": d.resource, "status": status})
	return d
}

func (d *desk) control(draft body) int64 {
	d.t.Helper()
	if draft["environment"] == nil {
		draft["environment"] = "sandbox"
	}
	return d.a.Do(d.t, "POST", "/policies", draft).Want(201).ID()
}

func (d *desk) at(policy int64) string {
	return fmt.Sprintf("/pis/policies/%d/simulate?environment=sandbox", policy)
}

func (d *desk) run(input body) (got simulation) {
	d.t.Helper()
	d.a.Do(d.t, "POST", d.at(d.policy), body{"input_json": input}).Want(200).Into(&got)
	return got
}

// refused checks the simulator's error body: detail, and nothing else.
func refused(t *testing.T, res *apptest.Response, status int) string {
	t.Helper()
	var shape map[string]any
	if err := json.Unmarshal(res.Body, &shape); err != nil || res.Status != status || len(shape) != 1 {
		t.Errorf("answered %d %s, want %d and a detail", res.Status, res.Body, status)
	}
	detail, _ := shape["detail"].(string)
	if detail == "" {
		t.Errorf("no detail in %s", res.Body)
	}
	return detail
}

// TestSimulate: the four decisions with their trace, and what is kept of a run;
// live figures do not move.
func TestSimulate(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newDesk(t, s, "draft")
		a := d.a
		for want, input := range map[string]body{
			"ALLOW":    {"user": body{"role": "hr", "clearance": 3}},
			"MASK":     {"user": body{"role": "hr"}},
			"DENY":     {"user": body{"role": "intern"}, "action": body{"method": "GET"}},
			"NO_MATCH": {"user": body{"role": "hr"}},
		} {
			if want == "NO_MATCH" {
				continue
			}
			got := d.run(input)
			if got.Decision != want || got.Reason == "" || got.ID == 0 || got.Took <= 0 || got.TestType != "manual" || !strings.HasSuffix(got.Timestamp, "Z") {
				t.Errorf("want %s: %+v", want, got)
			}
			first, last := got.Trace[0], got.Trace[len(got.Trace)-1]
			if first.Type != "policy_matched" || last.Type != "final_decision" || !strings.Contains(last.Description, want) {
				t.Errorf("%s: the trace goes from %+v to %+v", want, first, last)
			}
			told := map[string]bool{}
			for i, step := range got.Trace {
				if at := fmt.Sprint(step.Details["rule"], step.Details["line"], step.Details["source"]); step.Type == "condition_eval" && told[at] {
					t.Errorf("%s: %+v is told twice", want, step)
				} else {
					told[at] = true
				}
				if step.Number != i+1 || step.Type == "condition_eval" && (step.Details["line"] == nil || strings.Contains(step.Description, "__local")) {
					t.Errorf("%s: step %d is %+v", want, i, step)
				}
			}
			if got.Output["effect"] != want || len(got.Notes) == 0 || !strings.Contains(got.Notes[0], "draft") {
				t.Errorf("%s: output %v, notes %v", want, got.Output, got.Notes)
			}
			if _, ok := got.Input["resource"]; ok {
				t.Errorf("%s: input_json is not what was sent: %v", want, got.Input)
			}
		}
		silent := d.control(body{"name": "silent", "rego_code": "package silent\n\nallow if input.user.id == \"nobody\"\n"})
		var none simulation
		a.Do(t, "POST", d.at(silent), body{"input_json": body{"user": body{"id": "ada"}}, "test_type": "regression"}).Want(200).Into(&none)
		if none.Decision != "NO_MATCH" || none.TestType != "regression" || none.Output["policy_id"] != nil {
			t.Errorf("a control that says nothing: %+v", none)
		}

		metrics := a.Do(t, "GET", fmt.Sprintf("/policies/%d", d.policy), nil).Want(200)
		if n := metrics.Get("performance_metrics", "total_evaluations"); n != 0.0 {
			t.Errorf("simulating counted %v evaluations", n)
		}
		if n := a.Do(t, "GET", "/decisions/audit?environment=sandbox", nil).Want(200).Get("total"); n != 0.0 {
			t.Errorf("simulating left %v decisions", n)
		}
		var events struct {
			Events []struct {
				ObjectID string         `json:"object_id"`
				Context  map[string]any `json:"event_context"`
			} `json:"events"`
		}
		a.Do(t, "GET", "/audit/events?type=POLICY_SIMULATION_RUN", nil).Want(200).Into(&events)
		if len(events.Events) != 4 || events.Events[0].ObjectID != fmt.Sprint(silent) || events.Events[0].Context["checksum"] != none.Checksum ||
			events.Events[0].Context["simulation_id"] != float64(none.ID) || events.Events[0].Context["decision"] != "NO_MATCH" {
			t.Errorf("the audit says %+v", events)
		}
		if v := a.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
			t.Errorf("the audit does not verify: %v", v)
		}
	})
}

// TestSimulateAgrees: on the same control and the same request, a simulation
// says what a live decision says, whatever comes from the resource, the data
// and the stored user.
func TestSimulateAgrees(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newDesk(t, s, "active")
		id, _ := d.a.Do(t, "POST", "/users", body{
			"username": "fin", "email": "fin@example.com", "password": apptest.Password, "roles": []string{"viewer"}, "department": "finance",
		}).Want(201).Get("id").(string)
		resources := []body{
			{"type": "api", "path": "/salaries/7"},
			{"path": "//salaries/./7"},
			{"id": d.resource},
			{"type": "api", "path": "/salaries/7", "data_classification": "confidential"},
		}
		users := []body{{"id": id}, {"id": "x", "role": "hr"}, {"id": "x", "role": "hr", "clearance": 1}, {"id": "x", "role": "intern", "department": "finance"}, {"id": "x"}}
		for _, resource := range resources {
			for _, user := range users {
				for _, rest := range []body{{"action": body{"method": "GET"}}, {"action": body{"method": "POST"}, "context": body{"day": "sunday"}}} {
					input := body{"user": user, "resource": resource, "action": rest["action"]}
					if rest["context"] != nil {
						input["context"] = rest["context"]
					}
					live := d.a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", input).Want(200)
					got := d.run(input)
					if got.Output["decision"] != live.Get("decision") || got.Reason != live.Get("reason") || len(got.Notes) != 0 {
						t.Errorf("on %v a simulation says %s (%s, %v), live it is %s", input, got.Decision, got.Reason, got.Notes, live.Body)
					}
				}
			}
		}
		// What was sent stays, for "what if"; where that is not what live says, a note tells.
		got := d.run(body{"user": body{"role": "hr", "clearance": 1}, "resource": body{"path": "/salaries/1", "data_classification": "restricted"}})
		if got.Decision != "DENY" || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], `a live decision uses the registered resource, with "confidential"`) {
			t.Errorf("what if it were restricted: %s %v", got.Decision, got.Notes)
		}
		// Another resource's request: the control is tried, and the note says that it would not be.
		got = d.run(body{"user": body{"role": "hr"}, "resource": body{"path": "/elsewhere"}})
		if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "matches no registered resource") {
			t.Errorf("a request about something else: %v", got.Notes)
		}
		// Who may not read users is not shown a stored one.
		author := s.Key(t, d.a, "sandbox", "simulator:write", "policies:read")
		author.Bearer, author.APIKey = author.APIKey, ""
		var blind simulation
		author.Do(t, "POST", d.at(d.policy), body{"input_json": body{"user": body{"id": id}}}).Want(200).Into(&blind)
		if user, _ := blind.Evaluated["user"].(map[string]any); user["department"] != nil || !strings.Contains(strings.Join(blind.Notes, " "), "users:read") {
			t.Errorf("a key without users:read: %v %v", blind.Evaluated, blind.Notes)
		}
	})
}

// TestSimulatorLists: what can be loaded, what a control reads, histories and scenarios.
func TestSimulatorLists(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newDesk(t, s, "active")
		a := d.a
		var list []body
		a.Do(t, "GET", "/pis/policies/loadable?environment=sandbox", nil).Want(200).Into(&list)
		if len(list) != 1 || list[0]["status"] != "enabled" || list[0]["resource_name"] != "Salaries" || list[0]["bouncer_name"] != nil || fmt.Sprint(list[0]["target_action"]) != "[GET]" {
			t.Errorf("loadable: %v", list)
		}
		if got := a.Do(t, "GET", "/pis/policies/loadable?environment=production", nil).Want(200); string(bytes.TrimSpace(got.Body)) != "[]" {
			t.Errorf("production has %s", got.Body)
		}
		var attributes []struct{ Key, Type string }
		a.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/attributes", d.policy), nil).Want(200).Into(&attributes)
		types := map[string]string{}
		for _, at := range attributes {
			types[at.Key] = at.Type
		}
		for key, want := range map[string]string{"user.role": "string", "resource.id": "number", "action.method": "string", "context.day": "string"} {
			if types[key] != want {
				t.Errorf("%s is a %q: %v", key, types[key], attributes)
			}
		}

		made := a.Do(t, "POST", "/pis/scenarios", body{"policy_id": d.policy, "name": "intern", "description": "may not", "attributes": body{"user.role": "intern", "action.method": "GET"}}).Want(201)
		scenario := fmt.Sprintf("/pis/scenarios/%d", made.ID())
		if made.Get("policy_name") != "salaries" || made.Get("last_used") != nil {
			t.Errorf("the scenario: %s", made.Body)
		}
		var got simulation
		a.Do(t, "POST", d.at(d.policy), body{"scenario_id": made.ID()}).Want(200).Into(&got)
		if got.Decision != "DENY" || got.TestType != "scenario" || fmt.Sprint(got.Input["user"]) != "map[role:intern]" {
			t.Errorf("the scenario's run: %+v", got)
		}
		if used := a.Do(t, "GET", scenario, nil).Want(200).Get("last_used"); used != got.Timestamp {
			t.Errorf("last used %v, it ran at %s", used, got.Timestamp)
		}
		a.Do(t, "PUT", scenario, body{"name": "trainee", "attributes": body{"user.role": "trainee"}}).Want(200)
		if now := a.Do(t, "GET", scenario, nil).Want(200); now.Get("name") != "trainee" || now.Get("description") != "may not" {
			t.Errorf("after the update: %s", now.Body)
		}
		var scenarios []body
		a.Do(t, "GET", fmt.Sprintf("/pis/scenarios?policy_id=%d", d.policy), nil).Want(200).Into(&scenarios)
		if len(scenarios) != 1 || scenarios[0]["name"] != "trainee" {
			t.Errorf("scenarios: %v", scenarios)
		}
		other := d.control(body{"name": "other", "rego_code": "package other\n\nallow := true\n"})
		refused(t, a.Do(t, "POST", d.at(other), body{"scenario_id": made.ID()}), 404)
		if msg := a.Do(t, "DELETE", scenario, nil).Want(200).Get("message"); msg == nil {
			t.Error("the deletion says nothing")
		}
		refused(t, a.Do(t, "GET", scenario, nil), 404)
		refused(t, a.Do(t, "POST", "/pis/scenarios", body{"policy_id": d.policy, "name": "x", "attributes": body{"user": "ada", "user.role": "hr"}}), 400)

		for range 3 {
			a.Do(t, "POST", d.at(other), body{"input_json": body{"user": body{"id": "ada"}, "action": body{"method": "GET"}}}).Want(200)
		}
		var h struct {
			Entries              []body
			Total, Limit, Offset int
			HasMore              bool `json:"has_more"`
		}
		a.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/test-history?limit=2", other), nil).Want(200).Into(&h)
		if len(h.Entries) != 2 || h.Total != 3 || h.Limit != 2 || !h.HasMore || h.Entries[0]["input_summary"] != "user.id=ada action.method=GET" || h.Entries[0]["user"] != "admin" || h.Entries[0]["can_export"] != true {
			t.Errorf("history: %+v", h)
		}
		a.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/test-history?limit=2&offset=2", other), nil).Want(200).Into(&h)
		if len(h.Entries) != 1 || h.HasMore || h.Offset != 2 {
			t.Errorf("the end of the history: %+v", h)
		}
		if total := a.Do(t, "GET", "/pis/test-history?start_date=2020-01-01", nil).Want(200).Get("total"); total != 4.0 {
			t.Errorf("own history: %v", total)
		}
		if total := a.Do(t, "GET", "/pis/test-history?end_date=2020-01-01", nil).Want(200).Get("total"); total != 0.0 {
			t.Errorf("before there was anything: %v", total)
		}
		sum := 0
		for _, decision := range []string{"ALLOW", "DENY", "MASK", "NO_MATCH"} {
			for _, path := range []string{"/pis/test-history?decision=", fmt.Sprintf("/pis/policies/%d/test-history?decision=", other)} {
				h.Entries = nil
				a.Do(t, "GET", path+decision, nil).Want(200).Into(&h)
				sum += h.Total
				if len(h.Entries) != h.Total || slices.ContainsFunc(h.Entries, func(e body) bool { return e["decision"] != decision }) {
					t.Errorf("%s%s: %+v", path, decision, h)
				}
			}
		}
		if sum != 4+3 {
			t.Errorf("by decision there are %d runs in all", sum)
		}
		if h := a.Do(t, "GET", "/pis/test-history", nil).Want(200); h.Get("limit") != 50.0 || h.Get("offset") != 0.0 {
			t.Errorf("by default: %s", h.Body)
		}
	})
}

// TestSimulatorRefuses: the simulator's own statuses and its error body; other
// tenants, other environments, other people.
func TestSimulatorRefuses(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newDesk(t, s, "active")
		a := d.a
		path, input := d.at(d.policy), body{"input_json": body{"user": body{"id": "ada"}}}
		for _, c := range []struct {
			method, path string
			in           any
			want         int
		}{
			{"GET", "/pis/policies/loadable", nil, 400},
			{"GET", "/pis/policies/loadable?environment=test", nil, 400},
			{"POST", fmt.Sprintf("/pis/policies/%d/simulate", d.policy), input, 400},
			{"POST", fmt.Sprintf("/pis/policies/%d/simulate?environment=production", d.policy), input, 404},
			{"POST", d.at(987654), input, 404},
			{"POST", path, body{}, 400},
			{"POST", path, body{"input_json": []int{1}}, 400},
			{"POST", path, body{"input_json": body{}, "test_type": "wild"}, 400},
			{"POST", path, body{"input_json": body{}, "typo": 1}, 400},
			{"POST", path, []byte(`{"input_json":`), 400},
			{"POST", path, body{"input_json": body{}, "scenario_id": 987654}, 404},
			{"GET", "/pis/policies/987654/attributes", nil, 404},
			{"GET", "/pis/policies/987654/test-history", nil, 404},
			{"GET", "/pis/test-history?limit=201", nil, 400},
			{"GET", "/pis/test-history?limit=0", nil, 400},
			{"GET", "/pis/test-history?offset=-1", nil, 400},
			{"GET", "/pis/test-history?decision=PERMIT", nil, 400},
			{"GET", "/pis/test-history?start_date=yesterday", nil, 400},
			{"GET", "/pis/test-history?start_date=2026-02-01&end_date=2026-01-01", nil, 400},
			{"GET", "/pis/scenarios?policy_id=987654", nil, 404},
			{"POST", "/pis/scenarios", body{"policy_id": 987654, "name": "x"}, 404},
			{"POST", "/pis/scenarios?environment=production", body{"policy_id": d.policy, "name": "x"}, 404},
			{"POST", "/pis/scenarios", body{"policy_id": d.policy}, 400},
			{"PUT", "/pis/scenarios/987654", body{"name": "x"}, 404},
			{"DELETE", "/pis/scenarios/987654", nil, 404},
			{"POST", "/pis/export/987654?format=pdf", nil, 404},
			{"POST", "/pis/export/1", nil, 400},
			{"POST", "/pis/export/1?format=xls", nil, 400},
		} {
			refused(t, a.Do(t, c.method, c.path, c.in), c.want)
		}
		refused(t, s.Anonymous().Do(t, "POST", path, input), 401)
		key := s.Key(t, a, "sandbox", "simulator:write")
		refused(t, key.Do(t, "POST", path, input), 401) // not as X-API-Key
		bearer := *key
		bearer.Bearer, bearer.APIKey = key.APIKey, ""
		run := fmt.Sprintf("/pis/export/%.0f?format=json", bearer.Do(t, "POST", path, input).Want(200).Get("simulation_id"))
		bearer.Do(t, "POST", run, nil).Want(200)
		a.Do(t, "POST", run, nil).Want(200) // an administrator reads the audit
		other := s.Key(t, a, "sandbox", "simulator:write")
		other.Bearer, other.APIKey = other.APIKey, ""
		refused(t, other.Do(t, "POST", run, nil), 403)
		if can := other.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/test-history", d.policy), nil).Want(200); !bytes.Contains(can.Body, []byte(`"can_export":false`)) {
			t.Errorf("the history of somebody else: %s", can.Body)
		}
		reader := s.Key(t, a, "sandbox", "simulator:read")
		reader.Bearer, reader.APIKey = reader.APIKey, ""
		refused(t, reader.Do(t, "POST", path, input), 403)

		// Another tenant: nothing of this one is there.
		a.Do(t, "POST", "/tenants", body{"name": "Rival"}).Want(201)
		rival := a.With("X-Tenant-ID", "rival")
		refused(t, rival.Do(t, "POST", path, input), 404)
		refused(t, rival.Do(t, "POST", run, nil), 404)
		refused(t, rival.Do(t, "POST", "/pis/scenarios", body{"policy_id": d.policy, "name": "x"}), 404)
		if h := rival.Do(t, "GET", "/pis/test-history", nil).Want(200); h.Get("total") != 0.0 {
			t.Errorf("the other tenant's history: %s", h.Body)
		}
		a.Do(t, "DELETE", fmt.Sprintf("/policies/%d", d.policy), nil).Want(200)
		refused(t, a.Do(t, "POST", path, input), 404)
		refused(t, a.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/test-history", d.policy), nil), 404)
	})
}

// TestSimulationExport: three files of a run, none with a secret of its input,
// each with the checksum that can be computed.
func TestSimulationExport(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newDesk(t, s, "active")
		leaky := d.control(body{"name": "=leaky", "rego_code": "package leaky\n\nreason := sprintf(\"no to %s\", [input.user.password])\n\ndeny if input.user.password == \"hunter2hunter2\"\n"})
		res := d.a.Do(t, "POST", d.at(leaky), body{"input_json": body{"user": body{"id": "@eve", "name": "Zoë 张", "password": "hunter2hunter2"}}}).Want(200)
		var got simulation
		res.Into(&got)
		if got.Reason != "no to [redacted]" || fmt.Sprint(got.Input["user"]) != "map[id:@eve name:Zoë 张 password:hunter2hunter2]" {
			t.Errorf("the answer: %s", res.Body)
		}
		at := fmt.Sprintf("/pis/export/%d?format=", got.ID)
		for format, media := range map[string]string{"json": "application/json", "csv": "text/csv", "pdf": "application/pdf"} {
			file := d.a.Do(t, "POST", at+format, nil).Want(200)
			want := fmt.Sprintf(`attachment; filename="simulation-%d.%s"`, got.ID, format)
			if file.Header.Get("Content-Type") != media || file.Header.Get("Content-Disposition") != want || len(file.Body) < 500 {
				t.Errorf("%s: %v", format, file.Header)
			}
			if bytes.Contains(file.Body, []byte("hunter2")) {
				t.Errorf("the %s has the password", format)
			}
			switch format {
			case "json":
				var out struct {
					Checksum string
					Record   json.RawMessage
				}
				file.Into(&out)
				sum := sha256.Sum256(out.Record)
				if out.Checksum != got.Checksum || out.Checksum != "sha256:"+hex.EncodeToString(sum[:]) {
					t.Errorf("checksum %s, of the answer %s", out.Checksum, got.Checksum)
				}
			case "csv":
				rows, err := csv.NewReader(bytes.NewReader(file.Body)).ReadAll()
				if err != nil || !bytes.Contains(file.Body, []byte("'=leaky")) || !bytes.Contains(file.Body, []byte("'@eve")) {
					t.Errorf("%v: %v", err, rows)
				}
			case "pdf":
				if !bytes.HasPrefix(file.Body, []byte("%PDF-1.")) || !bytes.Contains(file.Body, []byte("%%EOF")) {
					t.Errorf("no PDF: %q", file.Body[:40])
				}
			}
		}
		if h := d.a.Do(t, "GET", "/pis/test-history", nil).Want(200); bytes.Contains(h.Body, []byte("hunter2")) {
			t.Errorf("the history has the password: %s", h.Body)
		}
		kept := s.StoredText(t)
		if i := strings.Index(strings.ReplaceAll(kept, "input.user.password == \\\"hunter2hunter2\\\"", ""), "no to hunter2"); i >= 0 {
			t.Errorf("the store has what the control said of the password")
		}
	})
}

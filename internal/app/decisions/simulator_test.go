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

// simulator is a tenant with a control on salaries and its resource.
type simulator struct {
	t                *testing.T
	s                *apptest.Server
	a                *apptest.Client
	resource, policy int64
}

func newSimulator(t *testing.T, s *apptest.Server, status string) *simulator {
	t.Helper()
	d := &simulator{t: t, s: s, a: s.Admin}
	d.resource = d.a.Do(t, "POST", "/resources", body{
		"name": "Salaries", "type": "api", "path": "/salaries/**", "methods": []string{"GET", "POST"}, "environment": "sandbox",
	}).Want(201).ID()
	d.a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", d.resource), body{
		"data_classification": "confidential", "compliance_tags": []string{"GDPR"}, "owner_team": "people", "owner_email": "boss@example.com",
	}).Want(200)
	d.policy = d.addControl(body{"name": "salaries", "rego_code": salaries, "resource_id": d.resource, "status": status})
	return d
}

func (d *simulator) addControl(draft body) int64 {
	d.t.Helper()
	if draft["environment"] == nil {
		draft["environment"] = "sandbox"
	}
	return d.a.Do(d.t, "POST", "/policies", draft).Want(201).ID()
}

func (d *simulator) path(policy int64) string {
	return fmt.Sprintf("/pis/policies/%d/simulate?environment=sandbox", policy)
}

func (d *simulator) run(input body) (got simulation) {
	d.t.Helper()
	d.a.Do(d.t, "POST", d.path(d.policy), body{"input_json": input}).Want(200).Into(&got)
	return got
}

// wantRefused checks that the error body has only a detail, and returns it.
func wantRefused(t *testing.T, res *apptest.Response, status int) string {
	t.Helper()
	var shape map[string]any
	if err := json.Unmarshal(res.Body, &shape); err != nil || res.Status != status || len(shape) != 1 {
		t.Errorf("the answer = %d %s, want %d and only a detail", res.Status, res.Body, status)
	}
	detail, _ := shape["detail"].(string)
	if detail == "" {
		t.Errorf("the refusal %s has no detail", res.Body)
	}
	return detail
}

// TestSimulate checks the four decisions with their traces, the stored run, and that live figures do not
// change.
func TestSimulate(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newSimulator(t, s, "draft")
		a := d.a
		for want, input := range map[string]body{
			"ALLOW": {"user": body{"role": "hr", "clearance": 3}},
			"MASK":  {"user": body{"role": "hr"}},
			"DENY":  {"user": body{"role": "intern"}, "action": body{"method": "GET"}},
		} {
			got := d.run(input)
			if got.Decision != want || got.Reason == "" || got.ID == 0 || got.Took <= 0 || got.TestType != "manual" || !strings.HasSuffix(got.Timestamp, "Z") {
				t.Errorf("the simulation = %+v, want %s", got, want)
			}
			first, last := got.Trace[0], got.Trace[len(got.Trace)-1]
			if first.Type != "policy_matched" || last.Type != "final_decision" || !strings.Contains(last.Description, want) {
				t.Errorf("the trace of %s goes from %+v to %+v, want from policy_matched to final_decision", want, first, last)
			}
			seen := map[string]bool{}
			for i, step := range got.Trace {
				if at := fmt.Sprint(step.Details["rule"], step.Details["line"], step.Details["source"]); step.Type == "condition_eval" && seen[at] {
					t.Errorf("the trace of %s has the step %+v twice", want, step)
				} else {
					seen[at] = true
				}
				if step.Number != i+1 || step.Type == "condition_eval" && (step.Details["line"] == nil || strings.Contains(step.Description, "__local")) {
					t.Errorf("the step %d of %s is %+v, want its number, its line and no internal name", i, want, step)
				}
			}
			if got.Output["effect"] != want || len(got.Notes) == 0 || !strings.Contains(got.Notes[0], "draft") {
				t.Errorf("the simulation of %s has the output %v and the notes %v, want the effect and a note about the draft", want, got.Output, got.Notes)
			}
			if _, ok := got.Input["resource"]; ok {
				t.Errorf("the simulation of %s has the input %v, want what was sent", want, got.Input)
			}
		}
		silent := d.addControl(body{"name": "silent", "rego_code": "package silent\n\nallow if input.user.id == \"nobody\"\n"})
		var none simulation
		a.Do(t, "POST", d.path(silent), body{"input_json": body{"user": body{"id": "ada"}}, "test_type": "regression"}).Want(200).Into(&none)
		if none.Decision != "NO_MATCH" || none.TestType != "regression" || none.Output["policy_id"] != nil {
			t.Errorf("the simulation of a silent control = %+v, want NO_MATCH", none)
		}

		metrics := a.Do(t, "GET", fmt.Sprintf("/policies/%d", d.policy), nil).Want(200)
		if n := metrics.Get("performance_metrics", "total_evaluations"); n != 0.0 {
			t.Errorf("the control has %v evaluations after simulations, want none", n)
		}
		if n := a.Do(t, "GET", "/decisions/audit?environment=sandbox", nil).Want(200).Get("total"); n != 0.0 {
			t.Errorf("the log has %v decisions after simulations, want none", n)
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
			t.Errorf("the audit has %+v, want 4 runs, the last of the silent control", events)
		}
		if v := a.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
			t.Errorf("GET /audit/verify = %v, want it valid", v)
		}
	})
}

// TestSimulateAgrees checks that a simulation of a control and a request has the result of a live
// decision, whatever comes from the resource, the data and the stored user.
func TestSimulateAgrees(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newSimulator(t, s, "active")
		id := d.a.Do(t, "POST", "/users", body{
			"username": "fin", "email": "fin@example.com", "password": apptest.Password, "roles": []string{"viewer"}, "department": "finance",
		}).Want(201).Text("id")
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
						t.Errorf("the simulation of %v = %s (%s, %v), want %s", input, got.Decision, got.Reason, got.Notes, live.Body)
					}
				}
			}
		}
		// The simulation uses the members that were sent. A note says where a live decision would not.
		got := d.run(body{"user": body{"role": "hr", "clearance": 1}, "resource": body{"path": "/salaries/1", "data_classification": "restricted"}})
		if got.Decision != "DENY" || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], `a live decision uses the registered resource, with "confidential"`) {
			t.Errorf("the simulation with a restricted resource = %s %v, want DENY and a note", got.Decision, got.Notes)
		}
		// For another resource's request, a note says that the control would not apply.
		got = d.run(body{"user": body{"role": "hr"}, "resource": body{"path": "/elsewhere"}})
		if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "matches no registered resource") {
			t.Errorf("the simulation for another resource has the notes %v, want one about that", got.Notes)
		}
		// A caller who may not read users does not see a stored one.
		author := bearer(t, s, "simulator:write", "policies:read")
		var blind simulation
		author.Do(t, "POST", d.path(d.policy), body{"input_json": body{"user": body{"id": id}}}).Want(200).Into(&blind)
		if user, _ := blind.Evaluated["user"].(map[string]any); user["department"] != nil || !strings.Contains(strings.Join(blind.Notes, " "), "users:read") {
			t.Errorf("the simulation without users:read has the input %v and the notes %v, want no stored user and a note", blind.Evaluated, blind.Notes)
		}
	})
}

// TestSimulatorLists checks the lists of controls, attributes, scenarios and runs.
func TestSimulatorLists(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newSimulator(t, s, "active")
		a := d.a
		var list []body
		a.Do(t, "GET", "/pis/policies/loadable?environment=sandbox", nil).Want(200).Into(&list)
		if len(list) != 1 || list[0]["status"] != "enabled" || list[0]["resource_name"] != "Salaries" || list[0]["bouncer_name"] != nil || fmt.Sprint(list[0]["target_action"]) != "[GET]" {
			t.Errorf("the loadable controls are %v, want salaries", list)
		}
		if got := a.Do(t, "GET", "/pis/policies/loadable?environment=production", nil).Want(200); string(bytes.TrimSpace(got.Body)) != "[]" {
			t.Errorf("the loadable controls of production are %s, want none", got.Body)
		}
		var attributes []struct{ Key, Type string }
		a.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/attributes", d.policy), nil).Want(200).Into(&attributes)
		types := map[string]string{}
		for _, at := range attributes {
			types[at.Key] = at.Type
		}
		for key, want := range map[string]string{"user.role": "string", "resource.id": "number", "action.method": "string", "context.day": "string"} {
			if types[key] != want {
				t.Errorf("the type of %s is %q, want %q: %v", key, types[key], want, attributes)
			}
		}

		made := a.Do(t, "POST", "/pis/scenarios", body{"policy_id": d.policy, "name": "intern", "description": "may not", "attributes": body{"user.role": "intern", "action.method": "GET"}}).Want(201)
		scenarioPath := fmt.Sprintf("/pis/scenarios/%d", made.ID())
		if made.Get("policy_name") != "salaries" || made.Get("last_used") != nil {
			t.Errorf("the new scenario is %s, want one of salaries that was never used", made.Body)
		}
		var got simulation
		a.Do(t, "POST", d.path(d.policy), body{"scenario_id": made.ID()}).Want(200).Into(&got)
		if got.Decision != "DENY" || got.TestType != "scenario" || fmt.Sprint(got.Input["user"]) != "map[role:intern]" {
			t.Errorf("the scenario's run = %+v, want DENY with its attributes", got)
		}
		if used := a.Do(t, "GET", scenarioPath, nil).Want(200).Get("last_used"); used != got.Timestamp {
			t.Errorf("last_used is %v, want %s", used, got.Timestamp)
		}
		a.Do(t, "PUT", scenarioPath, body{"name": "trainee", "attributes": body{"user.role": "trainee"}}).Want(200)
		if now := a.Do(t, "GET", scenarioPath, nil).Want(200); now.Get("name") != "trainee" || now.Get("description") != "may not" {
			t.Errorf("the updated scenario is %s, want the new name and the old description", now.Body)
		}
		var scenarios []body
		a.Do(t, "GET", fmt.Sprintf("/pis/scenarios?policy_id=%d", d.policy), nil).Want(200).Into(&scenarios)
		if len(scenarios) != 1 || scenarios[0]["name"] != "trainee" {
			t.Errorf("the scenarios are %v, want trainee", scenarios)
		}
		other := d.addControl(body{"name": "other", "rego_code": "package other\n\nallow := true\n"})
		wantRefused(t, a.Do(t, "POST", d.path(other), body{"scenario_id": made.ID()}), 404)
		if msg := a.Do(t, "DELETE", scenarioPath, nil).Want(200).Get("message"); msg == nil {
			t.Error("the answer to the deletion has no message")
		}
		wantRefused(t, a.Do(t, "GET", scenarioPath, nil), 404)
		wantRefused(t, a.Do(t, "POST", "/pis/scenarios", body{"policy_id": d.policy, "name": "x", "attributes": body{"user": "ada", "user.role": "hr"}}), 400)

		for range 3 {
			a.Do(t, "POST", d.path(other), body{"input_json": body{"user": body{"id": "ada"}, "action": body{"method": "GET"}}}).Want(200)
		}
		var h struct {
			Entries              []body
			Total, Limit, Offset int
			HasMore              bool `json:"has_more"`
		}
		a.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/test-history?limit=2", other), nil).Want(200).Into(&h)
		if len(h.Entries) != 2 || h.Total != 3 || h.Limit != 2 || !h.HasMore || h.Entries[0]["input_summary"] != "user.id=ada action.method=GET" || h.Entries[0]["user"] != "admin" || h.Entries[0]["can_export"] != true {
			t.Errorf("the first page of the history is %+v, want 2 of 3 runs", h)
		}
		a.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/test-history?limit=2&offset=2", other), nil).Want(200).Into(&h)
		if len(h.Entries) != 1 || h.HasMore || h.Offset != 2 {
			t.Errorf("the second page of the history is %+v, want 1 run", h)
		}
		if total := a.Do(t, "GET", "/pis/test-history?start_date=2020-01-01", nil).Want(200).Get("total"); total != 4.0 {
			t.Errorf("the own history since 2020 has %v runs, want 4", total)
		}
		if total := a.Do(t, "GET", "/pis/test-history?end_date=2020-01-01", nil).Want(200).Get("total"); total != 0.0 {
			t.Errorf("the own history until 2020 has %v runs, want none", total)
		}
		sum := 0
		for _, decision := range []string{"ALLOW", "DENY", "MASK", "NO_MATCH"} {
			for _, path := range []string{"/pis/test-history?decision=", fmt.Sprintf("/pis/policies/%d/test-history?decision=", other)} {
				h.Entries = nil
				a.Do(t, "GET", path+decision, nil).Want(200).Into(&h)
				sum += h.Total
				if len(h.Entries) != h.Total || slices.ContainsFunc(h.Entries, func(e body) bool { return e["decision"] != decision }) {
					t.Errorf("GET %s%s = %+v, want only this decision", path, decision, h)
				}
			}
		}
		if sum != 4+3 {
			t.Errorf("the histories by decision have %d runs in all, want 7", sum)
		}
		if h := a.Do(t, "GET", "/pis/test-history", nil).Want(200); h.Get("limit") != 50.0 || h.Get("offset") != 0.0 {
			t.Errorf("the default page of the history is %s, want 50 from 0", h.Body)
		}
	})
}

// TestSimulatorRefuses checks the simulator's statuses and error body, also for other tenants,
// environments and people.
func TestSimulatorRefuses(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newSimulator(t, s, "active")
		a := d.a
		path, input := d.path(d.policy), body{"input_json": body{"user": body{"id": "ada"}}}
		for _, c := range []struct {
			method, path string
			in           any
			want         int
		}{
			{"GET", "/pis/policies/loadable", nil, 400},
			{"GET", "/pis/policies/loadable?environment=test", nil, 400},
			{"POST", fmt.Sprintf("/pis/policies/%d/simulate", d.policy), input, 400},
			{"POST", fmt.Sprintf("/pis/policies/%d/simulate?environment=production", d.policy), input, 404},
			{"POST", d.path(987654), input, 404},
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
			wantRefused(t, a.Do(t, c.method, c.path, c.in), c.want)
		}
		wantRefused(t, s.Anonymous().Do(t, "POST", path, input), 401)
		key := s.Key(t, a, "sandbox", "simulator:write")
		wantRefused(t, key.Do(t, "POST", path, input), 401) // not as X-API-Key
		own := s.WithToken(key.APIKey)
		run := fmt.Sprintf("/pis/export/%.0f?format=json", own.Do(t, "POST", path, input).Want(200).Get("simulation_id"))
		own.Do(t, "POST", run, nil).Want(200)
		a.Do(t, "POST", run, nil).Want(200) // an administrator may read the audit
		other := bearer(t, s, "simulator:write")
		wantRefused(t, other.Do(t, "POST", run, nil), 403)
		if can := other.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/test-history", d.policy), nil).Want(200); !bytes.Contains(can.Body, []byte(`"can_export":false`)) {
			t.Errorf("the history for another caller is %s, want no export", can.Body)
		}
		reader := bearer(t, s, "simulator:read")
		wantRefused(t, reader.Do(t, "POST", path, input), 403)

		// For another tenant, nothing of this one exists.
		a.Do(t, "POST", "/tenants", body{"name": "Rival"}).Want(201)
		rival := a.With("X-Tenant-ID", "rival")
		wantRefused(t, rival.Do(t, "POST", path, input), 404)
		wantRefused(t, rival.Do(t, "POST", run, nil), 404)
		wantRefused(t, rival.Do(t, "POST", "/pis/scenarios", body{"policy_id": d.policy, "name": "x"}), 404)
		if h := rival.Do(t, "GET", "/pis/test-history", nil).Want(200); h.Get("total") != 0.0 {
			t.Errorf("the other tenant's history is %s, want no runs", h.Body)
		}
		a.Do(t, "DELETE", fmt.Sprintf("/policies/%d", d.policy), nil).Want(200)
		wantRefused(t, a.Do(t, "POST", path, input), 404)
		wantRefused(t, a.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/test-history", d.policy), nil), 404)
	})
}

// bearer creates a key for sandbox and returns a client that sends it as a bearer token.
func bearer(t *testing.T, s *apptest.Server, scopes ...string) *apptest.Client {
	t.Helper()
	return s.WithToken(s.Key(t, s.Admin, "sandbox", scopes...).APIKey)
}

// TestSimulationExport checks the three files of a run: none has a secret of its input, and the checksum
// fits.
func TestSimulationExport(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newSimulator(t, s, "active")
		leaky := d.addControl(body{"name": "=leaky", "rego_code": "package leaky\n\nreason := sprintf(\"no to %s\", [input.user.password])\n\ndeny if input.user.password == \"hunter2hunter2\"\n"})
		res := d.a.Do(t, "POST", d.path(leaky), body{"input_json": body{"user": body{"id": "@eve", "name": "Zoë 张", "password": "hunter2hunter2"}}}).Want(200)
		var got simulation
		res.Into(&got)
		if got.Reason != "no to [redacted]" || fmt.Sprint(got.Input["user"]) != "map[id:@eve name:Zoë 张 password:hunter2hunter2]" {
			t.Errorf("the simulation = %s, want a redacted reason and the input as sent", res.Body)
		}
		at := fmt.Sprintf("/pis/export/%d?format=", got.ID)
		for format, media := range map[string]string{"json": "application/json", "csv": "text/csv", "pdf": "application/pdf"} {
			file := d.a.Do(t, "POST", at+format, nil).Want(200)
			want := fmt.Sprintf(`attachment; filename="simulation-%d.%s"`, got.ID, format)
			if file.Header.Get("Content-Type") != media || file.Header.Get("Content-Disposition") != want || len(file.Body) < 500 {
				t.Errorf("the %s file has %d bytes and the headers %v, want %s and %s", format, len(file.Body), file.Header, media, want)
			}
			if bytes.Contains(file.Body, []byte("hunter2")) {
				t.Errorf("the %s file has the password", format)
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
					t.Errorf("the checksum of the file is %s, want %s as of its record", out.Checksum, got.Checksum)
				}
			case "csv":
				rows, err := csv.NewReader(bytes.NewReader(file.Body)).ReadAll()
				if err != nil || !bytes.Contains(file.Body, []byte("'=leaky")) || !bytes.Contains(file.Body, []byte("'@eve")) {
					t.Errorf("the CSV file has the rows %v (%v), want its formulas quoted", rows, err)
				}
			case "pdf":
				if !bytes.HasPrefix(file.Body, []byte("%PDF-1.")) || !bytes.Contains(file.Body, []byte("%%EOF")) {
					t.Errorf("the PDF file starts with %q, want a whole PDF", file.Body[:40])
				}
			}
		}
		if h := d.a.Do(t, "GET", "/pis/test-history", nil).Want(200); bytes.Contains(h.Body, []byte("hunter2")) {
			t.Errorf("the history has the password: %s", h.Body)
		}
		kept := s.StoredText(t)
		if i := strings.Index(strings.ReplaceAll(kept, "input.user.password == \\\"hunter2hunter2\\\"", ""), "no to hunter2"); i >= 0 {
			t.Error("the store has the control's reason with the password")
		}
	})
}

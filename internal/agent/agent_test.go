package agent

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSubject(t *testing.T) {
	for id, want := range map[string]int64{"agent:1": 1, "agent:9223372036854775807": 9223372036854775807} {
		if got, ok := ParseSubject(id); !ok || got != want {
			t.Errorf("ParseSubject(%q) = %d, %v", id, got, ok)
		}
	}
	for _, id := range []string{
		"", "agent:", "agent", "1", "user:1", "Agent:1", " agent:1", "agent:1 ", "agent: 1", "agent:0", "agent:-1", "agent:+1", "agent:01", "agent:1.0",
		"agent:1e3", "agent:0x1", "agent:1_000", "agent:agent:1", "agent:9223372036854775808", "agent:١",
	} {
		if got, ok := ParseSubject(id); ok {
			t.Errorf("ParseSubject(%q) = %d, want none", id, got)
		}
	}
}

// TestSubject: a control sees the members that are set, and the id that names the agent.
func TestSubject(t *testing.T) {
	bare := Agent{ID: 7, Name: "bot", Type: "llm", Configuration: map[string]any{}, Attributes: nil}
	if diff := cmp.Diff(map[string]any{"id": "agent:7", "type": "agent", "name": "bot", "agent_type": "llm"}, bare.Subject()); diff != "" {
		t.Error(diff)
	}
	full := Agent{
		ID: 8, Name: "bot", Type: "rag", Provider: "acme", Model: "m-1", Status: Inactive, Policies: []int64{1},
		Configuration: map[string]any{"max_tokens": 10}, Attributes: map[string]any{"type": "user", "id": "admin"},
	}
	want := map[string]any{
		"id": "agent:8", "type": "agent", "name": "bot", "agent_type": "rag", "provider": "acme", "model": "m-1",
		"configuration": map[string]any{"max_tokens": 10}, "attributes": map[string]any{"type": "user", "id": "admin"},
	}
	if diff := cmp.Diff(want, full.Subject()); diff != "" {
		t.Error(diff)
	}
	for _, a := range []Agent{bare, full} {
		if got, ok := ParseSubject(a.Subject()["id"].(string)); !ok || got != a.ID {
			t.Errorf("the subject of agent %d is parsed as %d, %v", a.ID, got, ok)
		}
	}
}

func TestDraft(t *testing.T) {
	got := Draft{Name: " \tbot\n", Type: "llm"}.agent()
	if got.Name != "bot" || got.Status != Active || got.ChangeNo != 1 {
		t.Errorf("got %+v", got)
	}
	if got := (Draft{Name: "bot", Status: Inactive}).agent(); got.Status != Inactive {
		t.Errorf("the status is %q", got.Status)
	}
}

// TestApply: absent members stay, null removes optional members, and the audit names exactly the
// differences.
func TestApply(t *testing.T) {
	old := Agent{
		ID: 7, Name: "bot", Type: "llm", Provider: "acme", Model: "m-1", Status: Active, ChangeNo: 3,
		Configuration: map[string]any{"max_tokens": 10.0}, Policies: []int64{1, 2}, Attributes: map[string]any{"team": "a"},
	}
	changedTo := func(from, to any) map[string]any { return map[string]any{"from": from, "to": to} }
	differs := map[string]any{"changed": true}
	for body, want := range map[string]map[string]any{
		`{}`: {},
		`{"name":"bot","provider":"acme","policies":[1,2],"attributes":{"team":"a"}}`: {},
		`{"name":"  bot "}`:             {},
		`{"name":"b2","type":"rag"}`:    {"name": changedTo("bot", "b2"), "type": changedTo("llm", "rag")},
		`{"status":"inactive"}`:         {"status": changedTo(Active, Inactive)},
		`{"provider":null,"model":""}`:  {"provider": changedTo("acme", ""), "model": changedTo("m-1", "")},
		`{"policies":[2,1]}`:            {"policies": changedTo([]int64{1, 2}, []int64{2, 1})},
		`{"configuration":{"a":"pw"}}`:  {"configuration": differs},
		`{"attributes":null}`:           {"attributes": differs},
		`{"attributes":{"team":["a"]}}`: {"attributes": differs},
	} {
		var c Change
		if err := json.Unmarshal([]byte(body), &c); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		next := old.apply(c)
		if diff := cmp.Diff(want, changesOf(old, next)); diff != "" {
			t.Errorf("%s:\n%s", body, diff)
		}
		if equal(old, next) != (len(want) == 0) {
			t.Errorf("%s: equal = %v", body, equal(old, next))
		}
		if next.ID != old.ID || next.ChangeNo != old.ChangeNo {
			t.Errorf("%s changed the id or the version: %+v", body, next)
		}
	}
	if old.Name != "bot" || len(old.Configuration) != 1 {
		t.Errorf("apply changed the old agent: %+v", old)
	}
}

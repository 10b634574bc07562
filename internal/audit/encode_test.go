package audit

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestDecisionRoundTrip: a decision that is written to the spool and read again is the same.
func TestDecisionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 20, 40)
		name := text.Draw(t, "name")
		d := Decision{
			DecisionID: text.Draw(t, "id"), Timestamp: time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "at")).UTC(),
			User: User{ID: text.Draw(t, "user"), Email: text.Draw(t, "mail")}, Resource: Resource{ID: text.Draw(t, "res"), Type: "api", Path: text.Draw(t, "path")},
			Action: text.Draw(t, "action"), Decision: Permit, Effect: text.Draw(t, "effect"), PolicyID: rapid.Int64().Draw(t, "policy"),
			Reason: text.Draw(t, "reason"), EvaluationTimeMS: rapid.Float64Range(0, 1e6).Draw(t, "ms"), IPAddress: "10.0.0.1",
			Environment: scope.Production, ResourceID: rapid.Int64().Draw(t, "rid"), CacheHit: rapid.Bool().Draw(t, "hit"),
			RegulationTags: []string{"GDPR", text.Draw(t, "tag")}, AuditLevel: Detailed, Input: json.RawMessage(`{"user":{"id":"a"},"n":[1,2.5,true,null]}`),
		}
		if rapid.Bool().Draw(t, "named") {
			d.PolicyName = &name
		}
		tenant, line, _, err := parseRecord(appendRecord(nil, "t1", &d))
		if err != nil || tenant != "t1" {
			t.Fatalf("parseRecord = tenant %q, %v, want t1", tenant, err)
		}
		got, err := decodeDecision(line)
		if err != nil {
			t.Fatalf("decodeDecision(%s): %v", line, err)
		}
		want := clean(d)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-sent +read)\n%s", diff)
		}
	})
}

// clean changes d as the log does: it replaces NUL and invalid UTF-8.
func clean(d Decision) Decision {
	fix := func(s string) string { return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD") }
	for _, s := range []*string{&d.DecisionID, &d.User.ID, &d.User.Email, &d.Resource.ID, &d.Resource.Path, &d.Action, &d.Effect, &d.Reason, d.PolicyName, &d.RegulationTags[1]} {
		if s != nil {
			*s = fix(*s)
		}
	}
	return d
}

func BenchmarkAppendRecord(b *testing.B) {
	name := "orders may be read"
	d := Decision{
		DecisionID: "0197a3f0-0000-7000-8000-000000000001", Timestamp: time.UnixMicro(1790000000000000), User: User{ID: "alice", Email: "alice@example.com"},
		Resource: Resource{Type: "api", Path: "/orders/17"}, Action: "read", Decision: Permit, Effect: "ALLOW", PolicyID: 7, PolicyName: &name, Reason: "department matches",
		EvaluationTimeMS: 0.031, IPAddress: "10.0.0.1", Environment: scope.Production, ResourceID: 3, RequestID: "r-1", CallerID: "theirs", AuditLevel: Basic,
	}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendRecord(buf[:0], "default", &d)
	}
}

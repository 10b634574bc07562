package audit

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

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
			t.Fatalf("tenant %q, error %v", tenant, err)
		}
		got, err := decodeDecision(line)
		if err != nil {
			t.Fatalf("%v in %s", err, line)
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

func TestRedact(t *testing.T) {
	const canary = "c4n4ry"
	for name, in := range map[string]string{
		"named":     `{"a":{"password":"c4n4ry","x":1}}`,
		"case":      `{"API-Key":"c4n4ry","apiKey":"c4n4ry","X-Api_Key":"c4n4ry"}`,
		"escaped":   `{"pass\u0077ord":"c4n4ry"}`,
		"number":    `{"client_secret":7123,"credentials":{"id":"c4n4ry"}}`,
		"list":      `[{"headers":{"authorization":["Bearer c4n4ry"],"cookie":["s=c4n4ry"]}}]`,
		"token":     `{"access_token":"c4n4ry","ssl_private_key":"c4n4ry"}`,
		"mail":      `{"owner_email":"c4n4ry@x","ownerEmail":"c4n4ry@x","last":1}`,
		"mail last": `{"first":1,"owner_email":"c4n4ry@x"}`,
		"broken":    `{"password":"c4n4ry"`,
		"trailing":  `{"a":1} c4n4ry`,
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := redact.JSON([]byte("x"), []byte(in))
			if strings.Contains(string(out), canary) || strings.Contains(string(out), "7123") {
				t.Errorf("the secret of %s was not redacted: %s", in, out)
			}
			if !json.Valid(out[1:]) || out[0] != 'x' {
				t.Errorf("%s became %s", in, out)
			}
			if strings.Contains(in, "mail") && strings.Contains(string(out), "mail") {
				t.Errorf("the name of personal data stayed: %s", out)
			}
		})
	}
	keep := `{"credential_set":true,"max_tokens":512,"estimated_tokens":3,"user":{"id":"a","email":"a@b"},"list":[1,"two",{},[]]}`
	if out, ok := redact.JSON(nil, []byte(keep)); !ok || string(out) != keep {
		t.Errorf("something that is not a secret was changed: %s", out)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"password":"x","a":[1,{"token":2}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, ok := redact.JSON(nil, in)
		if json.Valid(in) && !ok {
			t.Fatalf("could not read %q", in)
		}
		if ok && json.Valid(in) && !json.Valid(out) {
			t.Fatalf("%q became %q", in, out)
		}
	})
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

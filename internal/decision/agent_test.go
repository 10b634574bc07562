package decision

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestLimitAgent checks that an agent's key can ask only about the agent as it is stored, and that other
// keys can ask about anybody.
func TestLimitAgent(t *testing.T) {
	bot := scope.Scope{Actor: scope.Actor{Kind: scope.Agent, ID: "agent:7"}}
	for text, want := range map[string]bool{
		`{}`: true, `{"id":"agent:7"}`: true, `{"id":"agent:7","type":"agent"}`: true, `{"type":"agent"}`: true,
		`{"id":"agent:8"}`: false, `{"id":"AGENT:7"}`: false, `{"id":7}`: false, `{"id":null}`: false, `{"id":""}`: false,
		`{"id":"agent:7","type":"user"}`: false, `{"id":"agent:7","roles":[]}`: false, `{"id":"agent:7","act":{"sub":"ann"}}`: false,
	} {
		user, err := value.Decode([]byte(text), value.Limits{Depth: 8, Bytes: 1000})
		errtest.Must(t, err)
		req := rego.Request{User: user}
		if err = limitAgent(bot, &req); want != (err == nil) || !want && !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s: %v, want it accepted: %v", text, err, want)
		}
		if got := string(req.User.AppendJSON(nil)); got != `{"id":"agent:7"}` {
			t.Errorf("%s: the user is %s, want the agent alone", text, got)
		}
		other := rego.Request{User: user}
		if err := limitAgent(scope.Scope{Actor: scope.Actor{Kind: scope.Key, ID: "agent:7"}}, &other); err != nil || string(other.User.AppendJSON(nil)) != text {
			t.Errorf("%s for an API key: %v, %s, want it unchanged", text, err, other.User.AppendJSON(nil))
		}
	}
	req := rego.Request{NotStored: true, User: value.Object(value.Member{Key: "id", Value: value.String("agent:7")})}
	if err := limitAgent(bot, &req); err == nil {
		t.Error("a subject of a type that is not stored: no error")
	}
}

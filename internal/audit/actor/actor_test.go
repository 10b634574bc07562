package actor

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// TestFind: the actor of a token counts before its user, and only an agent is one.
func TestFind(t *testing.T) {
	for name, c := range map[string]struct{ user, mcp, llm, want string }{
		"the actor":           {`{"id":"ann","act":{"sub":"agent:7"}}`, `{}`, `{}`, `,"agent":{"id":"agent:7"}`},
		"the user":            {`{"id":"agent:8"}`, `{}`, `{}`, `,"agent":{"id":"agent:8"}`},
		"the actor of agents": {`{"id":"agent:8","act":{"sub":"agent:7"}}`, `{}`, `{}`, `,"agent":{"id":"agent:7"}`},
		"its work":            {`{"id":"agent:8"}`, `{"tool":"search"}`, `{"estimated_tokens":42}`, `,"agent":{"id":"agent:8","tool":"search","estimated_tokens":42}`},
		"a person":            {`{"id":"ann"}`, `{"tool":"search"}`, `{"estimated_tokens":42}`, ""},
		"an odd actor":        {`{"id":"ann","act":{"sub":7}}`, `{}`, `{}`, ""},
		"nobody":              {`{}`, `{}`, `{}`, ""},
	} {
		if got := string(Agents{}.Find(valuetest.Decode(t, c.user), valuetest.Decode(t, c.mcp), valuetest.Decode(t, c.llm)).AppendJSON(nil)); got != c.want {
			t.Errorf("%s: Find = %q, want %q", name, got, c.want)
		}
	}
}

// TestBounded: names and numbers that a bouncer or caller sent are cut to what the log stores.
func TestBounded(t *testing.T) {
	if got := (&AgentUse{Tool: "search"}).Bounded(); got != nil {
		t.Errorf("Bounded without an id = %+v, want nil", got)
	}
	if got := (*AgentUse)(nil).Bounded(); got != nil {
		t.Errorf("Bounded of no agent = %+v, want nil", got)
	}
	got := (&AgentUse{ID: "agent:\x00", Tool: strings.Repeat("é", maxText), EstimatedTokens: maxTokens + 1}).Bounded()
	if got.ID != "agent:\uFFFD" || len(got.Tool) > maxText+len("…") || !utf8.ValidString(got.Tool) || got.EstimatedTokens != maxTokens {
		t.Errorf("Bounded = %+v, want it within the limits, as valid text", got)
	}
	if got := (&AgentUse{ID: "a", EstimatedTokens: -1}).Bounded(); got.EstimatedTokens != 0 {
		t.Errorf("Bounded of -1 tokens = %d, want 0", got.EstimatedTokens)
	}
}

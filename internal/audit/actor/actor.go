// Package actor reads who acts for a user in a decision: it checks chains of delegation, finds the AI
// agent that asked, and what it did, and refuses agents that are stopped. It does no I/O.
package actor

import (
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// AgentUse is what an AI agent did in one decision.
type AgentUse struct {
	ID              string `json:"id" doc:"The agent as a subject: the actor of the user's token (its claim act), else the subject itself." example:"agent:7"`
	Tool            string `json:"tool,omitempty" doc:"The tool of an MCP server that it called." example:"search_tickets"`
	EstimatedTokens int64  `json:"estimated_tokens,omitempty" doc:"The tokens of its prompt, as the bouncer estimates them."`
}

// Find returns the AI agent that asked for a decision (see Acting). mcp and llm are members of the
// input, from which it takes the tool and the number of tokens. It returns nil if no agent asked.
func (a Agents) Find(user, mcp, llm value.Value) *AgentUse {
	id := a.Acting(user)
	if id == "" {
		return nil
	}
	use := &AgentUse{ID: id}
	use.Tool, _ = mcp.Get("tool").Str()
	if n, ok := llm.Get("estimated_tokens").Int64(); ok {
		use.EstimatedTokens = n
	}
	return use
}

// maxText is the length to which the names of agents and tools are cut, in bytes.
const maxText = 200

// maxTokens is the largest number of tokens that one decision may count.
const maxTokens = 1 << 40

// Bounded returns the agent as the log stores it, with names and numbers from a bouncer or caller
// cut to their limits. It returns nil if there is no agent.
func (a *AgentUse) Bounded() *AgentUse {
	if a == nil || a.ID == "" {
		return nil
	}
	return &AgentUse{ID: cut(a.ID), Tool: cut(a.Tool), EstimatedTokens: min(max(a.EstimatedTokens, 0), maxTokens)}
}

// cut replaces NUL, which PostgreSQL cannot store, and shortens a text that is too long.
func cut(s string) string {
	return truncate.Text(strings.ReplaceAll(s, "\x00", "\uFFFD"), maxText, "…")
}

// AppendJSON appends the agent as the member agent of a JSON object that already has members. It
// appends nothing if there is no agent.
func (a *AgentUse) AppendJSON(dst []byte) []byte {
	if a == nil {
		return dst
	}
	dst = value.AppendString(append(dst, `,"agent":{"id":`...), a.ID)
	if a.Tool != "" {
		dst = value.AppendString(append(dst, `,"tool":`...), a.Tool)
	}
	if a.EstimatedTokens != 0 {
		dst = strconv.AppendInt(append(dst, `,"estimated_tokens":`...), a.EstimatedTokens, 10)
	}
	return append(dst, '}')
}

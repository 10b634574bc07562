package connect

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/agent"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// AgentPath identifies an AI agent.
type AgentPath struct {
	ID int64 `path:"agent_id" minimum:"1" doc:"Id of the AI agent"`
}

type agentListIn struct {
	rest.Page
	Type     string `query:"agent_type" enum:"llm,rag,chatbot" doc:"Only agents of this type"`
	Provider string `query:"provider" maxLength:"200" doc:"Only agents of this provider"`
}

type agentOut struct {
	ETag string `header:"ETag" doc:"Version of the agent"`
	Body agent.Agent
}

type agentCreateIn struct{ Body agent.Draft }

type agentUpdateIn struct {
	AgentPath
	rest.IfMatch
	Body agent.Change
}

type agentDeleteIn struct {
	AgentPath
	rest.IfMatch
}

type agentKeyIn struct {
	AgentPath
	Body auth.RotateRequest
}

// agentKeys registers the keys of AI agents.
func (h *Handler) agentKeys(r *rest.Router) {
	tags := []string{"AI agents"}
	rest.Register(r, rest.Op{
		ID: "list-ai-agent-keys", Method: http.MethodGet, Path: "/ai-agents/{agent_id}/keys", Permission: "agents:read", Tags: tags,
		Summary: "List the keys of an AI agent", Description: "Newest first, without the keys themselves.",
	}, func(ctx context.Context, sc scope.Scope, in *AgentPath) (*rest.JSON[agent.Keys], error) {
		return rest.Answer(h.Agents.Keys(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "create-ai-agent-key", Method: http.MethodPost, Path: "/ai-agents/{agent_id}/keys", Permission: "agents:write", Also: "decisions:read", Tags: tags,
		Status: http.StatusCreated, Creates: true,
		Summary:     "Create or replace the key of an AI agent",
		Description: "Only this answer contains the key. Earlier keys of the agent end after grace_seconds. The key asks for decisions about the agent itself (/decisions/evaluate, /decisions/evaluate/bulk, AuthZEN's evaluation and evaluations) and does nothing else: another subject, or own roles and attributes, are refused (403). It does not work while the agent is inactive. The caller also needs decisions:read. An agent has at most 10 keys at the same time (403).",
	}, func(ctx context.Context, sc scope.Scope, in *agentKeyIn) (*rest.JSON[auth.DedicatedKey], error) {
		return rest.Answer(h.Agents.IssueKey(ctx, sc, in.ID, time.Duration(in.Body.GraceSeconds)*time.Second))
	})
	rest.Register(r, rest.Op{
		ID: "revoke-ai-agent-keys", Method: http.MethodDelete, Path: "/ai-agents/{agent_id}/keys", Permission: "agents:write", Tags: tags,
		Summary: "Revoke the keys of an AI agent", Description: "All keys of the agent end at once.",
	}, func(ctx context.Context, sc scope.Scope, in *AgentPath) (*rest.JSON[rest.Removed], error) {
		_, err := h.Agents.RevokeKeys(ctx, sc, in.ID)
		return rest.Answer(rest.Removed{Message: "keys revoked", ID: in.ID}, err)
	})
}

// agents registers the AI agents.
func (h *Handler) agents(r *rest.Router) {
	tags, record := []string{"AI agents"}, reflect.TypeFor[agent.Agent]()
	rest.Register(r, rest.Op{
		ID: "list-ai-agents", Method: http.MethodGet, Path: "/ai-agents", Permission: "agents:read", Tags: tags,
		Summary: "List AI agents", Description: "By id.",
	}, func(ctx context.Context, sc scope.Scope, in *agentListIn) (*rest.JSON[agent.Page], error) {
		return rest.Answer(h.Agents.List(ctx, sc, agent.Filter{Type: in.Type, Provider: in.Provider, Skip: int64(in.Skip), Limit: int64(in.Limit)}))
	})
	rest.Register(r, rest.Op{
		ID: "create-ai-agent", Method: http.MethodPost, Path: "/ai-agents", Permission: "agents:write", Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Errors:      []int{http.StatusConflict},
		Summary:     "Create an AI agent",
		Description: "A decision about the subject `agent:<id>`, or an AuthZEN subject of type agent, reads it as `input.user`: type (agent), name, agent_type, provider, model, configuration and attributes. The name is unique (409).",
	}, func(ctx context.Context, sc scope.Scope, in *agentCreateIn) (*agentOut, error) {
		a, err := h.Agents.Create(ctx, sc, in.Body)
		return &agentOut{rest.ETag(a.ChangeNo), a}, err
	})
	rest.Register(r, rest.Op{
		ID: "get-ai-agent", Method: http.MethodGet, Path: "/ai-agents/{agent_id}", Permission: "agents:read", Tags: tags,
		Summary: "Read an AI agent", Description: "With what it did: when it was last seen, its requests and estimated tokens of the last 30 days, and the tools that it called. Counted as the decision log takes decisions in, which takes some seconds.",
	}, func(ctx context.Context, sc scope.Scope, in *AgentPath) (*agentOut, error) {
		a, err := h.Agents.GetUsed(ctx, sc, in.ID)
		return &agentOut{rest.ETag(a.ChangeNo), a}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "update-ai-agent", Method: http.MethodPut, Path: "/ai-agents/{agent_id}", Permission: "agents:write", Tags: tags, Record: record,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Change an AI agent",
		Description: "Members that are not sent keep their value. configuration, policies and attributes are replaced as a whole.",
	}, func(ctx context.Context, sc scope.Scope, in *agentUpdateIn, version int64) (*agentOut, error) {
		a, err := h.Agents.Update(ctx, sc, in.ID, in.Body, version)
		return &agentOut{rest.ETag(a.ChangeNo), a}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "delete-ai-agent", Method: http.MethodDelete, Path: "/ai-agents/{agent_id}", Permission: "agents:write", Tags: tags,
		Errors:  []int{http.StatusPreconditionFailed},
		Summary: "Remove an AI agent", Description: "Its keys end at once, and decisions go on to deny what it asks for: ids are never given out again.",
	}, func(ctx context.Context, sc scope.Scope, in *agentDeleteIn, version int64) (*rest.JSON[rest.Removed], error) {
		_, err := h.Agents.Delete(ctx, sc, in.ID, version)
		return rest.Answer(rest.Removed{Message: "AI agent deleted successfully", ID: in.ID}, err)
	})
}

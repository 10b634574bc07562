// Package agent keeps AI agents: their models, configurations and keys, the policies that are meant
// for them, and what they did. An agent is a subject of decisions, like a user.
package agent

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The states of an agent.
const (
	Active   = "active"
	Inactive = "inactive"
)

// Agent is an AI agent.
type Agent struct {
	ID            int64          `json:"id" db:"id" doc:"Identifier. As a subject of decisions its id is agent: followed by this number." example:"7"`
	Name          string         `json:"name" db:"name" doc:"Name, unique." example:"support bot"`
	Type          string         `json:"type" db:"type" enum:"llm,rag,chatbot" doc:"What kind of agent it is."`
	Provider      string         `json:"provider" db:"provider" doc:"Who hosts its model." example:"openai"`
	Model         string         `json:"model" db:"model" doc:"Its model." example:"gpt-4o-mini"`
	Status        string         `json:"status" db:"status" enum:"active,inactive" doc:"An inactive agent is refused: every decision denies what it asks for, for itself or for a person."`
	Configuration map[string]any `json:"configuration" db:"configuration" doc:"How it runs: max_tokens, temperature, safety_settings with content_filter and prompt_validation, and your own members. Controls read it as input.user.configuration."`
	Policies      []int64        `json:"policies" db:"policies" doc:"Ids of the policies that are meant for it, in order."`
	OAuthClients  []string       `json:"oauth_client_ids" db:"oauth_client_ids" doc:"Ids of its OAuth clients. A token that was issued to one of them (client_id, azp, or in act) is the agent's: it is refused while the agent is inactive, and counted for the agent."`
	Attributes    map[string]any `json:"attributes" db:"attributes" doc:"Free attributes; controls read them as input.user.attributes."`
	CreatedAt     time.Time      `json:"created_at" db:"created_at" doc:"When it was created."`
	UpdatedAt     time.Time      `json:"updated_at" db:"updated_at" doc:"When it was last changed."`
	LastSeenAt    *time.Time     `json:"last_seen_at,omitempty" db:"-" doc:"When it last asked for something, for itself or for a person; absent if it did not in the last 400 days. Answers to changes leave it out."`
	Usage         *Usage         `json:"usage,omitempty" db:"-" doc:"What it did; only where one agent is read."`
	// ChangeNo is the ETag. Each change increases it.
	ChangeNo int64 `json:"-" db:"change_no"`
}

// Draft is the body of a create.
type Draft struct {
	Name          string         `json:"name" minLength:"1" maxLength:"200" doc:"Name, unique." example:"support bot"`
	Type          string         `json:"type" enum:"llm,rag,chatbot" doc:"What kind of agent it is."`
	Provider      string         `json:"provider,omitempty" maxLength:"200" doc:"Who hosts its model." example:"openai"`
	Model         string         `json:"model,omitempty" maxLength:"200" doc:"Its model." example:"gpt-4o-mini"`
	Status        string         `json:"status,omitempty" enum:"active,inactive" doc:"active when absent."`
	Configuration map[string]any `json:"configuration,omitempty" doc:"How it runs. Controls read it as input.user.configuration, so do not put secrets here."`
	Policies      []int64        `json:"policies,omitempty" maxItems:"1000" doc:"Ids of the policies that are meant for it."`
	OAuthClients  []string       `json:"oauth_client_ids,omitempty" maxItems:"10" doc:"Ids of its OAuth clients, each of one agent only."`
	Attributes    map[string]any `json:"attributes,omitempty" doc:"Free attributes; controls read them as input.user.attributes."`
}

// Change is the body of an update: members that are sent change, the others stay.
type Change struct {
	Name          *string                     `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Name, unique."`
	Type          *string                     `json:"type,omitempty" enum:"llm,rag,chatbot" doc:"What kind of agent it is."`
	Provider      patch.Field[string]         `json:"provider,omitzero" maxLength:"200" doc:"Who hosts its model."`
	Model         patch.Field[string]         `json:"model,omitzero" maxLength:"200" doc:"Its model."`
	Status        *string                     `json:"status,omitempty" enum:"active,inactive" doc:"An inactive agent is refused: every decision denies what it asks for, for itself or for a person."`
	Configuration patch.Field[map[string]any] `json:"configuration,omitzero" doc:"Replaces the whole configuration."`
	Policies      patch.Field[[]int64]        `json:"policies,omitzero" maxItems:"1000" doc:"Replaces the whole list."`
	OAuthClients  patch.Field[[]string]       `json:"oauth_client_ids,omitzero" maxItems:"10" doc:"Replaces the whole list of its OAuth clients."`
	Attributes    patch.Field[map[string]any] `json:"attributes,omitzero" doc:"Replaces all attributes."`
}

// Filter narrows a list.
type Filter struct {
	// Type and Provider select agents with that value; empty: all.
	Type, Provider string
	Skip, Limit    int64
}

// Page is one page of a list, sorted by id.
type Page struct {
	Agents []Agent `json:"agents" doc:"The page, sorted by id."`
	Total  int64   `json:"total" doc:"Number of agents that match the filters."`
}

func (d Draft) agent() Agent {
	a := Agent{
		Name: strings.TrimSpace(d.Name), Type: d.Type, Provider: d.Provider, Model: d.Model, Status: d.Status,
		Configuration: d.Configuration, Policies: d.Policies, Attributes: d.Attributes, ChangeNo: 1,
		OAuthClients: d.OAuthClients,
	}
	if a.Status == "" {
		a.Status = Active
	}
	return a
}

func (a Agent) apply(c Change) Agent {
	if c.Name != nil {
		a.Name = strings.TrimSpace(*c.Name)
	}
	patch.Assign(&a.Type, c.Type)
	patch.Assign(&a.Status, c.Status)
	c.Provider.Apply(&a.Provider)
	c.Model.Apply(&a.Model)
	c.Configuration.Apply(&a.Configuration)
	c.Policies.Apply(&a.Policies)
	c.Attributes.Apply(&a.Attributes)
	c.OAuthClients.Apply(&a.OAuthClients)
	return a
}

// listed returns a list that is never nil, so that it is stored and shown as [].
func listed(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// Subject returns what controls see of an agent. Empty members are absent.
func (a Agent) Subject() map[string]any {
	doc := map[string]any{"id": scope.AgentSubject(a.ID), "type": "agent", "name": a.Name, "agent_type": a.Type}
	for name, text := range map[string]string{"provider": a.Provider, "model": a.Model} {
		if text != "" {
			doc[name] = text
		}
	}
	if len(a.Configuration) > 0 {
		doc["configuration"] = a.Configuration
	}
	if len(a.Attributes) > 0 {
		doc["attributes"] = a.Attributes
	}
	return doc
}

// ParseSubject returns the id of the agent that the id of a subject names; false: it names none.
func ParseSubject(id string) (int64, bool) {
	text, ok := strings.CutPrefix(id, scope.AgentPrefix)
	n, err := strconv.ParseInt(text, 10, 64)
	return n, ok && err == nil && n > 0 && strconv.FormatInt(n, 10) == text
}

// changesOf lists the differences for the audit. Of configuration and attributes, which can contain
// anything, it says only that they changed.
func changesOf(old, next Agent) map[string]any {
	out := patch.Differences{}
	out.Note("name", old.Name, next.Name)
	out.Note("type", old.Type, next.Type)
	out.Note("provider", old.Provider, next.Provider)
	out.Note("model", old.Model, next.Model)
	out.Note("status", old.Status, next.Status)
	out.Note("policies", old.Policies, next.Policies)
	out.Note("oauth_client_ids", listed(old.OAuthClients), listed(next.OAuthClients))
	for name, v := range map[string][2]any{"configuration": {old.Configuration, next.Configuration}, "attributes": {old.Attributes, next.Attributes}} {
		if !reflect.DeepEqual(v[0], v[1]) {
			out[name] = map[string]any{"changed": true}
		}
	}
	return out
}

// equal reports whether two versions of an agent are the same.
func equal(a, b Agent) bool { return len(changesOf(a, b)) == 0 }

package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	day = 24 * time.Hour
	// usageDays is how many days Usage adds up. keptDays is how many days the store keeps.
	usageDays = 30
	keptDays  = 400
	// maxTools is how many tools of an agent are counted by name.
	maxTools = 100
)

// Usage is what an agent did, according to the decision log.
type Usage struct {
	Requests        int64     `json:"requests" db:"requests" doc:"Decisions about its requests in the last 30 days, today included (UTC)."`
	Denied          int64     `json:"denied" db:"denied" doc:"Those of them that were refused."`
	EstimatedTokens int64     `json:"estimated_tokens" db:"tokens" doc:"Tokens of its prompts in the last 30 days, as bouncers estimate them. Prompts that no control reads are not counted."`
	Tools           []ToolUse `json:"tools" db:"-" nullable:"false" doc:"The tools of MCP servers that it called since it was created, the most called first: at most 100. Calls that no control reads are not counted."`
	OtherToolCalls  int64     `json:"other_tool_calls" db:"-" doc:"Calls of further tools, which are not counted by name."`
}

// ToolUse says how an agent used a tool.
type ToolUse struct {
	Name       string    `json:"name" db:"name" doc:"Name of the tool." example:"search_tickets"`
	Calls      int64     `json:"calls" db:"calls" doc:"Calls that were decided on, refused ones included."`
	LastCallAt time.Time `json:"last_call_at" db:"last_at" doc:"When the last of them was."`
}

// used is a row of agent_usage: one day of an agent.
type used struct {
	agent, requests, denied, tokens int64
	day, last                       time.Time
}

// called is a row of agent_tools: the calls of one tool by an agent. An empty name stands for all
// tools beyond maxTools.
type called struct {
	agent, calls int64
	name         string
	last         time.Time
}

// Count adds decisions to the usage of the agents that asked for them. It is part of
// audit.Config.Stored, so that each decision counts once. It skips agents that the tenant does not
// have, because callers can send any id.
func (s *Service) Count(ctx context.Context, tx *db.Tx, seen []audit.NewDecision) error {
	now := s.Now().UTC()
	known, err := knownOf(ctx, tx, seen)
	if err != nil || len(known) == 0 {
		return err
	}
	days, tools := map[[2]int64]*used{}, map[int64]map[string]*called{}
	for _, one := range seen {
		id := agentOf(one)
		if !known[id] {
			continue
		}
		at := one.At.UTC()
		if at.After(now) { // a bouncer's clock may be wrong
			at = now
		}
		today := at.Truncate(day)
		u := days[[2]int64{id, today.Unix()}]
		if u == nil {
			u = &used{agent: id, day: today}
			days[[2]int64{id, today.Unix()}] = u
		}
		u.requests += one.Count
		u.tokens += one.Agent.EstimatedTokens * one.Count
		if !one.Permit {
			u.denied += one.Count
		}
		u.last = later(u.last, at)
		if one.Agent.Tool == "" {
			continue
		}
		if tools[id] == nil {
			tools[id] = map[string]*called{}
		}
		c := tools[id][one.Agent.Tool]
		if c == nil {
			c = &called{agent: id, name: one.Agent.Tool}
			tools[id][one.Agent.Tool] = c
		}
		c.calls += one.Count
		c.last = later(c.last, at)
	}
	if err := addDays(ctx, tx, days); err != nil {
		return err
	}
	for id, byName := range tools {
		if err := s.countTools(ctx, tx, id, byName); err != nil {
			return err
		}
	}
	return removeDays(ctx, tx, now.Truncate(day).Add(-keptDays*day))
}

// agentOf returns the id of the agent that asked for a decision; 0: no agent did, or its id cannot
// be in the store.
func agentOf(f audit.NewDecision) int64 {
	if f.Agent == nil {
		return 0
	}
	id, ok := ParseSubject(f.Agent.ID)
	if !ok {
		return 0
	}
	return id
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// knownOf returns which agents of the decisions exist.
func knownOf(ctx context.Context, tx *db.Tx, seen []audit.NewDecision) (map[int64]bool, error) {
	known := map[int64]bool{}
	for _, one := range seen {
		if id := agentOf(one); id != 0 {
			known[id] = false
		}
	}
	if len(known) == 0 {
		return known, nil
	}
	there, err := existing(ctx, tx, slices.Collect(maps.Keys(known)))
	clear(known)
	for _, id := range there {
		known[id] = true
	}
	return known, err
}

// countTools adds calls of tools. Beyond maxTools tools, it counts calls under the empty name.
func (s *Service) countTools(ctx context.Context, tx *db.Tx, id int64, byName map[string]*called) error {
	have, err := toolNames(ctx, tx, id)
	if err != nil {
		return err
	}
	room := maxTools
	named := map[string]bool{}
	for _, name := range have {
		if named[name] = true; name != "" {
			room--
		}
	}
	rest := &called{agent: id}
	list := []*called{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		c := byName[name]
		switch {
		case named[name]:
			list = append(list, c)
		case room > 0:
			room--
			list = append(list, c)
		default:
			rest.calls += c.calls
			rest.last = later(rest.last, c.last)
		}
	}
	if rest.calls > 0 {
		list = append(list, rest)
	}
	return addTools(ctx, tx, list)
}

// GetUsed returns one agent with its usage and when it was last seen. Fault: NotFound.
func (s *Service) GetUsed(ctx context.Context, sc scope.Scope, id int64) (Agent, error) {
	var a Agent
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if a, err = load(ctx, tx, id); err != nil {
			return err
		}
		if err = addLastSeen(ctx, tx, []*Agent{&a}); err != nil {
			return err
		}
		u, err := usageSince(ctx, tx, id, s.Now().UTC().Truncate(day).Add(-(usageDays-1)*day))
		if err != nil {
			return err
		}
		tools, err := toolsOf(ctx, tx, id)
		if err != nil {
			return err
		}
		u.Tools = []ToolUse{}
		for _, t := range tools {
			if t.Name == "" {
				u.OtherToolCalls = t.Calls
				continue
			}
			u.Tools = append(u.Tools, t)
		}
		slices.SortStableFunc(u.Tools, func(a, b ToolUse) int {
			return cmp.Or(cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Name, b.Name))
		})
		a.Usage = &u
		return nil
	})
	return a, err
}

// addLastSeen sets LastSeenAt of agents.
func addLastSeen(ctx context.Context, tx *db.Tx, agents []*Agent) error {
	ids := make([]int64, len(agents))
	for i, a := range agents {
		ids[i] = a.ID
	}
	rows, err := lastSeen(ctx, tx, ids)
	if err != nil {
		return err
	}
	at := map[int64]time.Time{}
	for _, r := range rows {
		at[r.ID] = r.At
	}
	for _, a := range agents {
		if t, ok := at[a.ID]; ok {
			a.LastSeenAt = &t
		}
	}
	return nil
}

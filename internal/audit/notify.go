package audit

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// NewDecision is a decision that the log has just stored for the first time.
type NewDecision struct {
	// PolicyID is the control that decided; 0 if none did.
	PolicyID int64
	// Agent is the AI agent that asked; nil if none did.
	Agent *actor.AgentUse
	At    time.Time
	// Count is the number of decisions that it stands for: more than one if refusals were folded.
	Count  int64
	Permit bool
	record string
}

// Decision parses the entry, which is redacted as in the log.
func (f NewDecision) Decision() (Decision, error) { return decodeDecision([]byte(f.record)) }

// report passes the decisions of controls and agents to Config.Stored.
func (l *DecisionLog) report(ctx context.Context, tx *db.Tx, tenant scope.TenantID, rows []row) error {
	if l.cfg.Stored == nil {
		return nil
	}
	fresh := make([]NewDecision, 0, len(rows))
	for i := range rows {
		if r := &rows[i]; r.PolicyID != 0 || r.agent != nil {
			fresh = append(fresh, NewDecision{r.PolicyID, r.agent, r.At, r.tally.Counted, r.Decision == Permit, r.Record})
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return l.cfg.Stored(ctx, tx, tenant, fresh)
}

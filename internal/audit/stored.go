package audit

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Fresh is a decision of a control that the log has just stored for the first time.
type Fresh struct {
	// PolicyID is the control that decided.
	PolicyID int64
	record   string
}

// Decision parses the entry, which is redacted as in the log.
func (f Fresh) Decision() (Decision, error) { return decodeDecision([]byte(f.record)) }

// report passes the decisions of controls to Config.Stored.
func (l *DecisionLog) report(ctx context.Context, tx *db.Tx, tenant scope.TenantID, rows []row) error {
	if l.cfg.Stored == nil {
		return nil
	}
	fresh := make([]Fresh, 0, len(rows))
	for i := range rows {
		if r := &rows[i]; r.PolicyID != 0 {
			fresh = append(fresh, Fresh{r.PolicyID, r.Record})
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return l.cfg.Stored(ctx, tx, tenant, fresh)
}

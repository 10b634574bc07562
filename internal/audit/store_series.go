package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/digest"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// entriesOf returns the newest n entries of a series in [from, to), newest first.
func entriesOf(ctx context.Context, tx *db.Tx, s stats.Series, from, to time.Time, n int) ([]row, error) {
	where, args := `environment = $1 AND decision IN ('PERMIT', 'DENY') AND at >= $2 AND at < $3 AND seq > 0`, []any{string(s.Environment), from, to}
	add := func(column string, value any) {
		args = append(args, value)
		where += fmt.Sprintf(" AND %s = $%d", column, len(args))
	}
	if s.Resource != "" {
		add("resource_key", digest.Key(s.Resource))
	}
	if s.Control != 0 {
		add("policy_id", s.Control)
	}
	if s.Bouncer != 0 {
		add("bouncer_id", s.Bouncer)
	}
	if s.Subject != "" {
		add("user_id", digest.Key(s.Subject))
	}
	args = append(args, n)
	return db.All[row](ctx, tx, `SELECT `+decisionColumns+` FROM decisions WHERE `+where+fmt.Sprintf(` ORDER BY at DESC LIMIT $%d`, len(args)), args...)
}

package tenant

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// ForgetPurged removes what this process has on disk of tenants that another replica purged, or that
// were purged while this process did not run. It skips purges before since, unless that is the zero
// time, and the tenants in known. It adds those that it forgets to known.
func (s *Service) ForgetPurged(ctx context.Context, since time.Time, known map[scope.TenantID]bool) error {
	gone, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) ([]scope.TenantID, error) { return selectPurged(ctx, tx, since) })
	if err != nil {
		return err
	}
	for _, id := range gone {
		if known[id] {
			continue
		}
		for _, f := range s.Purged {
			if err := f(id); err != nil {
				return fmt.Errorf("forget the purged tenant %s: %w", id, err)
			}
		}
		known[id] = true
	}
	return nil
}

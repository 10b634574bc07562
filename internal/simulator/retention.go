package simulator

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// pruneChunk is how many rows one transaction removes.
const pruneChunk = 100

// Retain removes expired runs: they are kept as long as the audit keeps decisions about their
// resource, by its audit level. It also removes scenarios whose control was deleted for good. It
// returns the number of removed rows. It may run on several replicas at once.
func (s *Service) Retain(ctx context.Context, tenant scope.TenantID) (int64, error) {
	store, err := s.Stores.Tenant(ctx, tenant)
	if err != nil {
		return 0, err
	}
	steps := []func(tx *db.Tx) (int64, error){
		func(tx *db.Tx) (int64, error) { return pruneOrphans(ctx, tx, pruneChunk) },
	}
	for _, level := range []audit.Level{audit.None, audit.Basic, audit.Detailed, audit.Comprehensive} {
		before := s.Now().Add(-level.Keep())
		steps = append(steps, func(tx *db.Tx) (int64, error) { return prune(ctx, tx, string(level), before, pruneChunk) })
	}
	var removed int64
	for _, step := range steps {
		n, err := store.WriteBatches(ctx, pruneChunk, step)
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

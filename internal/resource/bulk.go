package resource

import (
	"context"
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/classify"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Bulk is the result of a bulk classification. Examined is the sum of Classified,
// Unchanged and Errors.
type Bulk struct {
	Environment scope.Env `json:"environment" enum:"sandbox,production" doc:"Environment that was classified."`
	Examined    int64     `json:"examined" doc:"Resources examined: those never classified first, then those classified longest ago."`
	Classified  int64     `json:"classified" doc:"Resources that got values, or were classified for the first time."`
	Unchanged   int64     `json:"unchanged" doc:"Resources with no empty member to fill in."`
	Skipped     int64     `json:"skipped" doc:"Resources of the environment that were skipped, because a person or the assistant classified them."`
	Errors      []string  `json:"errors" doc:"One line for each resource that could not be classified: its id and the reason." example:"[\"17: a confidential or restricted resource needs at least one compliance tag\"]"`
}

// ClassifyBulk applies the heuristic to up to limit resources that no person and no
// assistant has classified. It fills in only empty members. The call is one transaction
// with one audit row, and each changed resource gets an event.
func (s *Service) ClassifyBulk(ctx context.Context, sc scope.Scope, limit int64) (Bulk, error) {
	env := sc.EnvOr(scope.Sandbox)
	var out Bulk
	err := s.write(ctx, sc, func(tx *db.Tx) (err error) {
		out = Bulk{Environment: env, Errors: []string{}}
		if out.Skipped, err = countDecided(ctx, tx, env); err != nil {
			return err
		}
		rs, err := nextToClassify(ctx, tx, env, limit)
		if err != nil {
			return err
		}
		b := batch{service: s, tx: tx, sc: sc, out: &out, resources: []any{}}
		for _, r := range rs {
			b.classify(r)
		}
		return b.close(ctx)
	})
	return out, err
}

// batch is a bulk classification in progress.
type batch struct {
	service   *Service
	tx        *db.Tx
	sc        scope.Scope
	out       *Bulk
	told      []event.Event
	changed   []Resource
	same      []int64 // examined, but not changed
	resources []any   // for the audit row
}

// classify collects the change of a resource; close writes it.
func (b *batch) classify(old Resource) {
	b.out.Examined++
	p, next, now := classify.Propose(old.subject()), old, b.service.Now()
	var filled []string
	next.Enrichment, filled = old.Enrichment.fillFrom(p)
	if offences := next.Enrichment.check(); len(offences) > 0 {
		b.out.Errors = append(b.out.Errors, fmt.Sprintf("%d: %s", old.ID, offences[0].Message))
		b.same = append(b.same, old.ID) // the next call continues with others
		return
	}
	if len(filled) == 0 && old.Source == classify.Heuristic {
		b.out.Unchanged++
		b.same = append(b.same, old.ID)
		return
	}
	b.out.Classified++
	next.Source, next.Confidence, next.LastClassifiedAt = classify.Heuristic, &p.Confidence, &now
	next.Classification.Tags = next.labels()
	next.Version, next.UpdatedAt = old.Version+1, now
	b.changed = append(b.changed, next)
	b.resources = append(b.resources, map[string]any{"id": next.ID, "version": next.Version, "filled": filled, "confidence": p.Confidence})
	b.told = append(b.told, event.Event{
		Type: event.ResourceUpdated, ObjectKind: "resource", ObjectID: fmt.Sprint(next.ID), ObjectName: next.Name, Env: next.Environment,
		Data: map[string]any{"changed": filled, "classification_source": classify.Heuristic},
	})
}

// close writes the batch, its audit row and its events. If nothing was examined, it
// writes nothing.
func (b *batch) close(ctx context.Context) error {
	if b.out.Examined == 0 {
		return nil
	}
	if len(b.same) > 0 {
		if err := markClassified(ctx, b.tx, b.same, b.service.Now()); err != nil {
			return err
		}
	}
	if err := b.write(ctx); err != nil {
		return err
	}
	err := audit.Append(ctx, b.tx, b.sc, b.service.Now(), audit.Entry{
		Type: "RESOURCE_UPDATED", Object: "resource", ObjectName: fmt.Sprintf("%d resources", b.out.Classified), Env: b.out.Environment,
		Changes: map[string]any{
			"bulk_classification": true, "examined": b.out.Examined, "classified": b.out.Classified, "unchanged": b.out.Unchanged,
			"skipped": b.out.Skipped, "errors": strings.Join(b.out.Errors, "\n"),
		},
		EventContext: map[string]any{"resources": b.resources},
	})
	if err != nil {
		return err
	}
	return event.Emit(ctx, b.tx, b.sc, b.told...)
}

// write stores the changed resources. First it records their current states as past ones.
func (b *batch) write(ctx context.Context) error {
	if len(b.changed) == 0 {
		return nil
	}
	ids := make([]int64, len(b.changed))
	for i, r := range b.changed {
		ids[i] = r.ID
	}
	if err := b.service.noteChanged(ctx, b.tx, b.out.Environment, ids...); err != nil {
		return err
	}
	return updateClassifications(ctx, b.tx, b.changed)
}

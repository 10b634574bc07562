package bouncer

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// ByToken returns the bouncer whose token has this digest (lower hex of SHA-256), or NotFound.
func ByToken(ctx context.Context, tx *db.Tx, digest string) (Bouncer, error) {
	b, err := byDigest(ctx, tx, digest)
	return db.Found(b, err, true, "bouncer")
}

// ByID returns a bouncer of any environment. Fault: NotFound.
func ByID(ctx context.Context, tx *db.Tx, id int64) (Bouncer, error) {
	b, err := get(ctx, tx, id)
	return db.Found(b, err, true, "bouncer")
}

// Content is the hash of a bouncer's bundle, with the inputs that the bundle was built from.
type Content struct {
	BouncerID int64
	Hash      string
	// EnvRevision is the revision of the environment. Resources are those that the bouncer protects.
	// Denies means that it refuses requests that no control covers.
	EnvRevision int64
	Resources   []int64
	Denies      bool
}

// publishBatch is the number of bundles that one statement publishes.
const publishBatch = 50

// Publish records the content of the bundles that bouncers should run. If a bouncer's hash is that
// of its newest revision, the bundle keeps its revision. Any other hash, also that of an earlier
// revision, gets the next one: revisions only grow.
func (s *Service) Publish(ctx context.Context, tx *db.Tx, list []Content) error {
	for len(list) > 0 {
		n := min(len(list), publishBatch)
		if n < publishBatch {
			n = 1 // two statements to prepare, not fifty
		}
		now := s.Now()
		if err := publish(ctx, tx, list[:n], now); err != nil {
			return err
		}
		if err := keepBundles(ctx, tx, list[:n], now); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// bundleOf returns a bouncer's bundle; an empty one if it has none.
func bundleOf(ctx context.Context, tx *db.Tx, bouncerID int64) (Bundle, error) {
	b, err := bundle(ctx, tx, bouncerID)
	return db.FoundOr(b, err, Bundle{BouncerID: bouncerID, Errors: []Refusal{}})
}

// Item is one control in a bundle.
type Item struct{ PolicyID, Version int64 }

// RecordSent records that a bundle is being delivered: a row in progress for each of its controls
// that the bouncer does not run yet. It deletes the rows of controls that are no longer in the
// bundle.
func (s *Service) RecordSent(ctx context.Context, tx *db.Tx, bouncerID, revision int64, items []Item) error {
	now := s.Now()
	for _, it := range items {
		if err := startSync(ctx, tx, bouncerID, it, revision, now); err != nil {
			return err
		}
	}
	return dropSyncs(ctx, tx, bouncerID, items)
}

// RecordActivation records that a bouncer runs revision. The first call emits sync_completed and
// returns true.
func (s *Service) RecordActivation(ctx context.Context, tx *db.Tx, sc scope.Scope, b Bouncer, revision int64) (bool, error) {
	now := s.Now()
	n, err := activate(ctx, tx, b.ID, revision, now)
	if err != nil || n == 0 {
		return false, err
	}
	if err := finishSyncs(ctx, tx, b.ID, revision, now); err != nil {
		return false, err
	}
	if err := countSynced(ctx, tx, b.ID); err != nil {
		return false, err
	}
	return true, emit(ctx, tx, sc, b, event.SyncCompleted, map[string]any{"revision": revision})
}

// RecordRefusal records that a bouncer refused revision, and why. The first call emits sync_failed
// and returns true.
func RecordRefusal(ctx context.Context, tx *db.Tx, sc scope.Scope, b Bouncer, revision int64, why []Refusal) (bool, error) {
	n, err := refuse(ctx, tx, b.ID, revision, why)
	if err != nil || n == 0 {
		return false, err
	}
	first := "refused the bundle"
	if len(why) > 0 {
		first = why[0].Message
	}
	if err := failSyncs(ctx, tx, b.ID, revision, why); err != nil {
		return false, err
	}
	return true, emit(ctx, tx, sc, b, event.SyncFailed, map[string]any{"revision": revision, "errors": why, "reason": first})
}

// RecordHeartbeat records that a bouncer is alive, with its figures.
func (s *Service) RecordHeartbeat(ctx context.Context, tx *db.Tx, id int64, f Figures) error {
	return recordHeartbeat(ctx, tx, id, s.Now(), f)
}

// SetTrouble opens the alert about a bouncer in trouble, once, or resolves it if trouble is empty.
// If nothing changes, it writes nothing.
func (s *Service) SetTrouble(ctx context.Context, tx *db.Tx, id int64, trouble string) error {
	if trouble == "" {
		return tenant.ResolveAlerts(ctx, tx, tenant.BouncerTrouble, tenant.BouncerSubject(id), s.Now())
	}
	b, err := get(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	return tenant.OpenAlert(ctx, tx, tenant.Alert{
		Type: tenant.BouncerTrouble, Severity: tenant.SeverityError, Subject: tenant.BouncerSubject(id), CreatedAt: s.Now(), Env: b.Environment,
		Message: fmt.Sprintf("The bouncer %q (%s) is in trouble: %s", b.Name, b.Environment, trouble),
	})
}

// SetStatus records how the bridge sees a bouncer. If it connects or disconnects, an event is
// emitted. It reports whether the status has changed.
func (s *Service) SetStatus(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64, status, detail string) (bool, error) {
	old, err := get(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil // deleted meanwhile
	}
	if err != nil || old.Status == status && old.StatusDetail == detail {
		return false, err
	}
	n, err := setStatus(ctx, tx, id, old.Status, status, detail)
	if err != nil || n == 0 || old.Status == status {
		return false, err
	}
	switch {
	case status == Disconnected:
		err := tenant.OpenAlert(ctx, tx, tenant.Alert{
			Type: tenant.BouncerDisconnected, Severity: tenant.SeverityError, Subject: tenant.BouncerSubject(id), CreatedAt: s.Now(), Env: old.Environment,
			Message: fmt.Sprintf("The bouncer %q (%s) is disconnected: %s", old.Name, old.Environment, detail),
		})
		if err != nil {
			return false, err
		}
		return true, emit(ctx, tx, sc, old, event.BouncerGone, map[string]any{"reason": detail})
	case old.Status == Disconnected:
		if err := tenant.ResolveAlerts(ctx, tx, tenant.BouncerDisconnected, tenant.BouncerSubject(id), s.Now()); err != nil {
			return false, err
		}
		return true, emit(ctx, tx, sc, old, event.BouncerConnected, nil)
	default:
		return true, nil
	}
}

func emit(ctx context.Context, tx *db.Tx, sc scope.Scope, b Bouncer, kind string, data map[string]any) error {
	return event.Emit(ctx, tx, sc, event.Event{
		Type: kind, ObjectKind: "bouncer", ObjectID: strconv.FormatInt(b.ID, 10), ObjectName: b.Name, Env: b.Environment, Data: data,
	})
}

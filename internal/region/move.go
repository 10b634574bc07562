package region

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/tablecopy"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// poll is the interval at which due deployments are looked up.
	poll = 2 * time.Second
	// attempts is the number of attempts before a move is rolled back.
	attempts = 5
	// pauseAim is the longest pause of writes, except in the last try.
	pauseAim = 1500 * time.Millisecond
	// pauseLimit is the longest pause of writes in the last try. Writers do not time out within it.
	pauseLimit = 15 * time.Second
	// pauses is how often a move pauses writes before it is rolled back.
	pauses = 6
	// backlog is the number of changes that may be left when writes are paused.
	backlog = 100
	// rounds is how often writers may be faster than the copy before writes are paused anyway.
	rounds = 20
)

// Run moves tenants until ctx ends. Only one replica should run it at a time. If two do, the later
// one takes over.
func (s *Service) Run(ctx context.Context) {
	wake := make(chan struct{}, 1)
	stop := s.Stores.Watch(func(id scope.TenantID, name string) {
		if id == "" && (name == topic || name == "") {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	})
	defer stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := s.runDue(ctx); err != nil && ctx.Err() == nil {
			s.Logger.Warn("the deployments cannot be read", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-wake:
		}
	}
}

// runDue works on all deployments that are due, and purges sources that are no longer kept.
func (s *Service) runDue(ctx context.Context) error {
	var list, old []Deployment
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		if list, err = selectOpen(ctx, tx); err == nil {
			old, err = selectUnkept(ctx, tx, s.Now())
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, d := range list {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if d.Phase == waiting && d.BeginsAt.After(s.Now()) {
			continue
		}
		if err := s.advance(ctx, d); err != nil && !errors.Is(err, tablecopy.ErrLost) && ctx.Err() == nil {
			s.Logger.Warn("a deployment could not be advanced", "tenant", d.Tenant, "deployment", d.ID, "error", err)
		}
	}
	for _, d := range old {
		if err := s.purge(ctx, d); err != nil && ctx.Err() == nil {
			s.Logger.Warn("the old data of a tenant that moved is not purged", "tenant", d.Tenant, "deployment", d.ID, "error", err)
		}
	}
	return nil
}

// advance runs a deployment until it is complete, rolled back or interrupted.
func (s *Service) advance(ctx context.Context, d Deployment) error {
	switch d.Phase {
	case rollingBack:
		return s.rollBack(ctx, d)
	case switched:
		return s.complete(ctx, d)
	}
	begun, err := s.claim(ctx, d, copying)
	if err != nil {
		return err
	}
	if d = begun; d.Attempts > attempts {
		return s.abandon(ctx, d, "it was interrupted too often")
	}
	err = s.move(ctx, &d)
	switch {
	case err == nil:
		return s.complete(ctx, d)
	case ctx.Err() != nil || errors.Is(err, errKilled):
		return err // the next process starts again
	case errors.Is(err, tablecopy.ErrLost): // stopped, purged, or taken over by another process
		return errors.Join(err, s.discardCopy(ctx, d))
	case fault.Is(err, fault.Unavailable) && d.Attempts < 3:
		// The error may be temporary. Until the next round, nothing has changed for the tenant.
		s.Logger.Warn("a deployment will be retried", "tenant", d.Tenant, "deployment", d.ID, "error", err)
		return nil
	}
	s.Logger.Warn("a deployment of a tenant failed", "tenant", d.Tenant, "deployment", d.ID, "error", err)
	return s.abandon(ctx, d, reasonOf(err))
}

// reasonOf returns the reason of a failure for the API, without the details that only the log may
// contain.
func reasonOf(err error) string {
	if errors.Is(err, tablecopy.ErrInUse) {
		return tablecopy.ErrInUse.Error()
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Message
	}
	return err.Error()
}

// abandon rolls a deployment back, unless the tenant has switched: the answer to a commit may have
// been lost.
func (s *Service) abandon(ctx context.Context, d Deployment, reason string) error {
	return s.settleAndRollBack(ctx, d, reason, false)
}

func (s *Service) settleAndRollBack(ctx context.Context, d Deployment, reason string, writesRefused bool) error {
	ours, err := s.settle(ctx, d, reason, writesRefused)
	if err != nil || !ours {
		return err // without an error: switched, stopped or taken over; the next round continues
	}
	d.Phase, d.ReasonText = rollingBack, reason
	return s.rollBack(ctx, d)
}

const (
	// settleRetry is the time between two attempts to settle a deployment.
	settleRetry = 500 * time.Millisecond
	// warnAgain is the time between two warnings about the same deployment.
	warnAgain = time.Minute
)

// settle requests the rollback of a deployment until the system store answers. ours is false if the
// deployment no longer is in a phase that can be rolled back.
func (s *Service) settle(ctx context.Context, d Deployment, reason string, writesRefused bool) (ours bool, err error) {
	var warned time.Time
	for n := 1; ; n++ {
		if ours, err = s.requestRollBack(ctx, d, reason); err == nil {
			return ours, nil
		}
		if n == 1 {
			s.unsettled.Add(1)
			defer s.unsettled.Add(-1)
		}
		if now := s.Ticks(); n == 1 || now.Sub(warned) >= warnAgain {
			warned = now
			s.Logger.Warn("the end of a deployment cannot be stored; retrying", "tenant", d.Tenant, "deployment", d.ID,
				"writes_refused", writesRefused, "attempts", n, "error", err)
		}
		if !pause.For(ctx, settleRetry) {
			return false, ctx.Err()
		}
	}
}

// Unsettled returns how many deployments of this process wait for the system store to learn how they
// ended.
func (s *Service) Unsettled() int64 { return s.unsettled.Load() }

// errKilled simulates a killed process in tests.
var errKilled = errors.New("killed")

// enter starts a phase.
func (s *Service) enter(ctx context.Context, d *Deployment, phase string) error {
	if err := s.saveProgress(ctx, d, phase); err != nil {
		return err
	}
	d.Phase = phase
	return s.callHook(phase)
}

func (s *Service) callHook(phase string) error {
	if s.reached == nil {
		return nil
	}
	return s.reached(phase)
}

// move copies a tenant and switches to the copy.
func (s *Service) move(ctx context.Context, d *Deployment) error {
	from, err := s.Stores.At(d.Tenant, d.Source)
	if err != nil {
		return err
	}
	to, err := s.Stores.At(d.Tenant, d.Target)
	if err != nil {
		return err
	}
	if err := s.callHook(copying); err != nil {
		return err
	}
	if d.Attempts > 1 { // an earlier process may have left writes paused
		if err := tablecopy.Release(ctx, from, d.Token); err != nil {
			return err
		}
	}
	s.dropLeftovers(ctx, d)
	if err := to.Provision(ctx); err != nil {
		return fmt.Errorf("the new region: %w", err)
	}
	c := &tablecopy.Copy{From: from, To: to, Token: d.Token}
	if err := c.Begin(ctx); err != nil {
		return err
	}
	if d.MigrateData {
		if err := s.copyAll(ctx, d, c); err != nil {
			return err
		}
	}
	return s.switchOver(ctx, d, c)
}

// dropLeftovers drops the copies of earlier attempts. If that fails, later calls try again.
func (s *Service) dropLeftovers(ctx context.Context, d *Deployment) {
	if d.Leftovers == "" {
		return
	}
	for store := range strings.FieldsSeq(d.Leftovers) {
		part, err := s.Stores.At(d.Tenant, store)
		if err == nil {
			err = tablecopy.Discard(ctx, part, d.Token)
		}
		if err != nil {
			s.Logger.Warn("an earlier attempt left data in the new region", "tenant", d.Tenant, "region", d.Region, "error", err)
			return
		}
	}
	if err := s.clearLeftovers(ctx, *d); err != nil {
		s.Logger.Warn("the list of earlier copies could not be updated", "tenant", d.Tenant, "deployment", d.ID, "error", err)
		return
	}
	d.Leftovers = ""
}

// copyAll copies all data while the tenant is in use.
func (s *Service) copyAll(ctx context.Context, d *Deployment, c *tablecopy.Copy) (err error) {
	if d.RowsTotal, err = c.Rows(ctx); err != nil {
		return err
	}
	if err := s.saveProgress(ctx, d, copying); err != nil {
		return err
	}
	reported := s.Ticks()
	c.Progress = func(ctx context.Context, rows int64) error {
		if d.RowsCopied = rows; s.Ticks().Sub(reported) < 500*time.Millisecond {
			return nil
		}
		reported = s.Ticks()
		return s.saveProgress(ctx, d, copying)
	}
	if err := c.Tables(ctx); err != nil {
		return err
	}
	if err := s.enter(ctx, d, catchingUp); err != nil {
		return err
	}
	if err := s.catchUp(ctx, d, c); err != nil {
		return err
	}
	if err := c.Verify(ctx); err != nil {
		return err
	}
	return s.catchUp(ctx, d, c)
}

// switchOver pauses writes, copies the remaining changes, and switches. If that takes too long, it
// allows writes again under a stronger brake, and tries again.
func (s *Service) switchOver(ctx context.Context, d *Deployment, c *tablecopy.Copy) error {
	for try := range pauses {
		limit := pauseAim
		if try == pauses-1 {
			limit = pauseLimit
		}
		late, err := s.pauseAndSwitch(ctx, d, c, limit)
		if !late || limit == pauseLimit {
			return err
		}
		d.brakeHarder()
		if err := s.enter(ctx, d, catchingUp); err != nil {
			return err
		}
		if err := s.catchUp(ctx, d, c); err != nil {
			return err
		}
	}
	return nil
}

// pauseAndSwitch pauses writes for at most limit, and switches. If the limit was too short, late is
// true, err is set, and writes are allowed again.
func (s *Service) pauseAndSwitch(ctx context.Context, d *Deployment, c *tablecopy.Copy, limit time.Duration) (late bool, err error) {
	if err := s.enter(ctx, d, paused); err != nil {
		return false, err
	}
	began := s.Ticks()
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = s.lastChanges(short, d, c)
	if err == nil {
		// A stop of the server must not interrupt the commit, because its outcome must be known.
		commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseLimit)
		defer cancel()
		if err = s.switchStore(commit, d, s.Ticks().Sub(began)); err == nil {
			d.Phase = switched
			return false, s.callHook(switched)
		}
		if !errors.Is(err, tablecopy.ErrLost) {
			return false, s.resolveSwitch(ctx, d, err)
		}
		return false, err
	}
	if errors.Is(err, errKilled) || errors.Is(err, tablecopy.ErrLost) {
		return false, err
	}
	s.resume(ctx, d, c)
	if ctx.Err() == nil && short.Err() != nil {
		return true, fmt.Errorf("the last changes could not be copied within %s", limit)
	}
	return false, err
}

// lastChanges pauses writes, and copies the remaining changes.
func (s *Service) lastChanges(ctx context.Context, d *Deployment, c *tablecopy.Copy) error {
	for {
		err := c.Pause(ctx)
		if err == nil {
			break
		}
		if !fault.Is(err, fault.Unavailable) || !pause.For(ctx, quick) { // a long transaction holds up the pause
			return err
		}
	}
	if err := s.callHook("fenced"); err != nil {
		return err
	}
	if d.MigrateData {
		if err := c.Finish(ctx); err != nil {
			return err
		}
	} else if err := c.CopyTables(ctx, "settings", "domains", "revisions"); err != nil {
		return err
	}
	return s.callHook("finished")
}

// resolveSwitch determines whether a switch was committed although the commit returned an error.
// Until then, the source refuses writes.
func (s *Service) resolveSwitch(ctx context.Context, d *Deployment, cause error) error {
	if err := s.settleAndRollBack(ctx, *d, reasonOf(cause), true); err != nil {
		return err
	}
	return tablecopy.ErrLost // it was rolled back, or it has switched and the next round continues
}

// complete does the rest of a deployment after the switch.
func (s *Service) complete(ctx context.Context, d Deployment) error {
	d, err := s.claim(ctx, d, switched)
	if err != nil {
		return err
	}
	to, err := s.Stores.At(d.Tenant, d.Target)
	if err != nil {
		return err
	}
	if err := tablecopy.Detach(ctx, to); err != nil {
		return err
	}
	s.dropLeftovers(ctx, &d)
	err = s.Stores.Write(ctx, d.Tenant, func(tx *db.Tx) error {
		const kind = "TENANT_DEPLOYED"
		there, err := audit.WasRecorded(ctx, tx, kind, string(d.Tenant), *d.SwitchedAt)
		if err != nil || there {
			return err
		}
		if !d.MigrateData {
			if err := s.bumpRevisions(ctx, tx); err != nil {
				return err
			}
		}
		return s.record(ctx, tx, d, kind, *d.SwitchedAt, map[string]any{"region": map[string]any{"from": d.FromRegion, "to": d.Region}, "migrate_data": d.MigrateData})
	})
	if err != nil {
		return err
	}
	return s.finish(ctx, d, done)
}

// bumpRevisions makes every replica reload a tenant that started empty.
func (s *Service) bumpRevisions(ctx context.Context, tx *db.Tx) error {
	names, err := revisions(ctx, tx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := tx.Bump(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// rollBack restores the state of the tenant before the deployment.
func (s *Service) rollBack(ctx context.Context, d Deployment) error {
	d, err := s.claim(ctx, d, rollingBack)
	if err != nil {
		return err
	}
	from, err := s.Stores.At(d.Tenant, d.Source)
	if err == nil {
		err = tablecopy.Release(ctx, from, d.Token)
	}
	if err != nil && !s.wasPurged(ctx, d.Tenant) {
		return fmt.Errorf("the tenant's writes cannot be resumed: %w", err)
	}
	to, err := s.Stores.At(d.Tenant, d.Target)
	if err == nil && d.Attempts > 0 {
		err = tablecopy.Discard(ctx, to, d.Token)
	}
	s.dropLeftovers(ctx, &d)
	if err != nil { // the data is removed when the tenant is purged
		s.Logger.Warn("a deployment that failed left data in the new region", "tenant", d.Tenant, "region", d.Region, "error", err)
	}
	err = s.Stores.Write(ctx, d.Tenant, func(tx *db.Tx) error {
		return s.record(ctx, tx, d, "TENANT_DEPLOYMENT_FAILED", s.Now(), map[string]any{"region": d.Region, "reason": d.ReasonText})
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return s.finish(ctx, d, failed)
}

// discardCopy discards the copy of an attempt that another process has taken over, unless the copy
// is in use or the deployment still names it.
func (s *Service) discardCopy(ctx context.Context, d Deployment) error {
	known, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (bool, error) { return isTargetNamed(ctx, tx, d) })
	if err != nil || known {
		return err
	}
	to, err := s.Stores.At(d.Tenant, d.Target)
	if err != nil {
		return err
	}
	return tablecopy.Discard(ctx, to, d.Token)
}

// wasPurged reports whether a tenant was purged.
func (s *Service) wasPurged(ctx context.Context, id scope.TenantID) bool {
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) error {
		_, err := s.Stores.PlaceOf(ctx, tx, id)
		return err
	})
	return fault.Is(err, fault.NotFound)
}

// purge drops the source of a move when it is no longer kept.
func (s *Service) purge(ctx context.Context, d Deployment) error {
	at, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (string, error) { return s.Stores.PlaceOf(ctx, tx, d.Tenant) })
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err == nil && at == d.Source { // it moved back meanwhile
		return s.markPurged(ctx, d)
	}
	from, err := s.Stores.At(d.Tenant, d.Source)
	if err != nil {
		return err
	}
	s.dropLeftovers(ctx, &d)
	if err := tablecopy.Discard(ctx, from, d.Token); err != nil {
		return err
	}
	return s.markPurged(ctx, d)
}

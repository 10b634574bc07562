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
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// poll is how often the runner looks for deployments whose time has come.
	poll = 2 * time.Second
	// attempts is how often a move is begun before it is rolled back.
	attempts = 5
	// pauseAim is how long writes are paused at most, in all tries but the last.
	pauseAim = 1500 * time.Millisecond
	// pauseLimit is the longest pause of writes. Writers wait for longer than that.
	pauseLimit = 15 * time.Second
	// pauses is how often a move pauses writes before it is rolled back.
	pauses = 6
	// backlog is how many changes may be left for the pause.
	backlog = 100
	// rounds bounds how often a copy falls behind before it pauses writes anyway.
	rounds = 20
)

// Run moves tenants until ctx ends. Only one replica at a time may run it; if two do, the later
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
		if err := s.round(ctx); err != nil && ctx.Err() == nil {
			s.Logger.Warn("deployments of tenants", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-wake:
		}
	}
}

// round does what is due.
func (s *Service) round(ctx context.Context) error {
	var list, old []Deployment
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		if list, err = open(ctx, tx); err == nil {
			old, err = kept(ctx, tx, s.Now())
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
			s.Logger.Warn("a deployment of a tenant", "tenant", d.Tenant, "deployment", d.ID, "error", err)
		}
	}
	for _, d := range old {
		if err := s.purge(ctx, d); err != nil && ctx.Err() == nil {
			s.Logger.Warn("the old data of a tenant that moved is not purged", "tenant", d.Tenant, "deployment", d.ID, "error", err)
		}
	}
	return nil
}

// advance takes a deployment as far as it goes.
func (s *Service) advance(ctx context.Context, d Deployment) error {
	switch d.Phase {
	case rollingBack:
		return s.rollBack(ctx, d)
	case switched:
		return s.complete(ctx, d)
	}
	begun, err := s.take(ctx, d, copying)
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
		return err // the next process begins again
	case errors.Is(err, tablecopy.ErrLost): // stopped, purged, or another process goes on
		return errors.Join(err, s.sweep(ctx, d))
	case fault.Is(err, fault.Unavailable) && d.Attempts < 3:
		// It may pass. Until the next round, the tenant is as it was.
		s.Logger.Warn("a deployment of a tenant begins again", "tenant", d.Tenant, "deployment", d.ID, "error", err)
		return nil
	}
	s.Logger.Warn("a deployment of a tenant failed", "tenant", d.Tenant, "deployment", d.ID, "error", err)
	return s.abandon(ctx, d, reasonOf(err))
}

// reasonOf says why a move failed, without what only the log may say.
func reasonOf(err error) string {
	if errors.Is(err, tablecopy.ErrInUse) {
		return tablecopy.ErrInUse.Error()
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Message
	}
	return err.Error()
}

// abandon rolls back, unless the tenant has switched after all: the answer to a commit may
// have been lost. It only returns when that is certain.
func (s *Service) abandon(ctx context.Context, d Deployment, reason string) error {
	for {
		ours, err := s.giveUp(ctx, d, reason)
		if err == nil && ours {
			d.Phase, d.ReasonText = rollingBack, reason
			return s.rollBack(ctx, d)
		}
		if err == nil {
			return nil // it has switched, was stopped, or another process has it: the next round goes on
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// errKilled is what tests end a process's part with.
var errKilled = errors.New("killed")

// enter begins a phase.
func (s *Service) enter(ctx context.Context, d *Deployment, phase string) error {
	if err := s.note(ctx, d, phase); err != nil {
		return err
	}
	d.Phase = phase
	return s.at(phase)
}

func (s *Service) at(phase string) error {
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
	if err := s.at(copying); err != nil {
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

// dropLeftovers drops what earlier attempts left. What stays is tried again with the next
// attempt, at the end, and with the source.
func (s *Service) dropLeftovers(ctx context.Context, d *Deployment) {
	if d.Leftovers == "" {
		return
	}
	for _, store := range strings.Fields(d.Leftovers) {
		part, err := s.Stores.At(d.Tenant, store)
		if err == nil {
			err = tablecopy.Discard(ctx, part, d.Token)
		}
		if err != nil {
			s.Logger.Warn("an earlier attempt left data in the new region", "tenant", d.Tenant, "region", d.Region, "error", err)
			return
		}
	}
	if err := s.swept(ctx, *d); err != nil {
		s.Logger.Warn("a deployment of a tenant", "tenant", d.Tenant, "deployment", d.ID, "error", err)
		return
	}
	d.Leftovers = ""
}

// copyAll copies everything while the tenant is in use.
func (s *Service) copyAll(ctx context.Context, d *Deployment, c *tablecopy.Copy) (err error) {
	if d.RowsTotal, err = c.Rows(ctx); err != nil {
		return err
	}
	if err := s.note(ctx, d, copying); err != nil {
		return err
	}
	reported := s.Ticks()
	c.Progress = func(ctx context.Context, rows int64) error {
		if d.RowsCopied = rows; s.Ticks().Sub(reported) < 500*time.Millisecond {
			return nil
		}
		reported = s.Ticks()
		return s.note(ctx, d, copying)
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

// switchOver pauses writes, copies what is left, and switches. If that takes long, writes go on
// under a stronger brake, and it tries again.
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

// pauseAndSwitch pauses writes for at most limit. It reports whether that was too short; then
// writes go on, and err says so.
func (s *Service) pauseAndSwitch(ctx context.Context, d *Deployment, c *tablecopy.Copy, limit time.Duration) (late bool, err error) {
	if err := s.enter(ctx, d, paused); err != nil {
		return false, err
	}
	began := s.Ticks()
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = s.lastChanges(short, d, c)
	if err == nil {
		// Its outcome must be known, so a stop of the server does not interrupt it.
		commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseLimit)
		defer cancel()
		if err = s.place(commit, d, s.Ticks().Sub(began)); err == nil {
			d.Phase = switched
			return false, s.at(switched)
		}
		if !errors.Is(err, tablecopy.ErrLost) {
			return false, s.undecided(ctx, d, err)
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

// lastChanges pauses writes, and makes both sides equal.
func (s *Service) lastChanges(ctx context.Context, d *Deployment, c *tablecopy.Copy) error {
	for {
		err := c.Pause(ctx)
		if err == nil {
			break
		}
		if !fault.Is(err, fault.Unavailable) || sleep(ctx, quick) != nil { // a writer takes long
			return err
		}
	}
	if err := s.at("fenced"); err != nil {
		return err
	}
	if d.MigrateData {
		if err := c.Finish(ctx); err != nil {
			return err
		}
	} else if err := c.Only(ctx, "settings", "domains", "revisions"); err != nil {
		return err
	}
	return s.at("finished")
}

// undecided finds out whether a switch took place whose commit returned an error. Until that
// is known, the source takes no writes.
func (s *Service) undecided(ctx context.Context, d *Deployment, cause error) error {
	for {
		ours, err := s.giveUp(ctx, *d, reasonOf(cause))
		switch {
		case err == nil && ours:
			d.Phase, d.ReasonText = rollingBack, reasonOf(cause)
			if err := s.rollBack(ctx, *d); err != nil {
				return err
			}
			return tablecopy.ErrLost // it has ended
		case err == nil:
			return tablecopy.ErrLost // it has switched: the next round goes on
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// complete does what is left after the switch.
func (s *Service) complete(ctx context.Context, d Deployment) error {
	d, err := s.take(ctx, d, switched)
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
			if err := s.wake(ctx, tx); err != nil {
				return err
			}
		}
		return s.record(ctx, tx, d, kind, *d.SwitchedAt, map[string]any{"region": map[string]any{"from": d.FromRegion, "to": d.Region}, "migrate_data": d.MigrateData})
	})
	if err != nil {
		return err
	}
	return s.end(ctx, d, done)
}

// wake has every replica read a tenant again that started empty.
func (s *Service) wake(ctx context.Context, tx *db.Tx) error {
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

// rollBack leaves the tenant as it was before the deployment.
func (s *Service) rollBack(ctx context.Context, d Deployment) error {
	d, err := s.take(ctx, d, rollingBack)
	if err != nil {
		return err
	}
	from, err := s.Stores.At(d.Tenant, d.Source)
	if err == nil {
		err = tablecopy.Release(ctx, from, d.Token)
	}
	if err != nil && !s.gone(ctx, d.Tenant) {
		return fmt.Errorf("the tenant's writes cannot be let go on: %w", err)
	}
	to, err := s.Stores.At(d.Tenant, d.Target)
	if err == nil && d.Attempts > 0 {
		err = tablecopy.Discard(ctx, to, d.Token)
	}
	s.dropLeftovers(ctx, &d)
	if err != nil { // the purge of the tenant removes it
		s.Logger.Warn("a deployment that failed left data in the new region", "tenant", d.Tenant, "region", d.Region, "error", err)
	}
	err = s.Stores.Write(ctx, d.Tenant, func(tx *db.Tx) error {
		return s.record(ctx, tx, d, "TENANT_DEPLOYMENT_FAILED", s.Now(), map[string]any{"region": d.Region, "reason": d.ReasonText})
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return s.end(ctx, d, failed)
}

// sweep removes the copy of an attempt that lost, unless the tenant has switched to it or the
// deployment knows of it.
func (s *Service) sweep(ctx context.Context, d Deployment) error {
	var known bool
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		known, err = knows(ctx, tx, d)
		return err
	})
	if err != nil || known {
		return err
	}
	to, err := s.Stores.At(d.Tenant, d.Target)
	if err != nil {
		return err
	}
	return tablecopy.Discard(ctx, to, d.Token)
}

// gone reports whether a tenant was purged.
func (s *Service) gone(ctx context.Context, id scope.TenantID) bool {
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) error {
		_, err := s.Stores.PlaceOf(ctx, tx, id)
		return err
	})
	return fault.Is(err, fault.NotFound)
}

// purge drops the source of a move, once it is no longer kept.
func (s *Service) purge(ctx context.Context, d Deployment) error {
	var at string
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		at, err = s.Stores.PlaceOf(ctx, tx, d.Tenant)
		return err
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err == nil && at == d.Source { // it went back meanwhile
		return s.purged(ctx, d)
	}
	from, err := s.Stores.At(d.Tenant, d.Source)
	if err != nil {
		return err
	}
	s.dropLeftovers(ctx, &d)
	if err := tablecopy.Discard(ctx, from, d.Token); err != nil {
		return err
	}
	return s.purged(ctx, d)
}

package job

import (
	"context"
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// LaneTime is how long a lane stays with a replica that gives no sign of life. A turn
// must be shorter, or prolong it.
const LaneTime = time.Minute

// quickPlaces and slowPlaces are how many lanes one Lanes serves at once, of all tenants:
// those whose receivers answer, and those whose receivers hang.
const (
	quickPlaces = 256
	slowPlaces  = 256
)

// Lane is one receiver that deliveries wait for. One replica serves it at a time, so
// its deliveries keep their order, and a slow receiver holds up no other.
type Lane struct {
	// ID is that of the row with the columns lane_holder and lane_until.
	ID int64 `db:"id"`
	// Due is when its next delivery is due; nil: none waits.
	Due *time.Time `db:"due"`
	// Paused is until when its receiver is left alone; nil: it is not.
	Paused *time.Time `db:"paused_until"`
	Until  time.Time  `db:"lane_until"`
	Holder string     `db:"lane_holder"`
}

// Lanes serves the lanes of all tenants. Replicas each have one.
type Lanes struct {
	Cluster *db.Cluster
	// Topic is what a tenant with new deliveries is notified by.
	Topic string
	// Holder names this process; it differs from that of every other.
	Holder string
	// Active reports whether a tenant's deliveries are to be sent.
	Active func(ctx context.Context, tenant scope.TenantID) (bool, error)
	Now    func() time.Time
	// Poll is how often all tenants are looked at, in case that a wake was missed.
	Poll   time.Duration
	Logger *slog.Logger
	// List reads the enabled lanes of a tenant.
	List func(ctx context.Context, tx *db.Tx) ([]Lane, error)
	// Look is told of each look at a tenant, in its transaction; nil: nobody is.
	Look func(ctx context.Context, tenant scope.TenantID, tx *db.Tx) error
	// Turn sends what is due in one lane, and says when to look at its tenant again; the
	// zero time is at once. It calls renew when its receiver has answered: a turn that does
	// not for a second is slow.
	Turn func(ctx context.Context, key LaneKey, renew func()) (time.Time, error)

	agenda *Agenda
	places *places
}

// LaneKey names a lane.
type LaneKey struct {
	Tenant scope.TenantID
	Lane   int64
}

// Run serves until ctx ends, and returns when the last turn has ended.
func (l *Lanes) Run(ctx context.Context) error {
	l.agenda = &Agenda{Cluster: l.Cluster, Topic: l.Topic, Now: l.Now, Poll: l.Poll, Logger: l.Logger}
	l.places = &places{
		slowAfter: time.Second, serve: l.serve, done: func(key LaneKey, again time.Time) { l.agenda.Schedule(key.Tenant, again) },
		known: map[LaneKey]bool{}, hanging: map[LaneKey]bool{}, quick: queue{free: quickPlaces}, slow: queue{free: slowPlaces},
	}
	defer l.agenda.Begin()()
	defer l.places.running.Wait()
	for {
		tenant, ok := l.agenda.Next(ctx)
		if !ok {
			return nil
		}
		if err := l.checkTenant(ctx, tenant); err != nil && ctx.Err() == nil {
			if !fault.Is(err, fault.NotFound) { // deleted meanwhile
				l.Logger.Warn(l.Topic+": a tenant was skipped", "tenant", tenant, "error", err)
				l.agenda.Schedule(tenant, l.Now().Add(2*time.Second))
			}
		}
	}
}

// checkTenant starts the lanes of a tenant that have something to send, and notes when to
// look again.
func (l *Lanes) checkTenant(ctx context.Context, tenant scope.TenantID) error {
	var waiting []Lane
	err := l.Cluster.Read(ctx, tenant, func(tx *db.Tx) error {
		if l.Look != nil {
			if err := l.Look(ctx, tenant, tx); err != nil {
				return err
			}
		}
		all, err := l.List(ctx, tx)
		waiting = nil
		for _, lane := range all {
			if lane.Due != nil {
				waiting = append(waiting, lane)
			}
		}
		return err
	})
	if err != nil || len(waiting) == 0 {
		return err
	}
	if active, err := l.Active(ctx, tenant); err != nil || !active {
		return err
	}
	now := l.Now()
	for _, lane := range waiting {
		due := *lane.Due
		if lane.Paused != nil && lane.Paused.After(due) {
			due = *lane.Paused
		}
		foreign := lane.Holder != "" && lane.Holder != l.Holder && lane.Until.After(now)
		switch {
		case due.After(now):
			l.agenda.Schedule(tenant, due)
		case foreign:
			l.agenda.Schedule(tenant, lane.Until)
		default:
			l.places.start(ctx, LaneKey{tenant, lane.ID})
		}
	}
	return nil
}

// serve is the turn of a lane. It gives when to look at it again; the zero time is at once.
func (l *Lanes) serve(ctx context.Context, key LaneKey, renew func()) time.Time {
	again, err := l.Turn(ctx, key, renew)
	if err != nil && ctx.Err() == nil && !fault.Is(err, fault.NotFound) {
		l.Logger.Warn(l.Topic+": deliveries were not sent", "tenant", key.Tenant, "lane", key.Lane, "error", err)
		again = l.Now().Add(2 * time.Second)
	}
	return again
}

// LaneTable is a table whose rows are lanes: it has the columns id, enabled,
// lane_holder and lane_until.
type LaneTable string

// HoldLane takes a lane that is enabled and free, or prolongs ours. It reports false
// where another replica has it.
func HoldLane(ctx context.Context, tx *db.Tx, table LaneTable, id int64, holder string, now time.Time) (bool, error) {
	return holdLane(ctx, tx, table, id, holder, now, now.Add(LaneTime))
}

// FreeLane gives a lane back, if it is still ours.
func FreeLane(ctx context.Context, tx *db.Tx, table LaneTable, id int64, holder string) error {
	return freeLane(ctx, tx, table, id, holder)
}

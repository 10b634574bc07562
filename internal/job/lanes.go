package job

import (
	"context"
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// LaneTime is how long a replica owns a lane without renewing it. A turn must be shorter or renew
// it.
const LaneTime = time.Minute

// quickPlaces and slowPlaces limit how many lanes of all tenants one Lanes serves at once: lanes
// whose receivers answer, and lanes whose receivers hang.
const (
	quickPlaces = 256
	slowPlaces  = 256
)

// Lane is a queue of deliveries to one receiver. Only one replica serves it at a time, so the
// deliveries stay in order. A slow receiver does not delay other lanes.
type Lane struct {
	// ID is the id of the row with the columns lane_holder and lane_until.
	ID int64 `db:"id"`
	// Due is when the next delivery is due. If it is nil, none is waiting.
	Due *time.Time `db:"due"`
	// Paused is the time until which nothing is sent to the receiver. If it is nil, the lane is not
	// paused.
	Paused *time.Time `db:"paused_until"`
	Until  time.Time  `db:"lane_until"`
	Holder string     `db:"lane_holder"`
}

// Lanes serves the lanes of all tenants. Each replica has one for each kind of receiver.
type Lanes struct {
	Cluster *db.Cluster
	// Topic is the name of the notification about new deliveries.
	Topic string
	// Holder identifies this process. It must be unique.
	Holder string
	// Active reports whether a tenant's deliveries may be sent.
	Active func(ctx context.Context, tenant scope.TenantID) (bool, error)
	Now    func() time.Time
	// Poll is the interval at which all tenants are checked, in case a notification was lost.
	Poll   time.Duration
	Logger *slog.Logger
	// List reads the enabled lanes of a tenant.
	List func(ctx context.Context, tx *db.Tx) ([]Lane, error)
	// OnCheck, if set, is called in the transaction of each check of a tenant.
	OnCheck func(ctx context.Context, tenant scope.TenantID, tx *db.Tx) error
	// Turn sends what is due in one lane. It returns when to check the tenant again; the zero time
	// means at once. It calls renew after each answer of the receiver. A turn is slow if it does
	// not call renew for a second.
	Turn func(ctx context.Context, key LaneKey, renew func()) (time.Time, error)

	agenda *Agenda
	places *places
}

// LaneKey identifies a lane.
type LaneKey struct {
	Tenant scope.TenantID
	Lane   int64
}

// Run serves lanes until ctx ends. It returns when the last turn has ended.
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
			if !fault.Is(err, fault.NotFound) { // not an error: the tenant was deleted
				l.Logger.Warn(l.Topic+": a tenant was skipped", "tenant", tenant, "error", err)
				l.agenda.Schedule(tenant, l.Now().Add(2*time.Second))
			}
		}
	}
}

// checkTenant starts the lanes of a tenant that have something to send. For the others it schedules
// the next check.
func (l *Lanes) checkTenant(ctx context.Context, tenant scope.TenantID) error {
	var waiting []Lane
	err := l.Cluster.Read(ctx, tenant, func(tx *db.Tx) error {
		if l.OnCheck != nil {
			if err := l.OnCheck(ctx, tenant, tx); err != nil {
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
			l.places.enqueue(ctx, LaneKey{tenant, lane.ID})
		}
	}
	return nil
}

// serve runs the turn of a lane. It returns when to check it again; the zero time means at once.
func (l *Lanes) serve(ctx context.Context, key LaneKey, renew func()) time.Time {
	again, err := l.Turn(ctx, key, renew)
	if err != nil && ctx.Err() == nil && !fault.Is(err, fault.NotFound) {
		l.Logger.Warn(l.Topic+": deliveries were not sent", "tenant", key.Tenant, "lane", key.Lane, "error", err)
		again = l.Now().Add(2 * time.Second)
	}
	return again
}

// LaneTable is the name of a table whose rows are lanes. It has the columns id, enabled,
// lane_holder and lane_until.
type LaneTable string

// AcquireLane acquires a lane that is enabled and free, or renews it if holder already owns it. It
// returns false if another replica owns it.
func AcquireLane(ctx context.Context, tx *db.Tx, table LaneTable, id int64, holder string, now time.Time) (bool, error) {
	return holdLane(ctx, tx, table, id, holder, now, now.Add(LaneTime))
}

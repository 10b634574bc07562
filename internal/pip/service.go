package pip

import (
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/pip/source"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// changes is the lock under which connections change, so that names stay unique and the number
// of connections stays bounded.
const changes = "pip connections"

// Topic is the notification that a tenant has something to sync.
const Topic = "pip_syncs"

// Service has the use cases on data sources.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	// Box seals the credentials.
	Box *secret.Box
	// Target calls the sources. It refuses addresses that the operator does not allow.
	Target *outbound.Client
	// Repository reads a file of a git repository for a tenant (package ide); nil: sources cannot be
	// repositories.
	Repository func(ctx context.Context, tenant scope.TenantID, f source.File) (source.Content, error)
	Logger     *slog.Logger
	// Panics counts the panics of fetches.
	Panics *fault.Panics

	trials trials
}

// List returns one page of the connections that match a filter, sorted by id.
func (s *Service) List(ctx context.Context, sc scope.Scope, f Filter) (Page, error) {
	var page Page
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = count(ctx, tx, f); err != nil {
			return err
		}
		page.Connections, err = list(ctx, tx, f)
		return err
	})
	for i := range page.Connections {
		page.Connections[i] = page.Connections[i].withComputed(s.Now())
	}
	return page, err
}

// Get returns one connection.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Connection, error) {
	c, err := s.load(ctx, sc.Tenant, id)
	return c.withComputed(s.Now()), err
}

// Create stores a connection. If it has a schedule, it is synced at once.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Connection, error) {
	c := d.connection()
	c.CreatedBy = sc.Actor.Name
	if err := s.check(ctx, c, d.Credentials); err != nil {
		return Connection{}, err
	}
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		n, err := count(ctx, tx, Filter{})
		if err := fault.CheckCounted(n, err, maxConnections, "a tenant has at most %d data sources"); err != nil {
			return err
		}
		if err := checkNameFree(ctx, tx, c.Name, 0); err != nil {
			return err
		}
		c.CreatedAt = db.Stamp(s.Now())
		c.UpdatedAt = c.CreatedAt
		if c, err = insert(ctx, tx, c.due(c.CreatedAt)); err != nil {
			return err
		}
		if c.Credentials, err = s.seal(sc.Tenant, c.ID, d.Credentials); err != nil {
			return err
		}
		if c, err = update(ctx, tx, c); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, c, "PIP_CONNECTION_CREATED", map[string]any{
			"provider": c.Provider, "target": outbound.Origin(c.Configuration.URL), "sync_enabled": c.SyncEnabled, "sync_frequency": c.SyncFrequency,
		})
	})
	return c.withComputed(s.Now()), err
}

// Update changes the members that were sent. If ifChange is not 0, it must be the connection's
// ChangeNo; if it is not, Update fails with a Precondition fault. After a change of the
// configuration, the credentials or the schedule, a connection with a schedule is synced at once.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id int64, ch Change, ifChange int64) (Connection, error) {
	old, err := s.load(ctx, sc.Tenant, id)
	if err != nil {
		return Connection{}, err
	}
	next, secrets, err := s.apply(sc.Tenant, old, ch)
	if err != nil {
		return Connection{}, err
	}
	if err := s.check(ctx, next, secrets); err != nil {
		return Connection{}, err
	}
	var c Connection
	err = s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		old, err := loadCurrent(ctx, tx, id, ifChange)
		if err != nil {
			return err
		}
		next, secrets, err := s.apply(sc.Tenant, old, ch)
		if err != nil {
			return err
		}
		if next.Credentials, err = s.reseal(sc.Tenant, old, secrets); err != nil {
			return err
		}
		if reflect.DeepEqual(next, old) {
			c = old // nothing changed: no new ChangeNo, no audit entry
			return nil
		}
		next.ChangeNo, next.UpdatedAt = old.ChangeNo+1, db.Stamp(s.Now())
		if c, err = s.save(ctx, tx, old, next); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, c, "PIP_CONNECTION_UPDATED", changesOf(old, c))
	})
	return c.withComputed(s.Now()), err
}

// save writes a changed connection. It also records a new name as a change of data.pip, schedules
// the next sync, and has that sync read everything if the configuration or credentials changed.
func (s *Service) save(ctx context.Context, tx *db.Tx, old, next Connection) (Connection, error) {
	if next.Name != old.Name {
		if err := checkNameFree(ctx, tx, next.Name, next.ID); err != nil {
			return next, err
		}
		if err := noteChange(ctx, tx, old.Name, next.Name); err != nil {
			return next, err
		}
	}
	reads := !reflect.DeepEqual(old.Configuration, next.Configuration) || string(old.Credentials) != string(next.Credentials)
	if reads || old.SyncEnabled != next.SyncEnabled || old.SyncFrequency != next.SyncFrequency {
		next = next.due(next.UpdatedAt)
		asked, err := isRequested(ctx, tx, next.ID)
		if err != nil {
			return next, err
		}
		if asked {
			next.NextSync = &next.UpdatedAt
		}
	}
	if reads { // the state of the last fetch belongs to the old configuration
		if err := forgetState(ctx, tx, next.ID); err != nil {
			return next, err
		}
	}
	return update(ctx, tx, next)
}

// due returns the connection with its next sync at a time, or with none if it has no schedule.
func (c Connection) due(at time.Time) Connection {
	c.NextSync = nil
	if c.scheduled() {
		c.NextSync = &at
	}
	return c
}

// apply returns a connection with a change made, and its credentials in clear. It fails if stored
// credentials would go to another host than the one that they were given for, or cannot be decrypted.
func (s *Service) apply(tenant scope.TenantID, old Connection, ch Change) (Connection, source.Credentials, error) {
	next := old.apply(ch)
	if ch.Credentials.Sent {
		return next, ch.Credentials.Value, nil
	}
	secrets, err := s.open(tenant, old)
	err = secret.AskAgain(err, "/credentials")
	if err == nil && !secrets.Empty() && source.Origins(old.Configuration) != source.Origins(next.Configuration) {
		f := fault.Invalidf("/credentials", "another host needs the credentials again")
		f.Code = "credential_required"
		err = f
	}
	return next, secrets, err
}

// Delete removes a connection and its data. Controls then find data.pip.<name> undefined. ifChange
// is that of Update.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id, ifChange int64) error {
	return s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		c, err := loadCurrent(ctx, tx, id, ifChange)
		if err != nil {
			return err
		}
		if err := noteChange(ctx, tx, c.Name); err != nil {
			return err
		}
		if err := remove(ctx, tx, id); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, c, "PIP_CONNECTION_DELETED", map[string]any{"provider": c.Provider, "target": outbound.Origin(c.Configuration.URL)})
	})
}

// check validates a connection and its credentials, which are in clear, and checks that its
// addresses may be called.
func (s *Service) check(ctx context.Context, c Connection, secrets source.Credentials) error {
	wrong := append(checkName(c.Name), source.Check(c.Provider, c.Configuration, secrets)...)
	if text, err := json.Marshal(c.Configuration); err != nil || len(text) > 32<<10 {
		wrong = append(wrong, fault.Detail{Pointer: "/configuration", Message: "must not be larger than 32 KiB"})
	}
	if err := fault.CheckValues("the data source is not valid", wrong); err != nil {
		return err
	}
	return source.CheckTargets(ctx, s.Target, c.Provider, c.Configuration)
}

// changesOf lists the differences for the audit. Of the configuration it gives the host, and that
// the rest changed; of the credentials only that they changed.
func changesOf(old, next Connection) map[string]any {
	out := patch.Differences{}
	out.Note("name", old.Name, next.Name)
	out.Note("connection_type", old.ConnectionType, next.ConnectionType)
	out.Note("sync_enabled", old.SyncEnabled, next.SyncEnabled)
	out.Note("sync_frequency", old.SyncFrequency, next.SyncFrequency)
	out.Note("target", outbound.Origin(old.Configuration.URL), outbound.Origin(next.Configuration.URL))
	if !reflect.DeepEqual(old.Configuration, next.Configuration) {
		out["configuration_changed"] = true
	}
	if string(old.Credentials) != string(next.Credentials) {
		out["sign_in_changed"] = true
	}
	return out
}

// record writes the audit entry of a change, and notifies the Syncer.
func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, c Connection, kind string, changes map[string]any) error {
	if err := tx.Notify(ctx, Topic); err != nil {
		return err
	}
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
		Type: kind, Object: "pip_connection", ObjectID: strconv.FormatInt(c.ID, 10), ObjectName: c.Name, Changes: changes,
	})
}

func (s *Service) load(ctx context.Context, tenant scope.TenantID, id int64) (Connection, error) {
	return db.Read(ctx, s.Stores, tenant, func(tx *db.Tx) (Connection, error) { return load(ctx, tx, id) })
}

func load(ctx context.Context, tx *db.Tx, id int64) (Connection, error) {
	c, err := get(ctx, tx, id)
	return db.Found(c, err, true, "data source")
}

func loadCurrent(ctx context.Context, tx *db.Tx, id, ifChange int64) (Connection, error) {
	c, err := load(ctx, tx, id)
	return fault.Current(c, err, "data source", c.ChangeNo, ifChange)
}

// checkNameFree refuses a name that another connection has, ignoring case: bouncers refuse JSON
// whose members differ only in case.
func checkNameFree(ctx context.Context, tx *db.Tx, name string, self int64) error {
	all, err := names(ctx, tx)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.ID != self && strings.EqualFold(other.Name, name) {
			return fault.Newf(fault.Conflict, "already_exists", "a data source named %q already exists", other.Name)
		}
	}
	return nil
}

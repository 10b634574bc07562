package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Service has the use cases for tenants.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	// BaseDomain is the domain whose subdomains are tenants; empty: none.
	BaseDomain string
	// Counters count the objects of a kind (Policies, Users, Bouncers) in a
	// tenant's store; a kind without one is not limited.
	Counters map[string]func(ctx context.Context, tx *db.Tx) (int64, error)
	// OnCreate adds to a new tenant's store, in the transaction that logs its creation.
	OnCreate []func(ctx context.Context, tx *db.Tx, t Tenant) error
	// OnPurge removes the data of a tenant that is outside its store: objects, cache.
	OnPurge []func(ctx context.Context, id scope.TenantID) error
	// Purged removes what this process still has on disk of a tenant when its store is gone. Each
	// replica calls it, and again when it starts (ForgetPurged).
	Purged []func(id scope.TenantID) error
	// RevokeHooks end all credentials of a tenant within a transaction of its store: keys,
	// sessions, passwords, bouncers' tokens. They run when a deleted tenant becomes active again,
	// which restores its data but none of these.
	RevokeHooks []func(ctx context.Context, tx *db.Tx) error
	// MayEnforce checks the license before production enforces; a refusal is a Forbidden fault. Nil
	// allows everything.
	MayEnforce func(ctx context.Context, sc scope.Scope) error
	// Readmit is called before a deleted tenant of a vendor becomes active again. It returns a
	// check of the vendor's limit for the transaction of the record. Nil: there are no vendors.
	Readmit func(ctx context.Context, vendor string) (check func(ctx context.Context, tx *db.Tx) error, err error)

	// between is called between two commits of one change; for tests.
	between func()
}

// EnsureDefault creates the tenant `default` if it does not exist. Several replicas may call it at
// once.
func (s *Service) EnsureDefault(ctx context.Context) error {
	now := db.Stamp(s.Now())
	t := Tenant{
		ID: scope.DefaultTenant, Name: "Default", Domain: s.subdomain(scope.DefaultTenant), Status: Active,
		Region: DefaultRegion, PlanType: DefaultPlan, CreatedAt: now, UpdatedAt: now, Settings: Settings{},
	}
	err := s.Stores.System().Write(ctx, func(tx *db.Tx) error { return insertDefault(ctx, tx, t) })
	if err != nil {
		return err
	}
	_, err = s.Stores.Tenant(ctx, scope.DefaultTenant)
	return err
}

// Create creates a tenant, with an id made from its name. If the id is or ever was in use, a number
// follows it. For platform administrators only.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Tenant, error) {
	if !sc.Platform {
		return Tenant{}, fault.New(fault.Forbidden, "permission_denied", "only a platform administrator can create tenants")
	}
	t, err := s.draft(d)
	if err != nil {
		return Tenant{}, err
	}
	return s.create(ctx, sc, t, nil)
}

// create stores a new tenant. admit runs in the transaction of the record, before it is written and
// under the lock of all new tenants; nil admits everybody.
func (s *Service) create(ctx context.Context, sc scope.Scope, t Tenant, admit func(ctx context.Context, tx *db.Tx, t Tenant) error) (Tenant, error) {
	if err := s.checkRegion(t.Region); err != nil {
		return Tenant{}, err
	}
	base := slug(t.Name)
	var in intent
	err := s.Stores.System().Write(ctx, func(tx *db.Tx) (err error) {
		if err := tx.Lock(ctx, "tenants"); err != nil {
			return err
		}
		if t.ID, err = freeID(ctx, tx, base); err != nil {
			return err
		}
		if t.Domain == "" {
			t.Domain = s.subdomain(t.ID)
		}
		if err := checkDomainsFree(ctx, tx, t); err != nil {
			return err
		}
		if admit != nil {
			if err := admit(ctx, tx, t); err != nil {
				return err
			}
		}
		if err := insertTenant(ctx, tx, t); err != nil {
			return err
		}
		if s.Stores.Serves(t.Region) {
			if _, err := s.Stores.Place(ctx, tx, t.ID, t.Region); err != nil {
				return err
			}
		}
		in = newIntent(sc, t, t.CreatedAt, created, map[string]any{"region": t.Region, "plan_type": t.PlanType, "settings": t.Settings})
		return in.store(ctx, tx)
	})
	if err != nil {
		return Tenant{}, err
	}
	s.pause()
	if err := s.recordChange(ctx, in, t); err != nil {
		return t, errors.Join(err, s.undo(context.WithoutCancel(ctx), in, t))
	}
	s.pause()
	s.forget(ctx, in)
	t.Limits = &Usage{}
	return t, nil
}

// checkRegion refuses a region without a store, if regions have stores.
func (s *Service) checkRegion(region string) error {
	served := s.Stores.Regions()
	if len(served) == 0 || s.Stores.Serves(region) {
		return nil
	}
	return fault.Invalidf("/region", "this deployment does not serve %s; it serves %s", region, strings.Join(served, ", "))
}

// draft checks the members of a new tenant, and fills in defaults.
func (s *Service) draft(d Draft) (Tenant, error) {
	now := db.Stamp(s.Now())
	t := Tenant{
		Name: strings.TrimSpace(d.Name), Status: Active, Region: d.Region, PlanType: d.PlanType,
		CreatedAt: now, UpdatedAt: now, Settings: Settings{}.merge(d.Settings),
	}
	var unnamed error
	if t.Name == "" {
		unnamed = fault.Invalidf("/name", "must not be empty")
	}
	t.Region = cmp.Or(t.Region, DefaultRegion)
	t.PlanType = cmp.Or(t.PlanType, DefaultPlan)
	domain, noDomain := checkDomain("/domain", d.Domain)
	custom, noCustom := checkDomain("/custom_domain", d.CustomDomain)
	t.Domain = domain
	if custom != "" {
		t.CustomDomain = &custom
	}
	return t, fault.Join(unnamed, noDomain, noCustom, t.Settings.check(nil))
}

// Get returns a tenant with its usage. A foreign tenant is 403, and so is an unknown one, except
// for platform administrators.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id scope.TenantID) (Tenant, error) {
	t, err := s.findVisible(ctx, sc, id)
	if err != nil {
		return Tenant{}, err
	}
	t.Limits, err = db.Read(ctx, s.Stores, id, func(tx *db.Tx) (*Usage, error) { return s.usage(ctx, tx) })
	return t, err
}

// List returns a page of all tenants to platform administrators, and only their own tenant to other
// callers.
func (s *Service) List(ctx context.Context, sc scope.Scope, f Filter) (Page, error) {
	var p Page
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		only := sc.Tenant
		if sc.Platform {
			only = ""
		}
		p, err = selectPage(ctx, tx, only, "", f)
		return err
	})
	return p, err
}

// Update changes the members that were sent. The record and its copy in the tenant's store change
// together: the transaction of the system store is the inner one, so if it fails, the audit entry
// is rolled back. It also stores the intent, so Recover completes a change that fails or is killed
// after it.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id scope.TenantID, ch Change) (Tenant, error) {
	found, err := s.findVisible(ctx, sc, id)
	if err != nil {
		return Tenant{}, err
	}
	readmit, err := s.readmission(ctx, found.Vendor)
	if err != nil {
		return Tenant{}, err
	}
	var after Tenant
	var in intent
	err = s.Stores.Write(ctx, id, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "tenant"); err != nil {
			return err
		}
		before, err := s.findVisible(ctx, sc, id)
		if err != nil {
			return err
		}
		if after, err = decideChange(sc, before, ch, db.Stamp(s.Now())); err != nil {
			return err
		}
		admit := readmit
		if before.Status != Deleted || after.Status == Deleted {
			admit = nil
		} else if err := s.endCredentials(ctx, tx); err != nil {
			return err
		}
		if err := putSettings(ctx, tx, after.Settings); err != nil {
			return err
		}
		for _, kind := range kinds() {
			if err := s.updateAlerts(ctx, tx, after.Settings, kind, 0); err != nil {
				return err
			}
		}
		if after.Limits, err = s.usage(ctx, tx); err != nil {
			return err
		}
		in = newIntent(sc, after, after.UpdatedAt, "TENANT_UPDATED", changesOf(before, after))
		return s.saveChange(ctx, tx, after, &in, admit)
	})
	if err == nil {
		s.pause()
		s.forget(ctx, in)
	}
	return after, err
}

// readmission returns the check whether a vendor's deleted tenant may become active again; nil for
// a tenant without a vendor.
func (s *Service) readmission(ctx context.Context, vendor string) (func(ctx context.Context, tx *db.Tx) error, error) {
	if vendor == "" || s.Readmit == nil {
		return nil, nil
	}
	return s.Readmit(ctx, vendor)
}

// endCredentials ends all credentials of a tenant within tx.
func (s *Service) endCredentials(ctx context.Context, tx *db.Tx) error {
	for _, revoke := range s.RevokeHooks {
		if err := revoke(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// Delete stops a tenant at once. Its data is purged after 30 days, or at once with hard. A tenant's
// own administrator may delete it, but not purge it.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id scope.TenantID, hard bool) (Deletion, error) {
	_, err := s.findVisible(ctx, sc, id)
	switch {
	case err != nil:
		return Deletion{}, err
	case id == scope.DefaultTenant:
		return Deletion{}, fault.New(fault.Conflict, "default_tenant", "the default tenant cannot be deleted")
	case hard && !sc.Platform:
		return Deletion{}, fault.New(fault.Forbidden, "permission_denied", "only a platform administrator can purge a tenant")
	}
	// The entry must stay readable: a purge deletes the tenant's own log.
	home := id
	kind, message := "TENANT_DELETED", "the tenant is deleted; its data is kept for 30 days"
	if hard {
		home, kind, message = scope.DefaultTenant, "TENANT_PURGED", "the tenant and its data are purged"
	}
	var t Tenant
	var in intent
	err = s.Stores.Write(ctx, home, func(tx *db.Tx) (err error) {
		if err := tx.Lock(ctx, "tenant"); err != nil {
			return err
		}
		if t, err = s.findVisible(ctx, sc, id); err != nil {
			return err
		}
		now := db.Stamp(s.Now())
		if t.Status != Deleted {
			end := now.Add(KeepDeleted)
			t.Status, t.DeletedAt, t.ExpiresAt, t.UpdatedAt = Deleted, &now, &end, now
		}
		in = newIntent(sc, t, now, kind, map[string]any{"status": t.Status})
		in.Home = home
		return s.saveChange(ctx, tx, t, &in, nil)
	})
	if err == nil {
		s.pause()
		ctx := context.WithoutCancel(ctx)
		if hard {
			err = s.purge(ctx, id)
		}
		if err == nil {
			s.forget(ctx, in)
		}
	}
	if err != nil {
		return Deletion{}, err
	}
	return Deletion{Message: message, ID: id, DeletedAt: *t.DeletedAt}, nil
}

// PurgeExpired purges the tenants whose 30 days are over, and returns their number. Only one
// replica may run it at a time. It can be repeated after a failure.
func (s *Service) PurgeExpired(ctx context.Context) (int, error) {
	due, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) ([]scope.TenantID, error) { return selectExpired(ctx, tx, s.Now()) })
	if err != nil {
		return 0, err
	}
	for n, id := range due {
		if err := s.purge(ctx, id); err != nil {
			return n, fmt.Errorf("purge tenant %s: %w", id, err)
		}
	}
	return len(due), nil
}

// purge deletes everything of a tenant except its id, which stays reserved. It deletes the store
// last, because the store shows that a purge is not complete.
func (s *Service) purge(ctx context.Context, id scope.TenantID) error {
	err := s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		if err := deleteIntentsFor(ctx, tx, id); err != nil {
			return err
		}
		return markDeleted(ctx, tx, id, s.Now())
	})
	if err != nil {
		return err
	}
	return s.drop(ctx, id)
}

// drop deletes a tenant's store, and its data outside the store.
func (s *Service) drop(ctx context.Context, id scope.TenantID) error {
	for _, f := range s.OnPurge {
		if err := f(ctx, id); err != nil {
			return err
		}
	}
	if err := s.Stores.DropTenant(ctx, id); err != nil {
		return err
	}
	for _, f := range s.Purged {
		if err := f(id); err != nil {
			return err
		}
	}
	return nil
}

// Facts are the facts about a tenant that the check of a credential needs.
type Facts struct {
	Status string `db:"status"`
	Plan   string `db:"plan_type"`
	// RequireFactor is the setting require_second_factor.
	RequireFactor bool `db:"-"`
}

// Facts returns the status and plan of a tenant. Fault: NotFound for an unknown one. It needs no
// permission, because package auth calls it before there is a scope.
func (s *Service) Facts(ctx context.Context, id scope.TenantID) (Facts, error) {
	f, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (Facts, error) { return selectFacts(ctx, tx, id) })
	if errors.Is(err, db.ErrNoRows) {
		return Facts{}, notFound(id)
	}
	return f, err
}

// CheckVisible refuses a tenant that the caller may not see, or that does not exist.
func (s *Service) CheckVisible(ctx context.Context, sc scope.Scope, id scope.TenantID) error {
	_, err := s.findVisible(ctx, sc, id)
	return err
}

// findVisible returns a tenant that the caller may see.
func (s *Service) findVisible(ctx context.Context, sc scope.Scope, id scope.TenantID) (Tenant, error) {
	if !sc.Platform && id != sc.Tenant {
		return Tenant{}, accessDenied(id)
	}
	t, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (Tenant, error) { return selectTenant(ctx, tx, id) })
	if errors.Is(err, db.ErrNoRows) || err == nil && t.Attempt != "" {
		return Tenant{}, notFound(id)
	}
	return t, err
}

// saveChange logs a change in tx, the transaction of the log. It writes the record and the intent
// in another transaction, in which admit, if not nil, may refuse the change under the lock of all
// new tenants.
func (s *Service) saveChange(ctx context.Context, tx *db.Tx, t Tenant, in *intent, admit func(ctx context.Context, tx *db.Tx) error) error {
	if err := in.writeLog(ctx, tx); err != nil {
		return err
	}
	err := s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		if admit != nil {
			if err := tx.Lock(ctx, "tenants"); err != nil {
				return err
			}
			if err := admit(ctx, tx); err != nil {
				return err
			}
		}
		if err := updateTenant(ctx, tx, t); err != nil {
			return err
		}
		return in.store(ctx, tx)
	})
	if err == nil {
		s.pause()
	}
	return err
}

func (s *Service) subdomain(id scope.TenantID) string {
	if s.BaseDomain == "" {
		return ""
	}
	return string(id) + "." + s.BaseDomain
}

// pause runs between two commits, where a test simulates a crash.
func (s *Service) pause() {
	if s.between != nil {
		s.between()
	}
}

// changesOf lists the differences.
func changesOf(before, after Tenant) map[string]any {
	out := map[string]any{}
	put := func(name string, was, is any, same bool) {
		if !same {
			out[name] = map[string]any{"from": was, "to": is}
		}
	}
	put("name", before.Name, after.Name, before.Name == after.Name)
	put("plan_type", before.PlanType, after.PlanType, before.PlanType == after.PlanType)
	put("status", before.Status, after.Status, before.Status == after.Status)
	for name := range before.Settings.merge(after.Settings) {
		put("settings."+name, before.Settings[name], after.Settings[name], before.Settings.same(after.Settings, name))
	}
	return out
}

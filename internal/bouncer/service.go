package bouncer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// tokenHead is the prefix of bouncer tokens (secret.NewToken).
const tokenHead = "gh_bouncer"

// Service has the use cases for bouncers.
type Service struct {
	Stores  *db.Cluster
	Now     func() time.Time
	Random  io.Reader
	Tenants *tenant.Service
	// Box encrypts the credentials that bouncers send to applications.
	Box *secret.Box
	// Root is the root of the API for bouncers, such as https://gate.example/api/v1.
	Root string
	// LinksOf returns the live controls that name a bouncer, and their resources (package policy).
	LinksOf func(ctx context.Context, tx *db.Tx, id int64) (policies, resources []int64, err error)
	// VerifyKey returns the public key for a tenant's signed bundles (package bridge).
	VerifyKey func(ctx context.Context, tenant scope.TenantID) (VerifyKey, error)
}

// List returns one page of the bouncers, by id.
func (s *Service) List(ctx context.Context, sc scope.Scope, f Filter) (Page, error) {
	var page Page
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = count(ctx, tx, sc.Env, f); err != nil {
			return err
		}
		page.Bouncers, err = list(ctx, tx, sc.Env, f)
		return err
	})
	return page, err
}

// Get returns one bouncer.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Bouncer, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Bouncer, error) { return load(ctx, tx, sc, id) })
}

// Create registers a bouncer and generates its token. Only this answer contains it.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Issued, error) {
	env, err := sc.CreateIn(d.Environment)
	if err != nil {
		return Issued{}, err
	}
	next, offences := d.bouncer().normal()
	offences = append(offences, unknownMembers(next.Configuration, nil)...)
	next.Environment = env
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		unknown, err := checkResources(ctx, tx, next, d.ResourceIDs)
		offences = append(offences, unknown...)
		return err
	})
	if err != nil {
		return Issued{}, err
	}
	if len(offences) > 0 {
		return Issued{}, invalid(offences)
	}
	key, err := s.verifyKey(ctx, sc, next)
	if err != nil {
		return Issued{}, err
	}
	var made Bouncer
	token, err := s.issueToken(ctx, sc, func(tx *db.Tx, digest string) (err error) {
		if err = s.Tenants.CheckLimit(ctx, tx, tenant.Bouncers, 1); err != nil {
			return err
		}
		if err = checkNameFree(ctx, tx, next, 0); err != nil {
			return err
		}
		// Check again: a resource may have been deleted since.
		unknown, err := checkResources(ctx, tx, next, d.ResourceIDs)
		if err != nil {
			return err
		}
		if len(unknown) > 0 {
			return invalid(unknown)
		}
		b := next
		b.CreatedAt = s.Now()
		b.UpdatedAt, b.TokenIssuedAt, b.TokenDigest = b.CreatedAt, b.CreatedAt, digest
		if made, err = insert(ctx, tx, b); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, made, "BOUNCER_CREATED", map[string]any{"target_app": made.TargetApp})
	})
	if err != nil {
		return Issued{}, err
	}
	return s.issued(made, token, key), nil
}

// Rotate gives a bouncer a new token; the old one stops working at once.
func (s *Service) Rotate(ctx context.Context, sc scope.Scope, id int64) (Issued, error) {
	before, err := s.Get(ctx, sc, id)
	if err != nil {
		return Issued{}, err
	}
	key, err := s.verifyKey(ctx, sc, before)
	if err != nil {
		return Issued{}, err
	}
	var old, made Bouncer
	token, err := s.issueToken(ctx, sc, func(tx *db.Tx, digest string) (err error) {
		if old, err = load(ctx, tx, sc, id); err != nil {
			return err
		}
		b := old
		b.TokenDigest, b.TokenIssuedAt, b.UpdatedAt, b.ChangeNo = digest, s.Now(), s.Now(), old.ChangeNo+1
		if made, err = update(ctx, tx, b); err != nil {
			return err
		}
		return s.recordRevocation(ctx, tx, sc, made, "BOUNCER_TOKEN_ROTATED")
	})
	if err != nil {
		return Issued{}, err
	}
	s.unindexToken(ctx, old.TokenDigest)
	return s.issued(made, token, key), nil
}

// issueToken generates a token, adds it to the system index, and then runs the change that stores
// its digest in the bouncer's row. Only that digest gives access, so an unused entry in the index
// does no harm.
func (s *Service) issueToken(ctx context.Context, sc scope.Scope, change func(tx *db.Tx, digest string) error) (string, error) {
	token, err := secret.NewToken(s.Random, tokenHead)
	if err != nil {
		return "", fault.Wrap(err, "generate a token")
	}
	digest := secret.DigestOf(token)
	err = s.Stores.System().Write(ctx, func(tx *db.Tx) error { return addToken(ctx, tx, sc.Tenant, digest) })
	if err != nil {
		return "", err
	}
	if err := s.write(ctx, sc, func(tx *db.Tx) error { return change(tx, digest) }); err != nil {
		s.unindexToken(ctx, digest)
		return "", err
	}
	return token, nil
}

// unindexToken removes a digest from the system index. It ignores errors: the token no longer
// works, and a purge removes leftovers.
func (s *Service) unindexToken(ctx context.Context, digest string) {
	_ = s.Stores.System().Write(context.WithoutCancel(ctx), func(tx *db.Tx) error { return removeToken(ctx, tx, digest) })
}

// Update changes the members that were sent. If ifChange is not 0, it must be the bouncer's
// ChangeNo. Fault: Precondition.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id int64, c Change, ifChange int64) (Bouncer, error) {
	var b Bouncer
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := loadCurrent(ctx, tx, sc, id, ifChange)
		if err != nil {
			return err
		}
		next, offences := old.apply(c).normal()
		offences = append(offences, unknownMembers(next.Configuration, old.Configuration)...)
		if c.Environment != nil && *c.Environment != old.Environment {
			offences = append(offences, fault.Detail{Pointer: "/environment", Message: "a bouncer cannot change its environment: register one in " + string(*c.Environment)})
		}
		if c.ResourceIDs.Sent {
			unknown, err := checkResources(ctx, tx, next, c.ResourceIDs.Value)
			if err != nil {
				return err
			}
			offences = append(offences, unknown...)
		}
		if len(offences) > 0 {
			return invalid(offences)
		}
		if next.Name != old.Name {
			if err := checkNameFree(ctx, tx, next, old.ID); err != nil {
				return err
			}
		}
		if reflect.DeepEqual(next, old) {
			b = old // nothing changes: no version, no audit entry
			return nil
		}
		next.ChangeNo, next.UpdatedAt = old.ChangeNo+1, s.Now()
		if b, err = update(ctx, tx, next); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, b, "BOUNCER_UPDATED", changesOf(old, b))
	})
	return b, err
}

// Delete removes a bouncer and revokes its token at once. If live controls name it, the fault is
// Conflict "bouncer_in_use", which lists them.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id, ifChange int64) (Bouncer, error) {
	var b Bouncer
	err := s.write(ctx, sc, func(tx *db.Tx) (err error) {
		if b, err = loadCurrent(ctx, tx, sc, id, ifChange); err != nil {
			return err
		}
		policies, _, err := s.LinksOf(ctx, tx, id)
		if err != nil {
			return err
		}
		if len(policies) > 0 {
			return fault.New(fault.Conflict, "bouncer_in_use", "controls still name this bouncer").With("policies", policies)
		}
		if err := remove(ctx, tx, id); err != nil {
			return err
		}
		if err := s.Tenants.UpdateUsageAlerts(ctx, tx, tenant.Bouncers); err != nil {
			return err
		}
		for _, kind := range []string{tenant.BouncerDisconnected, tenant.BouncerTrouble} {
			if err := tenant.ResolveAlerts(ctx, tx, kind, tenant.BouncerSubject(id), s.Now()); err != nil {
				return err
			}
		}
		return s.recordRevocation(ctx, tx, sc, b, "BOUNCER_DELETED")
	})
	if err == nil {
		s.unindexToken(ctx, b.TokenDigest)
	}
	return b, err
}

// Health returns the health of a bouncer, as last reported to the bridge.
func (s *Service) Health(ctx context.Context, sc scope.Scope, id int64) (Health, error) {
	b, err := s.Get(ctx, sc, id)
	return b.health(), err
}

// SyncStatus returns the state of the delivery to a bouncer, for each control.
func (s *Service) SyncStatus(ctx context.Context, sc scope.Scope, id int64) (SyncStatus, error) {
	out := SyncStatus{PepID: id, Status: Pending}
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		if _, err := load(ctx, tx, sc, id); err != nil {
			return err
		}
		b, err := bundleOf(ctx, tx, id)
		if err != nil {
			return err
		}
		out.Revision, out.LastSyncTime = b.Active, b.ActivatedAt
		out.Policies, err = syncs(ctx, tx, id)
		out.Status = worstState(b, out.Policies)
		return err
	})
	return out, err
}

// worstState returns the worst state of a delivery.
func worstState(b Bundle, rows []Sync) string {
	is := func(status string) bool {
		return slices.ContainsFunc(rows, func(r Sync) bool { return r.Status == status })
	}
	switch {
	case b.Refused != 0 || is(Failed):
		return Failed
	case is(InProgress):
		return InProgress
	case b.Active == 0 || b.Active != b.Revision || is(Pending):
		return Pending
	default:
		return Synced
	}
}

// EnvironmentOf returns the environment of a bouncer. Fault: NotFound.
func EnvironmentOf(ctx context.Context, tx *db.Tx, id int64) (scope.Env, error) {
	b, err := ByID(ctx, tx, id)
	return b.Environment, err
}

// FindByName returns the bouncer of env with a name. Fault: NotFound.
func FindByName(ctx context.Context, tx *db.Tx, env scope.Env, name string) (int64, error) {
	id, err := idByName(ctx, tx, env, name)
	if errors.Is(err, db.ErrNoRows) {
		return 0, fault.NotFoundf("no bouncer %q in %s", name, env)
	}
	return id, err
}

// FindTwin returns the production bouncer of the same name as bouncer id; nil for none.
func FindTwin(ctx context.Context, tx *db.Tx, id int64) (*int64, error) {
	b, err := ByID(ctx, tx, id)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	twin, err := idByName(ctx, tx, scope.Production, b.Name)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	return &twin, err
}

// LinkedTo returns the bouncers that list a resource, by id.
func LinkedTo(ctx context.Context, tx *db.Tx, resourceID int64) ([]int64, error) {
	bs, err := InEnvironment(ctx, tx, scope.AnyEnv)
	out := []int64{}
	for _, b := range bs {
		if slices.Contains(b.ResourceIDs, resourceID) {
			out = append(out, b.ID)
		}
	}
	return out, err
}

// checkNameFree returns Conflict if another bouncer has the name.
func checkNameFree(ctx context.Context, tx *db.Tx, b Bouncer, self int64) error {
	other, err := idByName(ctx, tx, b.Environment, b.Name)
	return db.CheckUnique(other, self, err, "%s already has a bouncer named %q", b.Environment, b.Name)
}

// checkResources lists the resources that a bouncer cannot list, by their positions in the request.
// The bouncer's own list is sorted and has no duplicates.
func checkResources(ctx context.Context, tx *db.Tx, b Bouncer, sent []int64) ([]fault.Detail, error) {
	var offences []fault.Detail
	for _, id := range b.ResourceIDs {
		env, err := resource.EnvironmentOf(ctx, tx, id)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		if err != nil || env != b.Environment {
			offences = append(offences, fault.Detail{
				Pointer: fmt.Sprintf("/resource_ids/%d", slices.Index(sent, id)), Message: fmt.Sprintf("no resource %d in %s", id, b.Environment),
			})
		}
	}
	return offences, nil
}

func load(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) (Bouncer, error) {
	b, err := get(ctx, tx, id)
	return db.Found(b, err, sc.Sees(b.Environment), "bouncer")
}

func loadCurrent(ctx context.Context, tx *db.Tx, sc scope.Scope, id, ifChange int64) (Bouncer, error) {
	b, err := load(ctx, tx, sc, id)
	return fault.Current(b, err, "bouncer", b.ChangeNo, ifChange)
}

// record writes everything that belongs to a change by people. It emits no event: bouncer.connected
// and .disconnected come from the bridge.
func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, b Bouncer, kind string, changes map[string]any) error {
	err := audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
		Type: kind, Object: "bouncer", ObjectID: strconv.FormatInt(b.ID, 10), ObjectName: b.Name, Env: b.Environment, Changes: changes,
	})
	if err != nil {
		return err
	}
	_, err = tx.Bump(ctx, Topic)
	return err
}

// recordRevocation is like record, for a change that ends a token: it also notifies caches of tokens.
func (s *Service) recordRevocation(ctx context.Context, tx *db.Tx, sc scope.Scope, b Bouncer, kind string) error {
	if err := s.record(ctx, tx, sc, b, kind, nil); err != nil {
		return err
	}
	_, err := tx.Bump(ctx, user.Revision)
	return err
}

// changesOf lists the members that differ. Of the configuration it lists only the names, because the
// values may not belong in a log.
func changesOf(old, next Bouncer) map[string]any {
	out := patch.Differences{}
	out.Note("name", old.Name, next.Name)
	out.Note("hostname", old.Hostname, next.Hostname)
	out.Note("port", old.Port, next.Port)
	out.Note("target_app", old.TargetApp, next.TargetApp)
	if !slices.Equal(old.ResourceIDs, next.ResourceIDs) {
		out["resource_ids"] = map[string]any{"from": old.ResourceIDs, "to": next.ResourceIDs}
	}
	if names := changedMembers(old.Configuration, next.Configuration); len(names) > 0 {
		out["configuration"] = map[string]any{"changed": strings.Join(names, ", ")}
	}
	return out
}

func (s *Service) write(ctx context.Context, sc scope.Scope, fn func(tx *db.Tx) error) error {
	return s.Stores.WriteUnder(ctx, sc.Tenant, resource.Lock, fn)
}

func invalid(offences []fault.Detail) error {
	return fault.CheckValues("the bouncer is not valid", offences)
}

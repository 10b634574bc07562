package integration

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// Service has the use cases of integrations.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	Random io.Reader
	// Box encrypts the credentials.
	Box *secret.Box
	// Target calls the systems. It refuses addresses that the operator does not allow.
	Target *outbound.Client
	// URL is the base URL at which systems reach this server to answer.
	URL string
	// MayDecide returns an error if by must not decide a request for access. Decide records a
	// verdict.
	MayDecide func(ctx context.Context, sc scope.Scope, request int64, by string) error
	Decide    func(ctx context.Context, tx *db.Tx, sc scope.Scope, request int64, v Verdict) error
	// RequestLock is the name of the lock held while requests for access change.
	RequestLock string
	// Grants opens and ends the grants of break-glass systems.
	Grants Grants
	// Bundles provides the bundles for policy engines.
	Bundles Bundles
}

// changes is the lock held while integrations change, so that names stay unique and the limit on
// their number holds.
const changes = "integrations"

// List returns one page of the integrations of a kind, sorted by id; "": of all kinds.
func (s *Service) List(ctx context.Context, sc scope.Scope, kind string, skip, limit int64) (Page, error) {
	var page Page
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = countIntegrations(ctx, tx, kind); err != nil {
			return err
		}
		page.Integrations, err = listIntegrations(ctx, tx, kind, skip, limit)
		return err
	})
	for i := range page.Integrations {
		page.Integrations[i] = page.Integrations[i].withComputed()
	}
	return page, err
}

// Get returns one integration, or NotFound.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Integration, error) {
	it, err := s.load(ctx, sc, id)
	return it.withComputed(), err
}

// Create adds an integration.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Integration, error) {
	t, known := typeOf(d.Kind)
	if !known {
		return Integration{}, fault.Invalidf("/kind", "there is no such kind of integration")
	}
	it := Integration{
		Name: strings.TrimSpace(d.Name), Kind: d.Kind, Endpoint: d.Endpoint, Environment: d.Environment, Settings: d.Settings,
		Enabled: d.Enabled == nil || *d.Enabled, CreatedBy: sc.Actor.Name, ChangeNo: 1, Credential: []byte{},
	}
	if it.Settings == nil {
		it.Settings = map[string]any{}
	}
	secrets, offences := t.ReadCredential(d.Credential)
	if err := s.check(ctx, t, it, secrets, offences); err != nil {
		return Integration{}, err
	}
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		n, err := countIntegrations(ctx, tx, "")
		if err := fault.CheckCounted(n, err, maxIntegrations, "a tenant has at most %d integrations"); err != nil {
			return err
		}
		if err := checkNameFree(ctx, tx, it.Name, 0); err != nil {
			return err
		}
		if it.Kind == PolicyEngine {
			if it, err = s.placeBouncer(ctx, tx, it); err != nil {
				return err
			}
		}
		if it.Kind == SIEM {
			place, err := tail.NewPlace(ctx, tx, it.Settings[settingStart] == startOldest)
			if err != nil {
				return err
			}
			it.Place = &place
		}
		it.CreatedAt = db.Stamp(s.Now())
		it.UpdatedAt = it.CreatedAt
		if it, err = insertIntegration(ctx, tx, it); err != nil {
			return err
		}
		if it.Credential, err = s.Box.SealMembers(secrets, sealedAt(sc.Tenant, it.ID)); err != nil {
			return err
		}
		if it, err = updateIntegration(ctx, tx, it); err != nil {
			return err
		}
		if err := tx.Notify(ctx, Topic); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), it.entry("INTEGRATION_CREATED", map[string]any{"kind": it.Kind, "target": origin(it.Endpoint), "enabled": it.Enabled}))
	})
	return it.withComputed(), err
}

// Update changes the members that are sent. If ifChange is not 0, it must be the integration's
// ChangeNo; otherwise Update returns Precondition.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id int64, ch Change, ifChange int64) (Integration, error) {
	old, err := s.load(ctx, sc, id)
	if err != nil {
		return Integration{}, err
	}
	t, _ := typeOf(old.Kind)
	next, secrets, offences, err := s.apply(sc.Tenant, t, old, ch)
	if err != nil {
		return Integration{}, err
	}
	if err := s.check(ctx, t, next, secrets, offences); err != nil {
		return Integration{}, err
	}
	var it Integration
	err = s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		old, err := loadCurrent(ctx, tx, id, ifChange)
		if err != nil {
			return err
		}
		next, secrets, _, err := s.apply(sc.Tenant, t, old, ch)
		if err != nil {
			return err
		}
		was, err := s.open(sc.Tenant, old)
		if err != nil && !errors.Is(err, secret.ErrOpen) {
			return err
		}
		if err != nil || !maps.Equal(was, secrets) {
			if next.Credential, err = s.Box.SealMembers(secrets, sealedAt(sc.Tenant, id)); err != nil {
				return err
			}
		}
		if it = old; reflect.DeepEqual(next, old) {
			return nil
		}
		if err := s.fits(ctx, tx, old, next); err != nil {
			return err
		}
		next.ChangeNo, next.UpdatedAt = old.ChangeNo+1, db.Stamp(s.Now())
		if it, err = updateIntegration(ctx, tx, next); err != nil {
			return err
		}
		if !sameOrigin(old.Endpoint, it.Endpoint) {
			if err := s.dropCallbacks(ctx, tx, sc, it); err != nil {
				return err
			}
		}
		if err := tx.Notify(ctx, Topic); err != nil { // what waits may be due now
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), it.entry("INTEGRATION_UPDATED", changesOf(old, it)))
	})
	return it.withComputed(), err
}

// fits checks a change against the rest of the store: the bouncer and the names.
func (s *Service) fits(ctx context.Context, tx *db.Tx, old, next Integration) error {
	// If the bouncer was deleted, the integration can still be disabled or get another bouncer.
	if next.Kind == PolicyEngine && (next.Enabled && !old.Enabled || bouncerOf(next) != bouncerOf(old)) {
		if _, err := s.placeBouncer(ctx, tx, next); err != nil {
			return err
		}
	}
	if next.Name == old.Name {
		return nil
	}
	return checkNameFree(ctx, tx, next.Name, next.ID)
}

// apply returns an integration with a change applied, its decrypted credential, and the errors in
// the credential that was sent. It refuses to use a stored credential for another host than the one
// it was given for. A stored credential that cannot be decrypted must be replaced by the change.
func (s *Service) apply(tenant scope.TenantID, t format.Type, it Integration, ch Change) (Integration, map[string]string, []fault.Detail, error) {
	was := it.Endpoint
	if ch.Name != nil {
		it.Name = strings.TrimSpace(*ch.Name)
	}
	patch.Assign(&it.Endpoint, ch.Endpoint)
	patch.Assign(&it.Enabled, ch.Enabled)
	ch.Settings.Apply(&it.Settings)
	if it.Settings == nil {
		it.Settings = map[string]any{}
	}
	if ch.Credential != nil {
		secrets, offences := t.ReadCredential(ch.Credential)
		return it, secrets, offences, nil
	}
	secrets, err := s.open(tenant, it)
	if err != nil {
		return it, nil, nil, secret.AskAgain(err, "/credential")
	}
	if len(secrets) > 0 && !sameOrigin(was, it.Endpoint) {
		f := fault.Invalidf("/credential", "another host needs the credential again")
		f.Code = "credential_required"
		return it, nil, nil, f
	}
	return it, secrets, nil, nil
}

// Delete removes an integration with everything that waits for it.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id, ifChange int64) (Integration, error) {
	var it Integration
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) (err error) {
		if it, err = loadCurrent(ctx, tx, id, ifChange); err != nil {
			return err
		}
		if err := deleteIntegration(ctx, tx, id); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), it.entry("INTEGRATION_DELETED", map[string]any{"kind": it.Kind, "target": origin(it.Endpoint)}))
	})
	return it, err
}

// check validates an integration with decrypted secrets, and that its address is allowed.
func (s *Service) check(ctx context.Context, t format.Type, it Integration, secrets map[string]string, offences []fault.Detail) error {
	if it.Name == "" {
		offences = append(offences, fault.Detail{Pointer: "/name", Message: "an integration needs a name"})
	}
	if text, err := json.Marshal(it.Settings); err != nil || len(text) > maxSettings {
		offences = append(offences, fault.Detail{Pointer: "/settings", Message: "must not be larger than 16 KiB"})
	}
	if len(offences) == 0 {
		offences = t.Check(format.Channel{Endpoint: it.Endpoint, Settings: it.Settings, Credential: secrets})
	}
	if len(offences) == 0 && it.Kind == BreakGlass && len(strings.TrimSpace(secrets[format.HMACSecret])) < weakKey {
		offences = append(offences, fault.Detail{Pointer: "/credential", Message: "the key of a break-glass bridge needs 24 characters or more"})
	}
	if len(offences) == 0 {
		offences = checkTarget(it, secrets)
	}
	if err := fault.CheckValues("the integration is not valid", offences); err != nil {
		return err
	}
	switch {
	case it.Kind == PolicyEngine:
		return s.checkEngineTarget(ctx, it)
	case usesKafka(it):
		return s.checkKafkaTarget(ctx, it, secrets)
	}
	if server, ok, err := syslogServer(it); err != nil {
		return fault.Invalidf("/settings/"+settingCAs, "%s", err)
	} else if ok {
		return s.Target.CheckStream(ctx, "/endpoint", server)
	}
	return s.Target.Check(ctx, "/endpoint", it.Endpoint)
}

// checkTarget returns the errors in settings and credential that depend on the kind of the
// integration and the scheme of its endpoint.
func checkTarget(it Integration, secrets map[string]string) []fault.Detail {
	switch {
	case it.Kind == PolicyEngine:
		return checkEngine(it, secrets)
	case usesKafka(it):
		return checkKafka(it, secrets)
	case it.Kind == SIEM:
		return checkSyslog(it, secrets)
	}
	return nil
}

// Exists reports whether actions of an environment can call an integration of this id and kind.
func Exists(ctx context.Context, tx *db.Tx, env scope.Env, kind string, id int64) (bool, error) {
	it, err := getIntegration(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	return err == nil && it.Kind == kind && (it.Environment == scope.AnyEnv || it.Environment == env), err
}

// sealedAt returns the associated data that binds an encrypted credential to one integration of one
// tenant.
func sealedAt(tenant scope.TenantID, id int64) string {
	return "integrations:" + string(tenant) + ":" + strconv.FormatInt(id, 10)
}

// open decrypts the secrets of an integration.
func (s *Service) open(tenant scope.TenantID, it Integration) (map[string]string, error) {
	return s.Box.OpenMembers(it.Credential, sealedAt(tenant, it.ID))
}

// changesOf lists the differences between two integrations for the audit. It gives only scheme and
// host of endpoints, and only the fact of a change for settings and credentials.
func changesOf(old, next Integration) map[string]any {
	out := patch.Differences{}
	out.Note("name", old.Name, next.Name)
	out.Note("enabled", old.Enabled, next.Enabled)
	if old.Endpoint != next.Endpoint {
		out["target"] = map[string]any{"from": origin(old.Endpoint), "to": origin(next.Endpoint)}
	}
	if !reflect.DeepEqual(old.Settings, next.Settings) {
		out["settings_changed"] = true
	}
	if string(old.Credential) != string(next.Credential) {
		out["sign_in_changed"] = true
	}
	return out
}

func (it Integration) entry(kind string, changes map[string]any) audit.Entry {
	return audit.Entry{Type: kind, Object: "integration", ObjectID: strconv.FormatInt(it.ID, 10), ObjectName: it.Name, Env: it.Environment, Changes: changes}
}

// withComputed sets the members that are not stored.
func (it Integration) withComputed() Integration {
	it.CredentialSet = len(it.Credential) > 0
	return it
}

func (s *Service) load(ctx context.Context, sc scope.Scope, id int64) (Integration, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Integration, error) { return load(ctx, tx, id) })
}

func load(ctx context.Context, tx *db.Tx, id int64) (Integration, error) {
	it, err := getIntegration(ctx, tx, id)
	return db.Found(it, err, true, "integration")
}

func loadCurrent(ctx context.Context, tx *db.Tx, id, ifChange int64) (Integration, error) {
	it, err := load(ctx, tx, id)
	return fault.Current(it, err, "integration", it.ChangeNo, ifChange)
}

func checkNameFree(ctx context.Context, tx *db.Tx, name string, self int64) error {
	other, err := integrationNamed(ctx, tx, name)
	return db.CheckUnique(other, self, err, "an integration named %q already exists", name)
}

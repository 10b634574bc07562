package domain

import (
	"context"
	"encoding/base64"
	"io"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// Revision is the revision in the system store that is bumped when it changes whose
// a domain is, or which certificate it has.
const Revision = "domains"

// Service holds the use cases on domains.
type Service struct {
	Stores  *db.Cluster
	Tenants *tenant.Service
	DNS     Resolver
	Box     *secret.Box // seals keys
	Random  io.Reader
	Now     func() time.Time
	// BaseDomain is the domain whose subdomains are tenants; empty: none are.
	BaseDomain string
	// Host is what tenants' targets stand below where there is no base domain.
	Host string
}

// target is the name that a tenant's domains must lead to.
func (s *Service) target(id scope.TenantID) string {
	if s.BaseDomain != "" {
		return string(id) + "." + s.BaseDomain
	}
	return string(id) + "." + s.Host
}

// List gives the tenant's domains, the default one first.
func (s *Service) List(ctx context.Context, sc scope.Scope, id scope.TenantID) ([]Domain, error) {
	if err := s.Tenants.Visible(ctx, sc, id); err != nil {
		return nil, err
	}
	var rows []record
	err := s.Stores.Read(ctx, id, func(tx *db.Tx) (err error) {
		rows, err = selectDomains(ctx, tx)
		return err
	})
	out := []Domain{}
	if s.BaseDomain != "" {
		out = append(out, Domain{Domain: s.target(id), Status: Active, SSLStatus: Active, IsDefault: true})
	}
	for _, r := range rows {
		out = append(out, r.view(s.target(id), Active, s.Now()))
	}
	return out, err
}

// Get gives one domain of the tenant.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id scope.TenantID, name string) (Domain, error) {
	if err := s.Tenants.Visible(ctx, sc, id); err != nil {
		return Domain{}, err
	}
	name = lookupName(name)
	if s.BaseDomain != "" && name == s.target(id) {
		return Domain{Domain: name, Status: Active, SSLStatus: Active, IsDefault: true}, nil
	}
	var r record
	err := s.Stores.Read(ctx, id, func(tx *db.Tx) (err error) {
		r, err = selectDomain(ctx, tx, name)
		return err
	})
	return r.view(s.target(id), Verified, s.Now()), err
}

// lookupName is the compared form of a name that a path gives, or the name itself,
// which then no domain has.
func lookupName(name string) string {
	if n, err := Normalize("", name); err == nil {
		return n
	}
	return name
}

// Add adds a domain, which is pending until it is verified.
func (s *Service) Add(ctx context.Context, sc scope.Scope, id scope.TenantID, d Draft) (Domain, error) {
	if err := s.Tenants.Visible(ctx, sc, id); err != nil {
		return Domain{}, err
	}
	name, err := Normalize("/domain", d.Domain)
	if err == nil && s.ours(name) {
		err = fault.Invalidf("/domain", "is a domain of this deployment: tenants have their subdomain without asking")
	}
	pair, unfit := checkPair(name, d.Certificate, d.PrivateKey, s.Now())
	if err := fault.Join(err, unfit); err != nil {
		return Domain{}, err
	}
	var owner scope.TenantID
	err = s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		owner, err = ownerOf(ctx, tx, name)
		return err
	})
	if err != nil {
		return Domain{}, err
	}
	if owner != "" && owner != id {
		return Domain{}, taken(name)
	}
	r := record{Domain: name, Certificate: pair.certificate, NotAfter: pair.notAfter, CreatedAt: db.Stamp(s.Now())}
	if r.Token, err = s.token(); err != nil {
		return Domain{}, err
	}
	if r.Key, err = s.seal(id, name, pair.key); err != nil {
		return Domain{}, err
	}
	err = s.Stores.WriteUnder(ctx, id, "domains", func(tx *db.Tx) error { return s.insert(ctx, tx, sc, id, r) })
	return r.view(s.target(id), Verified, s.Now()), err
}

// insert adds a domain in a transaction of its tenant's store.
func (s *Service) insert(ctx context.Context, tx *db.Tx, sc scope.Scope, id scope.TenantID, r record) error {
	n, err := countDomains(ctx, tx)
	if err != nil {
		return err
	}
	if n >= maxDomains {
		return fault.Newf(fault.Forbidden, "limit_exceeded", "a tenant may have %d domains", maxDomains).With("limit", int64(maxDomains)).With("used", n)
	}
	switch _, err := selectDomain(ctx, tx, r.Domain); {
	case err == nil:
		return fault.Newf(fault.Conflict, "already_exists", "the tenant has the domain %s already", r.Domain)
	case !fault.Is(err, fault.NotFound):
		return err
	}
	if err := insertDomain(ctx, tx, r); err != nil {
		return err
	}
	return s.record(ctx, tx, sc, id, "DOMAIN_ADDED", r.Domain, map[string]any{"certificate": r.Certificate != ""})
}

// Claim adds the domains that a tenant is made with, in a transaction of its store:
// they are pending like others.
func (s *Service) Claim(ctx context.Context, tx *db.Tx, t tenant.Tenant) error {
	names := []string{t.Domain}
	if t.CustomDomain != nil {
		names = append(names, *t.CustomDomain)
	}
	for _, name := range names {
		name, err := Normalize("", name)
		if err != nil || s.ours(name) {
			continue // the subdomain, or no name that can be verified
		}
		if _, err := selectDomain(ctx, tx, name); !fault.Is(err, fault.NotFound) {
			if err != nil {
				return err
			}
			continue
		}
		r := record{Domain: name, CreatedAt: db.Stamp(s.Now())}
		if r.Token, err = s.token(); err != nil {
			return err
		}
		if err := insertDomain(ctx, tx, r); err != nil {
			return err
		}
	}
	return nil
}

// Update replaces the certificate of a domain, or removes it.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id scope.TenantID, name string, ch Change) (Domain, error) {
	if err := s.Tenants.Visible(ctx, sc, id); err != nil {
		return Domain{}, err
	}
	name = lookupName(name)
	pair, unfit := checkPair(name, ch.Certificate.Value, ch.PrivateKey.Value, s.Now()) // which takes long for large keys
	var r record
	err := s.Stores.WriteUnder(ctx, id, "domains", func(tx *db.Tx) (err error) {
		if r, err = selectDomain(ctx, tx, name); err != nil || !ch.Certificate.Sent && !ch.PrivateKey.Sent {
			return err
		}
		if unfit != nil {
			return unfit
		}
		r.Certificate, r.NotAfter = pair.certificate, pair.notAfter
		if r.Key, err = s.seal(id, name, pair.key); err != nil {
			return err
		}
		if err := updateDomain(ctx, tx, r); err != nil {
			return err
		}
		if err := s.record(ctx, tx, sc, id, "DOMAIN_UPDATED", name, map[string]any{"certificate": r.Certificate != ""}); err != nil {
			return err
		}
		return s.bump(ctx)
	})
	return r.view(s.target(id), Verified, s.Now()), err
}

// Remove removes a domain: requests to it belong to no tenant from then on.
func (s *Service) Remove(ctx context.Context, sc scope.Scope, id scope.TenantID, name string) (Removal, error) {
	if err := s.Tenants.Visible(ctx, sc, id); err != nil {
		return Removal{}, err
	}
	name = lookupName(name)
	if s.BaseDomain != "" && name == s.target(id) {
		return Removal{}, fault.New(fault.Conflict, "default_domain", "the tenant's subdomain stays")
	}
	err := s.Stores.WriteUnder(ctx, id, "domains", func(tx *db.Tx) error {
		if _, err := selectDomain(ctx, tx, name); err != nil {
			return err
		}
		if err := deleteDomain(ctx, tx, name); err != nil {
			return err
		}
		if err := tenant.ResolveAlerts(ctx, tx, alertUnresolved, name, s.Now()); err != nil {
			return err
		}
		if err := tenant.ResolveAlerts(ctx, tx, alertCertificate, name, s.Now()); err != nil {
			return err
		}
		if err := s.record(ctx, tx, sc, id, "DOMAIN_REMOVED", name, nil); err != nil {
			return err
		}
		return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
			if err := deleteRoute(ctx, tx, name, id); err != nil {
				return err
			}
			_, err := tx.Bump(ctx, Revision)
			return err
		})
	})
	return Removal{"the domain is removed", name}, err
}

// Verify looks for the domain's records and makes it the tenant's own. It can be
// repeated.
func (s *Service) Verify(ctx context.Context, sc scope.Scope, id scope.TenantID, name string) (Domain, error) {
	if err := s.Tenants.Visible(ctx, sc, id); err != nil {
		return Domain{}, err
	}
	before, err := s.Get(ctx, sc, id, name)
	if err != nil || before.IsDefault {
		return before, err
	}
	name = before.Domain
	if err := s.lookFor(ctx, before.Instructions.Records); err != nil { // outside of any transaction
		return Domain{}, err
	}
	var r record
	err = s.Stores.WriteUnder(ctx, id, "domains", func(tx *db.Tx) (err error) {
		if r, err = selectDomain(ctx, tx, name); err != nil {
			return err
		}
		if r.Token != before.Instructions.Records[1].Value {
			return fault.New(fault.Conflict, "domain_changed", "the domain was removed and added again meanwhile")
		}
		if r.VerifiedAt == nil {
			at := db.Stamp(s.Now())
			r.VerifiedAt = &at
			if err := updateDomain(ctx, tx, r); err != nil {
				return err
			}
			if err := s.record(ctx, tx, sc, id, "DOMAIN_VERIFIED", name, nil); err != nil {
				return err
			}
		}
		if err := tenant.ResolveAlerts(ctx, tx, alertUnresolved, name, s.Now()); err != nil {
			return err
		}
		return s.claimRoute(ctx, name, id)
	})
	return r.view(s.target(id), Verified, s.Now()), err
}

// claimRoute makes a domain a tenant's own, unless it is another's.
func (s *Service) claimRoute(ctx context.Context, name string, id scope.TenantID) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		if err := insertRoute(ctx, tx, name, id, s.Now()); err != nil {
			return err
		}
		owner, err := ownerOf(ctx, tx, name)
		if err != nil {
			return err
		}
		if owner != id {
			return taken(name)
		}
		_, err = tx.Bump(ctx, Revision)
		return err
	})
}

// Forget takes all domains of a purged tenant away.
func (s *Service) Forget(ctx context.Context, id scope.TenantID) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		if err := deleteRoutes(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.Bump(ctx, Revision)
		return err
	})
}

func (s *Service) bump(ctx context.Context) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Bump(ctx, Revision)
		return err
	})
}

// ours reports whether a domain is the deployment's own.
func (s *Service) ours(name string) bool {
	for _, base := range []string{s.BaseDomain, s.Host} {
		if base != "" && (name == base || strings.HasSuffix(name, "."+base)) {
			return true
		}
	}
	return false
}

func taken(name string) error {
	return fault.Newf(fault.Conflict, "already_exists", "another tenant has verified %s", name)
}

// token is a random token for a TXT record.
func (s *Service) token() (string, error) {
	raw := make([]byte, 24)
	if _, err := io.ReadFull(s.Random, raw); err != nil {
		return "", fault.Wrap(err, "make a token")
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// seal seals the key of a domain; no key stays none.
func (s *Service) seal(id scope.TenantID, name, key string) ([]byte, error) {
	if key == "" {
		return []byte{}, nil
	}
	sealed, err := s.Box.Seal([]byte(key), keyPlace(id, name))
	return sealed, fault.Wrap(err, "seal the key")
}

// keyPlace is what a sealed key is bound to.
func keyPlace(id scope.TenantID, name string) string { return "domains/" + string(id) + "/" + name }

func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, id scope.TenantID, kind, name string, changes map[string]any) error {
	sc.Tenant = id
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{Type: kind, Object: "domain", ObjectID: name, ObjectName: name, Changes: changes})
}

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
	// ACME is set where the deployment orders certificates.
	ACME bool
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
	if err != nil {
		return nil, err
	}
	ordered, err := s.issuedOf(ctx, id)
	out := []Domain{}
	if s.BaseDomain != "" {
		out = append(out, s.defaultDomain(id))
	}
	for _, r := range rows {
		out = append(out, s.view(id, r, ordered[r.Domain], Active))
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
		return s.defaultDomain(id), nil
	}
	var r record
	err := s.Stores.Read(ctx, id, func(tx *db.Tx) (err error) {
		r, err = selectDomain(ctx, tx, name)
		return err
	})
	if err != nil {
		return Domain{}, err
	}
	return s.show(ctx, id, r)
}

// show is the view of one domain, with what was ordered for it.
func (s *Service) show(ctx context.Context, id scope.TenantID, r record) (Domain, error) {
	var c issued
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		if c, err = selectIssued(ctx, tx, r.Domain); err == nil && c.Tenant != id {
			c = issued{}
		}
		return err
	})
	return s.view(id, r, c, Verified), err
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
	if err == nil && s.isOwn(name) {
		err = fault.Invalidf("/domain", "is a domain of this deployment: each tenant has its subdomain already")
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
		return Domain{}, takenFault(name)
	}
	r := record{Domain: name, Certificate: pair.certificate, NotAfter: pair.notAfter, CreatedAt: db.Stamp(s.Now()), ACME: d.ACME == nil || *d.ACME, HSTS: d.HSTSMaxAge}
	if r.Token, err = s.token(); err != nil {
		return Domain{}, err
	}
	if r.Key, err = s.seal(id, name, pair.key); err != nil {
		return Domain{}, err
	}
	err = s.Stores.WriteUnder(ctx, id, "domains", func(tx *db.Tx) error { return s.insert(ctx, tx, sc, id, r) })
	return s.view(id, r, issued{}, Verified), err
}

// insert adds a domain in a transaction of its tenant's store.
func (s *Service) insert(ctx context.Context, tx *db.Tx, sc scope.Scope, id scope.TenantID, r record) error {
	n, err := countDomains(ctx, tx)
	if err != nil {
		return err
	}
	if err := fault.CheckCount(n, maxDomains, "a tenant may have %d domains"); err != nil {
		return err
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
		if err != nil || s.isOwn(name) {
			continue // the subdomain, or no name that can be verified
		}
		if _, err := selectDomain(ctx, tx, name); !fault.Is(err, fault.NotFound) {
			if err != nil {
				return err
			}
			continue
		}
		r := record{Domain: name, CreatedAt: db.Stamp(s.Now()), ACME: true}
		if r.Token, err = s.token(); err != nil {
			return err
		}
		if err := insertDomain(ctx, tx, r); err != nil {
			return err
		}
	}
	return nil
}

// Update changes what was sent: the certificate, which null removes, whether one is
// ordered, and HSTS.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id scope.TenantID, name string, ch Change) (Domain, error) {
	if err := s.Tenants.Visible(ctx, sc, id); err != nil {
		return Domain{}, err
	}
	name = lookupName(name)
	pair, unfit := checkPair(name, ch.Certificate.Value, ch.PrivateKey.Value, s.Now()) // which takes long for large keys
	var r record
	err := s.Stores.WriteUnder(ctx, id, "domains", func(tx *db.Tx) (err error) {
		if r, err = selectDomain(ctx, tx, name); err != nil || !ch.sent() {
			return err
		}
		if unfit != nil {
			return unfit
		}
		changes, err := s.apply(&r, id, ch, pair)
		if err != nil {
			return err
		}
		if err := updateDomain(ctx, tx, r); err != nil {
			return err
		}
		if err := s.record(ctx, tx, sc, id, "DOMAIN_UPDATED", name, changes); err != nil {
			return err
		}
		if r.Certificate != "" || !r.ACME { // nothing is ordered any more
			if err := tenant.ResolveAlerts(ctx, tx, alertOrder, name, s.Now()); err != nil {
				return err
			}
		}
		if r.VerifiedAt == nil {
			return nil
		}
		if ch.ACME.Sent && r.ACME {
			if err := s.retryOrder(ctx, name, id); err != nil {
				return err
			}
		}
		return s.claimRoute(ctx, r.route(id))
	})
	if err != nil {
		return Domain{}, err
	}
	return s.show(ctx, id, r)
}

// apply changes what was sent, and names it for the log.
func (s *Service) apply(r *record, id scope.TenantID, ch Change, pair keyPair) (changes map[string]any, err error) {
	changes = map[string]any{}
	if ch.Certificate.Sent || ch.PrivateKey.Sent {
		r.Certificate, r.NotAfter = pair.certificate, pair.notAfter
		if r.Key, err = s.seal(id, r.Domain, pair.key); err != nil {
			return nil, err
		}
		changes["certificate"] = r.Certificate != ""
	}
	if ch.ACME.Sent {
		r.ACME = ch.ACME.Null || ch.ACME.Value
		changes["acme"] = r.ACME
	}
	if ch.HSTSMaxAge.Sent {
		r.HSTS = ch.HSTSMaxAge.Value
		changes["hsts_max_age"] = r.HSTS
	}
	return changes, nil
}

// retryOrder has an order that failed tried again now.
func (s *Service) retryOrder(ctx context.Context, name string, id scope.TenantID) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error { return makeOrderDue(ctx, tx, name, id, s.Now()) })
}

// sent reports whether a change has any member.
func (ch Change) sent() bool {
	return ch.Certificate.Sent || ch.PrivateKey.Sent || ch.ACME.Sent || ch.HSTSMaxAge.Sent
}

// Remove removes a domain: requests to it belong to no tenant from then on.
func (s *Service) Remove(ctx context.Context, sc scope.Scope, id scope.TenantID, name string) (Removal, error) {
	if err := s.Tenants.Visible(ctx, sc, id); err != nil {
		return Removal{}, err
	}
	name = lookupName(name)
	if s.BaseDomain != "" && name == s.target(id) {
		return Removal{}, fault.New(fault.Conflict, "default_domain", "the tenant's subdomain cannot be removed")
	}
	err := s.Stores.WriteUnder(ctx, id, "domains", func(tx *db.Tx) error {
		if _, err := selectDomain(ctx, tx, name); err != nil {
			return err
		}
		if err := deleteDomain(ctx, tx, name); err != nil {
			return err
		}
		for _, kind := range []string{alertUnresolved, alertCertificate, alertOrder} {
			if err := tenant.ResolveAlerts(ctx, tx, kind, name, s.Now()); err != nil {
				return err
			}
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
			return fault.New(fault.Conflict, "domain_changed", "the domain was removed and added again in the meantime")
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
		return s.claimRoute(ctx, r.route(id))
	})
	if err != nil {
		return Domain{}, err
	}
	return s.show(ctx, id, r)
}

// claimRoute makes a domain a tenant's own, unless it is another's. What was ordered for it
// goes once nothing is to be ordered.
func (s *Service) claimRoute(ctx context.Context, rt Route) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		if err := putRoute(ctx, tx, rt, s.Now()); err != nil {
			return err
		}
		owner, err := ownerOf(ctx, tx, rt.Domain)
		if err != nil {
			return err
		}
		if owner != rt.Tenant {
			return takenFault(rt.Domain)
		}
		if rt.Pair != "" || !rt.ACME {
			if err := deleteIssued(ctx, tx, rt.Domain, rt.Tenant); err != nil {
				return err
			}
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

// isOwn reports whether a domain is the deployment's own.
func (s *Service) isOwn(name string) bool {
	for _, base := range []string{s.BaseDomain, s.Host} {
		if base != "" && (name == base || strings.HasSuffix(name, "."+base)) {
			return true
		}
	}
	return false
}

func takenFault(name string) error {
	return fault.Newf(fault.Conflict, "already_exists", "another tenant has verified %s", name)
}

// token is a random token for a TXT record.
func (s *Service) token() (string, error) {
	raw := make([]byte, 24)
	if _, err := io.ReadFull(s.Random, raw); err != nil {
		return "", fault.Wrap(err, "create a token")
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

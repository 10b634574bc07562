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

// Revision is the revision in the system store that each change of a route or of an ordered
// certificate increases.
const Revision = "domains"

// Service has the use cases of domains.
type Service struct {
	Stores  *db.Cluster
	Tenants *tenant.Service
	DNS     Resolver
	Box     *secret.Box // seals keys
	Random  io.Reader
	Now     func() time.Time
	// ACME says that the deployment orders certificates.
	ACME bool
	// BaseDomain is the domain whose subdomains are tenants; empty: there is none.
	BaseDomain string
	// Host is the domain of the tenants' targets if there is no BaseDomain.
	Host string
}

// target returns the name that the CNAME records of a tenant's domains must lead to.
func (s *Service) target(id scope.TenantID) string {
	if s.BaseDomain != "" {
		return string(id) + "." + s.BaseDomain
	}
	return string(id) + "." + s.Host
}

// List returns the tenant's domains, the default one first.
func (s *Service) List(ctx context.Context, sc scope.Scope, id scope.TenantID) ([]Domain, error) {
	if err := s.Tenants.CheckVisible(ctx, sc, id); err != nil {
		return nil, err
	}
	rows, err := db.Read(ctx, s.Stores, id, func(tx *db.Tx) ([]record, error) { return selectDomains(ctx, tx) })
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

// Get returns one domain of the tenant. Fault: NotFound.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id scope.TenantID, name string) (Domain, error) {
	if err := s.Tenants.CheckVisible(ctx, sc, id); err != nil {
		return Domain{}, err
	}
	name = lookupName(name)
	if s.BaseDomain != "" && name == s.target(id) {
		return s.defaultDomain(id), nil
	}
	r, err := db.Read(ctx, s.Stores, id, func(tx *db.Tx) (record, error) { return selectDomain(ctx, tx, name) })
	if err != nil {
		return Domain{}, err
	}
	return s.show(ctx, id, r)
}

// show returns one domain as answers show it, with its ordered certificate.
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

// lookupName returns a name from a path in the form in which names are compared. A name that is not
// valid stays as it is: no domain has it.
func lookupName(name string) string {
	if n, err := normalise("", name); err == nil {
		return n
	}
	return name
}

// Add adds a domain, which is pending until it is verified. Faults: Invalid, Conflict if the tenant
// has it already or another tenant has verified it, Forbidden beyond maxDomains.
func (s *Service) Add(ctx context.Context, sc scope.Scope, id scope.TenantID, d Draft) (Domain, error) {
	if err := s.Tenants.CheckVisible(ctx, sc, id); err != nil {
		return Domain{}, err
	}
	name, err := normalise("/domain", d.Domain)
	if err == nil && s.isOwn(name) {
		err = fault.Invalidf("/domain", "is a domain of this deployment: each tenant has its subdomain already")
	}
	pair, unfit := checkPair(name, d.Certificate, d.PrivateKey, s.Now())
	if err := fault.Join(err, unfit); err != nil {
		return Domain{}, err
	}
	owner, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (scope.TenantID, error) { return ownerOf(ctx, tx, name) })
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
	if err := fault.CheckCounted(n, err, maxDomains, "a tenant may have %d domains"); err != nil {
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

// Claim adds the domains that a new tenant names, in a transaction of its store. Like others, they
// are pending until they are verified.
func (s *Service) Claim(ctx context.Context, tx *db.Tx, t tenant.Tenant) error {
	names := []string{t.Domain}
	if t.CustomDomain != nil {
		names = append(names, *t.CustomDomain)
	}
	for _, name := range names {
		name, err := normalise("", name)
		if err != nil || s.isOwn(name) {
			continue // a domain of the deployment, or a name that cannot be verified
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

// Update changes the members that were sent.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id scope.TenantID, name string, ch Change) (Domain, error) {
	if err := s.Tenants.CheckVisible(ctx, sc, id); err != nil {
		return Domain{}, err
	}
	name = lookupName(name)
	pair, unfit := checkPair(name, ch.Certificate.Value, ch.PrivateKey.Value, s.Now()) // outside the transaction: it is slow for large keys
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
		if r.Certificate != "" || !r.ACME { // no certificate is ordered any more
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

// apply changes the members that were sent, and returns the changes for the audit.
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

// retryOrder makes a failed order due now.
func (s *Service) retryOrder(ctx context.Context, name string, id scope.TenantID) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error { return makeOrderDue(ctx, tx, name, id, s.Now()) })
}

// sent reports whether a change has any member.
func (ch Change) sent() bool {
	return ch.Certificate.Sent || ch.PrivateKey.Sent || ch.ACME.Sent || ch.HSTSMaxAge.Sent
}

// Remove removes a domain. Requests to it then belong to no tenant. Faults: NotFound, Conflict for
// the default domain.
func (s *Service) Remove(ctx context.Context, sc scope.Scope, id scope.TenantID, name string) (Removal, error) {
	if err := s.Tenants.CheckVisible(ctx, sc, id); err != nil {
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

// Verify looks up the domain's DNS records, and if they exist makes the domain the tenant's own. It
// can be repeated. Faults: those of checkRecords, NotFound, Conflict if another tenant has verified the
// domain.
func (s *Service) Verify(ctx context.Context, sc scope.Scope, id scope.TenantID, name string) (Domain, error) {
	if err := s.Tenants.CheckVisible(ctx, sc, id); err != nil {
		return Domain{}, err
	}
	before, err := s.Get(ctx, sc, id, name)
	if err != nil || before.IsDefault {
		return before, err
	}
	name = before.Domain
	if err := s.checkRecords(ctx, before.Instructions.Records); err != nil { // outside any transaction
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

// claimRoute makes a domain a tenant's own, or updates its route. If the domain needs no ordered
// certificate, claimRoute deletes the one that there is. Fault: Conflict if another tenant owns the
// domain.
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

// Forget removes the routes and orders of all domains of a purged tenant from the system store.
func (s *Service) Forget(ctx context.Context, id scope.TenantID) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		if err := deleteRoutes(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.Bump(ctx, Revision)
		return err
	})
}

// isOwn reports whether a domain is the deployment's own, or below it.
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

// token returns a random token for a TXT record.
func (s *Service) token() (string, error) {
	raw := make([]byte, 24)
	if _, err := io.ReadFull(s.Random, raw); err != nil {
		return "", fault.Wrap(err, "create a token")
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// seal seals the key of a domain. Without a key it returns an empty slice.
func (s *Service) seal(id scope.TenantID, name, key string) ([]byte, error) {
	if key == "" {
		return []byte{}, nil
	}
	sealed, err := s.Box.Seal([]byte(key), keyPlace(id, name))
	return sealed, fault.Wrap(err, "seal the key")
}

// keyPlace names the domain that a sealed key is bound to.
func keyPlace(id scope.TenantID, name string) string { return "domains/" + string(id) + "/" + name }

func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, id scope.TenantID, kind, name string, changes map[string]any) error {
	sc.Tenant = id
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{Type: kind, Object: "domain", ObjectID: name, ObjectName: name, Changes: changes})
}

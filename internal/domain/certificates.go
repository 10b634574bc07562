package domain

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// fingerprint returns the first half of the SHA-256 of a certificate chain in PEM, in hex; empty:
// there is no chain.
func fingerprint(chain string) string {
	if chain == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(chain))
	return hex.EncodeToString(sum[:16])
}

// route returns the route of the domain, which is stored once it is verified.
func (r record) route(id scope.TenantID) Route {
	return Route{Domain: r.Domain, Tenant: id, Pair: fingerprint(r.Certificate), ACME: r.ACME, HSTS: r.HSTS}
}

// issuedPlace names the domain that the sealed key of an ordered certificate is bound to.
func issuedPlace(id scope.TenantID, name string) string { return "acme/" + keyPlace(id, name) }

// accountPlace names the ACME directory that the sealed key of an account is bound to.
func accountPlace(directory string) string { return "acme account/" + directory }

// KeyPair reads the certificate of a verified domain with its key, and returns its fingerprint,
// which differs from the route's during a change. Fault: NotFound if there is no certificate.
func (s *Service) KeyPair(ctx context.Context, rt Route) (*tls.Certificate, string, error) {
	chain, sealed, place := "", []byte(nil), ""
	var err error
	if rt.Pair != "" {
		err = s.Stores.Read(ctx, rt.Tenant, func(tx *db.Tx) error {
			r, err := selectDomain(ctx, tx, rt.Domain)
			chain, sealed, place = r.Certificate, r.Key, keyPlace(rt.Tenant, rt.Domain)
			return err
		})
	} else {
		err = s.Stores.System().Read(ctx, func(tx *db.Tx) error {
			c, err := selectIssued(ctx, tx, rt.Domain)
			chain, sealed, place = c.Certificate, c.Key, issuedPlace(rt.Tenant, rt.Domain)
			return err
		})
	}
	if err != nil {
		return nil, "", err
	}
	if chain == "" {
		return nil, "", fault.NotFoundf("the domain has no certificate")
	}
	key, err := s.Box.Open(sealed, place)
	if err != nil {
		return nil, "", fault.Wrap(err, "open the key of "+rt.Domain)
	}
	pair, err := tls.X509KeyPair([]byte(chain), key)
	if err != nil {
		return nil, "", fault.Wrap(err, "the certificate of "+rt.Domain)
	}
	return &pair, fingerprint(chain), nil
}

// issuedOf returns the ordered certificates of a tenant, by domain.
func (s *Service) issuedOf(ctx context.Context, id scope.TenantID) (map[string]issued, error) {
	rows, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) ([]issued, error) { return selectIssuedOf(ctx, tx, id) })
	out := make(map[string]issued, len(rows))
	for _, c := range rows {
		out[c.Domain] = c
	}
	return out, err
}

// defaultDomain returns a tenant's subdomain of the base domain, as answers show it.
func (s *Service) defaultDomain(id scope.TenantID) Domain {
	return Domain{Domain: s.target(id), Status: Active, SSLStatus: Active, IsDefault: true, Certificate: Certificate{Source: SourceDeployment, Status: Active}}
}

// view returns a domain as answers show it, with the certificate that was ordered for it. verified
// is the status to show for a verified domain.
func (s *Service) view(id scope.TenantID, r record, c issued, verified string) Domain {
	now := s.Now()
	d := Domain{
		Domain: r.Domain, Status: Pending, SSLStatus: Pending, VerifiedAt: r.VerifiedAt, CreatedAt: &r.CreatedAt, ACME: r.ACME, HSTSMaxAge: r.HSTS,
		Certificate: s.certificate(r, c, now),
	}
	if r.VerifiedAt != nil {
		d.Status, d.SSLStatus = verified, Active
	}
	d.SSLExpiresAt = d.Certificate.NotAfter
	if d.SSLExpiresAt != nil && !now.Before(*d.SSLExpiresAt) {
		d.SSLStatus = Expired
	}
	records := []Record{{"CNAME", r.Domain, s.target(id)}, {"TXT", challengeLabel + r.Domain, r.Token}}
	d.Instructions = &Instructions{Records: records, CNAMERecord: records[0].line(), TXTRecord: records[1].line()}
	return d
}

// certificate describes the certificate that TLS connections to a domain get.
func (s *Service) certificate(r record, c issued, now time.Time) Certificate {
	out := Certificate{Source: SourceDeployment, Status: Active}
	switch {
	case r.Certificate != "":
		out.Source, out.NotAfter = SourceUploaded, r.NotAfter
	case r.ACME && s.ACME:
		out.Source, out.NotAfter = SourceACME, c.NotAfter
		if r.VerifiedAt != nil && !c.NextAt.IsZero() {
			out.NextAt = &c.NextAt
		}
		if c.Failure != "" {
			out.Error = &c.Failure
		}
		if c.NotAfter == nil {
			out.Status = Pending
		}
	}
	switch expired := out.NotAfter != nil && !now.Before(*out.NotAfter); {
	case r.VerifiedAt == nil:
		out.Status = Pending
	case out.Error != nil && (out.NotAfter == nil || expired):
		out.Status = Failing
	case expired:
		out.Status = Expired
	}
	return out
}

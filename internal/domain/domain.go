// Package domain keeps the domains that tenants are reached by beside their
// subdomain.
//
//	pending ──verify: CNAME and TXT records are there──▶ verified (listed as active)
//
// A domain's record, with its certificate and the sealed key, stands in the tenant's
// own store. Once it is verified, the system store says whose it is: one tenant's
// only. Until then it routes nowhere, so that a claim keeps nobody else from theirs.
package domain

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/idna"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
)

// The states of a domain. Lists show a verified one as active.
const (
	Pending  = "pending"
	Verified = "verified"
	Active   = "active"
	Expired  = "expired"
)

// challengeLabel is the label of the TXT record that proves who a domain belongs to.
const challengeLabel = "_gatehouse-challenge."

// maxDomains is how many domains a tenant may have.
const maxDomains = 100

// minRSABits is the least size of an RSA key.
const minRSABits = 2048

// Domain is the specification's "Domain".
type Domain struct {
	Domain       string        `json:"domain" doc:"The domain, in lower case; names in other scripts in their ASCII form."`
	Status       string        `json:"status" enum:"pending,verified,active" doc:"pending until its records have been found; lists show a verified domain as active. Requests to a domain that is not verified belong to no tenant."`
	SSLStatus    string        `json:"ssl_status" enum:"pending,active,expired" doc:"active after the verification; expired after the stored certificate has expired. Without a stored certificate, the TLS endpoint in front of the server has its own."`
	VerifiedAt   *time.Time    `json:"verified_at" doc:"When the domain was verified; null before."`
	IsDefault    bool          `json:"is_default" doc:"Set on the tenant's subdomain of the base domain, which needs no verification and cannot be removed."`
	Instructions *Instructions `json:"dns_instructions" doc:"The records to create; null for the default domain."`
	SSLExpiresAt *time.Time    `json:"ssl_expires_at" doc:"When the stored certificate expires; null without one."`
	CreatedAt    *time.Time    `json:"created_at" doc:"When the domain was added; null for the default domain."`
}

// Instructions are the DNS records that prove and route a domain.
type Instructions struct {
	CNAMERecord string   `json:"cname_record" doc:"The record that routes the domain, on one line: name, type, value."`
	TXTRecord   string   `json:"txt_record" doc:"The record that proves ownership of the domain, on one line."`
	Records     []Record `json:"records" nullable:"false" doc:"The same records, as separate members."`
}

// Record is one DNS record.
type Record struct {
	Type  string `json:"type" enum:"CNAME,TXT" doc:"Type of the record."`
	Name  string `json:"name" doc:"Its name."`
	Value string `json:"value" doc:"Its value."`
}

// Draft is what a domain is made from.
type Draft struct {
	Domain      string `json:"domain" minLength:"1" maxLength:"253" doc:"A domain of the tenant's own, such as access.example.com."`
	Certificate string `json:"ssl_certificate,omitempty" maxLength:"65536" doc:"PEM: the certificate for the domain, then the intermediate certificates."`
	PrivateKey  string `json:"ssl_private_key,omitempty" maxLength:"65536" writeOnly:"true" doc:"PEM: the certificate's key. Encrypted at rest and never returned."`
}

// Change replaces the certificate of a domain.
type Change struct {
	Certificate patch.Field[string] `json:"ssl_certificate,omitzero" maxLength:"65536" doc:"PEM: the new certificate chain; null removes certificate and key."`
	PrivateKey  patch.Field[string] `json:"ssl_private_key,omitzero" maxLength:"65536" writeOnly:"true" doc:"PEM: the new certificate's key."`
}

// Removal answers the removal of a domain.
type Removal struct {
	Message string `json:"message" doc:"What was done."`
	Domain  string `json:"domain" doc:"The removed domain."`
}

// record is a domain as its tenant's store has it.
type record struct {
	Domain      string     `db:"domain"`
	Token       string     `db:"token"`
	Certificate string     `db:"certificate"`
	Key         []byte     `db:"sealed_key"`
	NotAfter    *time.Time `db:"not_after"`
	CreatedAt   time.Time  `db:"created_at"`
	VerifiedAt  *time.Time `db:"verified_at"`
}

// Normalize gives a domain name its compared form: ASCII, lower case, no dot at the
// end. It refuses what is no domain of two labels or more, at the pointer.
func Normalize(pointer, name string) (string, error) {
	text := strings.TrimSuffix(strings.TrimSpace(name), ".")
	ascii, err := idna.Lookup.ToASCII(text)
	if err != nil || len(ascii) > 253 || !strings.Contains(ascii, ".") {
		return "", fault.Invalidf(pointer, "must be a domain name of two labels or more, such as access.example.com")
	}
	for label := range strings.SplitSeq(ascii, ".") {
		if label == "" || len(label) > 63 {
			return "", fault.Invalidf(pointer, "must be a domain name of two labels or more, such as access.example.com")
		}
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return "", fault.Invalidf(pointer, "is an address and not a domain name")
	}
	if last := ascii[strings.LastIndexByte(ascii, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		return "", fault.Invalidf(pointer, "is an address and not a domain name")
	}
	return ascii, nil
}

// checkPair checks a certificate and its key for a domain, and says when the
// certificate ends: nil where there is neither.
func checkPair(domain, certificate, key string, now time.Time) (*time.Time, error) {
	const certAt, keyAt = "/ssl_certificate", "/ssl_private_key"
	switch {
	case certificate == "" && key == "":
		return nil, nil
	case certificate == "":
		return nil, fault.Invalidf(certAt, "goes with ssl_private_key: send both or neither")
	case key == "":
		return nil, fault.Invalidf(keyAt, "goes with ssl_certificate: send both or neither")
	}
	chain, err := parseChain(certificate)
	if err != nil {
		return nil, err
	}
	if !holdsKey(key) {
		return nil, fault.Invalidf(keyAt, "must be a private key in PEM, without a password")
	}
	leaf := chain[0]
	var bad []error
	if _, err := tls.X509KeyPair([]byte(certificate), []byte(key)); err != nil {
		bad = append(bad, fault.Invalidf(keyAt, "is not the key of ssl_certificate"))
	}
	switch public := leaf.PublicKey.(type) {
	case *rsa.PublicKey:
		if public.N.BitLen() < minRSABits {
			bad = append(bad, fault.Invalidf(certAt, "has an RSA key of fewer than %d bits", minRSABits))
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		bad = append(bad, fault.Invalidf(certAt, "has a key of a kind that TLS does not take"))
	}
	if err := leaf.VerifyHostname(domain); err != nil {
		bad = append(bad, fault.Invalidf(certAt, "does not cover %s", domain))
	}
	if !now.Before(leaf.NotAfter) {
		bad = append(bad, fault.Invalidf(certAt, "ended on %s", leaf.NotAfter.UTC().Format(time.RFC3339)))
	}
	if now.Before(leaf.NotBefore) {
		bad = append(bad, fault.Invalidf(certAt, "begins only on %s", leaf.NotBefore.UTC().Format(time.RFC3339)))
	}
	for i := range chain[1:] {
		if err := chain[i].CheckSignatureFrom(chain[i+1]); err != nil {
			bad = append(bad, fault.Invalidf(certAt, "certificate %d is not signed by the one after it", i+1))
		}
	}
	end := leaf.NotAfter.UTC()
	return &end, fault.Join(bad...)
}

// parseChain reads the certificates of a PEM text.
func parseChain(text string) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fault.Invalidf("/ssl_certificate", "holds a block that is no certificate")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fault.Invalidf("/ssl_certificate", "certificate %d cannot be read", len(chain)+1)
		}
		chain = append(chain, c)
	}
	if len(chain) == 0 || strings.TrimSpace(string(rest)) != "" {
		return nil, fault.Invalidf("/ssl_certificate", "must be certificates in PEM and nothing else")
	}
	return chain, nil
}

// holdsKey reports whether a text is a private key in PEM.
func holdsKey(text string) bool {
	block, rest := pem.Decode([]byte(text))
	if block != nil && block.Type == "EC PARAMETERS" { // openssl puts them first
		block, _ = pem.Decode(rest)
	}
	return block != nil && (block.Type == "PRIVATE KEY" || strings.HasSuffix(block.Type, " PRIVATE KEY")) &&
		block.Type != "ENCRYPTED PRIVATE KEY" && block.Headers["DEK-Info"] == ""
}

// view is a record as answers show it; verified is what a verified one is called.
func (r record) view(target, verified string, now time.Time) Domain {
	d := Domain{
		Domain: r.Domain, Status: Pending, SSLStatus: Pending, VerifiedAt: r.VerifiedAt, SSLExpiresAt: r.NotAfter, CreatedAt: &r.CreatedAt,
	}
	if r.VerifiedAt != nil {
		d.Status, d.SSLStatus = verified, Active
	}
	if r.NotAfter != nil && !now.Before(*r.NotAfter) {
		d.SSLStatus = Expired
	}
	records := []Record{{"CNAME", r.Domain, target}, {"TXT", challengeLabel + r.Domain, r.Token}}
	d.Instructions = &Instructions{Records: records, CNAMERecord: records[0].line(), TXTRecord: records[1].line()}
	return d
}

func (r Record) line() string { return r.Name + " " + r.Type + " " + r.Value }

// Package domain keeps the tenants' own domains, besides their subdomains of the base domain.
//
//	pending ──verify: CNAME and TXT records exist──▶ verified (listed as active)
//
// A domain's record, with its certificate and sealed key, is in the tenant's own store. Once the
// domain is verified, its route in the system store says which one tenant owns it. Until then it
// has no route, so that a false claim does not block the real owner.
package domain

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
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

// challengeLabel is the label of the TXT record that proves who owns a domain.
const challengeLabel = "_gatehouse-challenge."

// maxDomains is how many domains a tenant may have.
const maxDomains = 100

// The sizes of RSA keys that are accepted, in bits. TLS clients refuse larger ones.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// maxChain is how many certificates a chain may have.
const maxChain = 10

// Domain is a domain as answers show it.
type Domain struct {
	Domain       string        `json:"domain" doc:"The domain, in lower case; names in other scripts in their ASCII form."`
	Status       string        `json:"status" enum:"pending,verified,active" doc:"pending until its records have been found; lists show a verified domain as active. Requests to a domain that is not verified belong to no tenant."`
	SSLStatus    string        `json:"ssl_status" enum:"pending,active,expired" doc:"active after the verification; expired after the domain's certificate has expired. certificate has the details."`
	VerifiedAt   *time.Time    `json:"verified_at" doc:"When the domain was verified; null before."`
	IsDefault    bool          `json:"is_default" doc:"Set on the tenant's subdomain of the base domain, which needs no verification and cannot be removed."`
	Instructions *Instructions `json:"dns_instructions" doc:"The records to create; null for the default domain."`
	SSLExpiresAt *time.Time    `json:"ssl_expires_at" doc:"When the domain's certificate expires; null without one."`
	Certificate  Certificate   `json:"certificate" doc:"The certificate that TLS connections to the domain get."`
	ACME         bool          `json:"acme" doc:"Whether the server orders a certificate by ACME (RFC 8555) for the verified domain, as long as none was uploaded."`
	HSTSMaxAge   int64         `json:"hsts_max_age" doc:"max-age of the header Strict-Transport-Security on answers over TLS, in seconds; 0: the header is not sent."`
	CreatedAt    *time.Time    `json:"created_at" doc:"When the domain was added; null for the default domain."`
}

// The sources of certificates.
const (
	SourceDeployment = "deployment"
	SourceUploaded   = "uploaded"
	SourceACME       = "acme"
)

// Failing is the status of a certificate that could not be ordered.
const Failing = "failing"

// Certificate describes the certificate that TLS connections to a domain get.
type Certificate struct {
	Source   string     `json:"source" enum:"deployment,uploaded,acme" doc:"uploaded: it was sent with the domain. acme: the server orders it. deployment: the domain has none of its own, so clients get the deployment's certificate, or that of the TLS endpoint in front of the server."`
	Status   string     `json:"status" enum:"pending,active,expired,failing" doc:"pending: the domain is not verified, or the first certificate is ordered. failing: the last order failed and there is no valid certificate. active: it is in use; error says whether its renewal fails."`
	NotAfter *time.Time `json:"not_after" doc:"When it expires; null without one, and for the deployment's."`
	NextAt   *time.Time `json:"next_order_at" doc:"When the server next orders one: the renewal, or the next attempt after a failure; null where none is ordered."`
	Error    *string    `json:"error" doc:"Why the last order failed; null if it did not."`
}

// Instructions has the DNS records that prove who owns a domain and route it.
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

// Draft is the body of a create.
type Draft struct {
	Domain      string `json:"domain" minLength:"1" maxLength:"253" doc:"A domain of the tenant's own, such as access.example.com."`
	Certificate string `json:"ssl_certificate,omitempty" maxLength:"65536" doc:"PEM: the certificate for the domain, then the intermediate certificates."`
	PrivateKey  string `json:"ssl_private_key,omitempty" maxLength:"65536" writeOnly:"true" doc:"PEM: the certificate's key. Encrypted at rest and never returned."`
	ACME        *bool  `json:"acme,omitempty" default:"true" doc:"Whether to order a certificate by ACME while none was uploaded."`
	HSTSMaxAge  int64  `json:"hsts_max_age,omitempty" minimum:"0" maximum:"63072000" doc:"max-age of Strict-Transport-Security in seconds; 0: none. Browsers refuse the domain without TLS for that long, so begin with a short one."`
}

// Change is the body of an update: members that are sent change, the others stay.
type Change struct {
	Certificate patch.Field[string] `json:"ssl_certificate,omitzero" maxLength:"65536" doc:"PEM: the new certificate chain; null removes certificate and key."`
	PrivateKey  patch.Field[string] `json:"ssl_private_key,omitzero" maxLength:"65536" writeOnly:"true" doc:"PEM: the new certificate's key."`
	ACME        patch.Field[bool]   `json:"acme,omitzero" doc:"Whether to order a certificate by ACME while none was uploaded; null: true. With true, the server also retries a failed order at once."`
	HSTSMaxAge  patch.Field[int64]  `json:"hsts_max_age,omitzero" minimum:"0" maximum:"63072000" doc:"max-age of Strict-Transport-Security in seconds; 0 or null: none."`
}

// Removal is the answer to the removal of a domain.
type Removal struct {
	Message string `json:"message" doc:"What was done."`
	Domain  string `json:"domain" doc:"The removed domain."`
}

// record is a domain as stored in its tenant's store.
type record struct {
	Domain      string     `db:"domain"`
	Token       string     `db:"token"`
	Certificate string     `db:"certificate"`
	Key         []byte     `db:"sealed_key"`
	NotAfter    *time.Time `db:"not_after"`
	CreatedAt   time.Time  `db:"created_at"`
	VerifiedAt  *time.Time `db:"verified_at"`
	ACME        bool       `db:"acme"`
	HSTS        int64      `db:"hsts"`
}

// normalise returns a domain name in the form in which names are compared: ASCII, lower case, no
// final dot. Fault: Invalid at the pointer if it is not a domain name of two labels or more.
func normalise(pointer, name string) (string, error) {
	text := strings.TrimSuffix(strings.TrimSpace(name), ".")
	ascii, err := idna.Lookup.ToASCII(text)
	if err != nil || len(challengeLabel)+len(ascii) > 253 || !strings.Contains(ascii, ".") {
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

// maxKeyBytes is how long a private key may be, in bytes. An RSA key of maxRSABits is shorter.
const maxKeyBytes = 8192

// keyPair is a certificate chain with its key, as PEM blocks and no other text. The zero value
// means none.
type keyPair struct {
	certificate, key string
	notAfter         *time.Time
}

// checkPair checks a certificate chain and its key for a domain. Without both it returns the zero
// keyPair. Faults: Invalid.
func checkPair(domain, certificate, key string, now time.Time) (keyPair, error) {
	const certAt, keyAt = "/ssl_certificate", "/ssl_private_key"
	switch {
	case certificate == "" && key == "":
		return keyPair{}, nil
	case certificate == "":
		return keyPair{}, fault.Invalidf(certAt, "goes with ssl_private_key: send both or neither")
	case key == "":
		return keyPair{}, fault.Invalidf(keyAt, "goes with ssl_certificate: send both or neither")
	}
	chain, err := parseChain(certificate)
	if err != nil {
		return keyPair{}, err
	}
	block := keyBlock(key)
	if block == nil {
		return keyPair{}, fault.Invalidf(keyAt, "must be a private key in PEM, without a password")
	}
	// Check this first: the time of computations with a key grows with the third power of its size.
	if len(block.Bytes) > maxKeyBytes || modulusBits(block.Bytes) > maxRSABits {
		return keyPair{}, fault.Invalidf(keyAt, "has more than %d bits", maxRSABits)
	}
	if err := checkKeys(chain); err != nil {
		return keyPair{}, err
	}
	leaf, end := chain[0], chain[0].NotAfter.UTC()
	out := keyPair{key: string(pem.EncodeToMemory(block)), notAfter: &end}
	for _, c := range chain {
		out.certificate += string(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.Raw}))
	}
	var bad []error
	if _, err := tls.X509KeyPair([]byte(out.certificate), []byte(out.key)); err != nil {
		bad = append(bad, fault.Invalidf(keyAt, "is not the key of ssl_certificate"))
	}
	if err := leaf.VerifyHostname(domain); err != nil {
		bad = append(bad, fault.Invalidf(certAt, "does not cover %s", domain))
	}
	if !now.Before(leaf.NotAfter) {
		bad = append(bad, fault.Invalidf(certAt, "expired on %s", leaf.NotAfter.UTC().Format(time.RFC3339)))
	}
	if now.Before(leaf.NotBefore) {
		bad = append(bad, fault.Invalidf(certAt, "is not valid before %s", leaf.NotBefore.UTC().Format(time.RFC3339)))
	}
	for i := range chain[1:] {
		if err := chain[i].CheckSignatureFrom(chain[i+1]); err != nil {
			bad = append(bad, fault.Invalidf(certAt, "certificate %d is not signed by the one after it", i+1))
		}
	}
	return out, fault.Join(bad...)
}

// checkKeys refuses public keys in a chain whose type or size TLS does not support.
func checkKeys(chain []*x509.Certificate) error {
	var bad []error
	for i, c := range chain {
		switch public := c.PublicKey.(type) {
		case *rsa.PublicKey:
			if bits := public.N.BitLen(); bits < minRSABits || bits > maxRSABits {
				bad = append(bad, fault.Invalidf("/ssl_certificate", "certificate %d has an RSA key of %d bits: %d to %d are accepted", i+1, bits, minRSABits, maxRSABits))
			}
		case *ecdsa.PublicKey, ed25519.PublicKey:
		default:
			bad = append(bad, fault.Invalidf("/ssl_certificate", "certificate %d has a type of key that TLS does not support", i+1))
		}
	}
	return fault.Join(bad...)
}

const certificateBlock = "CERTIFICATE"

// parseChain parses the certificates in a PEM text. Fault: Invalid.
func parseChain(text string) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != certificateBlock {
			return nil, fault.Invalidf("/ssl_certificate", "contains a block that is not a certificate")
		}
		if len(chain) == maxChain {
			return nil, fault.Invalidf("/ssl_certificate", "has more than %d certificates", maxChain)
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

// keyBlock returns the private key in a PEM text; nil: there is none, or it needs a password.
func keyBlock(text string) *pem.Block {
	block, rest := pem.Decode([]byte(text))
	if block != nil && block.Type == "EC PARAMETERS" { // openssl puts them first
		block, _ = pem.Decode(rest)
	}
	if block == nil || block.Type != "PRIVATE KEY" && !strings.HasSuffix(block.Type, " PRIVATE KEY") ||
		block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
		return nil
	}
	return block
}

// modulusBits returns the length of an RSA key in PKCS #1 or PKCS #8, in bits; 0 for other keys. It
// computes nothing with the key.
func modulusBits(der []byte) int {
	var key cryptobyte.String
	in := cryptobyte.String(der)
	if !in.ReadASN1(&key, asn1.SEQUENCE) || !key.SkipASN1(asn1.INTEGER) {
		return 0
	}
	if key.PeekASN1Tag(asn1.SEQUENCE) { // PKCS #8: the algorithm, then the key
		var inner cryptobyte.String
		if !key.SkipASN1(asn1.SEQUENCE) || !key.ReadASN1(&inner, asn1.OCTET_STRING) {
			return 0
		}
		if !inner.ReadASN1(&key, asn1.SEQUENCE) || !key.SkipASN1(asn1.INTEGER) {
			return 0
		}
	}
	var modulus cryptobyte.String
	if !key.ReadASN1(&modulus, asn1.INTEGER) {
		return 0
	}
	return new(big.Int).SetBytes(modulus).BitLen()
}

func (r Record) line() string { return r.Name + " " + r.Type + " " + r.Value }

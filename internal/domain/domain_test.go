package domain

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/dnstest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

var noon = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

// own is the scope of the second tenant's administrator, first that of the default tenant's.
var (
	own   = scope.Scope{Tenant: dbtest.Second, Actor: scope.Actor{Kind: scope.Person, ID: "2"}}
	first = scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "1"}}
)

// service returns a service with a DNS server and the time that now points to.
func service(t testing.TB, c *db.Cluster, now *time.Time) (*Service, *dnstest.Server) {
	t.Helper()
	dns := dnstest.Start(t)
	box, err := secret.New([secret.KeyBytes]byte{1})
	errtest.Must(t, err)
	clock := func() time.Time { return *now }
	tenants := &tenant.Service{Stores: c, Now: clock, BaseDomain: "gate.example"}
	errtest.Must(t, tenants.EnsureDefault(context.Background()))
	return &Service{Stores: c, Tenants: tenants, DNS: Resolver{Server: dns.Addr}, Box: box, Random: rand.Reader, Now: clock, BaseDomain: "gate.example"}, dns
}

// point creates the DNS records that a domain needs.
func point(dns *dnstest.Server, d Domain) {
	dns.CNAME(d.Instructions.Records[0].Name, d.Instructions.Records[0].Value)
	dns.TXT(d.Instructions.Records[1].Name, "something else", d.Instructions.Records[1].Value)
}

// TestLifeOfADomain: a domain routes to its tenant from the proof of ownership to its removal, and another
// tenant cannot get it meanwhile.
func TestLifeOfADomain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), noon
		s, dns := service(t, c, &now)
		routes, err := LoadRoutes(ctx, c, func() time.Time { return now }, slog.New(slog.DiscardHandler))
		errtest.Must(t, err)
		routed := func() scope.TenantID {
			t.Helper()
			errtest.Must(t, routes.load(ctx))
			rt, _ := routes.Find("shop.acme.test")
			return rt.Tenant
		}
		d, err := s.Add(ctx, own, dbtest.Second, Draft{Domain: "Shop.ACME.test."})
		if err != nil || d.Domain != "shop.acme.test" || d.Status != Pending || d.SSLStatus != Pending || d.VerifiedAt != nil || d.IsDefault {
			t.Fatalf("Add = %+v, %v", d, err)
		}
		if want := "shop.acme.test CNAME t2.gate.example"; d.Instructions.CNAMERecord != want {
			t.Errorf("CNAME record = %q, want %q", d.Instructions.CNAMERecord, want)
		}
		if _, err := s.Add(ctx, own, dbtest.Second, Draft{Domain: "shop.acme.test"}); !fault.Is(err, fault.Conflict) {
			t.Errorf("Add twice: got %v, want a conflict", err)
		}
		// Another tenant may claim the same name, with a token of its own.
		rival, err := s.Add(ctx, first, scope.DefaultTenant, Draft{Domain: "shop.acme.test"})
		if err != nil || rival.Instructions.TXTRecord == d.Instructions.TXTRecord {
			t.Fatalf("Add by another tenant = %+v, %v, want another token", rival, err)
		}

		refusal := func(step string, details int) {
			t.Helper()
			_, err := s.Verify(ctx, own, dbtest.Second, "shop.acme.test")
			if f := fault.Offences(err); !fault.Is(err, fault.Invalid) || len(f) != details {
				t.Errorf("Verify when %s: got %v with %v, want %d offences", step, err, f, details)
			}
			if id := routed(); id != "" {
				t.Errorf("when %s, the domain routes to %q, want nowhere", step, id)
			}
		}
		refusal("no record exists", 2)
		dns.CNAME("shop.acme.test", "t2.gate.example")
		refusal("the proof is missing", 1)
		dns.TXT("_gatehouse-challenge.shop.acme.test", rival.Instructions.Records[1].Value)
		refusal("the proof is another tenant's", 1)
		point(dns, d)
		dns.CNAME("shop.acme.test", "default.gate.example")
		refusal("it points to another tenant", 1)
		dns.Break(true)
		if _, err := s.Verify(ctx, own, dbtest.Second, "shop.acme.test"); !fault.Is(err, fault.Unavailable) {
			t.Errorf("Verify while the resolver fails: got %v, want unavailable", err)
		}
		dns.Break(false)
		point(dns, d)
		for range 2 {
			v, err := s.Verify(ctx, own, dbtest.Second, "SHOP.acme.test")
			if err != nil || v.Status != Verified || v.SSLStatus != Active || v.VerifiedAt == nil || !v.VerifiedAt.Equal(noon) {
				t.Fatalf("Verify = %+v, %v", v, err)
			}
		}
		if id := routed(); id != dbtest.Second {
			t.Errorf("the verified domain routes to %q, want t2", id)
		}
		list, err := s.List(ctx, own, dbtest.Second)
		if err != nil || len(list) != 2 || !list[0].IsDefault || list[0].Domain != "t2.gate.example" || list[1].Status != Active {
			t.Errorf("List = %+v, %v, want the default domain and the verified one", list, err)
		}

		// The domain is now this tenant's, even if the other tenant's records exist.
		point(dns, rival)
		if _, err := s.Verify(ctx, first, scope.DefaultTenant, "shop.acme.test"); !fault.Is(err, fault.Conflict) {
			t.Errorf("Verify by another tenant: got %v, want a conflict", err)
		}
		if r, err := s.Get(ctx, first, scope.DefaultTenant, "shop.acme.test"); err != nil || r.Status != Pending {
			t.Errorf("the other tenant's claim = %+v, %v, want it pending", r, err)
		}
		if _, err := s.Remove(ctx, first, scope.DefaultTenant, "shop.acme.test"); err != nil || routed() != dbtest.Second {
			t.Errorf("Remove of the other tenant's claim: %v, and the domain routes to %q", err, routed())
		}
		if _, err := s.Add(ctx, first, scope.DefaultTenant, Draft{Domain: "shop.acme.test"}); !fault.Is(err, fault.Conflict) {
			t.Errorf("Add by another tenant after the verification: got %v, want a conflict", err)
		}
		if _, err := s.Get(ctx, first, dbtest.Second, "shop.acme.test"); !fault.Is(err, fault.Forbidden) {
			t.Errorf("Get by another tenant: got %v, want forbidden", err)
		}
		if _, err := s.Remove(ctx, own, dbtest.Second, "t2.gate.example"); !fault.Is(err, fault.Conflict) {
			t.Errorf("Remove of the default domain: got %v, want a conflict", err)
		}
		if _, err := s.Remove(ctx, own, dbtest.Second, "shop.acme.test"); err != nil || routed() != "" {
			t.Errorf("Remove: %v, and the domain routes to %q", err, routed())
		}
		if _, err := s.Verify(ctx, own, dbtest.Second, "shop.acme.test"); !fault.Is(err, fault.NotFound) {
			t.Errorf("Verify after the removal: got %v, want not found", err)
		}
		if _, err := s.Verify(ctx, first, scope.DefaultTenant, "never.acme.test"); !fault.Is(err, fault.NotFound) {
			t.Errorf("Verify without an Add: got %v, want not found", err)
		}
	})
}

// TestADomainMayLeadFurther: a domain that points to the same name as the tenant's subdomain counts as
// routed: some resolvers and DNS services return only the last name.
func TestADomainMayLeadFurther(t *testing.T) {
	now := noon
	s, dns := service(t, dbtest.Open(t, dbtest.SQLite), &now)
	ctx := context.Background()
	d, err := s.Add(ctx, own, dbtest.Second, Draft{Domain: "shop.acme.test"})
	errtest.Must(t, err)
	point(dns, d)
	dns.CNAME("shop.acme.test", "lb.cloud.test")
	if _, err := s.Verify(ctx, own, dbtest.Second, d.Domain); !fault.Is(err, fault.Invalid) {
		t.Errorf("Verify of a domain that points elsewhere: got %v, want invalid", err)
	}
	dns.CNAME("t2.gate.example", "lb.cloud.test")
	if _, err := s.Verify(ctx, own, dbtest.Second, d.Domain); err != nil {
		t.Errorf("Verify of a domain that points to the same name as the subdomain: %v", err)
	}
}

// TestDomainsAreWatched: Check opens an alert once, resolves it when it is over, and changes none while the
// resolver is down.
func TestDomainsAreWatched(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), noon
		s, dns := service(t, c, &now)
		cert, key := pair(t, "shop.acme.test", noon.Add(40*24*time.Hour))
		d, err := s.Add(ctx, own, dbtest.Second, Draft{Domain: "shop.acme.test", Certificate: cert, PrivateKey: key})
		errtest.Must(t, err)
		point(dns, d)
		errtest.Must(t, errtest.Of(s.Verify(ctx, own, dbtest.Second, d.Domain)))
		alerts := func(step, want string) {
			t.Helper()
			for range 2 {
				errtest.Must(t, s.Check(ctx))
			}
			list, err := s.Tenants.Alerts(ctx, own, dbtest.Second)
			got := ""
			for _, a := range list {
				if got += " " + a.Type; a.ResolvedAt != nil {
					got += "(over)"
				}
			}
			if err != nil || got != want {
				t.Errorf("alerts when %s =%s, %v, want%s", step, got, err, want)
			}
		}
		alerts("nothing is wrong", "")
		dns.Break(true)
		alerts("the resolver is down", "")
		dns.Break(false)
		dns.CNAME("shop.acme.test", "")
		alerts("it has no address", " domain_unresolved")
		if r, _ := s.Get(ctx, own, dbtest.Second, d.Domain); r.Status != Verified {
			t.Errorf("status of a domain without an address = %s, want verified", r.Status)
		}
		point(dns, d)
		alerts("it has its address again", " domain_unresolved(over)")
		now = noon.Add(30 * 24 * time.Hour)
		alerts("its certificate is about to end", " domain_certificate domain_unresolved(over)")
		now = noon.Add(41 * 24 * time.Hour)
		if r, _ := s.Get(ctx, own, dbtest.Second, d.Domain); r.SSLStatus != Expired {
			t.Errorf("domain after the end of its certificate = %+v, want expired", r)
		}
		now = noon
		cert, key = pair(t, "*.acme.test", noon.Add(400*24*time.Hour))
		errtest.Must(t, errtest.Of(s.Update(ctx, own, dbtest.Second, d.Domain, Change{Certificate: patch.Set(cert), PrivateKey: patch.Set(key)})))
		alerts("it has a new certificate", " domain_certificate(over) domain_unresolved(over)")

		// A process that was killed between the two commits left no route.
		errtest.Must(t, c.System().Write(ctx, func(tx *db.Tx) error { return deleteRoute(ctx, tx, d.Domain, dbtest.Second) }))
		alerts("its route is missing", " domain_certificate(over) domain_unresolved(over)")
		err = c.System().Read(ctx, func(tx *db.Tx) error {
			owner, err := ownerOf(ctx, tx, d.Domain)
			if owner != dbtest.Second {
				t.Errorf("owner of the repaired route = %q, want t2", owner)
			}
			return err
		})
		errtest.Must(t, err)
		// A route without the certificate is repaired: an old one, or one after half a change.
		before, err := s.Get(ctx, own, dbtest.Second, d.Domain)
		if err != nil || before.Certificate.Source != SourceUploaded {
			t.Fatalf("Get = %+v, %v, want an uploaded certificate", before, err)
		}
		err = c.System().Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE domain_routes SET pair = '', acme = FALSE, hsts = 7`)
			return err
		})
		errtest.Must(t, err)
		alerts("its route has no certificate", " domain_certificate(over) domain_unresolved(over)")
		err = c.System().Read(ctx, func(tx *db.Tx) error {
			rt, err := selectRoute(ctx, tx, d.Domain)
			if rt.Pair != fingerprint(cert) || !rt.ACME || rt.HSTS != 0 {
				t.Errorf("repaired route = %+v", rt)
			}
			return err
		})
		errtest.Must(t, err)
		errtest.Must(t, s.Forget(ctx, dbtest.Second))
	})
}

// TestATenantsNamesAreClaims: the names that a new tenant has are claims like others.
func TestATenantsNamesAreClaims(t *testing.T) {
	now := noon
	s, _ := service(t, dbtest.Open(t, dbtest.SQLite), &now)
	s.Tenants.OnCreate = append(s.Tenants.OnCreate, s.Claim)
	root := scope.Scope{Tenant: scope.DefaultTenant, Platform: true, Permissions: scope.Permissions{All: true}}
	made, err := s.Tenants.Create(context.Background(), root, tenant.Draft{Name: "Acme", Domain: "acme.test", CustomDomain: "Access.Acme.test"})
	errtest.Must(t, err)
	list, err := s.List(context.Background(), root, made.ID)
	if err != nil || len(list) != 3 || !list[0].IsDefault || list[1].Domain != "access.acme.test" || list[2].Domain != "acme.test" || list[2].Status != Pending {
		t.Errorf("List = %+v, %v, want the default domain and two claims", list, err)
	}
}

// TestNames: a name is normalised, and one that cannot be a tenant's own domain is refused.
func TestNames(t *testing.T) {
	now := noon
	s, _ := service(t, dbtest.Open(t, dbtest.SQLite), &now)
	for name, want := range map[string]string{
		"Shop.Example.COM.": "shop.example.com", "bücher.example": "xn--bcher-kva.example", "BÜCHER.example": "xn--bcher-kva.example", " a.b ": "a.b",
		"a--b.example": "a--b.example", strings.Repeat("a", 63) + ".example": strings.Repeat("a", 63) + ".example",
	} {
		if got, err := normalise("/domain", name); got != want || err != nil {
			t.Errorf("normalise(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{
		"", ".", "com", "localhost", "a..b", ".a.b", "*.example.com", "a_b.example", "-a.example", "a-.example", "192.0.2.1", "::1", "[::1]", "a.b:80", "http://a.b", "a.b/c", "a b.c",
		"0x7f.1", "1.2.3", strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 130) + "b", "a.b\x00", "xn--zz--.example", strings.Repeat("a.", 115) + "bcd", // no room for the record of the challenge
		"gate.example", "x.gate.example", "t2.GATE.example.",
	} {
		if _, err := s.Add(context.Background(), own, dbtest.Second, Draft{Domain: name}); !fault.Is(err, fault.Invalid) {
			t.Errorf("Add of %q: got %v, want invalid", name, err)
		}
	}
}

// TestPairsAreChecked: a certificate and its key are refused unless they fit each other and the domain, are
// strong enough, and are cheap to check.
func TestPairsAreChecked(t *testing.T) {
	cert, key := pair(t, "shop.acme.test", noon.Add(time.Hour))
	wild, wildKey := pair(t, "*.acme.test", noon.Add(time.Hour))
	other, otherKey := pair(t, "other.test", noon.Add(time.Hour))
	old, oldKey := pair(t, "shop.acme.test", noon.Add(-time.Second))
	weak, weakKey := weakPair(t, "shop.acme.test")
	for _, c := range []struct {
		what, cert, key string
		at              string
	}{
		{"nothing", "", "", ""},
		{"a good pair", cert, key, ""},
		{"a wildcard", wild, wildKey, ""},
		{"no key", cert, "", "/ssl_private_key"},
		{"no certificate", "", key, "/ssl_certificate"},
		{"another's key", cert, wildKey, "/ssl_private_key"},
		{"another name", other, otherKey, "/ssl_certificate"},
		{"one that ended", old, oldKey, "/ssl_certificate"},
		{"a weak key", weak, weakKey, "/ssl_certificate"},
		{"a key as certificate", key, key, "/ssl_certificate"},
		{"a certificate as key", cert, cert, "/ssl_private_key"},
		{"text", "hello", "hello", "/ssl_certificate"},
		{"text behind", cert + "hello", key, "/ssl_certificate"},
		{"a chain of strangers", cert + other, key, "/ssl_certificate"},
		{"more certificates than a chain has", strings.Repeat(cert, maxChain+1), key, "/ssl_certificate"},
		{"a huge key", cert, hugeKey(t, pkcs1, "RSA PRIVATE KEY"), "/ssl_private_key"},
		{"a huge key in PKCS #8", cert, hugeKey(t, pkcs8, "PRIVATE KEY"), "/ssl_private_key"},
		{"a huge key under another name", cert, hugeKey(t, pkcs8, "EC PRIVATE KEY"), "/ssl_private_key"},
		{"a huge key in the certificate", hugeCertificate(t, "shop.acme.test"), key, "/ssl_certificate"},
		{"a huge key in the chain", cert + hugeCertificate(t, "shop.acme.test"), key, "/ssl_certificate"},
		{"a key longer than any", cert, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: make([]byte, 40_000)})), "/ssl_private_key"},
		{"a broken certificate", strings.Replace(cert, "\nMI", "\nXX", 1), key, "/ssl_certificate"},
	} {
		got, err := checkPair("shop.acme.test", c.cert, c.key, noon)
		if c.at == "" {
			if err != nil || (got.notAfter == nil) != (c.cert == "") || got.certificate != c.cert || got.key != c.key {
				t.Errorf("checkPair of %s: got %v, %v, want the pair as it is", c.what, got.notAfter, err)
			}
			continue
		}
		found := fault.Offences(err)
		if len(found) == 0 || found[0].Pointer != c.at || strings.Contains(fmt.Sprint(err, found), "PRIVATE KEY-") {
			t.Errorf("checkPair of %s: got %v, %v, want an offence at %s", c.what, err, found, c.at)
		}
		if strings.HasPrefix(c.what, "a huge") && (len(found) != 1 || !strings.Contains(found[0].Message, "bits")) {
			t.Errorf("checkPair of %s computes with it: %v", c.what, found)
		}
	}
}

// TestOnlyThePairIsKept: text around the PEM blocks is not stored, such as a damaged key that was pasted
// among the certificates.
func TestOnlyThePairIsKept(t *testing.T) {
	cert, key := pair(t, "shop.acme.test", noon.Add(time.Hour))
	broken := strings.Replace(key, "-----END PRIVATE KEY-----", "-----END", 1)
	for what, text := range map[string][2]string{
		"a comment":                 {"# shop\n" + cert, "Key Attributes: <none>\n" + key + "# the end\n"},
		"a key that cannot be read": {broken + "\n" + cert, key},
		"parameters":                {cert, "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" + key},
		"line ends of Windows":      {strings.ReplaceAll(cert, "\n", "\r\n"), strings.ReplaceAll(key, "\n", "\r\n")},
	} {
		got, err := checkPair("shop.acme.test", text[0], text[1], noon)
		if err != nil || got.certificate != cert || got.key != key {
			t.Errorf("checkPair with %s = %q, %v, want only the pair", what, got.certificate, err)
		}
	}
}

// TestKeysAreSealed: the key is stored sealed and never in clear, and opens only for its own domain.
func TestKeysAreSealed(t *testing.T) {
	now, ctx := noon, context.Background()
	c := dbtest.Open(t, dbtest.SQLite)
	s, _ := service(t, c, &now)
	cert, key := pair(t, "shop.acme.test", noon.Add(time.Hour))
	errtest.Must(t, errtest.Of(s.Add(ctx, own, dbtest.Second, Draft{Domain: "shop.acme.test", Certificate: cert, PrivateKey: key})))
	err := c.Read(ctx, dbtest.Second, func(tx *db.Tx) error {
		r, err := selectDomain(ctx, tx, "shop.acme.test")
		if err != nil {
			return err
		}
		if plain, err := s.Box.Open(r.Key, keyPlace(dbtest.Second, r.Domain)); err != nil || string(plain) != key {
			t.Errorf("the stored key opens as %d bytes, %v, want the key", len(plain), err)
		}
		if _, err := s.Box.Open(r.Key, keyPlace("other", r.Domain)); err == nil {
			t.Error("the stored key opens for another tenant")
		}
		if strings.Contains(string(r.Key), "PRIVATE") {
			t.Error("the key is stored in clear")
		}
		return nil
	})
	errtest.Must(t, err)
}

// pair returns a self-signed certificate with its key.
func pair(t testing.TB, name string, end time.Time) (certificate, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.Must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	errtest.Must(t, err)
	return selfSigned(t, name, end, &k.PublicKey, k), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// weakPair returns a certificate with an RSA key of 1024 bits.
func weakPair(t testing.TB, name string) (certificate, key string) {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0")
	k, err := rsa.GenerateKey(rand.Reader, 1024)
	errtest.Must(t, err)
	return selfSigned(t, name, noon.Add(time.Hour), &k.PublicKey, k), string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}))
}

// huge returns an RSA key of 40,000 bits. Its factors are not prime, but a check would take minutes.
func huge() *rsa.PrivateKey {
	p := new(big.Int).Lsh(big.NewInt(3), 20_000)
	p.SetBit(p, 0, 1)
	q := new(big.Int).Add(p, big.NewInt(2))
	return &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: new(big.Int).Mul(p, q), E: 65537}, D: big.NewInt(3), Primes: []*big.Int{p, q},
	}
}

// hugeKey returns a huge key as PEM.
func hugeKey(t testing.TB, marshal func(*rsa.PrivateKey) []byte, kind string) string {
	t.Helper()
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: marshal(huge())}))
}

// pkcs1 encodes a key in PKCS #1. Unlike the standard library, it does not check the key first.
func pkcs1(k *rsa.PrivateKey) []byte {
	raw, _ := asn1.Marshal(struct {
		Version int
		N       *big.Int
		E       int
		D, P, Q *big.Int
	}{0, k.N, k.E, k.D, k.Primes[0], k.Primes[1]})
	return raw
}

// pkcs8 encodes a key in PKCS #8, without a check.
func pkcs8(k *rsa.PrivateKey) []byte {
	raw, _ := asn1.Marshal(struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}{0, pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, Parameters: asn1.NullRawValue}, pkcs1(k)})
	return raw
}

// hugeCertificate returns a certificate of a huge key, signed by another key.
func hugeCertificate(t testing.TB, name string) string {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.Must(t, err)
	return selfSigned(t, name, noon.Add(time.Hour), &huge().PublicKey, k)
}

// selfSigned returns a certificate that its own key or another one has signed.
func selfSigned(t testing.TB, name string, end time.Time, public, private any) string {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: noon.Add(-240 * time.Hour), NotAfter: end,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	errtest.Must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}

// TestTakeOver: another tenant can take over a domain that its tenant removed, with its own proof and
// in any spelling. It gets nothing of the first tenant's.
func TestTakeOver(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), noon
		s, dns := service(t, c, &now)
		s.ACME = true
		d, err := s.Add(ctx, own, dbtest.Second, Draft{Domain: "bücher.example", HSTSMaxAge: 60})
		errtest.Must(t, err)
		point(dns, d)
		errtest.Must(t, errtest.Of(s.Verify(ctx, own, dbtest.Second, "BÜCHER.example.")))
		mine := Order{Domain: d.Domain, Tenant: dbtest.Second}
		cert, key := pair(t, d.Domain, noon.Add(time.Hour))
		errtest.Must(t, s.SaveIssued(ctx, mine, cert, key))
		for _, spelling := range []string{"bücher.example", "xn--bcher-kva.example", "XN--BCHER-KVA.example.", "Bücher.Example"} {
			if _, err := s.Add(ctx, first, scope.DefaultTenant, Draft{Domain: spelling}); !fault.Is(err, fault.Conflict) {
				t.Errorf("Add of %q while it is another tenant's: got %v, want a conflict", spelling, err)
			}
		}
		errtest.Must(t, errtest.Of(s.Remove(ctx, own, dbtest.Second, "Bücher.example")))
		theirs, err := s.Add(ctx, first, scope.DefaultTenant, Draft{Domain: "XN--BCHER-KVA.example."})
		errtest.Must(t, err)
		dns.CNAME(theirs.Domain, theirs.Instructions.Records[0].Value) // the TXT record still has the first tenant's token
		if _, err := s.Verify(ctx, first, scope.DefaultTenant, theirs.Domain); !fault.Is(err, fault.Invalid) {
			t.Errorf("Verify with the first tenant's proof: got %v, want invalid", err)
		}
		point(dns, theirs)
		if v, err := s.Verify(ctx, first, scope.DefaultTenant, theirs.Domain); err != nil || v.Certificate.Status != Pending || v.HSTSMaxAge != 0 {
			t.Errorf("Verify = %+v, %v, want no certificate and no HSTS", v, err)
		}
		if err := s.SaveIssued(ctx, mine, cert, key); !fault.Is(err, fault.NotFound) {
			t.Errorf("SaveIssued of the first tenant's order: got %v, want not found", err)
		}
		routes, err := LoadRoutes(ctx, c, s.Now, slog.New(slog.DiscardHandler))
		errtest.Must(t, err)
		if rt, _ := routes.Find("xn--bcher-kva.example"); rt.Tenant != scope.DefaultTenant || rt.Fingerprint() != "" || rt.HSTS != 0 {
			t.Errorf("route = %+v, want one of the default tenant without a certificate", rt)
		}
		// The first tenant claims the domain again, and gets nothing back.
		if _, err := s.Add(ctx, own, dbtest.Second, Draft{Domain: "bücher.example"}); !fault.Is(err, fault.Conflict) {
			t.Errorf("Add by the first tenant: got %v, want a conflict", err)
		}
	})
}

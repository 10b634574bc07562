package domain

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// TestOrders: when certificates are ordered, how the outcome is stored, and when a tenant may not
// order more.
func TestOrders(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), noon
		s, dns := service(t, c, &now)
		s.ACME = true
		routes, err := LoadRoutes(ctx, c, s.Now, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		due := func(step string, want ...string) []Order {
			t.Helper()
			list, err := s.DueOrders(ctx, 10)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for _, o := range list {
				got = append(got, o.Domain)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("%s: due are %v, want %v", step, got, want)
			}
			return list
		}
		route := func() Route {
			t.Helper()
			if err := routes.Reload(ctx); err != nil {
				t.Fatal(err)
			}
			rt, _ := routes.Find("a.acme.test")
			return rt
		}
		certificate := func(step, want string) Certificate {
			t.Helper()
			d, err := s.Get(ctx, own, dbtest.Second, "a.acme.test")
			if got := d.Certificate.Source + " " + d.Certificate.Status; err != nil || got != want {
				t.Errorf("%s: the certificate is %s, want %s (%v)", step, got, want, err)
			}
			return d.Certificate
		}
		add := func(name string, draft Draft) {
			t.Helper()
			draft.Domain = name
			d, err := s.Add(ctx, own, dbtest.Second, draft)
			if err != nil {
				t.Fatal(err)
			}
			point(dns, d)
		}
		no := false
		add("a.acme.test", Draft{})
		add("b.acme.test", Draft{})
		add("off.acme.test", Draft{ACME: &no})
		cert, key := pair(t, "own.acme.test", noon.Add(400*24*time.Hour))
		add("own.acme.test", Draft{Certificate: cert, PrivateKey: key})
		due("nothing is verified")
		certificate("before the verification", "acme pending")
		for _, name := range []string{"a.acme.test", "off.acme.test", "own.acme.test"} {
			if _, err := s.Verify(ctx, own, dbtest.Second, name); err != nil {
				t.Fatal(err)
			}
		}
		certificate("verified", "acme pending")
		one := due("one is verified and wants a certificate", "a.acme.test")[0]
		if _, err := s.BeginOrder(ctx, one, 2); err != nil {
			t.Fatal(err)
		}
		if err := s.PutChallenge(ctx, one, "token.thumbprint"); err != nil || route().Challenge != "token.thumbprint" {
			t.Errorf("the challenge is %q, %v", route().Challenge, err)
		}
		if err := s.SaveFailure(ctx, one, "no\x00such\nhost "+strings.Repeat("x", 1000), 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		failed := certificate("it failed", "acme failing")
		if failed.Error == nil || !strings.HasPrefix(*failed.Error, "no such host x") || len(*failed.Error) > maxCause+4 || failed.NextAt == nil || !failed.NextAt.Equal(noon.Add(2*time.Hour)) || route().Challenge != "" {
			t.Errorf("the failure is %+v", failed)
		}
		due("it failed")
		now = noon.Add(2 * time.Hour)
		one = due("the pause is over", "a.acme.test")[0]
		if one.Attempts != 1 {
			t.Errorf("%d attempts", one.Attempts)
		}
		if _, err := s.BeginOrder(ctx, one, 2); err != nil {
			t.Fatal(err)
		}
		one.Method = "http-01"
		cert, key = pair(t, "a.acme.test", now.Add(90*24*time.Hour))
		if err := s.SaveIssued(ctx, Order{Domain: "a.acme.test", Tenant: scope.DefaultTenant}, cert, key); !fault.Is(err, fault.NotFound) {
			t.Errorf("issued for another tenant: %v", err)
		}
		other, otherKey := pair(t, "b.acme.test", now.Add(90*24*time.Hour))
		if err := s.SaveIssued(ctx, one, other, otherKey); err == nil {
			t.Error("a certificate for another name was taken")
		}
		if route().Fingerprint() != "" {
			t.Error("a certificate is shown that was not taken")
		}
		if err := s.SaveIssued(ctx, one, cert, key); err != nil {
			t.Fatal(err)
		}
		issued := certificate("issued", "acme active")
		if issued.Error != nil || issued.NextAt == nil || issued.NextAt.After(issued.NotAfter.Add(-30*24*time.Hour)) {
			t.Errorf("issued: %+v", issued)
		}
		rt := route()
		got, print, err := s.KeyPair(ctx, rt)
		if err != nil || print != rt.Fingerprint() || print == "" || got.Leaf.VerifyHostname("a.acme.test") != nil {
			t.Errorf("the pair is %q, %v; the route has %q", print, err, rt.Fingerprint())
		}
		if _, _, err := s.KeyPair(ctx, Route{Domain: "a.acme.test", Tenant: scope.DefaultTenant}); err == nil {
			t.Error("another tenant opens the key")
		}
		due("issued")
		now = *issued.NextAt
		one = due("its renewal", "a.acme.test")[0]
		if one.Method != "http-01" || one.Attempts != 0 {
			t.Errorf("the renewal is %+v", one)
		}
		if err := s.SaveFailure(ctx, one, "down", 0); err != nil {
			t.Fatal(err)
		}
		if c := certificate("the renewal fails", "acme active"); c.Error == nil || route().Fingerprint() != print {
			t.Errorf("the certificate in use is %+v", c)
		}
		now = *issued.NotAfter
		certificate("it has ended", "acme failing")

		// A suspended tenant orders and shows no certificates, but keeps them.
		status := func(status string) {
			t.Helper()
			if _, err := s.Tenants.Update(ctx, scope.Scope{Tenant: scope.DefaultTenant, Platform: true}, dbtest.Second, tenant.Change{Status: patch.Set(status)}); err != nil {
				t.Fatal(err)
			}
		}
		status(tenant.Suspended)
		due("suspended")
		if route().Fingerprint() != "" {
			t.Error("a suspended tenant's certificate is shown")
		}
		status(tenant.Active)
		due("active again", "a.acme.test")
		if route().Fingerprint() != print {
			t.Error("an active tenant's certificate is not shown")
		}

		// An uploaded certificate takes precedence over an ordered one.
		cert, key = pair(t, "a.acme.test", now.Add(400*24*time.Hour))
		if _, err := s.Update(ctx, own, dbtest.Second, "a.acme.test", Change{Certificate: patch.Set(cert), PrivateKey: patch.Set(key)}); err != nil {
			t.Fatal(err)
		}
		certificate("its own", "uploaded active")
		due("its own")
		if rt := route(); rt.Issued != "" || rt.Fingerprint() == print || rt.Fingerprint() == "" {
			t.Errorf("the route is %+v", rt)
		}
		if err := s.SaveIssued(ctx, one, cert, key); !fault.Is(err, fault.NotFound) {
			t.Errorf("an order that nobody wants any more: %v", err)
		}
		if _, err := s.Update(ctx, own, dbtest.Second, "a.acme.test", Change{Certificate: patch.Clear[string](), PrivateKey: patch.Clear[string]()}); err != nil {
			t.Fatal(err)
		}
		due("without its own", "a.acme.test")
		if _, err := s.Remove(ctx, own, dbtest.Second, "a.acme.test"); err != nil {
			t.Fatal(err)
		}
		due("removed")
		var left int64
		if err := c.System().Read(ctx, func(tx *db.Tx) (err error) {
			left, err = db.One[int64](ctx, tx, `SELECT count(*) FROM acme_certificates`)
			return err
		}); err != nil || left != 0 {
			t.Errorf("%d certificates are left, %v", left, err)
		}
	})
}

// TestOrdersAreBounded: a tenant's orders count for a day, even if its domains are removed. Those of
// other tenants do not count.
func TestOrdersAreBounded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), noon
		s, dns := service(t, c, &now)
		verified := func(sc scope.Scope, name string) Order {
			t.Helper()
			d, err := s.Add(ctx, sc, sc.Tenant, Draft{Domain: name})
			if err != nil {
				t.Fatal(err)
			}
			point(dns, d)
			if _, err := s.Verify(ctx, sc, sc.Tenant, name); err != nil {
				t.Fatal(err)
			}
			return Order{Domain: name, Tenant: sc.Tenant}
		}
		one, other := verified(own, "a.acme.test"), verified(first, "a.other.test")
		for range 3 {
			if _, err := s.BeginOrder(ctx, one, 3); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Hour)
			if _, err := s.Remove(ctx, own, dbtest.Second, one.Domain); err != nil {
				t.Fatal(err)
			}
			one = verified(own, "a.acme.test")
		}
		var f *fault.Error
		_, err := s.BeginOrder(ctx, one, 3)
		if f, _ = err.(*fault.Error); f == nil || f.Kind != fault.RateLimited || f.RetryAfter != 21*time.Hour {
			t.Errorf("the fourth: %v", err)
		}
		if _, err := s.BeginOrder(ctx, other, 3); err != nil {
			t.Errorf("another tenant's: %v", err)
		}
		for range 9 { // no ACME server accepts them
			at, err := s.BeginOrder(ctx, other, 3)
			if err != nil {
				t.Fatalf("after orders that were not taken: %v", err)
			}
			if err := s.ReturnOrder(ctx, other, at); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(21 * time.Hour)
		if _, err := s.BeginOrder(ctx, one, 3); err != nil {
			t.Errorf("a day later: %v", err)
		}
		if err := s.Forget(ctx, dbtest.Second); err != nil {
			t.Fatal(err)
		}
		if _, err := s.BeginOrder(ctx, one, 3); !fault.Is(err, fault.NotFound) {
			t.Errorf("of a purged tenant: %v", err)
		}
	})
}

// TestAccount: all replicas use the same key, which is stored sealed.
func TestAccount(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), noon
		s, _ := service(t, c, &now)
		made := 0
		fresh := func() (string, error) { made++; return "the secret key", nil }
		for range 2 {
			if key, err := s.Account(ctx, "https://ca.test/dir", fresh); err != nil || key != "the secret key" {
				t.Errorf("the key is %q, %v", key, err)
			}
		}
		if made != 1 {
			t.Errorf("%d keys were made", made)
		}
		if err := c.System().Read(ctx, func(tx *db.Tx) error {
			sealed, err := selectAccount(ctx, tx, "https://ca.test/dir")
			if len(sealed) == 0 || strings.Contains(string(sealed), "secret") {
				t.Errorf("at rest: %q", sealed)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestWhenToOrder: certificates are renewed when a third of their life is left, but not all at once.
// Pauses grow, and stay within the limits of ACME servers.
func TestWhenToOrder(t *testing.T) {
	names := []string{"a.test", "b.test", "c.test", "d.test", "e.test"}
	for _, life := range []time.Duration{90 * 24 * time.Hour, 6 * 24 * time.Hour, time.Minute} {
		seen := map[time.Time]bool{}
		for _, name := range names {
			at := renewAt(name, noon, noon.Add(life))
			left := noon.Add(life).Sub(at)
			if left < life/3-time.Microsecond || left > life/3+life/30+time.Microsecond {
				t.Errorf("%s of %s is renewed %s before its end", name, life, left)
			}
			seen[at] = true
		}
		if len(seen) != len(names) {
			t.Errorf("of %d certificates of %s, %d are renewed at different times", len(names), life, len(seen))
		}
	}
	for _, name := range names {
		hour, before := 0, time.Duration(0)
		for n, at := int64(0), time.Duration(0); n < 20; n++ {
			if at < time.Hour {
				hour++
			}
			p := retryPause(name, n)
			if p < before*5/6 || p > 15*time.Hour {
				t.Errorf("%s: pause %d is %s, after %s", name, n, p, before)
			}
			at, before = at+p, p
		}
		if hour > 4 {
			t.Errorf("%s is tried %d times in the first hour", name, hour)
		}
	}
}

// TestPauseBeforeEnd: however often orders have failed, several more are tried before the certificate
// in use expires.
func TestPauseBeforeEnd(t *testing.T) {
	for _, left := range []time.Duration{time.Hour, 8 * time.Hour, 30 * 24 * time.Hour} {
		ends := noon.Add(left)
		for n := range int64(20) {
			for at := noon; ends.Sub(at) > 10*time.Minute; {
				p := limitPause(retryPause("a.acme.test", n), &ends, at)
				if p > max(ends.Sub(at)/6, pauses[0]) || p < pauses[0] {
					t.Fatalf("%s before the end the pause is %s", ends.Sub(at), p)
				}
				at = at.Add(p)
			}
		}
		if long := retryPause("a.acme.test", 9); limitPause(long, nil, noon) != long || limitPause(long, &ends, ends) != long {
			t.Error("a pause is shortened without a certificate to save")
		}
	}
}

// TestRoutesRefresh: however often it is called, it reads the store a few times a second at most.
func TestRoutesRefresh(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), noon
		s, _ := service(t, c, &now)
		routes, err := LoadRoutes(ctx, c, s.Now, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		known := func() bool {
			routes.Refresh(ctx)
			_, ok := routes.Find("a.acme.test")
			return ok
		}
		if known() {
			t.Error("a domain that is not there is known")
		}
		if err := s.claimRoute(ctx, Route{Domain: "a.acme.test", Tenant: dbtest.Second}); err != nil {
			t.Fatal(err)
		}
		if known() {
			t.Error("it was read twice in a moment")
		}
		if now = now.Add(refreshPause); !known() {
			t.Error("it is not read again")
		}
	})
}

package domain

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// TestOrders: certificates are ordered and renewed when they are due, their outcome is stored, and an
// uploaded certificate takes precedence.
func TestOrders(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), noon
		s, dns := service(t, c, &now)
		s.ACME = true
		routes, err := LoadRoutes(ctx, c, s.Now, slog.New(slog.DiscardHandler))
		errtest.Must(t, err)
		due := func(step string, want ...string) []Order {
			t.Helper()
			list, err := s.DueOrders(ctx, 10)
			errtest.Must(t, err)
			got := []string{}
			for _, o := range list {
				got = append(got, o.Domain)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("%s: DueOrders = %v, want %v", step, got, want)
			}
			return list
		}
		route := func() Route {
			t.Helper()
			errtest.Must(t, routes.Reload(ctx))
			rt, _ := routes.Find("a.acme.test")
			return rt
		}
		certificate := func(step, want string) Certificate {
			t.Helper()
			d, err := s.Get(ctx, own, dbtest.Second, "a.acme.test")
			if got := d.Certificate.Source + " " + d.Certificate.Status; err != nil || got != want {
				t.Errorf("%s: certificate = %s, %v, want %s", step, got, err, want)
			}
			return d.Certificate
		}
		add := func(name string, draft Draft) {
			t.Helper()
			draft.Domain = name
			d, err := s.Add(ctx, own, dbtest.Second, draft)
			errtest.Must(t, err)
			point(dns, d)
		}
		no := false
		add("a.acme.test", Draft{})
		add("b.acme.test", Draft{})
		add("off.acme.test", Draft{ACME: &no})
		cert, key := pair(t, "own.acme.test", noon.Add(400*24*time.Hour))
		add("own.acme.test", Draft{Certificate: cert, PrivateKey: key})
		due("before the verification")
		certificate("before the verification", "acme pending")
		for _, name := range []string{"a.acme.test", "off.acme.test", "own.acme.test"} {
			errtest.Must(t, errtest.Of(s.Verify(ctx, own, dbtest.Second, name)))
		}
		certificate("verified", "acme pending")
		one := due("one is verified and wants a certificate", "a.acme.test")[0]
		errtest.Must(t, errtest.Of(s.BeginOrder(ctx, one, 2)))
		if err := s.PutChallenge(ctx, one, "token.thumbprint"); err != nil || route().Challenge != "token.thumbprint" {
			t.Errorf("challenge = %q, %v, want token.thumbprint", route().Challenge, err)
		}
		errtest.Must(t, s.SaveFailure(ctx, one, "no\x00such\nhost "+strings.Repeat("x", 1000), 2*time.Hour))
		failed := certificate("after a failure", "acme failing")
		if failed.Error == nil || !strings.HasPrefix(*failed.Error, "no such host x") || len(*failed.Error) > maxCause+4 || failed.NextAt == nil || !failed.NextAt.Equal(noon.Add(2*time.Hour)) || route().Challenge != "" {
			t.Errorf("certificate after a failure = %+v", failed)
		}
		due("after a failure")
		now = noon.Add(2 * time.Hour)
		one = due("after the pause", "a.acme.test")[0]
		if one.Attempts != 1 {
			t.Errorf("attempts = %d, want 1", one.Attempts)
		}
		errtest.Must(t, errtest.Of(s.BeginOrder(ctx, one, 2)))
		one.Method = "http-01"
		cert, key = pair(t, "a.acme.test", now.Add(90*24*time.Hour))
		if err := s.SaveIssued(ctx, Order{Domain: "a.acme.test", Tenant: scope.DefaultTenant}, cert, key); !fault.Is(err, fault.NotFound) {
			t.Errorf("SaveIssued for another tenant: got %v, want not found", err)
		}
		other, otherKey := pair(t, "b.acme.test", now.Add(90*24*time.Hour))
		if err := s.SaveIssued(ctx, one, other, otherKey); err == nil {
			t.Error("SaveIssued of a certificate for another name succeeds, want an error")
		}
		if route().Fingerprint() != "" {
			t.Errorf("route = %+v, want no certificate", route())
		}
		errtest.Must(t, s.SaveIssued(ctx, one, cert, key))
		issued := certificate("issued", "acme active")
		if issued.Error != nil || issued.NextAt == nil || issued.NextAt.After(issued.NotAfter.Add(-30*24*time.Hour)) {
			t.Errorf("certificate after SaveIssued = %+v", issued)
		}
		rt := route()
		got, print, err := s.KeyPair(ctx, rt)
		if err != nil || print != rt.Fingerprint() || print == "" || got.Leaf.VerifyHostname("a.acme.test") != nil {
			t.Errorf("KeyPair = %q, %v, want %q", print, err, rt.Fingerprint())
		}
		for _, keys := range [][][secret.KeyBytes]byte{{{2}, {1}}, {{2}}} {
			if s.Box, err = secret.New(keys...); err != nil {
				t.Fatal(err)
			}
			if _, again, err := s.KeyPair(ctx, rt); err != nil || again != print {
				t.Errorf("KeyPair under %d keys = %q, %v, want %q", len(keys), again, err, print)
			}
			sealAgain(t, s)
		}
		if _, _, err := s.KeyPair(ctx, Route{Domain: "a.acme.test", Tenant: scope.DefaultTenant}); err == nil {
			t.Error("KeyPair for another tenant succeeds, want an error")
		}
		due("issued")
		now = *issued.NextAt
		one = due("at the renewal", "a.acme.test")[0]
		if one.Method != "http-01" || one.Attempts != 0 {
			t.Errorf("order of the renewal = %+v", one)
		}
		errtest.Must(t, s.SaveFailure(ctx, one, "down", 0))
		if c := certificate("after a failed renewal", "acme active"); c.Error == nil || route().Fingerprint() != print {
			t.Errorf("certificate after a failed renewal = %+v, want it in use with the error", c)
		}
		now = *issued.NotAfter
		certificate("after its end", "acme failing")

		// A suspended tenant orders and shows no certificates, but keeps them.
		status := func(status string) {
			t.Helper()
			errtest.Must(t, errtest.Of(s.Tenants.Update(ctx, scope.Scope{Tenant: scope.DefaultTenant, Platform: true}, dbtest.Second, tenant.Change{Status: patch.Set(status)})))
		}
		status(tenant.Suspended)
		due("suspended")
		if route().Fingerprint() != "" {
			t.Error("the route of a suspended tenant has a certificate")
		}
		status(tenant.Active)
		due("active again", "a.acme.test")
		if route().Fingerprint() != print {
			t.Error("the route of an active tenant has no certificate")
		}

		// An uploaded certificate takes precedence over an ordered one.
		cert, key = pair(t, "a.acme.test", now.Add(400*24*time.Hour))
		errtest.Must(t, errtest.Of(s.Update(ctx, own, dbtest.Second, "a.acme.test", Change{Certificate: patch.Set(cert), PrivateKey: patch.Set(key)})))
		certificate("with an uploaded one", "uploaded active")
		due("with an uploaded one")
		if rt := route(); rt.Issued != "" || rt.Fingerprint() == print || rt.Fingerprint() == "" {
			t.Errorf("route = %+v, want the uploaded certificate", rt)
		}
		if err := s.SaveIssued(ctx, one, cert, key); !fault.Is(err, fault.NotFound) {
			t.Errorf("SaveIssued after an upload: got %v, want not found", err)
		}
		errtest.Must(t, errtest.Of(s.Update(ctx, own, dbtest.Second, "a.acme.test", Change{Certificate: patch.Clear[string](), PrivateKey: patch.Clear[string]()})))
		due("without the uploaded one", "a.acme.test")
		errtest.Must(t, errtest.Of(s.Remove(ctx, own, dbtest.Second, "a.acme.test")))
		due("removed")
		var stored int64
		if err := c.System().Read(ctx, func(tx *db.Tx) (err error) {
			stored, err = db.One[int64](ctx, tx, `SELECT count(*) FROM acme_certificates`)
			return err
		}); err != nil || stored != 0 {
			t.Errorf("%d certificates are stored after the removal, %v, want none", stored, err)
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
			errtest.Must(t, err)
			point(dns, d)
			errtest.Must(t, errtest.Of(s.Verify(ctx, sc, sc.Tenant, name)))
			return Order{Domain: name, Tenant: sc.Tenant}
		}
		one, other := verified(own, "a.acme.test"), verified(first, "a.other.test")
		for range 3 {
			errtest.Must(t, errtest.Of(s.BeginOrder(ctx, one, 3)))
			now = now.Add(time.Hour)
			errtest.Must(t, errtest.Of(s.Remove(ctx, own, dbtest.Second, one.Domain)))
			one = verified(own, "a.acme.test")
		}
		var f *fault.Error
		_, err := s.BeginOrder(ctx, one, 3)
		if f, _ = err.(*fault.Error); f == nil || f.Kind != fault.RateLimited || f.RetryAfter != 21*time.Hour {
			t.Errorf("BeginOrder of the fourth: got %v, want rate limited for 21 hours", err)
		}
		if _, err := s.BeginOrder(ctx, other, 3); err != nil {
			t.Errorf("BeginOrder of another tenant: %v", err)
		}
		for range 9 { // as if no ACME server accepted them
			at, err := s.BeginOrder(ctx, other, 3)
			if err != nil {
				t.Fatalf("BeginOrder after returned orders: %v", err)
			}
			errtest.Must(t, s.ReturnOrder(ctx, other, at))
		}
		now = now.Add(21 * time.Hour)
		if _, err := s.BeginOrder(ctx, one, 3); err != nil {
			t.Errorf("BeginOrder a day later: %v", err)
		}
		errtest.Must(t, s.Forget(ctx, dbtest.Second))
		if _, err := s.BeginOrder(ctx, one, 3); !fault.Is(err, fault.NotFound) {
			t.Errorf("BeginOrder of a purged tenant: got %v, want not found", err)
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
				t.Errorf("Account = %q, %v, want the key", key, err)
			}
		}
		if made != 1 {
			t.Errorf("%d keys were created, want 1", made)
		}
		if err := c.System().Read(ctx, func(tx *db.Tx) error {
			sealed, err := selectAccount(ctx, tx, "https://ca.test/dir")
			if len(sealed) == 0 || strings.Contains(string(sealed), "secret") {
				t.Errorf("stored key = %q, want it sealed", sealed)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// sealAgain seals the service's secrets under its first key.
func sealAgain(t *testing.T, s *Service) {
	t.Helper()
	sealer := reseal.Sealer{Stores: s.Stores, Columns: s.Secrets(), Logger: slog.New(slog.DiscardHandler)}
	errtest.Must(t, sealer.Run(context.Background()))
	if n, known := sealer.Counts(); !known || n != (reseal.Counts{}) {
		t.Errorf("after sealing again: %+v, %v, want nothing left", n, known)
	}
}

// TestAccountUnderAnotherKey: the account's key moves to a new encryption key, so that the old one can
// be dropped. A key that does not open stays as it is, and the error says what to do.
func TestAccountUnderAnotherKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), noon
		s, _ := service(t, c, &now)
		under := func(keys ...byte) (string, error) {
			t.Helper()
			all := make([][secret.KeyBytes]byte, len(keys))
			for i, k := range keys {
				all[i][0] = k
			}
			box, err := secret.New(all...)
			errtest.Must(t, err)
			s.Box = box
			return s.Account(ctx, "https://ca.test/dir", func() (string, error) { return fmt.Sprint("the key of ", keys[0]), nil })
		}
		for _, keys := range [][]byte{{1}, {2, 1}, {2}} {
			if key, err := under(keys...); err != nil || key != "the key of 1" {
				t.Errorf("Account under %v = %q, %v, want the key of 1", keys, key, err)
			}
			sealAgain(t, s)
		}
		if key, err := under(3); err == nil || !strings.Contains(err.Error(), "cannot be decrypted") || key != "" {
			t.Errorf("Account under another key = %q, %v, want an error that says so", key, err)
		}
		if key, err := under(2); err != nil || key != "the key of 1" {
			t.Errorf("Account under the former key again = %q, %v, want the key of 1", key, err)
		}
		errtest.Must(t, c.System().Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM acme_accounts`)
			return err
		}))
		if key, err := under(3); err != nil || key != "the key of 3" {
			t.Errorf("Account after it was removed = %q, %v, want a new one", key, err)
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
				t.Errorf("%s with a life of %s is renewed %s before its end, want about a third", name, life, left)
			}
			seen[at] = true
		}
		if len(seen) != len(names) {
			t.Errorf("%d certificates with a life of %s are renewed at %d times, want as many", len(names), life, len(seen))
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
				t.Errorf("%s: pause %d = %s, after %s", name, n, p, before)
			}
			at, before = at+p, p
		}
		if hour > 4 {
			t.Errorf("%s is tried %d times in the first hour, want at most 4", name, hour)
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
					t.Fatalf("pause %s before the end = %s", ends.Sub(at), p)
				}
				at = at.Add(p)
			}
		}
		if long := retryPause("a.acme.test", 9); limitPause(long, nil, noon) != long || limitPause(long, &ends, ends) != long {
			t.Error("beforeEnd shortens a pause without a certificate in use")
		}
	}
}

// TestRoutesRefresh: however often Refresh is called, it reads the store at most a few times a second.
func TestRoutesRefresh(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), noon
		s, _ := service(t, c, &now)
		routes, err := LoadRoutes(ctx, c, s.Now, slog.New(slog.DiscardHandler))
		errtest.Must(t, err)
		known := func() bool {
			routes.Refresh(ctx)
			_, ok := routes.Find("a.acme.test")
			return ok
		}
		if known() {
			t.Error("an unknown domain has a route")
		}
		errtest.Must(t, s.claimRoute(ctx, Route{Domain: "a.acme.test", Tenant: dbtest.Second}))
		if known() {
			t.Error("Refresh reads the store twice within the pause")
		}
		if now = now.Add(refreshPause); !known() {
			t.Error("Refresh does not read the store after the pause")
		}
	})
}

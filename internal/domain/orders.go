package domain

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// OrderWindow is the time in which a tenant may have a limited number of orders.
const OrderWindow = 24 * time.Hour

// clockSkew is how far the clock of an ACME server may be ahead of ours.
const clockSkew = 5 * time.Minute

// Order is a certificate to order by ACME.
type Order struct {
	Domain string         `db:"domain"`
	Tenant scope.TenantID `db:"tenant"`
	// Method is the type of the challenge of the last certificate; empty: there was none.
	Method string `db:"method"`
	// Attempts is how many orders have failed since the last certificate.
	Attempts int64 `db:"attempts"`
}

// errUnwanted is the fault of an order for a domain that was removed, or that needs no order any
// more.
var errUnwanted = fault.NotFoundf("no certificate is due for the domain")

// DueOrders lists the domains of active tenants whose certificate must be ordered or renewed now:
// at most limit, those that wait longest first.
func (s *Service) DueOrders(ctx context.Context, limit int) ([]Order, error) {
	return db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) ([]Order, error) { return selectDue(ctx, tx, tenant.Active, s.Now(), limit) })
}

// BeginOrder counts an order of a tenant, and returns the time at which it was counted. Faults:
// RateLimited, with the time to wait, if the tenant has had limit orders within OrderWindow;
// NotFound if the order is not needed any more.
func (s *Service) BeginOrder(ctx context.Context, o Order, limit int64) (time.Time, error) {
	now := db.Stamp(s.Now())
	return now, s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		if err := checkDue(ctx, tx, o); err != nil {
			return err
		}
		n, err := countOrders(ctx, tx, o.Tenant, now.Add(-OrderWindow))
		if err != nil {
			return err
		}
		if n >= limit {
			first, err := firstOrder(ctx, tx, o.Tenant)
			if err != nil {
				return err
			}
			return fault.Newf(fault.RateLimited, "rate_limit_exceeded", "the tenant has used its %d orders for today", limit).After(first.Add(OrderWindow).Sub(now))
		}
		return insertOrder(ctx, tx, o.Tenant, now)
	})
}

// ReturnOrder removes the count of an order that no ACME server accepted. at is the time that
// BeginOrder returned. An outage of the server must not use up the tenant's orders.
func (s *Service) ReturnOrder(ctx context.Context, o Order, at time.Time) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error { return deleteOrder(ctx, tx, o.Tenant, at) })
}

// checkDue refuses an order if its domain was removed, belongs to another tenant, has an uploaded
// certificate, or does not use ACME any more.
func checkDue(ctx context.Context, tx *db.Tx, o Order) error {
	rt, err := selectRoute(ctx, tx, o.Domain)
	if err == nil && (rt.Tenant != o.Tenant || rt.Pair != "" || !rt.ACME) {
		err = errUnwanted
	}
	return err
}

// change changes the row of an order in the system store, and notifies all replicas.
func (s *Service) change(ctx context.Context, o Order, do func(c *issued)) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		if err := checkDue(ctx, tx, o); err != nil {
			return err
		}
		c, err := selectIssued(ctx, tx, o.Domain)
		if err != nil {
			return err
		}
		if c.Tenant != o.Tenant { // the row is new, or is that of an earlier owner
			c = issued{Domain: o.Domain, Tenant: o.Tenant, Key: []byte{}, NextAt: s.Now()}
		}
		do(&c)
		if err := putIssued(ctx, tx, c); err != nil {
			return err
		}
		_, err = tx.Bump(ctx, Revision)
		return err
	})
}

// PutChallenge stores the key authorization of an order's challenge (RFC 8555, section 8.1), so that
// every replica can answer it.
func (s *Service) PutChallenge(ctx context.Context, o Order, keyAuthorization string) error {
	return s.change(ctx, o, func(c *issued) { c.Challenge = keyAuthorization })
}

// SaveIssued stores an issued certificate with its key, both in PEM, and plans its renewal (see
// renewAt). It resolves the alert about the order.
func (s *Service) SaveIssued(ctx context.Context, o Order, certificate, key string) error {
	now := db.Stamp(s.Now())
	chain, err := parseChain(certificate)
	if err != nil {
		return err
	}
	at := now
	if begins := chain[0].NotBefore; begins.After(now) && begins.Sub(now) <= clockSkew {
		at = begins
	}
	pair, err := checkPair(o.Domain, certificate, key, at)
	if err != nil {
		return fmt.Errorf("the certificate that was issued: %w", err)
	}
	sealed, err := s.Box.Seal([]byte(pair.key), issuedPlace(o.Tenant, o.Domain))
	if err != nil {
		return fault.Wrap(err, "seal the key")
	}
	next := renewAt(o.Domain, chain[0].NotBefore, chain[0].NotAfter)
	return s.Stores.WriteUnder(ctx, o.Tenant, "domains", func(tx *db.Tx) error {
		if err := tenant.ResolveAlerts(ctx, tx, alertOrder, o.Domain, now); err != nil {
			return err
		}
		facts := map[string]any{"not_after": pair.notAfter.Format(time.RFC3339), "serial": chain[0].SerialNumber.Text(16), "issuer": chain[0].Issuer.String()}
		if err := s.recordOrder(ctx, tx, o, "DOMAIN_CERTIFICATE_ISSUED", facts); err != nil {
			return err
		}
		return s.change(ctx, o, func(c *issued) {
			c.Certificate, c.Key, c.NotAfter, c.Fingerprint = pair.certificate, sealed, pair.notAfter, fingerprint(pair.certificate)
			c.Method, c.Challenge, c.Attempts, c.Failure, c.NextAt = o.Method, "", 0, "", next
		})
	})
}

// SaveFailure stores why an order failed, and when to try again: after a longer pause each time, and
// after wait at the earliest. The tenant gets an alert and an audit entry. A certificate that is in
// use stays.
func (s *Service) SaveFailure(ctx context.Context, o Order, cause string, wait time.Duration) error {
	now := db.Stamp(s.Now())
	cause = plainText(cause)
	var ends *time.Time
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) error {
		c, err := selectIssued(ctx, tx, o.Domain)
		if c.Tenant == o.Tenant {
			ends = c.NotAfter
		}
		return err
	})
	if err != nil {
		return err
	}
	next := now.Add(max(wait, limitPause(retryPause(o.Domain, o.Attempts), ends, now)))
	return s.Stores.WriteUnder(ctx, o.Tenant, "domains", func(tx *db.Tx) error {
		a := tenant.Alert{Type: alertOrder, Severity: tenant.SeverityError, Message: fmt.Sprintf("no certificate could be ordered for %s: %s", o.Domain, cause)}
		if err := setAlert(ctx, tx, a, o.Domain, true, now); err != nil {
			return err
		}
		facts := map[string]any{"error": cause, "attempts": o.Attempts + 1, "next_order_at": next.Format(time.RFC3339)}
		if err := s.recordOrder(ctx, tx, o, "DOMAIN_CERTIFICATE_FAILED", facts); err != nil {
			return err
		}
		return s.change(ctx, o, func(c *issued) {
			c.Challenge, c.Attempts, c.Failure, c.NextAt = "", o.Attempts+1, cause, next
		})
	})
}

// recordOrder writes the audit entry of an order's outcome. The actor is the system.
func (s *Service) recordOrder(ctx context.Context, tx *db.Tx, o Order, kind string, facts map[string]any) error {
	sc := scope.Scope{Tenant: o.Tenant, Actor: scope.Actor{Kind: scope.System, ID: "certificates", Name: "certificates"}}
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{Type: kind, Object: "domain", ObjectID: o.Domain, ObjectName: o.Domain, EventContext: facts})
}

// errAccountKey is the reason of an order that fails because the account's key does not open. No other
// account takes its place by itself: the encryption key may be wrong by mistake, and DNS records (CAA
// with accounturi) or an agreement with the certificate authority may be bound to the account.
var errAccountKey = errors.New("its key cannot be decrypted with the deployment's encryption key: the operator must put the former encryption key back, or remove the stored account")

// Account returns the key of the deployment's account at an ACME directory, in PEM. If there is
// none, it stores the one that fresh returns. All replicas get the same key.
func (s *Service) Account(ctx context.Context, directory string, fresh func() (string, error)) (string, error) {
	place := accountPlace(directory)
	read := func(tx *db.Tx) (sealed []byte, err error) { return selectAccount(ctx, tx, directory) }
	sealed, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) ([]byte, error) { return read(tx) })
	if err != nil {
		return "", err
	}
	if sealed == nil {
		key, err := fresh()
		if err != nil {
			return "", err
		}
		mine, err := s.Box.Seal([]byte(key), place)
		if err != nil {
			return "", fault.Wrap(err, "seal the key of the account")
		}
		err = s.Stores.System().Write(ctx, func(tx *db.Tx) (err error) {
			if err = insertAccount(ctx, tx, directory, mine, s.Now()); err == nil {
				sealed, err = read(tx)
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	key, err := s.Box.Open(sealed, place)
	if err != nil {
		return "", errAccountKey
	}
	return string(key), nil
}

// renewAt returns when to renew a certificate: when a third of its life is left, or earlier by up to
// a tenth of that third, so that certificates of the same day are not all renewed at once.
func renewAt(name string, begins, ends time.Time) time.Time {
	third := ends.Sub(begins) / 3
	return db.Stamp(ends.Add(-third - spread(name, third/10)))
}

// pauses are the pauses after failed orders. They grow, because ACME servers limit the failures in
// an hour (Let's Encrypt refuses a name after five). The first one is short, because the next
// attempt uses another type of challenge.
var pauses = []time.Duration{time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour}

// retryPause returns how long to wait after a failure. attempts is the number of failures before it.
func retryPause(name string, attempts int64) time.Duration {
	p := pauses[min(max(attempts, 0), int64(len(pauses)-1))]
	return p + spread(name, p/5)
}

// limitPause shortens a pause to a sixth of the time that is left before the certificate in use
// expires: a pause of hours could outlast a certificate of a day. The pause is a minute at least.
func limitPause(pause time.Duration, ends *time.Time, now time.Time) time.Duration {
	if ends == nil || !now.Before(*ends) {
		return pause
	}
	return min(pause, max(ends.Sub(now)/6, pauses[0]))
}

// spread returns a part of d that depends only on the name, so that all replicas agree on it.
func spread(name string, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return time.Duration(h.Sum64() % uint64(d))
}

// maxCause is how many characters of the reason for a failed order are stored.
const maxCause = 300

// plainText returns a text of an ACME server on one line, without unprintable characters, and
// shortened to maxCause: the text may quote what the domain's own host answered.
func plainText(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if runes := []rune(text); len(runes) > maxCause {
		text = string(runes[:maxCause]) + " ..."
	}
	return text
}

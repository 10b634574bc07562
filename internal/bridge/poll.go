package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// MaxWait is the longest time that a poll waits.
const MaxWait = 5 * time.Minute

// The polls of an OPA that does not wait: the longest interval, which is also its default, and the
// shortest that counts, because it polls again at once after a failure.
const (
	maxPollInterval = 2 * time.Minute
	minPollInterval = 5 * time.Second
)

// Poll is a request for a bundle.
type Poll struct {
	// BouncerID is the bouncer whose bundle is requested. It must be the caller's own;
	// any other is not found.
	BouncerID int64
	// Token is the hash of the token that it sent. Bearer is the token itself, which
	// encrypts the secrets in a bundle.
	Token, Bearer string
	// Tags are the lines of If-None-Match.
	Tags []string
	// Wait is how long it may wait, from `Prefer: wait=`; at most MaxWait.
	Wait time.Duration
	// Remote names the connection.
	Remote string
	// Nonce, if set, requests a proof that the answer is fresh.
	Nonce string
}

// maxNonce is the longest nonce of a poll, in bytes.
const maxNonce = 128

// Answer is the answer to a poll. Without Parts it is "not modified".
type Answer struct {
	ETag string
	// Parts are the consecutive parts of the bundle.
	Parts [][]byte
	// Fresh is the signed proof that the poll asked for; empty if bundles are not signed.
	Fresh string

	deliver func()
}

// Size returns the size of the bundle in bytes.
func (a *Answer) Size() int {
	n := 0
	for _, p := range a.Parts {
		n += len(p)
	}
	return n
}

// Delivered must be called when the whole bundle has been written.
func (a *Answer) Delivered() {
	if a.deliver != nil {
		a.deliver()
	}
}

// Bundle answers a poll for a bouncer's bundle. It answers at once if the bouncer does not have the
// current bundle, and otherwise when there is a new one or the time is over. Faults: Forbidden or
// NotFound for any caller but the bouncer itself, Unauthenticated if its token is revoked while it
// waits.
func (s *Service) Bundle(ctx context.Context, sc scope.Scope, p Poll) (*Answer, error) {
	if id, err := callingBouncer(sc); err != nil || id != p.BouncerID {
		return nil, firstErr(err, noBouncer())
	}
	if len(p.Nonce) > maxNonce {
		return nil, fault.Invalidf("/nonce", "a nonce may have at most %d bytes", maxNonce)
	}
	f, d, err := s.bouncerState(ctx, sc, p.Token)
	if err != nil {
		return nil, err
	}
	a, err := s.await(ctx, f, d, p)
	if err != nil || p.Nonce == "" {
		return a, err
	}
	a.Fresh, err = s.signFreshness(ctx, f, d, p, a.ETag)
	return a, err
}

// signFreshness proves that an answer is current: a bundle by its tag, "not modified" by the
// current revision.
func (s *Service) signFreshness(ctx context.Context, f *environment, d *bouncerState, p Poll, tag string) (string, error) {
	t := d.currentTarget()
	if !t.signed {
		return "", nil
	}
	if tag == "" {
		tag = tagOf(t.revision)
	}
	key, err := s.signingKey(ctx, f.tenant)
	if err != nil {
		return "", err
	}
	return key.SignFresh(bundle.Freshness{Bouncer: p.BouncerID, Revision: tag, Nonce: p.Nonce})
}

// await answers a poll when there is something new, or when its time is over.
func (s *Service) await(ctx context.Context, f *environment, d *bouncerState, p Poll) (*Answer, error) {
	q := pollRequest{token: p.Token, remote: p.Remote, tags: parseTags(p.Tags)}
	note := activity{seen: s.cfg.Now()}
	if p.Wait > 0 {
		p.Wait = min(p.Wait, MaxWait)
		note.interval = max(p.Wait, time.Second)
	} else {
		note.interval = d.pollGap(note.seen)
	}
	var over <-chan time.Time
	for {
		v, more, changed := d.answer(&q, s.cfg.Now())
		note.merge(more)
		if !note.isEmpty() {
			s.activity.add(f.tenant, d, note)
			note = activity{}
		}
		switch v {
		case refusePoll:
			return nil, revoked()
		case raiseRevision:
			if err := s.raiseRevision(ctx, f, d, q.tags[0]); err != nil {
				return nil, err
			}
			continue
		case sendBundle:
			return s.bundle(ctx, f, d, &p)
		}
		if p.Wait <= 0 {
			return &Answer{}, nil
		}
		if over == nil {
			timer := time.NewTimer(p.Wait)
			defer timer.Stop()
			over = timer.C
			d.startWaiting()
			defer d.stopWaiting()
		}
		select {
		case <-changed:
		case <-over:
			return &Answer{}, nil
		case <-s.ctx.Done():
			return &Answer{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// pollGap returns the time between the polls of a client that does not wait: the longest of the
// last gaps, or 0 if it is unknown.
func (bs *bouncerState) pollGap(now time.Time) time.Duration {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	last := bs.polled
	bs.polled = now
	if last.IsZero() {
		return 0
	}
	bs.gaps[bs.gap%len(bs.gaps)] = now.Sub(last)
	bs.gap++
	return min(max(slices.Max(bs.gaps[:]), minPollInterval), maxPollInterval)
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// bundle writes the bouncer's own part before the shared one.
func (s *Service) bundle(ctx context.Context, f *environment, d *bouncerState, p *Poll) (*Answer, error) {
	t := d.currentTarget()
	var key *bundle.SigningKey
	if t.signed {
		var err error
		if key, err = s.signingKey(ctx, f.tenant); err != nil {
			return nil, err
		}
	}
	meta, err := t.metaFor(f.tenant, p.Bearer)
	if err != nil {
		return nil, fault.Wrap(err, "write a bundle")
	}
	parts, err := t.packed.Bundle(strconv.FormatInt(t.revision, 10), meta, nil, key)
	if err != nil {
		return nil, fault.Wrap(err, "write a bundle")
	}
	return &Answer{ETag: tagOf(t.revision), Parts: parts, deliver: func() {
		d.delivered(t.revision, p.Remote)
		s.activity.add(f.tenant, d, activity{sent: t})
	}}, nil
}

// raiseRevision gives a bouncer's bundle a higher revision than the one that the bouncer has. The
// store was restored from a backup, and the bouncer accepts no older revision.
func (s *Service) raiseRevision(ctx context.Context, f *environment, d *bouncerState, seen int64) error {
	store, err := s.cfg.Stores.Tenant(ctx, f.tenant)
	if err != nil {
		return err
	}
	if err := store.Write(ctx, func(tx *db.Tx) error { return bouncer.RaiseRevision(ctx, tx, d.id, seen) }); err != nil {
		return err
	}
	s.cfg.Log.Warn("a bouncer has a revision that this store never issued", "tenant", f.tenant, "bouncer", d.id, "revision", seen)
	f.announced.Add(1)
	return f.refresh(ctx)
}

// Discovery returns the discovery bundle of a stock OPA: where its bundle is, and where logs and
// status go. It changes only with the bouncer's registration.
func (s *Service) Discovery(ctx context.Context, sc scope.Scope, p Poll) (*Answer, error) {
	if id, err := callingBouncer(sc); err != nil || id != p.BouncerID {
		return nil, firstErr(err, noBouncer())
	}
	f, d, err := s.bouncerState(ctx, sc, p.Token)
	if err != nil {
		return nil, err
	}
	s.activity.add(f.tenant, d, activity{seen: s.cfg.Now()})
	t := d.currentTarget()
	var key *bundle.SigningKey
	if t.signed {
		if key, err = s.signingKey(ctx, f.tenant); err != nil {
			return nil, err
		}
	}
	packed, err := bundle.PackDocument(s.discoveryConfig(d.id, f.env, key))
	if err != nil {
		return nil, fault.Wrap(err, "write a discovery bundle")
	}
	sum := packed.Sum()
	if key != nil {
		sum = sha256.Sum256(append(sum[:], key.ID...))
	}
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	if tagged(p.Tags, tag) {
		return &Answer{ETag: tag}, nil
	}
	parts, err := packed.Bundle(tag[1:len(tag)-1], value.Value{}, []string{""}, key)
	if err != nil {
		return nil, fault.Wrap(err, "write a discovery bundle")
	}
	return &Answer{ETag: tag, Parts: parts}, nil
}

// tagged reports whether the lines of If-None-Match include a tag (RFC 9110, section 13.1.2: a
// list, by weak comparison, or any).
func tagged(lines []string, tag string) bool {
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
				return true
			}
		}
	}
	return false
}

// discoveryConfig returns the configuration for a stock OPA. Its long poll ends before proxies time
// out, and it polls again soon after a failure.
func (s *Service) discoveryConfig(id int64, env scope.Env, key *bundle.SigningKey) value.Value {
	m := func(k string, v value.Value) value.Member { return value.Member{Key: k, Value: v} }
	service := m("service", value.String("gatehouse"))
	source := []value.Member{
		service,
		m("resource", value.String("/bundles/"+strconv.FormatInt(id, 10))),
		m("polling", value.Object(
			m("min_delay_seconds", value.Int(1)), m("max_delay_seconds", value.Int(10)),
			m("long_polling_timeout_seconds", value.Int(int64(s.cfg.PollSeconds))),
		)),
	}
	if key != nil {
		source = append(source, m("signing", value.Object(m("keyid", value.String(key.ID)))))
	}
	return value.Object(
		m("bundles", value.Object(m("authz", value.Object(source...)))),
		m("decision_logs", value.Object(service, m("reporting", value.Object(m("min_delay_seconds", value.Int(1)), m("max_delay_seconds", value.Int(5)))))),
		m("status", value.Object(service)),
		m("default_decision", value.String("/gatehouse/decision")),
		m("labels", value.Object(m("bouncer", value.String(strconv.FormatInt(id, 10))), m("environment", value.String(string(env))))),
	)
}

package edge

import (
	"container/list"
	"context"
	"crypto/tls"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/gatehouse-dev/gatehouse/internal/domain"
)

const (
	// maxPairs is how many domains' certificates and keys are held.
	maxPairs = 4096
	// loadTime bounds one reading.
	loadTime = 3 * time.Second
	// retryPair is how long a failure stands, and a certificate that is not the one that was
	// looked for: the store is asked again no sooner, however many clients come.
	retryPair = time.Second
)

// pairs are the certificates of domains that clients asked for last, with their keys.
type pairs struct {
	load   func(ctx context.Context, rt domain.Route) (*tls.Certificate, string, error)
	now    func() time.Time
	max    int
	flight singleflight.Group

	mu    sync.Mutex
	held  map[string]*list.Element // of *pair
	order *list.List               // the one asked for last comes first
}

// pair is what was read for a domain.
type pair struct {
	domain      string
	fingerprint string // that was looked for
	certificate *tls.Certificate
	err         error     // where there is no certificate
	until       time.Time // when to read again; zero: when the fingerprint changes
}

func newPairs(limit int, load func(ctx context.Context, rt domain.Route) (*tls.Certificate, string, error), now func() time.Time) *pairs {
	return &pairs{load: load, now: now, max: limit, held: map[string]*list.Element{}, order: list.New()}
}

// get is the certificate of a domain. It is read once for all that ask at the same time.
// Where it cannot be read, one that the domain had before is used further.
func (p *pairs) get(ctx context.Context, rt domain.Route, fingerprint string) (*tls.Certificate, error) {
	if one, ok := p.find(rt.Domain, fingerprint); ok {
		return one.certificate, one.err
	}
	got, _, _ := p.flight.Do(rt.Domain+" "+fingerprint, func() (any, error) {
		if one, ok := p.find(rt.Domain, fingerprint); ok {
			return one, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTime) // the others wait for it too
		defer cancel()
		certificate, read, err := p.load(ctx, rt)
		one := &pair{domain: rt.Domain, fingerprint: fingerprint, certificate: certificate, err: err}
		if err != nil || read != fingerprint {
			one.until = p.now().Add(retryPair)
		}
		p.put(one)
		return one, nil
	})
	one := got.(*pair)
	return one.certificate, one.err
}

// find finds what was read for a fingerprint, if it still holds.
func (p *pairs) find(name, fingerprint string) (*pair, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place := p.held[name]
	if place == nil {
		return nil, false
	}
	one := place.Value.(*pair)
	if one.fingerprint != fingerprint || !one.until.IsZero() && !p.now().Before(one.until) {
		return nil, false
	}
	p.order.MoveToFront(place)
	return one, true
}

// put keeps what was read, and forgets what has not been asked for the longest.
func (p *pairs) put(one *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.held[one.domain]; place != nil {
		if before := place.Value.(*pair); one.err != nil && before.certificate != nil {
			one.certificate, one.err = before.certificate, nil
		}
		p.order.Remove(place)
	}
	p.held[one.domain] = p.order.PushFront(one)
	for p.order.Len() > p.max {
		last := p.order.Remove(p.order.Back()).(*pair)
		delete(p.held, last.domain)
	}
}

// prune forgets what belongs to domains that have no certificate of their own any more.
func (p *pairs) prune(fingerprint func(name string) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, place := range p.held {
		if fingerprint(name) == "" {
			p.order.Remove(place)
			delete(p.held, name)
		}
	}
}

package servertls

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
	// maxPairs is how many certificates with their keys are held in memory.
	maxPairs = 4096
	// loadTime is how long reading one certificate may take.
	loadTime = 3 * time.Second
	// retryPair is how long a failure, or a certificate with an unexpected fingerprint, is used
	// before the store is read again, however many clients connect.
	retryPair = time.Second
)

// pairs caches the certificates of the domains that clients used last, with their keys.
type pairs struct {
	load   func(ctx context.Context, rt domain.Route) (*tls.Certificate, string, error)
	now    func() time.Time
	max    int
	flight singleflight.Group

	mu    sync.Mutex
	held  map[string]*list.Element // of *pair, by domain
	order *list.List               // the most recently used comes first
}

// pair is the result of reading the certificate of a domain.
type pair struct {
	domain      string
	fingerprint string // the one that was expected
	certificate *tls.Certificate
	err         error     // why there is no certificate
	until       time.Time // when to read again; zero: when the fingerprint changes
}

func newPairs(limit int, load func(ctx context.Context, rt domain.Route) (*tls.Certificate, string, error), now func() time.Time) *pairs {
	return &pairs{load: load, now: now, max: limit, held: map[string]*list.Element{}, order: list.New()}
}

// get returns the certificate of a domain. Concurrent callers share one read. If it cannot be read,
// get returns the certificate that the domain had before, if there is one.
func (p *pairs) get(ctx context.Context, rt domain.Route, fingerprint string) (*tls.Certificate, error) {
	if one, ok := p.find(rt.Domain, fingerprint); ok {
		return one.certificate, one.err
	}
	got, _, _ := p.flight.Do(rt.Domain+" "+fingerprint, func() (any, error) {
		if one, ok := p.find(rt.Domain, fingerprint); ok {
			return one, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTime) // if the first caller disconnects, the others still get it
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

// find returns the cached result for a fingerprint, if it is still valid.
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

// put caches a result, and drops the least recently used ones beyond the limit.
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

// prune drops the certificates of domains that have none of their own any more.
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

package servertls

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/gatehouse-dev/gatehouse/internal/domain"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The types of challenges that the server answers.
const (
	HTTP01    = "http-01"
	TLSALPN01 = "tls-alpn-01"
)

const (
	// atOnce is how many certificates are ordered at the same time.
	atOnce = 8
	// orderTime is how long one order may take.
	orderTime = 2 * time.Minute
	// look is how often the orderer looks for orders that are due.
	look = 2 * time.Second
	// again is how long a domain waits if the outcome of its last order could not be stored. Without
	// it, a store that fails would cause a flood of orders.
	again = 30 * time.Second
	// limitedPause is the wait after a limit of the ACME server was reached, if the server names none.
	limitedPause = time.Hour
	// shortestPause is the shortest wait that an ACME server can name. It keeps a server that names
	// seconds from being asked again by all domains at once.
	shortestPause = time.Minute
	// longestPause is the longest wait that an ACME server can cause. An answer that names a year, by
	// mistake or from a proxy, must not stop all renewals.
	longestPause = 24 * time.Hour
	// tooManyRequests is the HTTP status of a limit that was reached (RFC 6585, section 4). unavailable
	// is that of a server that is too busy for now (RFC 9110, section 15.6.4).
	tooManyRequests = 429
	unavailable     = 503
)

// OrderConfig is what an Orderer depends on.
type OrderConfig struct {
	Domains *domain.Service
	Routes  *domain.Routes
	// Client returns a client of the ACME directory for an account's key.
	Client func(key crypto.Signer) *acme.Client
	// Directory is the address of the ACME directory. Email is the contact of the account; empty:
	// none.
	Directory, Email string
	// Methods are the types of challenges to use, the preferred one first.
	Methods []string
	// Limit is how many orders a tenant may have within domain.OrderWindow.
	Limit int64
	Now   func() time.Time
	Log   *slog.Logger
}

// Orderer orders certificates by ACME. One replica at a time calls Run.
type Orderer struct {
	OrderConfig
	wake chan struct{}

	mu      sync.Mutex
	account *acme.Client         // nil: the account must be registered first
	waiting map[string]time.Time // by domain; zero: its order runs; or else when to order again
}

// NewOrderer returns an Orderer.
func NewOrderer(cfg OrderConfig) *Orderer {
	return &Orderer{OrderConfig: cfg, wake: make(chan struct{}, 1), waiting: map[string]time.Time{}}
}

// OnChange receives the notifications of changes in the stores. It makes Run look for orders.
func (o *Orderer) OnChange(id scope.TenantID, name string) {
	if id == "" && (name == domain.Revision || name == "") {
		select {
		case o.wake <- struct{}{}:
		default: // Run has already been told
		}
	}
}

// Run orders certificates that are due until ctx ends. It returns when the running orders have
// ended.
func (o *Orderer) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if err := o.start(ctx, &running); err != nil && ctx.Err() == nil {
			o.Log.Warn("certificates cannot be ordered", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-tick.C:
		}
	}
}

// start starts orders that are due, at most atOnce at the same time. It does not wait for them, so
// that a slow order does not delay others.
func (o *Orderer) start(ctx context.Context, running *sync.WaitGroup) error {
	due, err := o.Domains.DueOrders(ctx, 16*atOnce)
	if err != nil {
		return err
	}
	for _, one := range due {
		if !o.begin(one.Domain) {
			continue
		}
		running.Go(func() {
			err := o.order(ctx, one)
			o.end(one.Domain, err == nil)
			if err != nil && ctx.Err() == nil {
				o.Log.Warn("the outcome of an order cannot be stored", "domain", one.Domain, "tenant", one.Tenant, "error", err)
			}
		})
	}
	return nil
}

// begin records that an order for a domain starts; false: one runs already, the outcome of the last
// one could not be stored, or atOnce orders are running.
func (o *Orderer) begin(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, under := o.Now(), 0
	for other, until := range o.waiting {
		switch {
		case until.IsZero():
			under++
		case !now.Before(until):
			delete(o.waiting, other)
		}
	}
	if _, known := o.waiting[name]; known || under >= atOnce {
		return false
	}
	o.waiting[name] = time.Time{}
	return true
}

// end records that an order has ended. kept says that its outcome was stored.
func (o *Orderer) end(name string, kept bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting[name] = o.Now().Add(again); kept {
		delete(o.waiting, name)
	}
}

// order orders one certificate and stores the outcome. The error is that of a store.
func (o *Orderer) order(ctx context.Context, one domain.Order) error {
	begun, err := o.Domains.BeginOrder(ctx, one, o.Limit)
	if err == nil {
		var certificate, key string
		if certificate, key, err = o.obtain(ctx, &one); err == nil {
			err = o.Domains.SaveIssued(ctx, one, certificate, key)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil // the replica that runs the Orderer next orders it
	case err == nil:
		o.Log.Info("a certificate was issued", "domain", one.Domain, "tenant", one.Tenant, "method", one.Method)
	case fault.Is(err, fault.NotFound): // the domain was removed, or needs no order any more
	default:
		o.Log.Warn("a certificate cannot be ordered", "domain", one.Domain, "tenant", one.Tenant, "error", err)
		if _, ok := errors.AsType[notOrdered](err); ok {
			if err := o.Domains.ReturnOrder(ctx, one, begun); err != nil {
				return err
			}
		}
		err = o.Domains.SaveFailure(ctx, one, describe(err), waitFor(err, o.Now()))
	}
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// describe says why an order failed, for the tenant: in the words of the ACME server, or by the
// message of a fault, without the fault's cause.
func describe(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return fault.Message(f)
	}
	return err.Error()
}

// waitFor returns how long to wait at least after an error at a time; 0: the error does not say.
func waitFor(err error, now time.Time) time.Duration {
	if answer, ok := errors.AsType[*acme.Error](err); ok {
		_, limited := acme.RateLimit(answer)
		limited = limited || answer.StatusCode == tooManyRequests
		after := outbound.Response{Header: answer.Header}.RetryAfter(now, longestPause)
		switch {
		case after > 0 && (limited || answer.StatusCode == unavailable):
			return max(after, shortestPause)
		case limited:
			return limitedPause
		}
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.RetryAfter
	}
	return 0
}

// notOrdered is the error of an order that did not reach the ACME server, or that the server did not
// accept for reasons of its own. It does not count as an order of the tenant.
type notOrdered struct{ cause error }

// Error implements error.
func (e notOrdered) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e notOrdered) Unwrap() error { return e.cause }

// markNotOrdered marks the error of a new order as notOrdered, unless the ACME server refused the
// order itself: the server counts such orders, too.
func markNotOrdered(err error) error {
	if answer, ok := errors.AsType[*acme.Error](err); ok && answer.StatusCode >= 400 && answer.StatusCode < 500 && answer.StatusCode != tooManyRequests {
		return err
	}
	return notOrdered{err}
}

// obtain orders a certificate (RFC 8555, section 7.4), and returns it with its key, both in PEM. It
// sets one.Method to the type of the challenge.
func (o *Orderer) obtain(ctx context.Context, one *domain.Order) (certificate, key string, err error) {
	ctx, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	client, err := o.accountClient(ctx)
	if err != nil {
		return "", "", notOrdered{fmt.Errorf("the account: %w", err)}
	}
	defer func() {
		if err != nil { // the account may be the cause: register it again
			o.mu.Lock()
			o.account = nil
			o.mu.Unlock()
		}
	}()
	order, err := client.AuthorizeOrder(ctx, acme.DomainIDs(one.Domain))
	if err != nil {
		return "", "", markNotOrdered(err)
	}
	for _, url := range order.AuthzURLs {
		if err := o.authorize(ctx, client, one, url); err != nil {
			return "", "", err
		}
	}
	if order, err = client.WaitOrder(ctx, order.URI); err != nil {
		return "", "", err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{one.Domain}}, private)
	if err != nil {
		return "", "", err
	}
	chain, _, err := client.CreateCertFromOrder(ctx, order, request, true)
	if err != nil {
		return "", "", err
	}
	for _, der := range chain {
		certificate += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	key, err = keyText(private)
	return certificate, key, err
}

// authorize proves control of a domain to the ACME server, unless it is proven already.
func (o *Orderer) authorize(ctx context.Context, client *acme.Client, one *domain.Order, url string) error {
	auth, err := client.GetAuthorization(ctx, url)
	if err != nil || auth.Status == acme.StatusValid {
		return err
	}
	challenge := o.choose(*one, auth.Challenges)
	if challenge == nil {
		return fmt.Errorf("the ACME server offers none of the challenges %v", o.Methods)
	}
	one.Method = challenge.Type
	thumbprint, err := acme.JWKThumbprint(client.Key.Public())
	if err != nil {
		return err
	}
	if err := o.Domains.PutChallenge(ctx, *one, challenge.Token+"."+thumbprint); err != nil {
		return err
	}
	if err := o.Routes.Reload(ctx); err != nil {
		return err
	}
	if _, err := client.Accept(ctx, challenge); err != nil {
		return err
	}
	_, err = client.WaitAuthorization(ctx, auth.URI)
	return err
}

// choose returns the challenge to use; nil: none is offered. It prefers the type that worked last
// time, and changes the type after each failure.
func (o *Orderer) choose(one domain.Order, offered []*acme.Challenge) *acme.Challenge {
	first := max(slices.Index(o.Methods, one.Method), 0) + int(one.Attempts%int64(len(o.Methods)))
	for i := range o.Methods {
		method := o.Methods[(first+i)%len(o.Methods)]
		for _, c := range offered {
			if c.Type == method {
				return c
			}
		}
	}
	return nil
}

// accountClient returns a client with the deployment's account, which it registers at the first order.
func (o *Orderer) accountClient(ctx context.Context) (*acme.Client, error) {
	o.mu.Lock()
	client := o.account
	o.mu.Unlock()
	if client != nil {
		return client, nil
	}
	text, err := o.Domains.Account(ctx, o.Directory, func() (string, error) {
		fresh, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return "", err
		}
		return keyText(fresh)
	})
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("servertls: the account's key is not PEM")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	client = o.Client(key)
	account := &acme.Account{}
	if o.Email != "" {
		account.Contact = []string{"mailto:" + o.Email}
	}
	if _, err := client.Register(ctx, account, acme.AcceptTOS); err != nil && !errors.Is(err, acme.ErrAccountAlreadyExists) {
		return nil, err
	}
	o.mu.Lock()
	o.account = client
	o.mu.Unlock()
	return client, nil
}

// keyText returns a private key in PEM.
func keyText(key *ecdsa.PrivateKey) (string, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})), err
}

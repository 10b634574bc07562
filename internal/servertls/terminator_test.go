package servertls

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/gatehouse-dev/gatehouse/internal/domain"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// pairFor makes a certificate for a name and its key, in PEM.
func pairFor(t testing.TB, name string) (certificate, key []byte) {
	t.Helper()
	return pairUntil(t, name, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// pairUntil is pairFor with the times between which the certificate is valid.
func pairUntil(t testing.TB, name string, from, until time.Time) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	errtest.Must(t, err)
	text, err := keyText(private)
	errtest.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), []byte(text)
}

// loader is a store of certificates that counts its reads.
type loader struct {
	reads atomic.Int64
	fail  atomic.Bool
	print atomic.Value // the fingerprint that the store has; nil: the expected one
}

func (l *loader) load(_ context.Context, rt domain.Route) (*tls.Certificate, string, error) {
	l.reads.Add(1)
	if l.fail.Load() {
		return nil, "", errors.New("the store is down")
	}
	print, ok := l.print.Load().(string)
	if !ok {
		print = rt.Pair
	}
	return &tls.Certificate{Certificate: [][]byte{[]byte(rt.Domain + print)}}, print, nil
}

// TestPairs checks that a limited number of certificates are cached until they change. A store that
// fails is read once a second, and meanwhile the earlier certificate is used.
func TestPairs(t *testing.T) {
	now, mu := time.Unix(0, 0), sync.Mutex{}
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	l := &loader{}
	p := newPairs(3, l.load, clock)
	get := func(name, print, want string, reads int64) {
		t.Helper()
		before := l.reads.Load()
		c, err := p.get(t.Context(), domain.Route{Domain: name, Pair: print}, print)
		got := ""
		if c != nil {
			got = string(c.Certificate[0])
		}
		if (err != nil) != (want == "") || got != want || l.reads.Load()-before != reads {
			t.Errorf("%s %s: %q after %d reads (%v), want %q after %d", name, print, got, l.reads.Load()-before, err, want, reads)
		}
	}
	get("a", "1", "a1", 1)
	get("a", "1", "a1", 0)
	get("a", "2", "a2", 1) // it was replaced
	l.fail.Store(true)
	get("a", "3", "a2", 1)
	get("a", "3", "a2", 0)
	get("b", "1", "", 1)
	get("b", "1", "", 0)
	pass(retryPair)
	get("b", "1", "", 1)
	l.fail.Store(false)
	get("b", "1", "", 0)
	pass(retryPair)
	get("b", "1", "b1", 1)
	get("a", "3", "a3", 1)

	// A change of which only one of the two commits is visible yet.
	l.print.Store("old")
	get("c", "new", "cold", 1)
	get("c", "new", "cold", 0)
	l.print = atomic.Value{}
	pass(retryPair)
	get("c", "new", "cnew", 1)

	get("d", "1", "d1", 1) // the fourth: it replaces b, the least recently used
	get("c", "new", "cnew", 0)
	get("b", "1", "b1", 1)
	if n := len(p.held); n != 3 || p.order.Len() != 3 {
		t.Errorf("%d certificates are cached, want 3", n)
	}
	p.prune(func(name string) string { return strings.TrimPrefix(name, "c") })
	get("d", "1", "d1", 0)
	get("c", "new", "cnew", 1)
}

// TestPairsAreReadOnce checks that many concurrent clients share one read.
func TestPairsAreReadOnce(t *testing.T) {
	begun, release := make(chan struct{}, 1), make(chan struct{})
	var reads atomic.Int64
	p := newPairs(3, func(context.Context, domain.Route) (*tls.Certificate, string, error) {
		reads.Add(1)
		begun <- struct{}{}
		<-release
		return &tls.Certificate{}, "1", nil
	}, time.Now)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := p.get(t.Context(), domain.Route{Domain: "a"}, "1"); err != nil {
				t.Error(err)
			}
		})
	}
	<-begun
	close(release)
	all.Wait()
	if n := reads.Load(); n != 1 {
		t.Errorf("%d reads, want 1", n)
	}
}

// TestFiles checks that the deployment's certificate follows its files. A certificate with the wrong
// key, and missing files, change nothing.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	write := func(file string, text []byte) {
		t.Helper()
		errtest.Must(t, os.WriteFile(file, text, 0o600))
	}
	if _, err := New(Config{CertFile: certFile, KeyFile: keyFile}); err == nil || !strings.Contains(err.Error(), "GATEHOUSE_TLS_CERT") {
		t.Errorf("without files: %v, want the name of the setting", err)
	}
	oneCert, oneKey := pairFor(t, "one.test")
	twoCert, twoKey := pairFor(t, "two.test")
	write(certFile, oneCert)
	write(keyFile, oneKey)
	var logged strings.Builder
	e, err := New(Config{CertFile: certFile, KeyFile: keyFile, Now: time.Now, Log: slog.New(slog.NewTextHandler(&logged, nil))})
	errtest.Must(t, err)
	wantCertificate := func(step, want string, warnings int) {
		t.Helper()
		for range 3 {
			e.reload()
		}
		if got := e.own.Load().Leaf.Subject.CommonName; got != want || strings.Count(logged.String(), "cannot be used") != warnings {
			t.Errorf("%s: the certificate of %s and the log %s, want %s and %d warnings", step, got, logged.String(), want, warnings)
		}
	}
	wantCertificate("at first", "one.test", 0)
	write(certFile, twoCert)
	wantCertificate("with the key of another", "one.test", 1)
	write(keyFile, twoKey)
	wantCertificate("with its key", "two.test", 1)
	errtest.Must(t, os.Remove(keyFile))
	wantCertificate("without a key", "two.test", 2)
	write(keyFile, twoKey)
	wantCertificate("with the same key", "two.test", 2)
	write(certFile, []byte("nonsense"))
	wantCertificate("with nonsense", "two.test", 3)
	write(certFile, oneCert)
	write(keyFile, oneKey)
	wantCertificate("with the first again", "one.test", 3)
}

// TestNotValidNow checks that a certificate that has ended or has not begun does not replace a valid
// one. It does so once it is valid, or once the other one has ended. At the start it is used, because
// there is no other.
func TestNotValidNow(t *testing.T) {
	dir := t.TempDir()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	var logged strings.Builder
	cfg := Config{
		CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"), Now: func() time.Time { return now },
		Log: slog.New(slog.NewTextHandler(&logged, nil)),
	}
	write := func(name string, from, until time.Duration) {
		t.Helper()
		cert, key := pairUntil(t, name, start.Add(from), start.Add(until))
		for file, text := range map[string][]byte{cfg.CertFile: cert, cfg.KeyFile: key} {
			errtest.Must(t, os.WriteFile(file, text, 0o600))
		}
	}
	var e *Terminator
	want := func(step, name string, kept bool, left time.Duration, warnings int) {
		t.Helper()
		for range 3 {
			e.reload()
		}
		_, gotKept := e.Kept()
		got, gotLeft, gotWarnings := e.own.Load().Leaf.Subject.CommonName, e.Own().Left(now), strings.Count(logged.String(), "is not valid now")
		if got != name || gotKept != kept || gotLeft != left || gotWarnings != warnings {
			t.Errorf("%s: %s, another in the files %t, %v left, %d warnings; want %s, %t, %v, %d", step, got, gotKept, gotLeft, gotWarnings, name, kept, left, warnings)
		}
	}
	begin := func() {
		t.Helper()
		var err error
		if e, err = New(cfg); err != nil {
			t.Fatal(err)
		}
	}
	write("valid.test", -time.Hour, 10*time.Hour)
	begin()
	want("at first", "valid.test", false, 10*time.Hour, 0)
	write("ended.test", -2*time.Hour, -time.Hour)
	want("one that has ended", "valid.test", true, 10*time.Hour, 1)
	write("early.test", time.Hour, 90*time.Hour)
	want("one that has not begun", "valid.test", true, 10*time.Hour, 2)
	now = start.Add(time.Hour - time.Second)
	want("just before it begins", "valid.test", true, 9*time.Hour+time.Second, 2)
	now = start.Add(time.Hour)
	want("once it has begun", "early.test", false, 89*time.Hour, 2)
	write("late.test", 200*time.Hour, 300*time.Hour)
	want("another that has not begun", "early.test", true, 89*time.Hour, 3)
	errtest.Must(t, os.WriteFile(cfg.KeyFile, []byte("nonsense"), 0o600))
	want("files that are not a pair", "early.test", false, 89*time.Hour, 3)
	write("late.test", 200*time.Hour, 300*time.Hour)
	now = start.Add(90 * time.Hour)
	want("when both are not valid", "late.test", false, -110*time.Hour, 3)
	write("short.test", 0, 100*time.Hour)
	want("a valid one in place of an early one", "short.test", false, 10*time.Hour, 3)

	write("early.test", 100*time.Hour, 200*time.Hour)
	begin()
	want("an early one at the start", "early.test", false, -10*time.Hour, 4)
	write("ended.test", -2*time.Hour, -time.Hour)
	begin()
	want("an ended one at the start", "ended.test", false, -91*time.Hour, 5)
}

// TestEnds: a warning is due 14 days before the end of the certificate that is in use, or in the last
// sixth of a short life.
func TestEnds(t *testing.T) {
	const day = 24 * time.Hour
	dir := t.TempDir()
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cfg := Config{CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"), Now: func() time.Time { return from }, Log: slog.New(slog.DiscardHandler)}
	var e *Terminator
	for _, c := range []struct{ life, warn time.Duration }{{90 * day, 14 * day}, {6 * day, day}, {398 * day, 14 * day}} {
		cert, key := pairUntil(t, "own.test", from, from.Add(c.life))
		for file, text := range map[string][]byte{cfg.CertFile: cert, cfg.KeyFile: key} {
			errtest.Must(t, os.WriteFile(file, text, 0o600))
		}
		if e == nil {
			var err error
			if e, err = New(cfg); err != nil {
				t.Fatal(err)
			}
		}
		e.reload()
		if got := e.Own(); !got.End.Equal(from.Add(c.life)) || !got.Warn.Equal(got.End.Add(-c.warn)) {
			t.Errorf("a certificate of %v ends at %v, and warns from %v", c.life, got.End, got.Warn)
		}
	}
}

// TestChallengePair: the certificate that answers a challenge is as RFC 8737 requires, like the one
// that the ACME library makes.
func TestChallengePair(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.Must(t, err)
	thumbprint, err := acme.JWKThumbprint(key.Public())
	errtest.Must(t, err)
	ours, err := challengePair("shop.acme.test", "token."+thumbprint, time.Now())
	errtest.Must(t, err)
	theirs, err := (&acme.Client{Key: key}).TLSALPN01ChallengeCert("token", "shop.acme.test")
	errtest.Must(t, err)
	contents := func(c tls.Certificate) string {
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		errtest.Must(t, err)
		for _, x := range leaf.Extensions {
			if x.Id.Equal(acmeIdentifier) {
				return fmt.Sprintf("%v %v %x", leaf.DNSNames, x.Critical, x.Value)
			}
		}
		return ""
	}
	if contents(ours) != contents(theirs) || contents(ours) == "" {
		t.Errorf("the certificate has %q, want %q", contents(ours), contents(theirs))
	}
}

// TestChoose checks that the type of challenge that worked last comes first, and each failure changes
// it.
func TestChoose(t *testing.T) {
	both := []*acme.Challenge{{Type: "dns-01"}, {Type: HTTP01}, {Type: TLSALPN01}}
	o := NewOrderer(OrderConfig{Methods: []string{TLSALPN01, HTTP01}})
	for _, c := range []struct {
		order   domain.Order
		offered []*acme.Challenge
		want    string
	}{
		{domain.Order{}, both, TLSALPN01},
		{domain.Order{Attempts: 1}, both, HTTP01},
		{domain.Order{Attempts: 2}, both, TLSALPN01},
		{domain.Order{Method: HTTP01}, both, HTTP01},
		{domain.Order{Method: HTTP01, Attempts: 1}, both, TLSALPN01},
		{domain.Order{Method: "dns-01"}, both, TLSALPN01},
		{domain.Order{}, both[:2], HTTP01},
		{domain.Order{}, both[:1], ""},
	} {
		got := ""
		if x := o.choose(c.order, c.offered); x != nil {
			got = x.Type
		}
		if got != c.want {
			t.Errorf("choose(%+v) = %q, want %q", c.order, got, c.want)
		}
	}
}

// TestBegin checks that a domain has one order at a time, a limited number of orders run at once, and
// after an outcome that could not be stored the next order waits.
func TestBegin(t *testing.T) {
	now := time.Unix(0, 0)
	o := NewOrderer(OrderConfig{Now: func() time.Time { return now }})
	begin := func(step, name string, want bool) {
		t.Helper()
		if o.begin(name) != want {
			t.Errorf("%s: begin(%s) = %v, want %v", step, name, !want, want)
		}
	}
	begin("at first", "a", true)
	begin("under way", "a", false)
	now = now.Add(time.Hour)
	begin("under way for long", "a", false)
	begin("another domain", "b", true)
	o.end("a", true)
	begin("stored", "a", true)
	o.end("a", false)
	begin("not stored", "a", false)
	now = now.Add(again)
	begin("not stored, a while ago", "a", true)
	for i := 2; i < atOnce; i++ {
		begin("there is room", fmt.Sprint(i), true)
	}
	begin("there is no room", "z", false)
	o.end("b", true)
	begin("there is room again", "z", true)
}

// TestFilesFailAgain checks that a failure to read the certificate is new each time it begins, and
// known while it lasts.
func TestFilesFailAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for _, name := range []string{certFile, keyFile} {
		errtest.Must(t, os.WriteFile(name, []byte("not a certificate"), 0o600))
	}
	var f files
	if changed, err := f.read(certFile, keyFile); !changed || err == nil {
		t.Fatalf("the first read: changed %t, %v, want a new error", changed, err)
	}
	away := certFile + ".away"
	for range 2 {
		errtest.Must(t, os.Rename(certFile, away))
		for _, want := range []bool{true, false} {
			if fresh, err := f.read(certFile, keyFile); err == nil || fresh != want {
				t.Errorf("without the file: new %t, %v, want an error, new %t", fresh, err, want)
			}
		}
		errtest.Must(t, os.Rename(away, certFile))
		if changed, err := f.read(certFile, keyFile); changed || err != nil {
			t.Errorf("with the file again: changed %t, %v, want no change", changed, err)
		}
	}
}

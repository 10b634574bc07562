package servertls

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/domain"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// routed returns a Terminator on a store with n verified domains of a tenant, d0.test and so on, and the
// store. load reads their certificates.
func routed(t testing.TB, n int, load func(context.Context, domain.Route) (*tls.Certificate, string, error)) (*Terminator, *db.Cluster) {
	t.Helper()
	c := dbtest.Open(t, dbtest.SQLite)
	err := c.System().Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO tenants (id, name, created_at, updated_at) VALUES ('acme', 'Acme', 0, 0)`); err != nil {
			return err
		}
		for i := range n {
			if _, err := tx.Exec(t.Context(), `INSERT INTO domain_routes (domain, tenant, created_at, pair) VALUES ($1, 'acme', 0, 'p')`, fmt.Sprintf("d%d.test", i)); err != nil {
				return err
			}
		}
		return nil
	})
	errtest.Must(t, err)
	log := slog.New(slog.DiscardHandler)
	routes, err := domain.LoadRoutes(t.Context(), c, time.Now, log)
	errtest.Must(t, err)
	cert, key := pairFor(t, "own.test")
	cfg := Config{Routes: routes, KeyPair: load, CertFile: filepath.Join(t.TempDir(), "cert"), KeyFile: filepath.Join(t.TempDir(), "key"), ACME: true, Now: time.Now, Log: log}
	for file, text := range map[string][]byte{cfg.CertFile: cert, cfg.KeyFile: key} {
		errtest.Must(t, os.WriteFile(file, text, 0o600))
	}
	e, err := New(cfg)
	errtest.Must(t, err)
	return e, c
}

// handshake makes a TLS handshake as a client that asks for a name, and returns the common name of the
// certificate that it gets.
func handshake(server *tls.Config, name string, protos ...string) (string, error) {
	near, far := net.Pipe()
	defer near.Close()
	done := make(chan error, 1)
	go func() {
		defer far.Close()
		done <- tls.Server(far, server).Handshake()
	}()
	client := tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: protos}) //nolint:gosec // the test reads which certificate the server sends
	err := client.Handshake()
	if err == nil {
		err = <-done
	}
	if err != nil {
		return "", err
	}
	return client.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// TestUnknownNames checks that names that nobody has verified get the deployment's certificate
// without a read of the store, which is closed.
func TestUnknownNames(t *testing.T) {
	var l loader
	e, c := routed(t, 1, l.load)
	errtest.Must(t, c.Close())
	config := e.TLSConfig()
	for i := range 200 {
		if got, err := handshake(config, fmt.Sprintf("n%d.test", i)); err != nil || got != "own.test" {
			t.Fatalf("an unknown name gets the certificate of %q, %v, want own.test", got, err)
		}
	}
	for _, protos := range [][]string{{acme.ALPNProto}, {acme.ALPNProto, "h2"}} {
		if got, err := handshake(config, "n1.test", protos...); len(protos) == 1 && err == nil {
			t.Errorf("a challenge for an unknown name gets the certificate of %q, want none", got)
		}
	}
	for i := range 50 {
		if answer, ok := e.HTTPChallenge(t.Context(), fmt.Sprintf("n%d.test", i), "token"); ok {
			t.Errorf("a challenge for an unknown name is answered with %q, want none", answer)
		}
	}
	if n := l.reads.Load(); n != 0 {
		t.Errorf("%d reads of the store, want none", n)
	}
	if len(e.pairs.held) != 0 {
		t.Errorf("%d names are cached, want none", len(e.pairs.held))
	}
}

// BenchmarkHandshake measures handshakes for 1,000 domains, and the memory for a domain's certificate
// and key.
func BenchmarkHandshake(b *testing.B) {
	const domains = 1000
	load := func(_ context.Context, rt domain.Route) (*tls.Certificate, string, error) {
		cert, key := pairFor(b, rt.Domain)
		pair, err := tls.X509KeyPair(cert, key)
		return &pair, rt.Pair, err
	}
	e, _ := routed(b, domains, load)
	config := e.TLSConfig()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range domains {
		if got, err := handshake(config, fmt.Sprintf("d%d.test", i)); err != nil || got != fmt.Sprintf("d%d.test", i) {
			b.Fatalf("handshake = %q, %v", got, err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	for _, c := range []struct{ what, name string }{{"own", "d%d.test"}, {"unknown", "n%d.test"}} {
		b.Run(c.what, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				errtest.Must(b, errtest.Of(handshake(config, fmt.Sprintf(c.name, i%domains))))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "handshakes/s")
			b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/domains, "heap-B/domain")
		})
	}
}

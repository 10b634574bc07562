package apptest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// CA is a certificate authority for tests.
type CA struct {
	// Pool trusts only this authority.
	Pool *x509.CertPool
	// PEM is its certificate.
	PEM string

	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewCA returns a new certificate authority.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "Authority of a test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	errtest.Must(t, err)
	ca := &CA{Pool: x509.NewCertPool(), PEM: block("CERTIFICATE", der), key: key}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	ca.Pool.AddCert(ca.cert)
	return ca
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	errtest.Must(t, err)
	return n
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// Issue returns a certificate for names and its key, both in PEM. The certificate is valid from an
// hour ago, until life from now.
func (ca *CA) Issue(t testing.TB, life time.Duration, names ...string) (certificate, key string) {
	t.Helper()
	return ca.IssueBetween(t, -time.Hour, life, names...)
}

// IssueBetween is Issue with the time from which the certificate is valid, relative to now.
func (ca *CA) IssueBetween(t testing.TB, from, until time.Duration, names ...string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, private.Public(), ca.key)
	errtest.Must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	errtest.Must(t, err)
	return block("CERTIFICATE", der), block("PRIVATE KEY", raw)
}

// TLSListener is the TLS listener of a server.
type TLSListener struct {
	// Addr is its host:port.
	Addr string
	// Authority signs its certificate, in the files CertFile and KeyFile.
	Authority         *CA
	CertFile, KeyFile string
}

// NewTLSListener creates a certificate for localhost and the names, and chooses a free address.
func NewTLSListener(t testing.TB, names ...string) *TLSListener {
	t.Helper()
	dir := t.TempDir()
	l := &TLSListener{Addr: freeport.Addr(t), Authority: NewCA(t), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	l.Replace(t, 240*time.Hour, names...)
	return l
}

// Replace writes a new certificate for localhost and the names, and its key. It is valid for life from
// now on.
func (l *TLSListener) Replace(t testing.TB, life time.Duration, names ...string) {
	t.Helper()
	l.ReplaceBetween(t, -time.Hour, life, names...)
}

// ReplaceBetween is Replace with the time from which the certificate is valid, relative to now.
func (l *TLSListener) ReplaceBetween(t testing.TB, from, until time.Duration, names ...string) {
	t.Helper()
	certificate, key := l.Authority.IssueBetween(t, from, until, append([]string{"localhost"}, names...)...)
	for file, text := range map[string]string{l.CertFile: certificate, l.KeyFile: key} {
		errtest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	}
}

// StartTLSServer starts a server on a fresh store of the backend that ends TLS with l.
func StartTLSServer(t testing.TB, backend string, l *TLSListener, env ...string) *Server {
	t.Helper()
	skipInInnerLoop(t)
	return StartTLSServerAt(t, backend, freeport.Addr(t), l, env...)
}

// TLSReplica starts one more server on the store of s that ends TLS with l and listens
// on addr.
func (s *Server) TLSReplica(t testing.TB, addr string, l *TLSListener, env ...string) *Server {
	t.Helper()
	return startTLS(t, t.TempDir(), s.DatabaseURL(), addr, l, env...)
}

func startTLS(t testing.TB, dir, databaseURL, addr string, l *TLSListener, env ...string) *Server {
	t.Helper()
	s := launchServer(t, dir, databaseURL, addr, append(env, "GATEHOUSE_TLS_LISTEN="+l.Addr, "GATEHOUSE_TLS_CERT="+l.CertFile, "GATEHOUSE_TLS_KEY="+l.KeyFile)...)
	s.TLS = l
	s.Admin = s.Login(t, "admin", Password)
	return s
}

// At is a client without a credential that asks for a host over TLS, whatever the host's
// name leads to. It trusts the listener's authority, and speaks HTTP/2.
func (s *Server) At(host string) *Client {
	return &Client{Base: "https://" + host + "/api/v1", Over: s.TLS.Transport(s.TLS.Authority.Pool)}
}

// Transport connects to the listener for all hosts, and trusts pool.
func (l *TLSListener) Transport(pool *x509.CertPool) *http.Transport {
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true, DisableCompression: true, IdleConnTimeout: time.Second,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, l.Addr)
		},
	}
}

// Handshake connects to the listener for a name and gives the certificate that it shows,
// without any check.
func (l *TLSListener) Handshake(name string) (*x509.Certificate, error) {
	d := tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}} //nolint:gosec // what the certificate says is for the test
	if name == "" {
		d.Config.ServerName = "127.0.0.1" // which is not sent
	}
	c, err := d.DialContext(context.Background(), "tcp", l.Addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// StartTLSServerAt is StartTLSServer with the address to listen on without TLS.
func StartTLSServerAt(t testing.TB, backend, addr string, l *TLSListener, env ...string) *Server {
	t.Helper()
	skipInInnerLoop(t)
	cfg := dbtest.Config(t, backend)
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	return startTLS(t, cfg.Dir, cfg.URL, addr, l, env...)
}

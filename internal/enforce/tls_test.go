package enforce

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// certificate writes a certificate for bouncer.test and 127.0.0.1 and its key into the files
// "cert" and "key", and returns its authority.
func certificate(t testing.TB) (files map[string]string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"bouncer.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	errtest.Must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	errtest.Must(t, err)
	dir := t.TempDir()
	roots = x509.NewCertPool()
	files = map[string]string{}
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: private}} {
		files[name] = filepath.Join(dir, name)
		errtest.Must(t, os.WriteFile(files[name], pem.EncodeToMemory(block), 0o600))
	}
	parsed, err := x509.ParseCertificate(der)
	errtest.Must(t, err)
	roots.AddCert(parsed)
	return files, roots
}

// TestTLS checks that, with a certificate, the bouncer accepts HTTP/1.1 and HTTP/2 over TLS, checks
// framing as strictly as without, and forwards that the scheme is https.
func TestTLS(t *testing.T) {
	files, roots := certificate(t)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Header.Get("X-Forwarded-Proto"))
	}))
	defer app.Close()
	p := newPlane(t)
	p.publish(enforcing(adminOnly))
	before := goleak.IgnoreCurrent()
	b := start(t, p, app.URL, func(c *Config) { c.TLSCert, c.TLSKey = files["cert"], files["key"] }).at(t, 1)
	url, addr := strings.Replace(b.url, "http:", "https:", 1), strings.TrimPrefix(b.url, "http://")
	secure := &tls.Config{RootCAs: roots, ServerName: "bouncer.test"}
	silent, err := net.Dial("tcp", addr) // a client without a handshake delays no other
	errtest.Must(t, err)
	defer silent.Close()
	for _, major := range []int{1, 2} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(major == 1)
		protocols.SetHTTP2(major == 2)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure.Clone(), Protocols: protocols}}
		for path, want := range map[string]int{"/x": 200, "/admin/x": 403} {
			resp, err := client.Get(url + path)
			errtest.Must(t, err)
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want || resp.ProtoMajor != major || want == 200 && string(body) != "https" {
				t.Errorf("GET %s over HTTP/%d = %d %s %q, want %d", path, major, resp.StatusCode, resp.Proto, body, want)
			}
		}
		client.CloseIdleConnections()
	}
	for _, tc := range []struct {
		name, wire string
		bad        bool
	}{
		{"plain", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false},
		{"chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false},
		{"both lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", true},
		{"same length twice", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", true},
		{"folded line", "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n X-B: 2\r\n\r\n", true},
		{"bare LF", "GET / HTTP/1.1\nHost: a\n\n", true},
	} {
		conn, err := tls.Dial("tcp", addr, secure)
		errtest.Must(t, err)
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = io.WriteString(conn, tc.wire)
		_ = conn.CloseWrite()
		answer, _ := io.ReadAll(conn)
		conn.Close()
		if bad := strings.Contains(string(answer), " 400 "); bad != tc.bad {
			t.Errorf("%s: %q, want a refusal: %v", tc.name, answer, tc.bad)
		}
	}
	if resp, err := http.Get(b.url + "/x"); err == nil {
		resp.Body.Close()
		if resp.StatusCode == 200 {
			t.Error("a request without TLS = 200, want none")
		}
	}
	b.stop()
	p.srv.Close()
	app.Close()
	goleak.VerifyNone(t, before)
}

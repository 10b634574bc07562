package apptest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

var (
	buildPebble    = builder("pebble", "github.com/letsencrypt/pebble/v2/cmd/pebble")
	buildChallenge = builder("pebble-challtestsrv", "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv")
)

// Pebble is an ACME server.
type Pebble struct {
	// Directory is the address of its directory; CAFile has the authority that it is verified
	// with.
	Directory, CAFile string
	// Log has its output so far.
	Log *Log

	management string
	client     *http.Client
}

// StartPebble starts Pebble, the ACME server for tests of Let's Encrypt, and its challenge test
// server, which answers every DNS question with 127.0.0.1. Pebble validates challenges at the ports
// of the two addresses. Its certificates are valid for life. If the programs are missing, the test
// is skipped, or fails if everything is required.
func StartPebble(t testing.TB, http01, tlsALPN01 string, life time.Duration) *Pebble {
	t.Helper()
	pebble, err := buildPebble()
	if err != nil {
		SkipMissing(t, "no ACME server: "+err.Error())
	}
	challenges, err := buildChallenge()
	if err != nil {
		SkipMissing(t, "no challenge test server: "+err.Error())
	}
	dir, ca := t.TempDir(), NewCA(t)
	certificate, key := ca.Issue(t, 24*time.Hour, "localhost")
	listen, management, dns, dnsManagement := freeport.Addr(t), freeport.Addr(t), freeport.Addr(t), freeport.Addr(t)
	config, err := json.Marshal(Body{"pebble": Body{
		"listenAddress": listen, "managementListenAddress": management, "certificate": filepath.Join(dir, "cert.pem"), "privateKey": filepath.Join(dir, "key.pem"),
		"httpPort": port(t, http01), "tlsPort": port(t, tlsALPN01), "keyAlgorithm": "ecdsa", "retryAfter": Body{"authz": 1, "order": 1},
		"profiles": Body{"default": Body{"description": "of this test", "validityPeriod": int64(life / time.Second)}},
	}})
	errtest.Must(t, err)
	for name, text := range map[string]string{"cert.pem": certificate, "key.pem": key, "ca.pem": ca.PEM, "config.json": string(config)} {
		errtest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	run(t, &Log{}, exec.Command(challenges, "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-dnsserver", dns, "-management", dnsManagement, "-defaultIPv6", ""))
	p := &Pebble{
		Directory: "https://localhost:" + strconv.Itoa(port(t, listen)) + "/dir", CAFile: filepath.Join(dir, "ca.pem"), Log: &Log{}, management: "https://localhost:" + strconv.Itoa(port(t, management)),
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool}}, Timeout: time.Minute},
	}
	cmd := exec.Command(pebble, "-config", filepath.Join(dir, "config.json"), "-dnsserver", dns)
	// Every order proves its name anew, and a third of all nonces are refused, as RFC 8555 has
	// clients expect.
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_AUTHZREUSE=0", "PEBBLE_WFE_AUTHZREUSE=0", "PEBBLE_WFE_NONCEREJECT=30")
	run(t, p.Log, cmd)
	Eventually(t, time.Minute, func() error {
		_, err := p.get(p.Directory)
		return err
	})
	return p
}

// Roots returns a pool that trusts the certificates that Pebble issues.
func (p *Pebble) Roots(t testing.TB) *x509.CertPool {
	t.Helper()
	text, err := p.get(p.management + "/roots/0")
	errtest.Must(t, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatalf("no certificate in %s", text)
	}
	return pool
}

func (p *Pebble) get(url string) ([]byte, error) {
	res, err := p.client.Get(url)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d", url, res.StatusCode)
	}
	return io.ReadAll(res.Body)
}

// run starts a program and stops it when the test ends.
func run(t testing.TB, log *Log, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stdout, cmd.Stderr = log, log
	errtest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func port(t testing.TB, addr string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	errtest.Must(t, err)
	n, err := strconv.Atoi(text)
	errtest.Must(t, err)
	return n
}

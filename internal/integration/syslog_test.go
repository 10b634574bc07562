package integration

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// The behaviours of a collector.
const (
	obeys      = "reads all, and answers close_notify"
	resets     = "dies after three messages"
	stops      = "ends in order after three messages"
	leaves     = "reads all, and closes without close_notify"
	refusesAll = "closes at once"
)

// collector is a strict receiver of RFC 5425. What it has read counts as stored, even if it dies
// afterwards.
type collector struct {
	*siem
	address, ca string
	mu          sync.Mutex
	way         string
	messages    []string
	wrong       []string
}

var header = regexp.MustCompile(`^<(\d{1,3})>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}Z - gatehouse - (decision|event|entry) (\[gatehouse@32473( [a-zA-Z]+="([^"\\\]]|\\.)*")*\]) `)

// newCollector starts a collector. It requires a client certificate of one of these authorities;
// nil: none.
func newCollector(t testing.TB, clients *x509.CertPool) *collector {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	t.Cleanup(certified.Close)
	c := &collector{siem: newSIEM(t), way: obeys, ca: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw}))}
	cfg := &tls.Config{Certificates: certified.TLS.Certificates}
	if clients != nil {
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, clients
	}
	c.address = freeport.Accept(t, func(conn net.Conn) { c.serve(conn.(*net.TCPConn), cfg) })
	return c
}

// setBehavior sets the behaviour on later connections.
func (c *collector) setBehavior(way string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.way = way
}

// serve reads the messages of a connection.
func (c *collector) serve(raw *net.TCPConn, cfg *tls.Config) {
	c.mu.Lock()
	way := c.way
	c.mu.Unlock()
	conn := tls.Server(raw, cfg)
	in := bufio.NewReaderSize(conn, 64)
	for n := 0; ; n++ {
		switch {
		case way == refusesAll:
			return
		case way == resets && n == 3:
			_ = raw.SetLinger(0)
			return
		case way == stops && n == 3:
			_ = conn.Close()
			return
		}
		text, err := frame(in)
		if errors.Is(err, io.EOF) {
			if way == obeys {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			c.note(err.Error())
			return
		}
		c.store(text)
	}
}

// frame reads one message: its length in octets, a space, and the message.
func frame(in *bufio.Reader) (string, error) {
	length, err := in.ReadString(' ')
	if err != nil {
		if length != "" {
			return "", fmt.Errorf("the connection ends in a length: %q", length)
		}
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSuffix(length, " "))
	if err != nil || n < 1 || n > maxMessage || length[0] == '0' {
		return "", fmt.Errorf("the length is %q", length)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(in, text); err != nil {
		return "", fmt.Errorf("a message is cut: %v", err)
	}
	return string(text), nil
}

// note records an error of the client.
func (c *collector) note(wrong string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, wrong)
}

// store checks and stores a message.
func (c *collector) store(text string) {
	head := header.FindString(text)
	if head == "" {
		c.note("the head is not that of RFC 5424: " + text)
		return
	}
	c.mu.Lock()
	c.messages = append(c.messages, text)
	c.mu.Unlock()
	if body := text[len(head):]; strings.HasPrefix(body, "{") {
		c.siem.mu.Lock()
		c.bodies = append(c.bodies, body)
		c.take(body)
		c.siem.mu.Unlock()
	}
}

// received returns the messages that arrived, and the errors.
func (c *collector) received() (messages, wrong []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.messages...), append([]string{}, c.wrong...)
}

// TestSyslog checks that both logs reach a syslog server complete and in order, although it dies,
// stops in the middle of a message, and never confirms that it has read them.
func TestSyslog(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, cluster *db.Cluster) {
		b, c := newBench(t, cluster), newCollector(t, nil)
		b.record(20)
		it := b.create(Draft{Name: "siem", Kind: SIEM, Endpoint: syslogScheme + c.address, Settings: map[string]any{"start": "oldest", "ca_certificates": c.ca}})
		for round, way := range []string{resets, obeys, stops, leaves, refusesAll, obeys, resets, obeys} {
			b.record(8)
			c.setBehavior(way)
			b.turn(fmt.Sprint("replica ", round%2), it.ID)
			got, err := b.Get(ctx, admin, it.ID)
			if err != nil || (got.LastError == "") != (way == obeys) {
				t.Errorf("the server %s: the last error is %q, error %v, want one unless it confirms", way, got.LastError, err)
			}
			b.clock.Move(longestWait)
		}
		c.wantComplete(t, b)
		if _, wrong := c.received(); len(wrong) > 0 || c.again == 0 {
			t.Errorf("the server got the errors %v and %d lines again, want none and some", wrong, c.again)
		}
	})
}

// TestSyslogWithoutNotify checks that the close of a server that never sends close_notify confirms
// a parcel, if the settings say so. A server that dies does not confirm it.
func TestSyslogWithoutNotify(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, cluster *db.Cluster) {
		b, c := newBench(t, cluster), newCollector(t, nil)
		b.record(10)
		it := b.create(Draft{Name: "siem", Kind: SIEM, Endpoint: syslogScheme + c.address, Settings: map[string]any{"start": "oldest", "ca_certificates": []any{c.ca}, "confirmation": "close"}})
		for _, way := range []string{resets, leaves, stops, leaves, obeys} {
			b.record(8)
			c.setBehavior(way)
			b.turn("a", it.ID)
			if got, err := b.Get(ctx, admin, it.ID); err != nil || (got.LastError == "") != (way == obeys || way == leaves) {
				t.Errorf("the server %s: the last error is %q, error %v, want one unless it confirms", way, got.LastError, err)
			}
			b.clock.Move(longestWait)
		}
		c.wantComplete(t, b)
	})
}

// TestSyslogTest checks that a test reports what a syslog server did, and that a server without a
// trusted certificate gets nothing.
func TestSyslogTest(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, cluster *db.Cluster) {
		b, c := newBench(t, cluster), newCollector(t, nil)
		trusted := b.create(Draft{Name: "siem", Kind: SIEM, Endpoint: syslogScheme + c.address, Settings: map[string]any{"ca_certificates": c.ca, "format": "cef"}})
		if got, err := b.Test(ctx, admin, trusted.ID); err != nil || !got.Delivered || got.ResponseCode != 0 || got.Error != "" {
			t.Errorf("Test = %+v, error %v, want delivered without a status", got, err)
		}
		other := b.create(Draft{Name: "other", Kind: SIEM, Endpoint: syslogScheme + c.address})
		if got, err := b.Test(ctx, admin, other.ID); err != nil || got.Delivered || got.Error != "the target could not be reached" {
			t.Errorf("Test without trust in the certificate = %+v, error %v, want that it could not be reached", got, err)
		}
		c.setBehavior(leaves)
		if got, err := b.Test(ctx, admin, trusted.ID); err != nil || got.Delivered || !strings.Contains(got.Error, "close_notify") {
			t.Errorf("Test without close_notify = %+v, error %v, want an error about it", got, err)
		}
		if messages, _ := c.received(); len(messages) != 2 || !strings.Contains(messages[0], "] CEF:0|gatehouse|gatehouse|1|entry|") {
			t.Errorf("the server got %q, want 2 test messages in CEF", messages)
		}
	})
}

// TestSyslogClientCertificate checks that a server that requires a certificate gets entries only
// with the right one, and that a certificate is not sent to another host.
func TestSyslogClientCertificate(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, cluster *db.Cluster) {
		cert, key := selfSigned(t, x509.ExtKeyUsageClientAuth)
		strange, itsKey := selfSigned(t, x509.ExtKeyUsageClientAuth)
		clients := x509.NewCertPool()
		clients.AppendCertsFromPEM([]byte(cert))
		b, c := newBench(t, cluster), newCollector(t, clients)
		test := func(credential any, delivered bool) Integration {
			t.Helper()
			it := b.create(Draft{Name: fmt.Sprint(credential), Kind: SIEM, Endpoint: syslogScheme + c.address, Settings: map[string]any{"ca_certificates": c.ca}, Credential: credential})
			if got, err := b.Test(ctx, admin, it.ID); err != nil || got.Delivered != delivered {
				t.Errorf("Test = %+v, error %v, want delivered: %v", got, err, delivered)
			}
			return it
		}
		test(nil, false)
		test(map[string]any{"client_certificate": strange, "client_key": itsKey}, false)
		it := test(map[string]any{"client_certificate": cert, "client_key": key}, true)
		timetest.Eventually(t, time.Minute, func() error {
			if messages, wrong := c.received(); len(messages) != 1 || len(wrong) != 2 { // two without the right certificate
				return fmt.Errorf("the server got the messages %q and the errors %q, want one and two", messages, wrong)
			}
			return nil
		})
		elsewhere := "syslog+tls://127.0.0.1:6515"
		_, err := b.Update(ctx, admin, it.ID, Change{Endpoint: &elsewhere}, 0)
		b.wantCode(err, "credential_required")
	})
}

// TestSyslogSettings checks that settings that do not fit a syslog server are refused, and so are
// inner networks.
func TestSyslogSettings(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, cluster *db.Cluster) {
		b := newBench(t, cluster)
		for _, tc := range []struct {
			endpoint, pointer string
			settings          map[string]any
			credential        any
		}{
			{"syslog+tls://10.0.0.8:6514", "/endpoint", nil, nil},
			{"syslog+tls://[::ffff:10.0.0.8]:6514", "/endpoint", nil, nil},
			{"syslog+tls://2130706433:6514", "/endpoint", nil, nil},
			{"syslog+tls://localhost.:6514", "/endpoint", nil, nil},
			{"syslog+tls://user@127.0.0.1:6514", "/endpoint", nil, nil},
			{"syslog+tls://127.0.0.1:6514/path", "/endpoint", nil, nil},
			{"syslog+tls://127.0.0.1:6514?a=b", "/endpoint", nil, nil},
			{"syslog+tls://127.0.0.1:0", "/endpoint", nil, nil},
			{"syslog+tls://127.0.0.1:065", "/endpoint", nil, nil},
			{"syslog+tls://127.0.0.1:65536", "/endpoint", nil, nil},
			{"syslog+tls://8.8.8.8:514", "/endpoint", nil, nil},
			{"syslog+tls://", "/endpoint", nil, nil},
			{"syslog://127.0.0.1:514", "/endpoint", nil, nil},
			{"SYSLOG+TLS://127.0.0.1:6514", "/endpoint", nil, nil},
			{"syslog+tls://127.0.0.1:6514", "/settings/format", map[string]any{"format": "jsonl"}, nil},
			{"syslog+tls://127.0.0.1:6514", "/settings/format", map[string]any{"format": "leef"}, nil},
			{"syslog+tls://127.0.0.1:6514", "/settings/ca_certificates", map[string]any{"ca_certificates": "no PEM"}, nil},
			{"syslog+tls://127.0.0.1:6514", "/credential", nil, "token"},
			{"syslog+tls://127.0.0.1:6514", "/credential/client_certificate", nil, map[string]any{"client_certificate": "no PEM", "client_key": "no PEM"}},
			{"syslog+tls://127.0.0.1:6514", "/credential", nil, map[string]any{"client_certificate": "no PEM"}},
			{"https://127.0.0.1:6514", "/credential", nil, map[string]any{"client_certificate": "no PEM", "client_key": "no PEM"}},
			{"https://127.0.0.1:6514", "/settings/ca_certificates", map[string]any{"ca_certificates": "no PEM"}, nil},
			{"https://127.0.0.1:6514", "/settings/confirmation", map[string]any{"confirmation": "close"}, nil},
		} {
			_, err := b.Create(ctx, admin, Draft{Name: "siem", Kind: SIEM, Endpoint: tc.endpoint, Settings: tc.settings, Credential: tc.credential})
			if all := fault.Offences(err); !fault.Is(err, fault.Invalid) || len(all) != 1 || all[0].Pointer != tc.pointer {
				t.Errorf("Create with %s %v = %v, want one offence at %s", tc.endpoint, tc.settings, err, tc.pointer)
			}
		}
		if _, err := b.Create(ctx, admin, Draft{Name: "hook", Kind: Webhook, Endpoint: "syslog+tls://127.0.0.1:6514", Credential: "key"}); err == nil {
			t.Error("Create of a webhook to a syslog server: no error")
		}
	})
}

// TestFormats checks the text of an entry in each format.
func TestFormats(t *testing.T) {
	name := "pay=ments|\\x"
	d := audit.Decision{DecisionID: "d-1", Decision: audit.Deny, Reason: "no\nway = no", PolicyName: &name, Action: "read", IPAddress: "2001:db8::7", User: audit.User{ID: "bob"}, Resource: audit.Resource{Path: "/payments"}}
	record, err := json.Marshal(d)
	errtest.Must(t, err)
	at := time.Date(2026, 1, 15, 9, 30, 0, 5000, time.UTC)
	decision := tail.Line{Chain: "decisions.basic", Position: 812, Hash: "9b", PreviousHash: "51", Tenant: `a"]\b`, Environment: scope.Production, At: at, Decision: record}
	event := tail.Line{Chain: "events", Position: 93, Hash: "c0", PreviousHash: "aa", Tenant: "default", At: at, Event: &audit.Event{ID: 93, Type: "USER_CREATED", Object: "user", ObjectID: "u|1", ActorID: "u7", IPAddress: "192.0.2.7"}}
	const head = `<108>1 2026-01-15T09:30:00.000005Z - gatehouse - decision [gatehouse@32473 tenant="a\"\]\\b" environment="production" chain="decisions.basic" position="812" hash="9b" previousHash="51"] `
	const cefDecision = `CEF:0|gatehouse|gatehouse|1|decision|Decision DENY|6|externalId=d-1 cat=decision outcome=DENY act=read suid=bob request=/payments reason=no\nway \= no cs6Label=policy cs6=pay\=ments|\\x ` +
		`c6a2Label=Source IPv6 Address c6a2=2001:db8::7 rt=1768469400000 cs1Label=chain cs1=decisions.basic cn1Label=position cn1=812 cs2Label=hash cs2=9b cs3Label=previousHash cs3=51 ` +
		`cs4Label=environment cs4=production cs5Label=tenant cs5=a"]\\b`
	const cefEvent = `CEF:0|gatehouse|gatehouse|1|USER_CREATED|USER_CREATED|3|externalId=93 cat=audit act=USER_CREATED suid=u7 msg=user u|1 src=192.0.2.7 rt=1768469400000 cs1Label=chain cs1=events ` +
		`cn1Label=position cn1=93 cs2Label=hash cs2=c0 cs3Label=previousHash cs3=aa cs5Label=tenant cs5=default`
	line, err := jsonLine(decision)
	errtest.Must(t, err)
	counted := func(text string) string { return fmt.Sprintf("%d %s", len(text), text) }
	for _, tc := range []struct {
		endpoint, format, want string
		line                   tail.Line
	}{
		{"https://siem.example.com", "", string(line) + "\n", decision},
		{"https://siem.example.com", "cef", cefDecision + "\n", decision},
		{"https://siem.example.com", "rfc5424", head + string(line) + "\n", decision},
		{"syslog+tls://siem.example.com", "", counted(head + string(line)), decision},
		{"syslog+tls://siem.example.com", "cef", counted(head + cefDecision), decision},
		{"https://siem.example.com", "cef", cefEvent + "\n", event},
	} {
		it := Integration{Kind: SIEM, Endpoint: tc.endpoint, Settings: map[string]any{}}
		if tc.format != "" {
			it.Settings[settingFormat] = tc.format
		}
		if got, err := encode(it, []tail.Line{tc.line}); err != nil || string(got) != tc.want {
			t.Errorf("encode for %s in format %q: error %v\n got %s\nwant %s", tc.endpoint, tc.format, err, got, tc.want)
		}
	}
}

// TestLongEntries checks that an entry that is too long for a syslog server is shortened, says so,
// and keeps its position in its chain.
func TestLongEntries(t *testing.T) {
	long := strings.Repeat(`ä"=|\`, 4000)
	huge, err := json.Marshal(long)
	errtest.Must(t, err)
	entry := func(d audit.Decision) tail.Line {
		record, err := json.Marshal(d)
		errtest.Must(t, err)
		return tail.Line{Chain: "decisions.detailed", Position: 7, Hash: "9b", Tenant: "default", Decision: record}
	}
	for name, tc := range map[string]struct {
		line tail.Line
		want string
	}{
		"trace":    {entry(audit.Decision{DecisionID: "d", Trace: huge, Input: json.RawMessage(`{"a":1}`)}), `"input":{"a":1}`},
		"input":    {entry(audit.Decision{DecisionID: "d", Trace: huge, Input: huge}), `"shortened":["decision.trace","decision.input"]`},
		"all":      {entry(audit.Decision{DecisionID: long, Reason: long, Action: long, User: audit.User{ID: long, Email: long}, Resource: audit.Resource{Path: long}, IPAddress: long}), `"shortened":["decision"]`},
		"an event": {tail.Line{Chain: "events", Position: 7, Event: &audit.Event{ID: 7, Type: "TRIED", Changes: map[string]any{"x": long}}}, `"shortened":["event.changes"]`},
	} {
		for _, kind := range []string{formatSyslog, formatCEF} {
			text, err := entryText(kind, true, tc.line)
			if err != nil || len(text) > maxMessage || !strings.Contains(string(text), `position="7"`) {
				t.Errorf("%s as %s: %d bytes, error %v, want at most %d with the position", name, kind, len(text), err, maxMessage)
			}
			if kind == formatSyslog && !strings.Contains(string(text), tc.want) {
				t.Errorf("%s: the text is %s, want %s in it", name, text, tc.want)
			}
		}
	}
}

// TestRsyslog checks that rsyslog with TLS gets both logs complete, even if it is killed with
// SIGKILL.
func TestRsyslog(t *testing.T) {
	fulltest.Only(t)
	bin, err := exec.LookPath("rsyslogd")
	if err != nil {
		bin = "/usr/sbin/rsyslogd"
	}
	drivers, err := filepath.Glob("/usr/lib/*/rsyslog/lmnsd_ossl.so")
	if _, missing := os.Stat(bin); missing != nil || err != nil || len(drivers) == 0 {
		t.Skip("rsyslog with OpenSSL is not installed")
	}
	dbtest.Each(t, func(t *testing.T, cluster *db.Cluster) {
		b, dir, address := newBench(t, cluster), t.TempDir(), freeport.Addr(t)
		r := &rsyslog{bin: bin, dir: dir, address: address}
		ca := r.configure(t)
		b.record(20)
		it := b.create(Draft{Name: "siem", Kind: SIEM, Endpoint: syslogScheme + address, Settings: map[string]any{"start": "oldest", "ca_certificates": ca}})
		for range 2 {
			b.turn("a", it.ID) // the server is down
			if got, err := b.Get(ctx, admin, it.ID); err != nil || got.LastError == "" {
				t.Fatalf("without the server: %+v, error %v, want an error", got, err)
			}
			stop := r.start(t)
			b.record(5)
			b.clock.Move(longestWait)
			b.turn("a", it.ID)
			if got, err := b.Get(ctx, admin, it.ID); err != nil || got.LastError != "" {
				t.Fatalf("with the server: %+v, error %v, want no error\n%s", got, err, r.log.String())
			}
			r.waitForLogs(t, b)
			stop()
			b.record(5)
			b.clock.Move(longestWait)
		}
	})
}

// rsyslog is a real rsyslog process.
type rsyslog struct {
	bin, dir, address string
	log               *lockedBuffer
}

// lockedBuffer collects the output of a process.
type lockedBuffer struct {
	mu sync.Mutex
	strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.String()
}

// configure writes the configuration and returns the certificate of the server.
func (r *rsyslog) configure(t *testing.T) (ca string) {
	t.Helper()
	cert, key := selfSigned(t)
	host, port, err := net.SplitHostPort(r.address)
	errtest.Must(t, err)
	conf := strings.NewReplacer("DIR", r.dir, "HOST", host, "PORT", port).Replace(`
global(workDirectory="DIR" maxMessageSize="64k" defaultNetstreamDriver="ossl" defaultNetstreamDriverCAFile="DIR/cert.pem" defaultNetstreamDriverCertFile="DIR/cert.pem" defaultNetstreamDriverKeyFile="DIR/key.pem")
module(load="imtcp" streamDriver.name="ossl" streamDriver.mode="1" streamDriver.authMode="anon")
template(name="message" type="string" string="%msg%\n")
input(type="imtcp" address="HOST" port="PORT")
action(type="omfile" file="DIR/messages" template="message")
`)
	for name, text := range map[string]string{"cert.pem": cert, "key.pem": key, "rsyslog.conf": conf} {
		errtest.Must(t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600))
	}
	return cert
}

// start starts the server and waits until it listens. stop kills it.
func (r *rsyslog) start(t *testing.T) (stop func()) {
	t.Helper()
	r.log = &lockedBuffer{}
	cmd := exec.Command(r.bin, "-n", "-f", filepath.Join(r.dir, "rsyslog.conf"), "-i", filepath.Join(r.dir, "pid"))
	cmd.Stdout, cmd.Stderr = r.log, r.log
	errtest.Must(t, cmd.Start())
	var once sync.Once
	stop = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = os.Remove(filepath.Join(r.dir, "pid"))
		})
	}
	t.Cleanup(stop)
	r.waitFor(t, func() error {
		conn, err := net.Dial("tcp", r.address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return stop
}

// waitForLogs waits until the server has written both logs, without a gap.
func (r *rsyslog) waitForLogs(t *testing.T, b *bench) {
	t.Helper()
	rep, err := b.log.Verify(ctx, admin)
	errtest.Must(t, err)
	r.waitFor(t, func() error {
		text, err := os.ReadFile(filepath.Join(r.dir, "messages"))
		if err != nil {
			return err
		}
		s := &siem{ends: map[string]tail.End{}, seen: map[string]bool{}}
		s.take(string(text))
		if len(s.gaps) > 0 {
			return fmt.Errorf("the messages have the gaps %v, want none", s.gaps)
		}
		for _, c := range rep.Chains {
			if s.ends[c.Name].Hash != c.Head {
				return fmt.Errorf("%s ends with %+v, want %s", c.Name, s.ends[c.Name], c.Head)
			}
		}
		return nil
	})
}

// waitFor waits until check returns nil. A failure shows the output of the server.
func (r *rsyslog) waitFor(t *testing.T, check func() error) {
	t.Helper()
	timetest.Eventually(t, time.Minute, func() error {
		if err := check(); err != nil {
			return fmt.Errorf("%w\n%s", err, r.log)
		}
		return nil
	})
}

// selfSigned returns a certificate for 127.0.0.1 and its key, in PEM.
func selfSigned(t *testing.T, uses ...x509.ExtKeyUsage) (cert, key string) {
	t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.Must(t, err)
	wanted := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: append(uses, x509.ExtKeyUsageServerAuth),
	}
	der, err := x509.CreateCertificate(rand.Reader, wanted, wanted, &pair.PublicKey, pair)
	errtest.Must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(pair)
	errtest.Must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// mailServer is a mail server that records what it gets.
type mailServer struct {
	mu      sync.Mutex
	mails   []receivedMail
	methods []string
	reply   error // the reply to a mail; nil: that of go-smtp
}

type receivedMail struct {
	from, user, method string
	to                 []string
	encrypted          bool
	raw                string
}

// NewSession starts a session.
func (p *mailServer) NewSession(c *smtp.Conn) (smtp.Session, error) {
	_, encrypted := c.TLSConnectionState()
	return &mailSession{server: p, mail: receivedMail{encrypted: encrypted}}, nil
}

type mailSession struct {
	server *mailServer
	mail   receivedMail
}

func (s *mailSession) AuthMechanisms() []string { return s.server.methods }

// Auth accepts only the methods that the tests use.
func (s *mailSession) Auth(method string) (sasl.Server, error) {
	check := func(user, password string) error {
		if user != "robot" || password != "passw0rd" {
			return &smtp.SMTPError{Code: 535, Message: "wrong password passw0rd?"}
		}
		s.mail.user, s.mail.method = user, method
		return nil
	}
	switch method {
	case sasl.Plain:
		return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
	case "LOGIN":
		return &loginServer{check: check}, nil
	case "XOAUTH2":
		return xoauth2Server(func(response string) error {
			if response != "user=robot\x01auth=Bearer t0ken\x01\x01" {
				return errors.New("wrong token")
			}
			return check("robot", "passw0rd")
		}), nil
	}
	return nil, smtp.ErrAuthUnknownMechanism
}

type loginServer struct {
	check func(user, password string) error
	got   []string
}

// Next asks for the name, then for the password.
func (l *loginServer) Next(response []byte) ([]byte, bool, error) {
	if response != nil {
		l.got = append(l.got, string(response))
	}
	switch len(l.got) {
	case 0:
		return []byte("Username:"), false, nil
	case 1:
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.got[0], l.got[1])
}

type xoauth2Server func(response string) error

// Next checks the token.
func (x xoauth2Server) Next(response []byte) ([]byte, bool, error) {
	return nil, true, x(string(response))
}

func (s *mailSession) Mail(from string, _ *smtp.MailOptions) error {
	s.mail.from = from
	return nil
}

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.mail.to = append(s.mail.to, to)
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	s.mail.raw = string(raw)
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.server.reply != nil {
		return s.server.reply
	}
	s.server.mails = append(s.server.mails, s.mail)
	return err
}

func (s *mailSession) Reset()        {}
func (s *mailSession) Logout() error { return nil }

// open starts the mail server, with implicit TLS, STARTTLS or no encryption, and returns its
// address.
func (p *mailServer) open(t *testing.T, encryption string, certificate *tls.Config) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.Must(t, err)
	address := l.Addr().String()
	s := smtp.NewServer(p)
	s.Domain = "mail.test"
	switch encryption {
	case format.ImplicitTLS:
		l = tls.NewListener(l, certificate)
	case format.StartTLS:
		s.TLSConfig = certificate
	}
	var done sync.WaitGroup
	done.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { _ = s.Close(); done.Wait() })
	return address
}

// TestMail checks each encryption with each way to sign in.
func TestMail(t *testing.T) {
	own, pool := outboundtest.Certificate(t)
	password := map[string]any{"username": "robot", "password": "passw0rd"}
	for _, c := range []struct {
		encryption, auth string
		credential       map[string]any
	}{
		{format.StartTLS, format.AuthPlain, password},
		{format.StartTLS, format.AuthLogin, password},
		{format.StartTLS, format.AuthXOAUTH2, map[string]any{"username": "robot", "access_token": "t0ken"}},
		{format.ImplicitTLS, format.AuthPlain, password},
		{format.ImplicitTLS, format.AuthLogin, password},
		{format.ImplicitTLS, format.AuthXOAUTH2, map[string]any{"username": "robot", "client_id": "id", "client_secret": "cl1ent"}},
		{format.StartTLS, "", nil},
		{format.NoTLS, "", nil},
	} {
		t.Run(c.encryption+" "+c.auth, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, cluster *db.Cluster) {
				b := newBenchTrusting(t, cluster, pool)
				server := &mailServer{methods: []string{"PLAIN", "LOGIN", "XOAUTH2"}}
				tokens := newReceiver(t)
				tokens.set(func(r recorded) (int, string) {
					if !strings.Contains(r.body, "client_secret=cl1ent") || !strings.Contains(r.body, "grant_type=client_credentials") {
						return 401, ""
					}
					return 200, `{"access_token":"t0ken","token_type":"bearer"}`
				})
				settings := map[string]any{"from": "Gatehouse <gatehouse@example.com>", "to": []any{"ann@example.com", "Bob <bob@example.com>"}, "tls": c.encryption}
				if c.auth != "" {
					settings["auth"] = c.auth
				}
				if c.credential["client_id"] != nil {
					settings["token_url"] = tokens.URL
				}
				d := Draft{Type: format.Email, Endpoint: server.open(t, c.encryption, own), Settings: settings}
				if c.credential != nil {
					d.Credential = c.credential
				}
				ch := b.channel(d)
				b.queue(Note{
					Fault: "f", Severity: format.Critical, Title: "Der Bouncer „edge“ ist weg\r\nBcc: eve@example.com", Text: "Ärger\n.\nQUIT", Env: scope.Sandbox,
					Facts: []format.Fact{{Name: "api_key", Value: "k3y"}, {Name: "bouncer", Value: "edge"}}, Path: "/bouncers/4",
				})
				b.runLane("a", ch)
				if len(server.mails) != 1 {
					t.Fatalf("the server got %d mails, want 1: %+v", len(server.mails), b.deliveries(DeliveryFilter{})[0])
				}
				got := server.mails[0]
				if got.from != "gatehouse@example.com" || fmt.Sprint(got.to) != "[ann@example.com bob@example.com]" || got.encrypted != (c.encryption != format.NoTLS) {
					t.Errorf("the mail is %+v, want both recipients, and encryption as configured", got)
				}
				if c.auth != "" && (got.user != "robot" || !strings.EqualFold(got.method, c.auth)) {
					t.Errorf("signed in as %q with %q, want robot with %q", got.user, got.method, c.auth)
				}
				checkMail(t, got.raw)
			})
		})
	}
}

// checkMail reads a mail as a mail client does.
func checkMail(t *testing.T, raw string) {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(raw))
	errtest.Must(t, err)
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil || subject != "[critical] Der Bouncer „edge“ ist weg Bcc: eve@example.com" {
		t.Errorf("the subject is %q, %v, want one line", subject, err)
	}
	if m.Header.Get("Bcc") != "" || m.Header.Get("Message-ID") != "<ntf_f_0@example.com>" || m.Header.Get("Importance") != "high" {
		t.Errorf("the header is %v, want an id and the importance, and no Bcc", m.Header)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	errtest.Must(t, err)
	for _, want := range []string{"Ärger\r\n.\r\nQUIT", "bouncer: edge", "api_key: [redacted]", "https://gatehouse.example.com/bouncers/4", "environment: sandbox"} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the body is %q, want %q in it", body, want)
		}
	}
}

// TestMailRefusals checks that refusals are shown in the words of the mail server, without the
// credential, and that no secret is sent over a connection without encryption.
func TestMailRefusals(t *testing.T) {
	own, pool := outboundtest.Certificate(t)
	dbtest.Each(t, func(t *testing.T, cluster *db.Cluster) {
		ctx := context.Background()
		b := newBenchTrusting(t, cluster, pool)
		settings := func(tls string) map[string]any {
			return map[string]any{"from": "g@example.com", "to": "ann@example.com", "tls": tls}
		}
		password := map[string]any{"username": "robot", "password": "passw0rd"}
		for name, c := range map[string]struct {
			server     *mailServer
			serves     string
			settings   map[string]any
			credential any
			code       int
			want       string
		}{
			"refused": {&mailServer{reply: &smtp.SMTPError{Code: 554, Message: "no room for passw0rd"}, methods: []string{"PLAIN"}}, format.StartTLS, settings("starttls"), password, 554, "no room for [redacted]"},
			"repeats AUTH": {
				&mailServer{reply: &smtp.SMTPError{Code: 550, Message: "bad command AHJvYm90AHBhc3N3MHJk"}, methods: []string{"PLAIN"}},
				format.StartTLS, settings("starttls"), password, 550, "bad command [redacted]",
			},
			"repeats it at the cut": {
				&mailServer{reply: &smtp.SMTPError{Code: 550, Message: strings.Repeat("x", 187) + " passw0rd"}, methods: []string{"PLAIN"}},
				format.StartTLS, settings("starttls"), password, 550, "x [r",
			},
			"no STARTTLS":      {&mailServer{methods: []string{"PLAIN"}}, format.NoTLS, settings("starttls"), password, 0, "STARTTLS"},
			"no such AUTH":     {&mailServer{methods: []string{"XOAUTH2"}}, format.StartTLS, settings("starttls"), password, 0, "authentication method"},
			"a wrong password": {&mailServer{methods: []string{"PLAIN"}}, format.ImplicitTLS, settings("implicit"), map[string]any{"username": "robot", "password": "wr0ng"}, 535, "wrong password"},
		} {
			ch := b.channel(Draft{Name: name, Type: format.Email, Endpoint: c.server.open(t, c.serves, own), Settings: c.settings, Credential: c.credential})
			res, err := b.Test(ctx, admin, ch.ID)
			errtest.Must(t, err)
			if text := res.Response + res.Error; res.Delivered || res.ResponseCode != c.code || !strings.Contains(text, c.want) || strings.Contains(text, "passw0rd") && name == "refused" {
				t.Errorf("%s: Test = %+v, want %d with %q", name, res, c.code, c.want)
			}
		}
		foreign := newBench(t, cluster) // it does not trust the certificate
		ch := b.channel(Draft{Name: "foreign", Type: format.Email, Endpoint: (&mailServer{}).open(t, format.ImplicitTLS, own), Settings: settings("implicit")})
		if res, err := foreign.Test(ctx, admin, ch.ID); err != nil || !strings.Contains(res.Error, "certificate") {
			t.Errorf("Test without trust in the certificate = %+v, %v, want an error about it", res, err)
		}
		_, err := b.Create(ctx, admin, Draft{Name: "clear", Type: format.Email, Endpoint: "127.0.0.1:25", Settings: settings("none"), Credential: password})
		if err == nil {
			t.Error("Create with a password without TLS: no error")
		}
	})
}

// TestMailReply checks that the mail server's reply to an accepted mail, such as its queue id, is
// shown without the credential.
func TestMailReply(t *testing.T) {
	own, pool := outboundtest.Certificate(t)
	dbtest.Each(t, func(t *testing.T, cluster *db.Cluster) {
		b := newBenchTrusting(t, cluster, pool)
		for name, c := range map[string]struct{ reply, want string }{
			"one line":     {"queued as A1B2", "queued as A1B2"},
			"two lines":    {"queued\nas A1B2", "queued as A1B2"},
			"a credential": {"taken from passw0rd", "taken from [redacted]"},
			"a long line":  {strings.Repeat("x", 300), strings.Repeat("x", 197) + "…"},
		} {
			server := &mailServer{reply: &smtp.SMTPError{Code: 250, EnhancedCode: smtp.NoEnhancedCode, Message: c.reply}, methods: []string{"PLAIN"}}
			ch := b.channel(Draft{
				Name: name, Type: format.Email, Endpoint: server.open(t, format.StartTLS, own),
				Settings:   map[string]any{"from": "g@example.com", "to": "ann@example.com", "tls": "starttls"},
				Credential: map[string]any{"username": "robot", "password": "passw0rd"},
			})
			res, err := b.Test(context.Background(), admin, ch.ID)
			if err != nil || !res.Delivered || res.ResponseCode != 250 || res.Response != c.want {
				t.Errorf("%s: Test = %+v, %v, want delivered with 250 %q", name, res, err, c.want)
			}
		}
	})
}

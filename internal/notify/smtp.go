package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/smtp"
	"net/textproto"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// errNoStartTLS means that the server offers no encryption, which the channel requires.
var errNoStartTLS = errors.New("the server does not offer STARTTLS")

// errNoAuth means that the server does not offer the authentication method of the channel.
var errNoAuth = errors.New("the server does not offer the configured authentication method")

// Reply codes (RFC 5321): the server waits for the mail; the server accepted it.
const (
	startMail = 354
	accepted  = 250
)

// mail sends a message to all recipients of a channel in one SMTP transaction.
func (s *Service) mail(ctx context.Context, c format.Channel, m format.Message) Attempt {
	ctx, cancel := s.Target.WithTimeout(ctx)
	defer cancel()
	mail, err := format.Compose(c, m, s.Now())
	if err != nil {
		return Attempt{Error: "the message cannot be written"}
	}
	server, err := c.MailServer()
	if err != nil {
		return Attempt{Error: err.Error()}
	}
	conn, err := s.Target.Dial(ctx, server)
	if err != nil {
		return Attempt{Error: fault.Message(err)}
	}
	defer conn.Close()
	reply, err := s.sendMail(ctx, conn, server, c, mail)
	return smtpResult(reply, err, c)
}

// smtpResult turns the end of an SMTP session into an Attempt. answer is the server's reply to the
// mail; err says why the server did not accept it.
func smtpResult(answer string, err error, c format.Channel) Attempt {
	reply, replied := errors.AsType[*textproto.Error](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case err == nil:
		return Attempt{ResponseCode: accepted, Response: format.Line(c.Redact(answer))}
	case replied:
		return Attempt{ResponseCode: reply.Code, Response: format.Line(c.Redact(reply.Msg)), Error: "the mail server refused the message"}
	case untrusted:
		return Attempt{Error: "the certificate of the mail server is not valid"}
	case errors.Is(err, errNoStartTLS), errors.Is(err, errNoAuth):
		return Attempt{Error: err.Error()}
	}
	return Attempt{Error: "the target could not be reached"}
}

// sendMail sends a mail and returns the server's reply to it.
func (s *Service) sendMail(ctx context.Context, conn net.Conn, server outbound.Server, c format.Channel, mail format.Mail) (reply string, err error) {
	settings := s.Target.TLS(server.Host)
	if c.Encryption() == format.ImplicitTLS {
		encrypted := tls.Client(conn, settings)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return "", err
		}
		conn = encrypted
	}
	client, err := smtp.NewClient(conn, server.Host)
	if err != nil {
		return "", err
	}
	_, domain, _ := strings.Cut(mail.From, "@")
	if err := client.Hello(domain); err != nil {
		return "", err
	}
	if c.Encryption() == format.StartTLS {
		if offered, _ := client.Extension("STARTTLS"); !offered {
			return "", errNoStartTLS
		}
		if err := client.StartTLS(settings); err != nil {
			return "", err
		}
	}
	if method := c.MailAuth(); method != "" {
		if err := signIn(client, method, server.Host, c); err != nil {
			return "", err
		}
	}
	if err := client.Mail(mail.From); err != nil {
		return "", err
	}
	for _, to := range mail.To {
		if err := client.Rcpt(to); err != nil {
			return "", err
		}
	}
	reply, err = sendData(client, mail.Body)
	if err != nil {
		return "", err
	}
	_ = client.Quit() // the server has accepted the mail already
	return reply, nil
}

// sendData sends the body of a mail and returns the server's reply, which often contains the mail's
// id in the server's queue. smtp.Client.Data would drop it.
func sendData(client *smtp.Client, body []byte) (reply string, err error) {
	if err := client.Text.PrintfLine("DATA"); err != nil {
		return "", err
	}
	if _, _, err := client.Text.ReadResponse(startMail); err != nil {
		return "", err
	}
	w := client.Text.DotWriter()
	if _, err := w.Write(body); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	_, reply, err = client.Text.ReadResponse(accepted)
	return reply, err
}

// signIn authenticates with the method of the channel. The methods send secrets in clear, so they
// need TLS.
func signIn(client *smtp.Client, method, host string, c format.Channel) error {
	offered, methods := client.Extension("AUTH")
	name := map[string]string{format.AuthPlain: "PLAIN", format.AuthLogin: "LOGIN", format.AuthXOAUTH2: "XOAUTH2"}[method]
	known := false
	for m := range strings.FieldsSeq(methods) {
		known = known || strings.EqualFold(m, name)
	}
	if !offered || !known {
		return errNoAuth
	}
	user, password := c.Credential[format.Username], c.Credential[format.Password]
	switch method {
	case format.AuthLogin:
		return client.Auth(&loginAuth{user: user, password: password})
	case format.AuthXOAUTH2:
		token := c.Token
		if token == "" {
			token = c.Credential[format.AccessToken]
		}
		return client.Auth(&tokenAuth{user: user, token: token})
	}
	return client.Auth(smtp.PlainAuth("", user, password, host))
}

// errNotEncrypted is returned instead of sending secrets over a connection without TLS.
var errNotEncrypted = errors.New("the connection is not encrypted")

// loginAuth is the AUTH method LOGIN: the server asks for the user name, then for the password.
type loginAuth struct {
	user, password string
	asked          int
}

// Start selects the method. It fails without TLS.
func (a *loginAuth) Start(server *smtp.ServerInfo) (string, []byte, error) {
	if !server.TLS {
		return "", nil, errNotEncrypted
	}
	return "LOGIN", nil, nil
}

// Next sends the user name, then the password.
func (a *loginAuth) Next(_ []byte, more bool) ([]byte, error) {
	if !more {
		return nil, nil
	}
	a.asked++
	switch a.asked {
	case 1:
		return []byte(a.user), nil
	case 2:
		return []byte(a.password), nil
	}
	return nil, errors.New("the server requires more than name and password")
}

// tokenAuth is the AUTH method XOAUTH2.
type tokenAuth struct{ user, token string }

// Start sends the initial response, which contains everything that the method needs. It fails
// without TLS.
func (a *tokenAuth) Start(server *smtp.ServerInfo) (string, []byte, error) {
	if !server.TLS {
		return "", nil, errNotEncrypted
	}
	response := "user=" + a.user + "\x01auth=Bearer " + a.token + "\x01\x01"
	return "XOAUTH2", []byte(response), nil
}

// Next answers the description of an error with an empty response, so that the server ends the
// exchange with the error.
func (a *tokenAuth) Next(_ []byte, more bool) ([]byte, error) {
	if more {
		return []byte{}, nil
	}
	return nil, nil
}

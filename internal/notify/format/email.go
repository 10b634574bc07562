package format

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// The ways to encrypt the connection to a mail server.
const (
	StartTLS    = "starttls"
	ImplicitTLS = "implicit"
	NoTLS       = "none"
)

// The methods to sign in to a mail server.
const (
	AuthPlain   = "plain"
	AuthLogin   = "login"
	AuthXOAUTH2 = "xoauth2"
)

// maxRecipients is the largest number of recipients of one channel.
const maxRecipients = 50

// emailType sends mail.
func emailType() Type {
	return Type{
		Name: Email, Secrets: []string{Password, Username, AccessToken, ClientID, ClientSecret},
		Settings: []Setting{
			{Name: "from", Kind: kindText, Required: true},
			{Name: "to", Kind: kindList, Required: true},
			{Name: "tls", Kind: kindChoice, Values: []string{StartTLS, ImplicitTLS, NoTLS}},
			{Name: "auth", Kind: kindChoice, Values: []string{AuthPlain, AuthLogin, AuthXOAUTH2}},
			{Name: "token_url", Kind: kindText, With: ClientID},
			{Name: "scope", Kind: kindText},
			{Name: "client_auth", Kind: kindChoice, Values: clientAuth()},
		},
		Credentials: [][]string{{}, {Username, Password}, {Username, AccessToken}, {Username, ClientID, ClientSecret}},
		more: func(c *checks) {
			if _, err := c.MailServer(); err != nil {
				c.add("/endpoint", err.Error())
			}
			if s := c.text("from"); s != "" {
				if _, err := parseAddress(s); err != nil {
					c.add("/settings/from", "is not a mail address")
				}
			}
			c.recipients()
			if c.text("auth") == AuthXOAUTH2 {
				c.secrets([]string{Username, AccessToken}, []string{Username, ClientID, ClientSecret})
			} else {
				c.secrets([]string{}, []string{Username, Password})
			}
			if len(c.Credential) > 0 && c.text("tls") == NoTLS {
				c.add("/settings/tls", "a credential is not sent over a connection without TLS")
			}
		},
	}
}

// plainAddress matches an address that every mail server reads the same way: its local part needs
// no quotes, and its domain is a host name.
var plainAddress = regexp.MustCompile(`^[^\s<>()\[\]\\,;:@"[:cntrl:]]+@[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

// parseAddress reads a mail address, with or without a name. It accepts only addresses that need no
// quotes, because the address is written into SMTP commands without them. There, "x>
// SIZE=1"@example.com could add parameters.
func parseAddress(text string) (*mail.Address, error) {
	a, err := mail.ParseAddress(text)
	if err != nil {
		return nil, err
	}
	if len(a.Address) > 254 || !plainAddress.MatchString(a.Address) { // RFC 5321, section 4.5.3.1.3
		return nil, errors.New("not an address that every mail server accepts")
	}
	return a, nil
}

// clientAuth lists the ways an OAuth client can authenticate at its token endpoint.
func clientAuth() []string { return []string{"body", "basic"} }

// recipients checks the addresses in the setting "to".
func (c *checks) recipients() {
	to, _ := c.list("to")
	if len(to) > maxRecipients {
		c.add("/settings/to", fmt.Sprintf("must not have more than %d addresses", maxRecipients))
	}
	for _, address := range to {
		if _, err := parseAddress(address); err != nil {
			c.add("/settings/to", "contains a text that is not a mail address")
		}
	}
}

// Encryption returns how the connection to the mail server is encrypted.
func (c Channel) Encryption() string {
	if s := c.text("tls"); s != "" {
		return s
	}
	if strings.HasPrefix(c.Endpoint, "smtps://") {
		return ImplicitTLS
	}
	return StartTLS
}

// MailAuth returns the method to sign in to the mail server; "": no sign-in.
func (c Channel) MailAuth() string {
	if len(c.Credential) == 0 {
		return ""
	}
	if s := c.text("auth"); s != "" {
		return s
	}
	return AuthPlain
}

// MailServer returns the server of a mail channel, whose endpoint is smtp://host:port,
// smtps://host:port or host:port. The default port is 465 with implicit TLS and 587 otherwise.
func (c Channel) MailServer() (outbound.Server, error) {
	none := outbound.Server{}
	u, err := url.Parse(c.URL())
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || u.User != nil || u.Opaque != "" ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return none, fmt.Errorf("must be smtp://host:port or smtps://host:port")
	}
	if u.Scheme == "smtps" && c.Encryption() != ImplicitTLS {
		return none, fmt.Errorf("smtps:// goes with implicit TLS only")
	}
	m := outbound.Server{Host: u.Hostname(), Port: 587, Plain: c.Encryption() == NoTLS}
	if c.Encryption() == ImplicitTLS {
		m.Port = 465
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return none, fmt.Errorf("has an invalid port")
		}
		m.Port = uint16(n)
	}
	return m, nil
}

// Mail is a mail to be sent over SMTP.
type Mail struct {
	From string
	To   []string
	// Body contains headers and text, with CRLF line ends.
	Body []byte
}

// Compose returns the mail for a message. sent becomes its Date.
func Compose(c Channel, m Message, sent time.Time) (Mail, error) {
	from, err := parseAddress(c.text("from"))
	if err != nil {
		return Mail{}, fmt.Errorf("the setting from: %w", err)
	}
	list, _ := c.list("to")
	out := Mail{From: from.Address}
	var shown []string
	for _, s := range list {
		to, err := parseAddress(s)
		if err != nil {
			return Mail{}, fmt.Errorf("the setting to: %w", err)
		}
		out.To, shown = append(out.To, to.Address), append(shown, to.String())
	}
	_, domain, _ := strings.Cut(from.Address, "@")
	var b bytes.Buffer
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	header("From", from.String())
	header("To", strings.Join(shown, ",\r\n "))
	header("Subject", mime.QEncoding.Encode("utf-8", m.head()))
	header("Date", sent.UTC().Format(time.RFC1123Z))
	header("Message-ID", "<"+m.ID+"@"+domain+">")
	header("Auto-Submitted", "auto-generated") // RFC 3834: no automatic replies
	if m.Severity == Critical && m.Status == Firing {
		header("Importance", "high")
	}
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	if _, err := w.Write([]byte(strings.ReplaceAll(m.plain(), "\n", "\r\n"))); err != nil {
		return Mail{}, err
	}
	if err := w.Close(); err != nil {
		return Mail{}, err
	}
	out.Body = b.Bytes()
	return out, nil
}

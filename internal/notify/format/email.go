package format

import (
	"bytes"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// How the connection to a mail server is encrypted.
const (
	StartTLS    = "starttls"
	ImplicitTLS = "implicit"
	NoTLS       = "none"
)

// How to sign in to a mail server.
const (
	AuthPlain   = "plain"
	AuthLogin   = "login"
	AuthXOAUTH2 = "xoauth2"
)

// maxRecipients bounds the recipients of one channel.
const maxRecipients = 50

// emailType sends mail.
func emailType() Type {
	return Type{
		Name: Email, Secrets: []string{Password, Username, AccessToken, ClientID, ClientSecret},
		Check: func(ch Channel) []fault.Detail {
			c := &checks{Channel: ch}
			if _, err := c.MailServer(); err != nil {
				c.add("/endpoint", err.Error())
			}
			c.required("from")
			if s := c.text("from"); s != "" {
				if _, err := mail.ParseAddress(s); err != nil {
					c.add("/settings/from", "is no mail address")
				}
			}
			c.recipients()
			c.oneOf("tls", StartTLS, ImplicitTLS, NoTLS)
			c.oneOf("auth", AuthPlain, AuthLogin, AuthXOAUTH2)
			c.texts("token_url", "scope")
			if c.text("auth") == AuthXOAUTH2 {
				c.secrets([]string{Username, AccessToken}, []string{Username, ClientID, ClientSecret})
				c.tokenURL()
			} else {
				c.secrets([]string{}, []string{Username, Password})
			}
			if len(c.Credential) > 0 && c.text("tls") == NoTLS {
				c.add("/settings/tls", "a credential is not sent over a connection without TLS")
			}
			return c.found
		},
	}
}

// recipients checks the setting to.
func (c *checks) recipients() {
	to, ok := c.list("to")
	switch {
	case !ok:
		c.add("/settings/to", "must be a mail address or a list of them")
	case len(to) == 0:
		c.add("/settings/to", "is required for this type of channel")
	case len(to) > maxRecipients:
		c.add("/settings/to", fmt.Sprintf("must not have more than %d addresses", maxRecipients))
	}
	for _, address := range to {
		if _, err := mail.ParseAddress(address); err != nil {
			c.add("/settings/to", "contains what is no mail address")
		}
	}
}

// tokenURL says that an OAuth client needs a URL that gives it tokens.
func (c *checks) tokenURL() {
	if c.Credential[ClientID] != "" && c.text("token_url") == "" {
		c.add("/settings/token_url", "is required for an OAuth client")
	}
}

// Encryption is how the connection to the mail server is encrypted.
func (c Channel) Encryption() string {
	if s := c.text("tls"); s != "" {
		return s
	}
	if strings.HasPrefix(c.Endpoint, "smtps://") {
		return ImplicitTLS
	}
	return StartTLS
}

// MailAuth is how to sign in to the mail server: a method, or "" for not at all.
func (c Channel) MailAuth() string {
	if len(c.Credential) == 0 {
		return ""
	}
	if s := c.text("auth"); s != "" {
		return s
	}
	return AuthPlain
}

// MailServer is the server of a mail channel: smtp://host:port, smtps://host:port or
// host:port. Without a port it is 465 with implicit TLS, else 587.
func (c Channel) MailServer() (outbound.MailServer, error) {
	none := outbound.MailServer{}
	raw := c.Endpoint
	if !strings.Contains(raw, "://") {
		raw = "smtp://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || u.User != nil || u.Opaque != "" ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return none, fmt.Errorf("must be smtp://host:port or smtps://host:port")
	}
	if u.Scheme == "smtps" && c.Encryption() != ImplicitTLS {
		return none, fmt.Errorf("smtps:// goes with implicit TLS only")
	}
	m := outbound.MailServer{Host: u.Hostname(), Port: 587, Plain: c.Encryption() == NoTLS}
	if c.Encryption() == ImplicitTLS {
		m.Port = 465
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return none, fmt.Errorf("has a port that is no port")
		}
		m.Port = uint16(n)
	}
	return m, nil
}

// Mail is a message for SMTP.
type Mail struct {
	From string
	To   []string
	// Body has headers and text, with CRLF.
	Body []byte
}

// Compose writes the mail for a message. sent is when it is sent.
func Compose(c Channel, m Message, sent time.Time) (Mail, error) {
	from, err := mail.ParseAddress(c.text("from"))
	if err != nil {
		return Mail{}, fmt.Errorf("the setting from: %w", err)
	}
	list, _ := c.list("to")
	out := Mail{From: from.Address}
	var shown []string
	for _, s := range list {
		to, err := mail.ParseAddress(s)
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
	header("Auto-Submitted", "auto-generated") // RFC 3834: nobody's absence note answers
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

package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// The values of the setting confirmation. A syslog server sends no answers. With confirmNotify a
// parcel is delivered once the server has answered its end with a close_notify, as RFC 5425
// requires. With confirmClose it is enough that the server closes the connection in order, for
// servers that send no close_notify.
const (
	confirmNotify = "close_notify"
	confirmClose  = "close"
)

const (
	syslogScheme = "syslog+tls://"
	syslogPort   = 6514
)

// The priorities of entries: facility 13 (log audit) with a severity.
const (
	priorityInfo    = 13*8 + 6
	priorityWarning = 13*8 + 4
)

// syslogAddress returns host and port of a syslog endpoint. It returns false for other endpoints.
func syslogAddress(endpoint string) (address string, ok bool) {
	return strings.CutPrefix(endpoint, syslogScheme)
}

// syslogServer returns the syslog server of an integration. It returns false if there is none. If
// the address is not valid, the server has no host, and package outbound refuses it.
func syslogServer(it Integration) (s outbound.StreamServer, ok bool, err error) {
	address, ok := syslogAddress(it.Endpoint)
	if !ok || it.Kind != SIEM {
		return s, false, nil
	}
	u, err := url.Parse("https://" + address)
	if err != nil || u.Host != address || u.User != nil {
		return s, true, nil
	}
	s.Host, s.Port = u.Hostname(), syslogPort
	if text := u.Port(); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || strconv.FormatUint(n, 10) != text {
			return outbound.StreamServer{}, true, nil
		}
		s.Port = uint16(n)
	}
	s.RootCAs, err = authorities(it.Settings[settingCAs])
	return s, true, err
}

// authorities reads PEM certificates from one string or a list of strings. It returns nil if there
// are none.
func authorities(setting any) (*x509.CertPool, error) {
	var texts []any
	switch v := setting.(type) {
	case string:
		texts = []any{v}
	case []any:
		texts = v
	}
	if len(texts) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	for _, t := range texts {
		text, _ := t.(string)
		if !pool.AppendCertsFromPEM([]byte(text)) {
			return nil, errors.New("must be certificates in PEM")
		}
	}
	return pool, nil
}

// checkSyslog returns the errors in the settings and the credential of a SIEM outside Kafka.
func checkSyslog(it Integration, secrets map[string]string) (offences []fault.Detail) {
	_, stream := syslogAddress(it.Endpoint)
	for _, name := range []string{settingTopic, settingMechanism} {
		if it.Settings[name] != nil {
			offences = append(offences, fault.Detail{Pointer: "/settings/" + name, Message: "is only for a kafka endpoint"})
		}
	}
	if secrets[format.Username] != "" {
		return append(offences, fault.Detail{Pointer: "/credential", Message: "a user with a password is only for a kafka endpoint"})
	}
	if !stream {
		for _, name := range []string{settingCAs, settingConfirm} {
			if it.Settings[name] != nil {
				offences = append(offences, fault.Detail{Pointer: "/settings/" + name, Message: "is only for a syslog+tls or kafka endpoint"})
			}
		}
		if secrets[clientCertificate] != "" {
			offences = append(offences, fault.Detail{Pointer: "/credential", Message: "a client certificate is only for a syslog+tls or kafka+tls endpoint"})
		}
		return offences
	}
	if it.Settings[settingFormat] == formatJSON {
		offences = append(offences, fault.Detail{Pointer: "/settings/" + settingFormat, Message: "a syslog server gets " + formatSyslog + " or " + formatCEF})
	}
	if len(secrets) == 0 {
		return offences
	}
	if secrets[clientCertificate] == "" {
		return append(offences, fault.Detail{Pointer: "/credential", Message: "a syslog server gets a client certificate, or nothing"})
	}
	if _, err := tls.X509KeyPair([]byte(secrets[clientCertificate]), []byte(secrets[clientKey])); err != nil {
		offences = append(offences, fault.Detail{Pointer: "/credential/" + clientCertificate, Message: "must be a certificate in PEM, with its key in " + clientKey})
	}
	return offences
}

// stream sends a parcel to a syslog server. It returns why the parcel was not delivered; "": it
// was. err is the error of syslogServer.
//
// Each parcel has its own connection. Closing it in order is the only way in which such a server
// can confirm that it has read everything. A parcel without this confirmation is sent again.
func (s *Service) stream(ctx context.Context, it Integration, server outbound.StreamServer, secrets map[string]string, body []byte, err error) string {
	if err != nil {
		return "ca_certificates: " + err.Error()
	}
	if secrets[clientCertificate] != "" {
		pair, err := tls.X509KeyPair([]byte(secrets[clientCertificate]), []byte(secrets[clientKey]))
		if err != nil {
			return "the client certificate cannot be read"
		}
		server.Certificate = &pair
	}
	notified, err := s.Target.SendStream(ctx, server, body)
	switch {
	case err != nil:
		return fault.Message(err)
	case !notified && it.Settings[settingConfirm] != confirmClose:
		return "the server closed the connection without close_notify; if it never sends one, set confirmation to close"
	}
	return ""
}

// syslogHead returns the header of an entry as an RFC 5424 message, with a space at its end. 32473
// is the enterprise number for examples (RFC 5612).
func syslogHead(l tail.Line) []byte {
	priority, kind := priorityInfo, "entry"
	switch {
	case l.Decision != nil:
		kind = "decision"
		var d struct {
			Decision string `json:"decision"`
		}
		if json.Unmarshal(l.Decision, &d) == nil && d.Decision == audit.Deny {
			priority = priorityWarning
		}
	case l.Event != nil:
		kind = "event"
	}
	var b strings.Builder
	b.WriteString("<" + strconv.Itoa(priority) + ">1 " + l.At.UTC().Format("2006-01-02T15:04:05.000000Z") + " - gatehouse - " + kind + " [gatehouse@32473")
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `]`, `\]`)
	for _, p := range [][2]string{
		{"tenant", l.Tenant},
		{"environment", string(l.Environment)},
		{"chain", l.Chain},
		{"position", strconv.FormatInt(l.Position, 10)},
		{"hash", l.Hash},
		{"previousHash", l.PreviousHash},
	} {
		b.WriteString(" " + p[0] + `="` + escape.Replace(p[1]) + `"`)
	}
	b.WriteString("] ")
	return []byte(b.String())
}

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
	"github.com/gatehouse-dev/gatehouse/internal/audit/follow"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// The values of the setting confirmation. A syslog server sends no answers. confirmNotify: a
// parcel is delivered once the server answers its end with a close_notify, as RFC 5425 demands.
// confirmClose: it is enough that the server closes the connection in order, for servers that
// send no close_notify.
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

// syslogAddress is host and port of an endpoint, if it is one of a syslog server.
func syslogAddress(endpoint string) (address string, ok bool) {
	return strings.CutPrefix(endpoint, syslogScheme)
}

// syslogServer is the syslog server of an integration; ok: it has one. Where its address is not
// spelled well, the server has no host, which the guard refuses.
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

// authorities reads certificates in PEM: one text, or a list of texts. Without any it is nil.
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

// checkSyslog lists what does not fit the protocol of a SIEM.
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

// stream sends a parcel to a syslog server and says why it was not delivered.
//
// Each parcel has a connection of its own. Its end, in order, is the only thing by which such a
// server can confirm that it has read everything. A parcel without that is sent again.
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

// syslogHead is the header of an entry as a message of RFC 5424, with a space at its end. 32473
// is the enterprise number for examples.
func syslogHead(l follow.Line) []byte {
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

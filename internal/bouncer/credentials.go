package bouncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// The actions of a credential.
const (
	SetHeader   = "set"   // the application gets this value, whatever the caller sent
	AddHeader   = "add"   // the application gets this value where the caller sent none
	StripHeader = "strip" // the application gets no such header
)

// maxCredentialBytes is the largest size of the value of a credential.
const maxCredentialBytes = 8 << 10

// Credential is one header that a bouncer sets, adds or strips on requests to the application. Its
// value can be written but never read.
type Credential struct {
	Header     string `json:"header" minLength:"1" maxLength:"64" doc:"Name of the header." example:"Authorization"`
	Action     string `json:"action" enum:"set,add,strip" doc:"set: the application gets this value, whatever the caller sent. add: it gets this value when the caller sent none. strip: the application does not get the header." example:"set"`
	ResourceID int64  `json:"resource_id,omitempty" minimum:"0" doc:"Apply it only to requests for this resource; absent: to all."`
	ValueSet   bool   `json:"value_set" readOnly:"true" doc:"Whether a value is stored. It is never returned."`
}

// CredentialDraft is a credential in a request.
type CredentialDraft struct {
	Header     string  `json:"header" minLength:"1" maxLength:"64" doc:"Name of the header." example:"Authorization"`
	Action     string  `json:"action,omitempty" enum:"set,add,strip" doc:"set by default; or add, or strip." example:"set"`
	ResourceID int64   `json:"resource_id,omitempty" minimum:"0" doc:"Apply it only to requests for this resource; absent: to all."`
	Value      *string `json:"value,omitempty" writeOnly:"true" maxLength:"8192" doc:"The complete header value, such as Bearer and a key. Absent: the value stored for this header and resource stays."`
}

// Credentials are the credentials of a bouncer.
type Credentials struct {
	BouncerID   int64        `json:"bouncer_id" doc:"The bouncer."`
	Credentials []Credential `json:"credentials" doc:"In the order in which they were set; values are never returned."`
}

// CredentialsChange replaces a bouncer's credentials.
type CredentialsChange struct {
	Credentials []CredentialDraft `json:"credentials" maxItems:"100" doc:"The complete list: credentials that it does not name are removed."`
}

// SealedCredential is a credential with its value, for the bouncer only.
type SealedCredential struct {
	Header     string `json:"header"`
	Action     string `json:"action"`
	ResourceID int64  `json:"resource_id,omitempty"`
	Value      string `json:"value,omitempty"`
}

// Credentials returns a bouncer's credentials without their values.
func (s *Service) Credentials(ctx context.Context, sc scope.Scope, id int64) (Credentials, error) {
	out := Credentials{BouncerID: id}
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		if _, err := load(ctx, tx, sc, id); err != nil {
			return err
		}
		row, err := storedCredentials(ctx, tx, id)
		out.Credentials = row.Rules
		return err
	})
	return out, err
}

// SetCredentials replaces a bouncer's credentials. A draft without a value keeps the stored value
// for its header and resource. If the stored values do not open, each value must be sent.
func (s *Service) SetCredentials(ctx context.Context, sc scope.Scope, id int64, c CredentialsChange) (Credentials, error) {
	out := Credentials{BouncerID: id}
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		b, err := load(ctx, tx, sc, id)
		if err != nil {
			return err
		}
		row, err := storedCredentials(ctx, tx, id)
		if err != nil {
			return err
		}
		kept, err := s.openCredentials(sc.Tenant, b, row)
		if err = c.replaces(err); err != nil {
			return err
		}
		next, offences := merged(c.Credentials, kept)
		more, err := checkCredentialResources(ctx, tx, b, next)
		if err != nil {
			return err
		}
		if offences = append(offences, more...); len(offences) > 0 {
			return invalid(offences)
		}
		b.CredentialsNo, b.ChangeNo, b.UpdatedAt = b.CredentialsNo+1, b.ChangeNo+1, s.Now()
		if row, err = s.sealCredentials(sc.Tenant, b, next); err != nil {
			return err
		}
		if err := storeCredentials(ctx, tx, b, row); err != nil {
			return err
		}
		out.Credentials = row.Rules
		headers := make([]string, len(row.Rules))
		for i, r := range row.Rules {
			headers[i] = r.Action + " " + r.Header
		}
		return s.record(ctx, tx, sc, b, "BOUNCER_CREDENTIALS_CHANGED", map[string]any{"credentials": headers})
	})
	return out, err
}

// replaces returns nil for the error of opening the stored credentials if they do not open and the
// change has all values that it needs. Otherwise it returns the fault that asks for the first one.
func (c CredentialsChange) replaces(err error) error {
	if !errors.Is(err, secret.ErrOpen) {
		return err
	}
	for i, d := range c.Credentials {
		if d.Value == nil && d.Action != StripHeader {
			return secret.AskAgain(err, fmt.Sprintf("/credentials/%d/value", i))
		}
	}
	return nil
}

// OpenCredentials returns a bouncer's credentials with their values.
func (s *Service) OpenCredentials(ctx context.Context, tx *db.Tx, tenant scope.TenantID, b Bouncer) ([]SealedCredential, error) {
	row, err := storedCredentials(ctx, tx, b.ID)
	if err != nil {
		return nil, err
	}
	return s.openCredentials(tenant, b, row)
}

// merged returns the list to store for the list that was sent.
func merged(drafts []CredentialDraft, kept []SealedCredential) ([]SealedCredential, []fault.Detail) {
	var offences []fault.Detail
	next := make([]SealedCredential, 0, len(drafts))
	for i, d := range drafts {
		add := func(member, msg string) {
			if msg != "" && len(offences) < maxOffences {
				offences = append(offences, fault.Detail{Pointer: fmt.Sprintf("/credentials/%d/%s", i, member), Message: msg})
			}
		}
		c := SealedCredential{Header: textproto.CanonicalMIMEHeaderKey(d.Header), Action: d.Action, ResourceID: d.ResourceID}
		if c.Action == "" {
			c.Action = SetHeader
		}
		add("header", checkHeaderName(c.Header))
		same := func(o SealedCredential) bool { return o.Header == c.Header && o.ResourceID == c.ResourceID }
		if slices.ContainsFunc(next, same) {
			add("header", "is named twice for the same resource")
		}
		switch at := slices.IndexFunc(kept, same); {
		case c.Action == StripHeader && d.Value != nil:
			add("value", "a header that is stripped takes no value")
		case c.Action == StripHeader:
		case d.Value != nil:
			c.Value = *d.Value
			add("value", sendable(c.Value))
		case at >= 0 && kept[at].Value != "":
			c.Value = kept[at].Value
		default:
			add("value", "a value is required: none is stored for this header")
		}
		next = append(next, c)
	}
	return next, offences
}

// notCarried are headers that determine how a message is read, or that the bouncer writes.
var notCarried = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings", "Proxy-Authenticate", "Host",
	"Content-Length", "Content-Type", "Content-Encoding", "Accept-Encoding", "Range", "Expect", "Forwarded", "X-Request-Id", "X-Real-Ip", "X-Decision", "X-Decision-Id",
}

// checkHeaderName returns why a credential cannot set a header, or "".
func checkHeaderName(name string) string {
	switch {
	case header(name) != "" || strings.ContainsFunc(name, isOddRune):
		return "must be the name of a header, of letters, digits and hyphens"
	case slices.Contains(notCarried, name), strings.HasPrefix(name, "X-Forwarded-"), strings.HasPrefix(name, "X-Gatehouse-"):
		return "cannot be set by a credential"
	}
	return ""
}

func isOddRune(r rune) bool {
	return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// sendable returns what is wrong with a header's value, or "".
func sendable(v string) string {
	if v == "" || len(v) > maxCredentialBytes || strings.TrimSpace(v) != v {
		return "must be a text of 1 to 8192 bytes without spaces at either end"
	}
	if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "must be printable ASCII"
	}
	return ""
}

// checkCredentialResources lists the credentials that name a resource outside the environment.
func checkCredentialResources(ctx context.Context, tx *db.Tx, b Bouncer, list []SealedCredential) ([]fault.Detail, error) {
	var offences []fault.Detail
	for i, c := range list {
		if c.ResourceID == 0 {
			continue
		}
		env, err := resource.EnvironmentOf(ctx, tx, c.ResourceID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		if err != nil || env != b.Environment {
			offences = append(offences, fault.Detail{Pointer: fmt.Sprintf("/credentials/%d/resource_id", i), Message: fmt.Sprintf("no resource %d in %s", c.ResourceID, b.Environment)})
		}
	}
	return offences, nil
}

// credentialRow is the stored form: rules in clear, values encrypted.
type credentialRow struct {
	Rules  []Credential `db:"rules"`
	Sealed []byte       `db:"sealed"`
}

func credentialPlace(tenant scope.TenantID, id int64) string {
	return fmt.Sprintf("bouncer_credentials/%s/%d", tenant, id)
}

func (s *Service) sealCredentials(tenant scope.TenantID, b Bouncer, list []SealedCredential) (credentialRow, error) {
	row := credentialRow{Rules: make([]Credential, len(list))}
	for i, c := range list {
		row.Rules[i] = Credential{Header: c.Header, Action: c.Action, ResourceID: c.ResourceID, ValueSet: c.Value != ""}
	}
	plain, err := json.Marshal(list)
	if err != nil {
		return row, fault.Wrap(err, "write credentials")
	}
	row.Sealed, err = s.Box.Seal(plain, credentialPlace(tenant, b.ID))
	return row, fault.Wrap(err, "seal credentials")
}

func (s *Service) openCredentials(tenant scope.TenantID, b Bouncer, row credentialRow) ([]SealedCredential, error) {
	if len(row.Sealed) == 0 {
		return nil, nil
	}
	plain, err := s.Box.Open(row.Sealed, credentialPlace(tenant, b.ID))
	if err != nil {
		return nil, fault.Wrap(err, "open credentials")
	}
	var list []SealedCredential
	err = fault.Wrap(json.Unmarshal(plain, &list), "read credentials")
	return list, err
}

// storedCredentials returns a bouncer's row; an empty one if there is none.
func storedCredentials(ctx context.Context, tx *db.Tx, id int64) (credentialRow, error) {
	row, err := loadCredentials(ctx, tx, id)
	return db.FoundOr(row, err, credentialRow{Rules: []Credential{}})
}

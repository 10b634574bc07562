package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Update is the message that the license server sends when a license changes.
type Update struct {
	CustomerID string  `json:"customer_id" maxLength:"200" doc:"The customer: the id in reports, or the id of the tenant." example:"acme"`
	Tier       string  `json:"subscription_tier" maxLength:"64" doc:"New tier." example:"enterprise"`
	TrialEnd   *string `json:"trial_end_date,omitempty" nullable:"true" maxLength:"64" doc:"End of the trial, a time or a date; null: no trial." example:"2027-01-31T00:00:00Z"`
	Status     string  `json:"subscription_status" maxLength:"64" doc:"New status: active, trialing and past_due allow production; any other does not." example:"active"`
	Effective  string  `json:"effective_date" maxLength:"64" doc:"Since when it holds, a time or a date. It orders updates." example:"2026-12-01T00:00:00Z"`
	Signature  string  `json:"webhook_signature" maxLength:"200" doc:"sha256= and the lower-case hex HMAC-SHA256 of this object without this member, members sorted by name, without spaces; the key is the API key." example:"sha256=5d41402abc4b2a76b9719d911017c592aab3d9f80ee5b2a1f0d8c5bf7a0b1c2d"`
}

// Updated is the answer to an update.
type Updated struct {
	Status       string    `json:"status" enum:"success,ignored" doc:"ignored: a newer update was applied before."`
	Message      string    `json:"message" doc:"What was done."`
	CustomerID   string    `json:"customer_id" doc:"The customer, as sent."`
	Tier         string    `json:"subscription_tier" doc:"Tier that now applies."`
	Subscription string    `json:"subscription_status" doc:"Status that now applies."`
	UpdatedUsers int64     `json:"updated_users" doc:"Number of people of the tenant whom the update concerns; 0 when ignored."`
	Timestamp    time.Time `json:"timestamp" doc:"When the update was applied. A repeated update gets the first answer again."`
}

// ApplyUpdate verifies the signature of an update and applies it. An update that was applied
// before, or is older than the current license, changes nothing. Faults: NotFound if no license
// server with an API key is configured or the tenant is not active, Unauthenticated for a wrong
// signature or another customer, BadRequest and Invalid for a malformed update.
func (s *Service) ApplyUpdate(ctx context.Context, t scope.TenantID, requestID string, body []byte) (Updated, error) {
	members, err := readMembers(body)
	if err != nil {
		return Updated{}, err
	}
	missing := fault.NotFoundf("no license server is configured")
	if active, err := s.Active(ctx, t); fault.Is(err, fault.NotFound) || err == nil && !active {
		return Updated{}, missing
	} else if err != nil {
		return Updated{}, err
	}
	st, err := s.loadServer(ctx, t)
	if fault.Is(err, fault.NotFound) || err == nil && len(st.APIKey) == 0 {
		return Updated{}, missing
	}
	if err != nil {
		return Updated{}, err
	}
	key, err := s.apiKey(t, st)
	if err != nil {
		return Updated{}, err
	}
	content, err := verifySignature(key, members)
	if err != nil {
		return Updated{}, err
	}
	u, l, err := parseUpdate(content, string(key))
	if err != nil {
		return Updated{}, err
	}
	if u.CustomerID != st.customer(t) && u.CustomerID != string(t) && u.CustomerID != st.Alias {
		return Updated{}, errSignature()
	}
	sum := sha256.Sum256(content)
	return s.applyOnce(ctx, auth.SystemScope(t, "license server", requestID), st, u, l, hex.EncodeToString(sum[:]))
}

func errSignature() *fault.Error {
	return fault.New(fault.Unauthenticated, "invalid_signature", "the signature of the update is missing or wrong")
}

// memberNames are the members of an update.
var memberNames = []string{"customer_id", "subscription_tier", "trial_end_date", "subscription_status", "effective_date", "webhook_signature"}

// readMembers parses an update into its members, with their values as the sender spelled them.
func readMembers(body []byte) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, fault.New(fault.BadRequest, "invalid_json", "the body is not a JSON object")
	}
	for name := range members {
		if !slices.Contains(memberNames, name) {
			return nil, fault.Invalidf("", "an update has the members %s, and no others", strings.Join(memberNames, ", "))
		}
	}
	return members, nil
}

// verifySignature checks the signature of an object, and returns the object without it in the
// canonical form: members sorted, no spaces, and values as canonicalJSON writes them. The
// signature may also be for the values as the sender spelled them.
func verifySignature(key []byte, members map[string]json.RawMessage) (content []byte, err error) {
	var signature string
	if json.Unmarshal(members["webhook_signature"], &signature) != nil {
		return nil, errSignature()
	}
	delete(members, "webhook_signature")
	spelled, canonical := join(members, compact), join(members, canonicalJSON)
	if !outbound.SignatureValid(key, spelled, signature) && !outbound.SignatureValid(key, canonical, signature) {
		return nil, errSignature()
	}
	return canonical, nil
}

// join returns an object as JSON, with its members sorted. spell writes each value.
func join(members map[string]json.RawMessage, spell func(json.RawMessage) []byte) []byte {
	out := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			out = append(out, ',')
		}
		quoted, _ := json.Marshal(name) // a string is always encodable
		out = append(append(append(out, quoted...), ':'), spell(members[name])...)
	}
	return append(out, '}')
}

// compact returns a value as its sender spelled it, without spaces.
func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return nil // it was parsed before
	}
	return b.Bytes()
}

// canonicalJSON returns a value as Go encodes it, without escapes for HTML.
func canonicalJSON(raw json.RawMessage) []byte {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return nil // it was parsed before
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// parseUpdate parses and validates an update whose signature is valid. key is the API key, which no
// member may repeat.
func parseUpdate(content []byte, key string) (u Update, l License, err error) {
	if err := json.Unmarshal(content, &u); err != nil {
		return u, l, fault.New(fault.Invalid, "validation_failed", "the update has a member of the wrong type")
	}
	b := licenseAnswer{CustomerID: u.CustomerID, Tier: u.Tier, Status: u.Status, Effective: u.Effective}
	if u.TrialEnd != nil {
		b.TrialEnd = *u.TrialEnd
	}
	l, offences := b.license()
	for pointer, value := range map[string]string{
		"/customer_id": u.CustomerID, "/subscription_tier": u.Tier, "/subscription_status": u.Status, "/effective_date": u.Effective,
	} {
		if value == "" {
			offences = append(offences, fault.Detail{Pointer: pointer, Message: "this member is required"})
		}
	}
	if b.contains(key) {
		offences = append(offences, fault.Detail{Message: "the update has the API key in a member"})
	}
	slices.SortFunc(offences, func(a, b fault.Detail) int { return cmp.Compare(a.Pointer, b.Pointer) })
	return u, l, fault.CheckValues("the update is not valid", offences)
}

// applyOnce applies an update, unless it was applied before or is older than the current license.
// The digests of the updates with the newest date are kept, so that none of them can be replayed
// after a later one with the same date.
func (s *Service) applyOnce(ctx context.Context, sc scope.Scope, asked state, u Update, l License, digest string) (out Updated, err error) {
	now := db.Stamp(s.Now())
	err = s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		st, err := find(ctx, tx)
		if err != nil {
			return err
		}
		if string(st.APIKey) != string(asked.APIKey) {
			return errSignature() // the API key was changed in the meantime
		}
		if out, err = selectUpdate(ctx, tx, digest); !errors.Is(err, db.ErrNoRows) {
			return err
		}
		before := st.License
		if before.Effective != nil && l.Effective.Before(*before.Effective) {
			out = Updated{
				Status: "ignored", Message: "a newer update was applied before", CustomerID: u.CustomerID, Tier: before.tier(),
				Subscription: before.Status, Timestamp: now,
			}
			return nil
		}
		st.License = l
		st.License.CustomerID = before.CustomerID // only GET /license sets the customer id
		people, err := user.Count(ctx, tx)
		if err != nil {
			return err
		}
		out = Updated{
			Status: Success, Message: "The license was updated", CustomerID: u.CustomerID, Tier: l.Tier, Subscription: l.Status,
			UpdatedUsers: people, Timestamp: now,
		}
		if err := updateConfig(ctx, tx, st, digest, out, now); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, now, entry("LICENSE_UPDATED", licenseChange(before, st.License)))
	})
	return out, err
}

func updateConfig(ctx context.Context, tx *db.Tx, st state, digest string, out Updated, now time.Time) error {
	if err := putState(ctx, tx, st); err != nil {
		return err
	}
	if err := insertUpdate(ctx, tx, digest, *st.License.Effective, out); err != nil {
		return err
	}
	return updateAlerts(ctx, tx, st, now)
}

package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

const (
	// failureHolds is how long a failed call to the license server is not repeated, unless a person
	// tests the connection.
	failureHolds = time.Minute
	// testTrust is how long MayTest uses an answer. Tests run often.
	testTrust = time.Minute
	// checkEvery is how often the scheduler asks a license server.
	checkEvery = time.Hour
)

// verify asks the license server, unless its last answer is younger than trust, or the last call
// failed less than failureHolds ago.
func (s *Service) verify(ctx context.Context, t scope.TenantID, st state, trust time.Duration) (state, error) {
	if st.URL == "" {
		return st, nil
	}
	if st.AttemptedAt != nil {
		age := s.Now().Sub(*st.AttemptedAt).Abs() // after the clock went back, the last call may be in the future
		if st.Failure != "" && age < failureHolds || st.Failure == "" && age < trust {
			return st, nil
		}
	}
	return s.ask(ctx, t, st)
}

// ask calls the license server and stores its answer. Concurrent callers share one call.
func (s *Service) ask(ctx context.Context, t scope.TenantID, st state) (state, error) {
	got, err, _ := s.asking.Do(fmt.Sprintf("%s %d", t, st.ChangeNo), func() (any, error) {
		ctx := context.WithoutCancel(ctx) // if the first caller disconnects, the others still get the answer
		a, err := s.call(ctx, t, st)
		if err != nil {
			return st, err
		}
		return s.storeAnswer(ctx, t, st, a)
	})
	next, _ := got.(state)
	return next, err
}

// answer is the result of a call to the license server.
type answer struct {
	License
	serverKey string
	// failure says why the call failed; empty: it did not.
	failure string
	// refused says that the server refused the API key.
	refused bool
}

// call gets the license: GET <url>/license with the API key as the bearer token.
func (s *Service) call(ctx context.Context, t scope.TenantID, st state) (answer, error) {
	if len(st.APIKey) == 0 {
		return answer{failure: "no API key is configured"}, nil
	}
	req, err := s.request(t, st, "license")
	if errors.Is(err, secret.ErrOpen) {
		return answer{failure: lostKey}, nil
	}
	if err != nil {
		return answer{}, err
	}
	res, err := s.Target.Do(ctx, req)
	switch {
	case err != nil:
		return answer{failure: unreachable}, nil
	case res.Refused():
		return answer{failure: "the license server refuses the API key (" + strconv.Itoa(res.Status) + ")", refused: true}, nil
	case !res.OK():
		return answer{failure: refusal(res)}, nil
	}
	return parseAnswer(res, req.Header.Get("Authorization")), nil
}

// unreachable is the same text for all errors of a connection, so that it tells nothing about the
// network.
const unreachable = "the license server could not be reached"

// lostKey is the text for a stored API key that no encryption key opens.
const lostKey = "the stored API key cannot be decrypted: send it again"

// refusal returns the text for an answer with an error status. It does not quote the answer.
func refusal(res outbound.Response) string {
	return "the license server answered " + strconv.Itoa(res.Status)
}

// request returns a request for a path below the license server's URL.
func (s *Service) request(t scope.TenantID, st state, path string) (outbound.Request, error) {
	key, err := s.apiKey(t, st)
	if err != nil {
		return outbound.Request{}, err
	}
	u, err := url.Parse(st.URL)
	if err != nil {
		return outbound.Request{}, fault.Wrap(err, "the URL of the license server")
	}
	return outbound.Request{
		URL:    u.JoinPath(path).String(),
		Header: map[string][]string{"Authorization": {"Bearer " + string(key)}, "Accept": {"application/json"}},
	}, nil
}

// licenseAnswer is the body of GET /license. All members are optional.
type licenseAnswer struct {
	CustomerID    string `json:"customer_id"`
	Tier          string `json:"subscription_tier"`
	ShortTier     string `json:"tier"`
	Status        string `json:"subscription_status"`
	TrialEnd      string `json:"trial_end_date"`
	Effective     string `json:"effective_date"`
	EncryptionKey string `json:"encryption_key"`
}

// word matches the name of a tier or a status. reference matches the id of a customer.
var (
	word      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$`)
	reference = regexp.MustCompile(`^[\x21-\x7e]{1,200}$`)
)

// parseAnswer parses a license. An empty body confirms the API key and contains no license. sent is
// the Authorization header of the request.
func parseAnswer(res outbound.Response, sent string) answer {
	bad := answer{failure: "the license server did not answer with a license"}
	if len(bytes.TrimSpace(res.Body)) == 0 {
		return answer{}
	}
	var body licenseAnswer
	if res.Truncated || json.Unmarshal(res.Body, &body) != nil {
		return bad
	}
	if body.Tier == "" {
		body.Tier = body.ShortTier
	}
	l, offences := body.license()
	if len(offences) > 0 || body.contains(strings.TrimPrefix(sent, "Bearer ")) {
		return bad
	}
	if body.EncryptionKey != "" {
		if _, err := publicKey(body.EncryptionKey); err != nil {
			return bad
		}
	}
	return answer{License: l, serverKey: body.EncryptionKey}
}

// license parses the members of a license, and returns the errors in them.
func (b licenseAnswer) license() (License, []fault.Detail) {
	l := License{CustomerID: b.CustomerID, Tier: b.Tier, Status: b.Status}
	var offences []fault.Detail
	check := func(ok bool, pointer, message string) {
		if !ok {
			offences = append(offences, fault.Detail{Pointer: pointer, Message: message})
		}
	}
	check(b.CustomerID == "" || reference.MatchString(b.CustomerID), "/customer_id", "must be an id of at most 200 characters without spaces")
	check(b.Tier == "" || word.MatchString(b.Tier), "/subscription_tier", "must be a name of at most 64 letters and digits")
	check(b.Status == "" || word.MatchString(b.Status), "/subscription_status", "must be a name of at most 64 letters and digits")
	var err error
	l.TrialEnd, err = date(b.TrialEnd)
	check(err == nil, "/trial_end_date", "must be a time (RFC 3339) or a date")
	l.Effective, err = date(b.Effective)
	check(err == nil, "/effective_date", "must be a time (RFC 3339) or a date")
	return l, offences
}

// contains reports whether a member contains the API key, which would then be shown and recorded with
// the license. It ignores keys shorter than 8 bytes, which can be part of a normal word.
func (b licenseAnswer) contains(key string) bool {
	return len(key) >= 8 && slices.ContainsFunc([]string{b.CustomerID, b.Tier, b.Status}, func(s string) bool { return strings.Contains(s, key) })
}

var errDate = errors.New("neither a time nor a date")

// date parses a time (RFC 3339) or a date; nil: the text is empty.
func date(text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		t, err := time.Parse(layout, text)
		if err == nil && t.Year() >= 1970 && t.Year() < 10000 {
			t = db.Stamp(t)
			return &t, nil
		}
	}
	return nil, errDate
}

// storeAnswer stores the answer of the license server, unless the configuration changed during the call.
func (s *Service) storeAnswer(ctx context.Context, t scope.TenantID, asked state, a answer) (st state, err error) {
	now := db.Stamp(s.Now())
	err = s.Stores.WriteUnder(ctx, t, changes, func(tx *db.Tx) error {
		if st, err = find(ctx, tx); err != nil || st.ChangeNo != asked.ChangeNo {
			return err
		}
		before := st.License
		st.AttemptedAt, st.Failure, st.KeyRefused = &now, a.failure, a.refused
		if a.failure == "" {
			st.VerifiedAt, st.ServerKey = &now, a.serverKey
			st.License = a.merged(st.License)
		}
		if err := putState(ctx, tx, st); err != nil {
			return err
		}
		if err := updateAlerts(ctx, tx, st, now); err != nil {
			return err
		}
		if reflect.DeepEqual(before, st.License) {
			return nil
		}
		return audit.Append(ctx, tx, auth.SystemScope(t, "license server", ""), now, entry("LICENSE_UPDATED", licenseChange(before, st.License)))
	})
	return st, err
}

func licenseChange(from, to License) map[string]any {
	return map[string]any{"license": map[string]any{"from": from, "to": to}}
}

// licenseWarning is the type of the alerts on the license.
const licenseWarning = "license_warning"

// updateAlerts opens and resolves the alerts on the license and its server.
func updateAlerts(ctx context.Context, tx *db.Tx, st state, now time.Time) error {
	due := map[string]string{"connection": "", "license": "", "trial": ""}
	if st.URL != "" {
		v := st.judge(now)
		if st.Failure != "" {
			due["connection"] = st.Failure
		}
		if !v.allowed && st.License.isSet() && !st.KeyRefused {
			due["license"] = "policies cannot be promoted: " + v.message
		}
		if v.allowed && v.trial && st.License.TrialEnd != nil && v.daysLeft <= trialWarning {
			due["trial"] = "the trial ends on " + st.License.TrialEnd.UTC().Format(time.DateOnly)
		}
	}
	for subject, message := range due {
		if message == "" {
			if err := tenant.ResolveAlerts(ctx, tx, licenseWarning, subject, now); err != nil {
				return err
			}
			continue
		}
		err := tenant.OpenAlert(ctx, tx, tenant.Alert{Type: licenseWarning, Severity: tenant.SeverityWarning, Subject: subject, Message: message, CreatedAt: now})
		if err != nil {
			return err
		}
	}
	return nil
}

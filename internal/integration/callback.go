package integration

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// callbackHead is the prefix of callback tokens.
const callbackHead = "gh_callback"

// callback tells a system how to answer.
type callback struct {
	URL       string    `json:"url"`
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Answer is a system's answer to a run.
type Answer struct {
	Token      string `json:"token" minLength:"1" maxLength:"200" writeOnly:"true" doc:"The token of the callback. It is good for one answer."`
	Status     string `json:"status" enum:"succeeded,failed,approved,denied" doc:"How the run ended: succeeded or failed for a workflow, approved or denied for an approval_queue."`
	Message    string `json:"message,omitempty" maxLength:"500" doc:"A short message for people." example:"Ticket OPS-17 was opened"`
	AnsweredBy string `json:"answered_by,omitempty" maxLength:"200" format:"name" doc:"Who answered, as the system names them." example:"ops-bot"`
	Duration   int64  `json:"duration_seconds,omitempty" minimum:"1" maximum:"2592000" doc:"How long an approved request for access is granted; absent: as long as it may."`
}

// Verdict is an approval system's decision on a request for access.
type Verdict struct {
	Approved   bool
	By, Reason string
	// Seconds is how long the grant lasts; 0: as long as is allowed. Longest is the limit of the
	// integration, in seconds.
	Seconds, Longest int64
}

// namedDuration is a named duration, the value of a setting.
type namedDuration struct {
	name string
	time time.Duration
}

// answerTimes are the values of the setting answer_within. grantTimes are those of longest_grant,
// except that a break_glass_bridge has glassTimes. The first value is the default.
var (
	answerTimes = []namedDuration{{"24h", 24 * time.Hour}, {"1h", time.Hour}, {"7d", 7 * 24 * time.Hour}, {"30d", 30 * 24 * time.Hour}}
	glassTimes  = []namedDuration{{"1h", time.Hour}, {"15m", 15 * time.Minute}, {"4h", 4 * time.Hour}, {"8h", 8 * time.Hour}, {"24h", 24 * time.Hour}}
	grantTimes  = []namedDuration{{"8h", 8 * time.Hour}, {"1h", time.Hour}, {"24h", 24 * time.Hour}, {"7d", 7 * 24 * time.Hour}, {"30d", 30 * 24 * time.Hour}}
)

func durationNames(of []namedDuration) []string {
	var out []string
	for _, s := range of {
		out = append(out, s.name)
	}
	return out
}

// durationOf returns the duration that a setting of an integration names, or the default.
func (it Integration) durationOf(setting string, of []namedDuration) time.Duration {
	for _, s := range of {
		if it.Settings[setting] == s.name {
			return s.time
		}
	}
	return of[0].time
}

// errRunEnded means that a message need not be sent any more, because its run has ended.
var errRunEnded = errors.New("the run has ended")

// openCallback returns the data of a run's message with the callback added. Each attempt has the
// same token, until the system has accepted the message. Each attempt restarts the time to answer.
func (s *Service) openCallback(ctx context.Context, tenant scope.TenantID, it Integration, run int64, data []byte) ([]byte, error) {
	var c callback
	err := s.Stores.Write(ctx, tenant, func(tx *db.Tx) error {
		r, err := getRun(ctx, tx, run)
		if err != nil {
			return err
		}
		if r.EndedAt != nil {
			return errRunEnded
		}
		if c.Token, err = s.tokenOf(tenant, &r); err != nil {
			return err
		}
		end := db.Stamp(s.Now().Add(it.durationOf(settingWithin, answerTimes)))
		c.ExpiresAt, r.ExpiresAt = end, &end
		if _, err = updateRun(ctx, tx, r); errors.Is(err, db.ErrNoRows) {
			return errRunEnded
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	c.URL = fmt.Sprintf("%s/api/v1/integrations/%d/runs/%d/answer?", s.URL, it.ID, run) + url.Values{"tenant_id": {string(tenant)}}.Encode()
	head, err := json.Marshal(struct {
		Run      int64    `json:"run_id"`
		Callback callback `json:"callback"`
	}{run, c})
	if err != nil {
		return nil, fault.Wrap(err, "write a callback")
	}
	return append(append(head[:len(head)-1], ','), data[1:]...), nil // data is an object with at least one member
}

// tokenOf returns the token of a run. The first attempt to send generates it.
func (s *Service) tokenOf(tenant scope.TenantID, r *Run) (string, error) {
	at := "integration_runs:" + string(tenant) + ":" + strconv.FormatInt(r.ID, 10)
	if len(r.TokenSealed) > 0 {
		if kept, err := s.Box.Open(r.TokenSealed, at); err == nil { // otherwise the encryption key no longer exists
			return string(kept), nil
		}
	}
	token, err := secret.NewToken(s.Random, callbackHead)
	if err != nil {
		return "", fault.Wrap(err, "generate a token")
	}
	r.TokenHash = secret.DigestOf(token)
	r.TokenSealed, err = s.Box.Seal([]byte(token), at)
	return token, err
}

// Answer ends a run with the answer of its system. Anybody who has the token may answer, once.
// Without the token it returns Unauthenticated.
func (s *Service) Answer(ctx context.Context, sc scope.Scope, integration, id int64, a Answer) (Run, error) {
	if _, ok := secret.ParseToken(a.Token); !ok {
		return Run{}, errNoCallback()
	}
	var r Run
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		r, err = answeredRun(ctx, tx, integration, id, a)
		return err
	})
	if err == nil && r.Cause.RequestID != 0 && r.EndedAt == nil {
		err = s.MayDecide(ctx, sc, r.Cause.RequestID, a.AnsweredBy)
	}
	if err == nil {
		request := r.Cause.RequestID
		err = s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
			if request != 0 { // take this lock before the row of the run, as decisions by people do
				if err := tx.Lock(ctx, s.RequestLock); err != nil {
					return err
				}
			}
			if r, err = answeredRun(ctx, tx, integration, id, a); err != nil {
				return err
			}
			it, err := load(ctx, tx, integration)
			if err == nil {
				r, err = s.answer(ctx, tx, sc, it, r, a)
			}
			return err
		})
	}
	if fault.Is(err, fault.NotFound) { // no such tenant or integration: do not say which
		err = errNoCallback()
	}
	return r, err
}

// answeredRun returns the run that an answer is about, if its token is valid.
func answeredRun(ctx context.Context, tx *db.Tx, integration, id int64, a Answer) (Run, error) {
	r, err := runOf(ctx, tx, integration, id)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return r, err
	}
	// If there is no run, the digests differ, and the answer takes the same time.
	if subtle.ConstantTimeCompare([]byte(secret.DigestOf(a.Token)), []byte(r.TokenHash)) != 1 {
		return r, errNoCallback()
	}
	return r, nil
}

// fits checks that an answer is possible for a kind of integration.
func (a Answer) fits(kind string) error {
	approval := a.Status == RunApproved || a.Status == RunDenied
	switch {
	case kind == Approval && !approval:
		return fault.Invalidf("/status", "an approval_queue answers approved or denied")
	case kind != Approval && approval:
		return fault.Invalidf("/status", "a workflow answers succeeded or failed")
	case a.Duration != 0 && a.Status != RunApproved:
		return fault.Invalidf("/duration_seconds", "is only for approved")
	}
	return nil
}

// answer records an answer with a valid token.
func (s *Service) answer(ctx context.Context, tx *db.Tx, sc scope.Scope, it Integration, r Run, a Answer) (Run, error) {
	now := db.Stamp(s.Now())
	switch {
	case r.Status == RunSuperseded:
		return r, fault.New(fault.Conflict, "already_decided", "the request for access needs no decision any more")
	case r.EndedAt != nil && r.Status != RunExpired:
		return r, fault.Newf(fault.Conflict, "already_answered", "this run has ended: it is %s", r.Status)
	case r.EndedAt != nil || !now.Before(*r.ExpiresAt):
		return r, fault.New(fault.Conflict, "callback_expired", "the time to answer is over")
	case !it.Enabled:
		return r, fault.New(fault.Conflict, "integration_disabled", "the integration is disabled, so it takes no answers")
	}
	if err := a.fits(it.Kind); err != nil {
		return r, err
	}
	r = r.end(a.Status, a.Message, now)
	r.AnsweredBy = a.AnsweredBy
	r, err := claimRun(ctx, tx, r)
	if errors.Is(err, db.ErrNoRows) {
		return r, fault.New(fault.Conflict, "already_answered", "this run has ended")
	}
	if err != nil {
		return r, err
	}
	by := it.answering(sc)
	if r.Cause.RequestID != 0 {
		v := Verdict{
			Approved: a.Status == RunApproved, By: a.AnsweredBy, Reason: a.Message, Seconds: a.Duration,
			Longest: int64(it.durationOf(settingLongest, grantTimes) / time.Second),
		}
		if err := s.Decide(ctx, tx, by, r.Cause.RequestID, v); err != nil {
			return r, err
		}
	}
	return r, audit.Append(ctx, tx, by, now, it.ended(r))
}

// answering returns the scope of a system that answers. It keeps the IP address of the caller for
// the audit.
func (it Integration) answering(sc scope.Scope) scope.Scope {
	out := it.system(sc.Tenant)
	out.Actor = scope.Actor{Kind: scope.System, ID: "integration:" + strconv.FormatInt(it.ID, 10), Name: it.Name, IP: sc.Actor.IP}
	out.RequestID = sc.RequestID
	return out
}

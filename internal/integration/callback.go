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

// callbackHead marks the tokens of callbacks.
const callbackHead = "gh_callback"

// callback is how a system answers back.
type callback struct {
	URL       string    `json:"url"`
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Answer is what a system answers.
type Answer struct {
	Token      string `json:"token" minLength:"1" maxLength:"200" writeOnly:"true" doc:"The token of the callback. It is good for one answer."`
	Status     string `json:"status" enum:"succeeded,failed" doc:"How the run ended."`
	Message    string `json:"message,omitempty" maxLength:"500" doc:"A short message for people." example:"Ticket OPS-17 was opened"`
	AnsweredBy string `json:"answered_by,omitempty" maxLength:"200" format:"name" doc:"Who answered, as the system names them." example:"ops-bot"`
}

// answerTimes are the values of the setting answer_within.
var answerTimes = []struct {
	name string
	time time.Duration
}{{"24h", 24 * time.Hour}, {"1h", time.Hour}, {"7d", 7 * 24 * time.Hour}, {"30d", 30 * 24 * time.Hour}}

func answerTimeNames() []string {
	var out []string
	for _, a := range answerTimes {
		out = append(out, a.name)
	}
	return out
}

// answerWithin is how long a system may take to answer.
func answerWithin(it Integration) time.Duration {
	for _, a := range answerTimes {
		if it.Settings[settingWithin] == a.name {
			return a.time
		}
	}
	return answerTimes[0].time
}

// errRunEnded means that a message need not be sent any more.
var errRunEnded = errors.New("the run has ended")

// openCallback gives the data of a run's message with the callback. Each attempt has the same
// token, until the system has accepted the message; the time to answer starts anew.
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
		end := db.Stamp(s.Now().Add(answerWithin(it)))
		c.ExpiresAt, r.ExpiresAt = end, &end
		_, err = updateRun(ctx, tx, r)
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
	return append(append(head[:len(head)-1], ','), data[1:]...), nil // data is an object with members
}

// tokenOf is the token of a run. The first attempt to send makes it.
func (s *Service) tokenOf(tenant scope.TenantID, r *Run) (string, error) {
	at := "integration_runs:" + string(tenant) + ":" + strconv.FormatInt(r.ID, 10)
	if len(r.TokenSealed) > 0 {
		if kept, err := s.Box.Open(r.TokenSealed, at); err == nil { // else its key is gone
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

// Answer ends a run with what its system says. Whoever has the token may answer, once.
func (s *Service) Answer(ctx context.Context, sc scope.Scope, integration, id int64, a Answer) (Run, error) {
	if _, ok := secret.ParseToken(a.Token); !ok {
		return Run{}, errNoCallback()
	}
	digest := secret.DigestOf(a.Token)
	var r Run
	err := s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if r, err = runOf(ctx, tx, integration, id); err != nil && !errors.Is(err, db.ErrNoRows) {
			return err
		}
		// Without a run the digests differ, and the answer takes the same time.
		if subtle.ConstantTimeCompare([]byte(digest), []byte(r.TokenHash)) != 1 {
			return errNoCallback()
		}
		it, err := load(ctx, tx, r.IntegrationID)
		if err != nil {
			return err
		}
		r, err = s.answer(ctx, tx, sc, it, r, a)
		return err
	})
	if fault.Is(err, fault.NotFound) { // no such tenant, or its store is not there
		err = errNoCallback()
	}
	return r, err
}

// answer records an answer whose token is right.
func (s *Service) answer(ctx context.Context, tx *db.Tx, sc scope.Scope, it Integration, r Run, a Answer) (Run, error) {
	now := db.Stamp(s.Now())
	switch {
	case r.EndedAt != nil && r.Status != RunExpired:
		return r, fault.Newf(fault.Conflict, "already_answered", "this run has ended: it is %s", r.Status)
	case r.EndedAt != nil || !now.Before(*r.ExpiresAt):
		return r, fault.New(fault.Conflict, "callback_expired", "the time to answer is over")
	case !it.Enabled:
		return r, fault.New(fault.Conflict, "integration_disabled", "the integration is disabled, so it takes no answers")
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
	if err := audit.Append(ctx, tx, it.answering(sc), now, it.ended(r)); err != nil {
		return r, err
	}
	return r, nil
}

// answering is the scope of a system that answers: where it calls from is in the audit.
func (it Integration) answering(sc scope.Scope) scope.Scope {
	out := it.system(sc.Tenant)
	out.Actor = scope.Actor{Kind: scope.System, ID: "integration:" + strconv.FormatInt(it.ID, 10), Name: it.Name, IP: sc.Actor.IP}
	out.RequestID = sc.RequestID
	return out
}

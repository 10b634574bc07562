package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// The statuses of transmissions. Waiting ones, which were never tried, are not listed.
const (
	Success = "success"
	Failed  = "failed"
	waiting = "waiting"
)

// claimFor is how long an attempt may take before another process may make the next one.
const claimFor = time.Minute

// Entry is one transmission in the history.
type Entry struct {
	ID              int64      `json:"id" db:"id" doc:"Identifier."`
	Date            time.Time  `json:"transmission_date" db:"at" doc:"When the report was created."`
	Status          string     `json:"status" db:"status" enum:"success,failed" doc:"Outcome of the last attempt."`
	RecordsSent     int64      `json:"records_sent" db:"records" doc:"Number of reports that arrived: 1 or 0."`
	ResponseCode    int64      `json:"response_code" db:"response_code" doc:"HTTP status of the last answer; 0: no answer."`
	ResponseMessage string     `json:"response_message" db:"response_message" doc:"Text of this status; the body of the answer is not kept."`
	ErrorDetails    *string    `json:"error_details" db:"error" doc:"Why the last attempt failed; null after success."`
	RetryCount      int64      `json:"retry_count" db:"retries" doc:"Number of attempts after the first one, by people and by the scheduler."`
	TransmittedAt   *time.Time `json:"transmitted_at" db:"sent_at" doc:"When the report arrived; null: it has not."`
}

// transmission is a stored row.
type transmission struct {
	Entry
	Report         Report     `db:"report"`
	IdempotencyKey string     `db:"idempotency_key"`
	ClaimedUntil   time.Time  `db:"claimed_until"`
	NextAt         *time.Time `db:"next_at"`
}

// Sent is the outcome of SendNow.
type Sent struct {
	Status      string    `json:"status" enum:"success" doc:"Failures have an error body."`
	Message     string    `json:"message" doc:"What was done."`
	RecordsSent int64     `json:"records_sent" doc:"Number of reports that arrived."`
	Timestamp   time.Time `json:"timestamp" doc:"When the report arrived."`
}

// Retried is the outcome of Retry.
type Retried struct {
	Status     string `json:"status" enum:"success" doc:"Failures have an error body."`
	Message    string `json:"message" doc:"What was done."`
	LogID      int64  `json:"log_id" doc:"Id of the transmission."`
	RetryCount int64  `json:"retry_count" doc:"Number of attempts after the first one."`
}

// History returns one page of the transmissions, newest first.
func (s *Service) History(ctx context.Context, sc scope.Scope, skip, limit int64) ([]Entry, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) ([]Entry, error) { return listTransmissions(ctx, tx, skip, limit) })
}

// SendNow sends the report of the current period. Faults: BadRequest while telemetry is disabled,
// NotFound without a license server, Internal if the report does not arrive. The scheduler then
// sends it again.
func (s *Service) SendNow(ctx context.Context, sc scope.Scope) (Sent, error) {
	st, err := s.loadServer(ctx, sc.Tenant)
	if err == nil {
		err = st.checkEnabled()
	}
	if err != nil {
		return Sent{}, err
	}
	now := db.Stamp(s.Now())
	report, err := s.measure(ctx, sc.Tenant, st, st.currentPeriod(now))
	if err != nil {
		return Sent{}, err
	}
	var made transmission
	err = s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		made, err = insertTransmission(ctx, tx, s.transmission(report, now, now.Add(claimFor)))
		return err
	})
	if err == nil {
		made, err = s.send(ctx, sc, made.ID, true)
	}
	if err == nil {
		err = made.failure()
	}
	if err != nil {
		return Sent{}, err
	}
	return Sent{Status: Success, Message: "The report was sent", RecordsSent: made.RecordsSent, Timestamp: *made.TransmittedAt}, nil
}

// transmission returns a new row, which the scheduler may send at the time from or later.
func (s *Service) transmission(r Report, now, from time.Time) transmission {
	return transmission{Entry: Entry{Date: now, Status: waiting}, Report: r, IdempotencyKey: s.NewID(), NextAt: &from}
}

// Retry sends a failed report again. Faults: NotFound for an unknown one, Conflict for one that
// arrived or is being sent, and those of SendNow.
func (s *Service) Retry(ctx context.Context, sc scope.Scope, id int64) (Retried, error) {
	tried, err := s.send(ctx, sc, id, true)
	if err == nil {
		err = tried.failure()
	}
	return Retried{Status: Success, Message: "The report was sent", LogID: id, RetryCount: tried.RetryCount}, err
}

func (st state) checkEnabled() error {
	if st.Enabled {
		return nil
	}
	return fault.New(fault.BadRequest, "telemetry_disabled", "telemetry is not enabled")
}

// failure returns the fault of a transmission that did not arrive; nil: it arrived.
func (t transmission) failure() error {
	if t.Status == Success {
		return nil
	}
	why := ""
	if t.ErrorDetails != nil {
		why = *t.ErrorDetails
	}
	return fault.New(fault.Internal, "transmission_failed", "the report was not sent: "+why).With("log_id", t.ID)
}

// send makes one attempt to send a transmission, and stores the outcome. byPerson says that a person
// asked for it: it need not be due.
func (s *Service) send(ctx context.Context, sc scope.Scope, id int64, byPerson bool) (transmission, error) {
	st, t, err := s.claim(ctx, sc.Tenant, id, byPerson)
	if err != nil {
		return t, err
	}
	ctx = context.WithoutCancel(ctx) // record what was sent even if the caller disconnects
	if st.Encryption && st.ServerKey == "" {
		if st, err = s.verify(ctx, sc.Tenant, st, 0); err != nil {
			return t, err
		}
	}
	res, why, err := s.post(ctx, sc.Tenant, st, t)
	if err != nil {
		return t, err
	}
	t.Status, t.ResponseCode, t.ResponseMessage = Failed, int64(res.Status), res.StatusText()
	at := db.Stamp(s.Now())
	t.ClaimedUntil, t.NextAt, t.ErrorDetails = time.Time{}, nil, textOrNil(why)
	if why == "" {
		t.Status, t.RecordsSent, t.TransmittedAt = Success, 1, &at
	} else if t.RetryCount < maxRetries {
		next := db.Stamp(at.Add(retryAfter(t.RetryCount)))
		t.NextAt = &next
	}
	return t, s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error { return storeResult(ctx, tx, sc, t, at) })
}

// claim reserves a transmission for one attempt, so that no other process sends it.
func (s *Service) claim(ctx context.Context, tenant scope.TenantID, id int64, byPerson bool) (st state, t transmission, err error) {
	now := db.Stamp(s.Now())
	err = s.Stores.WriteUnder(ctx, tenant, changes, func(tx *db.Tx) error {
		if st, err = find(ctx, tx); err != nil {
			return err
		}
		if t, err = selectTransmission(ctx, tx, id); errors.Is(err, db.ErrNoRows) {
			return fault.NotFoundf("no such transmission")
		}
		switch {
		case err != nil:
			return err
		case st.checkEnabled() != nil:
			return st.checkEnabled()
		case t.Status == Success:
			return fault.New(fault.Conflict, "conflict", "this report has arrived already")
		case t.ClaimedUntil.After(now) || !byPerson && (t.NextAt == nil || t.NextAt.After(now)):
			return fault.New(fault.Conflict, "conflict", "this report is being sent")
		}
		if t.Status == Failed {
			t.RetryCount++
		}
		t.ClaimedUntil = db.Stamp(now.Add(claimFor))
		next := t.ClaimedUntil // if this process dies, another one sends it then
		t.NextAt = &next
		return updateTransmission(ctx, tx, t)
	})
	return st, t, err
}

// post sends a report to <url>/telemetry. It returns the answer, if there was one, and why the
// report did not arrive; empty: it arrived.
func (s *Service) post(ctx context.Context, tenant scope.TenantID, st state, t transmission) (res outbound.Response, why string, err error) {
	body, err := t.Report.withCustomer(tenant, st).encode()
	if err != nil {
		return res, "", err
	}
	if st.Encryption {
		if st.ServerKey == "" {
			return res, "reports must be encrypted, and the license server publishes no encryption key", nil
		}
		if body, err = encrypt(body, st.ServerKey); err != nil {
			return res, "", err
		}
	}
	req, err := s.request(tenant, st, "telemetry")
	if errors.Is(err, secret.ErrOpen) {
		return res, lostKey, nil
	}
	if err != nil {
		return res, "", err
	}
	req.Method, req.Body = "POST", body
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", t.IdempotencyKey)
	res, err = s.Target.Do(ctx, req)
	switch {
	case err != nil:
		return outbound.Response{}, unreachable, nil
	case !res.OK():
		why = refusal(res)
	}
	return res, why, nil
}

// storeResult stores the outcome of an attempt, with its audit entry and the next wake-up.
func storeResult(ctx context.Context, tx *db.Tx, sc scope.Scope, t transmission, at time.Time) error {
	if err := updateTransmission(ctx, tx, t); err != nil {
		return err
	}
	if t.NextAt != nil {
		if err := wake(ctx, tx, *t.NextAt); err != nil {
			return err
		}
	}
	kind := "TELEMETRY_FAILED"
	if t.Status == Success {
		kind = "TELEMETRY_SENT"
		if err := noteSent(ctx, tx, at); err != nil {
			return err
		}
	}
	return audit.Append(ctx, tx, sc, at, entry(kind, map[string]any{
		"log_id": t.ID, "period": t.Report.CurrentPeriod, "response_code": t.ResponseCode, "retry_count": t.RetryCount, "error": t.ErrorDetails,
	}))
}

package integration

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/kafka"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/webhook"
)

// parcel is the content of one attempt to send.
type parcel struct {
	// body is the body of a request. It is nil if nothing waits, or if another member has the
	// content.
	body []byte
	// records are for Kafka. keep holds the producers of the replica; nil in a test.
	records []kafka.Record
	keep    *producers
	// bundle is for a policy engine. problem says why there is none.
	bundle  *Bundle
	problem string
	// place is the position in the logs after the parcel is delivered.
	place *tail.Place
	// message is set for the kinds that actions call.
	message *message
}

// empty reports whether nothing waits.
func (p parcel) empty() bool {
	return p.body == nil && p.records == nil && p.bundle == nil && p.problem == ""
}

// answer is the result of an attempt. pause is how long the system asks us to wait.
type answer struct {
	TestResult
	pause time.Duration
	// pushed describes the bundle that a policy engine's store has now.
	pushed *Pushed
	// tag is what that store calls it.
	tag string
}

// next returns the next parcel of an integration. It is empty if nothing waits.
func (f *Forwarder) next(ctx context.Context, tenant scope.TenantID, it Integration) (p parcel, err error) {
	if it.Kind == PolicyEngine {
		return f.nextBundle(ctx, tenant, it)
	}
	p.place = it.Place
	err = f.Stores.Read(ctx, tenant, func(tx *db.Tx) error {
		if it.Kind != SIEM {
			m, err := firstMessage(ctx, tx, it.ID)
			if errors.Is(err, db.ErrNoRows) {
				return nil
			}
			p.message, p.body = &m, m.Data
			return err
		}
		lines, place, err := tail.Read(ctx, tx, tenant, it.Environment, *it.Place, perRequest, requestBytes)
		if err != nil || len(lines) == 0 {
			return err
		}
		p.place = &place
		if usesKafka(it) {
			p.keep = &f.producers
			p.records, err = records(it, lines)
			return err
		}
		p.body, err = encode(it, lines)
		return err
	})
	return p, err
}

// post sends a parcel once.
func (s *Service) post(ctx context.Context, tenant scope.TenantID, it Integration, p parcel) (a answer) {
	began := s.Now()
	defer func() { a.Delivered, a.DurationMS = a.Error == "", s.Now().Sub(began).Milliseconds() }()
	secrets, err := s.open(tenant, it)
	if err != nil {
		a.Error = "the stored credential cannot be decrypted"
		return a
	}
	switch {
	case p.problem != "":
		a.Error = p.problem
		return a
	case it.Kind == PolicyEngine:
		return s.postBundle(ctx, it, secrets, p)
	case usesKafka(it):
		a.Error = s.produce(ctx, job.LaneKey{Tenant: tenant, Lane: it.ID}, it, secrets, p.records, p.keep)
		return a
	}
	if server, ok, err := syslogServer(it); ok || err != nil {
		a.Error = s.stream(ctx, it, server, secrets, p.body, err)
		return a
	}
	r, err := requestOf(it, secrets, p, began)
	if err != nil {
		a.Error = "the request cannot be written"
		return a
	}
	res, err := s.Target.Do(ctx, r)
	if err != nil {
		a.Error = fault.Message(err)
		return a
	}
	a.ResponseCode = res.Status
	if !res.OK() {
		a.Error = "the system answered " + strconv.Itoa(res.Status)
		a.pause = res.RetryAfter(s.Now(), longestPause)
	}
	return a
}

// requestOf returns the request for a parcel, signed and with the credential.
func requestOf(it Integration, secrets map[string]string, p parcel, at time.Time) (outbound.Request, error) {
	r := outbound.Request{Method: "POST", URL: it.Endpoint, Body: p.body}
	if p.message != nil {
		var err error
		r.Body, r.Header, err = webhook.Signed(p.message.EventID, p.message.Type, p.message.At, p.body, at, secrets[format.HMACSecret])
		return r, err
	}
	r.Header = map[string][]string{"Content-Type": {contentType(it)}, "User-Agent": {"gatehouse-siem"}}
	if key := secrets[format.HMACSecret]; key != "" {
		r.Header["X-Service-Signature"] = []string{outbound.Signature([]byte(key), r.Body)}
	}
	if token := secrets[format.BearerToken]; token != "" {
		scheme, _ := it.Settings[settingScheme].(string)
		r.Header["Authorization"] = []string{cmp.Or(scheme, "Bearer") + " " + token}
	}
	return r, nil
}

// Test sends an example and returns the system's answer. It makes one attempt, even if the
// integration is disabled.
func (s *Service) Test(ctx context.Context, sc scope.Scope, id int64) (TestResult, error) {
	it, err := s.load(ctx, sc, id)
	if err != nil {
		return TestResult{}, err
	}
	p, err := s.example(ctx, sc, it)
	if err == nil && answers(it.Kind) {
		err = s.exampleRun(ctx, sc, it, &p)
	}
	if err != nil {
		return TestResult{}, err
	}
	a := s.post(ctx, sc.Tenant, it, p)
	err = s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		if _, err := load(ctx, tx, id); err != nil {
			return err // deleted meanwhile
		}
		if p.message != nil && p.message.Run != nil {
			end := s.started
			if a.Error != "" {
				end = func(ctx context.Context, tx *db.Tx, tenant scope.TenantID, it Integration, run int64) error {
					return s.failRun(ctx, tx, tenant, it, run, a.Error)
				}
			}
			if err := end(ctx, tx, sc.Tenant, it, *p.message.Run); err != nil {
				return err
			}
		}
		return audit.Append(ctx, tx, sc, s.Now(), it.entry("INTEGRATION_TESTED", map[string]any{"delivered": a.Delivered, "response_code": a.ResponseCode}))
	})
	return a.TestResult, err
}

// exampleRun starts a run for a test, so that the system can also test its answer.
func (s *Service) exampleRun(ctx context.Context, sc scope.Scope, it Integration, p *parcel) error {
	err := s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		r, err := insertRun(ctx, tx, Run{
			IntegrationID: it.ID, Environment: it.Environment, EventID: p.message.EventID, Cause: Cause{Test: true}, Status: RunPending, CreatedAt: p.message.At,
		})
		p.message.Run = &r.ID
		return err
	})
	if err == nil {
		p.body, err = s.openCallback(ctx, sc.Tenant, it, *p.message.Run, p.body)
	}
	return err
}

// example returns the parcel that a test sends.
func (s *Service) example(ctx context.Context, sc scope.Scope, it Integration) (parcel, error) {
	random := make([]byte, 16)
	if _, err := io.ReadFull(s.Random, random); err != nil {
		return parcel{}, fault.Wrap(err, "generate an id")
	}
	now := db.Stamp(s.Now())
	line := tail.Line{Chain: "test", Tenant: string(sc.Tenant), Environment: it.Environment, At: now}
	switch {
	case it.Kind == PolicyEngine:
		return s.exampleBundle(ctx, sc, it)
	case usesKafka(it):
		rs, err := records(it, []tail.Line{line})
		return parcel{records: rs}, err
	case it.Kind == SIEM:
		body, err := encode(it, []tail.Line{line})
		return parcel{body: body}, err
	}
	data := []byte(`{"test":true}`)
	return parcel{body: data, message: &message{EventID: "evt_" + hex.EncodeToString(random), Type: EventAction, At: now, Data: data}}, nil
}

// The event types of messages.
const (
	EventAction  = "control.action"
	EventRequest = "access.requested"
	EventOpened  = "break_glass.opened"
	EventEnded   = "break_glass.ended"
)

// QueueRequest queues a request for access for the approval systems of its environment, except
// those that ignore requests.
func QueueRequest(ctx context.Context, tx *db.Tx, env scope.Env, m Message) error {
	all, err := enabledOf(ctx, tx, Approval, env)
	if err != nil {
		return err
	}
	m.Type = EventRequest
	for _, it := range all {
		if it.Settings[settingAsks] == asksNone {
			continue
		}
		if err := Queue(ctx, tx, it.ID, env, m); err != nil {
			return err
		}
	}
	return nil
}

// Message is a message to an integration, for example of an action.
type Message struct {
	EventID string
	// Type is the event type; "": EventAction.
	Type string
	At   time.Time
	// Data is a JSON object with at least one member, without secrets.
	Data  []byte
	Cause Cause
}

// Queue queues a message for an integration of a kind that Called accepts, in the transaction of
// its cause. It does nothing if the integration is disabled or belongs to another environment.
func Queue(ctx context.Context, tx *db.Tx, id int64, env scope.Env, m Message) error {
	kind, err := takesFrom(ctx, tx, id, env)
	if errors.Is(err, db.ErrNoRows) || err == nil && !Called(kind) {
		return nil
	}
	if err != nil {
		return err
	}
	out := message{EventID: m.EventID, Type: cmp.Or(m.Type, EventAction), At: m.At, Data: m.Data}
	if answers(kind) {
		r, err := insertRun(ctx, tx, Run{IntegrationID: id, Environment: env, EventID: m.EventID, Cause: m.Cause, Status: RunPending, CreatedAt: db.Stamp(tx.Now())})
		if err != nil {
			return err
		}
		out.Run = &r.ID
	}
	if err := insertMessage(ctx, tx, id, out); err != nil {
		return err
	}
	return tx.Notify(ctx, Topic)
}

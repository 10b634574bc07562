package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/webhook"
)

// signedWithin is the largest difference between the time of a signed message and our time.
// keptInbound is how long the id of a message is kept; a message that is sent again later is
// refused because of its time.
const (
	signedWithin = 5 * time.Minute
	keptInbound  = time.Hour
)

// weakKey is the minimum length of a bridge's key, in bytes. Anybody who guesses the key can open
// grants.
const weakKey = 24

// The types of messages from a bridge.
const (
	typeOpen = "open"
	typeEnd  = "end"
)

// Inbound is a message that a system sends on its own initiative, signed as in Standard Webhooks.
type Inbound struct {
	ID, Timestamp, Signature string
	Body                     []byte
}

// BridgeMessage is a message of a break-glass system: it opens a grant, or ends one that the system
// opened.
type BridgeMessage struct {
	Type    string `json:"type" enum:"open,end" doc:"open: opens a grant. end: ends one that this bridge opened."`
	Subject struct {
		Type string `json:"type,omitempty" enum:"user,agent" doc:"Type of the subject; user by default."`
		ID   string `json:"id,omitempty" maxLength:"256" doc:"Who gets access: input.user.id of decisions." example:"ada"`
	} `json:"subject,omitzero" doc:"Who gets access."`
	Action struct {
		Name string `json:"name,omitempty" maxLength:"128" doc:"The action: input.action.name of decisions." example:"read"`
	} `json:"action,omitzero" doc:"What they need to do."`
	Resource struct {
		ID string `json:"id,omitempty" maxLength:"256" doc:"Id of the resource, or its name if only one has it." example:"7"`
	} `json:"resource,omitzero" doc:"The resource."`
	Environment scope.Env `json:"environment,omitempty" enum:"sandbox,production" doc:"Environment of the resource; absent: that of the integration, or production."`
	Reason      string    `json:"reason" maxLength:"500" doc:"Why. It is required." example:"INC-4711: payroll does not start"`
	Duration    int64     `json:"duration_seconds,omitempty" minimum:"1" doc:"How long the grant lasts, at most longest_grant of the integration." example:"1800"`
	By          string    `json:"by,omitempty" maxLength:"200" doc:"Who opens or ends it, as the system names them." example:"carol"`
	RequestID   int64     `json:"request_id,omitempty" minimum:"1" doc:"The grant to end."`
}

// BridgeResult is the answer to a break-glass system.
type BridgeResult struct {
	RequestID int64      `json:"request_id" doc:"Id of the grant; it is in /access/v1/requests."`
	Status    string     `json:"status" enum:"approved,revoked" doc:"approved: the grant lasts. revoked: it was ended."`
	ExpiresAt *time.Time `json:"expires_at" doc:"When the grant ends by itself."`
}

// Grants opens and ends break-glass grants. It calls once in the transaction of the grant; the
// error of once rolls it back.
type Grants interface {
	OpenGrant(ctx context.Context, sc scope.Scope, m BridgeMessage, longest int64, once func(tx *db.Tx) error) (BridgeResult, error)
	EndGrant(ctx context.Context, sc scope.Scope, m BridgeMessage, once func(tx *db.Tx) error) (BridgeResult, error)
}

// TakeBridge handles a message of a break-glass system. It returns Unauthenticated if the signature
// is not valid, and Conflict if the message was received before or the integration is disabled.
func (s *Service) TakeBridge(ctx context.Context, sc scope.Scope, id int64, in Inbound) (BridgeResult, error) {
	it, err := s.findSigner(ctx, sc.Tenant, id, in)
	if err != nil {
		return BridgeResult{}, err
	}
	if !it.Enabled {
		return BridgeResult{}, fault.New(fault.Conflict, "integration_disabled", "the integration is disabled, so it takes no messages")
	}
	m, err := readBridge(in.Body)
	if err != nil {
		return BridgeResult{}, err
	}
	if it.Environment != scope.AnyEnv && m.Environment != "" && m.Environment != it.Environment {
		return BridgeResult{}, fault.Invalidf("/environment", "the integration is of the other environment")
	}
	by := it.answering(sc)
	if by.Env = m.Environment; by.Env == "" {
		by.Env = it.Environment
	}
	once := func(tx *db.Tx) error {
		fresh, err := insertInbound(ctx, tx, it.ID, in.ID, db.Stamp(s.Now()))
		if err == nil && !fresh {
			err = fault.New(fault.Conflict, "already_received", "a message with this webhook-id was received before")
		}
		return err
	}
	if m.Type == typeEnd {
		return s.Grants.EndGrant(ctx, by, m, once)
	}
	return s.Grants.OpenGrant(ctx, by, m, int64(it.durationOf(settingLongest, glassTimes)/time.Second), once)
}

// findSigner returns the bridge whose key signed a message. It returns the same error for every problem
// with the signature and for a bridge that does not exist.
func (s *Service) findSigner(ctx context.Context, tenant scope.TenantID, id int64, in Inbound) (Integration, error) {
	wrong := fault.New(fault.Unauthenticated, "invalid_signature", "the message is not signed with the key of this integration, or its time is not ours")
	var it Integration
	err := s.Stores.Read(ctx, tenant, func(tx *db.Tx) (err error) {
		it, err = load(ctx, tx, id)
		return err
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return it, err
	}
	var key string
	if err == nil && it.Kind == BreakGlass {
		secrets, err := s.open(tenant, it)
		if err != nil {
			return it, err
		}
		key = secrets[format.HMACSecret]
	}
	valid := webhook.SignatureMatches(in.ID, in.Timestamp, in.Body, in.Signature, key)
	seconds, err := strconv.ParseInt(in.Timestamp, 10, 64)
	if !valid || key == "" || err != nil || in.ID == "" || len(in.ID) > 200 || s.Now().Sub(time.Unix(seconds, 0)).Abs() > signedWithin {
		return it, wrong
	}
	return it, nil
}

// readBridge reads and validates the body of a message. The caller has checked that no member
// occurs twice.
func readBridge(body []byte) (BridgeMessage, error) {
	var m BridgeMessage
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil || d.Decode(&struct{}{}) != io.EOF {
		return m, fault.Invalidf("", "the body is not a message of a break-glass bridge").Because(err)
	}
	var offences []fault.Detail
	wrong := func(pointer, message string, is bool) {
		if is {
			offences = append(offences, fault.Detail{Pointer: pointer, Message: message})
		}
	}
	text := func(pointer, value string, most int, needed bool) {
		wrong(pointer, "is required", needed && strings.TrimSpace(value) == "")
		wrong(pointer, "must not be longer than "+strconv.Itoa(most)+" characters", utf8.RuneCountInString(value) > most)
		wrong(pointer, "must not have a NUL", strings.Contains(value, "\x00"))
	}
	name := func(pointer, value string, most int, needed bool) {
		text(pointer, value, most, needed)
		why := fault.NameOffence(value)
		wrong(pointer, why, why != "")
	}
	opens := m.Type == typeOpen
	wrong("/type", "must be open or end", !opens && m.Type != typeEnd)
	text("/reason", m.Reason, 500, true)
	name("/subject/id", m.Subject.ID, 256, opens)
	name("/action/name", m.Action.Name, 128, opens)
	name("/resource/id", m.Resource.ID, 256, opens)
	name("/by", m.By, 200, false)
	wrong("/subject/type", "must be user or agent", m.Subject.Type != "" && m.Subject.Type != "user" && m.Subject.Type != "agent")
	wrong("/environment", "must be sandbox or production", m.Environment != "" && m.Environment != scope.Sandbox && m.Environment != scope.Production)
	wrong("/request_id", "is required", m.Type == typeEnd && m.RequestID < 1)
	return m, fault.CheckValues("the message is not valid", offences)
}

// QueueGrant queues a message to the break-glass systems of an environment: a grant began or ended.
func QueueGrant(ctx context.Context, tx *db.Tx, env scope.Env, ended bool, m Message) error {
	m.Type = EventOpened
	if ended {
		m.Type = EventEnded
	}
	all, err := enabledOf(ctx, tx, BreakGlass, env)
	for _, it := range all {
		err = errors.Join(err, Queue(ctx, tx, it.ID, env, m))
	}
	return err
}

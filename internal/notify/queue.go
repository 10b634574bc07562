package notify

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Topic is what a tenant with new deliveries is notified by.
const Topic = "notifications"

// Note is what happened, as its author tells it.
type Note struct {
	// ID identifies the message: the same in each attempt.
	ID string
	// Alert says what it is about, such as bouncer_offline.
	Alert    string
	Severity string
	// Env is AnyEnv for what concerns the whole tenant.
	Env scope.Env
	// Fault is the same in all notes about one fault, and in that about its end.
	Fault string
	// Resolved is set in the note about the end.
	Resolved    bool
	Title, Text string
	Facts       []format.Fact
	// Digest is what it sums up; nil: it is no digest.
	Digest []format.Summary
	// Channels are the only ones that are told; empty: all.
	Channels []int64
	// Path is the object's in the console; "": there is none.
	Path string
	At   time.Time
}

// Outbox queues messages, in the transaction of what they are about.
type Outbox struct {
	// Root is the URL of the console.
	Root string
}

// Broadcast queues a note for all channels that want it, or its end for all that were
// told of its beginning.
func (o Outbox) Broadcast(ctx context.Context, tx *db.Tx, tenant scope.TenantID, n Note) error {
	m, stored, err := o.compose(tenant, n)
	if err != nil {
		return err
	}
	now := db.Stamp(tx.Now())
	var queued int64
	if n.Resolved {
		queued, err = queueResolved(ctx, tx, m, stored, now)
	} else {
		queued, err = queueMessage(ctx, tx, m, stored, n.Channels, now)
	}
	if err != nil || queued == 0 {
		return err
	}
	if n.Resolved {
		err = closeFault(ctx, tx, m.Fault)
	} else {
		err = openFault(ctx, tx, m.Fault, now)
	}
	if err != nil {
		return err
	}
	return tx.Notify(ctx, Topic)
}

// compose gives the message of a note, bounded and redacted, and as it is stored.
func (o Outbox) compose(tenant scope.TenantID, n Note) (format.Message, []byte, error) {
	m := format.Message{
		ID: n.ID, Alert: n.Alert, Severity: n.Severity, Status: format.Firing, Title: n.Title, Text: n.Text, Facts: n.Facts,
		Tenant: string(tenant), Environment: string(n.Env), Fault: n.Fault, At: db.Stamp(n.At), Digest: n.Digest,
	}.Clean()
	if n.Resolved {
		m.Status = format.Resolved
	}
	if n.Path != "" {
		m.Link = o.Root + n.Path
	}
	for i, f := range m.Facts { // a fact is named like a member
		clean, ok := redact.JSON(nil, mustJSON(map[string]string{f.Name: f.Value}))
		var one map[string]string
		if !ok || json.Unmarshal(clean, &one) != nil {
			one = map[string]string{}
		}
		m.Facts[i].Value = one[f.Name]
	}
	stored, err := json.Marshal(m)
	if err != nil {
		return m, nil, fault.Wrap(err, "write a message")
	}
	return m, stored, nil
}

func mustJSON(v map[string]string) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		return nil // texts never fail
	}
	return out
}

// testMessage is a message that is sent at once.
func (s *Service) testMessage(tenant scope.TenantID, n Note) (format.Message, []byte, error) {
	id, err := s.newID()
	if err != nil {
		return format.Message{}, nil, err
	}
	n.ID, n.At = id, s.Now()
	return s.Outbox.compose(tenant, n)
}

// newID is an id for a message that no event has.
func (s *Service) newID() (string, error) {
	random := make([]byte, 16)
	if _, err := io.ReadFull(s.Random, random); err != nil {
		return "", fault.Wrap(err, "generate an id")
	}
	return "ntf_" + hex.EncodeToString(random), nil
}

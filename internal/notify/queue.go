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

// Topic is the topic of the notifications that wake the Deliverer when a tenant has new deliveries.
const Topic = "notifications"

// Note is something that happened, before it is formatted as a message.
type Note struct {
	// ID identifies the message. It is the same in each attempt.
	ID string
	// Alert is the kind of event, such as bouncer_offline.
	Alert    string
	Severity string
	// Env is AnyEnv for a note about the whole tenant.
	Env scope.Env
	// Fault identifies the fault. It is the same in all notes about one fault, including the one
	// about its end.
	Fault string
	// Resolved is set in the note about the end of the fault.
	Resolved    bool
	Title, Text string
	Facts       []format.Fact
	// Digest lists the messages in the digest; nil: this is not a digest.
	Digest []format.Summary
	// Channels are the channels that get the note; empty: all.
	Channels []int64
	// Path is the path of the object in the console; "": there is none.
	Path string
	At   time.Time
}

// Outbox queues messages, in the transaction of the change that they are about.
type Outbox struct {
	// Root is the URL of the console.
	Root string
}

// Broadcast queues a note for all channels that want it. A note about the end of a fault goes to
// the channels that were told of its beginning.
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

// compose returns the message of a note, bounded and redacted, and its stored form.
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
	for i, f := range m.Facts { // redaction judges a fact by its name, as a member
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
		return nil // maps of strings always encode
	}
	return out
}

// testMessage returns the message of a note that is sent at once, and its stored form.
func (s *Service) testMessage(tenant scope.TenantID, n Note) (format.Message, []byte, error) {
	id, err := s.newID()
	if err != nil {
		return format.Message{}, nil, err
	}
	n.ID, n.At = id, s.Now()
	return s.Outbox.compose(tenant, n)
}

// newID returns a random id for a message without an event.
func (s *Service) newID() (string, error) {
	random := make([]byte, 16)
	if _, err := io.ReadFull(s.Random, random); err != nil {
		return "", fault.Wrap(err, "generate an id")
	}
	return "ntf_" + hex.EncodeToString(random), nil
}

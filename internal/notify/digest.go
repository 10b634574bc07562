package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// AlertDigest is the alert of a digest.
	AlertDigest = "digest"
	// perDigest is the largest number of messages in one digest. If more were held, there are
	// several digests.
	perDigest = 500
	// listedInDigest is how many of them a digest lists; digestText bounds its text, in bytes.
	listedInDigest = 100
	digestText     = 1800
)

// holdDue decides which of the due deliveries of a channel are sent now. It holds messages in quiet
// hours, and in the digest window after a message. It combines messages that were held into one
// digest. A delivery that was tried before, and one that waits behind it with the same fault, is
// held only in quiet hours, and is then sent on its own.
func (d *Deliverer) holdDue(ctx context.Context, tx *db.Tx, tenant scope.TenantID, c Channel, now time.Time) error {
	if until, quiet := c.QuietHours.until(now); quiet {
		return holdQuiet(ctx, tx, c.ID, now, db.Stamp(until), c.QuietHours.Except)
	}
	t, _ := format.Find(c.Type)
	summed, err := d.makeDigest(ctx, tx, tenant, c, t.Lasting, now)
	if err != nil || c.DigestWindow == 0 || t.Lasting {
		return err
	}
	if c.DigestUntil != nil && now.Before(*c.DigestUntil) {
		return holdBurst(ctx, tx, c.ID, now, *c.DigestUntil, 0)
	}
	var first int64
	if !summed { // otherwise the digest is sent now
		if first, err = firstFresh(ctx, tx, c.ID, now); err != nil || first == 0 {
			return err
		}
	}
	until := now.Add(time.Duration(c.DigestWindow) * time.Second)
	if err := saveDigestUntil(ctx, tx, c.ID, until); err != nil {
		return err
	}
	return holdBurst(ctx, tx, c.ID, now, until, first)
}

// makeDigest makes one digest of the messages whose hold has ended, and reports whether it made one. A
// single message is sent as it is. So are all messages of a type that keeps an incident or a ticket
// for each fault.
func (d *Deliverer) makeDigest(ctx context.Context, tx *db.Tx, tenant scope.TenantID, c Channel, lasting bool, now time.Time) (bool, error) {
	held, err := heldParcels(ctx, tx, c.ID, now, perDigest)
	if err != nil || len(held) == 0 {
		return false, err
	}
	if err := releaseHeld(ctx, tx, c.ID, now, lasting); err != nil || lasting {
		return false, err
	}
	if held, err = heldParcels(ctx, tx, c.ID, now, perDigest); err != nil || len(held) == 0 {
		return false, err
	}
	if len(held) == 1 {
		return false, releaseOne(ctx, tx, held[0].ID)
	}
	m, stored, err := d.digestOf(tenant, c, held)
	if err != nil {
		return false, err
	}
	id, err := insertDigest(ctx, tx, c.ID, m, stored, len(held), now)
	if err != nil {
		return false, err
	}
	return true, noteDigested(ctx, tx, c.ID, id, held[len(held)-1].ID, now)
}

// digestOf returns the digest of messages, and its stored form. The messages come in the order in
// which they were queued.
func (d *Deliverer) digestOf(tenant scope.TenantID, c Channel, held []parcel) (format.Message, []byte, error) {
	zone := time.UTC
	if c.QuietHours != nil {
		if z, known := c.QuietHours.zone(); known {
			zone = z
		}
	}
	n := Note{
		Alert: AlertDigest, Severity: format.Info, Env: c.Environment, Resolved: true,
		Path: "/notifications/deliveries?" + url.Values{"environment": {string(c.Environment)}, "channel_id": {strconv.FormatInt(c.ID, 10)}, "status": {Digested}}.Encode(),
	}
	for _, p := range held {
		var m format.Message
		if err := json.Unmarshal(p.Message, &m); err != nil {
			return format.Message{}, nil, fault.Wrap(err, "read a held message")
		}
		if severityRank(m.Severity) > severityRank(n.Severity) {
			n.Severity = m.Severity
		}
		n.Resolved = n.Resolved && m.Status == format.Resolved
		n.Digest = append(n.Digest, m.Summary())
	}
	const minute = "2 Jan 15:04"
	first, last := n.Digest[0].At.In(zone), n.Digest[len(n.Digest)-1].At.In(zone)
	n.Title = fmt.Sprintf("%d messages from %s to %s (%s)", len(held), first.Format(minute), last.Format(minute), zone)
	slices.SortStableFunc(n.Digest, func(a, b format.Summary) int { return cmp.Compare(severityRank(b.Severity), severityRank(a.Severity)) })
	n.Digest = n.Digest[:min(len(n.Digest), listedInDigest)]
	n.Text = digestLines(n.Digest, len(held), func(at time.Time) string { return at.In(zone).Format(minute) })
	id, err := d.newID()
	if err != nil {
		return format.Message{}, nil, err
	}
	n.ID, n.Fault, n.At = id, "digest:"+id, d.Now()
	return d.Outbox.compose(tenant, n)
}

// digestLines returns a line for each message as far as there is room, and says how many more there
// are.
func digestLines(list []format.Summary, total int, when func(at time.Time) string) string {
	var b strings.Builder
	for i, s := range list {
		line := s.Line(when(s.At))
		if b.Len()+len(line) > digestText {
			list = list[:i]
			break
		}
		b.WriteString(line + "\n")
	}
	if more := total - len(list); more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

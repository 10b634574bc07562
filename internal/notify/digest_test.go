package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
)

// quietNow returns quiet hours from an hour before to an hour after the time of the bench's clock.
func (b *bench) quietNow() *QuietHours {
	now := b.clock.Now()
	return &QuietHours{From: now.Add(-time.Hour).Format("15:04"), To: now.Add(time.Hour).Format("15:04")}
}

// messages returns the messages that arrived, in order.
func (r *receiver) messages(t *testing.T) []format.Message {
	t.Helper()
	var out []format.Message
	for _, c := range r.list() {
		var m format.Message
		errtest.Must(t, json.Unmarshal([]byte(c.body), &m))
		out = append(out, m)
	}
	return out
}

// titles lists the titles of messages. Those of a digest are in parentheses.
func titles(messages []format.Message) string {
	var out []string
	for _, m := range messages {
		if len(m.Digest) == 0 {
			out = append(out, m.Title)
			continue
		}
		var in []string
		for _, s := range m.Digest {
			in = append(in, s.Title)
		}
		out = append(out, "("+strings.Join(in, " ")+")")
	}
	return strings.Join(out, " ")
}

// TestQuietHours checks that messages are held until the quiet hours end and are then one digest,
// and that critical messages are not held.
func TestQuietHours(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL, QuietHours: b.quietNow()})
		b.queue(Note{Fault: "a", Title: "a1", Severity: format.Warning}, Note{Fault: "b", Title: "b1"}, Note{Fault: "c", Title: "c1", Severity: format.Critical},
			Note{Fault: "a", Title: "a2", Resolved: true, Severity: format.Info})
		b.runLane("a", ch)
		if got := titles(r.messages(t)); got != "c1" {
			t.Fatalf("in quiet hours the receiver got %q, want only c1", got)
		}
		held := b.deliveries(DeliveryFilter{Status: Held})
		if len(held) != 3 || held[0].NextAttemptAt == nil || held[0].NextAttemptAt.Sub(b.clock.Now()) > time.Hour {
			t.Fatalf("the held deliveries are %+v, want 3 that are due within an hour", held)
		}
		if now, err := b.Get(context.Background(), admin, ch.ID); err != nil || now.Held != 3 || now.Pending != 3 || now.QuietHours.TimeZone != "UTC" {
			t.Errorf("Get = %+v, %v, want 3 held and pending, and UTC", now, err)
		}
		if _, err := b.Retry(context.Background(), admin, held[0].ID); err == nil {
			t.Error("Retry of a held delivery: no error")
		}
		b.clock.Move(50 * time.Minute)
		b.runLane("a", ch)
		if n := len(r.list()); n != 1 {
			t.Fatalf("the receiver got %d calls before the end, want 1", n)
		}
		b.clock.Move(11 * time.Minute)
		b.runLane("a", ch)
		b.runLane("a", ch)
		all := r.messages(t)
		if got := titles(all); got != "c1 (b1 a1 a2)" {
			t.Fatalf("after the end the receiver has %q, want c1 and a digest", got)
		}
		digest := all[1]
		if digest.Alert != AlertDigest || digest.Severity != format.Error || digest.Status != format.Firing || !strings.HasPrefix(digest.Title, "3 messages from ") ||
			!strings.Contains(digest.Text, "[error] b1") || !strings.Contains(digest.Text, "[resolved] a2") || !strings.Contains(digest.Link, fmt.Sprintf("channel_id=%d", ch.ID)) {
			t.Errorf("the digest is %+v, want an error that fires, about 3 messages", digest)
		}
		one := b.deliveries(DeliveryFilter{Alert: AlertDigest})
		if len(one) != 1 || one[0].Status != Sent || one[0].DigestSize != 3 {
			t.Fatalf("the deliveries of digests are %+v, want one that is sent, of 3", one)
		}
		members := b.deliveries(DeliveryFilter{Digest: one[0].ID})
		if len(members) != 3 || members[0].Status != Digested || members[0].FinishedAt == nil || *members[0].DigestID != one[0].ID {
			t.Errorf("the messages of the digest are %+v, want 3 that are finished", members)
		}
		if _, err := b.Retry(context.Background(), admin, members[0].ID); err == nil || !strings.Contains(err.Error(), "digest") {
			t.Errorf("Retry of a message in a digest = %v, want an error about the digest", err)
		}
	})
}

// TestQuietHoursHoldRetries checks that a delivery that failed before is held too, and keeps its
// attempts. A critical message about the same fault does not wait for it.
func TestQuietHoursHoldRetries(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		now := b.clock.Now()
		ch := b.channel(Draft{Endpoint: r.URL, QuietHours: &QuietHours{From: now.Add(10 * time.Minute).Format("15:04"), To: now.Add(time.Hour).Format("15:04")}})
		r.set(func(recorded) (int, string) { return 500, "" })
		b.queue(Note{Fault: "f", Title: "first"}, Note{Fault: "f", Title: "second"})
		b.runLane("a", ch)
		r.set(func(recorded) (int, string) { return 200, "" })
		b.clock.Move(20 * time.Minute)
		b.runLane("a", ch)
		if held := b.deliveries(DeliveryFilter{Status: Held}); len(held) != 2 || held[1].Attempts != 1 {
			t.Fatalf("the held deliveries are %+v, want 2, of which the first was tried", held)
		}
		b.queue(Note{Fault: "f", Title: "critical", Severity: format.Critical})
		b.runLane("a", ch)
		if got := titles(r.messages(t)); got != "first critical" {
			t.Fatalf("in quiet hours the receiver has %q, want first and critical", got)
		}
		b.clock.Move(45 * time.Minute)
		b.runLane("a", ch)
		if got := titles(r.messages(t)); got != "first critical first second" {
			t.Errorf("after the end the receiver has %q, want first and second too", got)
		}
		if d := b.deliveries(DeliveryFilter{}); d[2].Attempts != 2 || d[2].Status != Sent {
			t.Errorf("the first delivery is %+v, want sent after 2 attempts", d[2])
		}
	})
}

// TestDigestOfABurst checks that the first message of a burst is sent at once, and that the others
// are one digest at the end of the window. A single message is sent as it is.
func TestDigestOfABurst(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL, DigestWindow: 600})
		b.queue(Note{Fault: "1", Title: "1"}, Note{Fault: "2", Title: "2"}, Note{Fault: "3", Title: "3"})
		b.runLane("a", ch)
		b.queue(Note{Fault: "4", Title: "4"}, Note{Fault: "5", Title: "critical", Severity: format.Critical})
		b.runLane("a", ch)
		if got := titles(r.messages(t)); got != "1 critical" {
			t.Fatalf("within the window the receiver has %q, want 1 and critical", got)
		}
		b.clock.Move(10*time.Minute + time.Second)
		b.runLane("a", ch)
		b.queue(Note{Fault: "6", Title: "6"})
		b.runLane("a", ch)
		if got := titles(r.messages(t)); got != "1 critical (2 3 4)" {
			t.Fatalf("after the window the receiver has %q, want also a digest", got)
		}
		b.clock.Move(10*time.Minute + time.Second)
		b.runLane("a", ch)
		b.clock.Move(10*time.Minute + time.Second)
		b.queue(Note{Fault: "7", Title: "7"})
		b.runLane("a", ch)
		if got := titles(r.messages(t)); got != "1 critical (2 3 4) 6 7" {
			t.Errorf("at the end the receiver has %q, want 6 and 7 on their own", got)
		}
	})
}

// TestDigestThatFails checks that a digest is tried again like any message, and that later messages
// about its faults do not overtake it.
func TestDigestThatFails(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL, QuietHours: b.quietNow()})
		b.queue(Note{Fault: "a", Title: "a1"}, Note{Fault: "b", Title: "b1"})
		b.runLane("a", ch)
		r.set(func(c recorded) (int, string) {
			if strings.Contains(c.body, `"alert":"digest"`) {
				return 503, ""
			}
			return 200, ""
		})
		b.clock.Move(61 * time.Minute)
		b.runLane("a", ch)
		b.queue(Note{Fault: "a", Title: "a2", Resolved: true}, Note{Fault: "c", Title: "c1"})
		b.runLane("a", ch)
		if got := titles(r.messages(t)); got != "(a1 b1) c1" {
			t.Fatalf("the receiver has %q, want the digest and c1", got)
		}
		r.set(func(recorded) (int, string) { return 200, "" })
		b.clock.Move(16 * time.Minute)
		b.runLane("a", ch)
		if got := titles(r.messages(t)); got != "(a1 b1) c1 (a1 b1) a2" {
			t.Errorf("the receiver has %q, want the digest again and a2", got)
		}
	})
}

// TestQuietHoursOfPagers checks that a type that keeps an incident for each fault gets each message
// on its own, and refuses a digest window.
func TestQuietHoursOfPagers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		r.set(func(recorded) (int, string) { return 202, `{"status":"success"}` })
		d := Draft{Name: "pager", Type: format.PagerDuty, Endpoint: r.URL, Credential: "r0uting-key", DigestWindow: 60}
		if _, err := b.Create(context.Background(), admin, d); err == nil {
			t.Fatal("Create of a pager with a digest window: no error")
		}
		d.DigestWindow, d.QuietHours = 0, b.quietNow()
		ch := b.channel(d)
		b.queue(Note{Fault: "a", Title: "a1"}, Note{Fault: "b", Title: "b1"}, Note{Fault: "a", Title: "a2", Resolved: true})
		b.runLane("a", ch)
		if n := len(r.list()); n != 0 {
			t.Fatalf("the receiver got %d calls in quiet hours, want none", n)
		}
		b.clock.Move(61 * time.Minute)
		b.runLane("a", ch)
		var actions []string
		for _, c := range r.list() {
			var e struct {
				Action string `json:"event_action"`
			}
			errtest.Must(t, json.Unmarshal([]byte(c.body), &e))
			actions = append(actions, e.Action)
		}
		if fmt.Sprint(actions) != "[trigger trigger resolve]" {
			t.Errorf("the actions are %v, want trigger twice and resolve", actions)
		}
	})
}

// TestChangeReleasesHeldMessages checks that held messages follow a change of the settings at once.
func TestChangeReleasesHeldMessages(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL, QuietHours: b.quietNow()})
		b.queue(Note{Fault: "a", Title: "a1"}, Note{Fault: "b", Title: "b1"})
		b.runLane("a", ch)
		after, err := b.Update(context.Background(), admin, ch.ID, Change{QuietHours: patch.Clear[QuietHours]()}, 0)
		if err != nil || after.QuietHours != nil {
			t.Fatalf("Update = %+v, %v, want no quiet hours", after, err)
		}
		b.runLane("a", ch)
		if got := titles(r.messages(t)); got != "(a1 b1)" {
			t.Errorf("the receiver has %q, want a digest", got)
		}
		if n := b.countAudit("NOTIFICATION_CHANNEL_UPDATED"); n != 1 {
			t.Errorf("the audit has %d changes, want 1", n)
		}
	})
}

// TestNothingIsLost checks that every message arrives, on its own or in a digest, while a receiver
// fails at random and lanes change hands.
func TestNothingIsLost(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same numbers each time
		for series := range fulltest.Rounds(2, 12) {
			b, r := newBench(t, c), newReceiver(t)
			d := Draft{Name: fmt.Sprint("series ", series), Endpoint: r.URL, MaxAttempts: new(int), DigestWindow: []int{0, 60, 900}[random.IntN(3)]}
			*d.MaxAttempts = 10
			if random.IntN(2) == 0 {
				d.QuietHours = b.quietNow()
			}
			ch := b.channel(d)
			queued := map[string][]string{} // ids by fault
			n := 0
			for range 30 {
				down := random.IntN(4) == 0
				r.set(func(recorded) (int, string) { return map[bool]int{true: 503, false: 200}[down], "" })
				for range random.IntN(4) {
					n++
					fault, id := fmt.Sprint("f", series, "-", random.IntN(3)), fmt.Sprintf("ntf_%d_%d", series, n)
					queued[fault] = append(queued[fault], id)
					b.queue(Note{ID: id, Fault: fault, Title: id, Severity: format.Severities()[random.IntN(3)]})
				}
				b.runLane(fmt.Sprint(random.IntN(2)), ch)
				b.clock.Move(time.Duration(random.IntN(1200)) * time.Second)
			}
			r.set(func(recorded) (int, string) { return 200, "" })
			for left := int64(1); left > 0; {
				b.clock.Move(20 * time.Minute)
				b.runLane("a", ch)
				now, err := b.Get(context.Background(), admin, ch.ID)
				errtest.Must(t, err)
				left = now.Pending
			}
			for _, d := range b.deliveries(DeliveryFilter{Channel: ch.ID}) {
				if d.Status == DLQ {
					t.Fatalf("the delivery %+v is given up, want it sent", d)
				}
			}
			arrived := map[[2]string]bool{} // fault and id
			for _, m := range r.messages(t) {
				if len(m.Digest) == 0 {
					arrived[[2]string{m.Fault, m.ID}] = true
				}
				for _, s := range m.Digest {
					arrived[[2]string{s.Fault, s.ID}] = true
				}
			}
			for fault, ids := range queued {
				for _, id := range ids {
					if !arrived[[2]string{fault, id}] {
						t.Errorf("series %d: the message %s about %s is lost", series, id, fault)
					}
				}
			}
		}
	})
}

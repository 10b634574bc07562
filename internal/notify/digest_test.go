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
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
)

// around returns quiet hours from an hour before to an hour after the time of the bench's clock.
func (b *bench) around() *QuietHours {
	now := b.clock.Now()
	return &QuietHours{From: now.Add(-time.Hour).Format("15:04"), To: now.Add(time.Hour).Format("15:04")}
}

// sent returns the messages that arrived, in their order.
func (r *receiver) sent(t *testing.T) []format.Message {
	t.Helper()
	var out []format.Message
	for _, c := range r.list() {
		var m format.Message
		if err := json.Unmarshal([]byte(c.body), &m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

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
		ch := b.channel(Draft{Endpoint: r.URL, QuietHours: b.around()})
		b.queue(Note{Fault: "a", Title: "a1", Severity: format.Warning}, Note{Fault: "b", Title: "b1"}, Note{Fault: "c", Title: "c1", Severity: format.Critical},
			Note{Fault: "a", Title: "a2", Resolved: true, Severity: format.Info})
		b.round("a", ch)
		if got := titles(r.sent(t)); got != "c1" {
			t.Fatalf("in quiet hours arrived %q", got)
		}
		held := b.deliveries(DeliveryFilter{Status: Held})
		if len(held) != 3 || held[0].NextAttemptAt == nil || held[0].NextAttemptAt.Sub(b.clock.Now()) > time.Hour {
			t.Fatalf("held: %+v", held)
		}
		if now, err := b.Get(context.Background(), admin, ch.ID); err != nil || now.Held != 3 || now.Pending != 3 || now.QuietHours.TimeZone != "UTC" {
			t.Errorf("the channel reads %+v, %v", now, err)
		}
		if _, err := b.Retry(context.Background(), admin, held[0].ID); err == nil {
			t.Error("what is held is tried again")
		}
		b.clock.Move(50 * time.Minute)
		b.round("a", ch)
		if n := len(r.list()); n != 1 {
			t.Fatalf("%d calls before the end", n)
		}
		b.clock.Move(11 * time.Minute)
		b.round("a", ch)
		b.round("a", ch)
		all := r.sent(t)
		if got := titles(all); got != "c1 (b1 a1 a2)" {
			t.Fatalf("arrived %q", got)
		}
		digest := all[1]
		if digest.Alert != AlertDigest || digest.Severity != format.Error || digest.Status != format.Firing || !strings.HasPrefix(digest.Title, "3 messages from ") ||
			!strings.Contains(digest.Text, "[error] b1") || !strings.Contains(digest.Text, "[resolved] a2") || !strings.Contains(digest.Link, fmt.Sprintf("channel_id=%d", ch.ID)) {
			t.Errorf("the digest is %+v", digest)
		}
		one := b.deliveries(DeliveryFilter{Alert: AlertDigest})
		if len(one) != 1 || one[0].Status != Sent || one[0].DigestSize != 3 {
			t.Fatalf("the digest's delivery: %+v", one)
		}
		members := b.deliveries(DeliveryFilter{Digest: one[0].ID})
		if len(members) != 3 || members[0].Status != Digested || members[0].FinishedAt == nil || *members[0].DigestID != one[0].ID {
			t.Errorf("its messages: %+v", members)
		}
		if _, err := b.Retry(context.Background(), admin, members[0].ID); err == nil || !strings.Contains(err.Error(), "digest") {
			t.Errorf("what is in a digest is tried again: %v", err)
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
		b.round("a", ch)
		r.set(func(recorded) (int, string) { return 200, "" })
		b.clock.Move(20 * time.Minute)
		b.round("a", ch)
		if held := b.deliveries(DeliveryFilter{Status: Held}); len(held) != 2 || held[1].Attempts != 1 {
			t.Fatalf("held: %+v", held)
		}
		b.queue(Note{Fault: "f", Title: "critical", Severity: format.Critical})
		b.round("a", ch)
		if got := titles(r.sent(t)); got != "first critical" {
			t.Fatalf("arrived %q", got)
		}
		b.clock.Move(45 * time.Minute)
		b.round("a", ch)
		if got := titles(r.sent(t)); got != "first critical first second" {
			t.Errorf("arrived %q", got)
		}
		if d := b.deliveries(DeliveryFilter{}); d[2].Attempts != 2 || d[2].Status != Sent {
			t.Errorf("the first: %+v", d[2])
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
		b.round("a", ch)
		b.queue(Note{Fault: "4", Title: "4"}, Note{Fault: "5", Title: "critical", Severity: format.Critical})
		b.round("a", ch)
		if got := titles(r.sent(t)); got != "1 critical" {
			t.Fatalf("within the window arrived %q", got)
		}
		b.clock.Move(10*time.Minute + time.Second)
		b.round("a", ch)
		b.queue(Note{Fault: "6", Title: "6"})
		b.round("a", ch)
		if got := titles(r.sent(t)); got != "1 critical (2 3 4)" {
			t.Fatalf("after the window arrived %q", got)
		}
		b.clock.Move(10*time.Minute + time.Second)
		b.round("a", ch)
		b.clock.Move(10*time.Minute + time.Second)
		b.queue(Note{Fault: "7", Title: "7"})
		b.round("a", ch)
		if got := titles(r.sent(t)); got != "1 critical (2 3 4) 6 7" {
			t.Errorf("in the end arrived %q", got)
		}
	})
}

// TestADigestFails checks that a digest is tried again like any message, and that later messages
// about its faults do not overtake it.
func TestADigestFails(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL, QuietHours: b.around()})
		b.queue(Note{Fault: "a", Title: "a1"}, Note{Fault: "b", Title: "b1"})
		b.round("a", ch)
		r.set(func(c recorded) (int, string) {
			if strings.Contains(c.body, `"alert":"digest"`) {
				return 503, ""
			}
			return 200, ""
		})
		b.clock.Move(61 * time.Minute)
		b.round("a", ch)
		b.queue(Note{Fault: "a", Title: "a2", Resolved: true}, Note{Fault: "c", Title: "c1"})
		b.round("a", ch)
		if got := titles(r.sent(t)); got != "(a1 b1) c1" {
			t.Fatalf("arrived %q", got)
		}
		r.set(func(recorded) (int, string) { return 200, "" })
		b.clock.Move(16 * time.Minute)
		b.round("a", ch)
		if got := titles(r.sent(t)); got != "(a1 b1) c1 (a1 b1) a2" {
			t.Errorf("arrived %q", got)
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
			t.Fatal("a pager has a window for digests")
		}
		d.DigestWindow, d.QuietHours = 0, b.around()
		ch := b.channel(d)
		b.queue(Note{Fault: "a", Title: "a1"}, Note{Fault: "b", Title: "b1"}, Note{Fault: "a", Title: "a2", Resolved: true})
		b.round("a", ch)
		if n := len(r.list()); n != 0 {
			t.Fatalf("%d calls in quiet hours", n)
		}
		b.clock.Move(61 * time.Minute)
		b.round("a", ch)
		var actions []string
		for _, c := range r.list() {
			var e struct {
				Action string `json:"event_action"`
			}
			if err := json.Unmarshal([]byte(c.body), &e); err != nil {
				t.Fatal(err)
			}
			actions = append(actions, e.Action)
		}
		if fmt.Sprint(actions) != "[trigger trigger resolve]" {
			t.Errorf("%v", actions)
		}
	})
}

// TestAChangeEndsTheHold checks that held messages follow a change of the settings at once.
func TestAChangeEndsTheHold(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL, QuietHours: b.around()})
		b.queue(Note{Fault: "a", Title: "a1"}, Note{Fault: "b", Title: "b1"})
		b.round("a", ch)
		after, err := b.Update(context.Background(), admin, ch.ID, Change{QuietHours: patch.Clear[QuietHours]()}, 0)
		if err != nil || after.QuietHours != nil {
			t.Fatalf("%+v, %v", after, err)
		}
		b.round("a", ch)
		if got := titles(r.sent(t)); got != "(a1 b1)" {
			t.Errorf("arrived %q", got)
		}
		if b.audited("NOTIFICATION_CHANNEL_UPDATED") != 1 {
			t.Error("the change is not in the audit")
		}
	})
}

// TestNothingIsLost checks that every message arrives, on its own or in a digest, while a receiver
// fails at random and lanes change hands.
func TestNothingIsLost(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same course each time
		for course := range fulltest.Rounds(2, 12) {
			b, r := newBench(t, c), newReceiver(t)
			d := Draft{Name: fmt.Sprint("course ", course), Endpoint: r.URL, MaxAttempts: new(int), DigestWindow: []int{0, 60, 900}[random.IntN(3)]}
			*d.MaxAttempts = 10
			if random.IntN(2) == 0 {
				d.QuietHours = b.around()
			}
			ch := b.channel(d)
			told := map[string][]string{} // by fault
			n := 0
			for range 30 {
				down := random.IntN(4) == 0
				r.set(func(recorded) (int, string) { return map[bool]int{true: 503, false: 200}[down], "" })
				for range random.IntN(4) {
					n++
					fault, id := fmt.Sprint("f", course, "-", random.IntN(3)), fmt.Sprintf("ntf_%d_%d", course, n)
					told[fault] = append(told[fault], id)
					b.queue(Note{ID: id, Fault: fault, Title: id, Severity: format.Severities()[random.IntN(3)]})
				}
				b.round(fmt.Sprint(random.IntN(2)), ch)
				b.clock.Move(time.Duration(random.IntN(1200)) * time.Second)
			}
			r.set(func(recorded) (int, string) { return 200, "" })
			for left := int64(1); left > 0; {
				b.clock.Move(20 * time.Minute)
				b.round("a", ch)
				now, err := b.Get(context.Background(), admin, ch.ID)
				if err != nil {
					t.Fatal(err)
				}
				left = now.Pending
			}
			arrived := map[string][]string{}
			for _, d := range b.deliveries(DeliveryFilter{Channel: ch.ID}) {
				if d.Status == DLQ {
					t.Fatalf("given up: %+v", d)
				}
			}
			note := func(fault, id string) {
				for _, seen := range arrived[fault] {
					if seen == id {
						return // the receiver has seen the failed digest before
					}
				}
				arrived[fault] = append(arrived[fault], id)
			}
			for _, m := range r.sent(t) {
				if len(m.Digest) == 0 {
					note(m.Fault, m.ID)
				}
				for _, s := range m.Digest {
					note(s.Fault, s.ID)
				}
			}
			for fault, ids := range told {
				seen := map[string]bool{}
				for _, id := range arrived[fault] {
					seen[id] = true
				}
				for _, id := range ids {
					if !seen[id] {
						t.Errorf("course %d: %s about %s never arrived", course, id, fault)
					}
				}
			}
		}
	})
}

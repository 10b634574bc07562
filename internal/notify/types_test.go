package notify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestTicketIsRemembered checks that all deliveries about one fault share a ticket, within a turn
// and over several turns and replicas. The end resolves it, and the next fault opens another one.
func TestTicketIsRemembered(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		opened := 0
		r.set(func(c recorded) (int, string) {
			switch c.method {
			case "GET":
				return 200, `{"result":[]}` // the search index is not up to date
			case "POST":
				opened++
				return 201, fmt.Sprintf(`{"result":{"sys_id":"sys%d"}}`, opened)
			}
			return 200, `{"result":{"sys_id":"x"}}`
		})
		ch := b.channel(Draft{Type: format.ServiceNow, Endpoint: r.URL, Credential: map[string]any{"username": "robot", "password": "passw0rd"}})
		b.queue(Note{Fault: "f", Title: "one"}, Note{Fault: "f", Title: "two"}, Note{Fault: "g", Title: "other"})
		b.runLane("a", ch)
		b.queue(Note{Fault: "f", Title: "three"})
		b.runLane("b", ch)
		b.queue(Note{Fault: "f", Title: "over", Resolved: true})
		b.runLane("a", ch)
		b.queue(Note{Fault: "f", Title: "again"})
		b.runLane("b", ch)
		var seen []string
		for _, call := range r.list() {
			if call.method != "GET" {
				seen = append(seen, call.method+strings.TrimPrefix(call.path, "/api/now/table/incident"))
			}
		}
		if got, want := strings.Join(seen, " "), "POST PATCH/sys1 POST PATCH/sys1 PATCH/sys1 POST"; got != want {
			t.Errorf("the calls are %q, want %q", got, want)
		}
		if n := len(b.deliveries(DeliveryFilter{Status: Sent})); n != 6 {
			t.Errorf("%d deliveries are sent, want 6", n)
		}
	})
}

// TestRetryAfter checks that the pause that a receiver asks for holds for the whole channel, and
// that a failed delivery keeps its own schedule.
func TestRetryAfter(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		r.set(func(recorded) (int, string) { return 429, `{"ok":false,"error":"ratelimited"}` })
		ch := b.channel(Draft{Type: format.Slack, Endpoint: r.URL, Settings: map[string]any{"channel": "C1"}, Credential: "xoxb-of-the-channel"})
		b.queue(Note{Fault: "one"}, Note{Fault: "two"})
		b.runLane("a", ch)
		r.set(func(recorded) (int, string) { return 200, `{"ok":true}` })
		b.runLane("a", ch)
		if n := len(r.list()); n != 1 {
			t.Fatalf("the receiver got %d calls within the pause, want 1", n)
		}
		if d := b.deliveries(DeliveryFilter{Status: Failed}); len(d) != 1 || d[0].Response != "ratelimited" || d[0].ResponseCode != 429 {
			t.Errorf("the failed deliveries are %+v, want one with 429 ratelimited", d)
		}
		b.clock.Move(3 * time.Minute)
		b.runLane("a", ch)
		if d := b.deliveries(DeliveryFilter{Status: Sent}); len(d) != 1 || d[0].Payload.Fault != "two" {
			t.Errorf("after the pause the sent deliveries are %+v, want that of two", d)
		}
		b.clock.Move(15 * time.Minute)
		b.runLane("a", ch)
		if d := b.deliveries(DeliveryFilter{Status: Sent}); len(d) != 2 {
			t.Errorf("after the schedule the sent deliveries are %+v, want both", d)
		}
	})
}

// TestWebhookURLIsACredential checks that the URL of a chat's incoming webhook is stored encrypted
// and never shown, and that another host needs a new one.
func TestWebhookURLIsACredential(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b, r := newBench(t, c), newReceiver(t)
		const path = "/services/T00/B00/s3cret-of-the-hook"
		for _, kind := range []string{format.Slack, format.Teams} {
			ch := b.channel(Draft{Name: kind, Type: kind, Endpoint: r.URL + path})
			if ch.Endpoint != r.URL || !ch.CredentialSet {
				t.Fatalf("%s: Create = %+v, want the host alone, and a credential", kind, ch)
			}
			same := ch.Endpoint
			if got, err := b.Update(ctx, admin, ch.ID, Change{Endpoint: &same}, 0); err != nil || got.ChangeNo != ch.ChangeNo {
				t.Errorf("%s: Update with the endpoint as it was read = %+v, %v, want no change", kind, got, err)
			}
			elsewhere := "http://127.0.0.2"
			if _, err := b.Update(ctx, admin, ch.ID, Change{Endpoint: &elsewhere}, 0); code(err) != "credential_required" {
				t.Errorf("%s: Update to another host = %v, want credential_required", kind, err)
			}
			r.set(func(c recorded) (int, string) {
				return 400, `{"ok":false,"error":"` + r.URL + path + `"}`
			})
			if res, err := b.Test(ctx, admin, ch.ID); err != nil || res.Delivered || strings.Contains(fmt.Sprintf("%+v", res), "s3cret") {
				t.Errorf("%s: Test = %+v, %v, want not delivered, without the URL", kind, res, err)
			}
			next := elsewhere + path + "2"
			if got, err := b.Update(ctx, admin, ch.ID, Change{Endpoint: &next}, 0); err != nil || got.Endpoint != elsewhere {
				t.Errorf("%s: Update to a new URL = %+v, %v, want its host", kind, got, err)
			}
			back := r.URL + path
			if _, err := b.Update(ctx, admin, ch.ID, Change{Credential: map[string]any{"webhook_url": back}}, 0); err != nil {
				t.Errorf("%s: Update with a new URL as credential: %v", kind, err)
			}
			calls := r.list()
			r.set(func(recorded) (int, string) { return 200, "ok" })
			if res, err := b.Test(ctx, admin, ch.ID); err != nil || !res.Delivered {
				t.Errorf("%s: Test = %+v, %v, want delivered", kind, res, err)
			}
			if last := r.list(); len(last) != len(calls)+1 || last[len(last)-1].path != path {
				t.Errorf("%s: the receiver got %d calls more, want one to %s", kind, len(last)-len(calls), path)
			}
			if _, err := b.Create(ctx, admin, Draft{Name: "x", Type: kind, Endpoint: "http://10.0.0.8" + path}); code(err) != "target_refused" {
				t.Errorf("%s: Create with an internal address = %v, want target_refused", kind, err)
			}
			if _, err := b.Create(ctx, admin, Draft{Name: "x", Type: kind, Endpoint: "http://127.0.0.9", Credential: map[string]any{"webhook_url": back}}); err == nil {
				t.Errorf("%s: Create with an endpoint that is not that of the URL: no error", kind)
			}
		}
		err := c.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			for _, table := range []string{"notification_channels", "audit_events"} {
				column := map[string]string{"notification_channels": "endpoint || settings", "audit_events": "changes || event_context"}[table]
				n, err := db.One[int64](ctx, tx, `SELECT COUNT(*) FROM `+table+` WHERE `+column+` LIKE '%s3cret-of%'`)
				if err != nil || n > 0 {
					t.Errorf("%s has the URL in %d rows, %v, want none", table, n, err)
				}
			}
			return nil
		})
		errtest.Must(t, err)
	})
}

// TestTestLeavesNothingOpen checks that the test of a pager resolves the incident that it opened.
func TestTestLeavesNothingOpen(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		r.set(func(recorded) (int, string) { return 202, `{"status":"success","message":"Event processed"}` })
		ch := b.channel(Draft{Type: format.PagerDuty, Endpoint: r.URL, Settings: map[string]any{"default_severity": "critical"}, Credential: "R0UTING-KEY"})
		res, err := b.Test(context.Background(), admin, ch.ID)
		if err != nil || !res.Delivered || res.Response != "Event processed" {
			t.Fatalf("Test = %+v, %v, want delivered with the words of the receiver", res, err)
		}
		calls := r.list()
		if len(calls) != 2 || !strings.Contains(calls[0].body, `"event_action":"trigger"`) || !strings.Contains(calls[0].body, `"severity":"critical"`) || !strings.Contains(calls[1].body, `"event_action":"resolve"`) {
			t.Errorf("the calls are %+v, want trigger and resolve, critical", calls)
		}
	})
}

// code returns the code of a fault.
func code(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Code
	}
	return ""
}

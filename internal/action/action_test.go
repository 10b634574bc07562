package action

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// bench is a store with channels and controls, and a decision log.
type bench struct {
	testing.TB
	*Service
	log   *audit.DecisionLog
	spool *spool.Log
	clock *timetest.Clock
	n     int
}

func newBench(t testing.TB, c *db.Cluster) *bench {
	t.Helper()
	b := &bench{TB: t, clock: timetest.At(time.Date(2026, 3, 2, 12, 0, 10, 0, time.UTC))}
	b.Service = &Service{Stores: c, Now: b.clock.Now, Outbox: notify.Outbox{Root: "https://gatehouse.example.com"}}
	var err error
	if b.spool, err = spool.Open(spool.Config{Dir: t.TempDir(), Sync: spool.SyncNever}); err != nil {
		t.Fatal(err)
	}
	b.log = audit.NewDecisionLog(audit.Config{Cluster: c, Spool: b.spool, SetAside: t.TempDir(), Now: b.clock.Now, Logger: slog.New(slog.DiscardHandler), Stored: b.Take})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.log.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		_ = b.spool.Close()
	})
	return b
}

func (b *bench) write(fn func(tx *db.Tx) error) {
	b.Helper()
	errtest.Must(b, b.Stores.Write(context.Background(), scope.DefaultTenant, fn))
}

// channel stores a channel and returns its id.
func (b *bench) channel(name string, env scope.Env) (id int64) {
	b.Helper()
	b.write(func(tx *db.Tx) (err error) {
		id, err = db.One[int64](context.Background(), tx, `INSERT INTO notification_channels (name, type, endpoint, environment, severity_threshold, severity_rank, max_attempts, enabled,
				settings, credential, created_by, created_at, updated_at, change_no)
			VALUES ($1, 'webhook', 'https://hooks.example.com', $2, 'info', 0, 5, TRUE, '{}', $3, 'a', 1, 1, 1) RETURNING id`, name, string(env), []byte{})
		return err
	})
	return id
}

// control stores a control of sandbox and returns its id.
func (b *bench) control(list ...actions.Action) (id int64) {
	b.Helper()
	b.n++
	name := fmt.Sprintf("control %d", b.n)
	b.write(func(tx *db.Tx) (err error) {
		id, err = db.One[int64](context.Background(), tx, `INSERT INTO policies (name, name_folded, description, status, environment, rego_code, test_cases, actions, version,
				created_by, created_at, updated_at, kind)
			VALUES ($1, $1, '', 'active', 'sandbox', 'package p', '[]', $2, 1, 'a', 1, 1, 'control') RETURNING id`, name, list)
		return err
	})
	return id
}

// decide records decisions and waits until they are stored.
func (b *bench) decide(ds ...audit.Decision) {
	b.Helper()
	for i := range ds {
		b.n++
		d := ds[i]
		d.DecisionID, d.Environment, d.Timestamp = fmt.Sprintf("d-%d", b.n), scope.Sandbox, b.clock.Now()
		errtest.Must(b, b.log.Record(scope.DefaultTenant, &d))
	}
	b.waitShipped()
}

func (b *bench) waitShipped() {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	errtest.Must(b, b.spool.Wait(ctx))
}

// messages removes and returns the messages that wait for a channel, oldest first.
func (b *bench) messages(channel int64) (out []format.Message) {
	b.Helper()
	b.write(func(tx *db.Tx) error {
		rows, err := db.All[string](context.Background(), tx, `SELECT message FROM notification_deliveries WHERE channel_id = $1 ORDER BY id`, channel)
		for _, row := range rows {
			var m format.Message
			if err := json.Unmarshal([]byte(row), &m); err != nil {
				return err
			}
			out = append(out, m)
		}
		if err == nil {
			_, err = tx.Exec(context.Background(), `DELETE FROM notification_deliveries WHERE channel_id = $1`, channel)
		}
		return err
	})
	return out
}

func on(trigger string, channel int64, p actions.Payload) actions.Action {
	return actions.Action{Type: actions.Notification, DestinationRef: fmt.Sprintf("channel:%d", channel), Trigger: trigger, Payload: p}
}

func of(control int64, decision, effect string) audit.Decision {
	return audit.Decision{
		PolicyID: control, Decision: decision, Effect: effect, Reason: "because", User: audit.User{ID: "bob", Email: "bob@example.com"},
		Resource: audit.Resource{ID: "7", Type: "api", Path: "/payments"}, Action: "read", IPAddress: "192.0.2.7",
	}
}

// TestTriggers tests which decisions trigger which actions.
func TestTriggers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		channels, list := map[string]int64{}, []actions.Action{}
		for _, trigger := range []string{actions.OnDeny, actions.OnPermit, actions.OnMask, actions.Always} {
			channels[trigger] = b.channel(trigger, scope.Sandbox)
			list = append(list, on(trigger, channels[trigger], actions.Payload{}))
		}
		id := b.control(list...)
		for _, tc := range []struct {
			decision, effect string
			want             []string
		}{
			{audit.Deny, "DENY", []string{actions.OnDeny, actions.Always}},
			{audit.Permit, "ALLOW", []string{actions.OnPermit, actions.Always}},
			{audit.Permit, "MASK", []string{actions.OnMask, actions.Always}},
			{audit.Permit, "SHADOW_WOULD_DENY", []string{actions.Always}},
			{audit.Permit, "SHADOW_WOULD_MASK", []string{actions.Always}},
		} {
			for _, level := range []audit.Level{audit.None, audit.Basic, audit.Comprehensive} {
				d := of(id, tc.decision, tc.effect)
				d.AuditLevel = level
				b.decide(d)
				b.clock.Move(time.Minute)
				for trigger, channel := range channels {
					if got, want := len(b.messages(channel)), map[bool]int{true: 1}[slices.Contains(tc.want, trigger)]; got != want {
						t.Errorf("%s %s at level %s: %d messages of %s, want %d", tc.decision, tc.effect, level, got, trigger, want)
					}
				}
			}
		}
		b.decide(of(0, audit.Deny, "NO_MATCH"), of(id+1000, audit.Deny, "DENY"))
		for trigger, channel := range channels {
			if got := b.messages(channel); len(got) != 0 {
				t.Errorf("messages of %s about decisions of other controls = %v, want none", trigger, got)
			}
		}
	})
}

// TestMessage checks that every placeholder has a value, that values are not expanded again, and
// that no secret is sent.
func TestMessage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		channel := b.channel("chat", scope.Sandbox)
		var all []string
		for _, name := range actions.Placeholders() {
			all = append(all, name+"=<{{ "+name+" }}>")
		}
		id := b.control(on(actions.OnDeny, channel, actions.Payload{Message: strings.Join(all, " "), Severity: "critical"}))
		d := of(id, audit.Deny, "DENY")
		d.Reason = "the token hunter2-hunter2 of {{user.id}} is old"
		d.Hidden = redact.Secrets{"hunter2-hunter2"}
		b.decide(d)
		got := b.messages(channel)
		if len(got) != 1 {
			t.Fatalf("messages = %v, want 1", got)
		}
		m := got[0]
		for _, name := range actions.Placeholders() {
			if strings.Contains(m.Text, name+"=<>") || !strings.Contains(m.Text, name+"=<") {
				t.Errorf("text = %s, want a value of %s", m.Text, name)
			}
		}
		if text := fmt.Sprint(m); strings.Contains(text, "hunter2") || !strings.Contains(m.Text, "{{user.id}} is old") {
			t.Errorf("message = %s, want no secret and the braces as they are", text)
		}
		if m.Severity != "critical" || m.Link != "https://gatehouse.example.com/decisions/d-2" || m.Environment != "sandbox" || m.Alert != "control_action" {
			t.Errorf("message = %+v", m)
		}
	})
}

// TestOtherEnvironment checks that a decision from before a promotion is not sent to production's
// channel.
func TestOtherEnvironment(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		channel := b.channel("production", scope.Production)
		id := b.control(on(actions.OnDeny, channel, actions.Payload{}))
		b.decide(of(id, audit.Deny, "DENY"))
		if got := b.messages(channel); len(got) != 0 {
			t.Errorf("messages = %v, want none", got)
		}
	})
}

// TestBouncers checks that the decisions of a bouncer run actions once, however often the bouncer
// sends them.
func TestBouncers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		channel := b.channel("chat", scope.Sandbox)
		d := of(b.control(on(actions.OnDeny, channel, actions.Payload{})), audit.Deny, "DENY")
		d.DecisionID, d.Environment, d.BouncerID, d.Timestamp = "from-a-bouncer", scope.Sandbox, 7, b.clock.Now()
		for range 3 {
			errtest.Must(t, errtest.Of(b.log.Ingest(context.Background(), scope.DefaultTenant, []audit.Decision{d})))
			b.waitShipped()
		}
		if got := b.messages(channel); len(got) != 1 || got[0].Text != "because" || got[0].Severity != "warning" {
			t.Errorf("messages = %v, want one warning", got)
		}
	})
}

// TestCeiling checks that the first decisions of a minute are reported one by one, and all others
// in one message when the minute is over, with the right number.
func TestCeiling(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		channel, other := b.channel("chat", scope.Sandbox), b.channel("pager", scope.Sandbox)
		id := b.control(on(actions.OnDeny, channel, actions.Payload{}), on(actions.Always, other, actions.Payload{Severity: "error"}))
		quiet := b.control(on(actions.OnDeny, channel, actions.Payload{}))
		const denials = 3*PerMinute + 4
		for i := range denials {
			b.decide(of(id, audit.Deny, "DENY"))
			if i == PerMinute+1 {
				b.decide(of(quiet, audit.Deny, "DENY")) // another control has its own minute
			}
		}
		if got := b.messages(channel); len(got) != PerMinute+1 {
			t.Errorf("%d messages, want %d", len(got), PerMinute+1)
		}
		if got := b.messages(other); len(got) != PerMinute {
			t.Errorf("%d messages, want %d", len(got), PerMinute)
		}
		b.clock.Move(time.Minute)
		b.decide(of(id, audit.Deny, "DENY")) // the next minute has room again
		if got := b.messages(channel); len(got) != 1 {
			t.Errorf("%d messages, want 1", len(got))
		}
		b.messages(other)
		b.runJobs()
		want := fmt.Sprintf("%d more decisions", denials-PerMinute)
		for channel, severity := range map[int64]string{channel: "warning", other: "error"} {
			if got := b.messages(channel); len(got) != 1 || !strings.Contains(got[0].Title, want) || !strings.Contains(got[0].Text, want) || got[0].Severity != severity {
				t.Errorf("messages = %+v, want one with %q", got, want)
			}
		}
		entries, err := b.log.Events(context.Background(), scope.Scope{Tenant: scope.DefaultTenant}, audit.EventFilter{Type: "POLICY_ACTIONS_FOLDED"})
		if err != nil || len(entries.Events) != 1 || entries.Events[0].ObjectID != fmt.Sprint(id) || entries.Events[0].EventContext["told_one_by_one"] != float64(PerMinute) {
			t.Errorf("audit entries = %+v, %v, want one of the control", entries.Events, err)
		}
		b.runJobs()
		if got := b.messages(channel); len(got) != 0 {
			t.Errorf("messages afterwards = %v, want none", got)
		}
	})
}

// runJobs runs the waiting jobs, as a runner does when they are due.
func (b *bench) runJobs() {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	late := func() time.Time { return time.Now().Add(240 * time.Hour) }
	r := &job.Runner{Cluster: b.Stores, Kinds: b.Jobs(), Now: late, Logger: slog.New(slog.DiscardHandler), Lease: time.Minute}
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); b.waiting() > 0; <-tick.C {
		if time.Now().After(deadline) {
			b.Fatal("jobs remain at the deadline")
		}
	}
	cancel()
	errtest.Must(b, <-done)
}

func (b *bench) waiting() (n int64) {
	b.write(func(tx *db.Tx) (err error) {
		n, err = db.One[int64](context.Background(), tx, `SELECT COUNT(*) FROM jobs`)
		return err
	})
	return n
}

package live

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// reader is the scope of a person with permissions.
func reader(permissions ...scope.Permission) scope.Scope {
	return scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "ada"}, Permissions: scope.Permissions{List: permissions}}
}

var everything = scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "root"}, Permissions: scope.Permissions{All: true}}

// note writes the members of an entry of the administrative log that a stream reads.
func note(t *testing.T, c *db.Cluster, tenant scope.TenantID, kind, object, id string, env scope.Env) {
	t.Helper()
	err := c.Write(t.Context(), tenant, func(tx *db.Tx) error {
		seq, err := lastEntry(t.Context(), tx)
		if err != nil {
			return err
		}
		seq++
		if _, err := tx.Exec(t.Context(), `INSERT INTO audit_events (seq, at, type, object, object_id, object_name, environment, actor_kind, actor_id, actor_name,
			ip_address, request_id, changes, event_context, hash) VALUES ($1, $2, $3, $4, $5, '', $6, 'user', '', '', '', '', '{}', '{}', $7)`,
			seq, tx.Now(), kind, object, id, string(env), ""); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), `INSERT INTO audit_chains (name, first_pos, first_seq, base, last_pos, last_seq, head) VALUES ('events', 1, 1, $1, $2, $2, $1)
			ON CONFLICT (name) DO UPDATE SET last_pos = excluded.last_pos, last_seq = excluded.last_seq`, "", seq); err != nil {
			return err
		}
		return tx.Notify(t.Context(), "events")
	})
	errtest.Must(t, err)
}

// service returns a service that watches a store.
func service(t *testing.T, c *db.Cluster) *Service {
	t.Helper()
	s := &Service{Stores: c, Log: slog.New(slog.DiscardHandler), Now: time.Now, Tick: 20 * time.Millisecond}
	stop := c.Watch(s.OnChange)
	t.Cleanup(func() { stop(); s.Close() })
	return s
}

// open opens a stream until the test ends.
func open(t *testing.T, s *Service, sc scope.Scope, last string) *Stream {
	t.Helper()
	st, err := s.Open(t.Context(), sc, last)
	errtest.Must(t, err)
	t.Cleanup(st.Close)
	return st
}

// next waits for the next message of a stream.
func next(t *testing.T, st *Stream, sc scope.Scope) Message {
	t.Helper()
	late := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if m, ok := st.Take(sc); ok {
			return m
		}
		select {
		case <-st.Ready():
		case <-tick.C:
		case <-late:
			t.Fatal("no message within a minute")
		}
	}
}

// TestResume: a client that reconnects with the id of its last message gets only what it missed. If
// that is not known, it must read everything again.
func TestResume(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := service(t, c)
		st := open(t, s, everything, "")
		note(t, c, scope.DefaultTenant, "RESOURCE_CREATED", "resource", "1", scope.Sandbox)
		m := next(t, st, everything)
		if want := (Change{Resources, scope.Sandbox, "1"}); len(m.Changes) != 1 || m.Changes[0].Change != want {
			t.Fatalf("message = %+v, want %+v", m, want)
		}
		st.Close()
		note(t, c, scope.DefaultTenant, "USER_CREATED", "user", "u", scope.AnyEnv)
		note(t, c, dbtest.Second, "USER_CREATED", "user", "of another tenant", scope.AnyEnv)
		note(t, c, scope.DefaultTenant, "LOGIN", "user", "u", scope.AnyEnv)
		again := open(t, s, everything, m.ID)
		m = next(t, again, everything)
		if want := (Change{Users, scope.AnyEnv, "u"}); m.Reload || len(m.Changes) != 1 || m.Changes[0].Change != want {
			t.Fatalf("message after a reconnection = %+v, want %+v", m, want)
		}
		if m, ok := open(t, s, everything, m.ID).Take(everything); ok {
			t.Errorf("message without a change = %+v, want none", m)
		}
		future, _ := parsePosition(m.ID)
		future.seq += 1000
		for _, id := range []string{"x", "0.0", future.String()} {
			if m := next(t, open(t, s, everything, id), everything); !m.Reload {
				t.Errorf("message with the id %q = %+v, want a reload", id, m)
			}
		}
		err := c.Write(t.Context(), scope.DefaultTenant, func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `DELETE FROM audit_events WHERE seq = 1`)
			return err
		})
		errtest.Must(t, err)
		if m := next(t, open(t, s, everything, position{}.String()), everything); !m.Reload {
			t.Errorf("message with an id from before the stored entries = %+v, want a reload", m)
		}
	})
}

// TestGauges: gauges report what the log does not record, and decisions at most every two seconds.
func TestGauges(t *testing.T) {
	fulltest.Only(t) // it waits for the pause between two messages about decisions
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := service(t, c)
		count := func(env scope.Env) {
			err := c.Write(t.Context(), scope.DefaultTenant, func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO decision_rollups (width, bucket, environment, measure, n) VALUES ($1, $2, $3, 'deny', 5)
					ON CONFLICT (width, bucket, environment, measure) DO UPDATE SET n = decision_rollups.n + 5`, (24 * time.Hour).Microseconds(), time.Now().Truncate(24*time.Hour), string(env))
				return err
			})
			errtest.Must(t, err)
		}
		err := c.Write(t.Context(), scope.DefaultTenant, func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO webhooks (name, url, events, enabled, secret, previous_secret, since_seq, created_by, created_at, updated_at, change_no)
				VALUES ('w', '', '', TRUE, $1, $1, 0, '', 1, 1, 1)`, []byte{})
			if err == nil {
				_, err = tx.Exec(t.Context(), `INSERT INTO notification_channels (name, type, endpoint, environment, severity_threshold, severity_rank, max_attempts, enabled,
					settings, credential, created_by, created_at, updated_at, change_no) VALUES ('c', 'webhook', '', 'production', 'info', 0, 5, TRUE, '{}', $1, '', 1, 1, 1)`, []byte{})
			}
			return err
		})
		errtest.Must(t, err)
		st := open(t, s, everything, "")
		var sent [2]time.Time // by the stream's own clock, so that waits of the test do not count
		for i := range sent {
			count(scope.Production)
			m := next(t, st, everything)
			st.mu.Lock()
			sent[i] = st.sentAt[decisionsProduction]
			st.mu.Unlock()
			if want := (Change{Topic: Decisions, Environment: scope.Production}); len(m.Changes) != 1 || m.Changes[0].Change != want {
				t.Fatalf("message = %+v, want %+v", m, want)
			}
		}
		if apart := sent[1].Sub(sent[0]); apart < decisionsEvery {
			t.Errorf("two messages about decisions within %s, want %s between them", apart, decisionsEvery)
		}
		for _, write := range []struct {
			sql  string
			want Change
		}{
			{`INSERT INTO revisions (name, value) VALUES ('env:sandbox', 7) ON CONFLICT (name) DO UPDATE SET value = revisions.value + 1`, Change{Topic: Revisions, Environment: scope.Sandbox}},
			{`INSERT INTO replay_runs (status, environment, source_environment, request, created_at, updated_at) VALUES ('running', 'production', 'production', '{}', 1, 1)`, Change{Topic: Replays, Environment: scope.Production}},
			{`UPDATE replay_runs SET evaluated = 12`, Change{Topic: Replays, Environment: scope.Production}},
			{`INSERT INTO ide_deployments (id, source, event_type, status, created_at) VALUES ('d', 'editor', 'deploy', 'in_progress', 1)`, Change{Topic: Deployments}},
			{`UPDATE ide_deployments SET status = 'failed', finished_at = 2`, Change{Topic: Deployments}},
			{`UPDATE webhooks SET last_success_at = 1767225600000000`, Change{Topic: Webhooks}},
			{`UPDATE webhooks SET last_failure_at = 1767225600000001`, Change{Topic: Webhooks}},
			{`INSERT INTO webhook_deliveries (webhook_id, event_id, event_type, object, state, redelivery, created_at, next_at, expires_at)
				SELECT id, 'e', 'policy.updated', 'policy:1', 'pending', FALSE, 1, 1, 1 FROM webhooks`, Change{Topic: Webhooks}},
			{`UPDATE notification_channels SET last_failure_at = 1767225600000001`, Change{Topic: Notifications, Environment: scope.Production}},
			{`INSERT INTO notification_deliveries (channel_id, fault, alert, severity, status, message, created_at)
				SELECT id, 'f', 'test', 'info', 'pending', '{}', 1 FROM notification_channels`, Change{Topic: Notifications, Environment: scope.Production}},
			{`INSERT INTO telemetry_transmissions (at, report, idempotency_key, status) VALUES (1, '{}', 'k', 'failed')`, Change{Topic: Telemetry}},
			{`UPDATE telemetry_transmissions SET retries = 1`, Change{Topic: Telemetry}},
			{`UPDATE telemetry_transmissions SET status = 'success', sent_at = 2`, Change{Topic: Telemetry}},
			{`INSERT INTO pip_syncs (connection_id, reason, status, created_at) VALUES (1, 'manual', 'pending', 1)`, Change{Topic: DataSources}},
			{`UPDATE pip_syncs SET started_at = 2, status = 'in_progress'`, Change{Topic: DataSources}},
			{`UPDATE pip_syncs SET finished_at = 3, status = 'completed'`, Change{Topic: DataSources}},
		} {
			err := c.Write(t.Context(), scope.DefaultTenant, func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), write.sql)
				return err
			})
			errtest.Must(t, err)
			if m := next(t, st, everything); len(m.Changes) != 1 || m.Changes[0].Change != write.want {
				t.Errorf("message after %s = %+v, want %+v", write.sql, m, write.want)
			}
		}
	})
}

// TestSlowClient: the changes that wait for a client are bounded. A client that reads too slowly
// must read everything again.
func TestSlowClient(t *testing.T) {
	st := &Stream{service: &Service{Now: time.Now}, scope: everything, ready: make(chan struct{}, 1), pending: map[Change]changeRevision{}}
	for round := range 10 {
		var n update
		for i := range maxPending {
			n.add(Change{Policies, scope.Sandbox, fmt.Sprint(round, "-", i)}, changeRevision{revision: int64(i), gauge: gaugeCount})
		}
		st.add(n, position{seq: int64(round)})
		if len(st.pending) > maxPending+1 || len(st.order) > maxPending+1 {
			t.Fatalf("%d changes wait for a client, want at most %d", len(st.pending), maxPending+1)
		}
	}
	m, any := st.Take(everything)
	if p, _ := parsePosition(m.ID); !any || !m.Reload || len(m.Changes) != 0 || p.seq != 9 {
		t.Errorf("message = %+v, want a reload at 9", m)
	}
	if m, any := st.Take(everything); any {
		t.Errorf("message after the reload = %+v, want none", m)
	}
}

// TestSeen: a topic is visible to the callers who may call the operations that read it.
func TestSeen(t *testing.T) {
	bound := func(env scope.Env, p ...scope.Permission) scope.Scope {
		sc := reader(p...)
		sc.Env, sc.EnvBound = env, true
		return sc
	}
	asked := reader("policies:read", "users:read")
	asked.Env = scope.Production
	for _, x := range []struct {
		name string
		sc   scope.Scope
		c    Change
		want bool
	}{
		{"no permission", reader(), Change{Topic: Policies}, false},
		{"another permission", reader("policies:read"), Change{Topic: Users}, false},
		{"the permission", reader("users:read"), Change{Topic: Users}, true},
		{"figures", reader("dashboard:read"), Change{Decisions, scope.Sandbox, ""}, true},
		{"the log", reader("audit:read"), Change{Decisions, scope.Sandbox, ""}, true},
		{"anomalies name people", reader("dashboard:read"), Change{Topic: Anomalies}, false},
		{"replays are for authors", reader("policies:read"), Change{Topic: Replays}, false},
		{"the environment asked for", asked, Change{Policies, scope.Production, "1"}, true},
		{"the other", asked, Change{Policies, scope.Sandbox, "1"}, false},
		{"of no environment", asked, Change{Users, scope.AnyEnv, "1"}, true},
		{"bound, its own", bound(scope.Sandbox, "policies:read"), Change{Policies, scope.Sandbox, "1"}, true},
		{"bound, the other", bound(scope.Sandbox, "policies:read"), Change{Policies, scope.Production, "1"}, false},
		{"bound, people", bound(scope.Sandbox, "users:read"), Change{Users, scope.AnyEnv, "1"}, false},
		{"bound, keys", bound(scope.Sandbox, "tenants:read"), Change{Topic: APIKeys}, false},
		{"bound to sandbox, repositories", bound(scope.Sandbox, "editor:read"), Change{Topic: Repositories}, true},
		{"bound to production, repositories", bound(scope.Production, "editor:read"), Change{Topic: Repositories}, false},
		{"bound, webhooks", bound(scope.Sandbox, "webhooks:read"), Change{Topic: Webhooks}, false},
		{"bound, agents", bound(scope.Sandbox, "agents:read"), Change{Topic: Agents}, false},
		{"bound, telemetry", bound(scope.Sandbox, "telemetry:read"), Change{Topic: Telemetry}, false},
		{"bound, its channels", bound(scope.Sandbox, "notifications:read"), Change{Notifications, scope.Sandbox, "1"}, true},
		{"bound, channels of the other", bound(scope.Sandbox, "notifications:read"), Change{Notifications, scope.Production, "1"}, false},
	} {
		if got := x.c.seenIn(x.sc); got != x.want {
			t.Errorf("%s: seenIn = %v, want %v", x.name, got, x.want)
		}
	}
	for object, name := range objects {
		if _, known := topics[name]; !known {
			t.Errorf("the topic of %s is %q, which does not exist", object, name)
		}
	}
	hidden := Change{Replays, scope.Sandbox, "7"}.shownTo(bound(scope.Sandbox, "policies:write"))
	if hidden.ID != "" {
		t.Errorf("a bound credential sees %+v, want no id: the run may use the other environment's decisions", hidden)
	}
}

// TestAuditedObjects: each kind of object in the administrative log belongs to a topic, so that
// screens that show it are updated.
func TestAuditedObjects(t *testing.T) {
	named := regexp.MustCompile(`\bObject: +"([a-z_]+)"`)
	found := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range named.FindAllSubmatch(source, -1) {
			found[string(m[1])] = true
		}
		return err
	})
	errtest.Must(t, err)
	if !found["policy"] || !found["agent"] {
		t.Fatalf("objects of entries = %v, want policy and agent: has the form of an entry changed?", found)
	}
	for object := range found {
		if _, known := objects[object]; !known {
			t.Errorf("entries name %q, and topics.go has no topic for it", object)
		}
	}
}

// TestPosition: an id is parsed to the position that it was made from, and nothing else is a valid
// id.
func TestPosition(t *testing.T) {
	p := position{seq: 1 << 60}
	for i := range p.gauges {
		p.gauges[i] = int64(i) * 1e15
	}
	if got, ok := parsePosition(p.String()); !ok || got != p {
		t.Errorf("parsePosition(%s) = %v, want %v", p, got, p)
	}
	few := strings.Repeat(".0", int(gaugeCount)-1)
	if _, ok := parsePosition("1" + few + ".0"); !ok {
		t.Error("parsePosition of an id with all gauges fails")
	}
	for _, bad := range []string{"", ".", "1", "1" + few, "-1" + few + ".0", "1" + few + ".", "1" + few + ".0.0", "1" + few + ".!", "zzzzzzzzzzzzzzzz" + few + ".0"} {
		if p, ok := parsePosition(bad); ok {
			t.Errorf("parsePosition(%q) = %v, want an error", bad, p)
		}
	}
	shown := p.shownTo(reader("users:read"))
	if shown.seq != p.seq || shown.gauges != [gaugeCount]int64{} {
		t.Errorf("position for a caller who may see no gauge = %v", shown)
	}
}

// TestBounds: the number of streams is limited, and a closed stream makes room for another.
func TestBounds(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := service(t, c)
		sc := reader("policies:read")
		var first *Stream
		for range maxPerOwner {
			first = open(t, s, sc, "")
		}
		if _, err := s.Open(t.Context(), sc, ""); !fault.Is(err, fault.RateLimited) {
			t.Fatalf("Open of one stream too many: got %v, want rate limited", err)
		}
		other := sc
		other.Actor.ID = "grace"
		open(t, s, other, "")
		first.Close()
		first.Close()
		open(t, s, sc, "")
		if _, err := s.Open(t.Context(), reader(), ""); !fault.Is(err, fault.Forbidden) {
			t.Errorf("Open without a permission: got %v, want forbidden", err)
		}
		s.Close()
		select {
		case <-first.Done():
		default:
			t.Error("a stream is open after Close of the service")
		}
		if _, err := s.Open(context.Background(), sc, ""); !fault.Is(err, fault.RateLimited) {
			t.Errorf("Open after Close: got %v, want rate limited", err)
		}
	})
}

package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	alice = "package p\n\nallow if input.user.id == \"alice\"\n"
	bob   = "package p\n\nallow if input.user.id == \"bob\"\n"
)

func names(b *bundle.Bundle) []string {
	out := []string{}
	for _, c := range b.Set.Controls() {
		out = append(out, c.Meta().Name)
	}
	slices.Sort(out)
	return out
}

func paths(b *bundle.Bundle) []string {
	out := []string{}
	for _, r := range b.Set.Resources() {
		out = append(out, r.Path)
	}
	slices.Sort(out)
	return out
}

// A bouncer gets the controls of its environment for the resources that it protects, and their
// resources. A control that reads data.resources brings all of them.
func TestABouncerGetsWhatIsItsOwn(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		orders, people, other := h.resource(scope.Production, "/orders"), h.resource(scope.Production, "/people"), h.resource(scope.Production, "/other")
		email := "owner@example.com"
		errtest.Must(t, errtest.Of(h.resources.Enrich(context.Background(), person(scope.DefaultTenant), orders.ID, enrichOwner(t, email), 0)))
		h.control(scope.Production, "orders", orders.ID, alice)
		h.control(scope.Production, "people", people.ID, alice)
		h.control(scope.Production, "other", other.ID, alice)
		h.control(scope.Production, "all", 0, "package q\n\ndeny if input.user.suspended\n")
		h.control(scope.Sandbox, "sandbox", 0, alice)
		g := h.bouncer(scope.Production, map[string]any{"default_action": "deny"}, orders.ID)
		named := h.bouncer(scope.Production, nil)
		p := h.control(scope.Production, "named", people.ID, bob)
		errtest.Must(t, errtest.Of(h.policies.Update(context.Background(), person(scope.DefaultTenant), p.ID, linkTo(named.id), 0)))
		_, b := g.fetch()
		if got := strings.Join(names(b), " "); got != "all orders" || strings.Join(paths(b), " ") != "/orders" {
			t.Errorf("controls %s, resources %s, want all, orders and /orders", got, paths(b))
		}
		meta, _ := b.Meta["bouncer"].(map[string]any)
		if meta["mode"] != "shadow" || meta["configuration"].(map[string]any)["default_action"] != "deny" {
			t.Errorf("the metadata is %v, want shadow mode and default_action deny", b.Meta)
		}
		for _, r := range b.Set.Resources() {
			if strings.Contains(string(r.Doc.AppendJSON(nil)), email) {
				t.Errorf("the bundle has the resource %s, want no address of its owner", r.Doc.AppendJSON(nil))
			}
		}
		_, b = named.fetch()
		if got := strings.Join(names(b), " "); got != "all named people" || strings.Join(paths(b), " ") != "/people" {
			t.Errorf("the bouncer that a control names: controls %s, resources %s, want all, named, people and /people", got, paths(b))
		}
		whole := h.control(scope.Production, "whole", orders.ID, "package w\n\nallow if data.resources[input.resource.id].path == \"/other\"\n")
		_, b = g.fetch(`"1"`)
		if got := strings.Join(paths(b), " "); got != "/orders /other /people" {
			t.Errorf("control %d reads all resources, the bundle has %s", whole.ID, got)
		}
	})
}

// Each new content of a bundle has a higher revision, at every replica and after a restore. Without a
// new content there is no new revision.
func TestRevisionsGrowOnlyWithTheContent(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		orders, other := h.resource(scope.Production, "/orders"), h.resource(scope.Production, "/other")
		p := h.control(scope.Production, "orders", orders.ID, alice)
		g, far := h.bouncer(scope.Production, nil, orders.ID), h.bouncer(scope.Production, nil, other.ID)
		tag, _ := g.fetch()
		farTag, _ := far.fetch()
		h.rewrite(p, bob)
		second, b := g.fetch(tag)
		if second != `"2"` || b.Set.Controls()[0].Source() != bob {
			t.Errorf("after a change the bundle is %s, want \"2\" with the new control", second)
		}
		far.wantNothing("a bouncer that the change does not affect", "x", farTag)
		h.rewrite(p, alice)
		if third, b := g.fetch(second); third != `"3"` || b.Set.Controls()[0].Source() != alice {
			t.Errorf("after a rollback the bundle is %s, want \"3\" with the former control", third)
		}
		// A replica that starts now issues the same revisions.
		again := newFixture(t, h.stores)
		if a, err := again.Bundle(context.Background(), g.sc, Poll{BouncerID: g.id, Token: g.token}); err != nil || a.ETag != `"3"` {
			t.Errorf("another replica answers %+v, error %v, want \"3\"", a, err)
		}
		// After a restore from a backup, the bouncer has a higher revision than the store.
		if a, err := g.poll(0, "x", `"41"`); err != nil || a.ETag != `"42"` {
			t.Errorf("a bouncer at 41 gets %+v, error %v, want \"42\"", a, err)
		}
	})
}

// A change ends a waiting poll, and so does the end of its time.
func TestParkedPollsWakeAtOnce(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		p := h.control(scope.Production, "orders", 0, alice)
		g := h.bouncer(scope.Production, nil)
		tag, _ := g.fetch()
		poll := g.park(tag)
		h.rewrite(p, bob)
		if a := poll.end(); a.err != nil || a.ETag != `"2"` {
			t.Errorf("the change ends the poll with %+v, error %v, want \"2\"", a.Answer, a.err)
		}
		began := time.Now()
		if a, err := g.poll(300*time.Millisecond, "y", `"2"`); err != nil || a.Parts != nil || time.Since(began) < 250*time.Millisecond {
			t.Errorf("without a change: %+v after %s, error %v, want no bundle after 300 ms", a, time.Since(began), err)
		}
	})
}

// A bouncer gets only its own bundle, while its token is valid and it exists.
func TestOnlyItsOwn(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		a, b := h.bouncer(scope.Production, nil), h.bouncer(scope.Sandbox, nil)
		if _, err := h.Bundle(ctx, a.sc, Poll{BouncerID: b.id, Token: a.token}); !fault.Is(err, fault.NotFound) {
			t.Errorf("the bundle of another bouncer: %v, want NotFound", err)
		}
		if _, err := h.Bundle(ctx, person(scope.DefaultTenant), Poll{BouncerID: a.id}); !fault.Is(err, fault.Forbidden) {
			t.Errorf("a bundle for a person: %v, want Forbidden", err)
		}
		tag, _ := a.fetch()
		poll := a.park(tag)
		errtest.Must(t, errtest.Of(h.cfg.Bouncers.Rotate(ctx, person(scope.DefaultTenant), a.id)))
		if end := poll.end(); !fault.Is(end.err, fault.Unauthenticated) {
			t.Errorf("a waiting poll with a rotated token: %v, want Unauthenticated", end.err)
		}
		if _, err := a.poll(0, "z"); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("a poll with a rotated token: %v, want Unauthenticated", err)
		}
		h.until("status degraded", func() bool { return a.record().Status == bouncer.Degraded })
		errtest.Must(t, errtest.Of(h.cfg.Bouncers.Delete(ctx, person(scope.DefaultTenant), b.id, 0)))
		if _, err := b.poll(0, "z"); !fault.Is(err, fault.NotFound) {
			t.Errorf("a poll of a deleted bouncer: %v, want NotFound", err)
		}
	})
}

// A bouncer that asks again for the bundle before the one that it got probably refused it, and gets it
// again only after a pause. After a report of the refusal, it does not get it again.
func TestRefusedRevisionsAreNotSentAgain(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		p := h.control(scope.Production, "orders", 0, alice)
		g := h.bouncer(scope.Production, nil)
		first, _ := g.fetch()
		g.wantNothing("with the newest bundle", "conn", first)
		h.until("revision 1 to run", func() bool { return g.revision().Converged })
		h.rewrite(p, bob)
		g.fetch(first) // revision 2, over the connection "conn"
		g.wantNothing("again over the same connection", "conn", first)
		g.wantNothing("after a suspected refusal", "elsewhere", first)
		h.skip(2 * time.Minute)
		if a, err := g.poll(0, "elsewhere", first); err != nil || a.ETag != `"2"` {
			t.Errorf("two minutes after a suspected refusal: %+v, error %v, want \"2\"", a, err)
		}
		body := `{"labels":{"version":"1.22.0"},"bundles":{"authz":{"name":"authz","active_revision":"1","code":"bundle_error","message":"1 error occurred",
			"errors":[{"code":"rego_parse_error","message":"unexpected token","location":{"file":"/gatehouse/controls/c` + strconv.FormatInt(p.ID, 10) + `.rego","row":3,"col":1}}]}}}`
		errtest.Must(t, h.Status(ctx, g.sc, g.token, []byte(body)))
		h.until("the refusal to show", func() bool { return g.revision().RefusedRevision == 2 })
		if r := g.revision(); r.Errors[0].PolicyID != p.ID || r.Errors[0].Line != 3 || r.Converged {
			t.Errorf("the revision is %+v, want an error of control %d at line 3", r, p.ID)
		}
		sync, err := h.cfg.Bouncers.SyncStatus(ctx, person(scope.DefaultTenant), g.id)
		if err != nil || sync.Status != bouncer.Failed || sync.Policies[0].Line != 3 {
			t.Errorf("the sync status is %+v, error %v, want a failure at line 3", sync, err)
		}
		// The sweep may have recorded meanwhile that the bouncer was silent for two minutes.
		h.until("status degraded with version 1.22.0", func() bool {
			b := g.record()
			return b.Status == bouncer.Degraded && b.Version == "1.22.0"
		})
		h.skip(time.Hour)
		g.wantNothing("after a reported refusal", "anywhere", first)
		h.rewrite(p, alice)
		tag, _ := g.fetch(first)
		if tag != `"3"` {
			t.Errorf("after the correction the bundle is %s, want \"3\"", tag)
		}
		g.wantNothing("after the correction", "conn", tag)
		h.until("the corrected bundle to run", func() bool {
			r := g.revision()
			return r.Converged && r.RefusedRevision == 0 && r.Status == bouncer.Connected
		})
	})
}

// A bouncer that refuses its bundle does not converge, even if it ran the bundle before. When it
// activates the bundle, the refusal is cleared.
func TestARefusedRevisionDoesNotRun(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		h.control(scope.Production, "orders", 0, alice)
		g := h.bouncer(scope.Production, nil)
		status := func(active, more string) {
			t.Helper()
			body := `{"bundles":{"authz":{"active_revision":"` + active + `"` + more + `}},"gatehouse":{"refused_etag":"` + map[string]string{"": `\"1\"`, "1": ""}[active] + `"}}`
			errtest.Must(t, h.Status(context.Background(), g.sc, g.token, []byte(body)))
		}
		wantRevision := func(what string, active, refused int64, converged bool) {
			t.Helper()
			h.until(what, func() bool {
				r := g.revision()
				return r.ActiveRevision == active && r.RefusedRevision == refused && r.Converged == converged && (refused != 0 || len(r.Errors) == 0)
			})
		}
		failed := `,"code":"bundle_error","message":"the bundle's signature is not valid"`
		tag, _ := g.fetch()
		g.wantNothing("after a refusal", "conn", `"0"`, tag)
		wantRevision("refused by its tags", 0, 1, false)
		status("", failed)
		wantRevision("refused by its status", 0, 1, false)
		_, _ = g.poll(0, "conn", tag)
		wantRevision("taken", 1, 0, true)
		status("1", "")
		status("", failed) // restarted, with another key
		wantRevision("refused though it ran", 0, 1, false)
		status("1", "")
		wantRevision("taken again", 1, 0, true)
	})
}

// A bouncer is connected while it polls, and disconnected after a silence.
func TestPresence(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		h.control(scope.Production, "orders", 0, alice)
		g := h.bouncer(scope.Production, nil)
		tag, _ := g.fetch()
		_, _ = g.poll(time.Millisecond, "conn", tag)
		h.until("status connected", func() bool { return g.record().Status == bouncer.Connected })
		h.until("the bouncer in the health", func() bool {
			hl := h.Health(context.Background())
			return hl.ConnectedClients == 1 && hl.SyncCompleted && hl.LastSync != nil && hl.InProgress == 0
		})
		if b := g.record(); b.LastHeartbeat == nil || b.PoliciesSynced != 1 {
			t.Errorf("the bouncer is %+v, want a heartbeat and one policy", b)
		}
		h.skip(40 * time.Second) // the bouncer reported an interval of 10 s
		h.until("status disconnected", func() bool { return g.record().Status == bouncer.Disconnected })
		g.fetch(`"0"`)
		h.until("status connected again", func() bool { return g.record().Status == bouncer.Connected })
	})
}

// TestReportDuringSweep checks that a report counts that is being written while the sweep finds its
// bouncer overdue. On SQLite, one transaction waits for the other anyway.
func TestReportDuringSweep(t *testing.T) {
	fulltest.Only(t)
	ctx := context.Background()
	h := newFixture(t, dbtest.Open(t, dbtest.Postgres))
	g := h.bouncer(scope.Production, nil)
	g.fetch()
	h.until("status connected", func() bool { return g.record().Status == bouncer.Connected })
	later := h.now().Add(time.Hour)
	swept := make(chan error, 1)
	err := h.stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
		if err := recordPresence(ctx, tx, g.id, later, time.Hour); err != nil {
			return err
		}
		go func() { swept <- h.findAbsent(ctx, scope.DefaultTenant, later) }()
		h.until("the sweep to wait for the report", func() bool {
			var waiting int64
			err := h.stores.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) (err error) {
				waiting, err = db.One[int64](ctx, tx, `SELECT COUNT(*) FROM pg_locks WHERE NOT granted`)
				return err
			})
			return err == nil && waiting > 0 || len(swept) > 0
		})
		return nil
	})
	errtest.Must(t, errors.Join(err, <-swept))
	if b := g.record(); b.Status != bouncer.Connected {
		t.Errorf("the status is %s (%s), want connected", b.Status, b.StatusDetail)
	}
}

// The health shows a bundle that was sent and does not run.
func TestStuckDeliveriesShow(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		h.control(scope.Production, "orders", 0, alice)
		g := h.bouncer(scope.Production, nil)
		g.fetch()
		h.until("a delivery in progress", func() bool {
			hl := h.Health(context.Background())
			return hl.InProgress == 1 && hl.StuckInProgress == 0 && !hl.SyncCompleted
		})
		h.skip(61 * time.Second)
		h.until("a stuck delivery", func() bool {
			hl := h.Health(context.Background())
			return hl.StuckInProgress == 1 && hl.Status == degraded
		})
	})
}

// A suspended tenant's bouncers get no bundles, not even those that wait already.
func TestATenantThatIsSuspended(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		g := h.bouncer(scope.Production, nil)
		tag, _ := g.fetch()
		poll := g.park(tag)
		suspend(t, h)
		if end := poll.end(); !fault.Is(end.err, fault.Unauthenticated) {
			t.Errorf("a waiting poll of a suspended tenant: %v, want Unauthenticated", end.err)
		}
		if _, err := g.poll(0, "z", tag); !fault.Is(err, fault.Forbidden) {
			t.Errorf("a poll of a suspended tenant: %v, want Forbidden", err)
		}
	})
}

// The tenant's key, which is the same at every replica, verifies a signed bundle.
func TestSignedBundles(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		h.control(scope.Production, "orders", 0, alice)
		g := h.bouncer(scope.Production, map[string]any{"signing": "signed"})
		a, err := g.poll(0, "c")
		errtest.Must(t, err)
		key, err := h.VerifyKey(context.Background(), scope.DefaultTenant)
		errtest.Must(t, err)
		whole := slices.Concat(a.Parts...)
		if _, err := (bundle.Reader{Verify: &bundle.Verify{KeyID: key.ID, Key: parsePEM(t, key.PEM)}}).Read(whole); err != nil {
			t.Errorf("the bundle with the tenant's key: %v", err)
		}
		if _, err := (bundle.Reader{Verify: &bundle.Verify{KeyID: "other", Key: parsePEM(t, key.PEM)}}).Read(whole); err == nil {
			t.Error("the bundle with another key id: no error")
		}
		again := newFixture(t, h.stores)
		if k, err := again.VerifyKey(context.Background(), scope.DefaultTenant); err != nil || k != key {
			t.Errorf("another replica has the key %+v, error %v, want %+v", k, err, key)
		}
	})
}

// A bouncer reads the resources that it protects, a person those of the environment.
func TestResourcesFeed(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		orders := h.resource(scope.Production, "/orders")
		h.resource(scope.Production, "/other")
		g := h.bouncer(scope.Production, nil, orders.ID)
		own, err := h.Resources(ctx, g.sc, g.token)
		if err != nil || !strings.Contains(string(own.JSON), "/orders") || strings.Contains(string(own.JSON), "/other") {
			t.Errorf("the bouncer gets %s, error %v, want only /orders", own.JSON, err)
		}
		all, err := h.Resources(ctx, person(scope.DefaultTenant), "")
		if err != nil || !strings.Contains(string(all.JSON), "/other") || all.ETag == own.ETag {
			t.Errorf("a person gets %s, error %v, want /other too", all.JSON, err)
		}
		me, err := h.Self(ctx, g.sc, g.token)
		if err != nil || me.BouncerID != g.id || me.Environment != scope.Production {
			t.Errorf("Self = %+v, error %v, want bouncer %d in production", me, err, g.id)
		}
	})
}

// The decision log of a bouncer is stored, each event once and under the name of the bouncer's token.
// What cannot be read is set aside.
func TestLogs(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		orders := h.resource(scope.Production, "/orders")
		g := h.bouncer(scope.Production, nil, orders.ID)
		event := func(id, more string) string {
			return `{"labels":{"bouncer":"999"},"decision_id":"` + id + `","bundles":{"authz":{"revision":"4"}},"path":"gatehouse/decision","requested_by":"10.1.2.3:4567",
				"timestamp":"2026-11-20T23:36:00.90423251Z","input":{"user":{"id":"bob","email":"bob@x","password":"hidden"},"action":{"name":"read"},"resource":{"type":"api","path":"/orders"}},
				"result":{"decision":"PERMIT","allow":true,"effect":"MASK","reason":"because","policy_id":7,"policy_name":"orders","resource_id":` + strconv.FormatInt(orders.ID, 10) + `},
				"metrics":{"timer_rego_query_eval_ns":146993}` + more + `}`
		}
		for name, send := range map[string]struct {
			body            string
			accepted, aside int
		}{
			"plain": {"[" + event("a", "") + "," + event("b", `,"custom":{"mode":"shadow","outcome":"SHADOW_WOULD_DENY","request_id":"r9","cache_hit":true}`) + "]", 2, 0},
			"again, with other values between": {
				"[ " + event("a", "") + ` , {"decision_id":"x","broken":tru}, 17, "text", null, {"no":"id"},` + event("c", "") + "]", 2, 5,
			},
			"empty":                {"[]", 0, 0},
			"no array":             {`{"decision_id":"z"}`, 0, 1},
			"nothing":              {"", 0, 1},
			"an end in the middle": {"[" + event("c", "") + `,{"decision_id":"y`, 1, 1},
			"big one":              {"[" + event("d", `,"filler":"`+strings.Repeat("x", maxEvent)+`"`) + "," + event("e", "") + "]", 1, 1},
		} {
			for _, body := range []string{send.body, zipped(t, send.body)} {
				got, err := h.Logs(ctx, g.sc, g.token, strings.NewReader(body))
				if err != nil || got.Accepted != send.accepted || got.SetAside != send.aside {
					t.Errorf("%s: %+v, error %v, want %d accepted and %d set aside", name, got, err, send.accepted, send.aside)
				}
			}
		}
		brokeOff := io.MultiReader(strings.NewReader("["+event("f", "")+","), iotest.ErrReader(io.ErrUnexpectedEOF))
		if _, err := h.Logs(ctx, g.sc, g.token, brokeOff); !fault.Is(err, fault.BadRequest) {
			t.Errorf("a chunk that breaks off: %v, want BadRequest", err)
		}
		short := zipped(t, "["+event("c", "")+"]")
		if got, err := h.Logs(ctx, g.sc, g.token, strings.NewReader(short[:len(short)/2])); err != nil || got.SetAside != 1 {
			t.Errorf("a packed chunk that is cut: %+v, error %v, want one set aside", got, err)
		}
		if _, err := h.Logs(ctx, g.sc, g.token, strings.NewReader(zipped(t, "["+strings.Repeat(" ", MaxLogBytes)+"]"))); !fault.Is(err, fault.TooLarge) {
			t.Errorf("a bomb: %v, want TooLarge", err)
		}
		for _, d := range h.waitLogged(5) {
			if d.BouncerID != g.id || d.Environment != scope.Production || d.User.ID != "bob" || d.Decision != audit.Permit || d.PolicyID != 7 ||
				d.IPAddress != "10.1.2.3" || d.ResourceID != orders.ID || d.Revision != 4 || d.Input != nil || d.EvaluationTimeMS != 0.146993 {
				t.Errorf("the decision is %+v, want what the event says, under the bouncer of the token", d)
			}
			if d.DecisionID == "b" && (d.Effect != "SHADOW_WOULD_DENY" || d.Mode != "shadow" || d.RequestID != "r9" || !d.CacheHit) {
				t.Errorf("the decision is %+v, want a shadow decision from the cache", d)
			}
		}
	})
}

// TestEvaluationsCounted checks that an event of a gatehouse bouncer counts for each control that it
// lists, and an event of a stock OPA for the control that decided.
func TestEvaluationsCounted(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		g := h.bouncer(scope.Production, nil)
		event := func(id, more string) string {
			return `{"decision_id":"` + id + `","path":"gatehouse/decision","result":{"decision":"PERMIT","policy_id":7},"metrics":{"timer_rego_query_eval_ns":9000}` + more + `}`
		}
		chunk := "[" + strings.Join([]string{
			event("stock", ""), event("ours", `,"custom":{"evaluated":[5,7,9],"cache_hit":true}`),
			event("odd", `,"custom":{"evaluated":"all"}`), event("many", `,"custom":{"evaluated":[`+strings.Repeat("1,", maxEvaluated)+`1]}`),
			`{"decision_id":"nobody's","result":{"decision":"DENY"},"custom":{"evaluated":[5]}}`, `{"decision_id":"none","result":{"decision":"DENY"}}`,
		}, ",") + "]"
		if got, err := h.Logs(context.Background(), g.sc, g.token, strings.NewReader(chunk)); err != nil || got.Accepted != 6 {
			t.Fatalf("Logs = %+v, error %v, want 6 accepted", got, err)
		}
		want := []string{"7 9µs false", "5 3µs true", "7 3µs true", "9 3µs true", "7 9µs false", "7 9µs false", "5 0s false"}
		if got := h.observed(); !slices.Equal(got, want) {
			t.Errorf("the counted evaluations are %q, want %q", got, want)
		}
	})
}

// TestHiddenFromLogs checks that a value of an input member with a secret name appears in no text of
// the log, whatever bouncer sent it.
func TestHiddenFromLogs(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		orders := h.resource(scope.Production, "/orders")
		errtest.Must(t, errtest.Of(h.resources.Enrich(ctx, person(scope.DefaultTenant), orders.ID, resource.EnrichmentChange{OwnerEmail: patch.Set("canary@x.example"), AuditLevel: patch.Set("comprehensive")}, 0)))
		g := h.bouncer(scope.Production, nil, orders.ID)
		chunk := `[{"decision_id":"a","path":"gatehouse/decision","input":{"user":{"id":"bob","password":"canary-1"},"action":{"token":"canary-2"}},
			"result":{"decision":"DENY","reason":"canary-1 is wrong; ask canary@x.example","resource_id":` + strconv.FormatInt(orders.ID, 10) + `},"error":{"message":"cannot parse canary-2"},
			"intermediate_results":{"data.x":"canary-1"},"custom":{"explanation":[{"text":"so says canary-2","public":"canary-1","conditions":[]}]}},
			{"decision_id":"b","input":{"secret":"canary-3"},"result":{"decision":"DENY","reason":"canary-3"}}]`
		if got, err := h.Logs(ctx, g.sc, g.token, strings.NewReader(chunk)); err != nil || got.Accepted != 2 {
			t.Fatalf("Logs = %+v, error %v, want 2 accepted", got, err)
		}
		text, err := json.Marshal(h.waitLogged(2))
		if err != nil || strings.Contains(string(text), "canary") || !strings.Contains(string(text), "[redacted] is wrong; ask [redacted]") || !strings.Contains(string(text), "so says [redacted]") {
			t.Errorf("the log is %s, error %v, want redacted texts", text, err)
		}
	})
}

// OPA's discovery bundle names the bundle, and is sent once.
func TestDiscovery(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		g := h.bouncer(scope.Production, nil)
		a, err := h.Discovery(context.Background(), g.sc, Poll{BouncerID: g.id, Token: g.token})
		if err != nil || a.Parts == nil {
			t.Fatal(a, err)
		}
		doc := unpack(t, slices.Concat(a.Parts...))["/data.json"]
		for _, want := range []string{`"resource":"/bundles/` + strconv.FormatInt(g.id, 10) + `"`, `"long_polling_timeout_seconds":30`, `"status":{"service":"gatehouse"}`} {
			if !strings.Contains(doc, want) {
				t.Errorf("the discovery bundle is %s, want %s in it", doc, want)
			}
		}
		for line, known := range map[string]bool{a.ETag: true, `"zz", W/` + a.ETag: true, "*": true, `"zz"`: false, strings.Trim(a.ETag, `"`): false} {
			b, err := h.Discovery(context.Background(), g.sc, Poll{BouncerID: g.id, Token: g.token, Tags: []string{line}})
			if err != nil || (b.Parts == nil) != known {
				t.Errorf("If-None-Match %s: %+v, error %v, want no bundle: %v", line, b, err, known)
			}
		}
	})
}

// TestReplicas checks that a change at one replica ends a poll that waits at another. Both assign the
// same revision to the same content.
func TestReplicas(t *testing.T) {
	fulltest.Only(t)
	cfg := dbtest.Config(t, dbtest.Postgres)
	one, two := newFixture(t, dbtest.OpenConfig(t, cfg)), newFixture(t, dbtest.OpenConfig(t, cfg))
	p := one.control(scope.Production, "orders", 0, alice)
	g := one.bouncer(scope.Production, nil)
	tag, _ := g.fetch()
	there := *g
	there.h = two
	poll := there.park(tag)
	one.rewrite(p, bob)
	if a := poll.end(); a.err != nil || a.ETag != `"2"` {
		t.Errorf("the other replica answers %+v, error %v, want \"2\"", a.Answer, a.err)
	}
	if again, _ := g.fetch(tag); again != `"2"` {
		t.Errorf("this replica answers %s, want \"2\"", again)
	}
}

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestStopped checks that the list of stopped agents changes only together with the revisions of
// both environments, that these change for nothing else, and that removed agents stay in it.
func TestStopped(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		s := &Service{Stores: c, Now: time.Now, Subjects: "subjects"}
		ctx, sc := t.Context(), auth.SystemScope(scope.DefaultTenant, "test", "")
		type state struct {
			stopped             string
			sandbox, production int64
		}
		read := func() (out state) {
			t.Helper()
			err := c.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
				set, err := ForDecisions(ctx, tx)
				if err != nil {
					return err
				}
				out.stopped = strings.TrimSuffix(strings.TrimPrefix(string(set.Value().AppendJSON(nil)), `{"stopped":`), "}")
				for env, at := range map[scope.Env]*int64{scope.Sandbox: &out.sandbox, scope.Production: &out.production} {
					if *at, err = tx.Revision(ctx, resource.Revision(env)); err != nil {
						return err
					}
					n, err := ChangesSince(ctx, tx, env, 0)
					if err != nil || n != *at {
						t.Errorf("%s: %d recorded changes, %v, want %d", env, n, err, *at)
					}
				}
				return nil
			})
			errtest.Must(t, err)
			return out
		}
		create := func(name, status string) func() error {
			return func() error {
				_, err := s.Create(ctx, sc, Draft{Name: name, Type: "llm", Status: status})
				return err
			}
		}
		set := func(id int64, change Change) func() error {
			return func() error {
				_, err := s.Update(ctx, sc, id, change, 0)
				return err
			}
		}
		remove := func(id int64) func() error {
			return func() error {
				return c.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
					_, err := s.deleteIn(ctx, tx, sc, id, 0)
					return err
				})
			}
		}
		text := func(s string) *string { return &s }
		before := read()
		if before.stopped != "[]" {
			t.Fatalf("the stopped agents are %s at first, want none", before.stopped)
		}
		for _, step := range []struct {
			name string
			do   func() error
			want string
		}{
			{"create an active agent", create("one", ""), "[]"},
			{"create another", create("two", Active), "[]"},
			{"create an inactive agent", create("three", Inactive), "[[3,3]]"},
			{"change a name", set(1, Change{Name: text("uno")}), "[[3,3]]"},
			{"change nothing", set(3, Change{Status: text(Inactive)}), "[[3,3]]"},
			{"deactivate", set(1, Change{Status: text(Inactive), Name: text("one")}), "[[1,1],[3,3]]"},
			{"activate", set(3, Change{Status: text(Active)}), "[[1,1]]"},
			{"remove the last", remove(3), "[[1,1],[3,3]]"},
			{"remove an inactive one", remove(1), "[[1,1],[3,3]]"},
			{"create after that", create("four", ""), "[[1,1],[3,3]]"},
			{"fail to create", func() error {
				if create("four", Inactive)() == nil {
					t.Error("two agents have the same name")
				}
				return nil
			}, "[[1,1],[3,3]]"},
			{"remove one more", remove(4), "[[1,1],[3,4]]"},
			{"remove the only one", remove(2), "[[1,4]]"},
		} {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			after := read()
			if after.stopped != step.want {
				t.Errorf("%s: the stopped agents are %s, want %s", step.name, after.stopped, step.want)
			}
			if changed, sandbox, production := after.stopped != before.stopped, after.sandbox != before.sandbox, after.production != before.production; sandbox != changed || production != changed {
				t.Errorf("%s: the list changed: %v, but the revision of sandbox: %v, of production: %v", step.name, changed, sandbox, production)
			}
			before = after
		}
	})
}

// TestSkippedIDs checks that ids which the store never gave to an agent are announced, too, when they
// become part of the list.
func TestSkippedIDs(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		s := &Service{Stores: c, Now: time.Now, Subjects: "subjects"}
		ctx, sc := context.Background(), auth.SystemScope(scope.DefaultTenant, "test", "")
		var after int64
		var set actor.Agents
		err := c.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO agents (id, name, type, provider, model, status, configuration, policies, attributes, created_at, updated_at, change_no)
				VALUES (0, 'first', 'llm', '', '', 'active', '{}', '[]', '{}', 0, 0, 1)`)
			return err
		})
		errtest.Must(t, err)
		for range 2 { // a failed insertion uses up an id in PostgreSQL
			_ = c.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
				_, err := insert(ctx, tx, Agent{Name: "first", Type: "llm", Status: Active})
				return err
			})
		}
		made, err := s.Create(ctx, sc, Draft{Name: "second", Type: "llm"})
		errtest.Must(t, err)
		err = c.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
			if set, err = ForDecisions(ctx, tx); err == nil {
				after, err = tx.Revision(ctx, resource.Revision(scope.Production))
			}
			return err
		})
		if err != nil || set.Stops(made.ID) || !set.IsEmpty() != (after > 0) {
			t.Errorf("after agent %d the stopped agents are %s and the revision %d, %v, want a revision only for a list", made.ID, set.Value().AppendJSON(nil), after, err)
		}
	})
}

// TestClients checks that an OAuth client belongs to one agent, that their number is bounded, that a
// removed agent keeps its clients until another one has them, and that decisions hear of each change.
func TestClients(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		s := &Service{Stores: c, Now: time.Now, Subjects: "subjects"}
		ctx, sc := t.Context(), auth.SystemScope(scope.DefaultTenant, "test", "")
		known := func() (clients string, revision int64) {
			t.Helper()
			err := c.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
				agents, err := ForDecisions(ctx, tx)
				if err != nil {
					return err
				}
				clients = string(agents.Value().Get("clients").AppendJSON(nil))
				revision, err = tx.Revision(ctx, resource.Revision(scope.Sandbox))
				return err
			})
			errtest.Must(t, err)
			return clients, revision
		}
		create := func(name string, clients ...string) (int64, error) {
			a, err := s.Create(ctx, sc, Draft{Name: name, Type: "llm", OAuthClients: clients})
			return a.ID, err
		}
		one, err := create("one", "a", "b")
		errtest.Must(t, err)
		two, err := create("two")
		errtest.Must(t, err)
		want := func(step, clients string, changed bool, before int64) int64 {
			t.Helper()
			got, now := known()
			if got != clients || (now != before) != changed {
				t.Errorf("%s: the clients are %s and the revision went from %d to %d, want %s and a new revision: %v", step, got, before, now, clients, changed)
			}
			return now
		}
		at := want("create", `{"a":1,"b":1}`, true, 0)
		for name, list := range map[string][]string{"another agent's": {"a"}, "twice": {"c", "c"}, "empty": {""}, "a space": {" c"}, "an agent": {"Agent:1"}, "too long": {strings.Repeat("x", 201)}} {
			_, err := s.Update(ctx, sc, two, Change{OAuthClients: patch.Set(list)}, 0)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(fmt.Sprint(fault.Offences(err)), "/oauth_client_ids/") {
				t.Errorf("%s: %v, %v, want each wrong client named", name, err, fault.Offences(err))
			}
		}
		set := func(id int64, list ...string) {
			t.Helper()
			errtest.Must(t, errtest.Of(s.Update(ctx, sc, id, Change{OAuthClients: patch.Set(list)}, 0)))
		}
		at = want("refused changes", `{"a":1,"b":1}`, false, at)
		set(one, "a", "b")
		at = want("the same", `{"a":1,"b":1}`, false, at)
		set(one, "a")
		set(two, "b", "c")
		at = want("a client moves", `{"a":1,"b":2,"c":2}`, true, at)
		if a, err := s.Get(ctx, sc, two); err != nil || !slices.Equal(a.OAuthClients, []string{"b", "c"}) {
			t.Errorf("the agent reads as %+v, %v, want its clients", a, err)
		}
		drop := func(id int64) {
			t.Helper()
			if err := c.Write(ctx, sc.Tenant, func(tx *db.Tx) error { _, err := s.deleteIn(ctx, tx, sc, id, 0); return err }); err != nil {
				t.Fatal(err)
			}
		}
		drop(two)
		at = want("remove", `{"a":1,"b":2,"c":2}`, true, at)
		set(one, "a", "b")
		want("another agent has it", `{"a":1,"b":1,"c":2}`, true, at)
		// As many as there may be, in agents and of removed agents.
		for i := 0; ; i++ {
			var list []string
			for j := range 10 {
				list = append(list, fmt.Sprintf("client %d.%d", i, j))
			}
			id, err := create(fmt.Sprint("many ", i), list...)
			if err != nil {
				if !fault.Is(err, fault.Forbidden) || i != 99 {
					t.Errorf("agent %d: %v, want the limit after 99 more agents", i, err)
				}
				break
			}
			if i == 0 {
				drop(id)
				id, err = create("many again", list...)
			}
			if err != nil || i > 200 {
				t.Fatalf("agent %d: %v", id, err)
			}
		}
		if n := rowsOf(t, ctx, c, `SELECT COUNT(*) FROM agent_clients_removed`); n != 1 {
			t.Errorf("%d clients of removed agents are stored, want only c, which nobody took", n)
		}
		err = c.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
			for i := range maxClients {
				if _, err := tx.Exec(ctx, `INSERT INTO agent_clients_removed (client_id, agent_id, no) VALUES ($1, 100000, $2)`, fmt.Sprint("old ", i), i+10); err != nil {
					return err
				}
			}
			return nil
		})
		errtest.Must(t, err)
		drop(one) // an agent with a smaller id, removed later
		for client, want := range map[string]int64{"a": 1, "b": 1, "c": 0, "old 0": 0, "old 2": 1} {
			if n := rowsOf(t, ctx, c, `SELECT COUNT(*) FROM agent_clients_removed WHERE client_id = '`+client+`'`); n != want {
				t.Errorf("%d rows for the client %s, want %d: the newest %d stay", n, client, want, maxClients)
			}
		}
	})
}

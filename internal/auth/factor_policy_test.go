package auth

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/factor"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestRequired: where the tenant requires a second factor, a session without one can only
// enrol. Links, keys and providers need none.
func TestRequired(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		made, err := r.Tenants.Create(ctx, root(), tenant.Draft{Name: "Acme", Domain: "acme.example"})
		errtest.Must(t, err)
		r.createUser(made.ID, "alice", user.RoleAdmin)
		r.createUser(made.ID, "bob")
		before, key := r.signIn(made.ID, "bob"), r.createKey(made.ID, "users:read")
		r.want("a session before the setting", Credential{Bearer: before}, "ok")
		errtest.Must(t, errtest.Of(r.Tenants.Update(ctx, root(), made.ID, tenant.Change{Settings: patch.Set(tenant.Settings{tenant.FactorSetting: true})})))
		r.clock.Move(hardAge)
		enrolFirst := func(what string, c Credential) {
			t.Helper()
			_, _, err := r.Authenticate(ctx, c)
			wantCode(t, what, err, "second_factor_enrolment_required")
		}
		enrolFirst("a session from before the setting", Credential{Bearer: before})
		token := r.signIn(made.ID, "alice")
		enrolFirst("a new session", Credential{Bearer: token})
		r.want("an API key", Credential{APIKey: key.Key}, "ok")
		link, err := r.Sessions.Link(ctx, made.ID, "bob", time.Minute)
		errtest.Must(t, err)
		here := anonymous(made.ID)
		here.Actor.IP = "127.0.0.1"
		linked, err := r.Sessions.Redeem(ctx, here, link, Browser{})
		errtest.Must(t, err)
		r.want("a link's session", Credential{Cookie: linked.Cookie}, "ok")

		sc, _, err := r.Authenticate(ctx, Credential{Bearer: token, Enrolling: true})
		if err != nil || !sc.EnrolOnly {
			t.Fatalf("Authenticate of an enrolling session: EnrolOnly %v, %v, want true", sc.EnrolOnly, err)
		}
		a := &app{r: r, tenant: made.ID, user: user.User{ID: sc.Actor.ID, Username: "alice"}}
		e, err := r.Factors.Begin(ctx, sc, "")
		errtest.Must(t, err)
		a.secret = e.Secret
		attacker := r.signIn(made.ID, "alice")
		if a.codes, err = r.Factors.Confirm(ctx, sc, a.code(0)); err != nil {
			t.Fatal(err)
		}
		r.want("the session that enrolled", Credential{Bearer: token}, "ok")
		r.want("another session with the password alone", Credential{Bearer: attacker, Enrolling: true}, "401")
		r.clock.Move(time.Minute)
		sc = a.session(a.code(0))
		if sc.EnrolOnly {
			t.Error("a session with a code is EnrolOnly")
		}
		errtest.Must(t, r.Factors.Disable(ctx, sc, password, a.codes[0]))
		after, _, err := r.Authenticate(ctx, Credential{Bearer: r.signIn(made.ID, "alice"), Enrolling: true})
		if err != nil || !after.EnrolOnly {
			t.Errorf("Authenticate after Disable: EnrolOnly %v, %v, want true", after.EnrolOnly, err)
		}
	})
}

// TestReset: an administrator removes the factor of a person of the same tenant who holds no more
// permissions, and the person's sessions end.
func TestReset(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		a := r.enrolledUser(dbtest.Second, "alice", user.RoleAdmin)
		r.createUser(dbtest.Second, "boss", user.RoleAdmin)
		boss := r.signedIn(dbtest.Second, "boss")
		weak := boss
		weak.Permissions = scope.Permissions{}
		wantCode(t, "reset by a caller with fewer permissions", r.Factors.ResetOf(ctx, weak, a.user.ID), "permission_denied")
		elsewhere := boss
		elsewhere.Tenant = scope.DefaultTenant
		wantCode(t, "reset from another tenant", r.Factors.ResetOf(ctx, elsewhere, a.user.ID), "not_found")
		_, err := r.Factors.StateOf(ctx, elsewhere, a.user.ID)
		wantCode(t, "state, asked from another tenant", err, "not_found")
		own := a.session(a.code(0))
		wantCode(t, "reset of the caller's own factor", r.Factors.ResetOf(ctx, own, a.user.ID), "permission_denied")
		c := a.challenge()
		wantCode(t, "reset", r.Factors.ResetOf(ctx, boss, a.user.ID), okay)
		wantCode(t, "reset twice", r.Factors.ResetOf(ctx, boss, a.user.ID), "no_second_factor")
		errtest.Must(t, errtest.Of(r.Sessions.List(ctx, own)))
		if list, _ := r.Sessions.ListOf(ctx, boss, a.user.ID); len(list) != 0 {
			t.Errorf("after the reset %d sessions remain, want none", len(list))
		}
		_, err = a.respond(c, a.code(1))
		wantCode(t, "a challenge from before", err, "invalid_challenge")
		_, err = a.login("")
		wantCode(t, "login with the password", err, okay)
		if rows := r.auditOf(dbtest.Second); !strings.Contains(rows, "SECOND_FACTOR_RESET") {
			t.Errorf("the audit has no SECOND_FACTOR_RESET: %s", rows)
		}

		a.enrol()
		fresh, err := r.ResetPassword(ctx, dbtest.Second, "alice", "", false)
		errtest.Must(t, err)
		_, err = r.Login(ctx, anonymous(dbtest.Second), "alice", fresh)
		wantCode(t, "login after ResetPassword that keeps the factor", err, codeRequired)
		if fresh, err = r.ResetPassword(ctx, dbtest.Second, "alice", "", true); err != nil {
			t.Fatal(err)
		}
		_, err = r.Login(ctx, anonymous(dbtest.Second), "alice", fresh)
		wantCode(t, "login after ResetPassword that removes the factor", err, okay)

		b := r.enrolledUser(dbtest.Second, "bob")
		errtest.Must(t, errtest.Of(r.Users.Delete(ctx, systemOf(dbtest.Second), b.user.ID)))
		err = r.Stores.Read(ctx, dbtest.Second, func(tx *db.Tx) error {
			had, err := factor.Enrolled(ctx, tx, b.user.ID)
			if had {
				t.Error("a deleted person still has a factor")
			}
			return err
		})
		errtest.Must(t, err)
	})
}

// TestFactorsOfPeopleOnly: keys have no second factor.
func TestFactorsOfPeopleOnly(t *testing.T) {
	r := newSQLite(t)
	sc, _, err := r.Authenticate(context.Background(), Credential{APIKey: r.createKey(scope.DefaultTenant, "users:write").Key})
	errtest.Must(t, err)
	_, err = r.Factors.Begin(context.Background(), sc, password)
	wantCode(t, "Begin by a key", err, "permission_denied")
}

// TestTokenWithCode: the token endpoint accepts the code as a parameter.
func TestTokenWithCode(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		a := r.enrolledUser(scope.DefaultTenant, "alice")
		ask := func(code string) error {
			_, err := r.Token(context.Background(), anonymous(a.tenant), TokenRequest{GrantType: "password", Username: "alice", Password: password, Code: code})
			return err
		}
		err := ask("")
		wantCode(t, "without a code", err, codeRequired)
		if !fault.Is(err, fault.BadRequest) {
			t.Errorf("without a code: got %v, want a bad request", err)
		}
		wantCode(t, "a wrong code", ask(a.wrongCode()), "invalid_grant")
		wantCode(t, "a code", ask(a.code(0)), okay)
	})
}

package auth

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
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
		if err != nil {
			t.Fatal(err)
		}
		r.person(made.ID, "alice", user.RoleAdmin)
		r.person(made.ID, "bob")
		before, key := r.token(made.ID, "bob"), r.key(made.ID, "users:read")
		r.want("before", Credential{Bearer: before}, "ok")
		if _, err := r.Tenants.Update(ctx, root(), made.ID, tenant.Change{Settings: patch.Set(tenant.Settings{tenant.FactorSetting: true})}); err != nil {
			t.Fatal(err)
		}
		r.clock.pass(hardAge)
		enrolFirst := func(what string, c Credential) {
			t.Helper()
			_, _, err := r.Authenticate(ctx, c)
			wantCode(t, what, err, "second_factor_enrolment_required")
		}
		enrolFirst("a session from before", Credential{Bearer: before})
		token := r.token(made.ID, "alice")
		enrolFirst("a new session", Credential{Bearer: token})
		r.want("an API key", Credential{APIKey: key.Key}, "ok")
		link, err := r.Sessions.Link(ctx, made.ID, "bob", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		here := stranger(made.ID)
		here.Actor.IP = "127.0.0.1"
		linked, err := r.Sessions.Redeem(ctx, here, link, Browser{})
		if err != nil {
			t.Fatal(err)
		}
		r.want("a link's session", Credential{Cookie: linked.Cookie}, "ok")

		sc, _, err := r.Authenticate(ctx, Credential{Bearer: token, Enrolling: true})
		if err != nil || !sc.EnrolOnly {
			t.Fatalf("enrolling: %v, %v", sc.EnrolOnly, err)
		}
		a := &app{r: r, tenant: made.ID, user: user.User{ID: sc.Actor.ID, Username: "alice"}}
		e, err := r.Factors.Begin(ctx, sc, "")
		if err != nil {
			t.Fatal(err)
		}
		a.secret = e.Secret
		attacker := r.token(made.ID, "alice")
		if a.codes, err = r.Factors.Confirm(ctx, sc, a.code(0)); err != nil {
			t.Fatal(err)
		}
		r.want("the session that enrolled", Credential{Bearer: token}, "ok")
		r.want("another session with the password alone", Credential{Bearer: attacker, Enrolling: true}, "401")
		r.clock.pass(time.Minute)
		sc = a.session(a.code(0))
		if sc.EnrolOnly {
			t.Error("a session with a code must enrol")
		}
		if err := r.Factors.Disable(ctx, sc, password, a.codes[0]); err != nil {
			t.Fatal(err)
		}
		after, _, err := r.Authenticate(ctx, Credential{Bearer: r.token(made.ID, "alice"), Enrolling: true})
		if err != nil || !after.EnrolOnly {
			t.Errorf("after disabling: %v, %v", after.EnrolOnly, err)
		}
	})
}

// TestReset: an administrator removes the factor of a person of the same tenant who holds no more
// permissions, and the person's sessions end.
func TestReset(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		a := r.enrolled(dbtest.Second, "alice", user.RoleAdmin)
		r.person(dbtest.Second, "boss", user.RoleAdmin)
		boss := r.signedIn(dbtest.Second, "boss")
		weak := boss
		weak.Permissions = scope.Permissions{}
		wantCode(t, "by somebody who may do less", r.Factors.ResetOf(ctx, weak, a.user.ID), "permission_denied")
		elsewhere := boss
		elsewhere.Tenant = scope.DefaultTenant
		wantCode(t, "an id of another tenant", r.Factors.ResetOf(ctx, elsewhere, a.user.ID), "not_found")
		_, err := r.Factors.StateOf(ctx, elsewhere, a.user.ID)
		wantCode(t, "the state of another tenant's person", err, "not_found")
		own := a.session(a.code(0))
		wantCode(t, "the own one", r.Factors.ResetOf(ctx, own, a.user.ID), "permission_denied")
		token := own
		c := a.challenge()
		wantCode(t, "reset", r.Factors.ResetOf(ctx, boss, a.user.ID), okay)
		wantCode(t, "reset twice", r.Factors.ResetOf(ctx, boss, a.user.ID), "no_second_factor")
		if _, err := r.Sessions.List(ctx, token); err != nil {
			t.Fatal(err)
		}
		if list, _ := r.Sessions.ListOf(ctx, boss, a.user.ID); len(list) != 0 {
			t.Errorf("%d sessions are left", len(list))
		}
		_, err = a.respond(c, a.code(1))
		wantCode(t, "a challenge from before", err, "invalid_challenge")
		_, err = a.login("")
		wantCode(t, "with the password", err, okay)
		if rows := r.auditOf(dbtest.Second); !strings.Contains(rows, "SECOND_FACTOR_RESET") {
			t.Error("the audit has no SECOND_FACTOR_RESET")
		}

		a.enrol()
		fresh, err := r.ResetPassword(ctx, dbtest.Second, "alice", "", false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Login(ctx, stranger(dbtest.Second), "alice", fresh)
		wantCode(t, "a new password keeps the factor", err, codeRequired)
		if fresh, err = r.ResetPassword(ctx, dbtest.Second, "alice", "", true); err != nil {
			t.Fatal(err)
		}
		_, err = r.Login(ctx, stranger(dbtest.Second), "alice", fresh)
		wantCode(t, "and removes it on demand", err, okay)

		b := r.enrolled(dbtest.Second, "bob")
		if _, err := r.Users.Delete(ctx, systemOf(dbtest.Second), b.user.ID); err != nil {
			t.Fatal(err)
		}
		err = r.Stores.Read(ctx, dbtest.Second, func(tx *db.Tx) error {
			had, err := factor.Enrolled(ctx, tx, b.user.ID)
			if had {
				t.Error("the factor outlives its person")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func systemOf(t scope.TenantID) scope.Scope { return SystemScope(t, "test", "req") }

// TestFactorsOfPeopleOnly: keys have no second factor.
func TestFactorsOfPeopleOnly(t *testing.T) {
	r := one(t)
	sc, _, err := r.Authenticate(context.Background(), Credential{APIKey: r.key(scope.DefaultTenant, "users:write").Key})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Factors.Begin(context.Background(), sc, password)
	wantCode(t, "a key", err, "permission_denied")
}

// TestTokenWithCode: the token endpoint accepts the code as a parameter.
func TestTokenWithCode(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		a := r.enrolled(scope.DefaultTenant, "alice")
		ask := func(code string) error {
			_, err := r.Token(context.Background(), stranger(a.tenant), TokenRequest{GrantType: "password", Username: "alice", Password: password, Code: code})
			return err
		}
		err := ask("")
		wantCode(t, "without a code", err, codeRequired)
		if !fault.Is(err, fault.BadRequest) {
			t.Errorf("%v is no 400", err)
		}
		wantCode(t, "a wrong code", ask(a.wrong()), "invalid_grant")
		wantCode(t, "a code", ask(a.code(0)), okay)
	})
}

// TestFactorAtRest: the store contains neither the secret nor the recovery codes in clear, and a
// new encryption key re-encrypts the secret.
func TestFactorAtRest(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		a := r.enrolled(scope.DefaultTenant, "alice")
		if err := r.Factors.Reseal(context.Background(), a.tenant); err != nil {
			t.Fatal(err)
		}
		_, err := a.login(a.code(0))
		wantCode(t, "after sealing again", err, okay)
	})
}

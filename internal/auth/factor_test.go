package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/lockout"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/totptest"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// app is a person with an authenticator app.
type app struct {
	r      *replica
	tenant scope.TenantID
	user   user.User
	secret string
	codes  []string
}

// enrolledUser creates a user with a second factor.
func (r *replica) enrolledUser(t scope.TenantID, name string, roles ...string) *app {
	r.t.Helper()
	a := &app{r: r, tenant: t, user: r.createUser(t, name, roles...)}
	a.enrol()
	return a
}

// enrol enrols with a session of its own.
func (a *app) enrol() {
	a.r.t.Helper()
	ctx, sc := context.Background(), a.r.signedIn(a.tenant, a.user.Username)
	e, err := a.r.Factors.Begin(ctx, sc, password)
	errtest.Must(a.r.t, err)
	a.secret = e.Secret
	if a.codes, err = a.r.Factors.Confirm(ctx, sc, a.code(0)); err != nil {
		a.r.t.Fatal(err)
	}
	a.r.clock.Move(time.Minute)
}

// code returns the code that the app shows some steps from now.
func (a *app) code(steps int) string {
	return totptest.Code(a.r.t, a.secret, a.r.clock.Now().Add(time.Duration(steps)*30*time.Second))
}

// wrongCode returns a code that the app does not show.
func (a *app) wrongCode() string {
	for n := 0; ; n++ {
		code := fmt.Sprintf("%06d", n)
		if code != a.code(-1) && code != a.code(0) && code != a.code(1) {
			return code
		}
	}
}

// login signs in with the password and a code.
func (a *app) login(code string) (Grant, error) {
	return a.r.Service.Login(context.Background(), anonymous(a.tenant), Proof{Username: a.user.Username, Password: password, Code: code})
}

// challenge signs in with the password only, and returns the challenge.
func (a *app) challenge() string {
	a.r.t.Helper()
	a.r.clock.Move(time.Millisecond) // the oldest challenges make room for new ones
	_, err := a.login("")
	return challengeIn(a.r.t, err)
}

func challengeIn(t testing.TB, err error) string {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != codeRequired {
		t.Fatalf("got %v, want %s", err, codeRequired)
	}
	text, _ := f.Fields["challenge"].(string)
	return text
}

// respond answers a challenge.
func (a *app) respond(challenge, code string) (Grant, error) {
	return a.r.Service.Login(context.Background(), anonymous(a.tenant), Proof{Challenge: challenge, Code: code})
}

// session returns the scope of a sign-in with a code.
func (a *app) session(code string) scope.Scope {
	a.r.t.Helper()
	g, err := a.login(code)
	errtest.Must(a.r.t, err)
	sc, _, err := a.r.Authenticate(context.Background(), Credential{Bearer: g.AccessToken})
	errtest.Must(a.r.t, err)
	return sc
}

// codeName returns the code of a fault, or the text of another error.
func codeName(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Code
	}
	return fmt.Sprint(err)
}

// wantCode fails unless err is a fault with a code, or nil for okay.
func wantCode(t testing.TB, what string, err error, want string) {
	t.Helper()
	if got := codeName(err); got != want {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

const okay = "<nil>"

// TestSecondFactor: a person enrols an app, uses it and disables it.
func TestSecondFactor(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		alice := r.createUser(scope.DefaultTenant, "alice")
		a := &app{r: r, tenant: scope.DefaultTenant, user: alice}
		other, sc := r.signedIn(a.tenant, "alice"), r.signedIn(a.tenant, "alice")

		_, err := r.Factors.Begin(ctx, sc, "wrong")
		wantCode(t, "begin with a wrong password", err, "confirmation_failed")
		_, err = r.Factors.Confirm(ctx, sc, "123456")
		wantCode(t, "confirm nothing", err, "no_enrolment")
		first, err := r.Factors.Begin(ctx, sc, password)
		errtest.Must(t, err)
		second, err := r.Factors.Begin(ctx, sc, password)
		if err != nil || first.Secret == second.Secret {
			t.Fatalf("second Begin: %v; the secrets are equal: %t", err, first.Secret == second.Secret)
		}
		if _, err := a.login(""); err != nil {
			t.Errorf("login while the enrolment is not confirmed: %v", err)
		}
		a.secret = first.Secret
		_, err = r.Factors.Confirm(ctx, sc, a.code(0))
		wantCode(t, "confirm with the replaced secret", err, "confirmation_failed")
		a.secret = second.Secret
		codes, err := r.Factors.Confirm(ctx, sc, a.code(0))
		if err != nil || len(codes) != 10 {
			t.Fatalf("Confirm gives %d recovery codes, %v, want 10", len(codes), err)
		}
		errtest.Must(t, errtest.Of(r.Sessions.List(ctx, other)))
		if list, _ := r.Sessions.List(ctx, sc); len(list) != 1 || list[0].ID != sc.Session {
			t.Errorf("sessions after the enrolment = %v, want only %s", list, sc.Session)
		}
		_, err = r.Factors.Begin(ctx, sc, password)
		wantCode(t, "enrol again", err, "second_factor_exists")

		_, err = a.login(a.code(0))
		wantCode(t, "the code of the enrolment", err, codeInvalid)
		_, err = a.login(a.code(1))
		wantCode(t, "the next code", err, okay)
		_, err = a.login(a.code(-1))
		wantCode(t, "the last code", err, okay)
		r.clock.Move(time.Minute)
		_, err = a.login(a.code(-2))
		wantCode(t, "two steps late", err, codeInvalid)
		_, err = a.login(strings.ToUpper(codes[0]))
		wantCode(t, "a recovery code", err, okay)
		_, err = a.login(codes[0])
		wantCode(t, "the same recovery code", err, codeInvalid)
		if u, _ := r.Users.Get(ctx, root(), alice.ID); fmt.Sprint(u.Attributes[user.MethodsAttribute]) != "[pwd mfa]" {
			t.Errorf("attributes after a recovery code = %v, want the methods [pwd mfa]", u.Attributes)
		}
		_, err = a.respond(a.challenge(), a.code(0))
		wantCode(t, "in two steps", err, okay)
		if u, _ := r.Users.Get(ctx, root(), alice.ID); fmt.Sprint(u.Attributes[user.MethodsAttribute]) != "[pwd otp mfa]" {
			t.Errorf("attributes after a code = %v, want the methods [pwd otp mfa]", u.Attributes)
		}
		if st, err := r.Factors.State(ctx, sc); err != nil || !st.Enrolled || st.CodesLeft != 9 || st.Required {
			t.Errorf("State = %+v, %v, want enrolled, 9 codes, not required", st, err)
		}

		r.clock.Move(time.Minute)
		_, err = r.Factors.Renew(ctx, sc, password, a.wrongCode())
		wantCode(t, "renew with a wrong code", err, "confirmation_failed")
		renewed, err := r.Factors.Renew(ctx, sc, password, a.code(0))
		if err != nil || len(renewed) != 10 {
			t.Fatalf("Renew gives %d recovery codes, %v, want 10", len(renewed), err)
		}
		_, err = a.login(codes[1])
		wantCode(t, "an old recovery code", err, codeInvalid)
		for what, err := range map[string]error{
			"a wrong password": r.Factors.Disable(ctx, sc, "wrong", a.code(1)), "a wrong code": r.Factors.Disable(ctx, sc, password, a.wrongCode()),
			"a used code": r.Factors.Disable(ctx, sc, password, a.code(0)), "no code": r.Factors.Disable(ctx, sc, password, ""),
		} {
			wantCode(t, "disable with "+what, err, "confirmation_failed")
		}
		wantCode(t, "disable", r.Factors.Disable(ctx, sc, password, renewed[0]), okay)
		wantCode(t, "disable twice", r.Factors.Disable(ctx, sc, password, renewed[1]), "no_second_factor")
		_, err = a.login("")
		wantCode(t, "after disabling", err, okay)

		rows := r.auditOf(a.tenant)
		for _, kind := range []string{"SECOND_FACTOR_ENROLLED", "RECOVERY_CODE_USED", "RECOVERY_CODES_RENEWED", "SECOND_FACTOR_DISABLED"} {
			if !strings.Contains(rows, kind) {
				t.Errorf("the audit has no %s", kind)
			}
		}
		for _, s := range append(append(codes, renewed...), first.Secret, second.Secret) {
			if strings.Contains(rows, s) {
				t.Errorf("the audit has the secret %s", s)
			}
		}
	})
}

// auditOf returns the administrative log of a tenant, as one text.
func (r *replica) auditOf(t scope.TenantID) string {
	r.t.Helper()
	var lines []string
	err := r.Stores.Read(context.Background(), t, func(tx *db.Tx) (err error) {
		lines, err = db.All[string](context.Background(), tx, `SELECT type || ' ' || object_name || ' ' || changes || ' ' || event_context FROM audit_events`)
		return err
	})
	errtest.Must(r.t, err)
	return strings.Join(lines, "\n")
}

// TestChallenge: a challenge is valid for its person, tenant and purpose, for five minutes, five
// wrong codes and one sign-in.
func TestChallenge(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		a, b := r.enrolledUser(scope.DefaultTenant, "alice"), r.enrolledUser(scope.DefaultTenant, "bob")
		const gone = "invalid_challenge"

		_, err := a.respond(b.challenge(), a.code(0))
		wantCode(t, "somebody else's challenge", err, codeInvalid)
		_, err = a.respond("no such challenge", a.code(0))
		wantCode(t, "an invented challenge", err, gone)
		_, err = a.respond(a.challenge(), "")
		wantCode(t, "no code", err, codeInvalid)
		c := a.challenge()
		_, err = r.Sessions.SignIn(ctx, anonymous(a.tenant), Proof{Challenge: c, Code: a.code(0)}, Browser{})
		wantCode(t, "a token's challenge for a cookie", err, gone)
		_, err = r.Service.Login(ctx, anonymous(dbtest.Second), Proof{Challenge: c, Code: a.code(0)})
		wantCode(t, "at another tenant", err, gone)
		_, err = r.Service.Login(ctx, anonymous("nowhere"), Proof{Challenge: c, Code: a.code(0)})
		wantCode(t, "at an unknown tenant", err, gone)
		_, err = a.respond(c, a.code(0))
		wantCode(t, "a challenge", err, okay)
		_, err = a.respond(c, a.code(1))
		wantCode(t, "a challenge that was used", err, gone)

		c = a.challenge()
		r.clock.Move(challengeLife)
		_, err = a.respond(c, a.code(0))
		wantCode(t, "after five minutes", err, gone)
		c = a.challenge()
		for range challengeTries {
			_, err = a.respond(c, a.wrongCode())
			wantCode(t, "a wrong code", err, codeInvalid)
		}
		_, err = a.respond(c, a.code(0))
		wantCode(t, "after five wrong codes", err, gone)
		_, err = a.respond(a.challenge(), a.code(0))
		wantCode(t, "with a new challenge", err, okay)
		r.clock.Move(time.Minute)

		c = a.challenge()
		errtest.Must(t, errtest.Of(r.Users.Update(ctx, root(), a.user.ID, user.Change{Password: patch.Set("another long password")})))
		_, err = a.respond(c, a.code(0))
		wantCode(t, "after a new password", err, gone)
		c = b.challenge()
		errtest.Must(t, errtest.Of(r.Sessions.EndOf(ctx, root(), b.user.ID, "")))
		_, err = b.respond(c, b.code(0))
		wantCode(t, "after an administrator ended everything", err, gone)
		var in SignedIn
		_, err = r.Sessions.SignIn(ctx, anonymous(b.tenant), Proof{Username: "bob", Password: password}, Browser{})
		if in, err = r.Sessions.SignIn(ctx, anonymous(b.tenant), Proof{Challenge: challengeIn(t, err), Code: b.code(0)}, Browser{}); err != nil {
			t.Fatal(err)
		}
		r.want("a browser that signs in in two steps", Credential{Cookie: in.Cookie}, "ok")
	})
}

// TestNoOracle: a caller without the password learns nothing about the second factor.
func TestNoOracle(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		a := r.enrolledUser(scope.DefaultTenant, "alice")
		r.createUser(scope.DefaultTenant, "bob")
		seen := map[string]string{}
		for what, p := range map[string]Proof{
			"with a factor": {Username: "alice", Password: "wrong"}, "and its right code": {Username: "alice", Password: "wrong", Code: a.code(0)},
			"and a recovery code": {Username: "alice", Password: "wrong", Code: a.codes[0]}, "without a factor": {Username: "bob", Password: "wrong", Code: "123456"},
			"nobody": {Username: "nobody", Password: "wrong", Code: "123456"},
		} {
			_, err := r.Service.Login(context.Background(), anonymous(scope.DefaultTenant), p)
			f, ok := errors.AsType[*fault.Error](err)
			if !ok {
				t.Fatalf("%s: got %v, want a fault", what, err)
			}
			seen[fmt.Sprint(f.Kind, f.Code, f.Message, f.Fields, f.Details, f.RetryAfter)] = what
		}
		if len(seen) != 1 {
			t.Errorf("%d different answers, want 1: %v", len(seen), seen)
		}
		if _, err := a.login(a.code(0)); err != nil {
			t.Errorf("login with a code that was sent with a wrong password: %v", err)
		}
		if _, err := a.login(a.codes[0]); err != nil {
			t.Errorf("login with a recovery code that was sent with a wrong password: %v", err)
		}
	})
}

// TestGuessedCodes: the right password allows no further guesses at the code. Wrong codes lock the
// pair like wrong passwords. From many addresses, they lock the codes of the app.
func TestGuessedCodes(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.Pause = func(context.Context, time.Duration) error { return nil }
		a := r.enrolledUser(scope.DefaultTenant, "alice")
		for range 3 * lockout.PairGuesses { // the password alone locks nothing
			a.challenge()
		}
		for i := range lockout.PairGuesses {
			c := a.challenge()
			_, err := a.respond(c, a.wrongCode())
			wantCode(t, fmt.Sprintf("guess %d", i), err, codeInvalid)
		}
		_, err := a.login(a.code(0))
		wantCode(t, "the right code after ten wrong ones", err, "locked")
		_, err = a.login("")
		wantCode(t, "a new challenge after ten wrong codes", err, "locked")

		from := func(i int, code string) error {
			sc := anonymous(a.tenant)
			sc.Actor.IP = fmt.Sprintf("198.51.100.%d", i)
			_, err := r.Service.Login(ctx, sc, Proof{Username: "alice", Password: password, Code: code})
			return err
		}
		for i := range lockout.CodeGuesses - lockout.PairGuesses {
			wantCode(t, fmt.Sprintf("from address %d", i), from(i, a.wrongCode()), codeInvalid)
		}
		wantCode(t, "the right code from one more address", from(200, a.code(0)), "locked")
		wantCode(t, "a recovery code", from(201, a.codes[0]), okay)
		r.clock.Move(lockout.LockTime)
		wantCode(t, "after the lock", from(202, a.code(0)), okay)
	})
}

// TestCodeRace: of several concurrent sign-ins with one code or one challenge, on two replicas, one
// succeeds.
func TestCodeRace(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		clk := newClock()
		r, twin := newReplica(t, c, clk), newReplica(t, c, clk)
		a := r.enrolledUser(scope.DefaultTenant, "alice")
		race := func(what, refusal string, proofs ...Proof) {
			t.Helper()
			var won atomic.Int32
			var all sync.WaitGroup
			for i, p := range proofs {
				all.Go(func() {
					switch err := loginFrom([]*replica{r, twin}[i%2], i, p); {
					case err == nil:
						won.Add(1)
					case refusal != "" && codeName(err) != refusal:
						t.Errorf("%s: got %v, want %s", what, err, refusal)
					}
				})
			}
			all.Wait()
			if won.Load() != 1 {
				t.Errorf("%s: %d of %d concurrent sign-ins succeed, want 1", what, won.Load(), len(proofs))
			}
		}
		race("one code", codeInvalid, slices.Repeat([]Proof{{Username: "alice", Password: password, Code: a.code(0)}}, 8)...)
		race("one recovery code", codeInvalid, slices.Repeat([]Proof{{Username: "alice", Password: password, Code: a.codes[0]}}, 8)...)
		clk.Move(time.Minute)
		one := a.challenge()
		race("one challenge", "", Proof{Challenge: one, Code: a.code(0)}, Proof{Challenge: one, Code: a.code(1)},
			Proof{Challenge: one, Code: a.codes[1]}, Proof{Challenge: one, Code: a.codes[2]})
	})
}

// loginFrom signs in from the address with a number.
func loginFrom(r *replica, i int, p Proof) error {
	sc := anonymous(scope.DefaultTenant)
	sc.Actor.IP = fmt.Sprintf("203.0.113.%d", i)
	_, err := r.Service.Login(context.Background(), sc, p)
	return err
}

// TestClockStepsBack: when the clock is set back, a used code stays invalid, and unused codes work
// again.
func TestClockStepsBack(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		a := r.enrolledUser(scope.DefaultTenant, "alice")
		used := a.code(0)
		_, err := a.login(used)
		wantCode(t, "a code", err, okay)
		r.clock.Move(time.Hour)
		_, err = a.login(a.code(0))
		wantCode(t, "an hour later", err, okay)
		r.clock.Move(-time.Hour)
		_, err = a.login(used)
		wantCode(t, "the used code, with the clock set back", err, codeInvalid)
		_, err = a.login(a.code(1))
		wantCode(t, "the next code, with the clock set back", err, okay)
	})
}

package decision_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// ways are the ways to decide about one user. Each returns whether access is granted.
var ways = map[string]func(c *fixture, ctx context.Context, user string) (bool, error){
	"evaluate": func(c *fixture, ctx context.Context, user string) (bool, error) {
		got, err := c.Evaluate(ctx, anyone, c.object(`{"user":`+user+`}`))
		return got.Decision == audit.Permit, err
	},
	"bulk": func(c *fixture, ctx context.Context, user string) (bool, error) {
		got, err := c.EvaluateBulk(ctx, anyone, c.items(`[{"user":`+user+`}]`))
		return err == nil && got.Results[0].Decision == audit.Permit, err
	},
	"several": func(c *fixture, ctx context.Context, user string) (granted bool, err error) {
		err = c.DecideBatch(ctx, anyone, c.set(), []*rego.Request{c.request(user)}, c.Person, func(_ int, d *rego.Decision) bool {
			granted = d.Permit
			return true
		})
		return granted, err
	},
	"try": func(c *fixture, ctx context.Context, user string) (granted bool, err error) {
		req := c.request(user)
		err = c.DecideUnrecorded(ctx, anyone, c.set(), c.Person, func() *rego.Request {
			next := req
			req = nil
			return next
		}, func(d *rego.Decision) { granted = d.Permit })
		return granted, err
	},
}

// set returns the snapshot of the service.
func (c *fixture) set() *rego.Set {
	c.t.Helper()
	set, err := c.Snapshot(context.Background(), anyone)
	if err != nil {
		c.t.Fatal(err)
	}
	return set
}

// request returns a request of a user.
func (c *fixture) request(user string) *rego.Request {
	c.t.Helper()
	req, offences := rego.ParseOpen(c.object(`{"user":` + user + `}`))
	if len(offences) > 0 {
		c.t.Fatal(offences)
	}
	return &req
}

// TestStoredUserFillsGaps checks that, in every way to decide, members that were sent stay, and missing
// ones come from the stored user with that id.
func TestStoredUserFillsGaps(t *testing.T) {
	for user, want := range map[string]bool{
		`{"id":"ann"}`:                           true,
		`{"id":"ann","department":"legal"}`:      true,
		`{"id":"ann","department":"sales"}`:      false,
		`{"id":"ann","department":null}`:         false,
		`{"id":"ann","roles":[]}`:                false,
		`{"id":"bob"}`:                           false,
		`{"id":"bob","department":"legal"}`:      false,
		`{"department":"legal","roles":["dpo"]}`: true,
		`{"id":7}`:                               false,
	} {
		for name, ask := range ways {
			c := newFixture(t, `{}`, `package a
allow if { input.user.department == "legal"; "dpo" in input.user.roles }`)
			c.Person = func(_ context.Context, _ scope.TenantID, id string) (value.Value, error) {
				if id != "ann" {
					return value.Value{}, nil
				}
				return c.object(`{"id":"ann","department":"legal","roles":["dpo"]}`), nil
			}
			if got, err := ask(c, context.Background(), user); err != nil || got != want {
				t.Errorf("%s %s: granted %v, %v, want %v", name, user, got, err, want)
			}
		}
	}
}

// TestCallerWhoLeft checks that work whose caller left ends with the fault "cancelled", never with an
// error of its context, and that nothing is recorded.
func TestCallerWhoLeft(t *testing.T) {
	wantCancelled := func(name string, c *fixture, err error) {
		t.Helper()
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != fault.Unavailable || f.Code != "cancelled" || len(c.records) > 0 {
			t.Errorf("%s: %v, %d records, want cancelled and none", name, err, len(c.records))
		}
	}
	for name, ask := range ways {
		c := newFixture(t, `{}`, "package a\nallow := true")
		ctx, leave := context.WithCancel(context.Background())
		c.Person = func(ctx context.Context, _ scope.TenantID, _ string) (value.Value, error) {
			leave()
			return value.Value{}, ctx.Err() // as a store does
		}
		_, err := ask(c, ctx, `{"id":"ann"}`)
		wantCancelled(name, c, err)
	}
	c := newFixture(t, `{}`, "package a\nallow := true")
	ctx, leave := context.WithCancel(context.Background())
	decided := 0
	wantCancelled("several, between two", c, c.DecideBatch(ctx, anyone, c.set(), []*rego.Request{c.request(`{}`), c.request(`{}`)}, c.Person, func(int, *rego.Decision) bool {
		decided++
		leave()
		return true
	}))
	if decided != 1 {
		t.Errorf("%d decisions, want one: then the caller left", decided)
	}
	wantCancelled("work", c, c.Work(ctx, anyone, 1, func(int) { t.Error("a step after the caller left") }))
}

// TestSeveralPastTheDeadline checks that requests for which a call has no time are denied and recorded.
func TestSeveralPastTheDeadline(t *testing.T) {
	c := newFixture(t, `{}`, "package a\nallow := true")
	c.BulkDeadline = time.Nanosecond
	var reasons []string
	err := c.DecideBatch(context.Background(), anyone, c.set(), []*rego.Request{c.request(`{}`), nil, c.request(`{}`)}, c.Person, func(_ int, d *rego.Decision) bool {
		if d != nil {
			reasons = append(reasons, d.Effect.String()+" "+d.Reason)
		}
		return true
	})
	if want := "[DENY evaluation_limit DENY evaluation_limit]"; err != nil || fmt.Sprint(reasons) != want || len(c.records) != 2 {
		t.Errorf("%v %q, %d records, want %s and 2 records", err, reasons, len(c.records), want)
	}
	err = c.Work(context.Background(), anyone, 1, func(int) { t.Error("a step past the deadline") })
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "timeout" {
		t.Errorf("work after the deadline: %v, want timeout", err)
	}
}

// TestUserThatIsNotLookedUp checks that, while the store does not answer, each way but a search decides
// as for an unknown person, and records that.
func TestUserThatIsNotLookedUp(t *testing.T) {
	for name, ask := range ways {
		c := newFixture(t, `{}`, "package a\nallow := true")
		c.Person = func(context.Context, scope.TenantID, string) (value.Value, error) {
			return value.Value{}, decision.ErrPersonUnknown
		}
		granted, err := ask(c, context.Background(), `{"id":"ann"}`)
		if name == "try" {
			if !errors.Is(err, decision.ErrPersonUnknown) {
				t.Errorf("%s: %v, want ErrPersonUnknown", name, err)
			}
			continue
		}
		if err != nil || !granted || len(c.records) != 1 || c.records[0].Error != decision.ErrPersonUnknown.Error() {
			t.Errorf("%s: granted %v, %v, recorded %+v, want the error in one record", name, granted, err, c.records)
		}
	}
}

package decision

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// register is a store of people that counts what it is asked.
type register struct {
	t               *testing.T
	people          *People
	now             time.Time
	department      string
	revision        int64
	down            error
	finds, confirms atomic.Int64
	during          func() // called while a person is read
}

func newRegister(t *testing.T) *register {
	r := &register{t: t, now: time.Unix(1000, 0), department: "hr"}
	r.people = &People{
		Now: func() time.Time { return r.now },
		Find: func(context.Context, scope.TenantID, string) (value.Value, error) {
			r.finds.Add(1)
			read := r.department
			if r.during != nil {
				r.during()
			}
			return value.Object(value.Member{Key: "department", Value: value.String(read)}), r.down
		},
		Revision: func(context.Context, scope.TenantID) (int64, error) {
			r.confirms.Add(1)
			return r.revision, r.down
		},
	}
	return r
}

func (r *register) want(id, department string, finds, confirms int64) {
	r.t.Helper()
	v, err := r.people.Person(context.Background(), "acme", id)
	if err != nil {
		r.t.Fatal(err)
	}
	if got, _ := v.Get("department").Str(); got != department {
		r.t.Errorf("%s is of %q, not %q", id, got, department)
	}
	if f, c := r.finds.Load(), r.confirms.Load(); f != finds || c != confirms {
		r.t.Errorf("%s took %d reads and %d looks in all, not %d and %d", id, f, c, finds, confirms)
	}
}

func TestPeopleAreReadOnce(t *testing.T) {
	r := newRegister(t)
	r.want("ada", "hr", 1, 1)
	r.want("ada", "hr", 1, 1)
	r.want("bob", "hr", 2, 1)
	r.now = r.now.Add(peopleTime)
	r.want("ada", "hr", 2, 2) // one look for all of them
	r.want("bob", "hr", 2, 2)
}

func TestPeopleFollowChanges(t *testing.T) {
	r := newRegister(t)
	r.want("ada", "hr", 1, 1)
	r.department, r.revision = "it", 1
	r.want("ada", "hr", 1, 1) // nobody told
	r.now = r.now.Add(peopleTime)
	r.want("ada", "it", 2, 2)
	r.department, r.revision = "law", 2
	r.people.OnChange("acme")
	r.want("ada", "law", 3, 3)
	r.people.OnChange("other")
	r.want("ada", "law", 3, 3)
	r.people.OnChange("")
	r.want("ada", "law", 4, 4)
}

func TestPeopleReadBeforeAChangeAreNotKept(t *testing.T) {
	r := newRegister(t)
	r.during = func() {
		r.department, r.during = "it", nil
		r.people.OnChange("acme")
	}
	r.want("ada", "hr", 1, 1)
	r.want("ada", "it", 2, 2)
}

func TestPeopleStayWhileTheStoreIsAway(t *testing.T) {
	r := newRegister(t)
	r.want("ada", "hr", 1, 1)
	r.now, r.down = r.now.Add(time.Hour), fault.New(fault.Unavailable, "store_down", "away")
	r.want("ada", "hr", 1, 2)
	r.want("ada", "hr", 1, 2) // it is not asked for each decision
	if _, err := r.people.Person(context.Background(), "acme", "bob"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("somebody unknown: %v", err)
	}
	r.now, r.down = r.now.Add(peopleTime), errors.New("broken")
	if _, err := r.people.Person(context.Background(), "acme", "ada"); err == nil {
		t.Error("a store that is broken, not away, was passed over")
	}
}

func TestPeopleAreBounded(t *testing.T) {
	r := newRegister(t)
	for i := range maxPeople + 1 {
		r.want(strconv.Itoa(i), "hr", int64(i+1), 1)
	}
	if n := len(r.people.all["acme"].byID); n > maxPeople {
		t.Errorf("%d are kept", n)
	}
}

// TestPeopleWhileTheStoreHangs: a store that does not answer holds nobody: who is
// known stays as he was, others are unknown, and it is not asked again at once.
func TestPeopleWhileTheStoreHangs(t *testing.T) {
	r := newRegister(t)
	r.want("ann", "hr", 1, 1)
	r.now = r.now.Add(time.Hour) // what is known must be confirmed
	hang := func(ctx context.Context) error {
		r.confirms.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}
	r.people.Revision = func(ctx context.Context, _ scope.TenantID) (int64, error) { return 0, hang(ctx) }
	for range 50 {
		r.want("ann", "hr", 1, 2)
		if _, err := r.people.Person(context.Background(), "acme", "eve"); !errors.Is(err, ErrPersonUnknown) {
			t.Fatalf("somebody unknown: %v", err)
		}
	}
}

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

// directory is a store of people that counts its reads.
type directory struct {
	t               *testing.T
	people          *People
	now             time.Time
	department      string
	revision        int64
	down            error
	finds, confirms atomic.Int64
	during          func() // called while a person is read
}

func newDirectory(t *testing.T) *directory {
	r := &directory{t: t, now: time.Unix(1000, 0), department: "hr"}
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

// want reports another department, or other counts of reads and checks of the revision.
func (r *directory) want(id, department string, finds, confirms int64) {
	r.t.Helper()
	v, err := r.people.Person(context.Background(), "acme", id)
	if err != nil {
		r.t.Fatal(err)
	}
	if got, _ := v.Get("department").Str(); got != department {
		r.t.Errorf("the department of %s is %q, want %q", id, got, department)
	}
	if f, c := r.finds.Load(), r.confirms.Load(); f != finds || c != confirms {
		r.t.Errorf("after %s: %d reads and %d checks in all, want %d and %d", id, f, c, finds, confirms)
	}
}

// A person is read once, and the revision is checked at intervals, once for all people.
func TestPeopleAreReadOnce(t *testing.T) {
	r := newDirectory(t)
	r.want("ada", "hr", 1, 1)
	r.want("ada", "hr", 1, 1)
	r.want("bob", "hr", 2, 1)
	r.now = r.now.Add(peopleTime)
	r.want("ada", "hr", 2, 2) // one check for all of them
	r.want("bob", "hr", 2, 2)
}

// A change counts at the next check, or at once after a notification.
func TestPeopleFollowChanges(t *testing.T) {
	r := newDirectory(t)
	r.want("ada", "hr", 1, 1)
	r.department, r.revision = "it", 1
	r.want("ada", "hr", 1, 1) // no notification
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

// A person who was read before a notification is read again.
func TestPeopleReadBeforeAChangeAreNotKept(t *testing.T) {
	r := newDirectory(t)
	r.during = func() {
		r.department, r.during = "it", nil
		r.people.OnChange("acme")
	}
	r.want("ada", "hr", 1, 1)
	r.want("ada", "it", 2, 2)
}

// While the store is unavailable, known people stay as they were.
func TestPeopleStayWhileTheStoreIsAway(t *testing.T) {
	r := newDirectory(t)
	r.want("ada", "hr", 1, 1)
	r.now, r.down = r.now.Add(time.Hour), fault.New(fault.Unavailable, "store_down", "away")
	r.want("ada", "hr", 1, 2)
	r.want("ada", "hr", 1, 2) // not each decision asks the store
	if _, err := r.people.Person(context.Background(), "acme", "bob"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("an unknown person: %v, want Unavailable", err)
	}
	r.now, r.down = r.now.Add(peopleTime), errors.New("broken")
	if _, err := r.people.Person(context.Background(), "acme", "ada"); err == nil {
		t.Error("a broken store: no error, although it is not just unavailable")
	}
}

// The memory for people is limited.
func TestPeopleAreBounded(t *testing.T) {
	r := newDirectory(t)
	for i := range maxPeople + 1 {
		r.want(strconv.Itoa(i), "hr", int64(i+1), 1)
	}
	if n := len(r.people.all["acme"].byID); n > maxPeople {
		t.Errorf("%d people in memory, want at most %d", n, maxPeople)
	}
}

// TestPeopleWhileTheStoreHangs checks that a store that does not answer delays no decision: known
// people stay as they were, others are unknown, and the store is not asked again at once.
func TestPeopleWhileTheStoreHangs(t *testing.T) {
	r := newDirectory(t)
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
			t.Fatalf("an unknown person: %v, want ErrPersonUnknown", err)
		}
	}
}

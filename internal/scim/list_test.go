package scim

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestFiltersAreBounded: a filter that must be applied to all people may read a limited number of
// them, and a tenant may run one at a time. Filters that name a person are not limited.
func TestFiltersAreBounded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := New(Service{Stores: c, Now: time.Now})
		sc := scope.Scope{Tenant: scope.DefaultTenant}
		must(t, c.Write(t.Context(), sc.Tenant, func(tx *db.Tx) error {
			for i := range 6 {
				id := fmt.Sprintf("p%d", i)
				at := db.Stamp(time.Now().Add(time.Duration(i) * time.Second))
				if _, err := tx.Exec(t.Context(), `INSERT INTO users (id, email, username, password_hash, status, created_at, updated_at) VALUES ($1, $1, $1, '', $2, $3, $3)`, id, user.Active, at); err != nil {
					return err
				}
				if _, err := tx.Exec(t.Context(), `INSERT INTO user_names (name, user_id) VALUES ($1, $1)`, id); err != nil {
					return err
				}
				if i > 2 {
					continue
				}
				if err := putGroup(t.Context(), tx, group{ID: "g" + id, Name: "team " + id, CreatedAt: at, UpdatedAt: at}); err != nil {
					return err
				}
				if err := insertMembers(t.Context(), tx, "g"+id, []string{"p0", "p1", "p2"}[:i+1]); err != nil {
					return err
				}
			}
			return nil
		}))
		lists := []func(filter string) (Page, error){
			func(filter string) (Page, error) { return s.ListUsers(t.Context(), sc, Query{Filter: filter}) },
			func(filter string) (Page, error) { return s.ListGroups(t.Context(), sc, Query{Filter: filter}) },
		}
		check := func(when string, kind int, filter, want string) {
			t.Helper()
			got := "ok"
			var f *fault.Error
			if _, err := lists[kind](filter); errors.As(err, &f) {
				got = f.Code
			} else if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s: list with %s: got %s, want %s", when, filter, got, want)
			}
		}
		const people, inGroups, members, one, oneMember = `userName pr`, `groups.display pr`, `members.value pr`, `userName eq "p1"`, `members.value eq "p2"`
		s.scans.most = 12 // 6 people with 6 memberships
		check("with room for all", 0, inGroups, "ok")
		check("with room for all", 1, members, "ok")
		s.scans.most = 6
		check("with room for the people", 0, people, "ok")
		check("without room for their groups", 0, inGroups, "too_many")
		s.scans.most = 5
		check("without room", 0, people, "too_many")
		check("without room", 1, members, "too_many")
		check("for one person", 0, one, "ok")
		check("for one person", 1, oneMember, "ok")
		s.scans.most = 100
		done, err := s.scans.begin(sc.Tenant)
		must(t, err)
		check("while another runs", 0, people, "rate_limit_exceeded")
		check("while another runs", 1, members, "rate_limit_exceeded")
		check("while another runs", 0, one, "ok")
		check("while another runs", 1, oneMember, "ok")
		check("while another runs", 1, `displayName sw "team"`, "ok")
		other, err := s.scans.begin(dbtest.Second)
		if err != nil {
			t.Fatalf("begin of another tenant: %v", err)
		}
		other()
		done()
		check("afterwards", 0, people, "ok")
	})
}

// must fails the test at once if err is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

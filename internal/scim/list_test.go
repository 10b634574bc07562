package scim

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
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
		errtest.Must(t, c.Write(t.Context(), sc.Tenant, func(tx *db.Tx) error {
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
			_, err := lists[kind](filter)
			if f, ok := errors.AsType[*fault.Error](err); ok {
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
		errtest.Must(t, err)
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

// TestPagesRepeatAndDropNobody: the pages of a list, by startIndex, have each person and group once,
// in the order in which they were added, with each filter and size of a page. Some were added at the
// same time.
func TestPagesRepeatAndDropNobody(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := New(Service{Stores: c, Now: time.Now})
		sc := scope.Scope{Tenant: scope.DefaultTenant}
		const all = batch + 20
		begun := db.Stamp(time.Now())
		var want []string
		err := c.Write(t.Context(), sc.Tenant, func(tx *db.Tx) error {
			for i := range all {
				id, at := fmt.Sprintf("p%04d", (i*7919)%all), begun.Add(time.Duration(i/50)*time.Second)
				want = append(want, fmt.Sprintf("%02d %s", i/50, id))
				if _, err := tx.Exec(t.Context(), `INSERT INTO users (id, email, username, password_hash, status, created_at, updated_at) VALUES ($1, $1, $1, '', $2, $3, $3)`, id, user.Active, at); err != nil {
					return err
				}
				if err := putGroup(t.Context(), tx, group{ID: id, Name: "team " + id, CreatedAt: at, UpdatedAt: at}); err != nil {
					return err
				}
			}
			return nil
		})
		errtest.Must(t, err)
		slices.Sort(want)
		lists := map[string]func(Query) (Page, error){
			"users":  func(q Query) (Page, error) { return s.ListUsers(t.Context(), sc, q) },
			"groups": func(q Query) (Page, error) { return s.ListGroups(t.Context(), sc, q) },
		}
		for _, l := range []struct{ kind, filter string }{{"users", ""}, {"users", `userName sw "p"`}, {"groups", ""}, {"groups", `displayName sw "team"`}} {
			for _, size := range []int{30, 200} {
				var got []string
				for start := 1; start <= all; {
					page, err := lists[l.kind](Query{Filter: l.filter, Start: start, Count: &size})
					errtest.Must(t, err)
					if page.Total != all || page.Start != start || len(page.Resources) == 0 {
						t.Fatalf("%v from %d: %d of %d from %d", l, start, len(page.Resources), page.Total, page.Start)
					}
					for _, r := range page.Resources {
						got = append(got, r.Document["id"].(string))
					}
					start += len(page.Resources)
				}
				for i, id := range got {
					if len(got) != all || id != want[i][3:] {
						t.Fatalf("%v by %d: place %d of %d is %s, want %s", l, size, i, len(got), id, want[i])
					}
				}
			}
		}
	})
}

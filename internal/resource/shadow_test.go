package resource

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestOverlap: two resources overlap if one request can match both.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/admin", "/admin", true},
		{"/Admin", "/admin", true},
		{"/admin", "/orders", false},
		{"/**", "/admin", true},
		{"/**", "/", true},
		{"/admin/**", "/admin", true},
		{"/admin/**", "/admin/users/{id}", true},
		{"/admin/**", "/administrators", false},
		{"/api/*/secret", "/api/v1/*", true},
		{"/api/{v}/secret", "/api/v1/public", false},
		{"/api/{v}", "/api", false},
		{"/api/{v}", "/api/**", true},
		{"/", "/", true},
		{"/", "/admin", false},
		{"/*", "/a/b", false},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			if got := overlap(Resource{Path: pair[0]}, Resource{Path: pair[1]}); got != c.want {
				t.Errorf("overlap of %s and %s = %v, want %v", pair[0], pair[1], got, c.want)
			}
		}
	}
	for _, c := range []struct {
		a, b []string
		want bool
	}{
		{nil, []string{"POST"}, true},
		{[]string{"GET"}, []string{"POST"}, false},
		{[]string{"GET", "POST"}, []string{"POST"}, true},
		{[]string{"HEAD"}, []string{"GET"}, true},
		{[]string{"GET"}, []string{"HEAD"}, true},
	} {
		if got := overlap(Resource{Path: "/a", Methods: c.a}, Resource{Path: "/a", Methods: c.b}); got != c.want {
			t.Errorf("overlap of the methods %v and %v = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// TestShadowsAmongMany: a warning does not depend on how many resources come before those that it
// is about.
func TestShadowsAmongMany(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s, store := context.Background(), service(c, nil, nil), tenantStore(t, c)
		// 1,500 resources that name a host and have no control, and 1,500 without a host that have
		// one. None of them overlaps.
		err := store.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
				INSERT INTO resources (name, type, environment, path, original_host, auto_discovered, version, created_at, updated_at)
				SELECT 'r' || i, 'api', 'sandbox', '/r' || i, CASE WHEN i % 2 = 0 THEN 'h.example' ELSE '' END, FALSE, 1, 0, 0 FROM n`)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `INSERT INTO policies (name, name_folded, status, environment, rego_code, version, resource_id, created_at, updated_at)
				SELECT name, name, 'active', 'sandbox', 'package c', 1, id, 0, 0 FROM resources WHERE original_host = ''`)
			return err
		})
		errtest.Must(t, err)
		guard := create(t, s, Draft{Name: "guard", Type: "api", Path: "/Admin/{page}"})
		err = store.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO policies (name, name_folded, status, environment, rego_code, version, resource_id, created_at, updated_at)
				VALUES ('g', 'g', 'active', 'sandbox', 'package c', 1, $1, 0, 0)`, guard.ID)
			return err
		})
		errtest.Must(t, err)
		want := func(what string, got []Warning, ids ...int64) {
			t.Helper()
			if len(got) != 1 || !slices.Equal(got[0].ResourceIDs, ids) {
				t.Errorf("%s: %+v, want %v", what, got, ids)
			}
		}
		open := create(t, s, Draft{Name: "open", Type: "api", Path: "/admin/**", OriginalHost: "pay.example"})
		want("the registration", open.Warnings, open.ID, guard.ID)
		wide := create(t, s, Draft{Name: "wide", Type: "api", Path: "/{any}/secret", OriginalHost: "pay.example"})
		want("the registration of a pattern", wide.Warnings, wide.ID, guard.ID)
		page, err := s.List(ctx, sc(scope.Sandbox), Filter{Limit: 1000, Skip: 3001})
		if err != nil || len(page.Warnings) != 2 {
			t.Errorf("the list warns of %+v, %v", page.Warnings, err)
		}
		err = store.Read(ctx, func(tx *db.Tx) error {
			found, err := Shadows(ctx, tx, scope.Sandbox, []int64{1, guard.ID})
			if len(found) != 1 || !slices.Equal(found[guard.ID].IDs, []int64{open.ID, wide.ID}) || found[guard.ID].Why == "" {
				t.Errorf("found %+v", found)
			}
			return err
		})
		errtest.Must(t, err)
		// A warning about very many names the first of them.
		all := create(t, s, Draft{Name: "all", Type: "api", Path: "/**", OriginalHost: "all.example"})
		if w := all.Warnings; len(w) != 1 || len(w[0].ResourceIDs) != 1+maxShadows || !strings.Contains(w[0].Message, "and more") {
			t.Errorf("%+v", w)
		}
	})
}

package user

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// people returns a Service on a new store, and the ids whose sessions it revoked.
func people(t *testing.T, c *db.Cluster) (*Service, *[]string) {
	t.Helper()
	n, revoked := 0, &[]string{}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	nop := func(context.Context, *db.Tx, string) error { return nil }
	return &Service{
		Stores: c, Hasher: hasher(t, quick), Released: nop,
		CheckLimit: func(context.Context, *db.Tx, string, int64) error { return nil },
		Now:        func() time.Time { now = now.Add(time.Second); return now },
		NewID:      func() string { n++; return fmt.Sprintf("u%02d", n) },
		Revoke: func(_ context.Context, _ *db.Tx, id string, what SessionEnd) error {
			*revoked = append(*revoked, fmt.Sprintf("%s:%v", id, what))
			return nil
		},
	}, revoked
}

// as is the scope of a person with roles.
func as(t scope.TenantID, roles ...string) scope.Scope {
	ps, platform := Permissions(t, roles)
	return scope.Scope{Tenant: t, Permissions: ps, Platform: platform, Actor: scope.Actor{Kind: scope.Person, ID: "caller", Name: "caller"}}
}

// draft is a person with a name and roles.
func draft(name string, roles ...string) Draft {
	return Draft{Username: name, Email: name + "@example.com", Password: "a long password", Roles: roles}
}

// mustCreate creates a person.
func mustCreate(t *testing.T, s *Service, sc scope.Scope, d Draft) User {
	t.Helper()
	u, err := s.Create(context.Background(), sc, d)
	errtest.Must(t, err)
	return u
}

// TestPeople: people are created, found, changed and deleted, and their sessions and keys end with the
// rights that they had.
func TestPeople(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		s, revoked := people(t, c)
		admin, other := as(scope.DefaultTenant, RolePlatformAdmin), as(dbtest.Second, RoleAdmin)
		d := draft("Alice", "Resource Manager", "astronaut")
		d.Attributes = map[string]any{"clearance": 3.0}
		u := mustCreate(t, s, admin, d)
		got, err := s.Get(ctx, admin, u.ID)
		if err != nil || got.Username != "Alice" || got.Roles[0] != RoleResourceManager || got.Roles[1] != "astronaut" || got.Attributes["clearance"] != 3.0 {
			t.Fatalf("Get = %+v, %v", got, err)
		}
		if strings.Contains(got.PasswordHash, "a long password") || !strings.HasPrefix(got.PasswordHash, "$argon2id$") {
			t.Errorf("password hash = %q, want Argon2id", got.PasswordHash)
		}
		if _, err := s.Get(ctx, other, u.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("Get from another tenant: got %v, want not found", err)
		}
		for _, taken := range []Draft{draft("ALICE"), {Username: "alice@EXAMPLE.com", Email: "x@example.com"}, {Username: "bob", Email: "ａlice@example.com"}} {
			if _, err := s.Create(ctx, admin, taken); !fault.Is(err, fault.Conflict) {
				t.Errorf("Create of %q with %q: got %v, want a conflict", taken.Username, taken.Email, err)
			}
		}
		for range 3 {
			mustCreate(t, s, admin, draft(s.NewID()+"_x%"))
		}
		p, err := s.List(ctx, admin, Filter{Skip: 1, Limit: 2})
		if err != nil || p.Total != 4 || len(p.Users) != 2 || p.Users[0].ID == u.ID {
			t.Errorf("List = %+v, %v, want 2 of 4", p, err)
		}
		for search, want := range map[string]int64{"_x%": 3, "%": 3, "ALI": 1, `\`: 0} {
			if p, _ := s.List(ctx, admin, Filter{Limit: 10, Search: search}); p.Total != want {
				t.Errorf("List with search %q = %d, want %d", search, p.Total, want)
			}
		}
		if u, err = s.Update(ctx, admin, u.ID, Change{Email: patch.Set("new@example.com"), Department: patch.Set("IT")}); err != nil || u.Department != "IT" || u.Username != "Alice" {
			t.Fatalf("Update = %+v, %v", u, err)
		}
		if len(*revoked) != 0 {
			t.Errorf("a new department revokes %v, want nothing", *revoked)
		}
		mustCreate(t, s, admin, Draft{Username: "reuse", Email: "alice@example.com"}) // the old address is free again
		if _, err = s.Update(ctx, admin, u.ID, Change{Password: patch.Set("another password")}); err != nil {
			t.Fatal(err)
		}
		if _, err = s.Update(ctx, admin, u.ID, Change{Password: patch.Set("yet another password"), KeepKeys: true}); err != nil {
			t.Fatal(err)
		}
		if _, err = s.SetRoles(ctx, admin, u.ID, RolesChange{Roles: []string{"viewer"}, Reason: "moved"}); err != nil {
			t.Fatal(err)
		}
		if _, err = s.Update(ctx, admin, u.ID, Change{Status: patch.Set(Disabled)}); err != nil {
			t.Fatal(err)
		}
		if _, err = s.Delete(ctx, admin, u.ID); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("[%[1]s:%[2]d %[1]s:%[3]d %[1]s:%[3]d %[1]s:%[3]d %[1]s:%[4]d]", u.ID, EndsKeys, EndsSessions, EndsAll); fmt.Sprint(*revoked) != want {
			t.Errorf("revoked = %v, want %v", *revoked, want)
		}
		if _, err = s.Get(ctx, admin, u.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("Get of a deleted person: got %v, want not found", err)
		}
	})
}

// TestNoAccountTakeover: nobody gives rights that they do not hold, changes people who hold more, or
// removes the last platform administrator.
func TestNoAccountTakeover(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		s, _ := people(t, c)
		platform := as(scope.DefaultTenant, RolePlatformAdmin)
		root := mustCreate(t, s, platform, draft("root", RolePlatformAdmin))
		boss := mustCreate(t, s, platform, draft("boss", RoleAdmin))
		clerk := scope.Scope{Tenant: scope.DefaultTenant, Permissions: scope.Permissions{List: Imply([]scope.Permission{"users:write"})}}
		plain := mustCreate(t, s, clerk, draft("plain", "astronaut"))
		for what, err := range map[string]error{
			"make an admin":          errtest.Of(s.Create(ctx, clerk, draft("evil", "Admin"))),
			"make a platform admin":  errtest.Of(s.Create(ctx, as(scope.DefaultTenant, RoleAdmin), draft("evil", RolePlatformAdmin))),
			"raise a plain user":     errtest.Of(s.SetRoles(ctx, clerk, plain.ID, RolesChange{Roles: []string{RoleViewer}})),
			"raise by update":        errtest.Of(s.Update(ctx, clerk, plain.ID, Change{Roles: patch.Set([]string{RoleAuditor})})),
			"lower the boss":         errtest.Of(s.SetRoles(ctx, clerk, boss.ID, RolesChange{Roles: []string{}})),
			"take the boss's place":  errtest.Of(s.Update(ctx, clerk, boss.ID, Change{Password: patch.Set("my password")})),
			"delete the boss":        errtest.Of(s.Delete(ctx, clerk, boss.ID)),
			"take the root's place":  errtest.Of(s.Update(ctx, as(scope.DefaultTenant, RoleAdmin), root.ID, Change{Password: patch.Set("my password")})),
			"take by another's mail": errtest.Of(s.Update(ctx, clerk, boss.ID, Change{Email: patch.Set("me@example.com")})),
		} {
			if !fault.Is(err, fault.Forbidden) {
				t.Errorf("%s: got %v, want forbidden", what, err)
			}
		}
		for what, err := range map[string]error{
			"delete":  errtest.Of(s.Delete(ctx, platform, root.ID)),
			"demote":  errtest.Of(s.SetRoles(ctx, platform, root.ID, RolesChange{Roles: []string{RoleAdmin}})),
			"disable": errtest.Of(s.Update(ctx, platform, root.ID, Change{Status: patch.Set(Disabled)})),
		} {
			if !fault.Is(err, fault.Conflict) {
				t.Errorf("%s the last platform administrator: got %v, want a conflict", what, err)
			}
		}
		mustCreate(t, s, platform, draft("root2", RolePlatformAdmin))
		if _, err := s.Delete(ctx, platform, root.ID); err != nil {
			t.Errorf("delete the last but one platform administrator: %v", err)
		}
	})
}

// TestAssignPlatformAdmin: in a tenant where platform_admin allows nothing, a caller
// without it cannot assign it, but can remove it.
func TestAssignPlatformAdmin(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		s, _ := people(t, c)
		platform, boss := as(scope.DefaultTenant, RolePlatformAdmin), as(dbtest.Second, RoleAdmin)
		platform.Tenant = dbtest.Second
		u := mustCreate(t, s, boss, draft("plain"))
		for what, err := range map[string]error{
			"create":            errtest.Of(s.Create(ctx, boss, draft("evil", "Platform Admin"))),
			"give":              errtest.Of(s.SetRoles(ctx, boss, u.ID, RolesChange{Roles: []string{RoleAdmin, RolePlatformAdmin}})),
			"give by an update": errtest.Of(s.Update(ctx, boss, u.ID, Change{Roles: patch.Set([]string{RolePlatformAdmin})})),
		} {
			if !fault.Is(err, fault.Forbidden) {
				t.Errorf("%s platform_admin: got %v, want forbidden", what, err)
			}
		}
		if got, err := s.Get(ctx, boss, u.ID); err != nil || len(got.Roles) != 0 {
			t.Errorf("roles after the refusals = %v, %v, want none", got.Roles, err)
		}
		errtest.Must(t, errtest.Of(s.SetRoles(ctx, platform, u.ID, RolesChange{Roles: []string{RolePlatformAdmin}})))
		if _, err := s.Update(ctx, boss, u.ID, Change{Department: patch.Set("IT")}); err != nil {
			t.Errorf("Update of a person with platform_admin: %v", err)
		}
		if _, err := s.SetRoles(ctx, boss, u.ID, RolesChange{Roles: []string{RoleViewer}}); err != nil {
			t.Errorf("removal of platform_admin: %v", err)
		}
	})
}

// TestBareAddresses: one mailbox has one spelling.
func TestBareAddresses(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		s, _ := people(t, c)
		admin := as(scope.DefaultTenant, RolePlatformAdmin)
		u := mustCreate(t, s, admin, Draft{Username: "bob", Email: "b@x.io"})
		for _, same := range []string{"Bob <b@x.io>", "<b@x.io>", "b@x.io (Bob)", `"b"@x.io`, "b @x.io", "b@x.io, c@x.io", "b", ""} {
			if _, err := s.Create(ctx, admin, Draft{Username: "other", Email: same}); !fault.Is(err, fault.Invalid) {
				t.Errorf("Create with the address %q: got %v, want invalid", same, err)
			}
			if _, err := s.Update(ctx, admin, u.ID, Change{Email: patch.Set(same)}); !fault.Is(err, fault.Invalid) {
				t.Errorf("Update to the address %q: got %v, want invalid", same, err)
			}
		}
		// A person whose address was stored before this rule is not locked out.
		err := c.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			u.Email = "Bob <b@x.io>"
			return updateUser(ctx, tx, u)
		})
		errtest.Must(t, err)
		if err := s.Recover(ctx, admin, u.ID, "a new password"); err != nil {
			t.Errorf("Recover of a person with an old address: %v", err)
		}
		if _, err := s.SetRoles(ctx, admin, u.ID, RolesChange{Roles: []string{RoleViewer}}); err != nil {
			t.Errorf("SetRoles of a person with an old address: %v", err)
		}
	})
}

// TestEveryOffenceOfAPerson: a refusal names every member that is wrong.
func TestEveryOffenceOfAPerson(t *testing.T) {
	s, _ := people(t, dbtest.Open(t, dbtest.SQLite))
	ctx, admin := context.Background(), as(scope.DefaultTenant, RolePlatformAdmin)
	u := mustCreate(t, s, admin, draft("alice"))
	long := strings.Repeat("x", 129)
	_, made := s.Create(ctx, admin, Draft{Username: " ", Email: "nobody", Password: "short", Roles: []string{"viewer", long, long + "y"}})
	_, changed := s.Update(ctx, admin, u.ID, Change{Username: patch.Set(" "), Email: patch.Set("nobody"), Password: patch.Set("short"), Roles: patch.Set([]string{"viewer", long, long + "y"})})
	for what, err := range map[string]error{"create": made, "update": changed} {
		var at []string
		if f, ok := errors.AsType[*fault.Error](err); ok {
			for _, d := range f.Details {
				at = append(at, d.Pointer)
			}
		}
		if fmt.Sprint(at) != "[/username /email /roles/1 /roles/2 /password]" {
			t.Errorf("%s names %v, want all wrong members: %v", what, at, err)
		}
	}
}

// TestFirst: of several replicas that start at once, one creates the first administrator.
func TestFirst(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		s, _ := people(t, c)
		admin := as(scope.DefaultTenant, RolePlatformAdmin)
		ids := make(chan string, 16)
		for i := range 16 {
			ids <- fmt.Sprintf("first%d", i)
		}
		s.NewID = func() string { return <-ids }
		s.Now = func() time.Time { return time.Unix(1e9, 0).UTC() }
		results := make(chan bool)
		for range 8 {
			go func() {
				made, err := s.CreateFirst(ctx, admin, Draft{Username: "admin", Email: "admin@localhost", Password: "x", Roles: []string{RolePlatformAdmin}})
				if err != nil {
					t.Errorf("First: %v", err)
				}
				results <- made
			}()
		}
		n := 0
		for range 8 {
			if <-results {
				n++
			}
		}
		if p, _ := s.List(ctx, admin, Filter{Limit: 10}); n != 1 || p.Total != 1 {
			t.Errorf("%d replicas create the first administrator and %d people exist, want 1", n, p.Total)
		}
	})
}

package user

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestPermissionTable compares the permissions of each role with a second copy of the table.
func TestPermissionTable(t *testing.T) {
	all := func(verbs ...string) (out []string) {
		for _, a := range Areas() {
			for _, v := range verbs {
				out = append(out, a+":"+v)
			}
		}
		return out
	}
	without := func(list []string, areas ...string) (out []string) {
		for _, p := range list {
			if !slices.Contains(areas, p) {
				out = append(out, p)
			}
		}
		return out
	}
	want := map[string][]string{
		RoleAdmin:           append(all("read", "write"), "resources:edit"),
		RolePolicyAuthor:    {"editor:read", "editor:write", "policies:read", "policies:write", "simulator:read", "simulator:write", "resources:read"},
		RoleResourceManager: {"resources:read", "resources:write", "resources:edit"},
		RoleOperator: {
			"bouncers:read", "bouncers:write", "pip:read", "pip:write", "agents:read", "agents:write",
			"webhooks:read", "webhooks:write", "notifications:read", "notifications:write",
		},
		RoleAuditor: append(all("read"), "audit:write"),
		RoleViewer:  without(all("read"), "audit:read", "users:read", "telemetry:read"),
		"astronaut": nil,
	}
	for role, list := range want {
		ps, platform := Permissions("acme", []string{role})
		if platform || ps.All {
			t.Errorf("role %s works across tenants", role)
		}
		slices.Sort(list)
		if got := Strings(ps); !slices.Equal(got, list) && len(got)+len(list) > 0 {
			t.Errorf("Permissions of %s = %v, want %v", role, got, list)
		}
	}
	if ps, platform := Permissions(scope.DefaultTenant, []string{RolePlatformAdmin}); !platform || !ps.All {
		t.Error("Permissions of platform_admin in the default tenant are not those of the platform")
	}
	if ps, platform := Permissions("acme", []string{RolePlatformAdmin}); platform || ps.All || len(ps.List) > 0 {
		t.Errorf("Permissions of platform_admin in another tenant = %v, want none", ps)
	}
}

// TestFoldRole: names of built-in roles are folded, others are trimmed.
func TestFoldRole(t *testing.T) {
	for in, want := range map[string]string{
		"Resource Manager": RoleResourceManager, "resource-manager": RoleResourceManager, " ADMIN ": RoleAdmin,
		"Platform Admin": RolePlatformAdmin, "policy_author": RolePolicyAuthor, "Team Lead": "Team Lead", "": "",
	} {
		if got := FoldRole(in); got != want {
			t.Errorf("FoldRole(%q) = %q, want %q", in, got, want)
		}
	}
	if got := FoldRoles([]string{"Admin", "admin", " ", "x", " x"}); !slices.Equal(got, []string{"admin", "", "x"}) {
		t.Errorf("FoldRoles = %v", got)
	}
}

// TestParseScopes: a scope is an area and a verb that exist.
func TestParseScopes(t *testing.T) {
	got, err := ParseScopes("/scopes", []string{"policies:write", "policies:write", "decisions:read"})
	if err != nil || len(got) != 2 {
		t.Errorf("ParseScopes = %v, %v", got, err)
	}
	for _, bad := range []string{"*", "policies", "policies:", "policies:admin", "Policies:read", ":read", "policies:read ", "policies:read:write", "secrets:read", "*:read"} {
		if _, err := ParseScopes("/scopes", []string{"policies:read", bad}); !fault.Is(err, fault.Invalid) {
			t.Errorf("ParseScopes of %q: got %v, want invalid", bad, err)
		}
	}
}

// permissions draws a random set of permissions, as a credential has them.
func permissions(t *rapid.T, label string) scope.Permissions {
	var every []string
	for _, a := range Areas() {
		every = append(every, a+":read", a+":write")
	}
	list := rapid.SliceOfDistinct(rapid.SampledFrom(every), func(s string) string { return s }).Draw(t, label)
	out := make([]scope.Permission, len(list))
	for i, p := range list {
		out[i] = scope.Permission(p)
	}
	return scope.Permissions{List: Imply(out)}
}

// TestNobodyGrantsMore: for all sets, MayGrant only accepts permissions that the actor has, both
// sides have what Intersect returns, and write implies read.
func TestNobodyGrantsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holder, wanted := permissions(t, "holder"), permissions(t, "wanted")
		sc := scope.Scope{Permissions: holder}
		subset := true
		for _, p := range wanted.List {
			subset = subset && holder.Has(p)
		}
		if ok := MayGrant(sc, wanted) == nil; ok != subset {
			t.Fatalf("MayGrant = %v, want %v", ok, subset)
		}
		both := Intersect(holder, wanted)
		for _, a := range Areas() {
			for _, v := range []string{"read", "write"} {
				p := scope.Permission(a + ":" + v)
				if both.Has(p) != (holder.Has(p) && wanted.Has(p)) {
					t.Fatalf("Intersect has %s: %v, want %v", p, both.Has(p), !both.Has(p))
				}
			}
			if w := scope.Permission(a + ":write"); wanted.Has(w) && !wanted.Has(scope.Permission(a+":read")) {
				t.Fatalf("%s does not imply read", w)
			}
		}
		if wanted.Has("resources:write") != wanted.Has(ResourcesEdit) {
			t.Fatal("resources:write and resources:edit do not imply each other")
		}
		if MayGrant(sc, scope.Permissions{All: true}) == nil {
			t.Fatal("MayGrant of all permissions succeeds, want an error")
		}
	})
}

// TestFoldNames: spellings of one name fold to the same text, and names with invisible characters are
// refused.
func TestFoldNames(t *testing.T) {
	same := [][]string{
		{"alice", "ALICE", " Alice ", "ａｌｉｃｅ", "Ａlice"},
		{"josé@example.com", "JOSÉ@EXAMPLE.COM", "José@example.com"},
		{"straße", "STRASSE", "Straße"},
	}
	seen := map[string]bool{}
	for _, group := range same {
		for _, name := range group {
			if Fold(name) != Fold(group[0]) {
				t.Errorf("Fold(%q) = %q, want %q", name, Fold(name), Fold(group[0]))
			}
			if Fold(Fold(name)) != Fold(name) {
				t.Errorf("Fold(Fold(%q)) = %q, want %q", name, Fold(Fold(name)), Fold(name))
			}
		}
		if seen[Fold(group[0])] {
			t.Errorf("Fold(%q) = %q as another name", group[0], Fold(group[0]))
		}
		seen[Fold(group[0])] = true
	}
	for _, bad := range []string{"", "  ", "a\x00b", "a\nb", "a\u200bb", "a\u202eb", "\xff", "a\ufffdb"} {
		if checkName("/username", bad) == nil {
			t.Errorf("checkName(%q) accepts it, want an error", bad)
		}
	}
}

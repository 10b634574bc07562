package user

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The roles that carry permissions. Other names may be
// stored: they are attributes for controls and carry none.
const (
	RolePlatformAdmin   = "platform_admin"
	RoleAdmin           = "admin"
	RolePolicyAuthor    = "policy_author"
	RoleResourceManager = "resource_manager"
	RoleOperator        = "operator"
	RoleAuditor         = "auditor"
	RoleViewer          = "viewer"
)

// ResourcesEdit is the permission to edit enrichment. `resources:write` implies it.
const ResourcesEdit scope.Permission = "resources:edit"

const (
	read  = ":read"
	write = ":write"
)

// Areas lists the areas of scopes, in the order in which they are documented.
func Areas() []string {
	return []string{
		"policies", "resources", "decisions", "audit", "users", "agents", "bouncers", "pip", "webhooks",
		"notifications", "integrations", "telemetry", "simulator", "tenants", "billing", "dashboard", "editor",
	}
}

// FoldRole returns the stored name of a role: display names such as `Resource Manager` become
// resource_manager. Other names are only trimmed.
func FoldRole(name string) string {
	name = strings.TrimSpace(name)
	folded := strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return '_'
		}
		return r
	}, strings.ToLower(name))
	if _, ok := grants(folded); ok {
		return folded
	}
	return name
}

// FoldRoles folds each name and removes duplicates. It keeps the order.
func FoldRoles(names []string) []string {
	out := make([]string, 0, len(names))
	for _, n := range names {
		if n = FoldRole(n); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// MappedRoles returns, sorted, all roles that a mapping of groups can assign, including those that
// everybody gets.
func MappedRoles(everybody []string, byGroup map[string][]string) []string {
	all := slices.Clone(everybody)
	for _, names := range byGroup {
		all = append(all, names...)
	}
	all = FoldRoles(all)
	slices.Sort(all)
	return all
}

// checkRole checks the name of a role.
func checkRole(pointer, role string) error {
	if len(role) > 128 {
		return fault.Invalidf(pointer, "must be at most 128 characters long")
	}
	return checkName(pointer, role)
}

// CheckRoles checks names of roles, and reports all offences at one pointer.
func CheckRoles(pointer string, roles []string) error {
	errs := make([]error, len(roles))
	for i, r := range roles {
		errs[i] = checkRole(pointer, r)
	}
	return fault.Join(errs...)
}

// grants returns the permissions of a role. ok is false for a name that grants nothing.
func grants(role string) ([]scope.Permission, bool) {
	switch role {
	case RolePlatformAdmin, RoleAdmin:
		return permissionsExcept(write, nil), true
	case RolePolicyAuthor:
		return []scope.Permission{"policies:write", "simulator:write", "editor:write", "resources:read"}, true
	case RoleResourceManager:
		return []scope.Permission{"resources:write"}, true
	case RoleOperator:
		return []scope.Permission{"bouncers:write", "pip:write", "agents:write", "webhooks:write", "notifications:write"}, true
	case RoleAuditor:
		return append(permissionsExcept(read, nil), "audit:write"), true
	case RoleViewer:
		return permissionsExcept(read, []string{"audit", "users", "telemetry"}), true
	}
	return nil, false
}

// permissionsExcept returns one permission for every area that is not in without.
func permissionsExcept(verb string, without []string) []scope.Permission {
	out := make([]scope.Permission, 0, 2*len(Areas()))
	for _, a := range Areas() {
		if !slices.Contains(without, a) {
			out = append(out, scope.Permission(a+verb))
		}
	}
	return out
}

// Permissions returns what a person with these folded roles may do in tenant t, and whether the
// person is a platform administrator. The role platform_admin has an effect only in the tenant
// `default`.
func Permissions(t scope.TenantID, roles []string) (ps scope.Permissions, platform bool) {
	var list []scope.Permission
	for _, r := range roles {
		if r == RolePlatformAdmin {
			if t != scope.DefaultTenant {
				continue
			}
			platform = true
		}
		more, _ := grants(r)
		list = append(list, more...)
	}
	return scope.Permissions{All: platform, List: Imply(list)}, platform
}

// Imply adds implied permissions (`write` implies `read`, `resources:write` implies
// `resources:edit`), removes duplicates, and sorts.
func Imply(list []scope.Permission) []scope.Permission {
	out := make([]scope.Permission, 0, 2*len(list)+1)
	for _, p := range list {
		out = append(out, p)
		if area, ok := strings.CutSuffix(string(p), write); ok {
			out = append(out, scope.Permission(area+read))
		}
		if p == "resources:write" {
			out = append(out, ResourcesEdit)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ParseScopes parses scope strings as permissions, in the same order. A string that is not a scope
// is Invalid, at pointer/<index>. `resources:edit` is not a scope: it follows from
// `resources:write`.
func ParseScopes(pointer string, scopes []string) ([]scope.Permission, error) {
	out := make([]scope.Permission, 0, len(scopes))
	var bad []fault.Detail
	for i, s := range scopes {
		area, verb, _ := strings.Cut(s, ":")
		known := slices.Contains(Areas(), area) && (verb == "read" || verb == "write")
		if !known {
			bad = append(bad, fault.Detail{Pointer: pointer + "/" + strconv.Itoa(i), Message: "is not a scope: write <area>:<read|write>"})
			continue
		}
		out = append(out, scope.Permission(s))
	}
	if err := fault.CheckValues("a requested scope is unknown", bad); err != nil {
		return nil, err
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// MayGrant returns Forbidden if the actor lacks one of the permissions.
func MayGrant(sc scope.Scope, ps scope.Permissions) error {
	if ps.All && !sc.Permissions.All {
		return fault.New(fault.Forbidden, "permission_denied", "you cannot grant permissions that you do not hold")
	}
	for _, p := range Imply(ps.List) {
		if !sc.Permissions.Has(p) {
			return fault.Newf(fault.Forbidden, "permission_denied", "you cannot grant permissions that you do not hold: %q", p)
		}
	}
	return nil
}

// Intersect returns the permissions that both have.
func Intersect(a, b scope.Permissions) scope.Permissions {
	if a.All {
		return b
	}
	if b.All {
		return a
	}
	out := scope.Permissions{List: make([]scope.Permission, 0, len(b.List))}
	for _, p := range a.List {
		if b.Has(p) {
			out.List = append(out.List, p)
		}
	}
	return out
}

// Scopes lists the permissions as scopes of a key or token. It omits `resources:edit`, which is not
// a scope.
func Scopes(ps scope.Permissions) []string {
	return slices.DeleteFunc(Strings(ps), func(s string) bool { return s == string(ResourcesEdit) })
}

// Strings lists the permissions as text, for the current-user view; for All, every scope.
func Strings(ps scope.Permissions) []string {
	list := ps.List
	if ps.All {
		list = Imply(permissionsExcept(write, nil))
	}
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = string(p)
	}
	return out
}

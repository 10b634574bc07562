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

// ResourcesEdit is the permission to edit enrichment; whoever holds
// `resources:write` holds it.
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

// FoldRole gives a role its stored name: display names such as
// `Resource Manager` become resource_manager, anything else is kept as written
// but for the space around it.
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

// FoldRoles folds each name and drops repetitions. It keeps the order.
func FoldRoles(names []string) []string {
	out := make([]string, 0, len(names))
	for _, n := range names {
		if n = FoldRole(n); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// MappedRoles returns, sorted, all roles that a mapping of groups to roles can assign, with the
// roles that everybody gets.
func MappedRoles(everybody []string, byGroup map[string][]string) []string {
	all := slices.Clone(everybody)
	for _, names := range byGroup {
		all = append(all, names...)
	}
	all = FoldRoles(all)
	slices.Sort(all)
	return all
}

// checkRole refuses an invalid name of a role.
func checkRole(pointer, role string) error {
	if len(role) > 128 {
		return fault.Invalidf(pointer, "must be at most 128 characters long")
	}
	return checkName(pointer, role)
}

// CheckRoles refuses names that no role can have, all at one pointer.
func CheckRoles(pointer string, roles []string) error {
	errs := make([]error, len(roles))
	for i, r := range roles {
		errs[i] = checkRole(pointer, r)
	}
	return fault.Join(errs...)
}

// grants is the table of roles: what one role allows. The second
// answer is false for names that carry nothing.
func grants(role string) ([]scope.Permission, bool) {
	switch role {
	case RolePlatformAdmin, RoleAdmin:
		return each(write, nil), true
	case RolePolicyAuthor:
		return []scope.Permission{"policies:write", "simulator:write", "editor:write", "resources:read"}, true
	case RoleResourceManager:
		return []scope.Permission{"resources:write"}, true
	case RoleOperator:
		return []scope.Permission{"bouncers:write", "pip:write", "agents:write", "webhooks:write", "notifications:write"}, true
	case RoleAuditor:
		return append(each(read, nil), "audit:write"), true
	case RoleViewer:
		return each(read, []string{"audit", "users", "telemetry"}), true
	}
	return nil, false
}

// each is one permission for every area that is not left out.
func each(verb string, without []string) []scope.Permission {
	out := make([]scope.Permission, 0, 2*len(Areas()))
	for _, a := range Areas() {
		if !slices.Contains(without, a) {
			out = append(out, scope.Permission(a+verb))
		}
	}
	return out
}

// Permissions is what a person with these (folded) roles may do in tenant t,
// and whether that person is a platform administrator. The role platform_admin
// means something in the tenant `default` alone.
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

// Imply adds what permissions imply (`write` implies `read`, `resources:write`
// implies `resources:edit`), and sorts them, each once.
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

// ParseScopes reads scope strings as permissions, each at its place in the
// body. A name that is no scope is refused with 422 at pointer/<index>. The
// permission `resources:edit` is none: whoever has `resources:write` holds it.
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

// MayGrant refuses with 403 to hand on permissions that the actor does not hold.
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

// Intersect is what both sides allow.
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

// Scopes is the list as a key or token holds it: without `resources:edit`, which
// is no scope and follows from `resources:write`.
func Scopes(ps scope.Permissions) []string {
	return slices.DeleteFunc(Strings(ps), func(s string) bool { return s == string(ResourcesEdit) })
}

// Strings is the list as text, for the current-user view; for All every scope
// there is.
func Strings(ps scope.Permissions) []string {
	list := ps.List
	if ps.All {
		list = Imply(each(write, nil))
	}
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = string(p)
	}
	return out
}

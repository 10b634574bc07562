// Package scim lets a tenant's directory provision people and groups by SCIM 2.0 (RFC 7643,
// RFC 7644).
//
//	directory ─token─▶ /scim/v2/Users, /Groups ─▶ document: names, filters, PATCH (pure)
//	                                            ─▶ Service: people, groups, roles by the role_map
//	                                            ─▶ user.Service: record, sessions, audit, events
//
// A directory gives people the roles that the tenant's role_map names, and no others. It can
// remove the access of everybody whom it manages. It cannot change other people who may do more
// than these roles allow.
package scim

import (
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// The bounds on what a tenant may have.
const (
	maxRules  = 500
	maxRoles  = 64
	maxGroups = 2000
	maxTokens = 20
	// MaxPage is the largest number of resources in an answer. defaultPage is the number if a
	// request has no count.
	MaxPage     = 200
	defaultPage = 100
)

// Settings say which roles a directory may give, and whether it links people to the identity
// provider.
type Settings struct {
	RoleMap      map[string][]string `json:"role_map" doc:"The gatehouse roles for each group name, and for each value of the attribute roles. Names are compared ignoring case; names without an entry give none. With an empty map, you manage roles in gatehouse."`
	DefaultRoles []string            `json:"default_roles" nullable:"false" doc:"Roles of everybody whom the directory adds."`
	MatchSubject bool                `json:"match_subject" doc:"Whether externalId is the subject (claim sub) of people at the tenant's identity provider. A first sign-in there then finds the person whom the directory added."`
}

// Directory is the settings, with what the directory's administrator needs to know.
type Directory struct {
	Settings
	BaseURL   string     `json:"base_url" doc:"The address to enter at the directory."`
	People    int64      `json:"people" doc:"Number of people whom the directory manages."`
	Groups    int64      `json:"groups" doc:"Number of groups."`
	Version   int64      `json:"version" doc:"Version of the settings; 0 before the first change."`
	UpdatedAt *time.Time `json:"updated_at" doc:"When the settings last changed; null: never."`
}

// Change is a change of the settings: absent members stay, and null restores the default.
type Change struct {
	RoleMap      patch.Field[map[string][]string] `json:"role_map,omitzero" doc:"The gatehouse roles for each group name, and for each value of the attribute roles. The caller must hold what they allow."`
	DefaultRoles patch.Field[[]string]            `json:"default_roles,omitzero" maxItems:"64" doc:"Roles of everybody whom the directory adds. The caller must hold what they allow."`
	MatchSubject patch.Field[bool]                `json:"match_subject,omitzero" doc:"Whether externalId is the subject of people at the tenant's identity provider; by default not."`
}

// apply returns the settings after a change, in their stored form.
func (s Settings) apply(c Change) Settings {
	c.RoleMap.Apply(&s.RoleMap)
	c.DefaultRoles.Apply(&s.DefaultRoles)
	c.MatchSubject.Apply(&s.MatchSubject)
	return s.normal()
}

func (s Settings) normal() Settings {
	roles := make(map[string][]string, len(s.RoleMap))
	for name, list := range s.RoleMap {
		roles[strings.TrimSpace(name)] = user.FoldRoles(list)
	}
	s.RoleMap, s.DefaultRoles = roles, user.FoldRoles(s.DefaultRoles)
	return s
}

// roles returns all roles that the settings can assign.
func (s Settings) roles() []string {
	return user.MappedRoles(s.DefaultRoles, s.RoleMap)
}

// check validates the settings. It returns all errors at once, as Invalid faults.
func (s Settings) check() error {
	var bad []error
	wrong := func(format string, args ...any) { bad = append(bad, fault.Invalidf("/role_map", format, args...)) }
	if len(s.RoleMap) > maxRules {
		wrong("must have at most %d entries", maxRules)
	}
	folded := map[string]bool{}
	for name := range s.RoleMap {
		if name == "" || len(name) > 256 {
			wrong("must name groups of 1 to 256 characters")
		}
		if folded[user.Fold(name)] {
			wrong("names a group twice, ignoring case")
		}
		folded[user.Fold(name)] = true
	}
	if roles := s.roles(); len(roles) > maxRoles {
		wrong("must give at most %d different roles", maxRoles)
	} else if err := user.CheckRoles("/role_map", roles); err != nil {
		bad = append(bad, err)
	}
	return fault.Join(bad...)
}

// manages reports whether the directory decides people's roles.
func (s Settings) manages() bool { return len(s.RoleMap) > 0 }

// rolesOf returns the roles of a person, by the names of the person's groups and the values of the
// attribute roles.
func (s Settings) rolesOf(names []string) []string {
	byName := make(map[string][]string, len(s.RoleMap))
	for name, roles := range s.RoleMap {
		byName[user.Fold(name)] = roles
	}
	out := slices.Clone(s.DefaultRoles)
	for _, name := range names {
		out = append(out, byName[user.Fold(name)]...)
	}
	out = user.FoldRoles(out)
	slices.Sort(out)
	return out
}

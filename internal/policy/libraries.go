package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// User is a policy that uses a library, directly or through another library.
type User struct {
	ID          int64     `json:"id" doc:"The policy."`
	Name        string    `json:"name" doc:"Its name."`
	Kind        string    `json:"kind" enum:"control,library" doc:"Kind."`
	Status      string    `json:"status" enum:"draft,active,inactive" doc:"Its status."`
	Environment scope.Env `json:"environment" enum:"sandbox,production" doc:"Its environment."`
	Version     int64     `json:"version" doc:"Its version."`
}

// Usage lists the users of a library.
type Usage struct {
	PolicyID int64  `json:"policy_id" doc:"The library."`
	Package  string `json:"package" doc:"Its package." example:"lib.text"`
	Users    []User `json:"users" doc:"The policies that use it, in either environment, sorted by id."`
	Total    int    `json:"total" doc:"How many there are."`
}

var bothEnvironments = []scope.Env{scope.Sandbox, scope.Production}

// librarySet holds the active libraries of a tenant.
type librarySet []activeLibrary

func (l activeLibrary) library() lang.Library {
	return lang.Library{ID: l.ID, Name: l.Name, Version: l.Version, Source: l.Source}
}

// forEnv returns the libraries that modules of an environment may import: its own, and in sandbox
// also those of production whose package has no library in sandbox. The users of a library can
// therefore still import it after its promotion.
func (s librarySet) forEnv(env scope.Env) []lang.Library {
	var out []lang.Library
	own := map[string]bool{}
	for _, l := range s {
		if l.Environment == env {
			own[l.library().Package()] = true
			out = append(out, l.library())
		}
	}
	for _, l := range s {
		if env == scope.Sandbox && l.Environment == scope.Production && !own[l.library().Package()] {
			out = append(out, l.library())
		}
	}
	return out
}

// with returns the set with p in its current state: an active library is on it, any other policy
// is not.
func (s librarySet) with(p Policy) librarySet {
	out := slices.DeleteFunc(slices.Clone(s), func(l activeLibrary) bool { return l.ID == p.ID })
	if p.Kind == KindLibrary && p.live() {
		out = append(out, activeLibrary{ID: p.ID, Name: p.Name, Version: p.Version, Environment: p.Environment, Source: p.RegoCode})
	}
	return out
}

// LibrariesFor returns the libraries that the controls of an environment may import.
func LibrariesFor(ctx context.Context, tx *db.Tx, env scope.Env) ([]lang.Library, error) {
	all, err := activeLibraries(ctx, tx)
	return librarySet(all).forEnv(env), err
}

// Libraries is LibrariesFor in a transaction of its own.
func (s *Service) Libraries(ctx context.Context, sc scope.Scope, env scope.Env) ([]lang.Library, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) ([]lang.Library, error) { return LibrariesFor(ctx, tx, env) })
}

// Dependents lists the users of a library. Fault: Conflict "not_a_library" for a control.
func (s *Service) Dependents(ctx context.Context, sc scope.Scope, id int64) (Usage, error) {
	var u Usage
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		p, err := loadLive(ctx, tx, sc, id)
		if err == nil && p.Kind != KindLibrary {
			err = fault.New(fault.Conflict, "not_a_library", "the policy is a control; only libraries have users")
		}
		if err != nil {
			return err
		}
		u = Usage{PolicyID: id, Package: library(p).Package()}
		u.Users, err = affectedBy(ctx, tx, sc, p)
		u.Total = len(u.Users)
		return err
	})
	return u, err
}

func library(p Policy) lang.Library {
	return lang.Library{ID: p.ID, Name: p.Name, Version: p.Version, Source: p.RegoCode}
}

// affectedBy returns the policies that use a library, in the environments that the scope sees.
func affectedBy(ctx context.Context, tx *db.Tx, sc scope.Scope, p Policy) ([]User, error) {
	out := []User{}
	all, err := activeLibraries(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, env := range bothEnvironments {
		libs := librarySet(all).forEnv(env)
		if !sc.Sees(env) || !slices.ContainsFunc(libs, func(l lang.Library) bool { return l.ID == p.ID }) {
			continue
		}
		users, err := dependentsOf(ctx, tx, env, libs, p.ID, library(p).Package())
		if err != nil {
			return nil, err
		}
		for _, u := range users {
			out = append(out, User{u.ID, u.Name, u.Kind, u.Status, u.Environment, u.Version})
		}
	}
	slices.SortFunc(out, func(a, b User) int { return int(a.ID - b.ID) })
	return out, nil
}

// dependentsOf returns the policies of an environment that use one of the packages, except the library
// itself and deleted policies.
func dependentsOf(ctx context.Context, tx *db.Tx, env scope.Env, libs []lang.Library, id int64, packages ...string) ([]Policy, error) {
	list, err := importers(ctx, tx, env)
	return slices.DeleteFunc(list, func(p Policy) bool {
		return p.ID == id || !slices.ContainsFunc(lang.Reach(p.RegoCode, libs), func(l lang.Library) bool { return slices.Contains(packages, l.Package()) })
	}), err
}

// checkUses checks a change that is already written, in the transaction of the change: a control
// must compile with the libraries of its environment, and all users of a library must still
// compile. superseded are the replaced libraries, as they were before.
func (c *Compiler) checkUses(ctx context.Context, tx *db.Tx, sc scope.Scope, old, next Policy, superseded ...Policy) error {
	all, err := activeLibraries(ctx, tx)
	if err != nil {
		return err
	}
	after := librarySet(all)
	if next.DeletedAt == nil && strings.Contains(next.RegoCode, lang.LibraryRoot) {
		if err := c.checkCompilesWith(ctx, sc, next, after.forEnv(next.Environment)); err != nil {
			return err
		}
	}
	if next.Kind != KindLibrary {
		return nil
	}
	pkg, was := library(next).Package(), library(old).Package()
	for _, l := range after {
		if next.live() && l.ID != next.ID && l.Environment == next.Environment && l.library().Package() == pkg {
			return fault.Newf(fault.Conflict, "library_exists", "policy %d (%s) is the active library %s of %s", l.ID, l.Name, pkg, l.Environment)
		}
	}
	before := after.with(Policy{ID: next.ID})
	if old.live() {
		before = before.with(old)
	}
	for _, p := range superseded {
		before = before.with(p)
	}
	if err := checkPackageName(pkg, next, after); err != nil {
		return err
	}
	var h breakage
	for _, env := range bothEnvironments {
		had, has := before.forEnv(env), after.forEnv(env)
		if slices.Equal(had, has) {
			continue
		}
		users, err := dependentsOf(ctx, tx, env, had, next.ID, pkg, was)
		if err == nil {
			err = c.findHarm(ctx, sc, &h, users, had, has)
		}
		if err != nil {
			return err
		}
	}
	return h.err()
}

// checkPackageName returns Conflict "library_exists" if a library's package would contain another
// library's package, or be inside it, in an environment that sees both: a name would be ambiguous.
func checkPackageName(pkg string, next Policy, after librarySet) error {
	for _, env := range bothEnvironments {
		for _, l := range after.forEnv(env) {
			other := l.Package()
			if next.live() && other != pkg && (strings.HasPrefix(other, pkg+".") || strings.HasPrefix(pkg, other+".")) && (env == next.Environment || next.Environment == scope.Production) {
				return fault.Newf(fault.Conflict, "library_exists", "%s has a library %s, and neither package may contain the other", env, other)
			}
		}
	}
	return nil
}

// breakage lists the users of a library that a change of it would break: lost are those with an import
// that would be missing, broken those that would not compile for another reason.
type breakage struct{ lost, broken []fault.Detail }

// err returns Conflict "library_in_use" if an import would be missing, Invalid
// "library_breaks_users" if a user would not compile for another reason, and nil without harm.
func (h *breakage) err() error {
	var f *fault.Error
	switch {
	case len(h.lost) > 0:
		f = fault.Newf(fault.Conflict, "library_in_use", "%d policies use the library, such as %s", len(h.lost), h.lost[0].Message)
		f.Details = h.lost
	case len(h.broken) > 0:
		f = fault.New(fault.Invalid, "library_breaks_users", "policies that use the library would no longer compile: "+h.broken[0].Message)
		f.Details = h.broken
	default:
		return nil
	}
	return f
}

// findHarm adds to h the users that compiled with the libraries had and do not compile with has.
func (c *Compiler) findHarm(ctx context.Context, sc scope.Scope, h *breakage, users []Policy, had, has []lang.Library) error {
	lost := func(l lang.Library) bool {
		return !slices.ContainsFunc(has, func(o lang.Library) bool { return o.Package() == l.Package() })
	}
	for _, u := range users {
		name := fmt.Sprintf("%s %d (%s) in %s", u.Kind, u.ID, u.Name, u.Environment)
		if !sc.Sees(u.Environment) {
			name = fmt.Sprintf("a %s in %s", u.Kind, u.Environment)
		}
		if slices.ContainsFunc(lang.Reach(u.RegoCode, had), lost) {
			h.lost = append(h.lost, fault.Detail{Message: name})
			continue
		}
		v, err := c.Evaluator.Check(ctx, sc.Tenant, u.RegoCode, has...)
		if err != nil {
			return err
		}
		for _, is := range v.Errors {
			h.broken = append(h.broken, fault.Detail{
				Pointer: "/rego_code", Message: fmt.Sprintf("%s, line %d, column %d: %s", name, is.Line, is.Column, is.Message), Line: is.Line, Column: is.Column,
			})
		}
	}
	return nil
}

// checkLibrary returns a fault with all members that are set but that a library cannot have.
func (p Policy) checkLibrary() error {
	if p.Kind != KindLibrary {
		return nil
	}
	var errs []error
	for _, member := range []struct {
		pointer string
		has     bool
	}{
		{"/resource_id", p.ResourceID != nil}, {"/bouncer_id", p.BouncerID != nil}, {"/test_cases", len(p.TestCases) > 0}, {"/actions", len(p.Actions) > 0},
	} {
		if member.has {
			errs = append(errs, fault.Invalidf(member.pointer, "a library decides nothing: it has no resource, bouncer, test cases or actions"))
		}
	}
	return fault.Join(errs...)
}

// checkLibrariesInProduction returns Conflict "libraries_not_promoted" if a policy uses libraries
// that exist only in sandbox.
func (s *Service) checkLibrariesInProduction(ctx context.Context, sc scope.Scope, p Policy) error {
	all, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (librarySet, error) { return activeLibraries(ctx, tx) })
	if err != nil {
		return err
	}
	f := fault.New(fault.Conflict, "libraries_not_promoted", "first promote the libraries that the policy uses")
	there := all.forEnv(scope.Production)
	for _, l := range lang.Reach(p.RegoCode, all.forEnv(scope.Sandbox)) {
		if !slices.ContainsFunc(there, func(o lang.Library) bool { return o.Package() == l.Package() }) {
			f.Details = append(f.Details, fault.Detail{Pointer: "/rego_code", Message: fmt.Sprintf("library %s, policy %d (%s), is not in production", l.Package(), l.ID, l.Name)})
		}
	}
	if len(f.Details) > 0 {
		return f
	}
	return nil
}

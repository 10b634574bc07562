package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	textLib  = "package lib.text\n\nsame(a, b) if lower(a) == lower(b)\n"
	usesText = "package p\n\nimport data.lib.text\n\nallow if text.same(input.user.id, \"alice\")\n"
)

// library creates an active library.
func (h *fixture) library(t *testing.T, env scope.Env, source string) Policy {
	t.Helper()
	return h.create(t, Draft{Kind: KindLibrary, Name: "library", RegoCode: source, Environment: env, Status: Active})
}

// wantCode fails unless err is a fault with a kind and a code whose text contains all names.
func wantCode(t *testing.T, err error, kind fault.Kind, code string, names ...string) {
	t.Helper()
	wantFault(t, err, kind, "")
	f, _ := errors.AsType[*fault.Error](err)
	text := f.Message
	for _, d := range f.Details {
		text += "\n" + d.Message
	}
	for _, n := range names {
		if !strings.Contains(text, n) {
			t.Errorf("the fault says %s, want it to name %q", text, n)
		}
	}
	if f.Code != code {
		t.Errorf("the fault has the code %s, want %s", f.Code, code)
	}
}

// TestLibraries: controls and libraries import active libraries, and no change of a library may break or
// strand its users.
func TestLibraries(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		h, ctx := newFixture(t, c), context.Background()
		_, err := h.Create(ctx, sc(""), Draft{Name: "early", RegoCode: usesText})
		wantCode(t, err, fault.Invalid, "invalid_policy", "no active library lib.text")
		lib := h.library(t, scope.Sandbox, textLib)
		chain := h.library(t, scope.Sandbox, "package lib.who\n\nimport data.lib.text\n\nnamed(n) if text.same(input.user.id, n)\n")
		user := h.create(t, Draft{Name: "direct", RegoCode: usesText, TestCases: passing, Status: Active})
		far := h.create(t, Draft{Name: "far", RegoCode: "package q\n\nimport data.lib.who\n\nallow if who.named(\"alice\")\n"})
		h.create(t, Draft{Name: "another", RegoCode: good})

		page, err := h.List(ctx, sc(""), Filter{Kind: KindLibrary, Limit: 10})
		if err != nil || page.Total != 2 || page.Policies[0].Kind != KindLibrary {
			t.Errorf("List of libraries = %+v, %v, want 2", page, err)
		}
		u, err := h.Dependents(ctx, sc(""), lib.ID)
		if err != nil || u.Package != "lib.text" || u.Total != 3 || u.Users[0].ID != chain.ID || u.Users[1].ID != user.ID || u.Users[2].ID != far.ID {
			t.Errorf("Users of the library = %+v, %v, want %d, %d and %d", u, err, chain.ID, user.ID, far.ID)
		}
		_, err = h.Dependents(ctx, sc(""), user.ID)
		wantCode(t, err, fault.Conflict, "not_a_library")
		_, err = h.Test(ctx, sc(""), lib.ID, passing)
		wantCode(t, err, fault.Conflict, "is_library")
		if report, err := h.Test(ctx, sc(""), user.ID, nil); err != nil || report.Summary.Failed != 0 {
			t.Errorf("Test of a control with a library = %+v, %v, want no failure", report, err)
		}
		h.in(t, func(ctx context.Context, tx *db.Tx) error {
			if cs, err := ControlsFor(ctx, tx, scope.Sandbox); err != nil || len(cs) != 1 {
				t.Errorf("ControlsFor = %v, %v, want only the control", cs, err)
			}
			return nil
		})

		// A change that would remove an import of a user, or break it, is refused and changes nothing.
		_, err = h.Delete(ctx, sc(""), lib.ID, false, 0)
		wantCode(t, err, fault.Conflict, "library_in_use", "direct", "far")
		_, err = h.Update(ctx, sc(""), lib.ID, Change{Status: new(Inactive)}, 0)
		wantCode(t, err, fault.Conflict, "library_in_use", "direct")
		_, err = h.Update(ctx, sc(""), lib.ID, Change{RegoCode: new(strings.Replace(textLib, "lib.text", "lib.words", 1))}, 0)
		wantCode(t, err, fault.Conflict, "library_in_use", "direct")
		_, err = h.Update(ctx, sc(""), lib.ID, Change{RegoCode: new("package lib.text\n\nsame(a) if a\n")}, 0)
		wantCode(t, err, fault.Invalid, "library_breaks_users", "(direct) in sandbox, line 5, column 10", "(far)")
		if now, err := h.Get(ctx, sc(""), lib.ID); err != nil || now.Version != 1 || now.RegoCode != textLib {
			t.Errorf("the library after refused changes = %+v, %v, want version 1", now, err)
		}
		before := h.revision(t, scope.Sandbox)
		next, err := h.Update(ctx, sc(""), lib.ID, Change{RegoCode: new(strings.ReplaceAll(textLib, "lower", "upper"))}, 0)
		if err != nil || next.Version != 2 || len(next.Affected) != 3 || h.revision(t, scope.Sandbox) == before {
			t.Errorf("Update of the library = %+v, %v, want version 2, 3 affected and a new revision", next, err)
		}
		if v, err := h.RestoreVersion(ctx, sc(""), lib.ID, 1, 0); err != nil || v.RegoCode != textLib {
			t.Errorf("RestoreVersion of the library = %+v, %v", v, err)
		}
	})
}

// TestLibrariesInUse: a library has no members of a control, a package of its own, and source that
// compiles.
func TestLibrariesInUse(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		h, ctx := newFixture(t, c), context.Background()
		for pointer, d := range map[string]Draft{
			"/resource_id": {ResourceID: new(h.resource(t, scope.Sandbox, "r").ID)}, "/bouncer_id": {BouncerID: new(int64(71))},
			"/test_cases": {TestCases: passing}, "/actions": {Actions: []actions.Action{{Type: "notification", DestinationRef: "channel:1", Trigger: "on_deny"}}},
		} {
			d.Kind, d.Name, d.RegoCode = KindLibrary, "l", textLib
			_, err := h.Create(ctx, sc(""), d)
			wantFault(t, err, fault.Invalid, pointer)
		}
		_, err := h.Create(ctx, sc(""), Draft{Name: "c", RegoCode: textLib})
		wantCode(t, err, fault.Invalid, "invalid_policy", "packages under lib are for libraries")
		_, err = h.Create(ctx, sc(""), Draft{Kind: KindLibrary, Name: "c", RegoCode: good})
		wantCode(t, err, fault.Invalid, "invalid_policy", "begins with lib.")
		_, err = h.Create(ctx, sc(""), Draft{Kind: KindLibrary, Name: "c", RegoCode: "package lib.x\n\ny := nope(1)\n"})
		wantCode(t, err, fault.Invalid, "invalid_policy", "undefined function nope")

		draft := h.create(t, Draft{Kind: KindLibrary, Name: "draft", RegoCode: textLib})
		_, err = h.Create(ctx, sc(""), Draft{Name: "c", RegoCode: usesText})
		wantCode(t, err, fault.Invalid, "invalid_policy", "no active library lib.text")
		h.library(t, scope.Sandbox, textLib)
		_, err = h.Update(ctx, sc(""), draft.ID, Change{Status: new(Active)}, 0)
		wantCode(t, err, fault.Conflict, "library_exists", "lib.text")
		if v, err := h.Validate(ctx, sc(""), usesText); err != nil || !v.Valid {
			t.Errorf("Validate in sandbox = %+v, %v, want valid", v, err)
		}
		if v, err := h.Validate(ctx, sc(scope.Production), usesText); err != nil || v.Valid {
			t.Errorf("Validate in production = %+v, %v, want invalid", v, err)
		}
	})
}

// TestPromoteWithLibraries: a control is promoted after its libraries. Sandbox uses those of production,
// unless it has its own.
func TestPromoteWithLibraries(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		h, ctx := newFixture(t, c), context.Background()
		lib := h.library(t, scope.Sandbox, textLib)
		user := h.create(t, Draft{Name: "user", RegoCode: usesText, TestCases: passing, Status: Active})
		stays := h.create(t, Draft{Name: "stays", RegoCode: usesText, Status: Active})
		_, err := h.Promote(ctx, sc(""), user.ID, Promotion{}, 0)
		wantCode(t, err, fault.Conflict, "libraries_not_promoted", "lib.text")
		errtest.Must(t, errtest.Of(h.Promote(ctx, sc(""), lib.ID, Promotion{}, 0)))
		errtest.Must(t, errtest.Of(h.Promote(ctx, sc(""), user.ID, Promotion{}, 0)))
		// Controls that stay in sandbox now use the library of production.
		u, err := h.Dependents(ctx, sc(""), lib.ID)
		if err != nil || u.Total != 2 || u.Users[1].ID != stays.ID {
			t.Errorf("Users of the promoted library = %+v, %v, want 2 with %d", u, err, stays.ID)
		}
		if _, err := h.Update(ctx, sc(""), stays.ID, Change{RegoCode: new(usesText + "\ndeny if text.same(\"a\", input.user.id)\n")}, 0); err != nil {
			t.Error(err)
		}
		sandbox := h.revision(t, scope.Sandbox)
		if _, err := h.Update(ctx, sc(""), lib.ID, Change{RegoCode: new(textLib + "\nmore := 1\n")}, 0); err != nil || h.revision(t, scope.Sandbox) == sandbox {
			t.Errorf("Update of a library of production: %v, and sandbox has revision %d as before", err, sandbox)
		}
		// A sandbox library with the same package takes precedence, and its users must compile with it.
		_, err = h.Create(ctx, sc(""), Draft{Kind: KindLibrary, Name: "trial", Status: Active, RegoCode: "package lib.text\n\nother := 1\n"})
		wantCode(t, err, fault.Invalid, "library_breaks_users", "stays")
		trial := h.library(t, scope.Sandbox, strings.ReplaceAll(textLib, "lower", "upper"))
		_, err = h.Promote(ctx, sc(""), trial.ID, Promotion{}, 0)
		wantCode(t, err, fault.Conflict, "library_exists")
		// A package must not be inside another one that sandbox can see.
		_, err = h.Create(ctx, sc(""), Draft{Kind: KindLibrary, Name: "deep", Status: Active, RegoCode: "package lib.text.deep\n\nx := 1\n"})
		wantCode(t, err, fault.Invalid, "invalid_policy", "there is already a library lib.text")
		h.library(t, scope.Sandbox, "package lib.deep.er\n\nx := 1\n")
		_, err = h.Create(ctx, sc(""), Draft{Kind: KindLibrary, Name: "deep", Status: Active, Environment: scope.Production, RegoCode: "package lib.deep\n\nx := 1\n"})
		wantCode(t, err, fault.Conflict, "library_exists", "lib.deep.er")
		// It can be deleted, because the users can import the one of production again.
		if _, err := h.Delete(ctx, sc(""), trial.ID, false, 0); err != nil {
			t.Error(err)
		}
		_, err = h.Delete(ctx, sc(""), lib.ID, true, 0)
		wantCode(t, err, fault.Conflict, "library_in_use", "user", "stays")
		for _, id := range []int64{user.ID, stays.ID, lib.ID} {
			if _, err := h.Delete(ctx, sc(""), id, false, 0); err != nil {
				t.Error(err)
			}
		}
		_, err = h.Restore(ctx, sc(""), user.ID)
		wantCode(t, err, fault.Invalid, "invalid_policy", "no active library lib.text")
		if _, err := h.Restore(ctx, sc(""), lib.ID); err != nil {
			t.Error(err)
		}
		if _, err := h.Restore(ctx, sc(""), user.ID); err != nil {
			t.Error(err)
		}
	})
}

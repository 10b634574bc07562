package tenant

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestSlug: the id of a tenant is a DNS label, whatever its name is.
func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"Acme Corp": "acme-corp", "  --A--B--  ": "a-b", "Café Zürich": "cafe-zurich", "株式会社": "tenant", "": "tenant",
		"A.B/C\\D%2e": "a-b-c-d-2e", "Ⅻ": "xii", strings.Repeat("x", 200): strings.Repeat("x", 55),
	} {
		if got := slug(name); got != want {
			t.Errorf("slug(%q) = %q, want %q", name, got, want)
		}
	}
	label := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		for _, n := range []int{1, 2, 99999} {
			if id := numbered(slug(name), n); !label.MatchString(string(id)) {
				t.Fatalf("id of %q = %q, want a DNS label", name, id)
			}
		}
	})
}

// TestSettings: settings are read, merged and checked by member.
func TestSettings(t *testing.T) {
	var s Settings
	errtest.Must(t, json.Unmarshal([]byte(`{"max_policies":10,"max_users":2.0,"four_eyes":true,"x-theme":{"dark":true}}`), &s))
	if n, ok := s.Limit(Policies); !ok || n != 10 {
		t.Errorf("max_policies = %d, %v", n, ok)
	}
	if _, ok := s.Limit(Bouncers); ok || !s.FourEyes() || s.check(nil) != nil {
		t.Errorf("settings = %v, want four eyes and no limit of bouncers", s)
	}
	after := s.merge(Settings{"max_policies": nil, "x": 1.0})
	if _, ok := after.Limit(Policies); ok || after["x"] != 1.0 || !after.FourEyes() || len(s) != 4 {
		t.Errorf("merge = %v, of %v", after, s)
	}
	for _, bad := range []string{
		`{"max_users":-1}`, `{"max_users":1.5}`, `{"max_users":"10"}`, `{"max_users":1e300}`, `{"four_eyes":"yes"}`, `{"max_policies":true,"max_bouncers":[]}`,
		`{"theme":1}`, `{"max_policys":1}`, `{"flags.resources.assist_classification":"yes"}`, `{"flags":{"resources":{"assist_classification":true}}}`, `{"replay":{"hour":1}}`,
	} {
		var s Settings
		errtest.Must(t, json.Unmarshal([]byte(bad), &s))
		if err := s.check(nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("check of %s: got %v, want invalid", bad, err)
		}
	}
}

// TestDueAlerts: a warning is due from 80 % of a limit, a critical alert from 100 %.
func TestDueAlerts(t *testing.T) {
	for _, c := range []struct {
		used, limit int64
		want        string
	}{{7, 10, ""}, {8, 10, "w"}, {9, 10, "w"}, {10, 10, "wc"}, {11, 10, "wc"}, {0, 0, ""}, {4, 5, "w"}, {1, 1, "wc"}, {3, 4, ""}} {
		due := dueAlerts(c.used, c.limit, true)
		got := ""
		if _, ok := due["warning"]; ok {
			got = "w"
		}
		if _, ok := due["critical"]; ok {
			got += "c"
		}
		if got != c.want {
			t.Errorf("alerts at %d of %d = %q, want %q", c.used, c.limit, got, c.want)
		}
	}
	if len(dueAlerts(100, 0, false)) != 0 {
		t.Error("an alert is due without a limit")
	}
}

// TestWhoMayChange: a tenant's administrator changes names and settings, but not limits, plan and status.
func TestWhoMayChange(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	own := scope.Scope{Tenant: "acme"}
	platform := scope.Scope{Tenant: scope.DefaultTenant, Platform: true}
	base := Tenant{ID: "acme", Name: "Acme", Status: Active, PlanType: "standard", Settings: Settings{"max_policies": 10.0}}
	for name, c := range map[string]struct {
		change   Change
		own, all bool
	}{
		"name":              {Change{Name: patch.Set("New")}, true, true},
		"empty name":        {Change{Name: patch.Set("  ")}, false, false},
		"four eyes":         {Change{Settings: patch.Set(Settings{"four_eyes": true})}, true, true},
		"same limit":        {Change{Settings: patch.Set(Settings{"max_policies": 10})}, true, true},
		"higher limit":      {Change{Settings: patch.Set(Settings{"max_policies": 11})}, false, true},
		"no limit":          {Change{Settings: patch.Set(Settings{"max_policies": nil})}, false, true},
		"first limit":       {Change{Settings: patch.Set(Settings{"max_users": 1})}, false, true},
		"bad limit":         {Change{Settings: patch.Set(Settings{"max_users": -1})}, false, false},
		"same plan":         {Change{PlanType: patch.Set("standard")}, true, true},
		"better plan":       {Change{PlanType: patch.Set("enterprise")}, false, true},
		"same status":       {Change{Status: patch.Set(Active)}, true, true},
		"suspend":           {Change{Status: patch.Set(Suspended)}, false, true},
		"delete by status":  {Change{Status: patch.Set(Deleted)}, false, false},
		"settings set null": {Change{Settings: patch.Clear[Settings]()}, true, true},
	} {
		if _, err := decideChange(own, base, c.change, now); (err == nil) != c.own {
			t.Errorf("%s by its own administrator: got %v, want allowed: %v", name, err, c.own)
		}
		if _, err := decideChange(platform, base, c.change, now); (err == nil) != c.all {
			t.Errorf("%s by a platform administrator: got %v, want allowed: %v", name, err, c.all)
		}
	}
	base.ID = scope.DefaultTenant
	if _, err := decideChange(platform, base, Change{Status: patch.Set(Suspended)}, now); !fault.Is(err, fault.Conflict) {
		t.Errorf("suspension of the default tenant: got %v, want a conflict", err)
	}
}

// TestEveryOffenceOfATenant: a refusal names every member that is wrong.
func TestEveryOffenceOfATenant(t *testing.T) {
	odd := Settings{"max_users": -1, FourEyesSetting: "yes"}
	_, made := (&Service{Now: time.Now}).draft(Draft{Name: " ", Domain: "not a domain", CustomDomain: "-", Settings: odd})
	_, changed := decideChange(own, Tenant{ID: dbtest.Second, Status: Active, PlanType: "pro"}, Change{
		Name: patch.Set(" "), Settings: patch.Set(Settings{FourEyesSetting: "yes", "max_users": 1}), PlanType: patch.Set("standard"), Status: patch.Set(Suspended),
	}, time.Now())
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"create": {made, "[/name /domain /custom_domain /settings/max_users /settings/four_eyes]"},
		"update": {changed, "[/name /settings/four_eyes /settings/max_users /plan_type /status]"},
	} {
		var at []string
		if f, ok := errors.AsType[*fault.Error](c.err); ok {
			for _, d := range f.Details {
				at = append(at, d.Pointer)
			}
		}
		if fmt.Sprint(at) != c.want {
			t.Errorf("%s names %v, want %s: %v", what, at, c.want, c.err)
		}
	}
}

// TestUnknownSettings: an unknown member is refused, unless it begins with x- or is already stored
// with the same value.
func TestUnknownSettings(t *testing.T) {
	stored := Settings{"theme": map[string]any{"dark": true}, "replay": map[string]any{"hours": 3.0, "depth": 1.0}}
	for name, c := range map[string]struct {
		change Settings
		want   string
	}{
		"as stored":      {stored, ""},
		"beside stored":  {Settings{"four_eyes": true}, ""},
		"free":           {Settings{"x-a": 1, "replay": map[string]any{"x-b": 1.0}}, ""},
		"removed":        {Settings{"theme": nil}, ""},
		"stored changed": {Settings{"theme": "light"}, "/settings/theme there is no such member here"},
		"a typo":         {Settings{"four_eye": true}, `/settings/four_eye there is no such member here; did you mean "four_eyes"?`},
		"a typo below":   {Settings{"replay": map[string]any{"hour": 3.0}}, `/settings/replay/hour there is no such member here; did you mean "hours"?`},
		"nested":         {Settings{"flags": map[string]any{"resources": map[string]any{"asist_classification": true}}}, `/settings/flags/resources/asist_classification there is no such member here; write it as one name, "flags.resources.assist_classification"`},
	} {
		err := stored.merge(c.change).check(stored)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got = strings.TrimPrefix(got, "validation_failed: "); got != c.want {
			t.Errorf("%s: check = %q, want %q", name, got, c.want)
		}
	}
}

package lang

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

func advice(t *testing.T, source string) []string {
	t.Helper()
	mod, issues := parse(sourceName, source)
	if issues != nil {
		t.Fatal(issues)
	}
	var out []string
	for _, is := range advise(mod) {
		if is.Severity != SeverityWarning || is.Line < 1 || is.Column < 1 {
			t.Errorf("%+v is no warning with a place", is)
		}
		out = append(out, is.Rule+": "+is.Message)
	}
	return out
}

func TestAdvise(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"a part that does not exist": {"allow if input.usr.id == \"ann\"", "gatehouse/unknown-input: input.usr is always undefined: a request has no such part; did you mean \"user\"?"},
		"another one":                {"allow if input.foo", "gatehouse/unknown-input: input.foo is always undefined"},
		"in brackets":                {"allow if input[\"actoin\"].name == \"read\"", "did you mean \"action\"?"},
		"behind an import":           {"allow if { x := input.resourse; x.id == 1 }", "did you mean \"resource\"?"},
		"a member almost documented": {"allow if input.user.role == \"admin\"", "gatehouse/unknown-input: input.user.role is not documented: input.user.roles is"},
		"a member, misspelt":         {"allow if input.action.metod == \"GET\"", "input.action.method is"},
		"allow as a text":            {"allow := \"yes\"", "gatehouse/rule-type: allow must be true or false"},
		"allow by default":           {"default allow := 0", "gatehouse/rule-type: allow must be true or false"},
		"allow in an else":           {"allow if input.user.id\nelse := \"no\" if input.action.name", "gatehouse/rule-type: allow must be true or false"},
		"allow as a set":             {"allow contains 1 if input.user.id", "gatehouse/rule-type: allow must be true or false"},
		"a reason that is none":      {"reason := [\"a\"]", "gatehouse/rule-type: reason must be a string"},
		"a deny that is none":        {"deny := 7", "gatehouse/rule-type: deny should be"},
		"a mask that is none":        {"mask := \"user.email\"", "gatehouse/rule-type: mask must be"},
		"a strategy by path":         {"mask[\"user.email\"] := \"hide\" if input.user.id", "gatehouse/mask-strategy: \"hide\" is not a mask strategy: use redact, hash, last4 or remove"},
		"a strategy of an object":    {"mask := {\"a\": \"hash\", \"b\": \"HASH\"}", "gatehouse/mask-strategy: \"HASH\" is not a mask strategy"},
		"a strategy that is no text": {"mask[\"a\"] := true", "gatehouse/mask-strategy: true is not a mask strategy"},
	} {
		t.Run(name, func(t *testing.T) {
			got := advice(t, "package a\n\n"+c.body+"\n")
			if len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	for _, body := range []string{
		"allow if input.user.id == \"ann\"", "allow if input.user.attributes.clearance > 2", "allow if input.user.plan == \"gold\"",
		"allow if input.context.device.managed", "default allow := false", "allow := input.user.ok", "deny contains \"x\" if input.user.id",
		"deny := set()", "mask contains \"a\" if input.user.id", "mask := {\"a\": s} if s := input.context.s", "mask := [\"a\"]", "mask := false",
		"reason := sprintf(\"%v\", [1])", "reason := $\"{input.user.id} may not\"", "allow if input.llm.model", "allow(x) := \"yes\" if x", "other := \"yes\"",
		"allow if input[part].id if some part in [\"user\"]",
	} {
		if strings.Count(body, " if ") > 1 {
			body = "allow if { some part in [\"user\"]; input[part].id }"
		}
		if got := advice(t, "package a\n\n"+body+"\n"); len(got) > 0 {
			t.Errorf("%s: %q", body, got)
		}
	}
}

// The shipped controls and the corpus are free of such mistakes.
func TestAdviseSaysNothingOfShippedControls(t *testing.T) {
	paths, err := filepath.Glob("../../template/catalogue/*/control.rego")
	if err != nil || len(paths) < 10 {
		t.Fatal(len(paths), err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		errtest.Must(t, err)
		mod, err := ast.ParseModule(path, string(data))
		errtest.Must(t, err)
		for _, is := range advise(mod) {
			t.Errorf("%s:%d: %s", path, is.Line, is.Message)
		}
	}
}

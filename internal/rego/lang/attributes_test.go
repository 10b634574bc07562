package lang

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

func attributeTypes(t *testing.T, source string) map[string]string {
	t.Helper()
	list, issues := Attributes(source)
	if issues != nil {
		t.Fatalf("issues: %v", issues)
	}
	out := map[string]string{}
	for _, a := range list {
		out[a.Key] = a.Type
	}
	return out
}

// The type of an attribute comes from how the control uses it.
func TestAttributeTypes(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want map[string]string
	}{
		"comparison with a string":  {`allow if input.user.role == "admin"`, map[string]string{"user.role": "string"}},
		"comparison with a number":  {`allow if input.amount <= 1000`, map[string]string{"amount": "number"}},
		"comparison with a boolean": {`allow if input.ok == true`, map[string]string{"ok": "boolean"}},
		"order without a literal":   {`allow if input.a < input.b`, map[string]string{"a": "number", "b": "number"}},
		"membership":                {`allow if "x" in input.roles`, map[string]string{"roles": "array"}},
		"member of literals":        {`allow if input.n in {1, 2}`, map[string]string{"n": "number"}},
		"some":                      {`allow if { some r in input.roles; r == "x" }`, map[string]string{"roles": "array"}},
		"every":                     {`allow if { every r in input.roles { r != "x" } }`, map[string]string{"roles": "array"}},
		"an element's member":       {`allow if { some u in input.users; u.id == 1 }`, map[string]string{"users": "array"}},
		"index":                     {`allow if input.list[0].id == 1`, map[string]string{"list": "array"}},
		"arithmetic":                {`allow if input.a + 1 > input.b * 2`, map[string]string{"a": "number", "b": "number"}},
		"built-in":                  {`allow if startswith(input.path, "/x")`, map[string]string{"path": "string"}},
		"count":                     {`allow if count(input.list) > 2`, map[string]string{"list": "array"}},
		"truth":                     {`allow if input.active`, map[string]string{"active": "boolean"}},
		"negation":                  {`allow if not input.blocked`, map[string]string{"blocked": "boolean"}},
		"nothing known":             {`allow if input.a == input.b`, map[string]string{"a": "string", "b": "string"}},
		"prefix":                    {"allow if input.user\nallow if input.user.id == 1", map[string]string{"user": "object", "user.id": "number"}},
		"local name":                {`allow if { u := input.user; u.age > 17 }`, map[string]string{"user": "object", "user.age": "number"}},
		"function":                  {"allow if adult(input.user)\nadult(u) if u.age >= 18", map[string]string{"user": "object", "user.age": "number"}},
		"in a comprehension":        {`allow if count([x | some x in input.xs; x > input.low]) > 0`, map[string]string{"xs": "array", "low": "number"}},
		"key":                       {`allow if data.resources[input.id].open`, map[string]string{"id": "string"}},
		"object.get":                {`allow if object.get(input.user, "level", 3) > 2`, map[string]string{"user": "object", "user.level": "number"}},
		"head":                      {`reason := sprintf("%v", [input.why])`, map[string]string{"why": "string"}},
		"else":                      {"allow := true if input.a == 1 else := false if input.b == \"x\"", map[string]string{"a": "number", "b": "string"}},
		"odd names":                 {`allow if input["a.b"]["c d"] == 1`, map[string]string{`["a.b"].c d`: "number"}},
	} {
		if got := attributeTypes(t, "package x\n\n"+c.body+"\n"); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestAttributeValues(t *testing.T) {
	list, issues := Attributes(`package x

import input.user as who

allow if {
	who.role == "admin"
	input.region in {"eu", "us"}
	"write" in input.scopes
	object.get(input.user, "tier", "free") == "gold"
}

allow if who.role == "owner"
`)
	if issues != nil {
		t.Fatal(issues)
	}
	got := map[string]Attribute{}
	for _, a := range list {
		got[a.Key] = a
	}
	if v := got["user.role"].Values; !reflect.DeepEqual(v, []any{"admin", "owner"}) {
		t.Errorf("user.role: %v", v)
	}
	if v := got["region"].Values; !reflect.DeepEqual(v, []any{"eu", "us"}) {
		t.Errorf("region: %v", v)
	}
	if a := got["scopes"]; a.Type != "array" || !reflect.DeepEqual(a.Values, []any{"write"}) {
		t.Errorf("scopes: %+v", a)
	}
	if a := got["user.tier"]; a.DefaultValue != "free" || a.Label != "User tier" {
		t.Errorf("user.tier: %+v", a)
	}
	if d := got["user.role"].Description; d != `Line 6: who.role == "admin"` {
		t.Errorf("description %q", d)
	}
}

// A source that does not parse has issues and no attributes; the order is the
// same each time.
func TestAttributesStable(t *testing.T) {
	if list, issues := Attributes("package x\n\nallow if {"); list != nil || len(issues) == 0 {
		t.Errorf("got %v, %v", list, issues)
	}
	paths, _ := filepath.Glob("../testdata/*.txtar")
	if len(paths) == 0 {
		t.Fatal("no corpus")
	}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		errtest.Must(t, err)
		for _, file := range strings.Split("\n"+string(text), "\n-- ")[1:] { // of a txtar archive
			name, source, _ := strings.Cut(file, " --\n")
			if !strings.HasSuffix(name, ".rego") {
				continue
			}
			first, _ := json.Marshal(must(Attributes(source)))
			for range 5 {
				if again, _ := json.Marshal(must(Attributes(source))); string(again) != string(first) {
					t.Fatalf("%s %s: the order changes", p, name)
				}
			}
		}
	}
}

func must(list []Attribute, _ []Issue) []Attribute { return list }

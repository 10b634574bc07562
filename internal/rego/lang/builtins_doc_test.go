package lang

import (
	stdflag "flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

var update = stdflag.Bool("update", false, "write the list of built-ins in docs/rego.md anew")

const (
	builtinsDoc   = "../../../docs/rego.md"
	builtinsStart = "<!-- built-ins: go test ./internal/rego/lang -run BuiltinsDoc -update -->\n"
	builtinsEnd   = "<!-- end of built-ins -->\n"
)

// TestBuiltinsDoc: docs/rego.md names every built-in of OPA: those that are
// offered, each of which compiles, and those that are not, with the reason.
func TestBuiltinsDoc(t *testing.T) {
	language := strings.Fields("eq equal neq lt lte gt gte assign internal.member_2 internal.member_3 internal.print internal.template_string print walk")
	native := []string{}
	for _, name := range Builtins() {
		if slices.Contains(language, name) {
			continue
		}
		args := make([]string, len(ast.BuiltinMap[name].Decl.FuncArgs().Args))
		for i := range args {
			args[i] = fmt.Sprintf("input.a%d", i)
		}
		_, issues := Compile(fmt.Sprintf("package x\n\nreason := %s(%s)\n", name, strings.Join(args, ", ")), nil)
		if issues != nil {
			t.Errorf("%s: %v", name, issues)
			continue
		}
		native = append(native, "`"+name+"`")
	}
	if len(native) < 80 {
		t.Errorf("only %d built-ins are native", len(native))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "**Offered** (%d, beside the operators): %s.\n\n", len(native), strings.Join(native, ", "))
	b.WriteString("**Not offered**, with the reason that validation gives:\n\n")
	var names []string
	for name := range forbidden() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "- `%s`: %s\n", name, forbidden()[name])
	}
	doc, err := os.ReadFile(builtinsDoc)
	errtest.Must(t, err)
	before, rest, ok1 := strings.Cut(string(doc), builtinsStart)
	_, after, ok2 := strings.Cut(rest, builtinsEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the list", builtinsDoc)
	}
	whole := before + builtinsStart + b.String() + builtinsEnd + after
	if *update {
		errtest.Must(t, os.WriteFile(builtinsDoc, []byte(whole), 0o600))
	} else if whole != string(doc) {
		t.Errorf("%s does not say which built-ins are offered: go test ./internal/rego/lang -run BuiltinsDoc -update", builtinsDoc)
	}
}

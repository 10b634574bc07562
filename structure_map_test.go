package gatehouse

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// lookup is a row of the table that says where to look.
var lookup = regexp.MustCompile("(?m)^\\| .*\\? \\| `([^`]+)` \\| `([^`]+)` \\|$")

// TestStructureMap checks that ARCHITECTURE.md names every package, and that what its table of
// questions names exists.
func TestStructureMap(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	errtest.Must(t, err)
	for _, l := range layers {
		for _, dir := range l.packages {
			name := strings.TrimPrefix(dir, "internal/")
			if !strings.Contains(string(text), "`"+name+"`") && !strings.Contains(string(text), "`"+name+"/`") &&
				!strings.Contains(string(text), "`"+strings.TrimPrefix(name, "enforce/")+"`") {
				t.Errorf("ARCHITECTURE.md does not say what %s is", dir)
			}
		}
	}
	functions := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				functions[path.Join(s.dir, s.name)+" "+strings.TrimPrefix(receiver(fn)+"."+fn.Name.Name, ".")] = true
			}
		}
	}
	rows := lookup.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 10 {
		t.Errorf("found only %d rows", len(rows))
	}
	for _, row := range rows {
		if !functions[row[1]+" "+row[2]] {
			t.Errorf("ARCHITECTURE.md: %s has no %s", row[1], row[2])
		}
	}
}

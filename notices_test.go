package gatehouse

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// The notices name every module that the binary is made of, in its version.
func TestThirdPartyNotices(t *testing.T) {
	text, err := os.ReadFile("THIRD_PARTY_NOTICES.md")
	errtest.Must(t, err)
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./cmd/gatehouse").Output()
	errtest.Must(t, err)
	named := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		named[strings.TrimSpace(strings.TrimPrefix(line, "## "))] = strings.HasPrefix(line, "## ")
	}
	count := 0
	for line := range strings.Lines(string(out)) {
		if module := strings.TrimSpace(line); module != "" {
			count++
			if !named[module] {
				t.Errorf("THIRD_PARTY_NOTICES.md does not name %s: run make notices", module)
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d packages are of other modules", count)
	}
}

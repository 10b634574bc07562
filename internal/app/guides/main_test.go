// Package guides_test runs the commands of the pages of docs against the whole program.
package guides_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

type body = apptest.Body

func TestMain(m *testing.M) { apptest.Main(m) }

// setUp starts each script: it stops at the first error, and has the administrator's password.
const setUp = "set -eu\nexport GATEHOUSE_ADMIN_PASSWORD='" + apptest.Password + "'\n"

// waitFor is a shell function that waits until an address answers.
const waitFor = "wait_for() { for i in $(seq 400); do curl -sf -o /dev/null \"$1\" && return; sleep 0.05; done; echo \"no $1\"; exit 1; }\n"

// commands returns the commands of a page for a server. replace has pairs of old and new texts.
func commands(t *testing.T, page string, s *apptest.Server, replace ...string) string {
	t.Helper()
	here := strings.NewReplacer(append(replace, "http://127.0.0.1:8080", s.URL)...)
	return setUp + strings.Join(apptest.Fences(here.Replace(apptest.Page(t, page))), "")
}

// run runs a script to its end and checks that its output has the texts.
func run(t *testing.T, dir, script string, texts ...string) string {
	t.Helper()
	out := apptest.RunShell(t, dir, script+"\necho guide-done\n")
	apptest.WantTexts(t, out, append(texts, "guide-done")...)
	return out
}

// wantNone checks that an output has none of the texts.
func wantNone(t *testing.T, output string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(output, text) {
			t.Errorf("the output has %q:\n%s", text, output)
		}
	}
}

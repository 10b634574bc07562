package template

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

var fence = regexp.MustCompile("(?ms)^```(\\w+) ?(\\w*)\n(.*?)^```$")

// TestGuide checks that each module in docs/controls.md is a control or a library without warnings,
// and each input beside it has the outcome that the page states.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/controls.md")
	errtest.Must(t, err)
	var ctl *rego.Control
	var libs []lang.Library
	modules, inputs := 0, 0
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		switch m[1] {
		case "rego":
			if modules++; (lang.Library{Source: m[3]}).Package() != "" {
				if issues := lang.CheckLibrary(m[3], libs...); len(issues) > 0 {
					t.Errorf("the library of the guide has issues: %v\n%s", issues, m[3])
				}
				libs = append(libs, lang.Library{ID: int64(modules), Version: 1, Source: m[3]})
			} else {
				ctl = compile(t, "guide", m[3], libs...)
			}
			wantNoWarning(t, m[3])
		case "json":
			in, err := value.Decode([]byte(m[3]), value.Limits{Depth: 64})
			if err != nil {
				t.Fatalf("%v\n%s", err, m[3])
			}
			inputs++
			if out := evaluate(t, ctl, in); out.Effect.String() != m[2] || out.Err != nil {
				t.Errorf("%s %q %v, want %s for %s by\n%s", out.Effect, out.Reason, out.Err, m[2], m[3], ctl.Source())
			}
		}
	}
	if modules < 6 || inputs < 12 {
		t.Errorf("the guide has %d modules and %d inputs, want at least 6 and 12", modules, inputs)
	}
	for _, id := range ids {
		if !strings.Contains(string(text), "`"+id+"`") {
			t.Errorf("the guide does not name %s", id)
		}
	}
}

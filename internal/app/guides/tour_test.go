package guides_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// tourExpectations are the texts that each step of the tour must show.
var tourExpectations = [][]string{
	{`"ssn":"900-12-3456"`, `"Ada Quill"`, "only HR and staff may read payroll"},
	{`"Payroll access"`, `"total":1`},
	{`"valid":false`, `"line":3`},
	{`"version":2`, "only staff may read payroll today"},
	{`"decision":"DENY"`, `"effect":"MASK"`, `"effect":"ALLOW"`, `"valid":true`},
	{`"tests_failed"`, `"environment":"production"`, `"sandbox_copy_id":2`, `"Ada Quill"`, "only HR and staff may read payroll", `SHADOW_WOULD_DENY`},
	{`"decision":"PERMIT"`, `"allow":false`},
}

// tourSteps returns the blocks of the README that are marked as the tour.
func tourSteps(readme string) []string {
	var steps []string
	for _, part := range strings.Split(readme, "<!-- tour -->")[1:] {
		_, rest, _ := strings.Cut(part, "```bash\n")
		block, _, _ := strings.Cut(rest, "```")
		steps = append(steps, block)
	}
	return steps
}

// runSteps runs the steps in one shell and returns the output of each.
func runSteps(t *testing.T, dir string, steps []string) []string {
	t.Helper()
	const mark = "----- next step -----"
	return strings.Split(apptest.RunShell(t, dir, strings.Join(steps, "\necho; echo '"+mark+"'\n")), mark)
}

package guides_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// tourExpectations say what each step of the tour must show.
var tourExpectations = [][]string{
	{`"ssn":"900-12-3456"`, `"Ada Quill"`, "only HR and staff may read payroll"},
	{`"Payroll access"`, `"total":1`},
	{`"valid":false`, `"line":3`},
	{`"version":2`, "only staff may read payroll today"},
	{`"decision":"DENY"`, `"effect":"MASK"`, `"effect":"ALLOW"`, `"valid":true`},
	{`"tests_failed"`, `"environment":"production"`, `"sandbox_copy_id":2`, `"Ada Quill"`, "only HR and staff may read payroll", `SHADOW_WOULD_DENY`},
	{`"decision":"PERMIT"`, `"allow":false`},
}

// tourSteps are the blocks of the README that are marked as the tour.
func tourSteps(readme string) []string {
	var steps []string
	for _, part := range strings.Split(readme, "<!-- tour -->")[1:] {
		_, rest, _ := strings.Cut(part, "```bash\n")
		block, _, _ := strings.Cut(rest, "```")
		steps = append(steps, block)
	}
	return steps
}

// runTour pastes the steps into one shell and gives what each printed.
func runTour(t *testing.T, dir string, steps []string) []string {
	t.Helper()
	const mark = "----- next step -----"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-s")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(strings.Join(steps, "\necho; echo '"+mark+"'\n"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the tour ended: %v\n%s", err, out)
	}
	return strings.Split(string(out), mark)
}

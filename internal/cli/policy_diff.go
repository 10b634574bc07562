package cli

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/policycode"
)

// Diff compares files with an environment. If namesOnly is set, the text output has only the path
// of each control that differs, or its name if it has no path.
func Diff(ctx context.Context, o Options, req policycode.Request, namesOnly bool) error {
	var d policycode.Drift
	if err := o.ask(ctx, http.MethodPost, "/policies-as-code/drift", "", req, &d); err != nil {
		return o.writeRefused(err)
	}
	rep := Report{Value: d, Text: func(p *printer) { p.drift(d) }}
	if namesOnly {
		rep.Text = func(p *printer) { p.driftNames(d) }
	}
	for _, c := range d.Controls {
		rep.add(Case{Suite: "diff", Name: c.Name, File: c.Path, Line: 1, Failure: driftMeaning[c.State]}, "drift-"+c.State)
	}
	if err := o.write("diff", rep); err != nil {
		return err
	}
	return findings(d.InSync)
}

// driftMeaning explains the states of drift.
var driftMeaning = map[string]string{
	policycode.Added:          "is not in the service yet",
	policycode.Changed:        "differs from the service",
	policycode.ChangedOutside: "was changed in the service other than by a deployment",
	policycode.Missing:        "was deployed from code and is no longer in the repository",
}

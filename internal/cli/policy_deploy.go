package cli

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/policycode"
)

// Deploy deploys files to sandbox.
func Deploy(ctx context.Context, o Options, req policycode.Request) error {
	var d policycode.Deployment
	key := ""
	if !req.DryRun {
		key = "policy-deploy-" + o.NewID()
	}
	if err := o.ask(ctx, http.MethodPost, "/policies-as-code/deploy", key, req, &d); err != nil {
		return o.writeRefused(err)
	}
	rep := Report{Value: d, Text: func(p *printer) { p.deployment(d) }}
	for _, f := range d.Files {
		rep.Cases = append(rep.Cases, Case{Suite: "deploy", Name: f.Name, File: f.Path, Output: f.Result})
	}
	return o.write("deploy", rep)
}

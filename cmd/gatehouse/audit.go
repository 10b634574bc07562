package main

import (
	"context"
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/app"
)

// auditCommand checks the logs on the server's host.
type auditCommand struct {
	Verify auditVerifyCommand `cmd:"" help:"Verify the hash chains of a tenant's logs; exits with 1 at the first break."`
}

type auditVerifyCommand struct {
	app.Config
	Tenant string `default:"default" help:"Tenant whose logs are checked."`
}

// Run prints what was checked, and where a chain breaks.
func (c *auditVerifyCommand) Run(ctx context.Context) error {
	return app.VerifyAudit(ctx, c.Config, c.Tenant, os.Stdout)
}

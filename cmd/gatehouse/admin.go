package main

import (
	"context"
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/app"
)

// adminCommand has the commands that change the stores directly, on the server's host.
type adminCommand struct {
	ResetPassword resetPasswordCommand `cmd:"" help:"Give the administrator of a tenant a new password, and end all their sessions."`
	RotateMaskKey rotateMaskKeyCommand `cmd:"" help:"Give a tenant's masks a new key for hashing values."`
}

type resetPasswordCommand struct {
	app.Config
	Tenant             string `default:"default" help:"Tenant of the account."`
	Username           string `default:"admin" help:"Account to reset."`
	Password           string `env:"GATEHOUSE_NEW_PASSWORD" help:"The new password; absent: a random one is printed."`
	RemoveSecondFactor bool   `help:"Also remove the account's second factor: for a lost phone without recovery codes."`
}

// Run resets the password, and prints it if it was generated.
func (c *resetPasswordCommand) Run(ctx context.Context) error {
	return app.ResetPassword(ctx, c.Config, c.Tenant, c.Username, c.Password, c.RemoveSecondFactor, os.Stdout)
}

type rotateMaskKeyCommand struct {
	app.Config
	Tenant string `default:"default" help:"Tenant whose key is replaced."`
}

// Run replaces the key.
func (c *rotateMaskKeyCommand) Run(ctx context.Context) error {
	return app.RotateMaskKey(ctx, c.Config, c.Tenant, os.Stdout)
}

package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/bridge"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// ResetPassword sets a new password for an account and ends its sessions. It runs on the server's
// host, and may run while the server does. If password is empty, it generates and prints one. With
// dropFactor it also removes the account's second factor.
func ResetPassword(ctx context.Context, cfg Config, tenant, username, password string, dropFactor bool, out io.Writer) error {
	p, err := openParts(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = p.closers.close() }()
	if err := p.setUpPeople(ctx); err != nil {
		return err
	}
	generated, err := p.auth.ResetPassword(ctx, scope.TenantID(tenant), username, password, dropFactor)
	if err != nil {
		return err
	}
	if err := keepDevPassword(cfg, tenant, username, cmp.Or(generated, password)); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s of tenant %s has a new password; all its sessions have ended.\n", username, tenant)
	if dropFactor {
		fmt.Fprintln(out, "It has no second factor any more.")
	}
	if generated != "" {
		fmt.Fprintf(out, "The password is %s (it is not shown again)\n", generated)
	}
	return nil
}

// keepDevPassword updates the password file of `gatehouse dev`, if there is one, so that the next
// start prints the right password.
func keepDevPassword(cfg Config, tenant, username, password string) error {
	path := filepath.Join(cfg.DataDir, devPasswordFile)
	if _, err := os.Stat(path); err != nil || tenant != string(scope.DefaultTenant) || username != "admin" {
		return nil //nolint:nilerr // there is no password file
	}
	return os.WriteFile(path, []byte(password), 0o600)
}

// RotateMaskKey generates a new key for the hashed values of a tenant's masks. It may run while the
// server does; bouncers fetch the key within seconds.
func RotateMaskKey(ctx context.Context, cfg Config, tenant string, out io.Writer) error {
	p, err := openParts(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = p.closers.close() }()
	keys := bridge.MaskKeys{Box: p.box, Random: rand.Reader, Now: p.now}
	id, err := keys.Rotate(ctx, p.stores, auth.SystemScope(scope.TenantID(tenant), "admin rotate-mask-key", ""))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The masks of tenant %s now hash with key %s; new hashes do not match older ones.\n", tenant, id)
	return nil
}

// VerifyAudit checks the hash chains of a tenant's logs. It returns an error if a chain is broken.
func VerifyAudit(ctx context.Context, cfg Config, tenant string, out io.Writer) error {
	stores, err := openStores(ctx, cfg)
	if err != nil {
		return err
	}
	defer stores.Close()
	report, err := audit.NewReader(stores, clock).Verify(ctx, auth.SystemScope(scope.TenantID(tenant), "audit verify", ""))
	if err != nil {
		return err
	}
	return printReport(out, report)
}

// Migrate opens every tenant's store, which upgrades it to this version.
func Migrate(ctx context.Context, cfg Config, out io.Writer) error {
	stores, err := openStores(ctx, cfg)
	if err != nil {
		return err
	}
	defer stores.Close()
	tenants, err := stores.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, t := range tenants {
		if _, err := stores.Tenant(ctx, t); err != nil {
			return fmt.Errorf("tenant %s: %w", t, err)
		}
		fmt.Fprintf(out, "tenant %s is up to date\n", t)
	}
	return nil
}

// Backup copies the SQLite files of a data directory to a new directory. Each copy is consistent,
// even while a server runs. It copies the counts of missing decisions first, then decisions that
// are not in a store yet. A decision that is stored during the backup is in both copies; the log
// recognises it by its id.
func Backup(ctx context.Context, cfg Config, to string, out io.Writer) error {
	stores, err := openStores(ctx, cfg)
	if err != nil {
		return err
	}
	defer stores.Close()
	if cfg.DatabaseURL == "" {
		marks, err := spool.CopyMarks(filepath.Join(cfg.DataDir, missingFile), filepath.Join(to, missingFile))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "copied %d counts of decisions that are missing\n", marks)
		n, err := spool.Copy(filepath.Join(cfg.DataDir, "spool"), filepath.Join(to, "spool"))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "copied %d files of decisions that were not stored yet\n", n)
	}
	made, elsewhere, err := stores.Backup(ctx, to)
	for _, name := range made {
		fmt.Fprintf(out, "copied %s\n", name)
	}
	for _, id := range elsewhere {
		fmt.Fprintf(out, "tenant %s is NOT in the copy: its region is in PostgreSQL; back that up with pg_dump\n", id)
	}
	if errors.Is(err, db.ErrNotSQLite) {
		return errors.New("GATEHOUSE_DATABASE_URL names PostgreSQL: back it up with pg_dump, or by its point-in-time recovery, after copying the data directory's spool")
	}
	if err == nil {
		fmt.Fprintln(out, "The encryption key is not in the copy (NOTIFICATION_ENCRYPTION_KEY, or encryption.key of a demo): keep it separately; without it, encrypted data cannot be read.")
	}
	return err
}

// openParts opens the existing stores of a server, for a command that may run beside it.
func openParts(ctx context.Context, cfg Config) (*parts, error) {
	if err := requireData(cfg); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, devStateFile)); err == nil {
		cfg.Demo = true // so that data of `gatehouse dev`, which has no configured key, can be opened
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &parts{cfg: cfg, log: newLogger("warn", os.Stderr), now: clock}
	p.closers.log = p.log
	if err := p.openStores(ctx); err != nil {
		_ = p.closers.close()
		return nil, err
	}
	return p, nil
}

// requireData returns an error for a data directory without a store: a command in the wrong
// directory must not create one.
func requireData(cfg Config) error {
	if cfg.DatabaseURL != "" {
		return nil
	}
	_, err := os.Stat(filepath.Join(cfg.DataDir, "system.db"))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return err
	}
	return fmt.Errorf("there is no gatehouse data in %s: name its directory with --data-dir or GATEHOUSE_DATA_DIR, or its database with GATEHOUSE_DATABASE_URL", dir)
}

// openStores opens existing stores. It creates none.
func openStores(ctx context.Context, cfg Config) (*db.Cluster, error) {
	if err := requireData(cfg); err != nil {
		return nil, err
	}
	if err := checkURL("GATEHOUSE_DATABASE_URL", cfg.DatabaseURL, "postgres", "postgresql"); err != nil {
		return nil, err
	}
	where, err := cfg.stores()
	if err != nil {
		return nil, err
	}
	return db.Open(ctx, where)
}

// printReport prints the result of a check. It returns an error if a chain is broken.
func printReport(out io.Writer, report audit.Report) error {
	for _, c := range report.Chains {
		fmt.Fprintf(out, "%-24s %8d rows, head %.16s\n", c.Name, c.Checked, c.Head)
		for _, b := range c.Breaks {
			fmt.Fprintf(out, "  %s at row %d (%s): %s\n", b.Kind, b.Position, b.ID, b.Message)
		}
	}
	if !report.Valid {
		return fmt.Errorf("the audit was changed after it was written")
	}
	fmt.Fprintln(out, "every chain is intact")
	return nil
}

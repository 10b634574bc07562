package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// ErrNotHere says that a backup is the backend's own business: PostgreSQL has
// pg_dump and point-in-time recovery, which do it better than we could.
var ErrNotHere = errors.New("db: PostgreSQL is backed up with its own tools")

// Backup writes a consistent copy of every SQLite file into dir, which must be
// new or empty, laid out as a data directory. The server may go on meanwhile;
// each file is copied at one moment, tenants one after another and the system
// store last: it names what tenants hold, so nothing that it names is older there.
// A tenant that is made meanwhile is copied too.
func (c *Cluster) Backup(ctx context.Context, dir string) ([]string, error) {
	b, ok := c.backend.(*sqliteBackend)
	if !ok {
		return nil, ErrNotHere
	}
	if err := os.MkdirAll(filepath.Join(dir, "tenants"), 0o700); err != nil {
		return nil, fmt.Errorf("db: backup: %w", err)
	}
	var made []string
	copied := map[scope.TenantID]bool{}
	for {
		tenants, err := c.Tenants(ctx)
		if err != nil {
			return made, err
		}
		before := len(copied)
		for _, id := range tenants {
			if copied[id] {
				continue
			}
			copied[id] = true
			if made, err = b.backup(ctx, id, dir, made); err != nil {
				return made, err
			}
		}
		if len(copied) == before {
			return b.backup(ctx, "", dir, made)
		}
	}
}

// backup copies one store into dir and adds it to made.
func (b *sqliteBackend) backup(ctx context.Context, id scope.TenantID, dir string, made []string) ([]string, error) {
	from := b.path(id)
	rel, err := filepath.Rel(b.dir, from)
	if err != nil {
		return made, fmt.Errorf("db: backup: %w", err)
	}
	to := filepath.Join(dir, rel)
	if _, err := os.Stat(to); err == nil {
		return made, fmt.Errorf("db: backup: %s is there already", to)
	}
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return made, nil // a tenant whose store nobody has used yet
	}
	if err := b.copyTo(ctx, id, to); err != nil {
		return made, fmt.Errorf("db: backup of %s: %w", rel, err)
	}
	return append(made, rel), nil
}

// copyTo writes one file's content, as of now, into a new file.
func (b *sqliteBackend) copyTo(ctx context.Context, id scope.TenantID, to string) (err error) {
	conn, err := dialSQLite(ctx, b.dsn(id, "rw", false))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.close()) }()
	if _, err := conn.exec(ctx, "VACUUM INTO $1", []any{to}); err != nil {
		return err
	}
	f, err := os.Open(to)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Chmod(to, 0o600)
}

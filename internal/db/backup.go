package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// ErrNotHere says that the backend has its own backup tools: PostgreSQL has pg_dump and
// point-in-time recovery.
var ErrNotHere = errors.New("db: PostgreSQL is backed up with its own tools")

// Backup writes a consistent copy of every SQLite file to dir, which must be new or empty,
// with the layout of a data directory. The server may keep running: each file is copied at
// one moment, the tenants one after another and the system store last. The system store
// names what tenants contain, so nothing that it names is missing in an older copy. A
// tenant that is created meanwhile is copied too.
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
		return made, nil // a tenant whose store was never used
	}
	if err := b.copyTo(ctx, id, to); err != nil {
		return made, fmt.Errorf("db: backup of %s: %w", rel, err)
	}
	return append(made, rel), nil
}

// copyTo writes the current content of one file to a new file.
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

package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// ErrNotSQLite means that the store is in PostgreSQL, which has its own backup tools: pg_dump and
// point-in-time recovery.
var ErrNotSQLite = errors.New("db: PostgreSQL is backed up with its own tools")

// Backup copies every SQLite file to dir, which must be new or empty, with the layout of a data
// directory; files of regions go to regions/<region>. The server may keep running. Each copy is a
// snapshot. The tenants are copied one after another and the system store last, so the backup has
// the store of every tenant that the system store names. A tenant that is created during the
// backup is copied too. Backup returns the copied files, and the tenants that it skipped because
// their region is in PostgreSQL. If the deployment's own store is in PostgreSQL, it copies the
// files of regions and returns ErrNotSQLite.
func (c *Cluster) Backup(ctx context.Context, dir string) (made []string, skipped []scope.TenantID, err error) {
	copied := map[scope.TenantID]bool{}
	places := map[scope.TenantID]location{}
	for {
		tenants, err := c.Tenants(ctx)
		if err != nil {
			return made, skipped, err
		}
		before := len(copied)
		for _, id := range tenants {
			if copied[id] {
				continue
			}
			copied[id] = true
			at, err := c.locate(ctx, id)
			if fault.Is(err, fault.NotFound) {
				continue // purged during the backup
			}
			if err != nil {
				return made, skipped, err
			}
			places[id] = at
			from, ok := at.backend.(*sqliteBackend)
			if !ok {
				if at.backend != c.home {
					skipped = append(skipped, id)
				}
				continue
			}
			if made, err = from.backup(ctx, at.part, dir, made); err != nil {
				return made, skipped, err
			}
		}
		if len(copied) == before {
			made, err = c.backupSystem(ctx, dir, made, places)
			return made, skipped, err
		}
	}
}

// backupSystem copies the system store. places says where each tenant was when it was copied.
func (c *Cluster) backupSystem(ctx context.Context, dir string, made []string, places map[scope.TenantID]location) ([]string, error) {
	b, ok := c.home.(*sqliteBackend)
	if !ok {
		return made, ErrNotSQLite
	}
	made, err := b.backup(ctx, part{}, dir, made)
	if err != nil {
		return made, err
	}
	return made, c.checkPlaces(ctx, places)
}

// checkPlaces returns an error if a tenant has moved since it was copied: the copied system store
// may then name a store that the backup does not have.
func (c *Cluster) checkPlaces(ctx context.Context, places map[scope.TenantID]location) error {
	for id, was := range places {
		at, err := c.locate(ctx, id)
		switch {
		case fault.Is(err, fault.NotFound): // purged during the backup
		case err != nil:
			return err
		case at != was:
			return fmt.Errorf("db: the tenant %s moved to another region during the backup: repeat the backup", id)
		}
	}
	return nil
}

// backup copies one store into dir, and appends the file's path to made.
func (b *sqliteBackend) backup(ctx context.Context, p part, dir string, made []string) ([]string, error) {
	from := b.path(p)
	rel := filepath.Join(b.saved, filepath.Base(b.tenants), filepath.Base(from))
	if b.dir != "" {
		var err error
		if rel, err = filepath.Rel(b.dir, from); err != nil {
			return made, fmt.Errorf("db: backup: %w", err)
		}
	}
	to := filepath.Join(dir, rel)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return made, fmt.Errorf("db: backup: %w", err)
	}
	if _, err := os.Stat(to); err == nil {
		return made, fmt.Errorf("db: backup: %s exists already", to)
	}
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return made, nil // the tenant's store was never used
	}
	if err := b.copyTo(ctx, p, to); err != nil {
		return made, fmt.Errorf("db: backup of %s: %w", rel, err)
	}
	return append(made, rel), nil
}

// copyTo writes a snapshot of one store to a new file.
func (b *sqliteBackend) copyTo(ctx context.Context, p part, to string) (err error) {
	_, done, err := b.use(p)
	if err != nil {
		return err
	}
	defer done()
	conn, err := dialSQLite(ctx, b.dsn(p, "rw", false))
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

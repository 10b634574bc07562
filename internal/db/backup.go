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

// ErrNotHere says that the backend has its own backup tools: PostgreSQL has pg_dump and
// point-in-time recovery.
var ErrNotHere = errors.New("db: PostgreSQL is backed up with its own tools")

// Backup writes a consistent copy of every SQLite file to dir, which must be new or empty,
// with the layout of a data directory; files of regions go to regions/<region>. The server may
// keep running: each file is copied at one moment, the tenants one after another and the
// system store last. The system store names what tenants contain, so nothing that it names is
// missing in an older copy. A tenant that is created meanwhile is copied too. It returns the
// copied files, and the tenants whose region is in PostgreSQL, which are not copied. If the
// deployment's own store is in PostgreSQL, it copies the files of regions and returns
// ErrNotHere.
func (c *Cluster) Backup(ctx context.Context, dir string) (made []string, elsewhere []scope.TenantID, err error) {
	copied := map[scope.TenantID]bool{}
	places := map[scope.TenantID]location{}
	for {
		tenants, err := c.Tenants(ctx)
		if err != nil {
			return made, elsewhere, err
		}
		before := len(copied)
		for _, id := range tenants {
			if copied[id] {
				continue
			}
			copied[id] = true
			at, err := c.locate(ctx, id)
			if fault.Is(err, fault.NotFound) {
				continue // purged meanwhile
			}
			if err != nil {
				return made, elsewhere, err
			}
			places[id] = at
			from, ok := at.backend.(*sqliteBackend)
			if !ok {
				if at.backend != c.home {
					elsewhere = append(elsewhere, id)
				}
				continue
			}
			if made, err = from.backup(ctx, at.part, dir, made); err != nil {
				return made, elsewhere, err
			}
		}
		if len(copied) == before {
			made, err = c.backupSystem(ctx, dir, made, places)
			return made, elsewhere, err
		}
	}
}

// backupSystem copies the system store, after the tenants, which were in these places.
func (c *Cluster) backupSystem(ctx context.Context, dir string, made []string, places map[scope.TenantID]location) ([]string, error) {
	b, ok := c.home.(*sqliteBackend)
	if !ok {
		return made, ErrNotHere
	}
	made, err := b.backup(ctx, part{}, dir, made)
	if err != nil {
		return made, err
	}
	return made, c.stayed(ctx, places)
}

// stayed refuses a backup during which a tenant moved: its system store may lead to a store
// that the backup does not have.
func (c *Cluster) stayed(ctx context.Context, places map[scope.TenantID]location) error {
	for id, was := range places {
		at, err := c.locate(ctx, id)
		switch {
		case fault.Is(err, fault.NotFound): // purged meanwhile
		case err != nil:
			return err
		case at != was:
			return fmt.Errorf("db: the tenant %s moved to another region during the backup: make the backup again", id)
		}
	}
	return nil
}

// backup copies one store into dir and adds it to made.
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
		return made, nil // a tenant whose store was never used
	}
	if err := b.copyTo(ctx, p, to); err != nil {
		return made, fmt.Errorf("db: backup of %s: %w", rel, err)
	}
	return append(made, rel), nil
}

// copyTo writes the current content of one file to a new file.
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

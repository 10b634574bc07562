package db_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	fileRegion   = "us-west-2"
	serverRegion = "eu-west-1"
)

// regions returns the configuration of new stores: the deployment's own on the backend home, and a region
// on each backend.
func regions(t *testing.T, home string) db.Config {
	t.Helper()
	cfg := dbtest.Config(t, home)
	cfg.Regions = map[string]db.Region{fileRegion: {Dir: t.TempDir()}, serverRegion: {URL: dbtest.Config(t, dbtest.Postgres).URL}}
	return cfg
}

// stored returns a tenant's settings by name.
func stored(t *testing.T, d *db.DB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, row := range settings(t, d) {
		out[row.Name] = row.Value
	}
	return out
}

// store inserts or changes one setting.
func store(t *testing.T, d *db.DB, name, value string) {
	t.Helper()
	err := d.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), `INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
		return err
	})
	errtest.Must(t, err)
}

// place creates an empty tenant in a region.
func place(t *testing.T, c *db.Cluster, id scope.TenantID, region string) {
	t.Helper()
	err := c.System().Write(context.Background(), func(tx *db.Tx) error {
		known, err := c.Place(context.Background(), tx, id, region)
		if !known && err == nil {
			err = errors.New("unknown tenant")
		}
		return err
	})
	errtest.Must(t, err)
}

// TestRegionsHoldTheirTenants: a tenant's rows are in its region's store and nowhere else, regions
// may share a database, and a purge removes everything.
func TestRegionsHoldTheirTenants(t *testing.T) {
	ctx := context.Background()
	for _, home := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(home, func(t *testing.T) {
			cfg := regions(t, home)
			cfg.Regions["eu-north-1"] = cfg.Regions[serverRegion]
			c := dbtest.OpenConfig(t, cfg)
			if got := c.Regions(); !slices.Equal(got, []string{"eu-north-1", serverRegion, fileRegion}) {
				t.Fatalf("Regions = %v", got)
			}
			for _, region := range append(c.Regions(), "") {
				place(t, c, dbtest.Second, region)
				d := tenant(t, c, dbtest.Second)
				if got := stored(t, d); len(got) != 0 {
					t.Fatalf("settings in the new store of %q = %v, want none", region, got)
				}
				store(t, d, "region", region)
			}
			for _, region := range append(c.Regions(), "") {
				place(t, c, dbtest.Second, region)
				if got := stored(t, tenant(t, c, dbtest.Second)); got["region"] != region {
					t.Errorf("settings in the store of %q = %v, want its own", region, got)
				}
			}
			file := filepath.Join(cfg.Regions[fileRegion].Dir, fileRegion, string(dbtest.Second)+".db")
			if _, err := os.Stat(file); err != nil {
				t.Errorf("file of the tenant: %v", err)
			}
			for region, h := range c.RegionHealth(ctx) {
				if h.Status != "up" {
					t.Errorf("health of %s = %v, want up", region, h)
				}
			}
			errtest.Must(t, c.DropTenant(ctx, dbtest.Second))
			errtest.Must(t, c.CreateTenant(ctx, dbtest.Second))
			for _, region := range append(c.Regions(), "") {
				place(t, c, dbtest.Second, region)
				if got := stored(t, tenant(t, c, dbtest.Second)); len(got) != 0 {
					t.Errorf("settings in the store of %q after the purge = %v, want none", region, got)
				}
			}
		})
	}
}

// TestUnknownRegion: a tenant in a region that is not configured is not served from another store.
func TestUnknownRegion(t *testing.T) {
	cfg := regions(t, dbtest.SQLite)
	c := dbtest.OpenConfig(t, cfg)
	place(t, c, dbtest.Second, fileRegion)
	store(t, tenant(t, c, dbtest.Second), "a", "b")
	cfg.Regions = nil
	c = dbtest.OpenConfig(t, cfg)
	if _, err := c.Tenant(context.Background(), dbtest.Second); !fault.Is(err, fault.Unavailable) {
		t.Errorf("Tenant in a region that is not configured: got %v, want unavailable", err)
	}
}

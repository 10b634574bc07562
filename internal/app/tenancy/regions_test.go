package tenancy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

const (
	fileRegion   = "us-west-2"
	serverRegion = "eu-west-1"
)

// regionSetting returns the setting for a region in a directory and one in a new database.
func regionSetting(t testing.TB) (setting, dir string) {
	t.Helper()
	fulltest.Only(t)
	dir = t.TempDir()
	text, err := json.Marshal(body{fileRegion: dir, serverRegion: dbtest.Config(t, dbtest.Postgres).URL})
	errtest.Must(t, err)
	return "GATEHOUSE_REGIONS=" + string(text), dir
}

// fileOf returns the file of a tenant in the region with a directory.
func fileOf(dir string, c company) string { return filepath.Join(dir, fileRegion, c.id+".db") }

// TestTenantsLiveInTheirRegions checks that a new tenant's data is in its region and not in the
// deployment's own store, that other regions are refused, that a purge deletes the data there, and that
// health reports each store.
func TestTenantsLiveInTheirRegions(t *testing.T) {
	setting, dir := regionSetting(t)
	s := apptest.StartServer(t, dbtest.SQLite, setting)
	west, east := newCompany(t, s, body{"name": "West", "region": fileRegion}), newCompany(t, s, body{"name": "East", "region": serverRegion})
	for _, c := range []company{west, east} {
		apptest.Activate(t, s.Admin.With("X-Tenant-ID", c.id), "open", "production", openPolicy, nil)
		c.key.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ann"}, "resource": body{"type": "api", "path": "/x"}}).Want(200)
		if _, err := os.Stat(filepath.Join(s.Dir, "tenants", c.id+".db")); !os.IsNotExist(err) {
			t.Errorf("the deployment's own store has the tenant %s (%v), want it in its region", c.id, err)
		}
	}
	if _, err := os.Stat(fileOf(dir, west)); err != nil {
		t.Errorf("the region has no file of its tenant: %v", err)
	}
	if _, err := os.Stat(fileOf(dir, east)); !os.IsNotExist(err) {
		t.Errorf("the region has a file of the other region's tenant (%v), want none", err)
	}
	for _, draft := range []body{{"name": "North", "region": "eu-north-1"}, {"name": "Nowhere"}} {
		r := s.Admin.Do(t, "POST", "/tenants", draft).Want(422)
		if text := string(r.Body); !strings.Contains(text, "/region") || !strings.Contains(text, serverRegion+", "+fileRegion) {
			t.Errorf("POST /tenants in an unknown region = %s, want a list of the regions", text)
		}
	}
	for _, path := range []string{"/health", "/health/ready"} {
		var out struct {
			Components struct {
				Regions []struct{ Region, Status string }
			}
			Regions []struct{ Region, Status string }
		}
		s.Anonymous().Do(t, "GET", path, nil).Want(200).Into(&out)
		if got := append(out.Regions, out.Components.Regions...); len(got) != 2 || got[0].Region != serverRegion || got[0].Status != "up" || got[1].Region != fileRegion || got[1].Status != "up" {
			t.Errorf("GET %s has the regions %v, want both up", path, got)
		}
	}
	s.Kill()
	s.Start()
	for _, c := range []company{west, east} {
		if n := c.key.Do(t, "GET", "/policies", nil).Want(200).Get("total"); n != 1.0 {
			t.Errorf("after a restart, the tenant %s has %v controls, want 1", c.id, n)
		}
	}
	s.Admin.Do(t, "DELETE", west.path("?hard_delete=true"), nil).Want(200)
	if left, _ := filepath.Glob(fileOf(dir, west) + "*"); len(left) > 0 {
		t.Errorf("the purge left the files %v", left)
	}
	errtest.Must(t, os.RemoveAll(filepath.Join(dir, fileRegion)))
	var h struct {
		Status     string
		Components struct {
			Regions []struct{ Region, Status string }
		}
	}
	s.Anonymous().Do(t, "GET", "/health", nil).Want(200).Into(&h)
	if h.Status != "degraded" || len(h.Components.Regions) != 2 || h.Components.Regions[1].Status != "down" {
		t.Errorf("GET /health without the region's directory = %+v, want degraded with the region down", h)
	}
}

package tenancy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

const (
	fileRegion   = "us-west-2"
	serverRegion = "eu-west-1"
)

// regions is the setting for a region in a directory and one in a fresh database.
func regions(t testing.TB) (setting, dir string) {
	t.Helper()
	dir = t.TempDir()
	text, err := json.Marshal(body{fileRegion: dir, serverRegion: dbtest.Config(t, dbtest.Postgres).URL})
	if err != nil {
		t.Fatal(err)
	}
	return "GATEHOUSE_REGIONS=" + string(text), dir
}

// fileOf is the file of a tenant in the region with a directory.
func fileOf(dir string, c company) string { return filepath.Join(dir, fileRegion, c.id+".db") }

// TestTenantsLiveInTheirRegions: a new tenant's data is in its region and not in the
// deployment's own store; other regions are refused; what is purged is gone there too; and
// health knows each store.
func TestTenantsLiveInTheirRegions(t *testing.T) {
	setting, dir := regions(t)
	s := apptest.StartServer(t, dbtest.SQLite, setting)
	west, east := found(t, s, body{"name": "West", "region": fileRegion}), found(t, s, body{"name": "East", "region": serverRegion})
	for _, c := range []company{west, east} {
		apptest.Activate(t, s.Admin.With("X-Tenant-ID", c.id), "open", "production", "package p\n\nallow := true\n", nil)
		c.key.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ann"}, "resource": body{"type": "api", "path": "/x"}}).Want(200)
		if _, err := os.Stat(filepath.Join(s.Dir, "tenants", c.id+".db")); !os.IsNotExist(err) {
			t.Errorf("the deployment's own store has the tenant %s: %v", c.id, err)
		}
	}
	if _, err := os.Stat(fileOf(dir, west)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(fileOf(dir, east)); !os.IsNotExist(err) {
		t.Errorf("the tenant of the other region has a file: %v", err)
	}
	for _, draft := range []body{{"name": "North", "region": "eu-north-1"}, {"name": "Nowhere"}} {
		r := s.Admin.Do(t, "POST", "/tenants", draft).Want(422)
		if text := string(r.Body); !strings.Contains(text, "/region") || !strings.Contains(text, serverRegion+", "+fileRegion) {
			t.Errorf("the error does not say which regions there are: %s", text)
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
			t.Errorf("%s says %v", path, got)
		}
	}
	s.Kill()
	s.Start()
	for _, c := range []company{west, east} {
		if n := c.key.Do(t, "GET", "/policies", nil).Want(200).Get("total"); n != 1.0 {
			t.Errorf("after a restart %s has %v controls", c.id, n)
		}
	}
	s.Admin.Do(t, "DELETE", west.at("?hard_delete=true"), nil).Want(200)
	if left, _ := filepath.Glob(fileOf(dir, west) + "*"); len(left) > 0 {
		t.Errorf("the purge left %v", left)
	}
	if err := os.RemoveAll(filepath.Join(dir, fileRegion)); err != nil {
		t.Fatal(err)
	}
	var h struct {
		Status     string
		Components struct {
			Regions []struct{ Region, Status string }
		}
	}
	s.Anonymous().Do(t, "GET", "/health", nil).Want(200).Into(&h)
	if h.Status != "degraded" || len(h.Components.Regions) != 2 || h.Components.Regions[1].Status != "down" {
		t.Errorf("without the region's directory: %+v", h)
	}
}

package guides_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestBackupGuide runs the commands of docs/operations/backup.md: a new server can serve the copy, with
// its audit unbroken.
func TestBackupGuide(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	for _, name := range []string{"a", "b", "c"} {
		s.Admin.Do(t, "POST", "/resources", body{"name": name, "type": "api", "path": "/" + name}).Want(201)
	}
	dir := filepath.Join(t.TempDir(), "gatehouse")
	out := run(t, t.TempDir(), "export GATEHOUSE_DATA_DIR="+s.Dir+"\n"+commands(t, "operations/backup.md", s, "/backup/gatehouse", dir),
		"every chain is intact", "copied system.db", "The encryption key is not in the copy")
	// The system store comes last, so it has every key that a copied tenant needs.
	if tenants, system := strings.Index(out, "copied tenants"), strings.Index(out, "copied system.db"); tenants < 0 || system < tenants {
		t.Errorf("the output shows another order than tenants and then the system store:\n%s", out)
	}
	restored := apptest.StartServerIn(t, dir)
	if total := restored.Admin.Do(t, "GET", "/resources", nil).Want(200).Get("total"); total != 3.0 {
		t.Errorf("the restored server has %v resources, want 3", total)
	}
}

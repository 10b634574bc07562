package guides_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestBackupGuide pastes docs/operations/backup.md: a copy taken under load is
// a data directory that a new server serves, with its audit unbroken.
func TestBackupGuide(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	for _, name := range []string{"a", "b", "c"} {
		s.Admin.Do(t, "POST", "/resources", body{"name": name, "type": "api", "path": "/" + name}).Want(201)
	}
	text, err := os.ReadFile("../../../docs/operations/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "gatehouse")
	script := "set -eu\n"
	for _, block := range apptest.Fences(string(text)) {
		script += strings.ReplaceAll(block[1], "/backup/gatehouse", to)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-s")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(apptest.Binary(t))+":"+os.Getenv("PATH"), "GATEHOUSE_DATA_DIR="+s.Dir)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "every chain is intact") || !strings.Contains(string(out), "copied system.db") {
		t.Fatalf("%v\n%s", err, out)
	}
	// A key that is made while tenants are copied is in the system store or nowhere:
	// copied last, it never lacks what a tenant has.
	if tenant, system := strings.Index(string(out), "copied tenants"), strings.Index(string(out), "copied system.db"); tenant < 0 || system < tenant {
		t.Errorf("the system store is not copied last:\n%s", out)
	}
	if !strings.Contains(string(out), "The encryption key is not in the copy") {
		t.Errorf("nothing is said of the encryption key:\n%s", out)
	}
	restored := apptest.StartServerIn(t, to)
	if total := restored.Admin.Do(t, "GET", "/resources", nil).Want(200).Get("total"); total != 3.0 {
		t.Errorf("the restored server has %v resources, want 3", total)
	}
}

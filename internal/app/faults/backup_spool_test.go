package faults_test

import (
	"database/sql"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// TestBackupHasTheSpool: decisions that wait to be stored when a backup is taken
// are in it. A server that is started on it, and killed while it stores them,
// has each of them in its log once.
func TestBackupHasTheSpool(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	ask := func() string {
		t.Helper()
		id, _ := s.Admin.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ann"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/x"}}).Want(200).Get("decision_id").(string)
		return id
	}
	promised := []string{ask()}
	// Somebody else writes to the tenant's store: nothing can be stored.
	other, err := sql.Open("sqlite", "file:"+filepath.Join(s.Dir, "tenants", "default.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetMaxOpenConns(1)
	if _, err := other.Exec("PRAGMA busy_timeout = 10000"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		promised = append(promised, ask())
	}
	to := filepath.Join(t.TempDir(), "copy")
	cmd := exec.CommandContext(t.Context(), apptest.Binary(t), "backup", to)
	cmd.Env = append(cmd.Environ(), "GATEHOUSE_DATA_DIR="+s.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	restored := apptest.StartServerIn(t, to)
	for range 2 {
		restored.Kill()
		restored.Start()
	}
	apptest.Eventually(t, 30*time.Second, func() error { return accountedFor(t, restored.Admin, promised, 0) })
	if v := restored.Admin.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
		t.Error("the audit of the copy does not verify")
	}
}

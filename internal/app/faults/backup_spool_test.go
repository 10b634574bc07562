package faults_test

import (
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestBackupHasTheSpool checks that a backup has the decisions that wait to be stored, and that a
// server that starts on it and is killed while it stores them logs each once.
func TestBackupHasTheSpool(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	ask := func() string {
		t.Helper()
		id := s.Admin.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ann"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/x"}}).Want(200).Text("decision_id")
		return id
	}
	promised := []string{ask()}
	// Another writer blocks the tenant's store.
	other, err := sql.Open("sqlite", "file:"+filepath.Join(s.Dir, "tenants", "default.db"))
	errtest.Must(t, err)
	defer other.Close()
	other.SetMaxOpenConns(1)
	errtest.Must(t, errtest.Of(other.Exec("PRAGMA busy_timeout = 10000")))
	errtest.Must(t, errtest.Of(other.Exec("BEGIN IMMEDIATE")))
	for range 300 {
		promised = append(promised, ask())
	}
	to := filepath.Join(t.TempDir(), "copy")
	cmd := exec.CommandContext(t.Context(), apptest.Binary(t), "backup", to)
	cmd.Env = append(cmd.Environ(), "GATEHOUSE_DATA_DIR="+s.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	errtest.Must(t, errtest.Of(other.Exec("ROLLBACK")))
	s.Kill()
	restored := apptest.StartServerIn(t, to)
	for range 2 {
		restored.Kill()
		restored.Start()
	}
	apptest.Eventually(t, 30*time.Second, func() error { return accountedFor(t, restored.Admin, promised, 0) })
	if v := restored.Admin.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
		t.Error("the audit of the copy is not valid")
	}
}

// TestBackupHasTheMissing checks that a backup has the count of missing decisions before the log
// shows it, and that the server that starts on the copy logs it once, also if it is killed.
func TestBackupHasTheMissing(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_SPOOL_BYTES=16777216", "GATEHOUSE_AUDIT=best_effort")
	s.Admin.Do(t, "POST", "/tenants", body{"id": "acme", "name": "Acme"}).Want(201)
	a := s.Admin.With("X-Tenant-ID", "acme")
	apptest.Activate(t, a, "not closed", "production", notBelow("/closed"), nil)
	free := holdStore(t, s, "acme")
	var promised []string
	missing := func() int64 {
		_, _, audit := vitals(t, s)
		return audit.Missing
	}
	apptest.Eventually(t, 120*time.Second, func() error {
		status, ids := bulk(t, a, "/open/", 500)
		promised = append(promised, ids...)
		if n := missing(); status != 200 || n == 0 {
			return fmt.Errorf("the server answers %d after %d decisions with %d missing, want 200 and some missing", status, len(promised), n)
		}
		return nil
	})
	// The rest of the log may still take a small record and so the count. Fill it too.
	for full, tries := false, 0; !full; tries++ {
		before := missing()
		res := a.Do(t, "POST", "/decisions/evaluate?environment=production", body{"user": body{"id": "ann"}, "resource": body{"type": "api", "path": "/open/1"}}).Want(200)
		id := res.Text("decision_id")
		promised = append(promised, id)
		if full = missing() > before; tries > 10_000 {
			t.Fatal("the log does not get full")
		}
	}
	want := missing()
	to := filepath.Join(t.TempDir(), "copy")
	cmd := exec.CommandContext(t.Context(), apptest.Binary(t), "backup", to)
	cmd.Env = append(cmd.Environ(), "GATEHOUSE_DATA_DIR="+s.Dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "copied 1 counts of decisions that are missing") {
		t.Fatalf("backup (%v) does not copy the count:\n%s", err, out)
	}
	s.Kill()
	free()
	restored := apptest.StartServerIn(t, to)
	restored.Kill()
	restored.Start()
	there := restored.Admin.With("X-Tenant-ID", "acme")
	apptest.Eventually(t, 60*time.Second, func() error { return accountedFor(t, there, promised, want) })
	if v := there.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
		t.Error("the audit of the copy is not valid")
	}
}

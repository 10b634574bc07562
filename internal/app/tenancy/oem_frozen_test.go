package tenancy_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// TestFrozenProvisioning freezes a replica while it creates a tenant and holds locks of the
// database. A repetition at another replica must create the tenant. When the first replica
// continues, it must neither change the new tenant nor answer that there is none.
func TestFrozenProvisioning(t *testing.T) {
	fulltest.Only(t)
	frozen := apptest.StartServer(t, dbtest.Postgres)
	awake := frozen.Replica(t)
	_, vendor := newVendor(t, frozen, body{"name": "Widgets", "max_tenants": 1})
	vendor = vendor.With("Idempotency-Key", "order-1")
	other := vendorClient(awake, vendor.APIKey).With("Idempotency-Key", "order-1")
	request := body{
		"name": "Acme", "administrator": body{"email": "root@acme.example"},
		"bouncer": body{"name": "edge", "hostname": "edge.acme.example", "port": 8443, "environment": "production"},
	}
	type outcome struct {
		answer *apptest.Response
		err    error
	}
	late := make(chan outcome, 1)
	go func() {
		answer, err := vendor.Try("POST", "/tenants", request)
		late <- outcome{answer, err}
	}()
	waitForProvisioning(t, frozen)
	sendSignal(t, frozen, syscall.SIGSTOP)
	defer sendSignal(t, frozen, syscall.SIGCONT)
	made := other.Do(t, "POST", "/tenants", request).Want(201)
	sendSignal(t, frozen, syscall.SIGCONT)
	first := <-late
	if first.err != nil {
		t.Fatal(first.err)
	}
	var refusal struct{ Error string }
	if err := first.answer.Decode(&refusal); err != nil || first.answer.Status != 409 || refusal.Error != "request_in_progress" || first.answer.Header.Get("Retry-After") == "" {
		t.Errorf("the frozen replica answers %d %s, want 409 request_in_progress with Retry-After", first.answer.Status, first.answer.Body)
	}
	if again := vendor.Do(t, "POST", "/tenants", request).Want(201); string(again.Body) != string(made.Body) {
		t.Errorf("the repeated POST /tenants = %s, want %s", again.Body, made.Body)
	}
	if list := other.Do(t, "GET", "/tenants", nil).Want(200); list.Get("total") != 1.0 {
		t.Errorf("GET /tenants = %s, want one tenant", list.Body)
	}
	admin := awake.WithKey(made.Text("api_keys", "0", "key"))
	admin.Do(t, "GET", "/policies", nil).Want(200)
	id := made.Text("tenant", "id")
	if usage := other.Do(t, "GET", "/tenants/"+id+"/status", nil).Want(200); len(usage.Get("bouncers").([]any)) != 1 {
		t.Errorf("GET /tenants/%s/status = %s, want one bouncer", id, usage.Body)
	}
}

// waitForProvisioning waits until a server has started to create a tenant.
func waitForProvisioning(t *testing.T, s *apptest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DatabaseURL())
	errtest.Must(t, err)
	defer conn.Close(ctx)
	for begun := false; !begun; {
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM gatehouse.tenants WHERE attempt <> '')`).Scan(&begun)
		errtest.Must(t, err)
	}
}

// sendSignal sends a signal to a server that may have ended.
func sendSignal(t *testing.T, s *apptest.Server, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(s.Pid(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
}

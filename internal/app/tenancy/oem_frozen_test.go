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
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// TestFrozenProvisioning: a replica is frozen while it creates a tenant, and holds locks of the
// database. A repetition at another replica creates the tenant all the same. The first replica, once
// it goes on, neither touches the new tenant nor answers that there is none.
func TestFrozenProvisioning(t *testing.T) {
	fulltest.Only(t)
	frozen := apptest.StartServer(t, dbtest.Postgres)
	awake := frozen.Replica(t)
	_, vendor := registered(t, frozen, body{"name": "Widgets", "max_tenants": 1})
	vendor = vendor.With("Idempotency-Key", "order-1")
	other := oemOf(awake, vendor.APIKey).With("Idempotency-Key", "order-1")
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
	underWay(t, frozen)
	signal(t, frozen, syscall.SIGSTOP)
	defer signal(t, frozen, syscall.SIGCONT)
	made := other.Do(t, "POST", "/tenants", request).Want(201)
	signal(t, frozen, syscall.SIGCONT)
	first := <-late
	if first.err != nil {
		t.Fatal(first.err)
	}
	var said struct{ Error string }
	if err := first.answer.Decode(&said); err != nil || first.answer.Status != 409 || said.Error != "request_in_progress" || first.answer.Header.Get("Retry-After") == "" {
		t.Errorf("the replica that was frozen answers %d %s", first.answer.Status, first.answer.Body)
	}
	if again := vendor.Do(t, "POST", "/tenants", request).Want(201); string(again.Body) != string(made.Body) {
		t.Errorf("asked again, it answers %s", again.Body)
	}
	if list := other.Do(t, "GET", "/tenants", nil).Want(200); list.Get("total") != 1.0 {
		t.Errorf("the vendor has %s", list.Body)
	}
	admin := awake.Anonymous()
	admin.APIKey, _ = member(t, made, "api_keys", "0", "key").(string)
	admin.Do(t, "GET", "/policies", nil).Want(200)
	id, _ := made.Get("tenant", "id").(string)
	if usage := other.Do(t, "GET", "/tenants/"+id+"/status", nil).Want(200); len(usage.Get("bouncers").([]any)) != 1 {
		t.Errorf("the tenant is %s", usage.Body)
	}
}

// underWay waits until a server has begun to create a tenant.
func underWay(t *testing.T, s *apptest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DatabaseURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for begun := false; !begun; {
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM gatehouse.tenants WHERE attempt <> '')`).Scan(&begun)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// signal sends a signal to a server that may have ended.
func signal(t *testing.T, s *apptest.Server, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(s.Pid(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
}

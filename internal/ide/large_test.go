package ide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/memory"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestLargeAnswersShareMemory checks that a repository with very many refs is read only if memory for it is
// free, and gives it back, and that a small one needs none.
func TestLargeAnswersShareMemory(t *testing.T) {
	ctx := context.Background()
	url := newHostWithRefs(t)
	s := &Service{Target: outboundtest.Local(t), Large: memory.New(largeFetch, largeFetch, time.Nanosecond)}
	read := func(path string) error {
		_, _, err := s.ReadFile(ctx, "default", File{URL: url + path, Branch: "gone"})
		return err
	}
	readable := func(err error) bool { // its refs were read, and none is the branch
		f, ok := errors.AsType[*fault.Error](err)
		return ok && f.Code == "commit_not_found"
	}
	free, err := s.Large.Take(ctx, "other", largeFetch, false)
	errtest.Must(t, err)
	if err := read("/small"); !readable(err) {
		t.Errorf("the small repository without free memory: %v, want it read", err)
	}
	if err := read("/large"); !isBusy(err) || !fault.Is(err, fault.Unavailable) {
		t.Errorf("the large repository without free memory: %v, want it to be busy", err)
	}
	free()
	for range 2 {
		if err := read("/large"); !readable(err) {
			t.Errorf("the large repository: %v, want it read", err)
		}
	}
	if n := s.Large.Taken(); n != 0 {
		t.Errorf("%d bytes are taken after the fetches, want none", n)
	}
}

// TestBusyDeployment checks that a deployment that finds no memory for a large repository goes on later.
func TestBusyDeployment(t *testing.T) {
	ctx, url := t.Context(), newHostWithRefs(t)
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := &Service{
			Stores: c, Target: outboundtest.Local(t), Large: memory.New(largeFetch, largeFetch, time.Nanosecond), Log: slog.New(slog.DiscardHandler), Now: time.Now,
			As: func(_ context.Context, tenant scope.TenantID, _, _ string) (scope.Scope, error) {
				return scope.Scope{Tenant: tenant, Env: scope.Sandbox}, nil
			},
		}
		request, err := json.Marshal(work{URL: url + "/large", Branch: "gone"})
		errtest.Must(t, err)
		errtest.Must(t, c.Write(ctx, dbtest.Second, func(tx *db.Tx) error {
			return insertDeployment(ctx, tx, Deployment{ID: "d1", Source: "push", Status: InProgress, CreatedAt: tx.Now()}, string(request))
		}))
		run := func() (status string, err error) {
			err = s.Work(ctx, job.Task{Tenant: dbtest.Second, Payload: []byte(`{"deployment_id":"d1"}`)})
			errtest.Must(t, c.Read(ctx, dbtest.Second, func(tx *db.Tx) error {
				d, err := deployment(ctx, tx, "d1")
				status = d.Status
				return err
			}))
			return status, err
		}
		free, err := s.Large.Take(ctx, "other", largeFetch, false)
		errtest.Must(t, err)
		if status, err := run(); status != InProgress || !isBusy(err) {
			t.Errorf("without free memory the deployment is %s: %v, want it in progress, and an error so that the job runs again", status, err)
		}
		free()
		if status, err := run(); status != Failed || err != nil {
			t.Errorf("with free memory the deployment of a branch that does not exist is %s: %v, want it failed", status, err)
		}
	})
}

// newHostWithRefs returns the address of a git host whose repository /large has very many refs.
func newHostWithRefs(t *testing.T) string {
	t.Helper()
	pkt := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = io.WriteString(w, pkt("# service=git-upload-pack\n")+"0000"+pkt(commitA+" HEAD\x00shallow\n"))
		for i, n := 0, 0; r.URL.Path == "/large/info/refs" && n <= outbound.SmallReply; i++ {
			line := pkt(fmt.Sprintf("%040x refs/heads/b%d\n", i+1, i))
			n += len(line)
			_, _ = io.WriteString(w, line)
		}
		_, _ = io.WriteString(w, "0000")
	}))
	t.Cleanup(host.Close)
	return host.URL
}

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/integration"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

const (
	// burstRate and burstTime are the burst: decisions a second, and how long.
	burstRate = 50_000
	burstTime = 10 * time.Second
	// burstSlice is how many decisions are recorded between two looks at the clock.
	burstSlice = 500
)

// siemRow is the result of one burst.
type siemRow struct {
	decisions, again int
	gaps             []string
	// record is how long the burst took, complete until when the SIEM had all of it, both from
	// its start.
	record, complete time.Duration
}

// collector is a SIEM that checks the chains.
type collector struct {
	mu          sync.Mutex
	ends        map[string]tail.End
	lines, want int
	again       int
	gaps        []string
	complete    chan struct{} // closed when all is there
}

// ServeHTTP takes a parcel of lines.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l tail.Line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			c.gaps = append(c.gaps, err.Error())
			continue
		}
		c.take(l)
	}
	if err := lines.Err(); err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
}

// take takes a line. The caller holds mu.
func (c *collector) take(l tail.Line) {
	end, known := c.ends[l.Chain]
	switch {
	case known && l.Position <= end.Position:
		c.again++
		return
	case known && (l.Position != end.Position+1 || l.PreviousHash != end.Hash):
		c.gaps = append(c.gaps, fmt.Sprintf("%s: %d after %d", l.Chain, l.Position, end.Position))
	}
	c.ends[l.Chain] = tail.End{Position: l.Position, Hash: l.Hash}
	if l.Decision == nil {
		return
	}
	if c.lines++; c.lines == c.want {
		close(c.complete)
	}
}

// benchSIEM records a burst of decisions while a SIEM follows the log.
func benchSIEM(ctx context.Context, o options, dir string) (string, error) {
	row, err := measureBurst(ctx, o, dir)
	return siemTable(row), err
}

func measureBurst(ctx context.Context, o options, dir string) (row siemRow, err error) {
	stores, err := db.Open(ctx, db.Config{URL: o.database, Dir: filepath.Join(dir, "store")})
	if err != nil {
		return row, err
	}
	defer stores.Close()
	if err := stores.CreateTenant(ctx, scope.DefaultTenant); err != nil {
		return row, err
	}
	records, err := spool.Open(spool.Config{Dir: filepath.Join(dir, "spool")})
	if err != nil {
		return row, err
	}
	defer records.Close()
	quiet := slog.New(slog.DiscardHandler)
	now := func() time.Time { return time.Now().UTC() }
	log := audit.NewDecisionLog(audit.Config{Cluster: stores, Spool: records, SetAside: filepath.Join(dir, "aside"), Now: now, Logger: quiet})
	box, err := secret.New([secret.KeyBytes]byte{1})
	if err != nil {
		return row, err
	}
	target := outbound.New(outbound.Config{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, PlainToAllowed: true})
	defer target.Close()
	sink := &collector{ends: map[string]tail.End{}, complete: make(chan struct{}), want: burstRate * int(burstTime/time.Second)}
	server := httptest.NewServer(sink)
	defer server.Close()
	service := &integration.Service{Stores: stores, Now: now, Random: rand.Reader, Box: box, Target: target, URL: "https://gatehouse.example.com"}
	who := scope.Scope{Tenant: scope.DefaultTenant, Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.System, ID: "bench", Name: "bench"}}
	if _, err := service.Create(ctx, who, integration.Draft{Name: "siem", Kind: integration.SIEM, Endpoint: server.URL}); err != nil {
		return row, err
	}
	forwarder := &integration.Forwarder{
		Service: service, Holder: "bench", Poll: time.Minute, Logger: quiet,
		Active: func(context.Context, scope.TenantID) (bool, error) { return true, nil },
	}
	run, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { _ = log.Run(run) })
	running.Go(func() { _ = forwarder.Run(run) })
	began := time.Now()
	if err := burst(ctx, log, sink.want); err != nil {
		return row, err
	}
	row.record = time.Since(began)
	select {
	case <-sink.complete:
	case <-time.After(10 * time.Minute):
		err = errors.New("the SIEM does not have all decisions after ten minutes")
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	row.complete, row.decisions, row.again, row.gaps = time.Since(began), sink.lines, sink.again, sink.gaps
	return row, err
}

// burst records decisions at the burst's rate, or as fast as the log takes them.
func burst(ctx context.Context, log *audit.DecisionLog, n int) error {
	began := time.Now()
	for i := range n {
		if i%burstSlice == 0 {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / burstRate)))
		}
		d := audit.Decision{
			DecisionID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Decision: audit.Permit, Environment: scope.Production, AuditLevel: audit.Basic, Timestamp: time.Now().UTC(),
			User: audit.User{ID: "alice@example.com"}, Action: "read", Reason: "the analyst may read",
		}
		if err := log.Record(scope.DefaultTenant, &d); err != nil {
			return fmt.Errorf("decision %d: %w", i, err)
		}
	}
	return ctx.Err()
}

func siemTable(r siemRow) string {
	return fmt.Sprintf("\n## A burst of decisions to a SIEM\n\n| decisions | recorded in s | complete at the SIEM after s | sent again | gaps |\n|---|---|---|---|---|\n| %d | %.1f | %.1f | %d | %d |\n",
		r.decisions, r.record.Seconds(), r.complete.Seconds(), r.again, len(r.gaps))
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/region"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

const (
	moveTenant = scope.TenantID("moved")
	// moveFile, moveOther and moveServer are regions of files and of a database.
	moveFile, moveOther, moveServer = "us-east-1", "us-west-2", "eu-west-1"
	// moveBatch is how many entries of the audit log a transaction adds.
	moveBatch = 500
	// moveWrite is the pause between two writes of the tenant during a move.
	moveWrite = 2 * time.Millisecond
)

// moveRow is the result of one move.
type moveRow struct {
	from, to             string
	rows, changes        int64
	took, pause, longest time.Duration
	writes               int
}

// moveWorld is a store with a tenant that moves.
type moveWorld struct {
	regions *region.Service
	root    scope.Scope
}

// benchMoves moves a tenant with many entries in its audit log between regions, while it writes.
func benchMoves(ctx context.Context, o options, dir string) (string, error) {
	cfg := db.Config{Dir: filepath.Join(dir, "home"), Regions: map[string]db.Region{moveFile: {Dir: filepath.Join(dir, "a")}, moveOther: {Dir: filepath.Join(dir, "b")}}}
	route := []string{moveFile, moveOther}
	if o.database != "" {
		cfg.Regions[moveServer] = db.Region{URL: o.database}
		route = append(route, moveServer, moveServer, moveFile)
	}
	stores, err := db.Open(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer stores.Close()
	defer stores.DropTenant(ctx, moveTenant)
	now := func() time.Time { return time.Now().UTC() }
	w := &moveWorld{root: scope.Scope{Tenant: moveTenant, Platform: true, Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.System, ID: "bench", Name: "bench"}}}
	w.regions = &region.Service{Stores: stores, Tenants: &tenant.Service{Stores: stores, Now: now}, Now: now, Ticks: time.Now, NewID: uuid.NewString, Logger: slog.New(slog.DiscardHandler)}
	if err := stores.CreateTenant(ctx, moveTenant); err != nil {
		return "", err
	}
	for done := 0; done < o.entries; done += moveBatch {
		if err := w.write(ctx, moveBatch); err != nil {
			return "", err
		}
	}
	run, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { w.regions.Run(run) })
	defer running.Wait()
	defer stop()
	var rows []moveRow
	for _, to := range route {
		row, err := w.move(ctx, to)
		if err != nil {
			return moveTable(rows), err
		}
		rows = append(rows, row)
	}
	return moveTable(rows), nil
}

// write adds entries to the tenant's audit log.
func (w *moveWorld) write(ctx context.Context, n int) error {
	entries := slices.Repeat([]audit.Entry{{
		Type: "POLICY_UPDATED", Object: "policy", ObjectID: "4711", ObjectName: "payments", Env: scope.Production,
		Changes: map[string]any{"rego_code": map[string]any{"from": strings.Repeat("0123456789abcdef", 4), "to": strings.Repeat("fedcba9876543210", 4)}},
	}}, n)
	return w.regions.Stores.Write(ctx, moveTenant, func(tx *db.Tx) error { return audit.Append(ctx, tx, w.root, time.Now(), entries...) })
}

// move moves the tenant, which writes meanwhile, and measures how long its writes wait.
func (w *moveWorld) move(ctx context.Context, to string) (moveRow, error) {
	d, err := w.regions.Start(ctx, w.root, moveTenant, region.Request{Region: to})
	if err != nil {
		return moveRow{}, err
	}
	row := moveRow{from: d.FromRegion, to: to}
	began := time.Now()
	for d.Status == region.InProgress {
		wrote := time.Now()
		if err := w.write(ctx, 1); err != nil {
			return row, fmt.Errorf("a write during the move to %s: %w", to, err)
		}
		row.writes++
		row.longest = max(row.longest, time.Since(wrote))
		time.Sleep(moveWrite)
		if d, err = w.regions.Get(ctx, w.root, moveTenant, d.ID); err != nil {
			return row, err
		}
	}
	if d.Status != region.Completed {
		return row, fmt.Errorf("the move to %s failed: %s", to, *d.Reason)
	}
	row.took, row.rows, row.changes, row.pause = time.Since(began), d.RowsCopied, d.ChangesCopied, time.Duration(d.WritePauseMS)*time.Millisecond
	return row, nil
}

func moveTable(rows []moveRow) string {
	var b strings.Builder
	b.WriteString("\n## Moves of a tenant that writes\n\n| from | to | rows | changes meanwhile | seconds | pause ms | writes meanwhile | longest write ms |\n|---|---|---|---|---|---|---|---|\n")
	kind := func(name string) string {
		if name == moveServer {
			return "PostgreSQL"
		}
		return "SQLite"
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %.1f | %.0f | %d | %.0f |\n", kind(r.from), kind(r.to), r.rows, r.changes, r.took.Seconds(), ms(r.pause), r.writes, ms(r.longest))
	}
	return b.String()
}

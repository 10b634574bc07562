package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	tenantConns = 8
	// coldTenants is how many tenants answer their first request under the clock.
	coldTenants = 50
	// idleFor is how long the server is left alone before its memory is read.
	idleFor = 30 * time.Second
)

// tenantRow is one row of the table.
type tenantRow struct {
	store   string
	tenants int
	// ready is the time from the start of the process until it reports that it is ready.
	ready time.Duration
	// resident is the memory of the idle server in bytes, idle the share of one processor
	// that it used meanwhile.
	resident int64
	idle     float64
	// cold and coldest are the median and the worst time of the first decision of a tenant.
	cold, coldest time.Duration
	rps, ratio    float64
}

// tenantServer is a server with many tenants, each with a key and a control.
type tenantServer struct {
	*gatehouse
	keys []string
	drop func() error // removes its store
}

// benchTenants measures servers with many tenants, in alternation with one that has one. The
// rows are those of SQLite, and of PostgreSQL if there is one.
func benchTenants(ctx context.Context, o options, _ string) (string, error) {
	rows, err := benchTenantsOn(ctx, o, "")
	if err == nil && o.database != "" {
		var more []tenantRow
		more, err = benchTenantsOn(ctx, o, o.database)
		rows = append(rows, more...)
	}
	return tenantTable(rows), err
}

func benchTenantsOn(ctx context.Context, o options, store string) (rows []tenantRow, err error) {
	base, err := withTenants(ctx, o, store, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, base.remove()) }()
	for _, n := range o.tenants {
		row, err := measureTenants(ctx, o, store, n, base)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func measureTenants(ctx context.Context, o options, store string, n int, base *tenantServer) (row tenantRow, err error) {
	g, err := withTenants(ctx, o, store, n)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, g.remove()) }()
	row = tenantRow{store: "SQLite", tenants: n, ready: g.ready}
	if store != "" {
		row.store = "PostgreSQL"
	}
	if row.idle, err = g.rest(ctx); err != nil {
		return row, err
	}
	if row.resident, err = g.rss(); err != nil {
		return row, err
	}
	var first []time.Duration
	for i := range min(coldTenants, n) {
		began := time.Now()
		if _, err := ask(g.target(n-1-i*(n/min(coldTenants, n))), 0); err != nil {
			return row, err
		}
		first = append(first, time.Since(began))
	}
	slices.Sort(first)
	row.cold, row.coldest = first[len(first)/2], first[len(first)-1]
	err = g.compare(ctx, o, base, &row)
	return row, err
}

// target asks for decisions of the i-th tenant.
func (g *tenantServer) target(i int) target {
	one := *g.gatehouse
	one.key = g.keys[i]
	asked := make([]map[string]any, requestCount)
	for n := range asked {
		asked[n] = map[string]any{
			"user":     map[string]any{"id": fmt.Sprintf("user-%04d", n), "roles": []string{"guest", "team-0"}, "attributes": map[string]any{"clearance": n % 5}},
			"resource": map[string]any{"type": "api", "path": "/records/0"}, "action": map[string]any{"name": "read", "method": "GET"},
			"context": map[string]any{"country": "NL", "request_id": fmt.Sprintf("req-%06d", n)},
		}
	}
	return ourTarget(fmt.Sprintf("gatehouse, %d tenants", len(g.keys)), &one, asked)
}

// compare measures the rate of decisions in one tenant, in alternation with that of base.
func (g *tenantServer) compare(ctx context.Context, o options, base *tenantServer, row *tenantRow) error {
	for _, s := range []*tenantServer{base, g} { // warm
		answer, err := ask(s.target(0), 0)
		if err == nil && !bytes.Contains(answer, []byte(`"policy_name":"own"`)) {
			err = fmt.Errorf("no control of its own decided: %s", answer)
		}
		if err != nil {
			return err
		}
	}
	runs, err := o.alternate(ctx, tenantConns, base.target(0), g.target(0))
	if err != nil {
		return err
	}
	row.rps = median(runs[1], figures.perSecond)
	row.ratio = pairedMedian(runs[1], runs[0], func(a, b figures) float64 { return a.perSecond() / b.perSecond() })
	return nil
}

// withTenants makes a server with n tenants, and starts it again.
func withTenants(ctx context.Context, o options, store string, n int) (_ *tenantServer, err error) {
	dir, err := os.MkdirTemp("", "gatehouse-bench-")
	if err != nil {
		return nil, err
	}
	env := []string{"GATEHOUSE_DECISION_CACHE=off"}
	out := &tenantServer{keys: make([]string, n), drop: func() error { return os.RemoveAll(dir) }}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.remove())
		}
	}()
	if store != "" {
		address, drop, err := newDatabase(ctx, store, n)
		if err != nil {
			return nil, err
		}
		out.drop = func() error { return errors.Join(drop(), os.RemoveAll(dir)) }
		env = append(env, "GATEHOUSE_DATABASE_URL="+address)
	}
	if out.gatehouse, err = startGatehouse(ctx, o.gatehouse, filepath.Join(dir, "data"), env...); err != nil {
		return nil, err
	}
	if err = each(n, func(i int) (err error) { out.keys[i], err = out.found(ctx, i); return err }); err != nil {
		return nil, err
	}
	out.stop()
	out.gatehouse, err = startGatehouse(ctx, o.gatehouse, filepath.Join(dir, "data"), env...)
	return out, err
}

// found makes the i-th tenant and returns its key.
func (g *tenantServer) found(ctx context.Context, i int) (key string, err error) {
	var t struct {
		ID string `json:"id"`
	}
	var made struct {
		Key string `json:"key"`
	}
	if err := g.call(ctx, "POST", "/tenants", map[string]any{"name": fmt.Sprintf("Tenant %d", i)}, &t); err != nil {
		return "", err
	}
	err = g.call(ctx, "POST", "/policies?tenant_id="+t.ID, map[string]any{
		"name": "own", "rego_code": ownControl(0, 0), "environment": "production", "status": "active",
	}, nil)
	if err == nil {
		err = g.call(ctx, "POST", "/tenants/"+t.ID+"/api-keys?tenant_id="+t.ID, map[string]any{"name": "bench", "scopes": []string{"decisions:read"}, "environment": "production"}, &made)
	}
	return made.Key, err
}

// rest leaves the server alone, and returns the share of one processor that it used.
func (g *tenantServer) rest(ctx context.Context) (float64, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(idleFor):
	}
	before, err := g.ticks()
	if err != nil {
		return 0, err
	}
	time.Sleep(idleFor / 2)
	after, err := g.ticks()
	return float64(after-before) / 100 / (idleFor / 2).Seconds(), err
}

// ticks is the processor time that the process used, in hundredths of a second.
func (p *peer) ticks() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("the kernel does not report the processor time")
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, other := strconv.ParseInt(fields[12], 10, 64)
	return user + system, errors.Join(err, other)
}

// remove ends the server and removes its store.
func (g *tenantServer) remove() error {
	if g.gatehouse != nil {
		g.stop()
	}
	return g.drop()
}

// newDatabase makes a database beside another one.
func newDatabase(ctx context.Context, beside string, n int) (address string, drop func() error, err error) {
	u, err := url.Parse(beside)
	if err != nil {
		return "", nil, err
	}
	name := fmt.Sprintf("gatehouse_bench_%d_%d", n, os.Getpid())
	run := func(sql string) error {
		c, err := pgx.Connect(ctx, beside)
		if err != nil {
			return err
		}
		_, err = c.Exec(ctx, sql)
		return errors.Join(err, c.Close(ctx))
	}
	if err := run("CREATE DATABASE " + name); err != nil {
		return "", nil, err
	}
	u.Path = "/" + name
	return u.String(), func() error { return run("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)") }, nil
}

// tenantTable is the table of the rows.
func tenantTable(rows []tenantRow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Many tenants on one server (each with a key and a control; cache off, %d connections)\n\n", tenantConns)
	b.WriteString("| store | tenants | start to ready ms | idle resident MB | idle, share of a processor | first decision of a cold tenant ms, median | worst of 50 ms | decisions/s in one tenant | ratio to a server with one tenant |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %.0f | %d | %.3f | %.1f | %.1f | %.0f | %.2f |\n", r.store, r.tenants, ms(r.ready), r.resident>>20, r.idle, ms(r.cold), ms(r.coldest), r.rps, r.ratio)
	}
	return b.String()
}

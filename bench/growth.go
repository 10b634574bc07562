package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// growthSizes are the numbers of resources in one environment, each with a control of its own.
// Rates are relative to the first.
var growthSizes = []int{10, 200, 1000, 5000}

const (
	growthConns   = 8
	growthSeeders = 8
	growthUpdates = 15
)

// growthRow is one row of the table.
type growthRow struct {
	controls int
	// ready is the time from the start of the process until it reports that it is ready, first the
	// time of the first decision after that.
	ready, first time.Duration
	rps, ratio   float64
	// resident is the memory after each control has decided, in bytes.
	resident int64
	// update is the time of a PUT of one control, follow that of the decision right after it.
	update, follow time.Duration
}

// ownControl returns the control of the i-th resource.
func ownControl(i, edition int) string {
	return fmt.Sprintf(`package authz.record%d

import rego.v1

default allow := false

limit := %d

allow if {
	input.action.name in {"read", "write"}
	input.user.attributes.clearance >= limit
	some role in input.user.roles
	role in {"analyst", "admin", "team-%d"}
}

deny contains msg if {
	input.context.country == "XX"
	msg := sprintf("record %d is not shown in %%s", [input.context.country])
}

reason := "edition %d" if allow
`, i, i%4, i, i, edition)
}

// grown is a server with many controls, restarted after they were stored.
type grown struct {
	*gatehouse
	row      growthRow
	policies []int64
	target   target
}

// benchGrowth measures servers with few and many controls, each alternating with the smallest one.
func benchGrowth(ctx context.Context, o options, dir string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## One environment with many controls (each of a resource of its own; cache off, %d connections, requests over all of them)\n\n", growthConns)
	b.WriteString("| controls | start to ready ms | first decision after that ms | resident MB | decisions/s | ratio to the first row | update ms | decision after it ms |\n|---|---|---|---|---|---|---|---|\n")
	var base *grown
	for _, n := range o.sizes {
		g, err := grow(ctx, o, filepath.Join(dir, strconv.Itoa(n)), n)
		if err != nil {
			return b.String(), err
		}
		defer g.stop()
		if base == nil {
			base = g
		}
		if err := g.measure(ctx, o, base); err != nil {
			return b.String(), err
		}
		r := g.row
		fmt.Fprintf(&b, "| %d | %.0f | %.1f | %d | %.0f | %.2f | %.1f | %.1f |\n", r.controls, ms(r.ready), ms(r.first), r.resident>>20, r.rps, r.ratio, ms(r.update), ms(r.follow))
		if g != base {
			g.stop()
		}
	}
	return b.String(), nil
}

// grow stores the resources and controls, and starts the server again.
func grow(ctx context.Context, o options, dir string, n int) (*grown, error) {
	const cacheOff = "GATEHOUSE_DECISION_CACHE=off"
	g, err := startGatehouse(ctx, o.gatehouse, dir, cacheOff)
	if err != nil {
		return nil, err
	}
	defer g.stop()
	out := &grown{row: growthRow{controls: n}, policies: make([]int64, n)}
	ids := make([]int64, n)
	err = each(n, func(i int) error {
		var made struct {
			ID int64 `json:"id"`
		}
		err := g.call(ctx, "POST", "/resources", map[string]any{
			"name": fmt.Sprintf("record %d", i), "type": "api", "path": fmt.Sprintf("/records/%d", i), "environment": "production",
		}, &made)
		if err != nil {
			return err
		}
		ids[i] = made.ID
		err = g.call(ctx, "POST", "/policies", map[string]any{
			"name": fmt.Sprintf("record %d", i), "rego_code": ownControl(i, 0), "environment": "production", "status": "active", "resource_id": made.ID,
		}, &made)
		out.policies[i] = made.ID
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := g.makeKey(ctx); err != nil {
		return nil, err
	}
	key := g.key
	g.stop()
	again, err := startGatehouse(ctx, o.gatehouse, dir, cacheOff)
	if err != nil {
		return nil, err
	}
	out.row.ready = again.ready
	again.key, out.gatehouse = key, again
	out.target = ourTarget(fmt.Sprintf("gatehouse, %d controls", n), again, growthInputs(ids))
	return out, nil
}

// each calls fn for 0 to n-1, several at a time, and returns the first error.
func each(n int, fn func(int) error) error {
	next := make(chan int)
	var first error
	var once sync.Once
	var wait sync.WaitGroup
	for range growthSeeders {
		wait.Go(func() {
			for i := range next {
				if err := fn(i); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
	return first
}

// growthInputs returns requests for all resources in turn, at least a thousand.
func growthInputs(ids []int64) []map[string]any {
	out := make([]map[string]any, max(requestCount, len(ids)))
	for i := range out {
		at := i * 7919 % len(ids) // consecutive requests are not adjacent in the store
		out[i] = map[string]any{
			"user": map[string]any{
				"id": fmt.Sprintf("user-%04d", i%requestCount), "roles": []string{"guest", fmt.Sprintf("team-%d", at)},
				"attributes": map[string]any{"clearance": i % 5},
			},
			"resource": map[string]any{"id": ids[at], "type": "api", "path": fmt.Sprintf("/records/%d", at)},
			"action":   map[string]any{"name": "read", "method": "GET"},
			"context":  map[string]any{"country": "NL", "request_id": fmt.Sprintf("req-%06d", i)},
		}
	}
	return out
}

// measure fills in the row of g.
func (g *grown) measure(ctx context.Context, o options, base *grown) error {
	began := time.Now()
	answer, err := ask(g.target, 0)
	if err != nil {
		return err
	}
	g.row.first = time.Since(began)
	if !bytes.Contains(answer, []byte(`"policy_name":"record `)) {
		return fmt.Errorf("no control of its own decided: %s", answer)
	}
	for i := range g.target.requests { // every control has decided once
		if _, err := ask(g.target, i); err != nil {
			return err
		}
	}
	var runs, against []figures
	for range o.rounds {
		for _, s := range []*grown{base, g} {
			f, err := o.measure(ctx, s.target, growthConns)
			if err != nil {
				return err
			}
			if s == base {
				against = append(against, f)
			}
			if s == g {
				runs = append(runs, f)
			}
			if g.row.resident, err = g.rss(); err != nil {
				return err
			}
			o.waitUntilIdle(s.target.name)
			if base == g {
				break
			}
		}
	}
	g.row.rps = median(runs, figures.perSecond)
	g.row.ratio = pairedMedian(runs, against, func(a, b figures) float64 { return a.perSecond() / b.perSecond() })
	return g.change(ctx)
}

// change updates controls, and requests a decision right after each.
func (g *grown) change(ctx context.Context) error {
	var updates, follows []time.Duration
	for i := range growthUpdates {
		at := i * 7919 % g.row.controls
		began := time.Now()
		if err := g.call(ctx, "PUT", fmt.Sprintf("/policies/%d", g.policies[at]), map[string]any{"rego_code": ownControl(at, i+1)}, nil); err != nil {
			return err
		}
		updates = append(updates, time.Since(began))
		began = time.Now()
		answer, err := ask(g.target, i)
		if err != nil {
			return err
		}
		follows = append(follows, time.Since(began))
		if bytes.Contains(answer, []byte(`"decision":"PERMIT"`)) && !bytes.Contains(answer, fmt.Appendf(nil, "edition %d", i+1)) {
			return fmt.Errorf("the decision after update %d is by another edition: %s", i+1, answer)
		}
	}
	slices.Sort(updates)
	slices.Sort(follows)
	g.row.update, g.row.follow = updates[len(updates)/2], follows[len(follows)/2]
	return nil
}

// rss returns the resident memory of the process, in bytes.
func (p *peer) rss() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("the kernel does not report the resident size")
}

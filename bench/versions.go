package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// versionConns is how many connections the loads of the table of versions have.
const versionConns = 16

// versionRow is one line of the table of versions: the processor time that a
// request costs the server in the two builds.
type versionRow struct {
	name string
	// ours and theirs are the medians for a request.
	ours, theirs time.Duration
	// ratio is the median of the ratios of the rounds; low and high are their
	// quartiles.
	ratio, low, high float64
}

// versionTarget is a server of one build under one load.
type versionTarget struct {
	*peer
	load load
}

// benchVersions compares the processor time that a request costs two builds of
// gatehouse. Unlike a rate, it says much on a machine that others use, too.
func benchVersions(ctx context.Context, o options) ([]versionRow, error) {
	dir, err := os.MkdirTemp("", "gatehouse-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	application, err := startOwn(ctx, "application", "")
	if err != nil {
		return nil, err
	}
	defer application.stop()
	var builds [2][]versionTarget
	for i, program := range []string{o.gatehouse, o.against} {
		other := o
		other.gatehouse = program
		stop, targets, err := startVersion(ctx, other, filepath.Join(dir, fmt.Sprint(i)), application.addr)
		defer stop()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", program, err)
		}
		builds[i] = targets
	}
	var rows []versionRow
	for i, t := range builds[0] {
		row, err := compareVersions(ctx, o, t, builds[1][i])
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// startVersion runs the servers of one build.
func startVersion(ctx context.Context, o options, dir, upstream string) (stop func(), targets []versionTarget, err error) {
	var stops []func()
	stop = func() {
		for _, s := range slices.Backward(stops) {
			s()
		}
	}
	identity := map[string]string{"X-Auth-Request-User": "ada", "X-Auth-Request-Groups": "staff"}
	stopBouncers, proxies, err := startBouncers(ctx, o, filepath.Join(dir, "proxies"), upstream, identity)
	stops = append(stops, stopBouncers)
	if err != nil {
		return stop, nil, err
	}
	for _, t := range proxies {
		targets = append(targets, versionTarget{t.peer, load{addr: t.addr, requests: t.requests(), conns: versionConns, length: o.length, accept: wantOK}})
	}
	for _, cache := range []string{"off", "on"} {
		g, err := startGatehouse(ctx, o.gatehouse, filepath.Join(dir, "cache-"+cache), "GATEHOUSE_DECISION_CACHE="+cache)
		if err != nil {
			return stop, nil, err
		}
		stops = append(stops, g.stop)
		ids, err := g.seed(ctx)
		if err != nil {
			return stop, nil, err
		}
		t := ourTarget("gatehouse, decisions over HTTP, cache "+cache, g, inputs(ids))
		g.name = t.name
		targets = append(targets, versionTarget{g.peer, load{addr: t.addr, requests: t.requests, conns: versionConns, length: o.length, accept: t.accept}})
	}
	return stop, targets, nil
}

// compareVersions measures two servers under load at the same time, so that
// whatever else the machine does bears on both alike.
func compareVersions(ctx context.Context, o options, ours, theirs versionTarget) (versionRow, error) {
	var mine, other, ratios []float64
	for round := range o.rounds + 1 {
		var a, b float64
		var errA, errB error
		var both sync.WaitGroup
		both.Go(func() { a, errA = ours.cost(ctx, o) })
		both.Go(func() { b, errB = theirs.cost(ctx, o) })
		both.Wait()
		if err := errors.Join(errA, errB); err != nil {
			return versionRow{}, err
		}
		if round > 0 { // in the first one they meet their requests
			mine, other, ratios = append(mine, a), append(other, b), append(ratios, a/b)
		}
	}
	for _, list := range [][]float64{mine, other, ratios} {
		slices.Sort(list)
	}
	middle := len(ratios) / 2
	return versionRow{
		name: ours.name, ours: time.Duration(mine[middle]), theirs: time.Duration(other[middle]),
		ratio: ratios[middle], low: ratios[len(ratios)/4], high: ratios[len(ratios)*3/4],
	}, nil
}

// cost is the processor time, in nanoseconds, that a request takes of the server,
// with what it does after the answers: the decisions are stored at leisure.
func (v versionTarget) cost(ctx context.Context, o options) (float64, error) {
	before, err := v.processor()
	if err != nil {
		return 0, err
	}
	f, err := v.load.run(ctx)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", v.name, err)
	}
	after, err := v.rested(o.calm)
	return float64(after-before) / float64(f.requests), err
}

// rested waits until the process does next to nothing, for a while at most, and
// gives the processor time that it has used.
func (p *peer) rested(most time.Duration) (time.Duration, error) {
	const while = 200 * time.Millisecond
	used, err := p.processor()
	for calm, until := 0, time.Now().Add(most); err == nil && calm < 3 && time.Now().Before(until); {
		before := used
		time.Sleep(while)
		used, err = p.processor()
		if calm++; used-before > while/50 {
			calm = 0
		}
	}
	return used, err
}

// processor is the processor time that the process has used since its start, in
// user and kernel mode.
func (p *peer) processor() (time.Duration, error) {
	// The number of a process's clock, as clock_getcpuclockid(3) makes it.
	clock := int32(^p.cmd.Process.Pid<<3 | 2)
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("the processor time of %s: %w", p.name, err)
	}
	return time.Duration(t.Nano()), nil
}

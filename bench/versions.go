package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// versionConns is the number of connections for each server.
const versionConns = 16

// versionRow is the processor time that a request costs a server of two builds.
type versionRow struct {
	name string
	// ours and theirs are the medians for a request.
	ours, theirs time.Duration
	// ratio is the median of the ratios of the rounds; low and high are their
	// quartiles.
	ratio, low, high float64
}

// benchVersions compares the processor time that a request costs two builds of gatehouse. Unlike a
// rate, it is meaningful on a machine that is used for other work too.
func benchVersions(ctx context.Context, o options, dir string) (string, error) {
	var stop cleanup
	defer stop.run()
	application, err := startOwn(ctx, "application", "")
	if err != nil {
		return "", err
	}
	stop.add(application.stop)
	var builds [2][]target
	for i, program := range []string{o.gatehouse, o.against} {
		other := o
		other.gatehouse = program
		if builds[i], err = startVersion(ctx, other, &stop, filepath.Join(dir, fmt.Sprint(i)), application.addr); err != nil {
			return "", fmt.Errorf("%s: %w", program, err)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Processor time a request, against another build (%d connections)\n\n", versionConns)
	b.WriteString("| server | this build µs | the other µs | ratio | quartiles of the ratio |\n|---|---|---|---|---|\n")
	for i, t := range builds[0] {
		r, err := compareVersions(ctx, o, t, builds[1][i])
		if err != nil {
			return b.String(), err
		}
		fmt.Fprintf(&b, "| %s | %.1f | %.1f | %.3f | %.3f to %.3f |\n", r.name, us(r.ours), us(r.theirs), r.ratio, r.low, r.high)
	}
	return b.String(), nil
}

// startVersion runs the servers of one build.
func startVersion(ctx context.Context, o options, stop *cleanup, dir, upstream string) ([]target, error) {
	targets, err := startBouncers(ctx, o, stop, filepath.Join(dir, "proxies"), upstream)
	if err != nil {
		return nil, err
	}
	for _, cache := range []string{"off", "on"} {
		g, err := startGatehouse(ctx, o.gatehouse, filepath.Join(dir, "cache-"+cache), "GATEHOUSE_DECISION_CACHE="+cache)
		if err != nil {
			return nil, err
		}
		stop.add(g.stop)
		ids, err := g.seed(ctx)
		if err != nil {
			return nil, err
		}
		targets = append(targets, ourTarget("gatehouse, decisions over HTTP, cache "+cache, g, inputs(ids)))
	}
	return targets, nil
}

// compareVersions measures two servers at the same time, so that other work of the machine affects
// both equally.
func compareVersions(ctx context.Context, o options, ours, theirs target) (versionRow, error) {
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
		if round > 0 { // the first round warms up
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

// cost returns the processor time of the server for a request, in nanoseconds. It includes the work
// after the answers, such as storing the decisions.
func (t target) cost(ctx context.Context, o options) (float64, error) {
	before, err := t.processor()
	if err != nil {
		return 0, err
	}
	f, err := o.measure(ctx, t, versionConns)
	if err != nil {
		return 0, err
	}
	after, err := t.rested(o.calm)
	return float64(after-before) / float64(f.requests), err
}

// rested waits until the process does almost nothing, at most for a time, and returns the processor
// time that it has used.
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

// processor returns the processor time that the process has used since its start, in user and
// kernel mode.
func (p *peer) processor() (time.Duration, error) {
	// The number of a process's clock, as clock_getcpuclockid(3) makes it.
	clock := int32(^p.cmd.Process.Pid<<3 | 2)
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("the processor time of %s: %w", p.name, err)
	}
	return time.Duration(t.Nano()), nil
}

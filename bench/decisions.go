package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"
)

// rateRow is the result of one target with a number of connections.
type rateRow struct {
	name     string
	conns    int
	rps      float64
	p50, p99 time.Duration
	// The ratios are to the first target with the same number of connections, paired.
	ratio, p99Ratio float64
}

// target is a server, and the requests for it.
type target struct {
	*peer
	name     string
	requests [][]byte
	// weight is what a request counts for, such as its number of decisions.
	weight int
}

// benchDecisions measures a stock OPA and our server with the cache off and on, in alternation. It
// first checks that all give equal answers.
func benchDecisions(ctx context.Context, o options, dir string) (string, error) {
	uncached, err := startGatehouse(ctx, o.gatehouse, filepath.Join(dir, "off"), "GATEHOUSE_DECISION_CACHE=off")
	if err != nil {
		return "", err
	}
	defer uncached.stop()
	ids, err := uncached.seed(ctx)
	if err != nil {
		return "", err
	}
	cached, err := startGatehouse(ctx, o.gatehouse, filepath.Join(dir, "on"))
	if err != nil {
		return "", err
	}
	defer cached.stop()
	if _, err := cached.seed(ctx); err != nil {
		return "", err
	}
	opa, err := startOPA(ctx, o.opa, dir, ids)
	if err != nil {
		return "", err
	}
	defer opa.stop()

	asked := inputs(ids)
	targets := []target{
		opaTarget(opa, asked),
		ourTarget("gatehouse, cache off", uncached, asked),
		ourTarget("gatehouse, cache on", cached, asked),
		bulkTarget("gatehouse, bulk of 100", uncached, asked),
	}
	if err := sameAnswers(targets, asked); err != nil {
		return "", err
	}
	rows, err := compareRates(ctx, o, targets)
	var b strings.Builder
	b.WriteString("\n## Decisions over HTTP\n\n| server | connections | decisions/s | p50 ms | p99 ms | ratio to OPA | p99 to OPA's |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %.0f | %.2f | %.2f | %.2f | %.2f |\n", r.name, r.conns, r.rps, ms(r.p50), ms(r.p99), r.ratio, r.p99Ratio)
	}
	return b.String(), err
}

func opaTarget(p *peer, asked []map[string]any) target {
	t := target{peer: p, name: "OPA (stock, decision by REST)", weight: 1}
	for _, in := range asked {
		body, _ := json.Marshal(map[string]any{"input": in})
		t.requests = append(t.requests, post(p.addr, "/v1/data/authz/decision", nil, body))
	}
	return t
}

func ourTarget(name string, g *gatehouse, asked []map[string]any) target {
	t := target{peer: g.peer, name: name, weight: 1}
	for _, in := range asked {
		body, _ := json.Marshal(in)
		t.requests = append(t.requests, post(g.addr, "/api/v1/decisions/evaluate", map[string]string{"X-API-Key": g.key}, body))
	}
	return t
}

func bulkTarget(name string, g *gatehouse, asked []map[string]any) target {
	t := target{peer: g.peer, name: name, weight: 100}
	for at := 0; at+100 <= len(asked); at += 100 {
		var items []map[string]any
		for i, in := range asked[at : at+100] {
			item := map[string]any{"decision_id": fmt.Sprintf("b-%d", i)}
			maps.Copy(item, in)
			items = append(items, item)
		}
		body, _ := json.Marshal(map[string]any{"decisions": items})
		t.requests = append(t.requests, post(g.addr, "/api/v1/decisions/evaluate/bulk", map[string]string{"X-API-Key": g.key}, body))
	}
	return t
}

// wantOK accepts answers of status 200 alone.
func wantOK(status int, body []byte) error {
	if status != 200 {
		return fmt.Errorf("answered %d: %.200s", status, body)
	}
	return nil
}

// sameAnswers returns an error if the servers decide differently on a request.
func sameAnswers(targets []target, asked []map[string]any) error {
	permits := 0
	for i := range asked {
		want, err := ask(targets[0], i)
		if err != nil {
			return err
		}
		permit := bytes.Contains(want, []byte(`"allow":true`))
		if permit {
			permits++
		}
		for _, t := range targets[1:3] {
			got, err := ask(t, i)
			if err != nil {
				return err
			}
			if bytes.Contains(got, []byte(`"decision":"PERMIT"`)) != permit {
				return fmt.Errorf("%s differs from %s on request %d: %s, %s", t.name, targets[0].name, i, got, want)
			}
		}
	}
	fmt.Printf("checked: equal answers on %d requests, %d permitted\n", len(asked), permits)
	return nil
}

// measure sends the requests of t for a while.
func (o options) measure(ctx context.Context, t target, conns int) (figures, error) {
	f, err := load{addr: t.addr, requests: t.requests, conns: conns, length: o.length, accept: wantOK}.run(ctx)
	if err != nil {
		return f, fmt.Errorf("%s: %w", t.name, err)
	}
	return f, nil
}

// alternate measures A B C A B C …, and returns the figures of each target by round.
func (o options) alternate(ctx context.Context, conns int, targets ...target) ([][]figures, error) {
	runs := make([][]figures, len(targets))
	for range o.rounds {
		for i, t := range targets {
			f, err := o.measure(ctx, t, conns)
			if err != nil {
				return nil, err
			}
			runs[i] = append(runs[i], f)
			o.waitUntilIdle(t.name)
		}
	}
	return runs, nil
}

// compareRates measures the targets with few and many connections.
func compareRates(ctx context.Context, o options, targets []target) ([]rateRow, error) {
	var rows []rateRow
	for _, conns := range []int{1, 8, 64} {
		runs, err := o.alternate(ctx, conns, targets...)
		if err != nil {
			return rows, err
		}
		for i, t := range targets {
			n := float64(t.weight)
			rows = append(rows, rateRow{
				name: t.name, conns: conns,
				rps:      median(runs[i], func(f figures) float64 { return f.perSecond() * n }),
				p50:      time.Duration(median(runs[i], func(f figures) float64 { return float64(f.p50) })),
				p99:      time.Duration(median(runs[i], func(f figures) float64 { return float64(f.p99) })),
				ratio:    pairedMedian(runs[i], runs[0], func(a, b figures) float64 { return a.perSecond() * n / b.perSecond() }),
				p99Ratio: pairedMedian(runs[i], runs[0], func(a, b figures) float64 { return float64(a.p99) / float64(b.p99) }),
			})
		}
	}
	return rows, nil
}

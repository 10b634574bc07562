package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"
)

// decisionRow is one line of the table of decision servers.
type decisionRow struct {
	name  string
	conns int
	rps   float64
	p50   time.Duration
	p99   time.Duration
	// ratio is to OPA with the same number of connections, paired.
	ratio, p99Ratio float64
}

// decisionTargets are the servers, and the requests prepared for each.
type decisionTarget struct {
	name     string
	addr     string
	requests [][]byte
	accept   func(int, []byte) error
	// decisions is how many decisions one request asks for.
	decisions int
}

// benchDecisions measures a stock OPA and our server with the cache off and on,
// in alternation, after checking that all give equal answers.
func benchDecisions(ctx context.Context, o options) ([]decisionRow, error) {
	dir, err := os.MkdirTemp("", "gatehouse-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	uncached, err := startGatehouse(ctx, o.gatehouse, filepath.Join(dir, "off"), "GATEHOUSE_DECISION_CACHE=off")
	if err != nil {
		return nil, err
	}
	defer uncached.stop()
	ids, err := uncached.seed(ctx)
	if err != nil {
		return nil, err
	}
	cached, err := startGatehouse(ctx, o.gatehouse, filepath.Join(dir, "on"))
	if err != nil {
		return nil, err
	}
	defer cached.stop()
	if _, err := cached.seed(ctx); err != nil {
		return nil, err
	}
	opa, err := startOPA(ctx, o.opa, dir, ids)
	if err != nil {
		return nil, err
	}
	defer opa.stop()

	asked := inputs(ids)
	targets := []decisionTarget{
		opaTarget(opa, asked),
		ourTarget("gatehouse, cache off", uncached, asked),
		ourTarget("gatehouse, cache on", cached, asked),
		bulkTarget("gatehouse, bulk of 100", uncached, asked),
	}
	if err := sameAnswers(targets, asked); err != nil {
		return nil, err
	}
	return alternate(ctx, o, targets)
}

func opaTarget(p *peer, asked []map[string]any) decisionTarget {
	t := decisionTarget{name: "OPA (stock, " + "decision by REST)", addr: p.addr, decisions: 1, accept: wantOK}
	for _, in := range asked {
		body, _ := json.Marshal(map[string]any{"input": in})
		t.requests = append(t.requests, post(p.addr, "/v1/data/authz/decision", nil, body))
	}
	return t
}

func ourTarget(name string, g *gatehouse, asked []map[string]any) decisionTarget {
	t := decisionTarget{name: name, addr: g.addr, decisions: 1, accept: wantOK}
	for _, in := range asked {
		body, _ := json.Marshal(in)
		t.requests = append(t.requests, post(g.addr, "/api/v1/decisions/evaluate", map[string]string{"X-API-Key": g.key}, body))
	}
	return t
}

func bulkTarget(name string, g *gatehouse, asked []map[string]any) decisionTarget {
	t := decisionTarget{name: name, addr: g.addr, decisions: 100, accept: wantOK}
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

// sameAnswers compares what each server says to each request.
func sameAnswers(targets []decisionTarget, asked []map[string]any) error {
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

// alternate measures A B C A B C … and reports medians and paired ratios.
func alternate(ctx context.Context, o options, targets []decisionTarget) ([]decisionRow, error) {
	var rows []decisionRow
	for _, conns := range []int{1, 8, 64} {
		runs := make([][]figures, len(targets))
		for range o.rounds {
			for i, t := range targets {
				f, err := load{addr: t.addr, requests: t.requests, conns: conns, length: o.length, accept: t.accept}.run(ctx)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", t.name, err)
				}
				runs[i] = append(runs[i], f)
				o.waitUntilIdle(t.name)
			}
		}
		for i, t := range targets {
			row := decisionRow{name: t.name, conns: conns}
			n := float64(t.decisions)
			row.rps = median(runs[i], func(f figures) float64 { return f.perSecond() * n })
			row.p50 = time.Duration(median(runs[i], func(f figures) float64 { return float64(f.p50) }))
			row.p99 = time.Duration(median(runs[i], func(f figures) float64 { return float64(f.p99) }))
			row.ratio = pairedMedian(runs[i], runs[0], func(a, b figures) float64 { return a.perSecond() * n / b.perSecond() })
			row.p99Ratio = pairedMedian(runs[i], runs[0], func(a, b figures) float64 { return float64(a.p99) / float64(b.p99) })
			rows = append(rows, row)
		}
	}
	return rows, nil
}

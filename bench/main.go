// Command bench measures gatehouse against what people run today, side by
// side, in one run on one machine: a stock OPA for decisions; a bare reverse
// proxy, nginx with auth_request and Caddy with forward_auth for the bouncer.
// It prints Markdown tables; docs/benchmarks.md holds one such run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are what a run is told.
type options struct {
	gatehouse, opa, caddy, nginx string
	rounds                       int
	length, rest, calm           time.Duration
	write                        string
	against                      string
	only                         string
	sizes, tenants               []int
	events, rate, entries        int
	database                     string
}

func main() {
	var o options
	flag.StringVar(&o.gatehouse, "gatehouse", "bin/gatehouse", "our binary")
	flag.StringVar(&o.opa, "opa", "bin/opa", "a stock OPA")
	flag.StringVar(&o.caddy, "caddy", "bin/caddy", "Caddy")
	flag.StringVar(&o.nginx, "nginx", "nginx", "nginx")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds in alternation; medians are reported")
	flag.DurationVar(&o.length, "length", 3*time.Second, "length of one measurement")
	flag.DurationVar(&o.rest, "rest", time.Second, "least pause after each of ours; it lasts until the machine is idle")
	flag.DurationVar(&o.calm, "calm", time.Minute, "how long that pause lasts at most, where others use the machine")
	flag.StringVar(&o.write, "write", "", "document to put the tables into, between its marks")
	flag.StringVar(&o.only, "only", "", "decisions, growth, proxies, versions, webhooks, siem, tenants or moves; empty: the first three")
	flag.StringVar(&o.against, "against", "", "another build of gatehouse, for -only versions")
	flag.IntVar(&o.events, "events", 100_000, "how many events the webhooks carry")
	flag.IntVar(&o.rate, "rate", 1000, "how many of them are raised in a second")
	flag.IntVar(&o.entries, "entries", 1_000_000, "how many entries the audit log of the tenant that moves has")
	flag.StringVar(&o.database, "database", "", "PostgreSQL database for the webhooks or a region, or beside which the databases for the tenants are made; empty: SQLite alone, in a new folder")
	o.sizes = growthSizes
	flag.Func("sizes", "how many controls the servers of the table of growth have, the peer of the others first (10,200,1000,5000)", func(text string) (err error) {
		o.sizes, err = numbers(text)
		return err
	})
	o.tenants = []int{1000}
	flag.Func("tenants", "how many tenants the servers of the table of tenants have (1000)", func(text string) (err error) {
		o.tenants, err = numbers(text)
		return err
	})
	be := flag.String("be", "", "be one of the run's own servers and nothing else: application, proxy or adapter")
	listen := flag.String("listen", "", "its address")
	upstream := flag.String("upstream", "", "whom it asks")
	flag.Parse()
	if *be != "" {
		fmt.Fprintln(os.Stderr, "bench:", beServer(*be, *listen, *upstream))
		os.Exit(1)
	}
	if err := run(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// wants reports whether a part that a full run has is to be measured.
func (o options) wants(part string) bool { return o.only == "" || o.only == part }

func run(ctx context.Context, o options, out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s on %s, %d cores, %s/%s, %s; %d rounds of %s in alternation, medians, paired ratios; load generator on the same cores.\n",
		time.Now().UTC().Format("2006-01-02"), cpuName(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), o.rounds, o.length)
	if o.wants("decisions") {
		rows, err := benchDecisions(ctx, o)
		if err != nil {
			return err
		}
		b.WriteString("\n## Decisions over HTTP\n\n| server | connections | decisions/s | p50 ms | p99 ms | ratio to OPA | p99 to OPA's |\n|---|---|---|---|---|---|---|\n")
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s | %d | %.0f | %.2f | %.2f | %.2f | %.2f |\n", r.name, r.conns, r.rps, ms(r.p50), ms(r.p99), r.ratio, r.p99Ratio)
		}
	}
	if o.wants("growth") {
		rows, err := benchGrowth(ctx, o)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n## One environment with many controls (each of a resource of its own; cache off, %d connections, requests over all of them)\n\n", growthConns)
		b.WriteString("| controls | start to ready ms | first decision after that ms | resident MB | decisions/s | ratio to the first row | update ms | decision after it ms |\n|---|---|---|---|---|---|---|---|\n")
		for _, r := range rows {
			fmt.Fprintf(&b, "| %d | %.0f | %.1f | %d | %.0f | %.2f | %.1f | %.1f |\n", r.controls, ms(r.ready), ms(r.first), r.resident>>20, r.rps, r.ratio, ms(r.update), ms(r.follow))
		}
	}
	if o.wants("proxies") {
		rows, err := benchProxies(ctx, o)
		if err != nil {
			return err
		}
		b.WriteString("\n## In front of an application (1 KiB answer)\n\n| proxy | connections | requests/s | p50 ms | p99 ms | ratio to a bare ReverseProxy |\n|---|---|---|---|---|---|\n")
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s | %d | %.0f | %.2f | %.2f | %.2f |\n", r.name, r.conns, r.rps, ms(r.p50), ms(r.p99), r.ratio)
		}
	}
	if o.only == "versions" {
		rows, err := benchVersions(ctx, o)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n## Processor time a request, against another build (%d connections)\n\n", versionConns)
		b.WriteString("| server | this build µs | the other µs | ratio | quartiles of the ratio |\n|---|---|---|---|---|\n")
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s | %.1f | %.1f | %.3f | %.3f to %.3f |\n", r.name, us(r.ours), us(r.theirs), r.ratio, r.low, r.high)
		}
	}
	if o.only == "webhooks" {
		row, err := benchWebhooks(ctx, o)
		if err != nil {
			return err
		}
		b.WriteString(hookTable(row))
	}
	if slices.Contains([]string{"moves", "tenants", "siem"}, o.only) {
		table, err := benchAlone(ctx, o)
		b.WriteString(table)
		if err != nil {
			return errors.Join(err, writeTo(out, b.String()))
		}
	}
	if err := writeTo(out, b.String()); err != nil {
		return err
	}
	if o.write == "" {
		return nil
	}
	return insert(o.write, b.String())
}

// benchAlone measures what has no peer: many tenants, moves of one, or a burst to a SIEM.
func benchAlone(ctx context.Context, o options) (table string, err error) {
	switch o.only {
	case "moves":
		rows, err := benchMoves(ctx, o)
		return moveTable(rows), err
	case "siem":
		row, err := benchSIEM(ctx, o)
		return siemTable(row), err
	}
	rows, err := benchTenants(ctx, o)
	return tenantTable(rows), err
}

func writeTo(out io.Writer, text string) error {
	_, err := io.WriteString(out, text)
	return err
}

// numbers reads whole numbers over 0 with commas between them.
func numbers(text string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a whole number over 0", part)
		}
		out = append(out, n)
	}
	return out, nil
}

// insert puts the tables between the two marks of a document.
func insert(path, tables string) error {
	const begin, end = "<!-- bench -->\n", "<!-- /bench -->"
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s has no %q and %q", path, strings.TrimSpace(begin), end)
	}
	return os.WriteFile(path, []byte(before+begin+tables+end+after), 0o644)
}

// waitUntilIdle pauses after one of ours, until the machine has been idle twice in a
// row: what was decided is stored from the spool at leisure, and that is not to
// fall into the measurement of another.
func (o options) waitUntilIdle(name string) {
	if !strings.HasPrefix(name, "gatehouse") {
		return
	}
	time.Sleep(o.rest)
	for calm, until := 0, time.Now().Add(o.calm); calm < 2 && time.Now().Before(until); {
		if calm++; busy(250*time.Millisecond) > 0.1 {
			calm = 0
		}
	}
}

// busy is the share of the processors' time that was used over a while; 0 where
// the system does not tell.
func busy(while time.Duration) float64 {
	used0, all0 := processorTime()
	time.Sleep(while)
	used, all := processorTime()
	return (used - used0) / max(all-all0, 1)
}

func processorTime() (used, all float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(strings.TrimPrefix(line, "cpu")) {
		n, _ := strconv.ParseFloat(f, 64)
		all += n
		if i != 3 && i != 4 { // idle, waiting for the disk
			used += n
		}
	}
	return used, all
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func median(runs []figures, of func(figures) float64) float64 {
	var all []float64
	for _, f := range runs {
		all = append(all, of(f))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func pairedMedian(runs, base []figures, of func(a, b figures) float64) float64 {
	var all []float64
	for i := range runs {
		all = append(all, of(runs[i], base[i]))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// cpuName is what the kernel calls the processor; "unknown" where it does not say.
func cpuName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// ask sends one request of a target and gives the body of the answer.
func ask(t decisionTarget, i int) ([]byte, error) {
	conn, err := net.Dial("tcp", t.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write(t.requests[i%len(t.requests)]); err != nil {
		return nil, err
	}
	var got []byte
	for piece := make([]byte, 16<<10); ; {
		n, err := conn.Read(piece)
		got = append(got, piece[:n]...)
		status, body, whole, wrong := parseAnswer(got)
		switch {
		case whole:
			return body, t.accept(status, body)
		case wrong != nil:
			return nil, wrong
		case err != nil:
			return nil, err
		}
	}
}

// found reports whether a program can be run.
func found(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

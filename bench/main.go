// Command bench compares gatehouse with other servers, in one run on one machine: with a stock OPA
// for decisions, and with a bare reverse proxy, nginx (auth_request) and Caddy (forward_auth) for
// the bouncer. It prints Markdown tables. docs/benchmarks.md has the tables of one run.
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

// options are the flags.
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
	be := flag.String("be", "", "serve as the application, the proxy or the adapter of a run, and do nothing else")
	listen := flag.String("listen", "", "address of that server")
	upstream := flag.String("upstream", "", "server that it calls")
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

// parts are what can be measured, in the order of the tables. A run without -only measures those
// that are usual. Each keeps its files in dir.
var parts = []struct {
	name    string
	usual   bool
	measure func(ctx context.Context, o options, dir string) (table string, err error)
}{
	{"decisions", true, benchDecisions},
	{"growth", true, benchGrowth},
	{"proxies", true, benchProxies},
	{"versions", false, benchVersions},
	{"webhooks", false, benchWebhooks},
	{"siem", false, benchSIEM},
	{"tenants", false, benchTenants},
	{"moves", false, benchMoves},
}

func run(ctx context.Context, o options, out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s on %s, %d cores, %s/%s, %s; %d rounds of %s in alternation, medians, paired ratios; load generator on the same cores.\n",
		time.Now().UTC().Format("2006-01-02"), cpuName(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), o.rounds, o.length)
	measured := false
	for _, p := range parts {
		if o.only != p.name && (o.only != "" || !p.usual) {
			continue
		}
		measured = true
		dir, err := os.MkdirTemp("", "gatehouse-bench-")
		if err != nil {
			return err
		}
		table, err := p.measure(ctx, o, dir)
		b.WriteString(table)
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
			return errors.Join(err, writeTo(out, b.String()))
		}
	}
	if !measured {
		return fmt.Errorf("-only: there is no part %q", o.only)
	}
	if err := writeTo(out, b.String()); err != nil || o.write == "" {
		return err
	}
	return insert(o.write, b.String())
}

func writeTo(out io.Writer, text string) error {
	_, err := io.WriteString(out, text)
	return err
}

// numbers reads positive whole numbers, separated by commas.
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

// insert replaces what is between the two marks of a document with the tables.
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

// waitUntilIdle pauses after a measurement of gatehouse, until the machine was idle twice in a row.
// Decisions are stored from the spool later, which must not disturb the next measurement.
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

// busy returns the share of the processors' time that is used over a period; 0 if the system does
// not say.
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

// median returns the median of a figure.
func median(runs []figures, of func(figures) float64) float64 {
	var all []float64
	for _, f := range runs {
		all = append(all, of(f))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// pairedMedian returns the median of a ratio, over the rounds.
func pairedMedian(runs, base []figures, of func(a, b figures) float64) float64 {
	var all []float64
	for i := range runs {
		all = append(all, of(runs[i], base[i]))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// cpuName returns the kernel's name for the processor.
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

// ask sends one request to a target and returns the body of the answer.
func ask(t target, i int) ([]byte, error) {
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
			return body, wantOK(status, body)
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

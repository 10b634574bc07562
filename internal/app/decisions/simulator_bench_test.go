package decisions_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// hundredLines is a control of a hundred lines, as authors write them.
func hundredLines() string {
	var b strings.Builder
	b.WriteString("package hundred\n\ndefault allow := false\n\n")
	for i := range 15 {
		fmt.Fprintf(&b, "# the %dth case\nallow if {\n\tinput.user.role == \"role-%d\"\n\tinput.action.method in {\"GET\", \"HEAD\"}\n\tinput.user.clearance >= %d\n}\n", i, i, i%5)
	}
	b.WriteString("\nmask[path] := \"redact\" if {\n\tsome path in {\"ssn\", \"salary\"}\n\tnot input.user.cleared\n}\n")
	return b.String()
}

// median runs f n times after three to warm up and reports the median.
func median(b *testing.B, f func()) {
	b.Helper()
	for range 3 {
		f()
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		f()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
}

// BenchmarkWorkbench is what an author waits for, over HTTP, with a control of a
// hundred lines: simulate with its trace (the aim: 15 ms), validate with the
// linter (150 ms); and validate without it, which only create and update ask
// for, in this process with a worker (30 ms).
func BenchmarkWorkbench(b *testing.B) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		b.Run(backend, func(b *testing.B) {
			s := apptest.StartServer(b, backend)
			source := hundredLines()
			id := s.Admin.Do(b, "POST", "/policies", body{"name": "hundred", "rego_code": source}).Want(201).ID()
			path := fmt.Sprintf("/pis/policies/%d/simulate?environment=sandbox", id)
			for name, user := range map[string]body{"allowed": {"role": "role-9", "clearance": 4}, "denied": {"role": "intern", "clearance": 4}} {
				in := body{"input_json": body{"user": user, "action": body{"method": "GET"}}}
				b.Run("simulate "+name, func(b *testing.B) {
					median(b, func() { s.Admin.Do(b, "POST", path, in).Want(200) })
				})
			}
			b.Run("validate with linter", func(b *testing.B) {
				median(b, func() { s.Admin.Do(b, "POST", "/policies/validate", body{"rego_code": source}).Want(200) })
			})
		})
	}
	b.Run("validate without linter", func(b *testing.B) {
		p := worker.NewPool(worker.Defaults(apptest.Binary(b), "worker"))
		defer p.Close()
		if lines := strings.Count(hundredLines(), "\n"); lines < 98 || lines > 102 {
			b.Fatalf("%d lines", lines)
		}
		median(b, func() {
			if v, err := p.Check(b.Context(), scope.DefaultTenant, hundredLines()); err != nil || !v.Valid {
				b.Fatalf("%+v, %v", v, err)
			}
		})
	})
}

package decisions_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// hundredLines returns a control of a hundred lines.
func hundredLines() string {
	var b strings.Builder
	b.WriteString("package hundred\n\ndefault allow := false\n\n")
	for i := range 15 {
		fmt.Fprintf(&b, "# the %dth case\nallow if {\n\tinput.user.role == \"role-%d\"\n\tinput.action.method in {\"GET\", \"HEAD\"}\n\tinput.user.clearance >= %d\n}\n", i, i, i%5)
	}
	b.WriteString("\nmask[path] := \"redact\" if {\n\tsome path in {\"ssn\", \"salary\"}\n\tnot input.user.cleared\n}\n")
	return b.String()
}

// median runs f, after three runs to warm up, and reports the median and the 95th percentile.
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

// BenchmarkWorkbench measures what an author waits for, with a control of a hundred lines: a simulation
// with its trace over HTTP (the goal is 15 ms), a validation with the linter over HTTP (150 ms), and an
// update, which is checked without it (30 ms).
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
			b.Run("update", func(b *testing.B) {
				n := 0
				median(b, func() {
					n++
					s.Admin.Do(b, "PUT", fmt.Sprintf("/policies/%d", id), body{"rego_code": fmt.Sprint(source, "# ", n, "\n")}).Want(200)
				})
			})
		})
	}
}

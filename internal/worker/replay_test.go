package worker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
)

// replaySpec compares a control with an edit of it, on one resource of many.
func replaySpec(base, cand string, resources int) compare.Spec {
	s := compare.Spec{
		Env: "production", Samples: 20, Deadline: 250 * time.Millisecond,
		Controls: []compare.Control{
			{Meta: rego.Meta{ID: 1, Name: "docs", Version: 1}, Source: base},
			{Meta: rego.Meta{ID: 1, Name: "docs", Version: 2}, Source: cand},
		},
		Mixes:  []compare.ControlLists{{Baseline: []int{0}, Candidate: []int{1}}},
		Epochs: []compare.Epoch{{}},
	}
	for i := range resources {
		s.Resources = append(s.Resources, target.Resource{
			ID: int64(i + 1), Name: fmt.Sprint("r", i), Type: "api", Path: fmt.Sprintf("/docs/%d/**", i),
			Doc: value.Object(value.Member{Key: "id", Value: value.Int(int64(i + 1))}, value.Member{Key: "data_classification", Value: value.String("internal")}),
		})
	}
	return s
}

// recordedLine returns an entry of the decision log in its stored form, about 900 bytes long.
func recordedLine(i int) []byte {
	return fmt.Appendf(nil, `{"decision_id":"01936f6e-0000-7000-8000-%012d","timestamp":"2026-11-21T12:00:00.123456Z","user":{"id":"u%d","email":"u%d@example.com"},"resource":{"type":"api","path":"/docs/%d/page"},"action":"read","decision":"PERMIT","effect":"ALLOW","policy_id":1,"policy_name":"docs","policy_version":1,"reason":"Allowed by control docs","evaluation_time_ms":0.004,"ip_address":"10.0.0.%d","environment":"production","resource_id":%d,"request_id":"r-%d","cache_hit":false,"revision":12,"audit_level":"detailed","input":{"user":{"id":"u%d","email":"u%d@example.com","roles":["staff","reader"],"department":"sales","attributes":{"clearance":%d,"region":"eu"}},"action":{"name":"read","method":"GET"},"resource":{"type":"api","path":"/docs/%d/page","attributes":{"owner":"u%d"}},"context":{"ip_address":"10.0.0.%d","timestamp":"2026-11-21T12:00:00Z","request_id":"r-%d"}}}`,
		i, i%500, i%500, i%100, i%250, i%100+1, i, i%500, i%500, i%5, i%100, i%7, i%250, i)
}

// recordedLines returns n entries of the decision log.
func recordedLines(n int) (lines [][]byte) {
	for i := range n {
		lines = append(lines, recordedLine(i))
	}
	return lines
}

const (
	docsBase = `package docs

default allow := false

allow if {
	"reader" in input.user.roles
	input.action.method in {"GET", "HEAD"}
}

allow if input.user.id == input.resource.attributes.owner

deny contains "internal only" if {
	input.resource.data_classification == "restricted"
	input.user.attributes.region != "eu"
}
`
	docsEdit = docsBase + `
deny contains "clearance" if {
	input.user.attributes.clearance < 1
	endswith(input.user.email, "7@example.com")
}
`
)

// A replay finds which recorded decisions an edit of a control changes, and the rule that does it.
func TestReplay(t *testing.T) {
	p := pool(t)
	r, err := p.Replay(t.Context(), "default", replaySpec(docsBase, docsEdit, 300))
	errtest.Must(t, err)
	defer r.Close()
	lines := recordedLines(1000)
	sum := &compare.Part{}
	for left := lines; len(left) > 0; {
		part, err := r.Run(t.Context(), left)
		errtest.Must(t, err)
		sum.Add(part, 5)
		left = left[part.Lines:]
	}
	// clearance 0 requires i%10 == 7 and i%5 == 0, which never holds, so the edit changes no
	// decision.
	if sum.Evaluated != 1000 || sum.Changed != 0 || sum.Drifted != 0 || len(sum.ByResource) != 100 {
		t.Errorf("the sum is %+v, want 1000 decisions on 100 resources without a change", sum)
	}
	strict, err := p.Replay(t.Context(), "default", replaySpec(docsBase, strings.ReplaceAll(docsEdit, "7@", "5@"), 300))
	errtest.Must(t, err)
	defer strict.Close()
	part, err := strict.Run(t.Context(), lines[:100])
	if err != nil || part.NewlyBlocked != 10 || len(part.Rules) != 1 || part.Rules[0].Rule.Rule != "deny" || part.Rules[0].Line != 17 || part.Samples[0].After.Reason != "clearance" {
		t.Errorf("a stricter control: %+v, %v, want 10 blocked by the deny in line 17", part, err)
	}
	_, err = p.Replay(t.Context(), "another", replaySpec(docsBase, "package docs\n\nallow if nothing(1)\n", 1))
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("a control that does not compile: %v, want Invalid", err)
	}
}

// TestReplayHostile checks that a program that does not end, or exceeds a limit, ends only its own
// replay, and that the child ends if the caller disconnects.
func TestReplayHostile(t *testing.T) {
	fulltest.Only(t)
	p := pool(t)
	memory := "package docs\n\nallow if count([x | some i in numbers.range(1, 30000000); x := sprintf(\"%d-%d\", [i, i])]) > 0\n"
	s := replaySpec(docsBase, memory, 1)
	s.Deadline = time.Minute
	r, err := p.Replay(t.Context(), "default", s)
	errtest.Must(t, err)
	part, err := r.Run(t.Context(), [][]byte{recordedLine(1)})
	if err == nil && part.WouldBlock != 1 || err != nil && !fault.Is(err, fault.Invalid) {
		t.Errorf("too much memory: %+v, %v, want a block or Invalid", part, err)
	}
	r.Close()
	loop := "package docs\n\nxs := numbers.range(1, 3000)\n\nallow if {\n\tsome i in xs\n\tsome j in xs\n\tsome k in xs\n\ti + j + k < 0\n}\n"
	s = replaySpec(docsBase, loop, 1)
	s.Deadline = time.Minute
	if r, err = p.Replay(t.Context(), "default", s); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err = r.Run(ctx, [][]byte{recordedLine(1)}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a caller that disconnects: %v, want Unavailable", err)
	}
	r.Close()
	// All slots are free again.
	for range 2 * replaysAtOnce {
		r, err := p.Replay(t.Context(), "default", replaySpec(docsBase, docsBase, 1))
		errtest.Must(t, err)
		r.Close()
	}
}

// BenchmarkReplayPast replays over 100,000 resources, of which 20,000 changed in the window, 200 at
// a time. It prints the same figures as BenchmarkReplay. The worker holds only the differences.
func BenchmarkReplayPast(b *testing.B) {
	const resources, epochs, each = 100_000, 100, 200
	s := replaySpec(docsBase, docsEdit, resources)
	s.Epochs = nil
	for i := range epochs {
		s.Epochs = append(s.Epochs, compare.Epoch{Revision: int64(epochs - i)})
		for j := range each {
			if i > 0 {
				s.Past = append(s.Past, compare.Past{Epoch: i, ID: int64(i*each+j) + 1, Doc: &s.Resources[i*each+j]})
			}
		}
	}
	r, err := pool(b).Replay(b.Context(), "default", s)
	errtest.Must(b, err)
	defer r.Close()
	var lines [][]byte
	for i := range 200 * epochs {
		lines = append(lines, bytes.Replace(recordedLine(i), []byte(`"revision":12`), fmt.Appendf(nil, `"revision":%d`, epochs-i/200), 1))
	}
	replayAll(b, r, lines)
}

// BenchmarkReplay prints the decisions per second, and the peak memory of the child.
func BenchmarkReplay(b *testing.B) {
	r, err := pool(b).Replay(b.Context(), "default", replaySpec(docsBase, docsEdit, 10_000))
	errtest.Must(b, err)
	defer r.Close()
	replayAll(b, r, recordedLines(1000))
}

// replayAll replays lines in steps. It prints the decisions per second, and the peak memory of the child.
func replayAll(b *testing.B, r *Replay, lines [][]byte) {
	b.Helper()
	n := 0
	b.ResetTimer()
	for b.Loop() {
		for left := lines; len(left) > 0; {
			part, err := r.Run(b.Context(), left[:min(len(left), 2000)])
			errtest.Must(b, err)
			left = left[part.Lines:]
			n += part.Lines
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "decisions/s")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.proc.cmd.Process.Pid))
	if err != nil {
		b.Skip("there is no process table")
	}
	for l := range strings.Lines(string(status)) {
		var kib float64
		if _, err := fmt.Sscanf(l, "VmHWM: %f kB", &kib); err == nil {
			b.ReportMetric(kib/1024, "child-peak-MiB")
		}
	}
}

package native

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

var update = flag.Bool("update", false, "write testdata/conformance.txt and the table in docs/rego.md anew")

// listing says of each of OPA's own cases whether it runs (native), needs something that is
// rejected when a control is stored (refused), or is not about controls (other). It is kept as a
// file, to show cases that change, and as a table in docs/rego.md.
type listing struct {
	lines  []string
	counts map[string]*[3]int // by the group of the case
}

var columns = []string{"native", "refused", "other"}

func (l *listing) add(note, where, why string) {
	line := where + " " + strings.Join(strings.Fields(note), " ")
	if why != "" {
		line += " (" + why + ")"
	}
	l.lines = append(l.lines, line)
	if l.counts == nil {
		l.counts = map[string]*[3]int{}
	}
	group, _, _ := strings.Cut(note, "/")
	if l.counts[group] == nil {
		l.counts[group] = &[3]int{}
	}
	l.counts[group][slices.Index(columns, where)]++
}

const (
	listingFile = "testdata/conformance.txt"
	listingDoc  = "../../../docs/rego.md"
	tableStart  = "<!-- conformance: go test ./internal/rego/native -run Conformance -update -->\n"
	tableEnd    = "<!-- end of conformance -->\n"
)

func (l *listing) check(t *testing.T) {
	t.Helper()
	slices.Sort(l.lines)
	text := strings.Join(l.lines, "\n") + "\n"
	doc, err := os.ReadFile(listingDoc)
	errtest.Must(t, err)
	before, rest, ok1 := strings.Cut(string(doc), tableStart)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", listingDoc)
	}
	whole := before + tableStart + l.table() + tableEnd + after
	if *update {
		errtest.Must(t, os.MkdirAll("testdata", 0o755))
		errtest.Must(t, os.WriteFile(listingFile, []byte(text), 0o600))
		errtest.Must(t, os.WriteFile(listingDoc, []byte(whole), 0o600))
		return
	}
	if old, err := os.ReadFile(listingFile); err != nil || string(old) != text {
		t.Errorf("%s is not what runs where: if the change is meant, run go test ./internal/rego/native -run Conformance -update (%v)", listingFile, err)
	}
	if whole != string(doc) {
		t.Errorf("the table of %s is not what runs where: go test ./internal/rego/native -run Conformance -update", listingDoc)
	}
}

func (l *listing) table() string {
	var b strings.Builder
	b.WriteString("| Group | Runs | Refused | No control |\n|---|---|---|---|\n")
	var groups []string
	for g := range l.counts {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	var sum [3]int
	for _, g := range groups {
		n := l.counts[g]
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", g, n[0], n[1], n[2])
		for i := range sum {
			sum[i] += n[i]
		}
	}
	fmt.Fprintf(&b, "| **all** | **%d** | **%d** | **%d** |\n", sum[0], sum[1], sum[2])
	return b.String()
}

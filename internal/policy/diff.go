package policy

import (
	"fmt"
	"slices"
	"strings"
)

// diffCells is the largest size of the comparison table. For larger texts, the diff shows all
// lines between the first and the last change as one block.
const diffCells = 4 << 20

// diffContext is how many unchanged lines surround a change.
const diffContext = 3

// edit is one line of a comparison: ' ', '-' or '+'.
type edit struct {
	op   byte
	line string
}

// Unified returns a unified diff of two texts with these names; empty if they are equal.
func Unified(nameA, nameB, a, b string) string {
	if a == b {
		return ""
	}
	edits := editScript(lines(a), lines(b))
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", nameA, nameB)
	lineA, lineB := 1, 1
	for i := 0; i < len(edits); {
		if edits[i].op == ' ' && !isNearEdit(edits, i) {
			lineA, lineB, i = lineA+1, lineB+1, i+1
			continue
		}
		var body strings.Builder
		startA, startB, end := lineA, lineB, i
		for end < len(edits) && (edits[end].op != ' ' || isNearEdit(edits, end)) {
			e := edits[end]
			fmt.Fprintf(&body, "%c%s\n", e.op, e.line)
			if e.op != '+' {
				lineA++
			}
			if e.op != '-' {
				lineB++
			}
			end++
		}
		fmt.Fprintf(&out, "@@ -%s +%s @@\n%s", span(startA, lineA-startA), span(startB, lineB-startB), body.String())
		i = end
	}
	return out.String()
}

// span returns a hunk's range; an empty one names the line before it.
func span(start, n int) string {
	if n == 0 {
		start--
	}
	return fmt.Sprintf("%d,%d", start, n)
}

// isNearEdit reports whether a change is within diffContext lines of line i.
func isNearEdit(edits []edit, i int) bool {
	for j := max(0, i-diffContext); j <= min(len(edits)-1, i+diffContext); j++ {
		if edits[j].op != ' ' {
			return true
		}
	}
	return false
}

func lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// editScript returns the edits that turn a into b. It skips the common lines at the beginning and the
// end, and compares the rest by longest common subsequence.
func editScript(a, b []string) []edit {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out []edit
	add := func(op byte, ls ...string) {
		for _, l := range ls {
			out = append(out, edit{op, l})
		}
	}
	add(' ', a[:head]...)
	midA, midB := a[head:len(a)-tail], b[head:len(b)-tail]
	if len(midA)*len(midB) > diffCells {
		add('-', midA...)
		add('+', midB...)
	} else {
		out = append(out, middleEdits(midA, midB)...)
	}
	add(' ', a[len(a)-tail:]...)
	return out
}

// middleEdits returns the edits that turn a into b, from a table of longest common subsequences.
func middleEdits(a, b []string) []edit {
	width := len(b) + 1
	table := make([]int32, (len(a)+1)*width)
	for i, x := range slices.Backward(a) {
		for j, y := range slices.Backward(b) {
			if x == y {
				table[i*width+j] = table[(i+1)*width+j+1] + 1
			} else {
				table[i*width+j] = max(table[(i+1)*width+j], table[i*width+j+1])
			}
		}
	}
	var out []edit
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			out = append(out, edit{' ', a[i]})
			i, j = i+1, j+1
		case table[(i+1)*width+j] >= table[i*width+j+1]:
			out = append(out, edit{'-', a[i]})
			i++
		default:
			out = append(out, edit{'+', b[j]})
			j++
		}
	}
	for ; i < len(a); i++ {
		out = append(out, edit{'-', a[i]})
	}
	for ; j < len(b); j++ {
		out = append(out, edit{'+', b[j]})
	}
	return out
}

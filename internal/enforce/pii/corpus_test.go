package pii

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// tally counts the results of a category.
type tally struct{ wanted, missed, lines, wrong int }

// TestCorpus measures, for the corpus in testdata, how many of its marks are missed (not covered
// completely), and in how many texts something else is found. docs/ai.md states the figures, which
// may not get worse.
func TestCorpus(t *testing.T) { measure(t, "corpus.txt", 500, 9, 1) }

// TestHeldOutCorpus is the same for texts that were not used to improve the detectors.
func TestHeldOutCorpus(t *testing.T) { measure(t, "heldout2.txt", 100, 14, 1) }

// TestFormerHeldOutCorpus is the same for texts that were held out once, and used to improve the
// detectors later.
func TestFormerHeldOutCorpus(t *testing.T) { measure(t, "heldout.txt", 100, 6, 1) }

// measure evaluates a corpus with at least `least` cases, of which mayMiss per cent may be missed
// and mayErr per cent wrong.
func measure(t *testing.T, name string, least int, mayMiss, mayErr float64) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	errtest.Must(t, err)
	var by [kinds]tally
	cases := 0
	for line := range strings.Lines(string(data)) {
		category, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || line[0] == '#' {
			continue
		}
		cases++
		text, marks := unmark(strings.ReplaceAll(text, `\n`, "\n"))
		own, marked := Category(category)
		for k := range kinds {
			spans, _ := Set(0).With(k).Scan(nil, []byte(text), 0, true)
			by[k].lines++
			if marked && k == own {
				for _, m := range marks {
					by[k].wanted++
					if !slices.ContainsFunc(spans, func(s Span) bool { return s.Start <= m.Start && s.End >= m.End }) {
						by[k].missed++
						t.Logf("missed %s: %q in %q", k, text[m.Start:m.End], text)
					}
				}
				// Findings beside the marks, or well beyond one, are wrong.
				spans = slices.DeleteFunc(spans, func(s Span) bool {
					return slices.ContainsFunc(marks, func(m Span) bool { return s.Start >= m.Start-12 && s.End <= m.End+2 && s.Start < m.End })
				})
			}
			if len(spans) > 0 {
				by[k].wrong++
				t.Logf("found %s in %q: %q", k, text, text[spans[0].Start:spans[0].End])
			}
		}
	}
	if cases < least {
		t.Errorf("only %d cases", cases)
	}
	var all tally
	report := fmt.Sprintf("%d cases\n%-15s %6s %6s %7s %6s %7s\n", cases, "category", "marked", "missed", "", "wrong", "")
	line := func(name string, v tally) {
		report += fmt.Sprintf("%-15s %6d %6d %6.1f%% %6d %6.1f%%\n", name, v.wanted, v.missed, 100*float64(v.missed)/float64(v.wanted), v.wrong, 100*float64(v.wrong)/float64(v.lines))
	}
	for k, v := range by {
		line(Kind(k).String(), v)
		all = tally{all.wanted + v.wanted, all.missed + v.missed, all.lines + v.lines, all.wrong + v.wrong}
	}
	line("all", all)
	t.Log(report)
	if miss, wrong := 100*float64(all.missed)/float64(all.wanted), 100*float64(all.wrong)/float64(all.lines); miss > mayMiss || wrong > mayErr {
		t.Errorf("%.1f%% missed, %.1f%% wrong", miss, wrong)
	}
}

// unmark removes the brackets from a text, and returns what was inside.
func unmark(s string) (text string, marks []Span) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "[")
		b.WriteString(before)
		if !ok {
			return b.String(), marks
		}
		inner, after, _ := strings.Cut(rest, "]")
		marks = append(marks, Span{Start: b.Len(), End: b.Len() + len(inner)})
		b.WriteString(inner)
		s = after
	}
}

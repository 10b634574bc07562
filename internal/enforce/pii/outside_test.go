package pii

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestOutsideCorpus measures the detectors on texts that others wrote and marked: the synthetic
// data of microsoft/presidio-research (MIT), of which no copy is kept here. GATEHOUSE_CORPORA names
// a directory with a checkout of that repository. The texts come from templates. Half of the
// templates may be used to improve the detectors, and the test prints the mistakes of only those.
// docs/ai.md states the figures.
func TestOutsideCorpus(t *testing.T) {
	root := os.Getenv("GATEHOUSE_CORPORA")
	if root == "" {
		t.Skip("GATEHOUSE_CORPORA names no directory")
	}
	data, err := os.ReadFile(filepath.Join(root, "presidio-research/data/synth_dataset_v2.json"))
	errtest.Must(t, err)
	var texts []struct {
		Text     string `json:"full_text"`
		Template int    `json:"template_id"`
		Spans    []struct {
			Type  string `json:"entity_type"`
			Value string `json:"entity_value"`
			Start int    `json:"start_position"`
			End   int    `json:"end_position"`
		} `json:"spans"`
	}
	errtest.Must(t, json.Unmarshal(data, &texts))
	types := map[string]string{
		"PERSON": "names", "EMAIL_ADDRESS": "emails", "CREDIT_CARD": "card_numbers", "US_SSN": "ssn", "PHONE_NUMBER": "phones", "STREET_ADDRESS": "addresses",
	}
	// Any mark covers a finding: a street in an organisation's address is not a mistake.
	var by [2][kinds]tally
	for _, text := range texts {
		half := text.Template & 1
		runes := []rune(text.Text)
		place := func(i int) int { return len(string(runes[:i])) }
		for k := range kinds {
			spans, _ := Set(0).With(k).Scan(nil, []byte(text.Text), 0, true)
			tally := &by[half][k]
			tally.lines++
			for _, mark := range text.Spans {
				if types[mark.Type] != k.String() {
					continue
				}
				tally.wanted++
				start, end := place(mark.Start), place(mark.End)
				if !slices.ContainsFunc(spans, func(s Span) bool { return s.Start <= start && s.End >= end }) {
					tally.missed++
					if half == 0 {
						t.Logf("MISTAKE missed %s: %q in %q", k, mark.Value, text.Text)
					}
				}
			}
			spans = slices.DeleteFunc(spans, func(s Span) bool {
				for _, mark := range text.Spans {
					if s.Start < place(mark.End) && s.End > place(mark.Start) {
						return true
					}
				}
				return false
			})
			if len(spans) > 0 {
				tally.wrong++
				if half == 0 {
					t.Logf("MISTAKE found %s: %q in %q", k, text.Text[spans[0].Start:spans[0].End], text.Text)
				}
			}
		}
	}
	for half, name := range []string{"learned from", "held out"} {
		for k, v := range by[half] {
			if v.lines > 0 {
				t.Logf("%-12s %-15s %4d marked, %4d missed; wrong in %d of %d texts", name, Kind(k), v.wanted, v.missed, v.wrong, v.lines)
			}
		}
	}
}

// TestFormsOfOthers are forms from that half of the corpus, in texts of our own. What is in
// brackets must be found completely.
func TestFormsOfOthers(t *testing.T) {
	for _, tc := range []struct {
		kind, text string
	}{
		{"card_numbers", "my old JCB card [213112345678904] still works"},
		{"card_numbers", "and this one: [180012345678905]"},
		{"phones", "Fax: [415-555-2671x458]"},
		{"phones", "Desk: [+1-415-555-2671x0135]"},
		{"names", "My name is [Oyelaran]"},
		{"names", "Her maiden name is [Quistgaard]"},
		{"names", "Je m'appelle [Solveig]"},
	} {
		text, marks := unmark(tc.text)
		kind, _ := Category(tc.kind)
		spans, _ := Set(0).With(kind).Scan(nil, []byte(text), 0, true)
		if len(spans) != 1 || spans[0].Start != marks[0].Start || spans[0].End != marks[0].End {
			t.Errorf("%q: %v, want %v", tc.text, spans, marks)
		}
	}
	for _, text := range []string{"the product name is Azure", "version 3560x4587 of the map", "number 213112345678908"} {
		for k := range kinds {
			if spans, _ := Set(0).With(k).Scan(nil, []byte(text), 0, true); len(spans) > 0 {
				t.Errorf("%s in %q: %v", k, text, spans)
			}
		}
	}
}

package devdocs

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/contract"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

var spoken = []string{"en", "es", "fr"}

// values matches the placeholders of values in a text.
var values = regexp.MustCompile(`\{\d\}`)

// TestWords: all languages have the same keys with the same placeholders, no text is empty, and
// there are texts for all areas, facts and kinds of changes.
func TestWords(t *testing.T) {
	english, err := readWords("en")
	errtest.Must(t, err)
	for _, lang := range spoken {
		words, err := readWords(lang)
		errtest.Must(t, err)
		for _, key := range slices.Sorted(maps.Keys(english)) {
			text := words[key]
			if strings.TrimSpace(text) == "" {
				t.Errorf("messages in %s have no text for %q", lang, key)
			}
			if got, want := sortedMatches(text), sortedMatches(english[key]); !slices.Equal(got, want) {
				t.Errorf("%s, %q: values %v, want %v", lang, key, got, want)
			}
			if strings.Count(text, "`") != strings.Count(english[key], "`") {
				t.Errorf("message %q in %s has other code than in English", key, lang)
			}
		}
		for key := range words {
			if _, ok := english[key]; !ok {
				t.Errorf("messages in %s have %q, which English does not have", lang, key)
			}
		}
	}
	for _, op := range golden(t) {
		if english["area."+op.AreaID] == "" {
			t.Errorf("the tag %q (%s) has no message: add area.%s to messages/{en,es,fr}.json", op.Area, op.ID, op.AreaID)
		}
		if op.Reach != "" && english["reach."+op.Reach] == "" {
			t.Errorf("the reach %q (%s) has no message", op.Reach, op.ID)
		}
	}
	for _, kind := range contract.Kinds {
		if english["change."+string(kind)] == "" {
			t.Errorf("the change %s has no message", kind)
		}
	}
}

func sortedMatches(text string) []string {
	all := values.FindAllString(text, -1)
	slices.Sort(all)
	return slices.Compact(all)
}

// TestUsedWords: the script has all the texts that it uses, and there are no unused ones.
func TestUsedWords(t *testing.T) {
	words, err := readWords("en")
	errtest.Must(t, err)
	script, err := files.ReadFile("static/docs.js")
	errtest.Must(t, err)
	asked := map[string]bool{}
	for _, m := range regexp.MustCompile(`say\(\s*(?:right \? )?"(\w+)"(?: : "(\w+)")?`).FindAllSubmatch(script, -1) {
		asked[string(m[1])] = true
		asked[string(m[2])] = true
	}
	delete(asked, "")
	for name := range asked {
		if words["js."+name] == "" {
			t.Errorf("the script uses the message %q, which does not exist", name)
		}
	}
	for key := range words {
		if name, ok := strings.CutPrefix(key, "js."); ok && !asked[name] {
			t.Errorf("the script does not use the message %q", name)
		}
	}
}

// mayWait is how many new errors may lack translations for a while, because the author of an error
// need not speak the other languages. Readers see such a row in English.
const mayWait = 5

// TestErrorWords: the texts of docs/errors.md have translations in each language, and there are no
// unused ones.
func TestErrorWords(t *testing.T) {
	for _, lang := range spoken[1:] {
		var texts faultTexts
		errtest.Must(t, readJSON("errors/"+lang+".json", &texts))
		rows, sections := map[string]bool{}, map[string]bool{}
		shapes := map[string]bool{}
		all := errorsPage(t)
		for _, s := range all.sections {
			sections[s.Title] = true
			for _, r := range s.Rows {
				rows[r.key] = true
			}
		}
		for _, s := range all.shapes {
			for _, text := range []string{string(s.Where), string(s.Body)} {
				if strings.Trim(regexp.MustCompile("`[^`]*`").ReplaceAllString(text, ""), " ,") != "" {
					shapes[text] = true // it has more than code
				}
			}
		}
		compare(t, lang+", rows of docs/errors.md, by their first code", mayWait, rows, texts.Rows)
		compare(t, lang+", titles of docs/errors.md", 0, sections, texts.Sections)
		compare(t, lang+", forms of error bodies in docs/errors.md", 0, shapes, texts.Shapes)
	}
}

func compare(t *testing.T, what string, most int, want map[string]bool, got map[string]string) {
	t.Helper()
	var missing []string
	for key := range want {
		if got[key] == "" {
			missing = append(missing, key)
		}
	}
	if slices.Sort(missing); len(missing) > most {
		t.Errorf("%s: internal/devdocs/errors has no text for %q", what, missing)
	} else if len(missing) > 0 {
		t.Logf("%s: no words yet in internal/devdocs/errors for %q", what, missing)
	}
	for key := range got {
		if !want[key] {
			t.Errorf("%s: internal/devdocs/errors has a text for the unknown %q", what, key)
		}
	}
}

func errorsPage(t *testing.T) *faults {
	t.Helper()
	page, err := docsPage("errors.md")
	errtest.Must(t, err)
	all := parseFaults(page)
	rows := 0
	for _, s := range all.sections {
		rows += len(s.Rows)
	}
	if len(all.sections) < 7 || rows < 100 || len(all.shapes) < 6 {
		t.Fatalf("docs/errors.md = %d sections, %d rows, %d forms, want at least 7, 100 and 6: has its form changed?", len(all.sections), rows, len(all.shapes))
	}
	return all
}

// TestGeneralCodes: docs/errors.md has each general code with its status.
func TestGeneralCodes(t *testing.T) {
	known := map[string]bool{}
	for _, s := range errorsPage(t).sections {
		for _, r := range s.Rows {
			for _, c := range r.Codes {
				for _, status := range r.Statuses {
					known[fmt.Sprint(status, c.Name)] = !s.Elsewhere || known[fmt.Sprint(status, c.Name)]
				}
			}
		}
	}
	for status, codes := range general {
		for _, code := range codes {
			if !known[fmt.Sprint(status, code)] {
				t.Errorf("docs/errors.md has no %s at %d", code, status)
			}
		}
	}
}

// TestGuides: each guide has the same code and headings in each language.
func TestGuides(t *testing.T) {
	shape := func(g *guide) string {
		var out []string
		for line := range strings.Lines(g.text) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "@"):
				out = append(out, line)
			case strings.HasPrefix(line, "#"):
				out = append(out, "heading")
			case strings.HasPrefix(line, "|"):
				out = append(out, "row")
			}
		}
		for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(g.text, -1) {
			out = append(out, m[1])
		}
		return strings.Join(out, "\n")
	}
	english, err := readGuides("en")
	errtest.Must(t, err)
	for _, lang := range spoken[1:] {
		others, err := readGuides(lang)
		errtest.Must(t, err)
		for i, g := range others {
			if got, want := shape(g), shape(english[i]); got != want {
				t.Errorf("%s, %s:\n%s\nin English:\n%s", lang, g.name, got, want)
			}
			if g.title == "" || g.lead == "" || g.lead == english[i].lead {
				t.Errorf("%s, %s: title = %q, lead = %q, want both translated", lang, g.name, g.title, g.lead)
			}
		}
	}
	code, err := guideCode("webhook-verify.go.txt")
	errtest.Must(t, err)
	if _, err := parser.ParseFile(token.NewFileSet(), "verify.go", code, 0); err != nil {
		t.Error(err)
	}
}

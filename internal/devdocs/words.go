package devdocs

import (
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"maps"
	"path"
	"slices"
	"strings"
)

// words are the texts of the pages in one language, by key. {0}, {1} and so on stand for values.
type words map[string]string

func readWords(lang string) (words, error) {
	out := words{}
	err := readJSON(path.Join("messages", lang+".json"), &out)
	return out, err
}

func readJSON(name string, into any) error {
	data, err := files.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("devdocs: %s: %w", name, err)
	}
	return nil
}

// get returns a text with its values.
func (w words) get(key string, values ...any) (string, error) {
	text, ok := w[key]
	if !ok {
		return "", fmt.Errorf("devdocs: there are no words for %q", key)
	}
	for i, v := range values {
		text = strings.ReplaceAll(text, fmt.Sprintf("{%d}", i), fmt.Sprint(v))
	}
	return text, nil
}

// area returns the name of an area, or its tag if there is no word for it.
func (w words) area(tag string) string {
	if name := w["area."+slug(tag)]; name != "" {
		return name
	}
	return tag
}

// script returns the texts of the pages' script as JSON.
func (w words) script() string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(w)) {
		if name, ok := strings.CutPrefix(key, "js."); ok {
			out[name] = w[key]
		}
	}
	return compact(out)
}

// prose converts a text of the document to HTML. It escapes the text, and marks parts between
// backticks as code.
func prose(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		part = html.EscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String()) //nolint:gosec // escaped above
}

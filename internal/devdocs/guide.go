package devdocs

import (
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"

	"github.com/gatehouse-dev/gatehouse/docs"
)

// guideNames are the names of the guides, in the order of the list.
var guideNames = []string{"first-control", "reverse-proxy", "forward-auth", "envoy", "opa", "authzen", "webhooks"}

// guide is a short page in the reader's language. Its code is the same in all languages, and is in
// guides/code or in a page of docs.
type guide struct {
	name, title, lead string
	text              string // below the lead
}

// readGuides reads all guides of a language. A guide begins with a title and one paragraph, the
// lead.
func readGuides(lang string) ([]*guide, error) {
	var out []*guide
	for _, name := range guideNames {
		data, err := files.ReadFile(path.Join("guides", lang, name+".md"))
		if err != nil {
			return nil, err
		}
		title, rest, _ := strings.Cut(string(data), "\n\n")
		lead, text, _ := strings.Cut(rest, "\n\n")
		out = append(out, &guide{name: name, title: strings.TrimPrefix(title, "# "), lead: lead, text: text})
	}
	return out, nil
}

// render renders the guide with its code (@code, @docs) and the form that checks signatures
// (@checker).
func (g *guide) render(e *edition, checker template.HTML) (template.HTML, error) {
	var source strings.Builder
	fmt.Fprintf(&source, "# %s\n\n%s\n\n", g.title, g.lead)
	for line := range strings.Lines(g.text) {
		name, isCode := strings.CutPrefix(strings.TrimSpace(line), "@code ")
		begin, isPage := strings.CutPrefix(strings.TrimSpace(line), "@docs ")
		switch {
		case isCode:
			code, err := guideCode(name)
			if err != nil {
				return "", err
			}
			source.WriteString("````\n" + code + "\n````\n")
		case isPage:
			code, err := docsCode(begin)
			if err != nil {
				return "", err
			}
			source.WriteString("````\n" + code + "\n````\n")
		default:
			source.WriteString(line)
		}
	}
	before, after, found := strings.Cut(source.String(), "@checker\n")
	text, err := e.markdown("").render(before)
	if err != nil || !found {
		return text, err
	}
	rest, err := e.markdown("").render(after)
	return text + checker + rest, err
}

// guideCode returns a file of guides/code.
func guideCode(name string) (string, error) {
	data, err := files.ReadFile(path.Join("guides/code", name))
	return strings.TrimSuffix(string(data), "\n"), err
}

// docsCode returns the first block of code in a page of docs that contains a text. what names both,
// such as "integrations/nginx.md auth_request".
func docsCode(what string) (string, error) {
	name, contains, _ := strings.Cut(what, " ")
	text, err := docsPage(name)
	if err != nil {
		return "", err
	}
	parts := strings.Split(text, "\n```")
	for i := 1; i < len(parts); i += 2 {
		if _, code, _ := strings.Cut(parts[i], "\n"); strings.Contains(code, contains) {
			return strings.TrimSuffix(code, "\n"), nil
		}
	}
	return "", fmt.Errorf("devdocs: no code of docs/%s contains %q", name, contains)
}

// docsPage returns the source of a page of docs.
func docsPage(name string) (string, error) {
	text, err := fs.ReadFile(docs.Pages, name)
	return string(text), err
}

package devdocs

import (
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/docs"
)

// manual lists the pages of docs, sorted by title. They are in English. errors.md is not one of
// them, because it has a page of its own.
func manual() []link {
	var out []link
	_ = fs.WalkDir(docs.Pages, ".", func(name string, d fs.DirEntry, err error) error { // embedded: never fails
		if err == nil && !d.IsDir() && name != "errors.md" {
			text, _ := docsPage(name)
			first, _, _ := strings.Cut(text, "\n")
			out = append(out, link{Path: manualPath(name), Title: strings.TrimPrefix(first, "# ")})
		}
		return nil
	})
	slices.SortFunc(out, func(a, b link) int { return strings.Compare(a.Title, b.Title) })
	return out
}

// manualPath returns the path of a page of docs in the portal.
func manualPath(name string) string { return "manual/" + strings.TrimSuffix(name, ".md") }

func manualText(e *edition, at string) (template.HTML, error) {
	name := strings.TrimPrefix(at, "manual/") + ".md"
	text, err := docsPage(name)
	if err != nil {
		return "", err
	}
	return e.markdown(path.Dir(name)).render(text)
}

// markdown returns the renderer of a page of docs, or of a guide, whose links are relative to dir.
func (e *edition) markdown(dir string) markdown {
	return markdown{copy: e.words["copy"], resolve: func(to string) (string, bool) { return e.resolve(dir, to) }}
}

// resolve returns the address of a link: to another page of docs, to a page of the portal (page:),
// to an operation (op:), to a part of the same page (#), or to another site (https:). It returns
// false if the target does not exist.
func (e *edition) resolve(dir, to string) (string, bool) {
	switch kind, rest, found := strings.Cut(to, ":"); {
	case strings.HasPrefix(to, "#"), found && kind == "https":
		return to, true
	case found && kind == "page":
		at, fragment, _ := strings.Cut(rest, "#")
		_, known := e.known[at]
		return withFragment(href(e.lang, at), fragment), known
	case found && kind == "op":
		for _, a := range e.contents {
			if slices.ContainsFunc(a.Operations, func(op operationLink) bool { return op.ID == rest }) {
				return withFragment(href(e.lang, "reference/"+a.ID), rest), true
			}
		}
		return "", false
	}
	name, fragment, _ := strings.Cut(to, "#")
	name = path.Join(dir, name)
	if name == "errors.md" {
		return withFragment(href(e.lang, "errors"), fragment), true
	}
	_, err := fs.Stat(docs.Pages, name)
	return withFragment(href(e.lang, manualPath(name)), fragment), err == nil && strings.HasSuffix(name, ".md")
}

func withFragment(address, fragment string) string {
	if fragment != "" {
		address += "#" + fragment
	}
	return address
}

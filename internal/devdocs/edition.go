package devdocs

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/contract"
)

// edition is the portal in one language.
type edition struct {
	portal *Portal
	lang   string

	once      sync.Once
	err       error
	words     words
	templates *template.Template
	contents  []*areaLinks
	contract  contract.Metadata
	scopes    []string
	guides    []*guide
	faults    *faults
	known     map[string]pageMaker

	mu    sync.Mutex
	pages map[string]*page // rendered pages, by path
}

// pageMaker sets the content of one page, and returns the name of its template.
type pageMaker func(v *view) (string, error)

// areaLinks has the operations of an area for the table of contents.
type areaLinks struct {
	Name, ID   string
	Operations []operationLink
}

type operationLink struct {
	ID, Method, Verb, Path, Summary string
	// Search is the text that the filter searches, in lower case.
	Search string
}

// view has the values for a template.
type view struct {
	Lang, Title, Lead, Path, URL string
	Body                         template.HTML
	Contract                     contract.Metadata
	Areas                        []*areaLinks
	AreaID                       string
	Count                        int
	Guides                       []link

	Details      []*operationView
	Text         template.HTML
	TextLang     string // set if the text is in another language
	Manual       []link
	Versions     []versionView
	Errors       []*faultSection
	Shapes       []faultShape
	Scopes       []scopeView
	KeyCommand   string
	TokenCommand string
}

type link struct{ Path, Title, Lead string }

type scopeView struct {
	Name   string
	Chosen bool
}

// prepare loads, once, what all pages of the edition share. To save memory, it keeps only the part
// of the document that the table of contents needs. Each page of the reference reads the document
// again.
func (e *edition) prepare() error {
	e.once.Do(func() { e.err = e.load() })
	return e.err
}

func (e *edition) load() error {
	var err error
	if e.words, err = readWords(e.lang); err != nil {
		return err
	}
	if e.guides, err = readGuides(e.lang); err != nil {
		return err
	}
	doc, areas, err := read(e.portal.document(e.lang))
	if err != nil {
		return err
	}
	e.contract = contract.Metadata(doc.Info.Contract)
	for _, a := range areas {
		links := &areaLinks{Name: a.Name, ID: a.ID}
		for _, op := range a.Operations {
			links.Operations = append(links.Operations, linkOf(op))
			for _, scope := range []string{op.Permission, op.AlsoPermission} {
				if scope != "" && !slices.Contains(e.scopes, scope) {
					e.scopes = append(e.scopes, scope)
				}
			}
		}
		e.contents = append(e.contents, links)
	}
	slices.Sort(e.scopes)
	slices.SortFunc(e.contents, func(a, b *areaLinks) int { return strings.Compare(e.words.area(a.Name), e.words.area(b.Name)) })
	e.known = e.pageMakers()
	if e.faults, err = readFaults(e); err != nil {
		return err
	}
	e.templates, err = template.New("").Funcs(e.functions()).ParseFS(files, "page/*.gohtml")
	return err
}

func linkOf(op *operation) operationLink {
	return operationLink{
		ID: op.ID, Method: op.Method, Verb: strings.ToLower(op.Method), Path: op.Path, Summary: op.Summary,
		Search: strings.ToLower(op.Method + " " + op.Path + " " + op.Summary + " " + op.ID),
	}
}

// functions returns the functions that the templates call.
func (e *edition) functions() template.FuncMap {
	return template.FuncMap{
		"t":            e.words.get,
		"area":         e.words.area,
		"prose":        prose,
		"href":         func(path string) string { return href(e.lang, path) },
		"hrefIn":       href,
		"languages":    func() []string { return e.portal.languages },
		"languageName": func(lang string) (string, error) { return e.words.get("language." + lang) },
		"scriptWords":  e.words.script,
		"asset":        e.portal.assetPath,
		"anchor":       func(c faultCode) string { return c.Anchor },
		"item": func(path, title, here string) map[string]any {
			return map[string]any{"Path": path, "Title": title, "Here": path == here}
		},
	}
}

// href returns the address of a page in a language.
func href(lang, path string) string {
	address := Root
	if path != "" {
		address += "/" + path
	}
	return address + "?lang=" + lang
}

func (p *Portal) assetPath(name string) (string, error) {
	all, err := p.assets()
	if err != nil {
		return "", err
	}
	if all.names[name] == "" {
		return "", fmt.Errorf("devdocs: there is no file %q", name)
	}
	return Root + "/assets/" + all.names[name], nil
}

// page returns the page at a path below the root, and its status. If there is none, it returns the
// page for 404.
func (e *edition) page(at string) (*page, int, error) {
	if err := e.prepare(); err != nil {
		return nil, 0, err
	}
	status, maker := http.StatusOK, e.known[at]
	if maker == nil {
		status, at, maker = http.StatusNotFound, "404", e.missing
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pages[at]; p != nil {
		return p, status, nil
	}
	body, err := e.render(at, maker)
	if err != nil {
		return nil, 0, err
	}
	p, err := pack("text/html; charset=utf-8", body)
	if err != nil {
		return nil, 0, err
	}
	e.pages[at] = p
	return p, status, nil
}

func (e *edition) render(at string, fill pageMaker) ([]byte, error) {
	v := &view{Lang: e.lang, Path: at, URL: e.portal.url, Contract: e.contract, Areas: e.contents}
	for _, a := range e.contents {
		v.Count += len(a.Operations)
	}
	for _, g := range e.guides {
		v.Guides = append(v.Guides, link{"guides/" + g.name, g.title, g.lead})
	}
	name, err := fill(v)
	if err != nil {
		return nil, err
	}
	body, err := e.fragment(name, v)
	if err != nil {
		return nil, err
	}
	v.Body = body
	var out bytes.Buffer
	err = e.templates.ExecuteTemplate(&out, "layout", v)
	return out.Bytes(), err
}

func (e *edition) fragment(name string, v *view) (template.HTML, error) {
	var out bytes.Buffer
	err := e.templates.ExecuteTemplate(&out, name, v)
	return template.HTML(out.String()), err //nolint:gosec // html/template escaped it
}

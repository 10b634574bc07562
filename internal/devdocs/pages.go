package devdocs

import (
	"fmt"
	"slices"
)

// operationView has everything that a page shows about an operation.
type operationView struct {
	*operation
	operationLink
	ID, Method, Path, Summary string // both embedded types have them, with equal values
	Faults                    []faultView
	FaultExamples             []faultExample
	Inputs                    []input
}

// faultView is an error status of an operation.
type faultView struct {
	Status int
	Text   string
	Causes []cause
}

// faultExample is an error body, and the statuses for which it is the example.
type faultExample struct {
	Statuses []int
	Example  string
}

// input is a field of the form with which a reader tries an operation.
type input struct {
	Name, In, Value string
	Required        bool
	Choices         []string
}

// pageMakers returns the makers of all pages, by path.
func (e *edition) pageMakers() map[string]pageMaker {
	all := map[string]pageMaker{
		"":            e.simple("overview", "overview.title", "overview.lead"),
		"reference":   e.simple("referenceIndex", "reference", "reference.page"),
		"guides":      e.simple("guidesIndex", "guides", "guides.lead"),
		"credentials": e.credentials,
		"errors":      e.errorsPage,
		"changes":     e.changes,
		"manual":      e.manualIndex,
	}
	for _, a := range e.contents {
		all["reference/"+a.ID] = func(v *view) (string, error) { return e.area(v, a) }
	}
	for _, g := range e.guides {
		all["guides/"+g.name] = func(v *view) (string, error) { return e.guide(v, g) }
	}
	for _, m := range manual() {
		all[m.Path] = func(v *view) (string, error) { return e.manualPage(v, m) }
	}
	return all
}

// simple returns the maker of a page whose template needs only a title and a lead.
func (e *edition) simple(name, title, lead string) pageMaker {
	return func(v *view) (string, error) { return name, e.head(v, title, lead) }
}

func (e *edition) head(v *view, title, lead string, values ...any) error {
	var err error
	if v.Title, err = e.words.get(title); err != nil {
		return err
	}
	v.Lead, err = e.words.get(lead, values...)
	return err
}

func (e *edition) missing(v *view) (string, error) {
	v.Path = ""
	return "missing", e.head(v, "missing", "missing.lead")
}

// area fills the page with the operations of an area.
func (e *edition) area(v *view, links *areaLinks) (string, error) {
	doc, areas, err := read(e.portal.document(e.lang))
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(areas, func(a *area) bool { return a.ID == links.ID })
	if at < 0 {
		return "", fmt.Errorf("devdocs: the document has no area %q any more", links.ID)
	}
	doc.resolve()
	for _, op := range areas[at].Operations {
		doc.detail(op)
		v.Details = append(v.Details, e.view(op))
	}
	v.AreaID = links.ID
	if err := e.head(v, "reference", "area.lead", len(links.Operations)); err != nil {
		return "", err
	}
	v.Title = e.words.area(links.Name)
	return "areaPage", nil
}

func (e *edition) view(op *operation) *operationView {
	out := &operationView{operation: op, operationLink: linkOf(op)}
	out.ID, out.Method, out.Path, out.Summary = op.ID, op.Method, op.Path, op.Summary
	for _, a := range op.Faults {
		out.Faults = append(out.Faults, faultView{Status: a.Status, Text: a.Text, Causes: e.faults.causes(op, a)})
		i := slices.IndexFunc(out.FaultExamples, func(f faultExample) bool { return f.Example == a.Example })
		switch {
		case a.Example == "":
		case i < 0:
			out.FaultExamples = append(out.FaultExamples, faultExample{[]int{a.Status}, a.Example})
		default:
			out.FaultExamples[i].Statuses = append(out.FaultExamples[i].Statuses, a.Status)
		}
	}
	for _, p := range op.Params {
		switch p.Name {
		case "X-Tenant-ID", "tenant_id", "Idempotency-Key", "Upgrade", "Connection", "Origin":
			if p.In != "path" {
				continue // the reader's settings or the browser set it
			}
		}
		in := input{Name: p.Name, In: p.In, Required: p.Required}
		if p.Required {
			in.Value = p.Example
		}
		if s := p.Schema.real(); s != nil {
			for _, v := range s.Enum {
				in.Choices = append(in.Choices, plain(v))
			}
			if s.kind() == "boolean" {
				in.Choices = []string{"true", "false"}
			}
		}
		out.Inputs = append(out.Inputs, in)
	}
	return out
}

// defaultScopes are the permissions that are selected in the form for a new key.
var defaultScopes = []string{"decisions:read", "policies:read", "resources:read"}

// keyCommand and tokenCommand do the same on the command line as the forms of the page.
const (
	keyCommand = `curl -sS -X POST "$GATEHOUSE_URL/api/v1/developer-portal/api-keys/sandbox/generate" \
  -H "Authorization: Bearer $GATEHOUSE_TOKEN" \
  -H 'Content-Type: application/json' \
  -d '{"name": "my laptop", "scopes": ["decisions:read", "policies:read", "resources:read"]}'`
	tokenCommand = `curl -sS -X POST "$GATEHOUSE_URL/api/v1/developer-portal/token" \
  -H "X-API-Key: $GATEHOUSE_API_KEY"`
)

func (e *edition) credentials(v *view) (string, error) {
	for _, name := range e.scopes {
		v.Scopes = append(v.Scopes, scopeView{name, slices.Contains(defaultScopes, name)})
	}
	v.KeyCommand, v.TokenCommand = keyCommand, tokenCommand
	return "credentials", e.head(v, "credentials", "credentials.lead")
}

func (e *edition) errorsPage(v *view) (string, error) {
	v.Errors, v.Shapes = e.faults.sections, e.faults.shapes
	return "errors", e.head(v, "errors", "errors.lead")
}

func (e *edition) manualIndex(v *view) (string, error) {
	v.Manual = manual()
	return "manualIndex", e.head(v, "manual", "manual.lead")
}

func (e *edition) manualPage(v *view, m link) (string, error) {
	text, err := manualText(e, m.Path)
	v.Title, v.Lead, v.Text = m.Title, m.Title, text
	if e.lang != "en" {
		v.TextLang = "en"
	}
	return "article", err
}

func (e *edition) guide(v *view, g *guide) (string, error) {
	checker, err := e.fragment("checker", v)
	if err != nil {
		return "", err
	}
	v.Title, v.Lead = g.title, g.lead
	v.Text, err = g.render(e, checker)
	return "article", err
}

package devdocs

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/contract"
)

// versionView has the changes from one version of the contract to the next.
type versionView struct {
	ID, From, To    string
	Breaking, Other int
	Parts           []changePart
}

// changePart has the breaking changes of a version, or the other changes.
type changePart struct {
	Title  string
	Count  int
	Groups []changeGroup
}

// changeGroup has the changes of one operation or schema. Href is empty if that has no page.
type changeGroup struct {
	Where, Href string
	Lines       []string
}

// changes fills the page of the changes. It compares each released document with the next one, and
// the last with the current one. The newest comparison comes first.
func (e *edition) changes(v *view) (string, error) {
	docs, err := contract.Released("")
	if err != nil {
		return "", err
	}
	now, err := contract.Decode(e.portal.document(e.portal.languages[0]))
	if err != nil {
		return "", err
	}
	docs = append(docs, now)
	for i := len(docs) - 1; i > 0; i-- {
		version, err := e.version(docs[i-1], docs[i])
		if err != nil {
			return "", err
		}
		v.Versions = append(v.Versions, version)
	}
	return "changes", e.head(v, "changes", "changes.lead")
}

func (e *edition) version(was, is contract.Document) (versionView, error) {
	out := versionView{From: contract.Version(was), To: contract.Version(is)}
	out.ID = slug("from-" + out.From + "-to-" + out.To)
	var breaking, other []contract.Change
	for _, c := range contract.Compare(was, is) {
		if c.Kind.Breaking() {
			breaking = append(breaking, c)
		} else {
			other = append(other, c)
		}
	}
	out.Breaking, out.Other = len(breaking), len(other)
	for _, part := range []struct {
		title string
		list  []contract.Change
	}{{"changes.breaking", breaking}, {"changes.other", other}} {
		title, err := e.words.get(part.title)
		if err != nil {
			return out, err
		}
		groups, err := e.groups(part.list)
		if err != nil {
			return out, err
		}
		out.Parts = append(out.Parts, changePart{title, len(part.list), groups})
	}
	return out, nil
}

// groups returns the changes grouped by operation or schema. list must be sorted by that.
func (e *edition) groups(list []contract.Change) ([]changeGroup, error) {
	var out []changeGroup
	for _, c := range list {
		if len(out) == 0 || out[len(out)-1].Where != c.Where {
			out = append(out, changeGroup{Where: c.Where, Href: e.operationHref(c.Where)})
		}
		line, err := e.words.get("change."+string(c.Kind), "`"+c.What+"`", "`"+c.From+"`", "`"+c.To+"`")
		if err != nil {
			return nil, err
		}
		g := &out[len(out)-1]
		g.Lines = append(g.Lines, strings.ReplaceAll(line, "``", "–"))
	}
	return out, nil
}

// operationHref returns the address of an operation that is named by its method and path. It
// returns "" if the operation no longer exists, or if where names a schema.
func (e *edition) operationHref(where string) string {
	for _, a := range e.contents {
		for _, op := range a.Operations {
			if name := op.Method + " " + op.Path; where == name || strings.HasPrefix(where, name+" ") {
				return withFragment(href(e.lang, "reference/"+a.ID), op.ID)
			}
		}
	}
	return ""
}

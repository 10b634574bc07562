// Package edition renders an OpenAPI document for each family of operations and each
// language. An edition is rendered when somebody first asks for it: rendering all of them
// takes longer than the rest of a start.
package edition

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/contract"
)

// Source is the input for the editions.
type Source struct {
	// English returns the whole document, in JSON.
	English func() ([]byte, error)
	// Title is the title of the document. It is the same in all languages.
	Title string
	// Languages are the languages of the document, with English first.
	Languages []string
	// Catalogues hold the translations: <language>/<topic>.json maps each English
	// text to its translation.
	Catalogues fs.FS
	// Families are the parts of the API with a document of their own.
	Families []contract.Family
}

// Edition is a document of one family in one language.
type Edition struct {
	Body []byte
	ETag string
	// Missing are the texts that the catalogue of the language lacks, in order.
	Missing []string
}

// name identifies an edition: that of a family, or of all other operations, in a language.
type name struct{ family, lang string }

// Set is all editions of a document.
type Set struct {
	made map[name]func() (Edition, error)
}

// New returns the editions of the source.
func New(s Source) *Set {
	s.English = sync.OnceValues(s.English)
	out := &Set{made: map[name]func() (Edition, error){}}
	for _, lang := range s.Languages {
		for _, family := range append([]contract.Family{{Title: s.Title}}, s.Families...) {
			out.made[name{family.Name, lang}] = sync.OnceValues(func() (Edition, error) { return s.render(family, lang) })
		}
	}
	return out
}

// Get returns the edition of a family (empty: of all other operations) in a language. It
// fails for an unknown family or language, and for a source that cannot be read.
func (s *Set) Get(family, lang string) (Edition, error) {
	render := s.made[name{family, lang}]
	if render == nil {
		return Edition{}, fmt.Errorf("the document has no edition %q in %q", family, lang)
	}
	return render()
}

// render narrows the document to a family, translates and encodes it.
func (s Source) render(family contract.Family, lang string) (Edition, error) {
	english, err := s.English()
	if err != nil {
		return Edition{}, err
	}
	var tree map[string]any
	if err := json.Unmarshal(english, &tree); err != nil {
		return Edition{}, err
	}
	contract.Narrow(tree, s.Families, family)
	missing := map[string]bool{}
	if lang != s.Languages[0] {
		catalogue, err := Catalogue(s.Catalogues, lang)
		if err != nil {
			return Edition{}, err
		}
		translation{catalogue, family.Title, missing}.apply(tree)
	}
	body, err := json.Marshal(tree)
	if err != nil {
		return Edition{}, err
	}
	sum := sha256.Sum256(body)
	return Edition{Body: body, ETag: `"` + hex.EncodeToString(sum[:8]) + `"`, Missing: slices.Sorted(maps.Keys(missing))}, nil
}

// Catalogue reads the translations into a language, from all its files.
func Catalogue(files fs.FS, lang string) (map[string]string, error) {
	all := map[string]string{}
	if files == nil {
		return all, nil
	}
	names, err := fs.Glob(files, path.Join(lang, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		var texts map[string]string
		if err := json.Unmarshal(data, &texts); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		maps.Copy(all, texts)
	}
	return all, nil
}

// translation replaces the texts for people in a document, and collects those
// that the catalogue lacks.
type translation struct {
	catalogue map[string]string
	title     string // of the document: the same in all languages
	missing   map[string]bool
}

// apply translates below a node. A member that is only called description, such as a property of a
// schema, is not a string, or it is below an example.
func (t translation) apply(node any) {
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			t.apply(item)
		}
	case map[string]any:
		for name, member := range n {
			switch name {
			case "example", "examples", "default", "enum", "const":
				continue
			case "summary", "description", "title":
				if text, ok := member.(string); ok {
					if to := t.catalogue[text]; to != "" {
						n[name] = to
					} else if text != t.title {
						t.missing[text] = true
					}
					continue
				}
			}
			t.apply(member)
		}
	}
}

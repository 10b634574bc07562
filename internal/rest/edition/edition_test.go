package edition

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/gatehouse-dev/gatehouse/internal/contract"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

const english = `{"info":{"title":"Example"},"paths":{"/a":{"get":{"summary":"List","description":"Lists."}},"/b/c":{"get":{"summary":"Read"}}}}`

// example returns a set with one family and one translation, and a count of how often its English
// document was rendered.
func example(t *testing.T) (*Set, *int) {
	t.Helper()
	rendered := new(int)
	return New(Source{
		English: func() ([]byte, error) { *rendered++; return []byte(english), nil },
		Title:   "Example", Languages: []string{"en", "es"},
		Catalogues: fstest.MapFS{"es/a.json": {Data: []byte(`{"List":"Lista"}`)}},
		Families:   []contract.Family{{Name: "b", Title: "Example B", Root: "/b"}},
	}), rendered
}

// TestRenderedOnce: an edition is rendered when it is first requested, and only once.
func TestRenderedOnce(t *testing.T) {
	s, rendered := example(t)
	if *rendered != 0 {
		t.Fatalf("the document is rendered %d times before the first request, want 0", *rendered)
	}
	var requests sync.WaitGroup
	for range 8 {
		requests.Go(func() {
			if e, err := s.Get("", "en"); err != nil || !json.Valid(e.Body) || e.ETag == "" {
				t.Errorf("Get = %+v, %v", e, err)
			}
		})
	}
	requests.Wait()
	if *rendered != 1 {
		t.Errorf("the document is rendered %d times, want 1", *rendered)
	}
}

// TestTranslated: texts of the catalogue are replaced, and missing ones are listed.
func TestTranslated(t *testing.T) {
	s, _ := example(t)
	e, err := s.Get("", "es")
	errtest.Must(t, err)
	if !strings.Contains(string(e.Body), `"summary":"Lista"`) || !slices.Contains(e.Missing, "Lists.") || slices.Contains(e.Missing, "List") {
		t.Errorf("Spanish edition = %s\nmissing %q, want Lists.", e.Body, e.Missing)
	}
	plain, err := s.Get("", "en")
	if err != nil || plain.ETag == e.ETag || len(plain.Missing) > 0 {
		t.Errorf("English edition = %+v, %v, want nothing missing", plain, err)
	}
}

// TestUnknownEditions: an unknown family or language is an error, and so is a document that cannot
// be rendered.
func TestUnknownEditions(t *testing.T) {
	s, _ := example(t)
	for _, of := range []name{{"", "de"}, {"c", "en"}} {
		if _, err := s.Get(of.family, of.lang); err == nil {
			t.Errorf("Get of %v succeeds, want an error", of)
		}
	}
	broken := New(Source{English: func() ([]byte, error) { return nil, errors.New("no document") }, Languages: []string{"en"}})
	if _, err := broken.Get("", "en"); err == nil || err.Error() != "no document" {
		t.Errorf("Get of a document that cannot be rendered = %v, want no document", err)
	}
}

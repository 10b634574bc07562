package bind

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

type word string

type inner struct {
	Size  int32   `json:"size"`
	Ratio float64 `json:"ratio,omitempty"`
	Next  *inner  `json:"next"`
}

type base struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

// Same is a struct whose field has its own name, as rest.IfMatch is.
type Same struct {
	Same string `json:"same" header:"Same"`
}

// gallery has a field of each kind that bodies have.
type gallery struct {
	base
	Same
	Name     string               `json:"name"` // hides that of base
	Kind     word                 `json:"kind"`
	On       bool                 `json:"on"`
	Text     *string              `json:"text"`
	At       time.Time            `json:"at,omitzero"`
	Parts    []inner              `json:"parts"`
	Words    []word               `json:"words"`
	ByName   map[string]inner     `json:"by_name"`
	Labels   map[word]string      `json:"labels"`
	Free     map[string]any       `json:"free"`
	Any      any                  `json:"any"`
	Raw      json.RawMessage      `json:"raw"`
	Exact    value.Value          `json:"exact"`
	Changed  patch.Field[string]  `json:"changed"`
	Several  patch.Field[[]inner] `json:"several"`
	Untagged int
	Hidden   string `json:"-"`
	private  string //nolint:unused // is skipped
}

func decode(t testing.TB, doc string) (gallery, error) {
	t.Helper()
	v, err := value.Decode([]byte(doc), value.Limits{Depth: 64})
	if err != nil {
		return gallery{}, err
	}
	var in struct{ Body gallery }
	err = InputOf(reflect.TypeOf(in)).Body(reflect.ValueOf(&in).Elem(), v)
	return in.Body, err
}

// same compares two bodies by their JSON and by the states of their fields.
func same(t testing.TB, a, b gallery) bool {
	t.Helper()
	one, err1 := json.Marshal(a)
	two, err2 := json.Marshal(b)
	errtest.Must(t, errors.Join(err1, err2))
	return string(one) == string(two) && a.Changed == b.Changed && a.Several.Sent == b.Several.Sent && a.Several.Null == b.Several.Null && reflect.DeepEqual(a.Free, b.Free) && reflect.DeepEqual(a.Any, b.Any)
}

var documents = []string{
	`{}`, `null`,
	`{"id":1,"same":"s","name":"x","kind":"a","on":true,"text":"t","Untagged":7,"Hidden":"no","private":"no","unknown":{"a":[1]}}`,
	`{"text":null,"parts":null,"by_name":null,"free":null,"any":null,"on":null,"name":null,"id":null,"changed":null,"several":null,"raw":null,"exact":null,"at":null}`,
	`{"at":"2026-05-01T10:00:00.5Z","parts":[{"size":1,"ratio":1.5,"next":{"size":2,"next":null}},{}],"words":["a","b"],"by_name":{"a":{"size":3}},"labels":{"a":"b"}}`,
	`{"free":{"a":1,"b":[true,null,"x",{"c":1e3}],"d":9007199254740993},"any":[1,"x"],"raw":{"a":1},"exact":[1,{"b":2}],"changed":"new","several":[{"size":4}]}`,
	`{"parts":[],"by_name":{},"any":{},"words":[]}`,
}

// TestLikeEncodingJSON: binding gives the same result as encoding/json.
func TestLikeEncodingJSON(t *testing.T) {
	for _, doc := range documents {
		var want gallery
		errtest.Must(t, json.Unmarshal([]byte(doc), &want))
		if got, err := decode(t, doc); err != nil || !same(t, got, want) {
			t.Errorf("Body of %s =\n%+v, %v, want\n%+v", doc, got, err, want)
		}
	}
}

// FuzzLikeEncodingJSON: binding and encoding/json accept the same documents with the same results.
// encoding/json ignores the case of names, which strict documents do not rely on, so documents with
// such names are skipped.
func FuzzLikeEncodingJSON(f *testing.F) {
	for _, doc := range documents {
		f.Add([]byte(doc))
	}
	names := map[string]bool{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[gallery]()) {
		names[field.Tag.Get("json")], names[field.Name] = true, true
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := value.Decode(data, value.Limits{Depth: 64})
		if err != nil || folded(v) {
			return
		}
		var want gallery
		refused := json.Unmarshal(data, &want)
		got, err := decode(t, string(data))
		if (refused != nil) != (err != nil) {
			t.Errorf("Body of %s: error %v, want as encoding/json %v", data, err, refused)
		}
		if err == nil && !same(t, got, want) {
			t.Errorf("Body of %s =\n%+v, want\n%+v", data, got, want)
		}
	})
}

// folded reports whether a document has a member with a letter that another case has,
// but for those that are spelled as a field of gallery is.
func folded(v value.Value) bool {
	known := []string{"Untagged"}
	found := false
	v.Each(func(name string, member value.Value) bool {
		for _, c := range name {
			found = found || (c >= 'A' && c <= 'Z' || c > 127) && !slices.Contains(known, name)
		}
		found = found || name == "untagged" || folded(member)
		return !found
	})
	for _, item := range v.Elems() {
		found = found || folded(item)
	}
	return found
}

// TestWrongForms: a value that does not fit is refused with its place.
func TestWrongForms(t *testing.T) {
	for doc, want := range map[string][]string{
		`[]`: {}, `{"id":"x"}`: {"id"}, `{"parts":[{},{"size":3000000000}]}`: {"parts", "1", "size"}, `{"by_name":{"a":{"next":{"ratio":"x"}}}}`: {"by_name", "a", "next", "ratio"},
		`{"at":"yesterday"}`: {"at"}, `{"changed":7}`: {"changed"}, `{"parts":{}}`: {"parts"}, `{"free":[]}`: {"free"},
	} {
		_, err := decode(t, doc)
		if wrong, ok := errors.AsType[*WrongError](err); !ok || !slices.Equal(wrong.Path, want) {
			t.Errorf("Body of %s: got %v, want a WrongError at %v", doc, err, want)
		}
	}
}

// TestTextsAreCopied: a bound text does not share memory with the request.
func TestTextsAreCopied(t *testing.T) {
	data := []byte(`{"name":"abc","words":["def"],"free":{"ghi":"jkl"},"labels":{"mno":"pqr"}}`)
	v, err := value.Decode(data, value.Limits{})
	errtest.Must(t, err)
	var in struct{ Body gallery }
	errtest.Must(t, InputOf(reflect.TypeOf(in)).Body(reflect.ValueOf(&in).Elem(), v))
	clear(data)
	b := in.Body
	if b.Name != "abc" || b.Words[0] != "def" || b.Free["ghi"] != "jkl" || b.Labels["mno"] != "pqr" {
		t.Errorf("body after the request's memory was cleared = %+v", b)
	}
}

type paging struct {
	Limit int `query:"limit" default:"100"`
}

// TestParams: parameters come from the path, the query and the header.
func TestParams(t *testing.T) {
	type input struct {
		paging
		Same
		ID     int64     `path:"id"`
		Kind   word      `query:"kind"`
		Tags   []string  `query:"tags"`
		Since  time.Time `query:"since"`
		Strict bool      `query:"strict"`
		Match  string    `header:"if-match"`
		Body   *inner
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?kind=a&tags=x,y&since=2026-05-01T00:00:00Z&strict=true", nil)
	req.SetPathValue("id", "7")
	req.Header.Set("If-Match", `"3"`)
	req.Header.Set("Same", "name")
	in := input{}
	b := InputOf(reflect.TypeFor[input]())
	errtest.Must(t, b.Params(reflect.ValueOf(&in).Elem(), req, req.URL.Query()))
	if in.Limit != 100 || in.ID != 7 || in.Kind != "a" || !slices.Equal(in.Tags, []string{"x", "y"}) || in.Since.Year() != 2026 || !in.Strict || in.Match != `"3"` || in.Same.Same != "name" || in.Body != nil {
		t.Errorf("Params = %+v", in)
	}
	if err := b.Params(reflect.ValueOf(&in).Elem(), req, url.Values{"limit": {"many"}}); err == nil {
		t.Error("Params with a text for a number succeeds, want an error")
	}
	if err := b.Body(reflect.ValueOf(&in).Elem(), value.Value{}); err != nil || in.Body != nil {
		t.Errorf("Body without a body = %v, %v, want nil", in.Body, err)
	}
}

// TestOutput: header fields that are empty are not sent.
func TestOutput(t *testing.T) {
	type output struct {
		ETag   string `header:"ETag"`
		Cookie string `header:"Set-Cookie"`
		Status int
		Body   inner
	}
	out := output{ETag: `"1"`, Status: 503, Body: inner{Size: 4}}
	o, v, h := OutputOf(reflect.TypeFor[output]()), reflect.ValueOf(&out).Elem(), http.Header{}
	o.Headers(v, h)
	body, ok := o.Body(v)
	if len(h) != 1 || h.Get("ETag") != `"1"` || o.Status(v, 200) != 503 || !ok || body.Interface() != out.Body {
		t.Errorf("output = header %v, status %d, body %v", h, o.Status(v, 200), body)
	}
	none := OutputOf(reflect.TypeFor[struct{}]())
	if _, ok := none.Body(reflect.ValueOf(struct{}{})); ok || none.Status(reflect.ValueOf(struct{}{}), 204) != 204 {
		t.Error("an empty output has a body or another status than 204")
	}
}

// TestMistakes: a type that cannot be bound is detected at registration.
func TestMistakes(t *testing.T) {
	for name, try := range map[string]func(){
		"a channel": func() { InputOf(reflect.TypeFor[struct{ Body chan int }]()) },
		"a map":     func() { InputOf(reflect.TypeFor[struct{ Body map[int]string }]()) },
		"bytes":     func() { InputOf(reflect.TypeFor[struct{ Body []byte }]()) },
		"the option": func() {
			InputOf(reflect.TypeFor[struct {
				Body struct {
					N int `json:"n,string"`
				}
			}]())
		},
		"a list of structs": func() {
			InputOf(reflect.TypeFor[struct {
				P []inner `query:"p"`
			}]())
		},
		"a header": func() {
			OutputOf(reflect.TypeFor[struct {
				H []string `header:"H"`
			}]())
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is accepted, want a panic", name)
				}
			}()
			try()
		}()
	}
}

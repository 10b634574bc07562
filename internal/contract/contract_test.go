package contract

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

func decoded(t *testing.T, doc string) Document {
	t.Helper()
	tree, err := Decode([]byte(doc))
	errtest.Must(t, err)
	return tree
}

// TestCompare: Compare finds each kind of change, and Breaking is true for those that break clients.
func TestCompare(t *testing.T) {
	base := `{"paths":{"/a":{"post":{"operationId":"a","parameters":[{"in":"query","name":"q","schema":{"type":"integer"}}],
		"requestBody":{"content":{"application/json":{"schema":{"type":"object","required":["x"],"properties":{"x":{"type":"string","enum":["u","v"],"maxLength":9},"y":{"type":["string","null"]}}}}}},
		"responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/R"}}}}}}}},
		"components":{"schemas":{"R":{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"r":{"$ref":"#/components/schemas/R"}}}}}}`
	seen := map[Kind]bool{}
	for _, tc := range []struct {
		name, from, to string
		want           []Kind
	}{
		{"nothing", "", "", nil},
		{"operation", `"post"`, `"put"`, []Kind{OperationRemoved, OperationAdded}},
		{"operation id", `"operationId":"a"`, `"operationId":"b"`, []Kind{IDChanged}},
		{"parameter", `"name":"q"`, `"name":"p"`, []Kind{ParameterRemoved, ParameterAdded}},
		{"parameter type", `"schema":{"type":"integer"}`, `"schema":{"type":"number"}`, nil},
		{"parameter duty", `"name":"q"`, `"name":"q","required":true`, []Kind{ParameterRequired}},
		{"body gone", `"requestBody"`, `"x-requestBody"`, []Kind{BodyRemoved, SchemaRemoved}},
		{"value gone", `["u","v"]`, `["u"]`, []Kind{ValueRemoved}},
		{"value new", `["u","v"]`, `["u","v","w"]`, []Kind{ValueAdded}},
		{"values closed", `"y":{`, `"y":{"enum":["a"],`, []Kind{ValuesClosed}},
		{"member gone", `"y":{"type":["string","null"]}`, `"z":{"type":"string"}`, []Kind{MemberRemoved, MemberAdded}},
		{"null gone", `["string","null"]`, `"string"`, []Kind{TypeChanged}},
		{"duty new", `"required":["x"]`, `"required":["x","y"]`, []Kind{MemberRequired}},
		{"duty gone", `"required":["x"]`, `"required":[]`, nil},
		{"shorter", `"maxLength":9`, `"maxLength":8`, []Kind{Narrower}},
		{"longer", `"maxLength":9`, `"maxLength":10`, nil},
		{"answer wider", `"id":{"type":"integer"}`, `"id":{"type":["integer","null"]}`, []Kind{TypeChanged}},
		{"answer gone", `"id":{"type":"integer"}`, `"ID":{"type":"integer"}`, []Kind{MemberRemoved, MemberAdded}},
		{"answer unsure", `"required":["id"]`, `"required":[]`, []Kind{MemberOptional}},
		{"status gone", `"200"`, `"201"`, []Kind{StatusRemoved}},
	} {
		is := decoded(t, strings.Replace(base, tc.from, tc.to, 1))
		was := decoded(t, base)
		var got []Kind
		for _, c := range Compare(was, is) {
			got = append(got, c.Kind)
			seen[c.Kind] = true
			if added := strings.HasSuffix(string(c.Kind), "_added"); c.Kind.Breaking() == added {
				t.Errorf("%s: %v is breaking: %v, want %v", tc.name, c, c.Kind.Breaking(), !added)
			}
		}
		slices.Sort(got)
		slices.Sort(tc.want)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	for _, k := range Kinds {
		if !seen[k] {
			t.Errorf("no case has the change %s", k)
		}
	}
}

// TestWhere: a change in a shared schema is reported once, with the schema's name.
func TestWhere(t *testing.T) {
	base := `{"paths":{"/a":{"get":{"responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/R"}}}}}}},
		"/b":{"get":{"responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/R"}}}}}}}},
		"components":{"schemas":{"R":{"type":"object","properties":{"in":{"type":"object","properties":{"id":{"type":"integer"}}}}}}}}`
	got := Compare(decoded(t, base), decoded(t, strings.Replace(base, `"id"`, `"key"`, 1)))
	want := []Change{{Where: "R.in", Kind: MemberAdded, What: "key"}, {Where: "R.in", Kind: MemberRemoved, What: "id"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestReleased: the documents of releases are named after their versions, and sorted.
func TestReleased(t *testing.T) {
	for _, family := range []string{"", "oem"} {
		docs, err := Released(family)
		errtest.Must(t, err)
		files, err := released.ReadDir(path.Join("released", family))
		errtest.Must(t, err)
		var names []string
		for _, f := range files {
			if !f.IsDir() {
				names = append(names, strings.TrimSuffix(f.Name(), ".json.gz"))
			}
		}
		var versions []string
		for _, d := range docs {
			m := metadataOf(d)
			if m.SchemaVersion == "" || m.DeprecationPolicy == "" {
				t.Errorf("version %s = %+v, want a schema version and a deprecation policy", m.APIVersion, m)
			}
			versions = append(versions, m.APIVersion)
		}
		if len(versions) == 0 || !slices.IsSortedFunc(versions, func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) }) {
			t.Errorf("versions = %v, want them in order", versions)
		}
		slices.Sort(versions)
		if !slices.Equal(versions, names) {
			t.Errorf("versions = %v, want those of the files %v", versions, names)
		}
	}
}

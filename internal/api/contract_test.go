package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
)

var (
	update  = flag.Bool("update", false, "write testdata/openapi.json anew")
	publish = flag.Bool("release", false, "write testdata/released.json anew: the document that a release was made with")
)

const (
	golden   = "testdata/openapi.json"
	released = "testdata/released.json"
)

// whole is the API as it is served, without anything behind it.
func whole(t *testing.T) *API {
	t.Helper()
	r, err := New(Config{Kit: kit()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func indented(t *testing.T, doc []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, doc, "", " "); err != nil {
		t.Fatal(err)
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// TestDocument: the document is valid, is the golden one, and describes each route.
func TestDocument(t *testing.T) {
	r := whole(t)
	document, _ := r.Rendered("en")
	doc := indented(t, document)
	spec, err := openapi3.NewLoader().LoadFromData(doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Validate(t.Context(), openapi3.DisableExamplesValidation()); err != nil {
		t.Errorf("not a valid document: %v", err)
	}
	seen := map[string]bool{}
	for _, op := range r.Routes() {
		path := strings.ReplaceAll(op.Path, "...}", "}")
		item := spec.Paths.Value(path)
		if item == nil || item.GetOperation(op.Method) == nil {
			t.Errorf("%s %s is served but not documented", op.Method, op.Path)
			continue
		}
		seen[op.Method+" "+path] = true
		if op.Summary == "" || len(op.Tags) == 0 {
			t.Errorf("%s has no summary or tag", op.ID)
		}
		if !op.Public && op.Permission == "" && !op.Optional {
			t.Logf("%s needs a credential, but no permission", op.ID)
		}
	}
	for path, item := range spec.Paths.Map() {
		for method := range item.Operations() {
			if !seen[method+" "+path] {
				t.Errorf("%s %s is documented but not served", method, path)
			}
		}
	}
	if *update {
		if err := os.WriteFile(golden, doc, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(doc, want) {
		t.Errorf("the document is not %s: if the change is meant, run go test ./internal/api -run Document -update", golden)
	}
}

// TestTranslations: no text of the document is left in English.
func TestTranslations(t *testing.T) {
	r := whole(t)
	for _, lang := range Languages[1:] {
		if _, missing := r.Rendered(lang); len(missing) > 0 {
			list, err := json.MarshalIndent(missing, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			t.Errorf("%d texts have no translation in locales/%s:\n%s", len(missing), lang, list)
		}
		described, err := document()
		if err != nil {
			t.Fatal(err)
		}
		catalog, err := rest.Catalog(described.Catalogs, lang)
		if err != nil {
			t.Fatal(err)
		}
		for text, to := range catalog {
			if strings.TrimSpace(to) == "" {
				t.Errorf("locales/%s: %q is translated to nothing", lang, text)
			}
		}
	}
}

// TestCompatible: what a client of the last release relies on still holds, or
// api_version has a new major number.
func TestCompatible(t *testing.T) {
	now, _ := whole(t).Rendered("en")
	if *publish {
		if err := os.WriteFile(released, indented(t, now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.ReadFile(released)
	if os.IsNotExist(err) {
		t.Skip("nothing has been released yet")
	}
	if err != nil {
		t.Fatal(err)
	}
	was, is := decoded(t, before), decoded(t, now)
	breaks := breaking(was, is)
	if len(breaks) > 0 && major(is) == major(was) {
		t.Errorf("breaking changes without a new major api_version:\n%s", strings.Join(breaks, "\n"))
	}
}

func decoded(t *testing.T, doc []byte) map[string]any {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal(doc, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

func versionOf(doc map[string]any) string {
	v, _ := dig(doc, "info", "x-gatehouse-contract", "api_version").(string)
	return v
}

func major(doc map[string]any) string {
	m, _, _ := strings.Cut(versionOf(doc), ".")
	return m
}

// dig follows names down a tree; nil where it ends early.
func dig(node any, names ...string) any {
	for _, name := range names {
		m, ok := node.(map[string]any)
		if !ok {
			return nil
		}
		node = m[name]
	}
	return node
}

// breaking lists what a client of the document was could miss in is: removed
// operations, parameters, members and statuses, narrower types and enums of
// what is sent, wider ones of what is answered, new duties.
func breaking(was, is map[string]any) []string {
	c := comparison{was: was, is: is, seen: map[string]bool{}}
	paths, _ := was["paths"].(map[string]any)
	for path, item := range paths {
		ops, _ := item.(map[string]any)
		for method, op := range ops {
			where := strings.ToUpper(method) + " " + path
			now := dig(is, "paths", path, method)
			if now == nil {
				c.add("%s is gone", where)
				continue
			}
			c.operation(where, op, now)
		}
	}
	slices.Sort(c.found)
	return slices.Compact(c.found)
}

type comparison struct {
	was, is map[string]any
	seen    map[string]bool // pairs of references that are being compared
	found   []string
}

func (c *comparison) add(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *comparison) operation(where string, was, is any) {
	if a, b := dig(was, "operationId"), dig(is, "operationId"); a != b {
		c.add("%s: operationId %v became %v", where, a, b)
	}
	old, now := byName(dig(was, "parameters")), byName(dig(is, "parameters"))
	for name, p := range old {
		if now[name] == nil {
			c.add("%s: the parameter %s is gone", where, name)
			continue
		}
		c.schema(where+" "+name, dig(p, "schema"), dig(now[name], "schema"), true)
	}
	for name, p := range now {
		if dig(p, "required") == true && (old[name] == nil || dig(old[name], "required") != true) {
			c.add("%s: the parameter %s is required now", where, name)
		}
	}
	c.schema(where+" body", dig(was, "requestBody", "content", "application/json", "schema"), dig(is, "requestBody", "content", "application/json", "schema"), true)
	if dig(was, "requestBody") != nil && dig(is, "requestBody") == nil {
		c.add("%s: the body is gone", where)
	}
	responses, _ := dig(was, "responses").(map[string]any)
	for status, r := range responses {
		now := dig(is, "responses", status)
		if now == nil {
			if status[0] == '2' {
				c.add("%s: the status %s is gone", where, status)
			}
			continue
		}
		c.schema(where+" "+status, dig(r, "content", "application/json", "schema"), dig(now, "content", "application/json", "schema"), false)
	}
}

func byName(list any) map[string]any {
	out := map[string]any{}
	items, _ := list.([]any)
	for _, p := range items {
		if ref, ok := dig(p, "$ref").(string); ok {
			out[ref] = p
			continue
		}
		out[fmt.Sprintf("%v %v", dig(p, "in"), dig(p, "name"))] = p
	}
	return out
}

func (c *comparison) deref(doc map[string]any, s any) any {
	ref, ok := dig(s, "$ref").(string)
	if !ok {
		return s
	}
	return dig(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

// schema compares what was with what is; sent says that clients send it.
func (c *comparison) schema(where string, was, is any, sent bool) {
	if was == nil {
		return
	}
	pair := fmt.Sprint(dig(was, "$ref"), dig(is, "$ref"), sent)
	if dig(was, "$ref") != nil {
		if c.seen[pair] {
			return
		}
		c.seen[pair] = true
	}
	was, is = c.deref(c.was, was), c.deref(c.is, is)
	if is == nil {
		c.add("%s: the schema is gone", where)
		return
	}
	c.types(where, typesOf(was), typesOf(is), sent)
	c.enums(where, dig(was, "enum"), dig(is, "enum"), sent)
	if dig(was, "items") != nil {
		c.schema(where+"[]", dig(was, "items"), dig(is, "items"), sent)
	}
	old, _ := dig(was, "properties").(map[string]any)
	for name, p := range old {
		now := dig(is, "properties", name)
		if now == nil {
			c.add("%s: the member %s is gone", where, name)
			continue
		}
		c.schema(where+"."+name, p, now, sent)
	}
	mustWas, _ := dig(was, "required").([]any)
	mustIs, _ := dig(is, "required").([]any)
	if sent {
		for _, name := range mustIs {
			if !slices.Contains(mustWas, name) {
				c.add("%s: the member %v is required now", where, name)
			}
		}
		for _, limit := range []string{"maxLength", "maxItems", "maximum"} {
			c.limit(where, limit, dig(was, limit), dig(is, limit), func(a, b float64) bool { return b < a })
		}
		for _, limit := range []string{"minLength", "minItems", "minimum"} {
			c.limit(where, limit, dig(was, limit), dig(is, limit), func(a, b float64) bool { return b > a })
		}
		return
	}
	for _, name := range mustWas {
		if !slices.Contains(mustIs, name) {
			c.add("%s: the member %v may be absent now", where, name)
		}
	}
}

func (c *comparison) limit(where, name string, was, is any, narrower func(a, b float64) bool) {
	b, ok := is.(float64)
	if !ok {
		return
	}
	if a, had := was.(float64); !had || narrower(a, b) {
		c.add("%s: %s is narrower", where, name)
	}
}

func typesOf(s any) []any {
	switch t := dig(s, "type").(type) {
	case string:
		return []any{t}
	case []any:
		return t
	default:
		return nil
	}
}

func (c *comparison) types(where string, was, is []any, sent bool) {
	narrow, wide := was, is
	if !sent {
		narrow, wide = is, was
	}
	if len(wide) == 0 {
		return
	}
	if len(narrow) == 0 {
		c.add("%s: the type %v became %v", where, was, is)
		return
	}
	for _, t := range narrow {
		if !slices.Contains(wide, t) && !(t == "integer" && slices.Contains(wide, "number")) {
			c.add("%s: the type %v became %v", where, was, is)
			return
		}
	}
}

// enums: a value that clients send must stay; one that they get may be new, as
// the deprecation policy says that they must expect it, but none may go.
func (c *comparison) enums(where string, was, is any, sent bool) {
	old, _ := was.([]any)
	now, _ := is.([]any)
	if sent && old == nil && now != nil {
		c.add("%s: only certain values are taken now", where)
	}
	if now == nil {
		return
	}
	for _, v := range old {
		if !slices.Contains(now, v) {
			c.add("%s: the value %v is gone", where, v)
		}
	}
}

// TestBreaking: the comparison finds what it is for.
func TestBreaking(t *testing.T) {
	base := `{"paths":{"/a":{"post":{"operationId":"a","parameters":[{"in":"query","name":"q","schema":{"type":"integer"}}],
		"requestBody":{"content":{"application/json":{"schema":{"type":"object","required":["x"],"properties":{"x":{"type":"string","enum":["u","v"],"maxLength":9},"y":{"type":["string","null"]}}}}}},
		"responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/R"}}}}}}}},
		"components":{"schemas":{"R":{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"r":{"$ref":"#/components/schemas/R"}}}}}}`
	for _, tc := range []struct {
		name, from, to string
		breaks         bool
	}{
		{"nothing", "", "", false},
		{"operation", `"post"`, `"put"`, true},
		{"operation id", `"operationId":"a"`, `"operationId":"b"`, true},
		{"parameter", `"name":"q"`, `"name":"p"`, true},
		{"parameter type", `"schema":{"type":"integer"}`, `"schema":{"type":"number"}`, false},
		{"parameter duty", `"name":"q"`, `"name":"q","required":true`, true},
		{"value gone", `["u","v"]`, `["u"]`, true},
		{"value new", `["u","v"]`, `["u","v","w"]`, false},
		{"member gone", `"y":{"type":["string","null"]}`, `"z":{"type":"string"}`, true},
		{"null gone", `["string","null"]`, `"string"`, true},
		{"duty new", `"required":["x"]`, `"required":["x","y"]`, true},
		{"duty gone", `"required":["x"]`, `"required":[]`, false},
		{"shorter", `"maxLength":9`, `"maxLength":8`, true},
		{"longer", `"maxLength":9`, `"maxLength":10`, false},
		{"answer wider", `"id":{"type":"integer"}`, `"id":{"type":["integer","null"]}`, true},
		{"answer gone", `"id":{"type":"integer"}`, `"ID":{"type":"integer"}`, true},
		{"answer unsure", `"required":["id"]`, `"required":[]`, true},
		{"status gone", `"200"`, `"201"`, true},
	} {
		is := strings.Replace(base, tc.from, tc.to, 1)
		if got := breaking(decoded(t, []byte(base)), decoded(t, []byte(is))); (len(got) > 0) != tc.breaks {
			t.Errorf("%s: %q", tc.name, got)
		}
	}
}

// TestServedDocuments: the document comes in three languages and by ETag.
func TestServedDocuments(t *testing.T) {
	g := newRig(t, nil)
	for _, path := range []string{"/openapi.json", "/api/v1/openapi.json", "/docs-assets/openapi/en.json", "/docs-assets/openapi/es.json", "/docs-assets/openapi/fr.json"} {
		w := g.Do(t, resttest.Call{Method: "GET", Path: path}.Request())
		if w.Code != 200 || versionOf(decoded(t, w.Body.Bytes())) != APIVersion {
			t.Errorf("%s: %d", path, w.Code)
		}
		again := g.Do(t, resttest.Call{Method: "GET", Path: path, Headers: []string{"If-None-Match", w.Header().Get("ETag")}}.Request())
		if again.Code != http.StatusNotModified {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
	if w := g.Do(t, resttest.Call{Method: "GET", Path: "/docs-assets/openapi/de.json"}.Request()); w.Code != 404 {
		t.Errorf("a language that is not there: %d", w.Code)
	}
}

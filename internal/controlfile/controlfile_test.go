package controlfile

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

func files(pairs ...string) []File {
	var out []File
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, File{pairs[i], pairs[i+1]})
	}
	return out
}

const whole = `controls:
  - file: a.rego
    name: "A: all"
    description: every member
    status: draft
    resource: {name: Payments, type: api, path: /payments/*}
    bouncer: edge-1
    tests:
      - name: one
        input: {user: {id: ada, born: 1815-12-10}, n: [1, 2.5, null, true], s: "1"}
        data: {resources: {12: {name: Twelve}}}
        expected: true
  - file: b.rego
    resource: null
    bouncer: {id: 7}
`

func TestRead(t *testing.T) {
	repo, issues := Read(files("x/a.rego", "package a\n", "x/b.rego", "package b\n", "x/a_test.rego", "package a\n", "x/gatehouse.yaml", whole, "plain.rego", "package plain\n"))
	if len(issues) > 0 || len(repo.Controls) != 3 || len(repo.Modules) != 4 {
		t.Fatalf("Read = %+v with the issues %+v, want 3 controls and 4 modules", repo, issues)
	}
	plain, a, b := repo.Controls[0], repo.Controls[1], repo.Controls[2]
	if plain.Name != "plain" || plain.Status != nil || plain.Resource != nil || plain.Cases != nil {
		t.Errorf("control without a manifest = %+v, want only its name", plain)
	}
	if a.Name != "A: all" || *a.Description != "every member" || *a.Status != "draft" || a.Bouncer.Name != "edge-1" || a.Resource.Name != "Payments" || a.Resource.Type != "api" || a.Resource.Path != "/payments/*" {
		t.Errorf("control a = %+v", a)
	}
	want := map[string]any{"user": map[string]any{"id": "ada", "born": "1815-12-10"}, "n": []any{int64(1), 2.5, nil, true}, "s": "1"}
	if len(*a.Cases) != 1 || !reflect.DeepEqual((*a.Cases)[0].Input, want) || !(*a.Cases)[0].Expected {
		t.Errorf("cases of a = %+v", *a.Cases)
	}
	if data := map[string]any{"resources": map[string]any{"12": map[string]any{"name": "Twelve"}}}; !reflect.DeepEqual((*a.Cases)[0].Data, data) {
		t.Errorf("data of the case = %+v, want %v", (*a.Cases)[0].Data, data)
	}
	if b.Name != "x/b" || !b.Resource.None || b.Bouncer.ID != 7 {
		t.Errorf("control b = %+v", b)
	}
	if is := a.Resource.Issue("x"); is.File != "x/gatehouse.yaml" || is.Line != 6 || is.Column != 15 {
		t.Errorf("place of a link = %+v, want line 6, column 15", is)
	}
}

// laughs returns a manifest whose aliases expand to ten to the power of depth values.
func laughs(depth int) string {
	var b strings.Builder
	b.WriteString("tests:\n  - name: n\n    expected: true\n    input:\n      a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n")
	for i := 1; i < depth; i++ {
		fmt.Fprintf(&b, "      a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	return b.String()
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		files        []File
		file, text   string
		line, column int
	}{
		"unknown member":        {files("a.rego", "", "gatehouse.yaml", "name: x\nresorce: y\n"), "gatehouse.yaml", "unknown member", 2, 1},
		"unknown member within": {files("a.rego", "", "gatehouse.yaml", "resource: {nmae: x}\n"), "gatehouse.yaml", "unknown member", 1, 12},
		"a member twice":        {files("a.rego", "", "gatehouse.yaml", "name: x\nname: y\n"), "gatehouse.yaml", "twice", 2, 1},
		"a wrong type":          {files("a.rego", "", "gatehouse.yaml", "name: [x]\n"), "gatehouse.yaml", "string", 1, 7},
		"a number for a text":   {files("a.rego", "", "gatehouse.yaml", "name: 12\n"), "gatehouse.yaml", "quotes", 1, 7},
		"no yaml":               {files("a.rego", "", "gatehouse.yaml", "name: x\n\tstatus: y\n"), "gatehouse.yaml", "", 2, 1},
		"two documents":         {files("a.rego", "", "gatehouse.yaml", "name: x\n---\nname: y\n"), "gatehouse.yaml", "one document", 2, 1},
		"empty":                 {files("a.rego", "", "gatehouse.yaml", ""), "gatehouse.yaml", "empty", 1, 1},
		"a status":              {files("a.rego", "", "gatehouse.yaml", "status: enabled\n"), "gatehouse.yaml", "draft, active", 1, 9},
		"no control beside":     {files("x/a.rego", "", "gatehouse.yaml", "name: x\n"), "gatehouse.yaml", "no control beside", 1, 1},
		"which control":         {files("a.rego", "", "b.rego", "", "gatehouse.yaml", "name: x\n"), "gatehouse.yaml", "list them", 1, 1},
		"a file elsewhere":      {files("a.rego", "", "x/b.rego", "", "gatehouse.yaml", "controls: [{file: x/b.rego}]\n"), "gatehouse.yaml", "no control", 1, 19},
		"described twice":       {files("a.rego", "", "gatehouse.yaml", "controls: [{file: a.rego}, {file: a.rego}]\n"), "gatehouse.yaml", "twice", 1, 28},
		"an id and a name":      {files("a.rego", "", "gatehouse.yaml", "resource: {id: 1, name: x}\n"), "gatehouse.yaml", "either", 1, 11},
		"expected is no word":   {files("a.rego", "", "gatehouse.yaml", "tests: [{name: x, input: {}, expected: yes}]\n"), "gatehouse.yaml", "true or false", 1, 40},
		"a case without input":  {files("a.rego", "", "gatehouse.yaml", "tests: [{name: x, expected: true}]\n"), "gatehouse.yaml", "an input", 1, 9},
		"data of a case":        {files("a.rego", "", "gatehouse.yaml", "tests: [{name: x, input: {}, expected: true, data: {resource: {}}}]\n"), "gatehouse.yaml", "unknown member", 1, 53},
		"resources of a case":   {files("a.rego", "", "gatehouse.yaml", "tests: [{name: x, input: {}, expected: true, data: {resources: [1]}}]\n"), "gatehouse.yaml", "mapping", 1, 64},
		"not a number":          {files("a.rego", "", "gatehouse.yaml", "tests: [{name: x, input: {a: .inf}, expected: true}]\n"), "gatehouse.yaml", "JSON", 1, 30},
		"merge keys":            {files("a.rego", "", "gatehouse.yaml", "tests: [{name: x, input: {<<: {a: 1}}, expected: true}]\n"), "gatehouse.yaml", "a string", 1, 27},
		"binary":                {files("a.rego", "", "gatehouse.yaml", "tests: [{name: x, input: {a: !!binary eA==}, expected: true}]\n"), "gatehouse.yaml", "tag", 1, 30},
		"a billion laughs":      {files("a.rego", "", "gatehouse.yaml", laughs(9)), "gatehouse.yaml", "aliases", 5, 22},
		"a long text often":     {files("a.rego", "", "gatehouse.yaml", often("&a \""+strings.Repeat("x", 100_000)+"\"")), "gatehouse.yaml", "bytes: too many aliases", 4, 0},
		"a long name often":     {files("a.rego", "", "gatehouse.yaml", often("&a {"+strings.Repeat("x", 1000)+": 1}")), "gatehouse.yaml", "bytes: too many aliases", 4, 0},
		"an alias of itself":    {files("a.rego", "", "gatehouse.yaml", "tests:\n  - name: x\n    expected: true\n    input: &a {b: *a}\n"), "gatehouse.yaml", "", 4, 0},
		"a path out":            {files("../a.rego", ""), "../a.rego", "relative", 0, 0},
		"an absolute path":      {files("/a.rego", ""), "/a.rego", "relative", 0, 0},
		"a path twice":          {files("a.rego", "", "a.rego", ""), "a.rego", "twice", 0, 0},
		"another file":          {files("a.rego", "", "a.json", ""), "a.json", "neither", 0, 0},
		"a backslash":           {files(`x\a.rego`, ""), `x\a.rego`, "backslash", 0, 0},
		"one name twice":        {files("a/a.rego", "", "a/gatehouse.yaml", "name: x\n", "b/b.rego", "", "b/gatehouse.yaml", "name: x\n"), "b/gatehouse.yaml", "also", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, issues := Read(c.files)
			if len(issues) == 0 {
				t.Fatal("Read finds no issue, want one")
			}
			is := issues[0]
			if is.File != c.file || !strings.Contains(is.Message, c.text) || is.Line != c.line || c.column > 0 && is.Column != c.column {
				t.Errorf("issues = %+v, want %q in %s, line %d, column %d", issues, c.text, c.file, c.line, c.column)
			}
		})
	}
}

// often returns a manifest with a test whose input refers to one value 20,000 times.
func often(anchored string) string {
	return "tests:\n  - name: x\n    expected: true\n    input: {a: " + anchored + ", b: [" + strings.TrimSuffix(strings.Repeat("*a,", 20_000), ",") + "]}\n"
}

// TestWriteRead writes controls and reads them back as the same.
func TestWriteRead(t *testing.T) {
	in := []Written{
		{
			Name: "Payments: owners only", Description: "multi\nline # text", Status: "active", Source: "package a\n", Resource: ResourceName{"Pay", "api", "/p/*"}, Bouncer: "edge",
			Cases: []WrittenCase{{"yes: no", map[string]any{"a": map[string]any{"on": "true", "n": 1.5, "date": "2026-01-01", "nil": nil}}, map[string]any{"resources": map[string]any{}, "pip": map[string]any{"hr": map[string]any{"n": 1.5}}}, true}},
		},
		{Name: "payments owners only", Status: "draft", Source: "package b\n"},
		{Path: "x/c.rego", Name: "~", Status: "inactive", Source: "package c\n"},
		{Path: "x/d.rego", Name: "Ünïcode ☂", Status: "active", Source: "package d\n", HiddenCases: 3},
		{Path: "../bad.rego", Name: "policy test", Status: "active", Source: "package e\n"},
	}
	out, err := Write(in)
	errtest.Must(t, err)
	repo, issues := Read(out)
	if len(issues) > 0 || len(repo.Controls) != len(in) {
		t.Fatalf("Read of what was written = %+v, want %d controls: %+v", issues, len(in), out)
	}
	for _, w := range in {
		found := false
		for _, c := range repo.Controls {
			if c.Name != w.Name {
				continue
			}
			found = true
			if c.Source != w.Source || *c.Status != w.Status || w.Resource.Name == "" && !c.Resource.None || w.Resource.Name != "" && c.Resource.Path != w.Resource.Path || w.Bouncer == "" && !c.Bouncer.None || c.HiddenCases != w.HiddenCases {
				t.Errorf("%+v was read as %+v", w, c)
			}
			if len(w.Cases) > 0 && (!reflect.DeepEqual((*c.Cases)[0].Input, w.Cases[0].Input) || !reflect.DeepEqual((*c.Cases)[0].Data, w.Cases[0].Data)) {
				t.Errorf("cases = %+v, want %+v", *c.Cases, w.Cases)
			}
		}
		if !found {
			t.Errorf("control %q is not in %+v", w.Name, repo.Controls)
		}
	}
}

// TestHiddenTestsIsANumber: another value of hidden_tests is an issue.
func TestHiddenTestsIsANumber(t *testing.T) {
	for _, text := range []string{"-1", "many", "1.5", "[]", "null", "99999999999999999999"} {
		if _, issues := Read(files("a.rego", "package a\n", "gatehouse.yaml", "hidden_tests: "+text+"\n")); len(issues) != 1 || issues[0].Line != 1 {
			t.Errorf("%s: %+v", text, issues)
		}
	}
}

// FuzzManifest reads hostile manifests. There is no panic, the positions of issues are in the file,
// and the number of issues is limited.
func FuzzManifest(f *testing.F) {
	f.Add(whole)
	f.Add(laughs(4))
	f.Add("tests:\n  - name: x\n    input: &a {b: *a}\n    expected: true\n")
	f.Add("? {a: b}\n: c\n")
	f.Add("a: !!binary x\n<<: *b\n")
	f.Add("controls: [[[[[[[[]]]]]]]]\n")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		repo, issues := Read(files("a.rego", "package a\n", "b.rego", "package b\n", "gatehouse.yaml", text))
		lines := 2
		for _, r := range text {
			if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) { // YAML's line breaks
				lines++
			}
		}
		for _, is := range issues {
			if is.Line < 0 || is.Line > lines || is.Column < 0 || is.Message == "" {
				t.Errorf("issue = %+v, want a place in %q", is, text)
			}
		}
		if len(issues) > maxIssues {
			t.Errorf("%d issues, want at most %d", len(issues), maxIssues)
		}
		for _, c := range repo.Controls {
			if strings.TrimSpace(c.Name) == "" {
				t.Errorf("Read of %q gives a control without a name", text)
			}
		}
	})
}

package devdocs

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// golden returns the operations of the API's document with all details.
func golden(t *testing.T) []*operation {
	t.Helper()
	doc, areas, err := read(goldenDocument(t))
	errtest.Must(t, err)
	doc.resolve()
	var out []*operation
	for _, a := range areas {
		for _, op := range a.Operations {
			doc.detail(op)
			out = append(out, op)
		}
	}
	if len(out) < 100 {
		t.Fatalf("the document has %d operations, want at least 100", len(out))
	}
	return out
}

func goldenDocument(t *testing.T) []byte {
	t.Helper()
	body, err := os.ReadFile("../api/testdata/openapi.json")
	errtest.Must(t, err)
	return body
}

func (op *operation) sample(id string) string {
	for _, s := range op.Samples {
		if s.ID == id {
			return s.Code
		}
	}
	return ""
}

// TestGoSamples: the samples parse, and import exactly the packages that they use.
func TestGoSamples(t *testing.T) {
	for _, op := range golden(t) {
		code := op.sample("go")
		if code == "" {
			if !op.Socket {
				t.Errorf("%s has no sample in Go", op.ID)
			}
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), "main.go", code, 0)
		if err != nil {
			t.Errorf("%s: %v\n%s", op.ID, err, code)
			continue
		}
		used := map[string]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok {
					used[x.Name] = true
				}
			}
			return true
		})
		for _, im := range file.Imports {
			if name := path.Base(strings.Trim(im.Path.Value, `"`)); !used[name] {
				t.Errorf("%s imports %s and does not use it", op.ID, name)
			}
		}
	}
}

// TestGoSampleCompiles: one sample of each form compiles.
func TestGoSampleCompiles(t *testing.T) {
	fulltest.Only(t)
	dir := t.TempDir()
	seen := map[string]bool{}
	for _, op := range golden(t) {
		form := fmt.Sprint(op.Auth, op.Request != nil, len(op.Samples))
		if code := op.sample("go"); code != "" && !seen[form] {
			seen[form] = true
			errtest.Must(t, os.WriteFile(filepath.Join(dir, op.ID+".go"), []byte(code), 0o600))
			if out, err := exec.CommandContext(t.Context(), "go", "vet", filepath.Join(dir, op.ID+".go")).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s\n%s", op.ID, err, out, code)
			}
		}
	}
}

// TestShellSamples: a shell passes the address, headers and body of the operation to curl.
func TestShellSamples(t *testing.T) {
	ops := golden(t)
	var script strings.Builder
	script.WriteString("set -eu\nGATEHOUSE_URL='http://h.example'\nGATEHOUSE_API_KEY='k'\nGATEHOUSE_TENANT='t'\ncurl() { printf '%s\\0' \"$@\"; printf '\\036'; }\n")
	for _, op := range ops {
		script.WriteString(op.sample("curl") + "\n")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-s")
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.Output()
	errtest.Must(t, err)
	calls := strings.Split(string(out), "\x1e")
	if len(calls) != len(ops)+1 {
		t.Fatalf("%d calls, want one for each of %d operations", len(calls)-1, len(ops))
	}
	for i, op := range ops {
		args := strings.Split(strings.TrimSuffix(calls[i], "\x00"), "\x00")
		c := callOf(op)
		want := map[string]bool{"http://h.example" + c.target: true}
		for _, h := range c.headers {
			want[h.name+": "+h.text+map[string]string{"GATEHOUSE_API_KEY": "k", "GATEHOUSE_TENANT": "t"}[h.variable]] = true
		}
		if c.body != "" {
			want[c.body] = true
		}
		for _, arg := range args {
			delete(want, arg)
		}
		if len(want) > 0 || strings.Contains(c.target, "{") {
			t.Errorf("%s: curl does not get %v\n%s", op.ID, want, op.sample("curl"))
		}
		if c.body != "" && !json.Valid([]byte(c.body)) {
			t.Errorf("body of %s = %s, want JSON", op.ID, c.body)
		}
	}
}

// TestQuotes: texts with special characters reach the program unchanged, in each language.
func TestQuotes(t *testing.T) {
	body := indented(object{{"it's", "a \"quoted\" `tick` $HOME \\ \n\t back: é 🙂 <b> & \x01"}, {"n", nil}, {"t", true}, {"l", []any{1.5, false, object{}}}})
	c := call{method: "POST", target: "/x?q=%22$`", headers: []header{{"X-A", "it's", ""}, {"Authorization", "Bearer ", "HOME"}}, body: body}
	for _, tc := range []struct{ program, code, arg string }{
		{"sh", "curl() { for a; do last=$a; done; printf %s \"$last\"; }\nGATEHOUSE_URL=u HOME=h\n" + c.curl(), "-s"},
		{"python3", strings.Replace(c.python(), "import os\n", "import os\nos.environ.update(GATEHOUSE_URL='http://u', HOME='h')\n", 1), "-"},
		{"node", "const process = {env: {}}; console.log = () => {}; const fetch = async (url, o) => { globalThis.sent = o.body; return {status: 1, text: async () => ''} };\n" + c.javascript(), "-"},
	} {
		if _, err := exec.LookPath(tc.program); err != nil {
			t.Logf("there is no %s here", tc.program)
			continue
		}
		code := tc.code
		switch tc.program {
		case "python3": // what would be sent, instead of sending it
			code, _, _ = strings.Cut(code, "with urllib.request")
			code += "print(req.data.decode(), end='')\n"
		case "node":
			code = "(async () => {\n" + code + "\nprocess2.stdout.write(globalThis.sent)})()"
			code = strings.Replace(code, "const process", "const process2 = globalThis.process; const process", 1)
		}
		cmd := exec.CommandContext(t.Context(), tc.program, tc.arg)
		cmd.Stdin = strings.NewReader(code)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s\n%s", tc.program, err, out, code)
			continue
		}
		if got, want := canonical(t, out), canonical(t, []byte(body)); got != want {
			t.Errorf("%s sends\n%s, want\n%s", tc.program, got, want)
		}
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "main.go", c.golang(), 0); err != nil {
		t.Errorf("%v\n%s", err, c.golang())
	}
}

func canonical(t *testing.T, body []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Errorf("%v: %s", err, body)
	}
	return compact(v)
}

// TestScriptSamples: Python and JavaScript accept each sample.
func TestScriptSamples(t *testing.T) {
	fulltest.Only(t)
	ops := golden(t)
	if _, err := exec.LookPath("python3"); err == nil {
		var all []string
		for _, op := range ops {
			all = append(all, op.sample("python"))
		}
		check := exec.CommandContext(t.Context(), "python3", "-c", "import ast, json, sys\nfor code in json.load(sys.stdin): ast.parse(code)")
		check.Stdin = strings.NewReader(compact(all))
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("Python: %v\n%s", err, out)
		}
	}
	if _, err := exec.LookPath("node"); err == nil {
		var all strings.Builder
		for i, op := range ops {
			fmt.Fprintf(&all, "async function f%d() {\n%s\n}\n", i, op.sample("javascript"))
		}
		file := filepath.Join(t.TempDir(), "samples.mjs")
		errtest.Must(t, os.WriteFile(file, []byte(all.String()), 0o600))
		if out, err := exec.CommandContext(t.Context(), "node", "--check", file).CombinedOutput(); err != nil {
			t.Errorf("JavaScript: %v\n%s", err, out)
		}
	}
}

// TestExamples: each example of a body is valid for its schema.
func TestExamples(t *testing.T) {
	spec, err := openapi3.NewLoader().LoadFromData(goldenDocument(t))
	errtest.Must(t, err)
	check := func(where, example string, content openapi3.Content) {
		media := content["application/json"]
		if example == "" || media == nil || media.Schema == nil {
			return
		}
		var v any
		if err := json.Unmarshal([]byte(example), &v); err != nil {
			t.Errorf("%s: %v", where, err)
			return
		}
		if err := media.Schema.Value.VisitJSON(v, openapi3.EnableFormatValidation()); err != nil {
			t.Errorf("%s: %v\n%s", where, err, example)
		}
	}
	for _, op := range golden(t) {
		doc := spec.Paths.Value(op.Path).GetOperation(op.Method)
		if op.Request != nil && doc.RequestBody != nil {
			check(op.ID+" sent", op.Request.Example, doc.RequestBody.Value.Content)
		}
		for _, a := range append(op.Answers, op.Faults...) {
			check(fmt.Sprint(op.ID, " ", a.Status), a.Example, doc.Responses.Status(a.Status).Value.Content)
		}
	}
}

// TestGuideBodies: the bodies in guides are valid for their operations.
func TestGuideBodies(t *testing.T) {
	fulltest.Only(t)
	spec, err := openapi3.NewLoader().LoadFromData(goldenDocument(t))
	errtest.Must(t, err)
	for file, path := range map[string]string{
		"webhook-subscribe.sh": "/api/v1/webhooks", "bouncer-register.sh": "/api/v1/bouncers",
		"first-control-2-resource.sh": "/api/v1/resources",
	} {
		code, err := guideCode(file)
		errtest.Must(t, err)
		_, body, _ := strings.Cut(code, "-d '")
		body, _, _ = strings.Cut(body, "'")
		var v any
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if !strings.Contains(code, path+`"`) {
			t.Errorf("%s does not call %s", file, path)
		}
		if err := spec.Paths.Value(path).Post.RequestBody.Value.Content["application/json"].Schema.Value.VisitJSON(v); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

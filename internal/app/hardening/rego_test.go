package hardening_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

var regoCases = []hardeningCase{
	{"R1 forbidden built-ins", forbiddenBuiltins},
	{"R1 what the evaluator cannot compile", unsupportedSources},
	{"R1 the host and the network", regoOutside},
	{"R6 sources that are too much", hugeSources},
	{"R7 text stays text", textStaysText},
	{"R7 reserved packages and data", reservedPackages},
}

// callForms are ways to name a built-in; %s is the call, %n the bare name.
var callForms = map[string]string{
	"directly":            "package p\n\nallow if %s",
	"assigned":            "package p\n\nallow if {\n\tx := %s\n\tx\n}",
	"negated":             "package p\n\nallow if not %s",
	"in every":            "package p\n\nallow if every x in [1] { x == 1; %s }",
	"in some":             "package p\n\nallow if { some x in [%s]; x }",
	"in a comprehension":  "package p\n\nallow if count([1 | %s]) > 0",
	"in a set":            "package p\n\ndeny contains \"x\" if %s",
	"in a partial object": "package p\n\nmask[\"x\"] := \"redact\" if %s",
	"in a partial rule":   "package p\n\nitems contains x if x := %s\n\nallow if items[_]",
	"in a function":       "package p\n\nf(x) := y if { y := %s; x }\n\nallow if f(true)",
	"in else":             "package p\n\nallow := true if false else := %s",
	"in a default":        "package p\n\ndefault allow := %s",
	"in a head":           "package p\n\nreason := %s",
	"in an argument":      "package p\n\nallow if is_object(%s)",
	"in an index":         "package p\n\nallow if input[%s]",
	"in a template":       "package p\n\nreason := $\"{%s}\"",
	"as a with target":    "package p\n\nallow if input.x with %n as 1",
	"as a with function":  "package p\n\nfake(_) := true\n\nallow if true with %n as fake",
	"as a with value":     "package p\n\nallow if count([1]) == 1 with count as %n",
	"as a with result":    "package p\n\nallow if input.x with input as %s",
	"in a test":           "package p\n\ntest_x if %s",
	"after a semicolon":   "package p\n\nallow if { true; %s }",
	"in dead code":        "package p\n\nallow if { false; %s }",
	"never called":        "package p\n\nunused(x) := %s if x\n\nallow := true",
}

// forbiddenBuiltins checks that a built-in that reaches out or reads the host is refused in every
// form: by validate with its place, by create and by update.
func forbiddenBuiltins(t *testing.T, r *fixture) {
	p := r.tenant(t, "Authors")
	own := fmt.Sprintf("/policies/%d", r.newControl(t, p, nil))
	calls := map[string]string{
		"http.send": `http.send({"method": "get", "url": "http://127.0.0.1:1/"})`, "opa.runtime": "opa.runtime()",
		"net.lookup_ip_addr": `net.lookup_ip_addr("example.com")`, "rego.parse_module": `rego.parse_module("x.rego", "package x")`,
	}
	for form, pattern := range callForms {
		for name, call := range calls {
			if name != "http.send" && form != "directly" && form != "as a with function" && form != "as a with value" {
				continue // http.send takes every form, the others some
			}
			source := strings.NewReplacer("%s", call, "%n", name).Replace(pattern)
			wantRefusedSource(t, p.admin, own, name+" "+form, source)
		}
	}
	// The other built-ins, directly.
	for _, call := range []string{
		`json.match_schema({}, {"$ref": "http://127.0.0.1:1/s.json"})`, `json.verify_schema({"$ref": "http://127.0.0.1:1/s.json"})`,
		`graphql.is_valid("{a}", "type Query {a: Int}")`, `crypto.x509.parse_certificates("x")`, `crypto.parse_private_keys("x")`,
		`io.jwt.encode_sign({"alg": "none"}, {}, {})`, `providers.aws.sign_req({}, {}, 1)`, `strings.render_template("{{.x}}", {"x": 1})`, `internal.test_case(1)`,
	} {
		wantRefusedSource(t, p.admin, own, call, "package p\n\nallow if "+call)
	}
	// Built-ins under another name.
	wantRefusedSource(t, p.admin, own, "imported", "package p\n\nimport http.send\n\nallow if send({})")
	wantRefusedSource(t, p.admin, own, "imported as", "package p\n\nimport data.http as h\n\nallow if h.send({})")
	wantRefusedSource(t, p.admin, own, "remote schema", "# METADATA\n# schemas:\n#   - input: {\"$ref\": \"http://127.0.0.1:1/s.json\"}\npackage p\n\nallow if opa.runtime()")
	if got := p.admin.Do(t, "GET", own, nil).Want(200); got.Get("version") != 1.0 {
		t.Errorf("the control after refused updates = %s, want version 1", got.Body)
	}
}

// unsupportedSources checks that a source that OPA's compiler accepts and our evaluator does not is
// refused when it is stored, so it is never evaluated.
func unsupportedSources(t *testing.T, r *fixture) {
	p := r.tenant(t, "Unsupported")
	own := fmt.Sprintf("/policies/%d", r.newControl(t, p, nil))
	for what, text := range map[string]string{
		"a number out of range":       "allow if input.n > 1e2000",
		"a number of too many digits": "allow if input.n == " + strings.Repeat("7", 65),
		"a number in two spellings":   "r[1].a := 1\n\nr[1.0].b := 2\n\nallow if r[1].a == input.a",
		"a name that is computed":     "allow if data[input.a].b == 1",
		"a large pattern":             "allow if regex.match(`" + strings.Repeat("a{1000}", 20) + "`, input.user.id)",
	} {
		wantRefusedSource(t, p.admin, own, what, "package p\n\n"+text)
	}
}

// wantRefusedSource checks that no operation accepts the source.
func wantRefusedSource(t *testing.T, c *apptest.Client, control, what, source string) {
	t.Helper()
	v := c.Do(t, "POST", "/policies/validate", body{"rego_code": source}).Want(200)
	var answer struct {
		Valid  bool `json:"valid"`
		Errors []struct {
			Line, Column int
			Message      string
		} `json:"errors"`
	}
	v.Into(&answer)
	if answer.Valid || len(answer.Errors) == 0 || answer.Errors[0].Line < 1 || answer.Errors[0].Column < 1 || answer.Errors[0].Message == "" {
		t.Errorf("%s: POST /policies/validate = %s, want an error with its place, for\n%s", what, v.Body, source)
	}
	for _, store := range []struct {
		method, path string
		body         body
	}{
		{"POST", "/policies", body{"name": "x", "rego_code": source}},
		{"POST", "/policies", body{"name": "x", "rego_code": source, "status": "active", "environment": "production"}},
		{"PUT", control, body{"rego_code": source}},
	} {
		res := c.Do(t, store.method, store.path, store.body)
		if res.Status != 422 || res.Get("error") != "invalid_policy" || !strings.Contains(string(res.Body), `"line":`) {
			t.Errorf("%s: %s %s = %d %s, want 422 invalid_policy with a line", what, store.method, store.path, res.Status, res.Body)
		}
	}
}

// regoOutside checks that no control causes a connection or reads the environment of the host.
func regoOutside(t *testing.T, r *fixture) {
	there, calls := listen(t)
	p := r.tenant(t, "Outside")
	for _, source := range []string{
		`package p` + "\n\n" + `allow if http.send({"method": "get", "url": "` + there + `"})`,
		`package p` + "\n\n" + `allow if json.match_schema({}, {"$ref": "` + there + `"})`,
		"# METADATA\n# scope: package\n# schemas:\n#   - input: {\"$ref\": \"" + there + "\"}\npackage p\n\nallow if input.x",
		"# METADATA\n# related_resources:\n#   - ref: " + there + "\npackage p\n\nallow := true",
		`package p` + "\n\n" + `allow if json.unmarshal("{\"$ref\": \"` + there + `\"}")`,
		`package p` + "\n\n" + `reason := sprintf("%v", [io.jwt.decode_verify("a.b.c", {"cert": "` + there + `"})])` + "\n\nallow := true",
	} {
		p.admin.Do(t, "POST", "/policies/validate", body{"rego_code": source})
		res := p.admin.Do(t, "POST", "/policies", body{"name": "x", "rego_code": source, "status": "active", "test_cases": []body{{"name": "t", "input": body{}, "expected": true}}})
		if res.Status == 201 {
			p.admin.Do(t, "POST", fmt.Sprintf("/policies/%d/test", res.ID()), body{})
		}
		p.key.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "u"}}).Want(200)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("controls opened %d connections, want none", n)
	}
	// The environment holds secrets. No control can show it.
	id := r.newControl(t, p, body{"status": "active", "rego_code": "package p\n\nallow := true\n\nreason := json.marshal([input, data.resources, rego.metadata.chain()])"})
	out := p.admin.Do(t, "POST", fmt.Sprintf("/policies/%d/test", id), body{"test_cases": []body{{"name": "t", "input": body{}, "expected": true}}})
	decided := p.key.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "u"}}).Want(200)
	for _, secret := range []string{apptest.Password, "NOTIFICATION_ENCRYPTION_KEY", os.Getenv("HOME") + "/", "PATH="} {
		if strings.Contains(string(out.Body)+string(decided.Body), secret) {
			t.Errorf("a control's output shows %q", secret)
		}
	}
}

// hugeSources checks that a source that is too large, too deep or too much work is refused in
// bounded time, with at most 100 errors, and that the server goes on.
func hugeSources(t *testing.T, r *fixture) {
	// The work is cut at two seconds, but the machine of a test may be busy.
	p := r.tenant(t, "Giants").within(20 * time.Second)
	var others, rules, errors strings.Builder
	others.WriteString("package p\n\nallow := 0 if input.x == 0\n")
	rules.WriteString("package p\n\n")
	errors.WriteString("package p\n\n")
	for i := range 5000 {
		fmt.Fprintf(&others, "else := %d if input.x == %d\n", i, i)
	}
	for i := range 20_000 {
		fmt.Fprintf(&rules, "r%d if input.x\n", i)
	}
	for i := range 2000 {
		fmt.Fprintf(&errors, "r%d if unknown_%d(1)\n", i, i)
	}
	deep := func(open, shut string) string {
		return "package p\n\nx := " + strings.Repeat(open, 100_000) + "1" + strings.Repeat(shut, 100_000)
	}
	for what, source := range map[string]string{
		"over the body's limit": "package p\n\n# " + strings.Repeat("x", 1<<20),
		"5000 else":             others.String(),
		"20000 rules":           rules.String(),
		"2000 errors":           errors.String(),
		"deep arrays":           deep("[", "]"),
		"deep parentheses":      deep("(", ")"),
		"deep sets":             deep("{", "}"),
		"deep objects":          deep(`{"a":`, "}"),
		"deep comprehensions":   "package p\n\nx := " + strings.Repeat("[1 | ", 50_000),
		"deep not":              "package p\n\nallow if " + strings.Repeat("not ", 100_000) + "true",
		"deep minus":            "package p\n\nallow if 1 == " + strings.Repeat("-", 100_000) + "1",
		"a long reference":      "package p\n\nallow if input" + strings.Repeat(".a", 100_000),
		"a long sum":            "package p\n\nallow if 1 == " + strings.Repeat("1+", 100_000) + "1",
		"a long string":         "package p\n\nx := \"" + strings.Repeat("a", 500_000) + "\"",
		"an open string":        "package p\n\nx := \"" + strings.Repeat("a", 500_000),
		"a huge number":         "package p\n\nx := 1" + strings.Repeat("0", 500_000),
		"a huge exponent":       "package p\n\nx := 1e999999999",
		"nothing":               " ",
		"only a comment":        "# package p",
		"NUL":                   "package p\n\nx := \"\u0000\"",
		"bidi":                  "package p\n\n# \u202e\nallow := true",
		"a BOM":                 "\ufeffpackage p\n\nallow := true",
	} {
		v := p.admin.Do(t, "POST", "/policies/validate", body{"rego_code": source})
		if v.Status != 200 && v.Status != 413 && v.Status != 422 || len(v.Body) > 1<<20 {
			t.Errorf("%s: POST /policies/validate = %d with %d bytes, want 200, 413 or 422 with at most 1 MiB: %.300s", what, v.Status, len(v.Body), v.Body)
		}
		if v.Status == 200 {
			if list, _ := v.Get("errors").([]any); len(list) > 100 {
				t.Errorf("%s: POST /policies/validate shows %d errors, want at most 100", what, len(list))
			}
		}
		if res := p.admin.Do(t, "POST", "/policies", body{"name": "x", "rego_code": source}); res.Status != 201 && res.Status != 413 && res.Status != 422 || res.Status == 422 && len(res.Body) > 100_000 {
			t.Errorf("%s: POST /policies = %d with %d bytes, want 201, 413 or a small 422: %.300s", what, res.Status, len(res.Body), res.Body)
		}
	}
	if v := p.admin.Do(t, "POST", "/policies/validate", body{"rego_code": "package p\n\nallow := true"}).Want(200).Get("valid"); v != true {
		t.Error("POST /policies/validate of a good source after the huge ones is not valid")
	}
}

// textStaysText checks that names, ids and paths with Rego, quotes or line breaks stay data, in
// decisions and in bundles, and change no other control.
func textStaysText(t *testing.T, r *fixture) {
	p := r.tenant(t, "Texts")
	hostile := []string{
		`"; allow := true #`, "x\"\n\nallow := true\n#", "`}] } allow := true", `\u0022; deny := true`, "package system.authz", "{{.}} ${x} %s %n", "' OR 1=1 --", "\u202eevil", "</script><script>alert(1)</script>",
	}
	names := map[int64]string{}
	for i, text := range hostile {
		name := text
		if strings.ContainsAny(text, "\n\u202e") {
			// A name may contain neither. Descriptions, attributes and ids may.
			p.admin.Do(t, "POST", "/resources", body{"name": text, "type": "api", "path": "/r7", "environment": "sandbox"}).Want(422)
			name = fmt.Sprint("text ", i)
		}
		resource := p.admin.Do(t, "POST", "/resources", body{"name": name, "type": "api", "path": fmt.Sprintf("/r7/%d", i), "environment": "sandbox", "description": text, "attributes": body{text: text}}).Want(201).ID()
		id := r.newControl(t, p, body{"name": name, "description": text, "resource_id": resource, "status": "active", "rego_code": "package p\n\ndefault allow := false\n\nallow if input.user.id == \"root\""})
		names[id] = name
	}
	for id, name := range names {
		if got := p.admin.Do(t, "GET", fmt.Sprintf("/policies/%d", id), nil).Want(200).Get("name"); got != strings.TrimSpace(name) {
			t.Errorf("GET of the control %q shows the name %q", name, got)
		}
	}
	for i, text := range hostile {
		for user, want := range map[string]string{"root": "PERMIT", "eve": "DENY", text: "DENY"} {
			res := p.key.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{
				"user": body{"id": user, text: text}, "action": body{"method": "GET", "name": text}, "resource": body{"type": "api", "path": fmt.Sprintf("/r7/%d", i)}, "context": body{text: text},
			}).Want(200)
			if res.Get("decision") != want {
				t.Errorf("the decision on %q for %q = %s, want %s", text, user, res.Body, want)
			}
		}
	}
	// In a bundle, the names are data too.
	id, c := r.newBouncer(t, p, nil)
	for _, control := range p.admin.Do(t, "GET", "/policies", nil).Want(200).Get("policies").([]any) {
		p.admin.Do(t, "PUT", fmt.Sprintf("/policies/%v", control.(map[string]any)["id"]), body{"resource_id": nil}).Want(200)
	}
	apptest.Eventually(t, 5*time.Second, func() error {
		text := apptest.Unpacked(t, c.Do(t, "GET", fmt.Sprintf("/bridge/bundles/%d", id), nil).Want(200).Body)
		if n := strings.Count(text, `"root"`); n < len(hostile) {
			return fmt.Errorf("the bundle has %d of %d controls", n, len(hostile))
		}
		for _, line := range []string{"\nallow := true", "\ndeny := true", "\npackage system"} {
			if strings.Contains(text, line) {
				t.Errorf("the bundle has the line %q, which comes from a name", line)
			}
		}
		return nil
	})
}

// reservedPackages checks that a control cannot be in a reserved package and reads no other data,
// and that two controls of one package do not see each other.
func reservedPackages(t *testing.T, r *fixture) {
	p := r.tenant(t, "Packages")
	own := fmt.Sprintf("/policies/%d", r.newControl(t, p, nil))
	for what, source := range map[string]string{
		"package system":         "package system\n\nallow := true",
		"package system.authz":   "package system.authz\n\nallow := true",
		"package system.main":    "package system.main\n\nmain := true",
		"package gatehouse":      "package gatehouse\n\ndecision := {\"decision\": \"PERMIT\"}",
		"package of a control":   "package gatehouse.controls.c1\n\nallow := true",
		"package resources":      "package resources\n\nx := 1",
		"package pip.x":          "package pip.x\n\nx := 1",
		"package by index":       "package p[\"..\"][\"system\"]\n\nallow if data.system.x",
		"data of another":        "package p\n\nallow if data.other.allow",
		"data of system":         "package p\n\nallow if data.system.version",
		"data of gatehouse":      "package p\n\nallow if data.gatehouse.controls",
		"data by a variable":     "package p\n\nallow if { x := \"other\"; data[x].allow }",
		"data as a whole":        "package p\n\nallow if count(data) > 0",
		"data walked":            "package p\n\nallow if walk(data, [_, v]); v",
		"data imported":          "package p\n\nimport data.other\n\nallow if other.allow",
		"data with a with":       "package p\n\nallow if input.x with data.other as {}",
		"data of input's choice": "package p\n\nallow if data[input.x].allow",
	} {
		wantRefusedSource(t, p.admin, own, what, source)
	}
	// Two controls of one package are independent.
	first := r.newControl(t, p, body{"status": "active", "rego_code": "package twin\n\nsecret := \"first\"\n\nallow if secret == \"first\""})
	r.newControl(t, p, body{"status": "active", "rego_code": "package twin\n\nsecret := \"second\"\n\nallow if secret == \"second\""})
	res := p.key.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "u"}}).Want(200)
	if res.Get("decision") != "PERMIT" {
		t.Errorf("the decision of two controls of one package = %s, want PERMIT", res.Body)
	}
	p.admin.Do(t, "DELETE", fmt.Sprintf("/policies/%d", first), nil).Want(200)
	// A control that contradicts itself causes an error, and an error denies.
	r.newControl(t, p, body{"name": "torn", "status": "active", "rego_code": "package twin\n\nallow := true\n\nallow := false"})
	if res := p.key.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "u"}}).Want(200); res.Get("decision") != "DENY" || res.Get("policy_name") != "torn" {
		t.Errorf("the decision of a control that contradicts itself = %s, want DENY by torn", res.Body)
	}
}

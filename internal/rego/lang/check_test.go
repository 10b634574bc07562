package lang

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

func TestCheckRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, source string
		line, col    int
		message      string
	}{
		{"call", "package a\nallow if http.send({})", 2, 10, "built-in http.send is not offered"},
		{"with value", "package a\nallow if count([1]) with count as http.send", 2, 35, "built-in http.send is not offered"},
		{"with target", "package a\nallow if f(1) with http.send as f\nf(x) := x", 2, 20, "built-in http.send is not offered"},
		{"every", "package a\nallow if every x in [1] { x; opa.runtime().env }", 2, 30, "built-in opa.runtime is not offered"},
		{"template", "package a\nallow := $\"{http.send({})}\"", 2, 13, "built-in http.send is not offered"},
		{"partial rule", "package a\np[net.lookup_ip_addr(\"x\")] := 1", 2, 3, "built-in net.lookup_ip_addr is not offered"},
		{"comprehension", "package a\nallow := {x | x := rego.parse_module(\"a\", \"package b\")}", 2, 20, "built-in rego.parse_module is not offered"},
		{"function", "package a\nf(x) := http.send(x)\nallow if f(1)", 2, 9, "built-in http.send is not offered"},
		{"default", "package a\ndefault allow := http.send({})", 2, 0, ""},
		{"nested argument", "package a\nallow if count(http.send({}).body) > 1", 2, 16, "built-in http.send is not offered"},
		{"rule head value", "package a\nallow := http.send({}).status_code == 200", 2, 10, "built-in http.send is not offered"},
		{"else", "package a\nallow if false else := http.send({})", 2, 24, "built-in http.send is not offered"},
		{"remote schema", "package a\nallow if json.match_schema({}, {\"$ref\": \"http://x\"})", 2, 10, "built-in json.match_schema is not offered"},
		{"alias of data", "package a\nimport data.http as http\nallow := http.send({})", 2, 1, "data.http is not offered"},
		{"unknown", "package a\nallow if no.such(1)", 2, 10, "undefined function no.such"},
		{"other data", "package a\nallow := data.other.x", 2, 10, "data.other is not offered"},
		{"imported data", "package a\nimport data.other as o\nallow := o.x", 2, 1, "data.other is not offered"},
		{"dynamic root", "package a\nallow := data[input.x]", 2, 10, "must be written out"},
		{"all of data", "package a\nallow if { x := data; x.b }", 2, 17, "data as a whole"},
		{"data in brackets", "package a\nallow := input[data.z]", 2, 16, "data.z is not offered"},
		{"data with", "package a\nallow if input.x with data.z as 1", 2, 23, "data.z is not offered"},
		{"parent package", "package a.b\nallow if data.a.c", 2, 10, "data.a is not offered"},
		{"system", "package system.authz\nallow := true", 1, 1, "reserved"},
		{"gatehouse", "package gatehouse\nallow := true", 1, 1, "reserved"},
		{"resources", "package resources.x\nallow := true", 1, 1, "reserved"},
		{"pip", "package pip\nallow := true", 1, 1, "reserved"},
		{"empty", "", 1, 1, "empty module"},
		{"syntax", "package a\nallow if {", 2, 0, ""},
		{"no package", "allow := true", 1, 0, "package expected"},
		{"v0", "package a\nallow { true }", 2, 0, ""},
		{"recursion", "package a\na if b\nb if a", 2, 0, "recursive"},
		{"unsafe", "package a\nallow if x > 1", 2, 0, "unsafe"},
		{"declared by itself", "package a\nallow if {\n\tx := input.l\n\tsome x in x\n}", 4, 2, "var x is declared"},
		{"key declared by itself", "package a\nallow if { some i, x in input.a[i]; x }", 2, 12, "var i is declared"},
		{"types", "package a\nallow if 1 + \"a\" == 2", 2, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			issues := Check(tc.source)
			if len(issues) == 0 {
				t.Fatal("passed")
			}
			is := issues[0]
			if tc.line != is.Line || tc.col > 0 && tc.col != is.Column || !strings.Contains(is.Message, tc.message) || is.Severity != SeverityError {
				t.Errorf("%+v", issues)
			}
			if c, _ := Compile(tc.source, nil); c.Program != nil {
				t.Error("compiled")
			}
		})
	}
}

func TestCheckPasses(t *testing.T) {
	for _, source := range []string{
		"package a\nallow := true",
		"package a\nhttp := {\"send\": 1}\nallow if http.send == 1",
		"package a\nallow if { http := input; http.send }",
		"package a\nallow if data.a.b\nb := 1",
		"package a\nallow if data.resources[input.id].owner == data.pip.hr[input.x]",
		"package a\nallow if input.x with data.pip.hr as {}",
		"# METADATA\n# title: x\npackage a\n# METADATA\n# title: y\nallow := true",
	} {
		if issues := Check(source); len(issues) > 0 {
			t.Errorf("%q: %v", source, issues)
		}
	}
}

func TestSourceLimits(t *testing.T) {
	fulltest.Only(t)
	big := func(n int, format string) string {
		var b strings.Builder
		b.WriteString("package a\n")
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, source := range map[string]string{
		"size":              "package a\n#" + strings.Repeat("x", MaxSourceBytes),
		"brackets":          "package a\nallow := " + strings.Repeat("[", 100_000),
		"closed brackets":   "package a\nallow := " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
		"signs":             "package a\nallow := " + strings.Repeat("-", 100_000) + "1",
		"spaced signs":      "package a\nallow := " + strings.Repeat("- ", 100_000) + "1",
		"sum":               "package a\nallow := 1" + strings.Repeat("+1", 200_000),
		"union":             "package a\nallow := x" + strings.Repeat("|x", 200_000),
		"comparisons":       "package a\nallow if 1" + strings.Repeat("==1", 200_000),
		"nots":              "package a\nallow if " + strings.Repeat("not ", 100_000) + "true",
		"rules":             big(20_000, "r%d := 1\n"),
		"else":              "package a\nallow := 1 if input.x" + strings.Repeat(" else := 2 if input.y", 5000),
		"errors":            big(1500, "r%d := http.send({})\n"),
		"dots":              "package a\nallow := input" + strings.Repeat(".a", 400_000),
		"brackets of refs":  "package a\nallow := input" + strings.Repeat("[input", 300) + strings.Repeat("]", 300),
		"withs":             "package a\nallow if input.x" + strings.Repeat(" with input.x as 1", 40_000),
		"commas":            "package a\nallow := [" + strings.Repeat("1,", 500_000) + "1]",
		"raw strings":       "package a\nallow := `" + strings.Repeat("[", 100_000),
		"templates":         "package a\nallow := " + strings.Repeat(`$"{`, 50_000),
		"comprehensions":    "package a\nallow := " + strings.Repeat("[x | x := ", 60) + "1" + strings.Repeat("]", 60),
		"calls":             "package a\nallow := " + strings.Repeat("f(", 5000) + strings.Repeat(")", 5000),
		"imports":           "package a\n" + strings.Repeat("import data.a.b\n", 50_000),
		"many vars":         "package a\nallow if {" + strings.Repeat("some x\n", 1) + big(3000, " x%d := input.a%[1]d\n")[10:] + "}",
		"unsafe vars":       "package a\nallow if {" + big(3000, " x%d > 1\n")[10:] + "}",
		"a long dependency": big(1900, "r%d if r%[1]d1\n"),
	} {
		t.Run(name, func(t *testing.T) {
			hang := time.AfterFunc(time.Minute, func() { panic("the check does not end: " + name) })
			defer hang.Stop()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			issues := Check(source)
			runtime.ReadMemStats(&after)
			if len(issues) > maxIssues {
				t.Errorf("%d issues", len(issues))
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 { // the work of a check is mostly allocation
				t.Errorf("it allocated %d MiB", took>>20)
			}
		})
	}
}

func TestLinter(t *testing.T) {
	l, err := NewLinter(context.Background())
	errtest.Must(t, err)
	got, err := l.Lint(context.Background(), "package a\n\nimport data.pip.x\n\nallow = true if input.roles[_] == \"a\"\n")
	if err != nil || len(got) == 0 {
		t.Fatalf("%v %v", got, err)
	}
	for _, is := range got {
		if is.Severity != SeverityWarning || is.Line == 0 || !strings.Contains(is.Rule, "/") || is.Message == "" {
			t.Errorf("%+v", is)
		}
	}
	if got, err := l.Lint(context.Background(), "package a\nallow if {"); err != nil || got != nil {
		t.Errorf("a text that does not parse has warnings: %v %v", got, err)
	}
}

// Every built-in that is offered is one of OPA's.
func TestBuiltinsAreSorted(t *testing.T) {
	names := Builtins()
	if len(names) < 140 {
		t.Errorf("only %d built-ins are offered", len(names))
	}
	for name := range offeredNames() {
		if !strings.Contains(strings.Join(names, " ")+" ", name+" ") {
			t.Errorf("%s is offered, but OPA has none of that name", name)
		}
	}
}

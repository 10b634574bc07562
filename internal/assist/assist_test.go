package assist

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// cut removes the mark from a source, and returns the text and the offset of the mark.
func cut(t testing.TB, marked string) (source string, offset int) {
	t.Helper()
	before, after, ok := strings.Cut(marked, "¦")
	if !ok {
		t.Fatalf("no mark in %q", marked)
	}
	return before + after, len(before)
}

// labels returns the labels of completions.
func labels(list []Completion) []string {
	var out []string
	for _, c := range list {
		out = append(out, c.Label)
	}
	return out
}

// Completions fit the place of the cursor, and none are offered in texts and comments.
func TestComplete(t *testing.T) {
	know := Knowledge{
		Members:   []Member{{"input.user.badge", "string", "From this file."}, {"input.user.roles", "array", "again"}},
		Data:      []Member{{`data.resources["7"]`, "object", "orders"}},
		Templates: []Template{{ID: "RATE_LIMIT", Title: "Limit", Source: "package rate\n\nallow if \"${}\" == \"\\\\\"\n"}},
	}
	for name, c := range map[string]struct {
		marked    string
		want, not []string
	}{
		"members of input":     {"package a\n\nallow if input.us¦", []string{"input.user", "input.user.roles", "input.usage"}, []string{"startswith", "input.action"}},
		"of this file":         {"package a\n\nallow if input.user.¦ == 1", []string{"input.user.badge", "input.user.roles"}, []string{"input.user"}},
		"of this file, broken": {"package a\n\nallow if input.tool.risk > 3\nallow if input.to¦", []string{"input.tool.risk"}, nil},
		"of data":              {"package a\n\nallow if data.¦", []string{"data.resources", "data.pip", "data.grants", `data.resources["7"]`}, nil},
		"functions":            {"package a\n\nallow if starts¦", []string{"startswith"}, []string{"endswith", "input"}},
		"functions with a dot": {"package a\n\nallow if net.cidr_c¦", []string{"net.cidr_contains"}, []string{"net.lookup_ip_addr"}},
		"no forbidden ones":    {"package a\n\nallow if http¦", nil, []string{"http.send"}},
		"rules of the file":    {"package a\n\nis_owner(x) if x == 1\n\nallow if is_o¦", []string{"is_owner"}, nil},
		"keywords":             {"package a\n\ndef¦", []string{"default"}, nil},
		"templates":            {"RATE¦", []string{"RATE_LIMIT"}, nil},
		"no template later":    {"package a\n\nallow if true\n\nRATE¦", nil, []string{"RATE_LIMIT"}},
	} {
		t.Run(name, func(t *testing.T) {
			source, offset := cut(t, c.marked)
			got := labels(Complete(source, offset, know))
			for _, l := range c.want {
				if !slices.Contains(got, l) {
					t.Errorf("the completions are %v, want %s", got, l)
				}
			}
			for _, l := range c.not {
				if slices.Contains(got, l) {
					t.Errorf("the completions are %v, want no %s", got, l)
				}
			}
		})
	}
	for _, marked := range []string{"package a # inp¦ut", "package a\nx := \"inp¦\"", "package a\nx := `\ninp¦`", "package a\nx := \"a\\\"inp¦"} {
		source, offset := cut(t, marked)
		if got := Complete(source, offset, know); len(got) > 0 {
			t.Errorf("%q: the completions are %v, want none in a text", marked, labels(got))
		}
	}
	source, offset := cut(t, "package a\nx := \"\\\\\"\ny := inp¦")
	if !slices.Contains(labels(Complete(source, offset, know)), "input") {
		t.Error("after a string that ends in a backslash: no input, want it")
	}
	if got := Complete("RATE", 4, know); len(got) == 0 || got[0].Insert != know.Templates[0].Source {
		t.Errorf("a template: %+v, want its source unchanged", got)
	}
	if got := Complete("startsw", 7, know); len(got) != 1 || got[0].Snippet != "startswith(${1:search}, ${2:base})" {
		t.Errorf("a function: %+v, want its arguments as places", got)
	}
}

// A hover explains the name under the cursor.
func TestHover(t *testing.T) {
	for marked, want := range map[string]string{
		"package a\nallow if start¦swith(input.user.id, \"a\")":    "startswith(search: string, base: string) → boolean",
		"package a\nallow if net.cidr_c¦ontains(\"a\", \"b\")":     "net.cidr_contains(",
		"package a\nallow if input.user.ro¦les":                    "Role names",
		"package a\nallow if inp¦ut.user.roles":                    "",
		"package a\nallow if input.us¦er.roles":                    "The subject",
		"package a\n¦every":                                        "each element",
		"package a\nx := http.se¦nd({})":                           "not offered",
		"package a\n# Owners may.\nowner if true\nallow if own¦er": "Owners may.",
		"package a # startswi¦th":                                  "",
	} {
		source, offset := cut(t, marked)
		text, span, ok := Hover(source, offset, Knowledge{})
		if ok != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%q: the hover is %q, %v, want %q", marked, text, ok, want)
		}
		if ok && (span.Start > offset || span.End < offset) {
			t.Errorf("%q: the span is %v, want the cursor within it", marked, span)
		}
	}
}

// TestFixes checks that an issue has a fix that gives the wanted text.
func TestFixes(t *testing.T) {
	linter, err := lang.NewLinter(t.Context())
	errtest.Must(t, err)
	for name, c := range map[string]struct{ source, want string }{
		"if":          {"package a\n\nallow { input.x }\n", "package a\n\nallow if { input.x }\n"},
		"contains":    {"package a\n\ndeny[x] { x := 1 }\n", "package a\n\ndeny contains x if { x := 1 }\n"},
		"package":     {"allow if true\n", "package policy\n\nallow if true\n"},
		"function":    {"package a\n\nallow if \"é😀\" == startwith(\"é\", \"b\")\n", "package a\n\nallow if \"é😀\" == startswith(\"é\", \"b\")\n"},
		"comment":     {"package a\n\n#hello\nx := 1\n", "package a\n\n# hello\nx := 1\n"},
		"raw pattern": {"package a\n\nallow if regex.match(\"a\\\\.b\", input.user.id)\n", "package a\n\nallow if regex.match(`a\\.b`, input.user.id)\n"},
		"snake case":  {"package a\n\nisOwner := 1\n", "package a\n\nis_owner := 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			issues := lang.Check(c.source)
			if len(issues) == 0 {
				var err error
				issues, err = linter.Lint(t.Context(), c.source)
				errtest.Must(t, err)
			}
			for _, f := range Fixes(c.source, issues) {
				if got := c.source[:f.Span.Start] + f.Text + c.source[f.Span.End:]; got == c.want {
					return
				}
			}
			t.Errorf("the fixes of %+v are %+v, want one that gives %q", issues, Fixes(c.source, issues), c.want)
		})
	}
}

// The members of the input that a control reads have types and texts from their use.
func TestAttributes(t *testing.T) {
	got := Attributes("package a\n\nallow if input.tool.risk > 3\n\nallow if input.tool.name == \"search\"\n")
	if len(got) != 2 || got[0].Path != "input.tool.name" || !strings.Contains(got[0].Doc, "search") || got[1].Type != "number" {
		t.Errorf("the attributes are %+v, want name and risk of the tool", got)
	}
	if got := Attributes("package a\nallow if {"); got != nil {
		t.Errorf("the attributes of a source that does not parse are %+v, want none", got)
	}
}

// A source that parses is formatted, another is an error.
func TestFormat(t *testing.T) {
	got, err := Format("package a\nallow   if {input.x==1\n}")
	if want := "package a\n\nallow if input.x == 1\n"; err != nil || got != want {
		t.Errorf("Format = %q, %v, want %q", got, err, want)
	}
	for _, bad := range []string{"", "package", "package a\nallow if {", "package a\n" + strings.Repeat("x := [", 100)} {
		if got, err := Format(bad); err == nil {
			t.Errorf("Format(%q) = %q, want an error", bad, got)
		}
	}
}

// Place and Offset are inverse, and Offset stays within the text.
func TestPlaces(t *testing.T) {
	source := "package a\n\"é😀\" == x\n"
	at := strings.Index(source, "x\n")
	line, column := Place(source, at)
	if line != 2 || column != 9 || Offset(source, line, column) != at {
		t.Errorf("Place(%d) = %d:%d, whose offset is %d, want 2:9", at, line, column, Offset(source, line, column))
	}
	if Offset(source, 99, 99) != len(source) || Offset(source, 1, 99) != 9 || Offset(source, 0, 0) != 0 {
		t.Error("Offset of a place beyond the text is not its end")
	}
}

// FuzzHints checks that all spans lie within the source, and that what Format returns can be formatted.
func FuzzHints(f *testing.F) {
	for _, s := range []string{"package a\n\nallow { input.x }\n", "input.", "deny[x] { x := \"é😀\" }", "`", "\"\\", "# x", "RATE", "package a\nallow := startwith(1)\n"} {
		f.Add(s, len(s))
	}
	know := Knowledge{Templates: []Template{{ID: "RATE_LIMIT", Source: "package x"}}}
	f.Fuzz(func(t *testing.T, source string, offset int) {
		for _, c := range Complete(source, offset, know) {
			if c.Span.Start < 0 || c.Span.End < c.Span.Start || c.Span.End > len(source) {
				t.Fatalf("%q at %d: span %v", source, offset, c.Span)
			}
		}
		_, _, _ = Hover(source, offset, know)
		for _, fx := range Fixes(source, lang.Check(source)) {
			if fx.Span.Start < 0 || fx.Span.End < fx.Span.Start || fx.Span.End > len(source) {
				t.Fatalf("%q: span %v", source, fx.Span)
			}
		}
		if once, err := Format(source); err == nil {
			if _, err := Format(once); err != nil {
				t.Fatalf("Format(%q) = %q, which does not parse", source, once)
			}
		}
	})
}

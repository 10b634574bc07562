package lang

import (
	"fmt"
	"strings"
	"testing"
)

func testLibrary(id int64, source string) Library {
	return Library{ID: id, Name: fmt.Sprint("library ", id), Version: 1, Source: source}
}

const testText = "package lib.text\n\nsame(a, b) if lower(a) == lower(b)\n\nlines := {1: \"one\"}\n"

func TestLibraryPackage(t *testing.T) {
	for source, want := range map[string]string{
		testText:                              "lib.text",
		"# package lib.no\n\npackage lib.a.b": "lib.a.b",
		"package\tlib.x # text":               "lib.x",
		"package lib":                         "",
		"package lib[\"x\"]":                  "",
		"package lib.x[\"y\"]":                "",
		"package other.lib":                   "",
		"allow := true\npackage lib.x":        "",
		"":                                    "",
	} {
		if got := (Library{Source: source}).Package(); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
}

func TestCheckOfWhatUsesLibraries(t *testing.T) {
	libs := []Library{
		testLibrary(1, testText),
		testLibrary(2, "package lib.users\n\nimport data.lib.text\n\nnamed(n) if text.same(input.user.id, n)\n"),
		testLibrary(3, "package lib.round.a\n\nimport data.lib.round.b\n\nx := b.x\n"),
		testLibrary(4, "package lib.round.b\n\nimport data.lib.round.a\n\nx if a.x\n"),
		testLibrary(5, "package lib.bad\n\nx := 1\n\ny := http.send({})\n"),
		testLibrary(6, "package lib.lost\n\nimport data.lib.gone\n\nx := gone.x\n"),
		testLibrary(7, "package lib.reads\n\nx := data.secrets.y\n"),
		testLibrary(8, "package lib.types\n\nx := 1 + \"a\"\n"),
		testLibrary(9, "package lib.member\n\nimport data.lib.text\n\nx := text.none\n"),
	}
	for _, tc := range []struct {
		name, source string
		line, col    int
		message      string
	}{
		{"unknown", "package a\n\nimport data.lib.nope\n\nallow if nope.x", 3, 1, "no active library lib.nope"},
		{"unknown deep", "package a\n\nimport data.lib.nope.deep\n\nallow if deep.x(1)", 3, 1, "no active library lib.nope.deep"},
		{"unknown and not imported", "package a\n\nallow if data.lib.nope.x == 1", 3, 10, "no active library lib.nope"},
		{"unknown function", "package a\n\nimport data.lib.text\n\nallow if text.nope(1)", 5, 10, "undefined function data.lib.text.nope"},
		{"unknown rule", "package a\n\nimport data.lib.text\n\nallow if text.nope == 1", 5, 10, "lib.text has no rule or function \"nope\""},
		{"unknown member", "package a\n\nimport data.lib.text.nope\n\nallow if nope", 3, 1, "lib.text has no rule or function \"nope\""},
		{"whole package", "package a\n\nimport data.lib.text\n\nallow if text == input.x", 5, 10, "name a rule or function of the library lib.text"},
		{"any member", "package a\n\nimport data.lib.text\n\nallow if text[input.x]", 5, 10, "name a rule or function of the library lib.text"},
		{"any library", "package a\n\nallow if data.lib[input.x].y", 3, 10, "the library must be written out"},
		{"all libraries", "package a\n\nimport data.lib\n\nallow if lib.text.same(1, 2)", 3, 1, "the library must be written out"},
		{"arity", "package a\n\nimport data.lib.text\n\nallow if text.same(1)", 5, 10, "has arity 2, got 1 argument"},
		{"circle", "package a\n\nimport data.lib.text\nimport data.lib.round.a\n\nallow if a.x", 4, 1, "lib.round.a -> lib.round.b -> lib.round.a"},
		{"bad library", "package a\n\nimport data.lib.bad\n\nallow if bad.x", 3, 1, "library lib.bad, line 5: built-in http.send is not offered"},
		{"its library is unknown", "package a\n\nimport data.lib.lost\n\nallow if lost.x", 3, 1, "library lib.lost refers to lib.gone"},
		{"its data", "package a\n\nimport data.lib.reads\n\nallow if reads.x", 3, 1, "library lib.reads, line 3: data.secrets is not offered"},
		{"its types", "package a\n\nimport data.lib.types\n\nallow if types.x", 3, 1, "library lib.types, line 3: plus: invalid argument"},
		{"its member", "package a\n\nimport data.lib.member\n\nallow if member.x", 3, 1, "library lib.member, line 5: the library lib.text has no rule"},
		{"its package", "package lib.mine\n\nallow := true", 1, 1, "packages under lib are for libraries"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			issues := Check(tc.source, libs...)
			if len(issues) == 0 {
				t.Fatal("passed")
			}
			if is := issues[0]; is.Line != tc.line || is.Column != tc.col || !strings.Contains(is.Message, tc.message) {
				t.Errorf("%+v", issues)
			}
			if len(issues) > 1 {
				t.Errorf("said more than once: %+v", issues)
			}
		})
	}
	if issues := Check("package a\n\nimport data.lib.users\n\nallow if users.named(\"ann\")\n", libs...); len(issues) > 0 {
		t.Errorf("%+v", issues)
	}
}

func TestCheckLibrary(t *testing.T) {
	libs := []Library{testLibrary(1, testText), testLibrary(2, "package lib.users\n\nimport data.lib.text\n\nx := text.lines\n")}
	for _, tc := range []struct {
		name, source string
		line         int
		message      string
	}{
		{"fine", "package lib.mine\n\nimport data.lib.text\n\nx := text.same(input.a, input.b)\n", 0, ""},
		{"the next version of one", strings.Replace(testText, "lower", "upper", 1), 0, ""},
		{"package", "package mine\n\nx := 1", 1, "begins with lib."},
		{"no name", "package lib\n\nx := 1", 1, "begins with lib."},
		{"no plain name", "package lib[\"a b\"]\n\nx := 1", 1, "begins with lib."},
		{"within another", "package lib.text.more\n\nx := 1", 1, "there is already a library lib.text"},
		{"itself", "package lib.mine\n\nx := data.lib.mine.y\n\ny := 1", 0, ""},
		{"circle", "package lib.text\n\nimport data.lib.users\n\nlines := users.x\n", 3, "lib.text -> lib.users -> lib.text"},
		{"unknown", "package lib.mine\n\nimport data.lib.nope\n\nx := nope.x\n", 3, "no active library lib.nope"},
		{"built-in", "package lib.mine\n\nx := http.send({})\n", 3, "http.send is not offered"},
		{"data", "package lib.mine\n\nx := data.other\n", 3, "data.other is not offered"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			issues := CheckLibrary(tc.source, libs...)
			if (len(issues) == 0) != (tc.message == "") {
				t.Fatal(issues)
			}
			if len(issues) > 0 && (issues[0].Line != tc.line || !strings.Contains(issues[0].Message, tc.message)) {
				t.Errorf("%+v", issues)
			}
		})
	}
}

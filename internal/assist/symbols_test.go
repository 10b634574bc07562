package assist

import (
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

const lib = `package lib.net

# Whether an address is ours.
ok(address, strict) if startswith(address, "10.")

depth := 3
`

// marks returns the text of each location, with its file and line.
func marks(files []File, list []Location) []string {
	var out []string
	for _, l := range list {
		for _, f := range files {
			if f.Name == l.File {
				line, _ := Place(f.Text, l.Span.Start)
				out = append(out, strings.TrimSpace(f.Name+":"+string(rune('0'+line/10))+string(rune('0'+line%10))+" "+f.Text[l.Span.Start:l.Span.End]))
			}
		}
	}
	return out
}

// The definition and the uses of a name are found in all files of its package and its importers.
func TestDefinitionAndReferences(t *testing.T) {
	const control = `package pay

import data.lib.net
import data.lib.net as n2

default allow := false

allow if {
	some role in input.user.roles
	rank(role) > limit
	net.ok(input.context.ip, true)
	not blocked
}

rank(r) := 3 if r == "admin"

rank(r) := n2.depth if r == "guest"

limit := 2

blocked if { x := [limit | limit2 := 1; limit2 > 0]; count(x) > 9 }

seen[id] if { some id in input.ids; data.pay.limit > 1 }
`
	const testFile = "package pay_test\n\nimport data.pay\n\ntest_rank if pay.rank(\"admin\") == data.pay.limit + 1\n"
	for name, c := range map[string]struct {
		at         string // the first occurrence of this text, the mark at its ¦
		definition []string
		references []string
	}{
		"a rule":                {"> lim¦it\n", []string{"a/pay.rego:19 limit"}, []string{"a/pay.rego:10 limit", "a/pay.rego:21 limit", "a/pay.rego:23 limit", "a/pay_test.rego:05 limit"}},
		"a function":            {"\tra¦nk(role)", []string{"a/pay.rego:15 rank", "a/pay.rego:17 rank"}, []string{"a/pay.rego:10 rank", "a/pay_test.rego:05 rank"}},
		"under not":             {"not bloc¦ked", []string{"a/pay.rego:21 blocked"}, []string{"a/pay.rego:12 blocked"}},
		"a variable":            {"rank(ro¦le)", []string{"a/pay.rego:09 role"}, []string{"a/pay.rego:10 role"}},
		"an argument":           {"if r¦ == \"admin\"", []string{"a/pay.rego:15 r"}, []string{"a/pay.rego:15 r"}},
		"in a head":             {"some id¦ in", []string{"a/pay.rego:23 id"}, []string{"a/pay.rego:23 id"}},
		"a library's rule":      {"net.o¦k(", []string{"lib/net.rego:04 ok"}, []string{"a/pay.rego:11 ok"}},
		"by another name":       {"n2.dep¦th", []string{"lib/net.rego:06 depth"}, []string{"a/pay.rego:17 depth"}},
		"a library":             {"\tne¦t.ok", []string{"lib/net.rego:01 lib.net"}, []string{"a/pay.rego:11 net"}},
		"an import's alias":     {"as n¦2", []string{"lib/net.rego:01 lib.net"}, []string{"a/pay.rego:17 n2"}},
		"nothing in a text":     {"\"adm¦in\"", nil, nil},
		"nothing of input":      {"input.us¦er", nil, nil},
		"nothing of a built-in": {"cou¦nt(x)", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before, after, _ := strings.Cut(c.at, "¦")
			offset := strings.Index(control, before+after)
			if offset < 0 {
				t.Fatalf("%q is not in the source", before+after)
			}
			offset += len(before)
			files := []File{{"a/pay.rego", control}, {"a/pay_test.rego", testFile}, {"lib/net.rego", lib}, {"b/pay.rego", "package pay\n\nlimit := 7\n"}, {"broken.rego", "package x\n\nallow if {"}}
			if got := marks(files, Definition(files, offset)); !slices.Equal(got, c.definition) {
				t.Errorf("definition %q, want %q", got, c.definition)
			}
			if got := marks(files, References(files, offset, false)); !slices.Equal(got, c.references) {
				t.Errorf("references %q, want %q", got, c.references)
			}
		})
	}
}

// rename returns files in which the name at offset is another.
func rename(t *testing.T, files []File, offset int, to string) []File {
	t.Helper()
	places, err := Rename(files, offset, to)
	errtest.Must(t, err)
	out := slices.Clone(files)
	for i := range out {
		for _, l := range slices.Backward(places) {
			if l.File == out[i].Name {
				out[i].Text = out[i].Text[:l.Span.Start] + to + out[i].Text[l.Span.End:]
			}
		}
	}
	return out
}

// An alias is renamed where it stands, and not where the path or a comment has the same word.
func TestRenameOfAnAlias(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"with a comment":               {"import data.lib.net as n # the net rules of n", "import data.lib.net as m # the net rules of n"},
		"that the path has too":        {"import data.lib.n as n", "import data.lib.n as m"},
		"that ends another word":       {"import data.lib.net as net2 # net2", "import data.lib.net as m # net2"},
		"of a part in brackets":        {`import data.lib["n"] as n`, `import data.lib["n"] as m`},
		"on the next line":             {"import data.lib.net as # n\n\tn", "import data.lib.net as # n\n\tm"},
		"with more than one space":     {"import data.lib.net  as  n", "import data.lib.net  as  m"},
		"that a later line says first": {"import data.lib.net as n\n# n is the net", "import data.lib.net as m\n# n is the net"},
	} {
		t.Run(name, func(t *testing.T) {
			alias := "n"
			if strings.Contains(c.line, "net2") {
				alias = "net2"
			}
			source := "package a\n\n" + c.line + "\n\nallow if " + alias + ".ok(input.ip, true)\n"
			want := "package a\n\n" + c.want + "\n\nallow if m.ok(input.ip, true)\n"
			files := []File{{"a.rego", source}, {"lib/net.rego", lib}}
			if got := rename(t, files, strings.Index(source, alias+".ok"), "m")[0].Text; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// A rename that changes the meaning of a source is refused.
func TestRenameRefuses(t *testing.T) {
	for name, c := range map[string]struct{ marked, to, want string }{
		"a rule of the service":    {"package a\n\nall¦ow if true\n", "permit", "the service evaluates"},
		"to a rule of the service": {"package a\n\nhel¦per if true\n\nallow if helper\n", "deny", "the service evaluates a rule named"},
		"a taken name":             {"package a\n\nfi¦rst := 1\n\nsecond := first\n", "second", "has a meaning"},
		"a variable's name":        {"package a\n\nfi¦rst := 1\n\nallow if { x := first; x > 0 }\n", "x", "has a meaning"},
		"a variable to a rule's":   {"package a\n\nfirst := 1\n\nallow if { x¦ := first; x > 0 }\n", "first", "has a meaning"},
		"a built-in's":             {"package a\n\nfi¦rst := 1\n\nallow if first > 0\n", "count", "has a meaning"},
		"a built-in's root":        {"package a\n\nfi¦rst := 1\n\nallow if first > 0\n", "net", "has a meaning"},
		"no name":                  {"package a\n\nfi¦rst := 1\n", "a b", "is not a name"},
		"a keyword":                {"package a\n\nfi¦rst := 1\n", "default", "is not a name"},
		"what does not parse":      {"package a\n\nfi¦rst := {\n", "b", "does not parse"},
		"input":                    {"package a\n\nallow if inp¦ut.x\n", "b", "no name here"},
		"a package":                {"package pa¦y\n\nallow if input.x\n", "b", "by hand"},
		"a shadowed rule":          {"package a\n\nfi¦rst := 1\n\nallow if { first := 2; first > 1 }\n", "b", "rename that first"},
	} {
		t.Run(name, func(t *testing.T) {
			source, offset := cut(t, c.marked)
			_, err := Rename([]File{{"a.rego", source}}, offset, c.to)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Rename to %q: %v, want %q", c.to, err, c.want)
			}
		})
	}
	source, offset := cut(t, "package a\n\nfi¦rst := 1\n")
	if _, err := Rename([]File{{"a.rego", source}, {"a_test.rego", "package a_test\n\ntest_x if data.a.first == {"}}, offset, "b"); err == nil || !strings.Contains(err.Error(), "a_test.rego") {
		t.Errorf("with a file that does not parse: %v, want its name", err)
	}
}

// All names of the shipped controls can be renamed. The controls still pass the check, and each rename
// can be undone by another one.
func TestRenameThereAndBack(t *testing.T) {
	renamed := 0
	err := fs.WalkDir(os.DirFS("../template"), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "control.rego" {
			return err
		}
		data, err := os.ReadFile("../template/" + path)
		if err != nil {
			return err
		}
		source := string(data)
		if len(source) > 4<<10 { // for each name, the whole text is read several times
			return nil
		}
		files := []File{{path, source}}
		all := files
		for n, o := range indexAll(files)[0].occurrences {
			name := source[o.span.Start:o.span.End]
			if !o.declares || o.target.kind == targetPackage || o.target.kind == targetRule && serviceRules[name] {
				continue
			}
			there := rename(t, files, o.span.Start, "zz_renamed")
			_, err := Rename(there, strings.Index(there[0].Text, "zz_renamed"), name)
			if err == nil {
				if back := rename(t, there, strings.Index(there[0].Text, "zz_renamed"), name); back[0].Text != source {
					t.Errorf("%s: %s renamed and back gives another text", path, name)
				}
			} else if !strings.Contains(err.Error(), "has a meaning") && !strings.Contains(err.Error(), "rename that first") { // two things share the name in the source
				t.Errorf("%s: %s: %v", path, name, err)
			}
			if at := strings.Index(all[0].Text, name); at >= 0 {
				for _, x := range indexAll(all)[0].occurrences {
					if all[0].Text[x.span.Start:x.span.End] == name && x.target.kind == o.target.kind {
						all = rename(t, all, x.span.Start, "zz"+strconv.Itoa(n))
						break
					}
				}
			}
			renamed++
		}
		if issues := lang.CheckModule(all[0].Text); len(issues) > 0 {
			t.Errorf("%s with other names: %v, want no issues", path, issues)
		}
		return nil
	})
	if err != nil || renamed < 30 {
		t.Fatalf("%d names are renamed, %v, want at least 30", renamed, err)
	}
}

// The outline of a source has its rules in order.
func TestSymbols(t *testing.T) {
	const source = "package a\n\ndefault allow := false\n\nallow if {\n\tinput.x\n}\n\nrank(role, n) := n if role == \"x\"\n\nmask[\"a.b\"] := \"hash\"\n"
	var got []string
	for _, s := range Symbols(source) {
		got = append(got, s.Name+"|"+source[s.Head.Start:s.Head.End]+"|"+source[s.Span.Start:s.Span.End])
		if s.Head.Start < s.Span.Start || s.Head.End > s.Span.End {
			t.Errorf("%s: the name is at %v, want it within the rule at %v", s.Name, s.Head, s.Span)
		}
	}
	want := []string{
		"allow|allow|default allow := false",
		"allow|allow|allow if {\n\tinput.x\n}",
		"rank(role, n)|rank|rank(role, n) := n if role == \"x\"",
		"mask[\"a.b\"]|mask|mask[\"a.b\"] := \"hash\"",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the symbols are %q, want %q", got, want)
	}
	if Symbols("package a\n\nallow if {") != nil {
		t.Error("a source that does not parse has symbols")
	}
}

// The signature is that of the innermost call, with the argument at the cursor.
func TestSignature(t *testing.T) {
	know := Knowledge{Libraries: []lang.Library{{Name: "net", Source: lib}}}
	for name, c := range map[string]struct {
		marked string
		part   string // the active argument
		doc    string
	}{
		"a built-in":             {"package a\n\nallow if startswith(input.p, ¦", "base", "begins with"},
		"its first argument":     {"package a\n\nallow if startswith(¦)", "search", ""},
		"with a dot":             {"package a\n\nallow if net.cidr_contains(\"10.0.0.0/8\", ¦)", "cidr_or_ip", ""},
		"inside an array":        {"package a\n\nallow if sprintf(\"%v, (\", [1, (2), ¦", "values", ""},
		"the inner call":         {"package a\n\nallow if startswith(lower(¦), \"x\")", "x", ""},
		"after the inner call":   {"package a\n\nallow if startswith(lower(\"a\"), ¦)", "base", ""},
		"a function of the file": {"package a\n\n# Rank of a role.\nrank(role, {\"a\": x}, n) := 1\n\nallow if rank(input.r, ¦", "{\"a\": x}", "Rank of a role."},
		"of a library":           {"package a\n\nimport data.lib.net as web\n\nallow if web.ok(input.ip, ¦", "strict", "Whether an address is ours."},
		"after an unclosed rule": {"package a\n\nx if count(\n\nallow if lower(¦", "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			source, offset := cut(t, c.marked)
			s, ok := SignatureAt(source, offset, know)
			if !ok || s.Active >= len(s.Parameters) {
				t.Fatalf("the signature is %+v %v, want one with an active argument", s, ok)
			}
			p := s.Parameters[s.Active]
			if got := s.Label[p.Start:p.End]; got != c.part || !strings.Contains(s.Doc, c.doc) {
				t.Errorf("the argument is %q of %q (%q), want %q (%q)", got, s.Label, s.Doc, c.part, c.doc)
			}
		})
	}
	for _, marked := range []string{"package a\n\nallow if (¦", "package a\n\nallow if lower(\"a\")¦", "package a\n\nallow if unknown(¦", "package a\n\nallow if lower(\"¦\")", "# lower(¦"} {
		source, offset := cut(t, marked)
		if s, ok := SignatureAt(source, offset, know); ok {
			t.Errorf("%q: the signature is %+v, want none", marked, s)
		}
	}
}

package source

import (
	"strings"
	"testing"
)

// TestYAML checks that aliases are followed, unless a short file would expand to gigabytes. A failure does not
// quote the file.
func TestYAML(t *testing.T) {
	doc, err := decodeYAML("base: &base {level: 3}\nada: *base\nbob: {<<: *base, team: red}\n")
	if want := `{"ada":{"level":3},"base":{"level":3},"bob":{"level":3,"team":"red"}}`; err != nil || string(doc.AppendJSON(nil)) != want {
		t.Errorf("decodeYAML = %s, %v, want %s", doc.AppendJSON(nil), err, want)
	}
	repeated := "[" + strings.TrimSuffix(strings.Repeat("*a,", 150_000), ",") + "]\n"
	for what, c := range map[string]struct{ text, want string }{
		"a long text":        {"a: &a \"" + strings.Repeat("canary", 80_000) + "\"\nb: " + repeated, "stands for more than"},
		"long binary":        {"a: &a !!binary \"" + strings.Repeat("YWFh", 120_000) + "\"\nb: " + repeated, "stands for more than"},
		"lists of lists":     {"a: &a [canary,canary,canary]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n", "stands for more than"},
		"itself":             {"canary: &canary [*canary]\n", "accepts"},
		"depth":              {strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "stands for more than"},
		"another type":       {"a: !!int canary\n", "accepts"},
		"an unknown anchor":  {"a: 1\nb: *canary\n", "accepts"},
		"the same key twice": {"canary: 1\ncanary: 2\n", "line 2"},
		"no mapping":         {"a: b: canary\n", "mapping values are not allowed"},
	} {
		_, err := decodeYAML(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: decodeYAML = %v, want an error with %q and nothing of the file", what, err, c.want)
		}
	}
}

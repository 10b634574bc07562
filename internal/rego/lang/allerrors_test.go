package lang

import (
	"fmt"
	"strings"
	"testing"
)

func found(t *testing.T, source string) []string {
	t.Helper()
	issues := Check(source)
	var out []string
	for _, is := range issues {
		out = append(out, fmt.Sprintf("%d: %s", is.Line, is.Message))
	}
	return out
}

func TestAllErrorsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		want   []string // line and part of the message, in order; no others
	}{
		"of several stages": {`package a

allow if startwith(input.user.id, "x")

deny if { y > 1 }

reason := sprintf("%v", 3)

mask contains p if { some p in data.other.paths }

first if second

second if first
`, []string{"3: undefined function startwith", "5: var y is unsafe", "7: ", "9: data.other is not offered", "11: ", "13: "}},
		"of the parser": {`package a

allow { input.user.id == "x" }

deny if {

limit := 3

reason := "a" b

helper(x) if x == 1
`, []string{"3: ", "5: ", "9: "}},
		"of parser and compiler": {`package a

allow if { input.user.id == }

deny if undefined_one(input.user.id)

mask contains "a" if http.send({})
`, []string{"3: ", "5: undefined function undefined_one", "7: "}},
		"nothing that comes of another": {`package a

helper(x) if { x == }

limit := [

allow if helper(input.user.id)

deny if input.n > limit
`, []string{"3: ", "5: "}},
		"nothing that comes of a refused rule": {`package a

helper(x) := y if { z == x }

names contains n if { n == m }

allow if { count(helper(input.user.id)) > 1; some k in names; k == 1 }

deny if { helper(1, 2, 3) }
`, []string{"3: ", "5: ", "9: "}},
	} {
		t.Run(name, func(t *testing.T) {
			got := found(t, c.source)
			lines := map[string]bool{}
			for _, g := range got {
				lines[g[:strings.Index(g, ":")]] = true
			}
			for _, w := range c.want {
				ok := false
				for _, g := range got {
					ok = ok || strings.HasPrefix(g, w[:strings.Index(w, ":")+2]) && strings.Contains(g, w[strings.Index(w, ":")+2:])
				}
				if !ok {
					t.Errorf("%q is missing", w)
				}
				delete(lines, w[:strings.Index(w, ":")])
			}
			if len(lines) > 0 {
				t.Errorf("errors on lines %v that have none", lines)
			}
			t.Log(strings.Join(got, "\n"))
		})
	}
}

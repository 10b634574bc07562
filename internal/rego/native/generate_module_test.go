package native

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// module returns the text of a module that compiles, and its rules by unit. If OPA's compiler or
// ours rejects a rule, a rule that is always 1 replaces it.
func (g *maker) module() (units []string, s *subject, left int) {
	units = []string{hide}
	for i := range 8 {
		units = append(units, g.rule(i))
	}
	for {
		src, rows := joined(units)
		s, err := load(src)
		if err == nil && s.err == nil {
			return units, s, left
		}
		bad := refusedRows(err, s)
		was := left
		for i, u := range units {
			end := rows[i] + strings.Count(u, "\n")
			if slices.ContainsFunc(bad, func(row int) bool { return row >= rows[i] && row < end }) && u != g.plainest(i) {
				units[i] = g.plainest(i)
				left++
			}
		}
		if left == was { // the error has no location, or is in a plain rule: a cycle
			for i := len(units) - 1; i >= 0 && left == was; i-- {
				if units[i] != g.plainest(i) {
					units[i] = g.plainest(i)
					left++
				}
			}
		}
		if left == was {
			return nil, nil, left
		}
	}
}

// plainest returns a rule that always compiles, as a replacement.
func (g *maker) plainest(i int) string {
	if i == 0 {
		return hide
	}
	name := fmt.Sprintf("r%d", i-1)
	if n := g.arity[name]; n > 0 {
		return fmt.Sprintf("%s(%s) := 1\n", name, strings.Repeat("_, ", n-1)+"_")
	}
	return fmt.Sprintf("%s := 1\nu%s := %s\n", name, name, g.hidden(name))
}

const hide = "hide(x) := x\n"

// joined returns the text of a module, and the first row of each unit.
func joined(units []string) (src string, rows []int) {
	src = "package generated\n\n"
	for _, u := range units {
		rows = append(rows, 1+strings.Count(src, "\n"))
		src += u
	}
	return src, rows
}

// refusedRows returns the rows that a compiler rejects.
func refusedRows(err error, s *subject) (rows []int) {
	if list, ok := errors.AsType[ast.Errors](err); ok {
		for _, e := range list {
			if e.Location != nil {
				rows = append(rows, e.Location.Row)
			}
		}
	} else if s != nil {
		if u, ok := errors.AsType[*ErrUnsupported](s.err); ok && u.Location != nil {
			rows = append(rows, u.Location.Row)
		}
	}
	return rows
}

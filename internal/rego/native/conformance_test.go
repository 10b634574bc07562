package native

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/test/cases/testdata"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// TestConformance runs OPA's own cases. It compiles every module, with the case's other modules as
// its libraries. Every rule of it must have topdown's value, not only the rule that the case asks
// for. Cases that need something unsupported do not run; the listing names them, with the reason.
func TestConformance(t *testing.T) {
	var ran, rules int
	var list listing
	for _, tc := range conformanceCases(t) {
		s, err := loadCase(tc)
		if err != nil {
			list.add(tc.Note, "other", err.Error())
			continue
		}
		if s.err != nil {
			list.add(tc.Note, "refused", reason(s.err))
			continue
		}
		input, ok := caseInput(tc)
		data, known := value.Object(), error(nil)
		if tc.Data != nil {
			data, known = value.FromAny(*tc.Data)
		}
		if !ok || known != nil {
			list.add(tc.Note, "refused", "input or data outside of the range of numbers")
			continue
		}
		if s.covers(data) {
			list.add(tc.Note, "other", "data and rules at one place")
			continue
		}
		ran++
		limited := false
		t.Run(tc.Note, func(t *testing.T) {
			for _, name := range s.names {
				rules++
				_, err := s.agree(t, name, input, data)
				limited = errors.Is(err, eval.ErrLimit) || limited
			}
		})
		if limited {
			list.add(tc.Note, "refused", "number outside of the range")
		} else {
			list.add(tc.Note, "native", "")
		}
	}
	t.Logf("%d cases and %d rules ran", ran, rules)
	if ran < 1900 {
		t.Errorf("only %d cases ran", ran)
	}
	list.check(t)
}

// loadCase compiles the modules of a case. The control is the package that the case queries.
func loadCase(tc cases.TestCase) (*subject, error) {
	if len(tc.Modules) == 0 {
		return nil, errors.New("a query without a module")
	}
	mods := map[string]*ast.Module{}
	var own *ast.Module
	for i, text := range tc.Modules {
		mod, err := ast.ParseModuleWithOpts("", text, ast.ParserOptions{RegoVersion: ast.RegoV1})
		if err != nil {
			return nil, errors.New("does not compile on its own")
		}
		mods[fmt.Sprintf("%d.rego", i)] = mod
		if own == nil || strings.Contains(tc.Query, mod.Package.Path.String()) && len(mod.Package.Path) >= len(own.Package.Path) {
			own = mod
		}
	}
	for _, a := range mods {
		for _, b := range mods {
			if x, y := a.Package.Path, b.Package.Path; len(x) < len(y) && y.HasPrefix(x) && named(a, y[len(x)]) {
				return nil, errors.New("a package within a rule of another")
			}
		}
	}
	s, err := loadModules(own, mods)
	if err != nil {
		return nil, errors.New("does not compile on its own")
	}
	return s, nil
}

// named reports whether a module has a rule of a name.
func named(mod *ast.Module, name *ast.Term) bool {
	return slices.ContainsFunc(mod.Rules, func(r *ast.Rule) bool {
		v, _ := r.Head.Ref()[0].Value.(ast.Var)
		return name.Equal(ast.StringTerm(string(v)))
	})
}

// covers reports whether data has a document at the path of the control's package.
func (s *subject) covers(data value.Value) bool {
	v := data
	for _, p := range s.mod.Package.Path[1:] {
		name, _ := p.Value.(ast.String)
		v = v.Get(string(name))
	}
	return v.Defined() && v.Len() > 0
}

func conformanceCases(t *testing.T) []cases.TestCase {
	t.Helper()
	var all []cases.TestCase
	err := fs.WalkDir(testdata.V1, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(testdata.V1, path)
		if err != nil {
			return err
		}
		var set cases.Set
		if err := util.Unmarshal(data, &set); err != nil {
			return err
		}
		all = append(all, set.Cases...)
		return nil
	})
	errtest.Must(t, err)
	return all
}

func caseInput(tc cases.TestCase) (value.Value, bool) {
	if tc.InputTerm != nil {
		term, err := ast.ParseTerm(*tc.InputTerm)
		if err != nil {
			return value.Value{}, false
		}
		v, err := value.FromAST(term.Value)
		return v, err == nil
	}
	if tc.Input == nil {
		return value.Value{}, true
	}
	v, err := value.FromAny(*tc.Input)
	return v, err == nil
}

func reason(err error) string {
	u, ok := errors.AsType[*ErrUnsupported](err)
	if !ok {
		return err.Error()
	}
	if i := strings.Index(u.What, ": "); i > 0 {
		return u.What[:i]
	}
	return u.What
}

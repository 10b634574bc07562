package hint

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Definition is where the name at an offset of files[0] is defined: the rules with that
// name, the first occurrence of a variable, the package of an import.
func Definition(files []File, offset int) []Location {
	all := indexAll(files)
	t, ok := all[0].at(offset)
	if !ok {
		return nil
	}
	if t.kind == targetImport {
		pkg := target{kind: targetPackage, scope: ruleScope(files[0].Name, all[0].aliases[t.name])}
		if found := collect(all, pkg, true); len(found) > 0 {
			return found
		}
	}
	return collect(all, t, true)
}

// References are the places in all files that refer to the name at an offset of files[0].
func References(files []File, offset int, declaration bool) []Location {
	all := indexAll(files)
	t, ok := all[0].at(offset)
	if !ok {
		return nil
	}
	found := collect(all, t, false)
	if !declaration {
		made := collect(all, t, true)
		found = slices.DeleteFunc(found, func(l Location) bool { return slices.Contains(made, l) })
	}
	return found
}

// Renamable is the name at an offset of files[0]. ok is false if there is none.
func Renamable(files []File, offset int) (span Span, ok bool) {
	for _, o := range indexAll(files[:1])[0].occurrences {
		if o.span.Start <= offset && offset <= o.span.End && o.target.kind != targetPackage {
			return o.span, true
		}
	}
	return Span{}, false
}

// ruleNameForm matches valid new names.
var ruleNameForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Rename returns the places that change when the name at an offset of files[0] is
// renamed. It refuses a change that would alter what the controls decide: to a name that
// the service evaluates, to one that is taken, or in a file that cannot be read.
func Rename(files []File, offset int, to string) ([]Location, error) {
	all := indexAll(files)
	if all[0].module == nil {
		return nil, fmt.Errorf("this file does not parse: fix its errors first")
	}
	t, ok := all[0].at(offset)
	switch {
	case !ok:
		return nil, fmt.Errorf("there is no name here that can be renamed")
	case t.kind == targetPackage:
		return nil, fmt.Errorf("a package is renamed by hand: tests, data references and gatehouse.yaml may name it")
	case !ruleNameForm.MatchString(to) || ast.IsKeyword(to) || slices.ContainsFunc(keywords, func(k struct{ word, doc string }) bool { return k.word == to && !serviceRules[to] }):
		return nil, fmt.Errorf("%q is not a name for a rule or a variable", to)
	case t.kind == targetRule && serviceRules[t.name] && !strings.HasPrefix(t.scope, "lib."):
		return nil, fmt.Errorf("the service evaluates %q: under another name the rule has no effect", t.name)
	case t.kind == targetRule && serviceRules[to] && !strings.HasPrefix(t.scope, "lib."):
		return nil, fmt.Errorf("the service evaluates a rule named %q: the control would decide differently", to)
	}
	places := collect(all, t, false)
	for _, x := range all {
		if err := x.mayRename(t, to); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// serviceRules are the rules of a control that the service evaluates.
var serviceRules = map[string]bool{"allow": true, "deny": true, "mask": true, "reason": true}

// mayRename returns why a target in this file cannot get a name.
func (x *index) mayRename(t target, to string) error {
	if x.module == nil {
		if strings.Contains(x.file.Text, t.name) {
			return fmt.Errorf("%s does not parse and may use %q: fix it first", x.file.Name, t.name)
		}
		return nil
	}
	uses := slices.ContainsFunc(x.occurrences, func(o occurrence) bool { return o.target == t })
	if !uses {
		return nil
	}
	for _, r := range x.module.Rules {
		if declared(r)[t.name] && t.kind != targetVariable {
			return fmt.Errorf("%s also has a variable %q: rename that first", x.file.Name, t.name)
		}
	}
	taken := to == "input" || to == "data" || builtinRoots()[to]
	for _, o := range x.occurrences {
		sameName := x.file.Text[o.span.Start:o.span.End] == to
		taken = taken || sameName && (o.target.kind != targetVariable || t.kind != targetVariable || o.target.scope == t.scope)
	}
	if taken {
		return fmt.Errorf("%q already has a meaning in %s", to, x.file.Name)
	}
	return nil
}

// at is the target at an offset.
func (x *index) at(offset int) (target, bool) {
	for _, o := range x.occurrences {
		if o.span.Start <= offset && offset <= o.span.End {
			return o.target, true
		}
	}
	return target{}, false
}

// collect returns the places of a target: all of them, or those that declare it.
func collect(all []*index, t target, declaring bool) []Location {
	out := []Location{}
	for _, x := range all {
		for _, o := range x.occurrences {
			if o.target == t && (o.declares || !declaring) {
				out = append(out, Location{x.file.Name, o.span})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Location) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Span.Start, b.Span.Start))
	})
	return out
}

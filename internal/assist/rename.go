package assist

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Definition returns where the name at an offset of files[0] is defined. That is each rule with the
// name, the first occurrence of a variable, or the package of an import.
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

// References returns the places in all files that refer to the name at an offset of files[0]. It
// includes the places that declare the name only if declaration is set.
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

// Renamable returns the position of the name at an offset of files[0]. ok is false if there is no
// name, or if it names a package.
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

// Rename returns the places to change if the name at an offset of files[0] is renamed. It returns
// an error if the change could alter decisions: if the service evaluates the old or the new name,
// if the new name is taken, or if a file that may use the name does not parse.
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

// mayRename returns an error if the target cannot have the name to in this file.
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

// at returns the target at an offset.
func (x *index) at(offset int) (target, bool) {
	for _, o := range x.occurrences {
		if o.span.Start <= offset && offset <= o.span.End {
			return o.target, true
		}
	}
	return target{}, false
}

// collect returns the places of a target: all of them or, if declaring is set, those that declare
// it.
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

package lang

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
)

// Refs is what a control reads.
type Refs struct {
	// Input are the paths below input that the control refers to. None of them is a prefix of
	// another. An empty path means input as a whole.
	Input [][]string
	// Data are the paths below data without those of the control's own package. They begin with
	// "resources", "pip" or "grants".
	Data [][]string
	// Clock says that the outcome depends on the time of the evaluation.
	Clock bool
	// NonDeterministic says that the outcome may differ for the same input.
	NonDeterministic bool
	// Request, MCP, LLM and Usage say that the control refers to the member of input with that
	// name, or to input as a whole.
	Request, MCP, LLM, Usage bool
}

// Cacheable reports whether equal inputs always have equal outcomes.
func (r Refs) Cacheable() bool { return !r.Clock && !r.NonDeterministic && !r.Grants() }

// Grants reports whether the control reads grants of access. Their validity depends on the time.
func (r Refs) Grants() bool { return reads(r.Data, native.GrantsRoot) }

// UniteRefs returns what several controls read together.
func UniteRefs(list ...Refs) Refs {
	var all Refs
	for _, r := range list {
		all.Input = append(all.Input, r.Input...)
		all.Data = append(all.Data, r.Data...)
		all.Clock = all.Clock || r.Clock
		all.NonDeterministic = all.NonDeterministic || r.NonDeterministic
		all.Request = all.Request || r.Request
		all.MCP = all.MCP || r.MCP
		all.LLM = all.LLM || r.LLM
		all.Usage = all.Usage || r.Usage
	}
	all.Input, all.Data = shortest(all.Input), shortest(all.Data)
	return all
}

// findRefs returns what a compiled control reads, together with those rules of its libraries that
// it uses. In the compiled module, imports and local names are resolved, so that an alias hides
// nothing.
func findRefs(compiler *ast.Compiler, pkg ast.Ref, libs []*linked) Refs {
	var r Refs
	todo := slices.Clone(compiler.Modules[sourceName].Rules)
	seen := map[*ast.Rule]bool{}
	follow := func(ref ast.Ref) { // adds the rules of a library that ref leads to
		for _, l := range libs {
			if n := len(l.pkg); len(ref) > n && ref.HasPrefix(l.pkg) {
				for _, rule := range compiler.Modules[l.file].Rules {
					if name, ok := rule.Head.Ref()[0].Value.(ast.Var); ok && ref[n].Equal(ast.StringTerm(string(name))) && !seen[rule] {
						seen[rule] = true
						todo = append(todo, rule)
					}
				}
			}
		}
	}
	note := func(ref ast.Ref) {
		path := constPath(ref[1:])
		switch {
		case ref[0].Equal(ast.InputRootDocument):
			r.Input = append(r.Input, path)
		case ref[0].Equal(ast.DefaultRootDocument):
			if len(path) > 0 && path[0] == LibraryRoot {
				follow(ref)
			} else if !ref.HasPrefix(pkg) {
				r.Data = append(r.Data, path)
			}
		default:
			if t := BuiltinName(ast.NewTerm(ref)); slices.Contains(clockBuiltins, t) {
				r.Clock = true
			} else if slices.Contains(randomBuiltins, t) {
				r.NonDeterministic = true
			}
		}
	}
	for len(todo) > 0 {
		rule := todo[0]
		todo = todo[1:]
		eachRuleRef(rule, note)
	}
	r.Input, r.Data = shortest(r.Input), shortest(r.Data)
	r.Request, r.MCP = reads(r.Input, "request"), reads(r.Input, "mcp")
	r.LLM, r.Usage = reads(r.Input, "llm"), reads(r.Input, "usage")
	return r
}

// EachRef calls note for every reference in the rules of a module.
func EachRef(mod *ast.Module, note func(ast.Ref)) {
	for _, rule := range mod.Rules {
		eachRuleRef(rule, note)
	}
}

func eachRuleRef(rule *ast.Rule, note func(ast.Ref)) {
	for e := rule; e != nil; e = e.Else {
		// The head's own reference only names the rule. The terms in its brackets (partial rules)
		// are read.
		for _, p := range e.Head.Reference {
			walkRefs(p, note)
		}
		walkRefs(e.Head, note)
		walkRefs(e.Body, note)
	}
}

// walkRefs calls note for every reference in x, also for those within the brackets of another. It
// does not visit the head of a reference: the head is itself a term such as `input`, and would
// count as a reference to input as a whole.
func walkRefs(x any, note func(ast.Ref)) {
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Head:
			for _, a := range x.Args {
				walkRefs(a, note)
			}
			if x.Key != nil {
				walkRefs(x.Key, note)
			}
			if x.Value != nil {
				walkRefs(x.Value, note)
			}
			return true
		case *ast.Term:
			if isRoot(x) {
				note(ast.Ref{x})
				return true
			}
			if ref, ok := x.Value.(ast.Ref); ok && len(ref) > 0 {
				note(ref)
				for _, p := range ref[1:] {
					walkRefs(p, note)
				}
				return true
			}
		}
		return false
	}).Walk(x)
}

func isRoot(t *ast.Term) bool {
	return t.Equal(ast.InputRootDocument) || t.Equal(ast.DefaultRootDocument)
}

// constPath returns the leading constant parts of a reference.
func constPath(ref ast.Ref) []string {
	path := make([]string, 0, len(ref)) // no spare capacity, because each control keeps its paths
	for _, p := range ref {
		s, ok := p.Value.(ast.String)
		if !ok {
			break
		}
		path = append(path, string(s))
	}
	return path
}

// shortest sorts paths and drops those that have another path as a prefix.
func shortest(paths [][]string) [][]string {
	slices.SortFunc(paths, slices.Compare)
	out := [][]string{}
	for _, p := range paths {
		if n := len(out); n > 0 && len(p) >= len(out[n-1]) && slices.Equal(out[n-1], p[:len(out[n-1])]) {
			continue
		}
		out = append(out, p)
	}
	return out
}

// reads reports whether one of the paths is empty or begins with a member.
func reads(paths [][]string, member string) bool {
	return slices.ContainsFunc(paths, func(p []string) bool { return len(p) == 0 || p[0] == member })
}

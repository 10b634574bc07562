package why

import (
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	maxSource = 400 // limit on the text of a condition, in bytes
	maxUses   = 8   // limit on the rules that a condition uses
)

// clause compiles one rule for explanations. parsed is the rule as the author wrote it, r the same
// rule from OPA's compiler. Their expressions are matched by location, which the compiler preserves
// when it splits expressions.
func (w *Module) clause(c *native.Builder, wg *group, parsed, r *ast.Rule) *clause {
	s := c.Scope()
	cl := &clause{of: wg, line: r.Location.Row, lo: c.Slots(), head: headText(parsed)}
	for _, p := range spans(parsed) {
		cl.conds = append(cl.conds, &condition{span: p})
	}
	origins := map[ast.Var]ast.Ref{}
	if wg.Kind() == native.Function {
		before := s.Bound()
		if x := s.Parameters(wg.Group, r); x != nil {
			at := cl.headCond(parsed)
			cl.segs = append(cl.segs, segment{cond: at, expr: x, binds: boundSince(s, before)})
			cl.conds[at].exprs = append(cl.conds[at].exprs, x)
		}
	}
	for _, e := range r.Body {
		if t, ok := e.Terms.(*ast.Term); ok && !e.Negated && t.Equal(ast.BooleanTerm(true)) {
			continue
		}
		before := s.Bound()
		x := s.Expr(e)
		at := cl.condAt(e.Location, parsed)
		cond := cl.conds[at]
		cond.exprs = append(cond.exprs, x)
		cl.segs = append(cl.segs, segment{cond: at, expr: x, needs: slotsRead(s, e, before), binds: boundSince(s, before)})
		w.noteOrigin(s, origins, e)
		w.noteUses(s, cond, e, origins)
		if len(e.With) == 0 {
			w.noteShown(s, cond, e, before, origins)
		}
	}
	head := r.Head.Value
	if wg.Kind() == native.PartialSet {
		head = r.Head.Key
	}
	cl.value, cl.fixed = s.Term(head), ast.IsConstant(head.Value)
	for _, cond := range cl.conds {
		cond.probe = native.Sequence(cond.exprs)(native.StopAtFirst)
	}
	cl.run = cl.chain(0)
	cl.hi = c.Slots()
	return cl
}

// elseAgain matches the start of the next else. It is needed because the location of an else
// includes all that follow it.
var elseAgain = regexp.MustCompile(`[\s}]else\b`)

// span is the location of a condition in the source: its text on one line, its first line, and its
// range of bytes.
type span struct {
	Line        int
	Source      string
	Offset, End int
}

// holds reports whether a location from OPA's compiler is in the condition.
func (p *span) holds(loc *ast.Location) bool {
	return loc != nil && loc.Offset >= p.Offset && loc.Offset < p.End
}

// spans returns the conditions in the body of a rule, as it was parsed.
func spans(r *ast.Rule) []span {
	var out []span
	for _, e := range r.Body {
		if t, ok := e.Terms.(*ast.Term); ok && !e.Negated && t.Equal(ast.BooleanTerm(true)) {
			continue // a rule without a body
		}
		loc := e.Location
		text := string(loc.Text)
		p := span{Line: loc.Row, Offset: loc.Offset, End: loc.Offset + len(text)}
		if strings.HasPrefix(text, "else") { // the text of `else := v if cond` includes the head
			if _, rest, ok := strings.Cut(text, " if "); ok {
				text = rest
				if at := elseAgain.FindStringIndex(text); at != nil {
					text = text[:at[0]]
				}
				text = strings.Trim(text, "{} \t\n")
			}
		}
		p.Source = plainSource(text)
		out = append(out, p)
	}
	return out
}

func plainSource(source string) string {
	return truncate.Text(strings.Join(strings.Fields(source), " "), maxSource, "...")
}

// condAt returns the index of the condition at a location. Locations outside all conditions belong
// to the head.
func (cl *clause) condAt(loc *ast.Location, parsed *ast.Rule) int {
	if i := slices.IndexFunc(cl.conds, func(c *condition) bool { return c.holds(loc) }); i >= 0 {
		return i
	}
	return cl.headCond(parsed)
}

// headCond returns the index of the condition that represents the head: patterns of a function's
// parameters, and values that are computed. It adds the condition if it is missing.
func (cl *clause) headCond(parsed *ast.Rule) int {
	if i := slices.IndexFunc(cl.conds, func(c *condition) bool { return c.End == -1 }); i >= 0 {
		return i
	}
	cl.conds = append(cl.conds, &condition{span: span{Line: parsed.Location.Row, Source: cl.head, Offset: -1, End: -1}})
	return len(cl.conds) - 1
}

// headText returns the head of a rule as the author wrote it.
func headText(parsed *ast.Rule) string {
	text, _, _ := strings.Cut(string(parsed.Location.Text), "\n")
	if text == "" {
		text = parsed.Head.String()
	}
	text, _, _ = strings.Cut(text, " if ")
	return plainSource(text)
}

// boundSince returns the slots of the variables that were bound since before.
func boundSince(s *native.Scope, before map[ast.Var]bool) []int {
	var out []int
	for v := range s.Bound() {
		if at := s.Slot(v); at >= 0 && !before[v] {
			out = append(out, at)
		}
	}
	return out
}

// slotsRead returns the slots of the variables that an expression needs to be bound.
func slotsRead(s *native.Scope, e *ast.Expr, before map[ast.Var]bool) []int {
	var out []int
	seen := map[ast.Var]bool{}
	ast.NewGenericVisitor(func(x any) bool {
		if v, ok := x.(ast.Var); ok && before[v] && !seen[v] {
			seen[v] = true
			if at := s.Slot(v); at >= 0 {
				out = append(out, at)
			}
		}
		return false
	}).Walk(e)
	return out
}

// noteUses records the rules of the module that an expression uses.
func (w *Module) noteUses(s *native.Scope, cond *condition, e *ast.Expr, origins map[ast.Var]ast.Ref) {
	ast.NewGenericVisitor(func(x any) bool {
		if len(cond.uses) >= maxUses {
			return true
		}
		switch x := x.(type) {
		case *ast.Expr:
			if len(x.With) > 0 {
				return true // the rule would have another input
			}
			w.noteCall(s, cond, x, origins)
		case *ast.Term:
			ref, _ := x.Value.(ast.Ref)
			if g, _ := w.groupOf(s, ref); g != nil && g.Kind() != native.Function {
				cond.uses = append(cond.uses, use{group: g})
			}
		}
		return false
	}).Walk(e)
}

// noteCall records the function of the module that an expression calls, if all its arguments are
// bound.
func (w *Module) noteCall(s *native.Scope, cond *condition, e *ast.Expr, origins map[ast.Var]ast.Ref) {
	terms, _ := e.Terms.([]*ast.Term)
	if len(terms) == 0 {
		return
	}
	op, _ := terms[0].Value.(ast.Ref)
	g, _ := w.groupOf(s, op)
	if g == nil || g.Kind() != native.Function || len(terms) <= len(g.Params()) {
		return
	}
	args := terms[1 : len(g.Params())+1]
	if !slices.ContainsFunc(args, s.Open) {
		cond.uses = append(cond.uses, use{group: g, args: s.Terms(args), from: w.sources(s, args, origins)})
	}
}

// groupOf returns the group that a reference below the module's package leads to, and the number of
// its parts that name the group.
func (w *Module) groupOf(s *native.Scope, ref ast.Ref) (*group, int) {
	if len(ref) <= len(w.pkg) || !ref.HasPrefix(w.pkg) {
		return nil, 0
	}
	name, used, _ := s.Find(ref)
	return w.groups[name], used
}

package native

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

const (
	maxSource = 400 // where the text of a condition is cut
	mostUses  = 8   // rules that one condition names
)

// clause compiles one rule for questions: parsed is the rule as written, r what
// OPA's compiler made of it. Their expressions belong together by place: the
// compiler keeps the place of everything that it takes apart.
func (w *Why) clause(c *builder, wg *whyGroup, plain *clause, parsed, r *ast.Rule) *whyClause {
	s := c.scope()
	cl := &whyClause{of: wg, line: r.Location.Row, plain: plain, lo: c.prog.slots, head: headText(parsed)}
	for _, p := range Places(parsed) {
		cl.conds = append(cl.conds, &whyCond{Place: p})
	}
	origins := map[ast.Var]ast.Ref{}
	if wg.kind == function {
		s.params = wg.params
		before := maps.Clone(s.bound)
		if x := s.head(r); x != nil {
			at := cl.headCond(parsed)
			cl.segs = append(cl.segs, whySeg{cond: at, expr: x, binds: s.boundSince(before)})
			cl.conds[at].exprs = append(cl.conds[at].exprs, x)
		}
	}
	for _, e := range r.Body {
		if t, ok := e.Terms.(*ast.Term); ok && !e.Negated && t.Equal(ast.BooleanTerm(true)) {
			continue
		}
		before := maps.Clone(s.bound)
		x := s.expr(e)
		at := cl.condAt(e.Location, parsed)
		cond := cl.conds[at]
		cond.exprs = append(cond.exprs, x)
		cl.segs = append(cl.segs, whySeg{cond: at, expr: x, needs: s.read(e, before), binds: s.boundSince(before)})
		w.noteOrigin(s, origins, e)
		w.noteUses(s, cond, e, origins)
		if len(e.With) == 0 {
			w.noteShown(s, cond, e, before, origins)
		}
	}
	head := r.Head.Value
	if wg.kind == partialSet {
		head = r.Head.Key
	}
	cl.value, cl.fixed = s.term(head), ast.IsConstant(head.Value)
	for _, cond := range cl.conds {
		cond.probe = pass(found)
		if len(cond.exprs) > 0 {
			cond.probe = sequence(cond.exprs)(found)
		}
	}
	cl.run = cl.chain(0)
	cl.hi = c.prog.slots
	return cl
}

// elseAgain is where a further else begins: the place of an else spans them all.
var elseAgain = regexp.MustCompile(`[\s}]else\b`)

// Place is a condition in the source: its text on one line, where it begins, and
// the bytes that it takes.
type Place struct {
	Line        int
	Source      string
	Offset, End int
}

// Holds tells whether a place of OPA's compiler lies in the condition.
func (p *Place) Holds(loc *ast.Location) bool {
	return loc != nil && loc.Offset >= p.Offset && loc.Offset < p.End
}

// Places are the conditions in the body of a rule as it was parsed.
func Places(r *ast.Rule) []Place {
	var out []Place
	for _, e := range r.Body {
		if t, ok := e.Terms.(*ast.Term); ok && !e.Negated && t.Equal(ast.BooleanTerm(true)) {
			continue // a rule without a body
		}
		loc := e.Location
		text := string(loc.Text)
		p := Place{Line: loc.Row, Offset: loc.Offset, End: loc.Offset + len(text)}
		if strings.HasPrefix(text, "else") { // `else := v if cond` is one text
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

// plainSource is a condition on one line.
func plainSource(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxSource {
		text = strings.ToValidUTF8(text[:maxSource], "") + "..."
	}
	return text
}

// condAt is the condition that a place belongs to. What stands in no condition
// belongs to the head.
func (cl *whyClause) condAt(loc *ast.Location, parsed *ast.Rule) int {
	if i := slices.IndexFunc(cl.conds, func(c *whyCond) bool { return c.Holds(loc) }); i >= 0 {
		return i
	}
	return cl.headCond(parsed)
}

// headCond is the condition that stands for the head: a pattern among a
// function's parameters, or a value that has to be computed.
func (cl *whyClause) headCond(parsed *ast.Rule) int {
	if i := slices.IndexFunc(cl.conds, func(c *whyCond) bool { return c.End == -1 }); i >= 0 {
		return i
	}
	cl.conds = append(cl.conds, &whyCond{Place: Place{Line: parsed.Location.Row, Source: cl.head, Offset: -1, End: -1}})
	return len(cl.conds) - 1
}

// headText is the head of a rule as it is written.
func headText(parsed *ast.Rule) string {
	text, _, _ := strings.Cut(string(parsed.Location.Text), "\n")
	if text == "" {
		text = parsed.Head.String()
	}
	text, _, _ = strings.Cut(text, " if ")
	return plainSource(text)
}

// boundSince are the slots of the variables that were bound since.
func (s *scope) boundSince(before map[ast.Var]bool) []int {
	var out []int
	for v := range s.bound {
		if at, ok := s.slots[v]; ok && !before[v] {
			out = append(out, at)
		}
	}
	return out
}

// read are the slots of the variables that an expression needs bound.
func (s *scope) read(e *ast.Expr, before map[ast.Var]bool) []int {
	var out []int
	seen := map[ast.Var]bool{}
	ast.NewGenericVisitor(func(x any) bool {
		if v, ok := x.(ast.Var); ok && before[v] && !seen[v] {
			seen[v] = true
			if at, ok := s.slots[v]; ok {
				out = append(out, at)
			}
		}
		return false
	}).Walk(e)
	return out
}

// noteUses finds the rules of the module that an expression asks.
func (w *Why) noteUses(s *scope, cond *whyCond, e *ast.Expr, origins map[ast.Var]ast.Ref) {
	ast.NewGenericVisitor(func(x any) bool {
		if len(cond.uses) >= mostUses {
			return true
		}
		switch x := x.(type) {
		case *ast.Expr:
			if len(x.With) > 0 {
				return true // what it asks has another input
			}
			w.noteCall(s, cond, x, origins)
		case *ast.Term:
			ref, _ := x.Value.(ast.Ref)
			if g, _ := w.groupOf(s, ref); g != nil && g.kind != function {
				cond.uses = append(cond.uses, use{group: g})
			}
		}
		return false
	}).Walk(e)
}

// noteCall notes the function of the module that an expression calls, if it calls one
// with arguments that are bound.
func (w *Why) noteCall(s *scope, cond *whyCond, e *ast.Expr, origins map[ast.Var]ast.Ref) {
	terms, _ := e.Terms.([]*ast.Term)
	if len(terms) == 0 {
		return
	}
	op, _ := terms[0].Value.(ast.Ref)
	g, _ := w.groupOf(s, op)
	if g == nil || g.kind != function || len(terms) <= len(g.params) {
		return
	}
	args := terms[1 : len(g.params)+1]
	if !slices.ContainsFunc(args, s.open) {
		cond.uses = append(cond.uses, use{group: g, args: s.terms(args), from: w.sources(s, args, origins)})
	}
}

// groupOf is what a reference below the module's package leads to, and how much
// of it names that.
func (w *Why) groupOf(s *scope, ref ast.Ref) (*whyGroup, int) {
	if len(ref) <= len(w.pkg) || !ref.HasPrefix(w.pkg) {
		return nil, 0
	}
	n, used := s.c.find(ref)
	if n == nil || len(n.rules) == 0 {
		return nil, 0
	}
	return w.groups[n.name], used
}

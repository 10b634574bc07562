package lang

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// OPA's parser stops at the first statement that it cannot read, and its
// compiler at the first stage that finds something. An author wants all errors
// at once. So what is wrong is taken out of the way and the rest is read again.
const (
	maxRecoverySource = 64 << 10 // of larger sources only the first errors are given
	maxRecoveryRules  = 300
	maxRecoveryRounds = 20 // of the parser
	maxCompileRounds  = 5  // of the compiler
)

// parseOn reads on behind what the parser refused: it blanks the statement of
// each error. It gives the errors of the other statements, those of the parser
// and of all later checks. An error that only comes of a blanked statement is
// left out.
func parseOn(source string, issues []Issue, library bool, libs []Library) []Issue {
	if len(source) > maxRecoverySource || len(issues) == 0 || issues[0].Rule == "source_limit" {
		return issues
	}
	gone := map[string]bool{}
	rest, open := blankUnclosed(source, gone)
	found := issues
	if len(open) > 0 {
		issues, found = open, nil // what the parser met behind an open bracket is no error of its own
	}
	for range maxRecoveryRounds {
		before := rest
		if !strings.Contains(rest, "package") {
			return issues // nothing can be read without one
		}
		for _, is := range found {
			rest = blankStatement(rest, is.Line, gone)
		}
		if rest == before && len(found) > 0 {
			return issues
		}
		var mod *ast.Module
		if mod, found = parse(sourceName, rest); found == nil {
			_, later := checkModule(mod, library, libs)
			return append(issues, slices.DeleteFunc(later, func(is Issue) bool { return mentions(is.Message, gone) })...)
		}
		if found[0].Rule == "source_limit" {
			return issues
		}
		issues = append(issues, found...)
	}
	return issues
}

// ruleHead is how a statement begins.
var ruleHead = regexp.MustCompile(`^(?:default\s|import\s|[A-Za-z_][A-Za-z0-9_.]*\s*(?:\(|\[|:=|=|\{|if\b|contains\b))`)

// blankUnclosed blanks the statements in which a bracket is open when the next
// statement begins, and gives an issue for each.
func blankUnclosed(source string, gone map[string]bool) (rest string, issues []Issue) {
	for range maxRecoveryRounds {
		line, column := unclosed(source)
		if line == 0 {
			break
		}
		rest := blankStatement(source, line, gone)
		if rest == source {
			break
		}
		source = rest
		issues = append(issues, Issue{Line: line, Column: column, Message: "the bracket that opens here is not closed before the next rule", Severity: SeverityError, Rule: "rego_parse_error"})
	}
	return source, issues
}

// unclosed is the place of the first bracket that is open where a statement
// begins in the first column; 0 for none. The column counts characters.
func unclosed(src string) (line, column int) {
	type place struct{ line, column int }
	var stack []place
	for at := (cursor{line: 1}); at.index < len(src); at.index++ {
		i := at.index
		if i == at.start && len(stack) > 0 && ruleHead.MatchString(src[i:min(len(src), i+200)]) {
			return stack[0].line, stack[0].column
		}
		at.skip(src)
		switch src[i] {
		case '(', '[', '{':
			stack = append(stack, place{at.line, utf8.RuneCountInString(src[at.start:i]) + 1})
		case ')', ']', '}':
			stack = stack[:max(len(stack)-1, 0)]
		}
	}
	return 0, 0
}

// blankStatement replaces the statement around a line by spaces, and notes the
// name that it may define. Statements begin in the first column.
func blankStatement(source string, line int, gone map[string]bool) string {
	lines := strings.SplitAfter(source, "\n")
	if line < 1 || line > len(lines) {
		return source
	}
	begins := func(s string) bool {
		return s != "" && (s[0] == '_' || s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z') && !strings.HasPrefix(s, "else")
	}
	from := line - 1
	for from > 0 && !begins(lines[from]) {
		from--
	}
	to := from + 1
	for to < len(lines) && !begins(lines[to]) {
		to++
	}
	if strings.HasPrefix(lines[from], "package") {
		if from == line-1 {
			return source // without its package nothing can be read
		}
		from++
	}
	head := strings.TrimPrefix(lines[min(from, len(lines)-1)], "default ")
	gone[head[:len(head)-len(strings.TrimLeft(head, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"))]] = true
	if strings.HasPrefix(head, "import ") { // what it names is gone too
		fields := strings.FieldsFunc(head, func(r rune) bool { return r == '.' || r == ' ' || r == '\n' })
		gone[fields[len(fields)-1]] = true
	}
	for i := from; i < to; i++ {
		lines[i] = strings.Map(func(r rune) rune {
			if r == '\n' || r == '\r' {
				return r
			}
			return ' '
		}, lines[i])
	}
	return strings.Join(lines, "")
}

// mentions reports whether a message is about one of the names.
func mentions(message string, names map[string]bool) bool {
	words := strings.FieldsFunc(message, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	return slices.ContainsFunc(words, func(w string) bool { return names[w] })
}

// compileOn gives the errors of all stages of the compiler: it replaces the
// rules that a stage refused by ones that hold anything, and compiles again.
func (k *linker) compileOn(mod *ast.Module, compiler *ast.Compiler) []Issue {
	issues := compilerIssues(compiler.Errors)
	if n := len(mod.Rules); n == 0 || n > maxRecoveryRules {
		return issues
	}
	found := issues
	rest := mod.Copy()
	for range maxCompileRounds {
		replaced := false
		for _, is := range found {
			if i := ruleAt(rest, is); i >= 0 {
				rest.Rules[i], replaced = stub(rest.Rules[i]), true
			}
		}
		if !replaced {
			return issues
		}
		next := newCompiler()
		next.Compile(k.modules(rest))
		if found = compilerIssues(next.Errors); len(found) == 0 {
			return issues
		}
		issues = append(issues, found...)
	}
	return issues
}

func newCompiler() *ast.Compiler {
	return ast.NewCompiler().WithCapabilities(Capabilities()).WithDefaultRegoVersion(ast.RegoV1)
}

// ruleAt is the index of the control's rule that an issue is about, or -1.
func ruleAt(mod *ast.Module, is Issue) int {
	if is.file != "" && is.file != sourceName || is.Line < 1 {
		return -1
	}
	at := -1
	for i, r := range mod.Rules {
		if r.Location != nil && r.Location.Row <= is.Line {
			at = i
		}
	}
	return at
}

// stub is a rule of the same name, kind and arity that holds anything.
func stub(r *ast.Rule) *ast.Rule {
	s := r.Copy()
	s.Else = nil
	s.Body = ast.NewBody(ast.NewExpr(ast.BooleanTerm(true)))
	anything := ast.NewTerm(ast.InputRootRef)
	for i := range s.Head.Args {
		s.Head.Args[i] = ast.VarTerm(fmt.Sprintf("argument%d", i))
	}
	for i, t := range s.Head.Reference[1:] {
		if _, constant := t.Value.(ast.String); !constant {
			s.Head.Reference[i+1] = ast.StringTerm("any")
		}
	}
	switch {
	case s.Default:
		s.Head.Value = ast.BooleanTerm(false)
	case s.Head.Value != nil && s.Head.Key != nil:
		s.Head.Key, s.Head.Value = ast.StringTerm("any"), anything
	case s.Head.Key != nil:
		s.Head.Key = anything
	default:
		s.Head.Value = anything
	}
	return s
}

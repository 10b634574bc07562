package lang

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// OPA's parser stops at the first statement that it cannot read, and its compiler stops after the
// first stage that finds errors. An author wants all errors at once. So the check removes the code
// with errors, and then parses or compiles the rest again.
const (
	maxRecoverySource = 64 << 10 // larger sources get only the first errors
	maxRecoveryRules  = 300
	maxRecoveryRounds = 20 // of the parser
	maxCompileRounds  = 5  // of the compiler
)

// continueParsing adds the errors of the statements that the parser did not reach. It blanks the
// statement of each error, and parses and checks the rest. It drops errors that exist only because
// a statement was blanked.
func continueParsing(source string, issues []Issue, library bool, libs []Library) []Issue {
	if len(source) > maxRecoverySource || len(issues) == 0 || issues[0].Rule == "source_limit" {
		return issues
	}
	removed := map[string]bool{} // names
	rest, open := blankUnclosed(source, removed)
	found := issues
	if len(open) > 0 {
		issues, found = open, nil // errors after an unclosed bracket only follow from it
	}
	for range maxRecoveryRounds {
		before := rest
		if !strings.Contains(rest, "package") {
			return issues // a source without a package does not parse
		}
		for _, is := range found {
			rest = blankStatement(rest, is.Line, removed)
		}
		if rest == before && len(found) > 0 {
			return issues
		}
		var mod *ast.Module
		if mod, found = parse(sourceName, rest); found == nil {
			_, later := checkModule(mod, library, libs)
			return append(issues, slices.DeleteFunc(later, func(is Issue) bool { return mentions(is.Message, removed) })...)
		}
		if found[0].Rule == "source_limit" {
			return issues
		}
		issues = append(issues, found...)
	}
	return issues
}

// ruleHead matches the beginning of a statement.
var ruleHead = regexp.MustCompile(`^(?:default\s|import\s|[A-Za-z_][A-Za-z0-9_.]*\s*(?:\(|\[|:=|=|\{|if\b|contains\b))`)

// blankUnclosed blanks the statements in which a bracket is still open when the next statement
// begins, and returns an issue for each.
func blankUnclosed(source string, removed map[string]bool) (rest string, issues []Issue) {
	for range maxRecoveryRounds {
		line, column := unclosed(source)
		if line == 0 {
			break
		}
		rest := blankStatement(source, line, removed)
		if rest == source {
			break
		}
		source = rest
		issues = append(issues, Issue{Line: line, Column: column, Message: "the bracket that opens here is not closed before the next rule", Severity: SeverityError, Rule: parseRule})
	}
	return source, issues
}

// unclosed returns the place of the first bracket that is still open when a statement begins in
// the first column, or 0. The column counts characters.
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

// blankStatement replaces the statement around a line with spaces, and adds the name that it may
// define to removed. Statements begin in the first column.
func blankStatement(source string, line int, removed map[string]bool) string {
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
			return source // a source without a package does not parse
		}
		from++
	}
	head := strings.TrimPrefix(lines[min(from, len(lines)-1)], "default ")
	removed[head[:len(head)-len(strings.TrimLeft(head, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"))]] = true
	if strings.HasPrefix(head, "import ") { // the imported name is removed too
		fields := strings.FieldsFunc(head, func(r rune) bool { return r == '.' || r == ' ' || r == '\n' })
		removed[fields[len(fields)-1]] = true
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

// continueCompiling returns the errors of all stages of the compiler. It replaces each rule with
// an error by a stub, and compiles again.
func (k *linker) continueCompiling(mod *ast.Module, compiler *ast.Compiler) []Issue {
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

// ruleAt returns the index of the control's rule that an issue is about, or -1.
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

// stub returns a rule of the same name, kind and arity whose value may be of any type.
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

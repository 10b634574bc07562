package assist

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// File is a source file whose names are indexed.
type File struct {
	// Name identifies the file: a path or a URI.
	Name string
	Text string
}

// Location is a part of a File.
type Location struct {
	File string
	Span Span
}

// Symbol is an entry in the outline of a file.
type Symbol struct {
	// Name is the head of the rule as written, such as "deny" or "rank(role)".
	Name string
	// Function is set for a rule with arguments.
	Function bool
	// Span is the whole rule, and Head is its name.
	Span, Head Span
}

// Symbols lists the rules of a source in the order of the text. It returns nil if the source does
// not parse.
func Symbols(source string) []Symbol {
	m := parse(source)
	if m == nil {
		return nil
	}
	out := []Symbol{}
	for _, r := range m.Rules {
		head := r.Head.Reference
		at, ok := locate(source, head[0].Location, head[0].String(), len(source))
		if !ok {
			continue
		}
		name := head.String()
		if len(r.Head.Args) > 0 {
			args := make([]string, len(r.Head.Args))
			for i, a := range r.Head.Args {
				args[i] = a.String()
			}
			name += "(" + strings.Join(args, ", ") + ")"
		}
		out = append(out, Symbol{Name: name, Function: len(r.Head.Args) > 0, Span: ruleSpan(source, r, at), Head: at})
	}
	return out
}

// ruleSpan returns the span of a rule. The parser gives only the first word of a default rule, so
// its span ends with its line.
func ruleSpan(source string, r *ast.Rule, head Span) Span {
	start := min(r.Location.Offset, head.Start)
	end := r.Location.Offset + len(r.Location.Text)
	if r.Default || end < head.End {
		end = len(source)
		if n := strings.IndexByte(source[head.End:], '\n'); n >= 0 {
			end = head.End + n
		}
	}
	return Span{start, min(end, len(source))}
}

// target is what a name refers to. Two names refer to the same thing if their targets are equal.
type target struct {
	kind targetKind
	// scope is the package of a rule, the file of an import, or the file and rule of a
	// variable.
	scope string
	name  string
}

type targetKind uint8

const (
	targetRule targetKind = iota + 1
	targetPackage
	targetImport
	targetVariable
)

// occurrence is a place that refers to a target.
type occurrence struct {
	span     Span
	target   target
	declares bool
}

// index has the occurrences of names in one file.
type index struct {
	file        File
	module      *ast.Module // nil if the file does not parse
	scope       string      // scope of the rules in the file
	aliases     map[string]string
	occurrences []occurrence
}

func parse(source string) *ast.Module {
	m, err := ast.ParseModuleWithOpts("", source, ast.ParserOptions{RegoVersion: ast.RegoV1})
	if err != nil || m == nil || m.Package == nil {
		return nil
	}
	return m
}

// locate returns the position of a name that the parser found at loc. For some terms, such as `not
// x`, the parser's location is too early. locate therefore returns the first such word from loc to
// end.
func locate(source string, loc *ast.Location, name string, end int) (Span, bool) {
	if loc == nil || loc.Offset < 0 || loc.Offset > len(source) || name == "" {
		return Span{}, false
	}
	for at := loc.Offset; at+len(name) <= min(end, len(source)); at++ {
		n := strings.Index(source[at:min(end, len(source))], name)
		if n < 0 {
			break
		}
		at += n
		s := Span{at, at + len(name)}
		whole := (s.Start == 0 || !wordByte(source[s.Start-1])) && (s.End == len(source) || !wordByte(source[s.End]))
		if whole && (at == loc.Offset || !inText(source, at)) {
			return s, true
		}
	}
	return Span{}, false
}

package assist

import (
	"regexp"
	"slices"
	"strings"
)

// Signature is the signature of a function whose arguments are being typed.
type Signature struct {
	// Label is the function with its arguments. Parameters are byte offsets into it.
	Label      string
	Parameters []Span
	// Active is the index of the argument at the cursor. It may be beyond the last argument.
	Active int
	Doc    string
}

// SignatureAt returns the signature of the function that is called around an offset. The function
// is built-in, or is in the source or in an imported library. The source need not parse.
func SignatureAt(source string, offset int, k Knowledge) (Signature, bool) {
	name, active, ok := callAround(source, min(max(offset, 0), len(source)))
	if !ok {
		return Signature{}, false
	}
	if b, ok := builtinNamed(name); ok {
		s := signature(b.name, b.args, active)
		s.Label, s.Doc = b.signature, b.doc
		s.Parameters = namedParts(b.signature, b.args)
		return s, true
	}
	text, function := source, name
	if alias, rest, dotted := strings.Cut(name, "."); dotted {
		text, function = importedSource(source, alias, k), rest
	}
	args, ok := functionHead(text, function)
	if !ok {
		return Signature{}, false
	}
	s := signature(name, args, active)
	s.Doc = headComment(text, function)
	return s, true
}

func signature(name string, args []string, active int) Signature {
	s := Signature{Label: name + "(", Active: active}
	for i, a := range args {
		if i > 0 {
			s.Label += ", "
		}
		s.Parameters = append(s.Parameters, Span{len(s.Label), len(s.Label) + len(a)})
		s.Label += a
	}
	s.Label += ")"
	return s
}

// namedParts returns the positions of the arguments in a signature such as
// "f(a: string, b: number) → boolean".
func namedParts(label string, args []string) []Span {
	var out []Span
	at := strings.IndexByte(label, '(') + 1
	for _, a := range args {
		n := strings.Index(label[at:], a+": ")
		if n < 0 {
			return nil
		}
		start := at + n
		out = append(out, Span{start, start + len(a)})
		at = start + len(a)
	}
	return out
}

// frame is an open bracket before the cursor.
type frame struct {
	bracket byte
	at      int
	commas  int
}

// callAround returns the name of the innermost open call at an offset, and the number of its commas
// before the offset.
func callAround(source string, offset int) (name string, commas int, ok bool) {
	if inText(source, offset) {
		return "", 0, false
	}
	stack := openBrackets(source, offset)
	for _, open := range slices.Backward(stack) {
		if open.bracket != '(' {
			continue
		}
		at := word(source, open.at, false)
		if name := source[at.Start:at.End]; name != "" {
			return name, open.commas, true
		}
	}
	return "", 0, false
}

// openBrackets lists the open brackets at an offset. A letter in the first column starts a new
// rule, so brackets that are open before it do not count.
func openBrackets(source string, offset int) []frame {
	var stack []frame
	for i := 0; i < offset; i++ {
		switch c := source[i]; {
		case c == '#':
			i = skipTo(source, i, '\n')
		case c == '`':
			i = skipTo(source, i+1, '`')
		case c == '"':
			i = closingQuote(source, i)
		case c == '(' || c == '[' || c == '{':
			stack = append(stack, frame{bracket: c, at: i})
		case c == ')' || c == ']' || c == '}':
			if len(stack) > 0 {
				stack = stack[:len(stack)-1]
			}
		case c == ',' && len(stack) > 0:
			stack[len(stack)-1].commas++
		case wordByte(c) && i > 0 && source[i-1] == '\n':
			stack = stack[:0]
		}
	}
	return stack
}

func skipTo(source string, from int, c byte) int {
	if n := strings.IndexByte(source[min(from, len(source)):], c); n >= 0 {
		return from + n
	}
	return len(source)
}

// closingQuote returns the offset at which the string that starts at an offset ends. A string
// without a closing quote ends with its line.
func closingQuote(source string, at int) int {
	for at++; at < len(source) && source[at] != '"' && source[at] != '\n'; at++ {
		if source[at] == '\\' {
			at++
		}
	}
	return at
}

// functionHead returns the arguments of the first function with this name.
func functionHead(source, name string) ([]string, bool) {
	head := regexp.MustCompile(`(?m)^(?:default[ \t]+)?` + regexp.QuoteMeta(name) + `\(`).FindStringIndex(source)
	if head == nil {
		return nil, false
	}
	var args []string
	depth, start := 0, head[1]
	for i := head[1]; i < len(source); i++ {
		switch c := source[i]; {
		case c == '"':
			i = closingQuote(source, i)
		case c == '[' || c == '{' || c == '(':
			depth++
		case depth > 0 && (c == ']' || c == '}' || c == ')'):
			depth--
		case depth == 0 && (c == ',' || c == ')'):
			if a := strings.TrimSpace(source[start:i]); a != "" {
				args = append(args, a)
			}
			if start = i + 1; c == ')' {
				return args, true
			}
		}
	}
	return nil, false
}

// importLine matches an import of a library, with or without an alias.
var importLine = regexp.MustCompile(`(?m)^import[ \t]+data\.([A-Za-z0-9_.]+)(?:[ \t]+as[ \t]+([A-Za-z0-9_]+))?`)

// importedSource returns the source of the library that a file imports under a name, or "".
func importedSource(source, alias string, k Knowledge) string {
	for _, m := range importLine.FindAllStringSubmatch(source, -1) {
		name := m[2]
		if name == "" {
			name = m[1][strings.LastIndexByte(m[1], '.')+1:]
		}
		if name != alias {
			continue
		}
		for _, l := range k.Libraries {
			if l.Package() == m[1] {
				return l.Source
			}
		}
	}
	return ""
}

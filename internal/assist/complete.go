package assist

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxCompletions is the maximum number of completions.
const maxCompletions = 500

// Complete lists what may be typed at an offset, grouped by kind. Inside comments and strings it
// lists nothing.
func Complete(source string, offset int, k Knowledge) []Completion {
	offset = min(max(offset, 0), len(source))
	if inText(source, offset) {
		return nil
	}
	at := word(source, offset, false)
	typed := source[at.Start:at.End]
	var out []Completion
	switch {
	case strings.HasPrefix(typed, "input."):
		out = members(typed, at, KindInput, documented(), k.Members, written(source, at))
	case strings.HasPrefix(typed, "data."):
		out = members(typed, at, KindData, dataMembers, k.Data)
	default:
		out = append(out, templates(source, at, typed, k.Templates)...)
		out = append(out, rules(source, at, typed)...)
		out = append(out, words(at, typed)...)
		out = append(out, functions(at, typed)...)
	}
	return out[:min(len(out), maxCompletions)]
}

// members lists the paths that begin with the typed text, the shallowest first.
func members(typed string, at Span, kind string, lists ...[]Member) []Completion {
	seen := map[string]bool{}
	var out []Completion
	for _, list := range lists {
		for _, m := range list {
			if seen[m.Path] || m.Path == typed || !begins(m.Path, typed) {
				continue
			}
			seen[m.Path] = true
			out = append(out, Completion{Label: m.Path, Kind: kind, Detail: m.Type, Doc: m.Doc, Insert: m.Path, Span: at})
		}
	}
	slices.SortStableFunc(out, func(a, b Completion) int {
		return cmp.Or(cmp.Compare(depth(a.Label), depth(b.Label)), strings.Compare(a.Label, b.Label))
	})
	return out
}

func depth(path string) int { return strings.Count(path, ".") + strings.Count(path, "[") }

func begins(s, typed string) bool {
	return len(s) >= len(typed) && strings.EqualFold(s[:len(typed)], typed)
}

// inputPath is a plain path under input.
var inputPath = regexp.MustCompile(`\binput(?:\.[A-Za-z_][A-Za-z0-9_]*)+`)

// written returns the paths under input that occur elsewhere in the source. The source need not
// parse.
func written(source string, at Span) []Member {
	var out []Member
	for _, m := range inputPath.FindAllStringIndex(source, 2*maxCompletions) {
		if m[0] != at.Start {
			out = append(out, Member{Path: source[m[0]:m[1]], Doc: "Written elsewhere in this file."})
		}
	}
	return out
}

// templates returns the templates, if the file has nothing but its package and the typed word.
func templates(source string, at Span, typed string, list []Template) []Completion {
	rest := source[:at.Start] + source[at.End:]
	if strings.Contains(typed, ".") || len(strings.Fields(uncommented(rest))) > 2 {
		return nil
	}
	// A template has a package line, so it replaces the whole file.
	whole := Span{0, len(source)}
	if strings.TrimSpace(uncommented(rest)) == "" {
		whole = at
	}
	var out []Completion
	for _, t := range list {
		if begins(t.ID, typed) || begins("template", typed) || strings.HasPrefix(strings.ToLower(t.ID), strings.ToLower(typed)) {
			out = append(out, Completion{Label: t.ID, Kind: KindTemplate, Detail: t.Title, Doc: t.Doc, Insert: t.Source, Span: whole})
		}
	}
	return out
}

// escape escapes text for a snippet.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "$", `\$`, "}", `\}`).Replace(text)
}

func uncommented(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// ruleHead matches a rule's name, and arguments, at the start of a line.
var ruleHead = regexp.MustCompile(`(?m)^(?:default[ \t]+)?([A-Za-z_][A-Za-z0-9_]{0,100})(\([^()\n]{0,200}\))?`)

// rules returns the rules and functions of the source.
func rules(source string, at Span, typed string) []Completion {
	seen := map[string]bool{typed: true, "package": true, "import": true, "default": true, "else": true}
	var out []Completion
	for _, m := range ruleHead.FindAllStringSubmatchIndex(source, 2*maxCompletions) {
		name, args := source[m[2]:m[3]], ""
		if m[4] >= 0 {
			args = source[m[4]:m[5]]
		}
		if seen[name] || m[2] == at.Start || !begins(name, typed) {
			continue
		}
		seen[name] = true
		out = append(out, Completion{Label: name, Kind: KindRule, Detail: "rule of this file" + args, Insert: name, Span: at})
	}
	return out
}

// words returns the keywords, and the roots input and data.
func words(at Span, typed string) []Completion {
	if strings.Contains(typed, ".") {
		return nil
	}
	var out []Completion
	for _, m := range []Member{
		{"input", "object", "The request that is decided on: user, action, resource, context."},
		{"data", "object", "data.resources, data.pip and data.grants."},
	} {
		if begins(m.Path, typed) {
			out = append(out, Completion{Label: m.Path, Kind: m.Path, Detail: m.Type, Doc: m.Doc, Insert: m.Path, Span: at})
		}
	}
	for _, k := range keywords {
		if begins(k.word, typed) {
			out = append(out, Completion{Label: k.word, Kind: KindKeyword, Detail: "keyword", Doc: k.doc, Insert: k.word, Span: at})
		}
	}
	return out
}

// functions returns the built-in functions.
func functions(at Span, typed string) []Completion {
	var out []Completion
	for _, b := range builtins() {
		if !begins(b.name, typed) {
			continue
		}
		var args []string
		for i, a := range b.args {
			args = append(args, "${"+strconv.Itoa(i+1)+":"+escape(a)+"}")
		}
		out = append(out, Completion{
			Label: b.name, Kind: KindFunction, Detail: b.signature, Doc: b.doc,
			Insert: b.name, Snippet: b.name + "(" + strings.Join(args, ", ") + ")", Span: at,
		})
	}
	return out
}

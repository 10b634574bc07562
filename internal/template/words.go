package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A control must be one text that authors can copy, without data of ours. Its long word lists must
// therefore be part of the text. In the repository they are in a file beside it, words.txt. Load
// replaces each line `# Words: name` of the control by a rule with the list of that name.
//
// The file has sections. Each begins with a line `[kind name]`, and entries follow. The kinds are
//
//	list, set    one text on each line; a text that begins or ends with a space is quoted
//	letters      a letter (or none), a colon and a space, and the words that map to the letter;
//	             "" is the empty word. The rule is an object from word to letter.
//
// A line that begins with `# ` is a comment. Comments in sections are copied into the control.
// Empty lines are ignored.
const (
	wordsFile   = "words.txt"
	wordsMarker = "# Words: "
)

// maxWordsLine is the longest line of a list, in bytes, without its indentation.
const maxWordsLine = 115

// wordList is one section of the file.
type wordList struct {
	kind, name string
	text       bytes.Buffer // the rule, without its last bracket
	line       int          // length of the current line in bytes
	seen       map[string]bool
}

// withWords returns a control that contains the word lists of its folder.
func withWords(root fs.FS, id, source string) (string, error) {
	if !strings.Contains(source, "\n"+wordsMarker) {
		return source, nil
	}
	text, err := fs.ReadFile(root, path.Join(id, wordsFile))
	if err != nil {
		return "", err
	}
	lists, err := readWords(string(text))
	if err != nil {
		return "", fmt.Errorf("%s: %w", wordsFile, err)
	}
	var out strings.Builder
	for line := range strings.Lines(source) {
		name, marked := strings.CutPrefix(strings.TrimSpace(line), wordsMarker)
		if !marked {
			out.WriteString(line)
			continue
		}
		list := lists[name]
		if list == nil {
			return "", fmt.Errorf("%s has no list %q, or the control names it twice", wordsFile, name)
		}
		out.WriteString(list.rule())
		delete(lists, name)
	}
	for name := range lists {
		return "", fmt.Errorf("%s: the control does not name the list %q", wordsFile, name)
	}
	return out.String(), nil
}

// readWords returns the sections of a file by their names.
func readWords(text string) (map[string]*wordList, error) {
	lists := map[string]*wordList{}
	var list *wordList
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		if head, ok := strings.CutPrefix(line, "["); ok && strings.HasSuffix(head, "]") && len(strings.Fields(head)) == 2 {
			kind, name, _ := strings.Cut(strings.TrimSuffix(head, "]"), " ")
			if !slices.Contains([]string{"list", "set", "letters"}, kind) || lists[name] != nil {
				return nil, fmt.Errorf("line %d: the section %q is unknown, or occurs twice", n, name)
			}
			list = newWordList(kind, name)
			lists[name] = list
			continue
		}
		if list == nil {
			if line != "" && !strings.HasPrefix(line, "# ") {
				return nil, fmt.Errorf("line %d: it is before the first section", n)
			}
			continue
		}
		if err := list.add(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lists, nil
}

func newWordList(kind, name string) *wordList {
	l := &wordList{kind: kind, name: name, seen: map[string]bool{}}
	l.text.WriteString(name + " := " + map[string]string{"list": "[", "set": "{", "letters": "{"}[kind])
	l.newLine()
	return l
}

// add adds one line of the section.
func (l *wordList) add(line string) error {
	switch {
	case line == "":
		return nil
	case strings.HasPrefix(line, "# "):
		if l.line > 0 {
			l.newLine()
		}
		l.text.WriteString(line)
		l.newLine()
		return nil
	case l.kind != "letters":
		text := line
		if strings.HasPrefix(line, `"`) && json.Unmarshal([]byte(line), &text) != nil {
			return fmt.Errorf("%s is not a string", line)
		}
		if text == line && strings.TrimSpace(line) != line {
			return fmt.Errorf("%q begins or ends with a space: put it in quotation marks", line)
		}
		return l.entry(text, "")
	}
	letter, words, ok := strings.Cut(line, ": ")
	if !ok || words == "" {
		return fmt.Errorf("%q is not a letter followed by words", line)
	}
	for word := range strings.FieldsSeq(words) {
		if word == `""` {
			word = ""
		}
		if err := l.entry(word, ": "+quoted(letter)); err != nil {
			return err
		}
	}
	return nil
}

// entry adds one text, followed by behind: a colon and its letter, or nothing.
func (l *wordList) entry(text, behind string) error {
	if l.seen[text] {
		return fmt.Errorf("%q is in the list %q twice", text, l.name)
	}
	l.seen[text] = true
	entry := quoted(text) + behind + ","
	switch {
	case l.line > 0 && l.line+1+len(entry) > maxWordsLine:
		l.newLine()
	case l.line > 0:
		l.text.WriteByte(' ')
		l.line++
	}
	l.text.WriteString(entry)
	l.line += len(entry)
	return nil
}

func (l *wordList) newLine() {
	l.text.WriteString("\n\t")
	l.line = 0
}

// rule returns the list as a rule in Rego.
func (l *wordList) rule() string {
	end := "]\n"
	if l.kind != "list" {
		end = "}\n"
	}
	return strings.TrimRight(l.text.String(), "\n\t") + "\n" + end
}

// quoted returns a text as a string literal of Rego.
func quoted(text string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string always has a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}

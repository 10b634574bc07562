package controlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// manifest reads a gatehouse.yaml. It has the members of one control, or a list `controls` of such
// entries. It is read node by node, so that each issue has its position.
//
//	name: "Payments: owners only"      file: which module, if there are several
//	kind: control | library            must match the module's package
//	description: …                     status: draft | active | inactive
//	resource: {name, type, path}       or {id}, or null: tenant-wide
//	bouncer: edge-1                    or {id}, or null
//	tests: [{name, input, expected, data: {resources, pip}}]
//	hidden_tests: 2                    stored tests that an export had to leave out
func (r *reader) manifest(f File) {
	top := place{file: f.Path, line: 1, column: 1}
	if len(f.Content) > maxManifest {
		r.report(top.issue(ruleManifest, "larger than %d bytes", maxManifest))
		return
	}
	doc, err := parseYAML(f.Content)
	if err != nil {
		at, msg := yamlError(err)
		r.report(place{file: f.Path, line: at, column: 1}.issue(ruleManifest, "%s", msg))
		return
	}
	m := &manifestReader{reader: r, file: f.Path, left: maxNodes, room: maxUnfolded}
	if doc == nil {
		r.report(top.issue(ruleManifest, "the file is empty"))
		return
	}
	if list := member(doc, "controls"); list != nil {
		m.members(doc, map[string]func(*yaml.Node){"controls": m.controls})
		return
	}
	m.control(doc, "")
}

// maxNodes and maxUnfolded limit a manifest with all its aliases resolved, in nodes and in bytes of
// text. A few lines of aliases can expand to billions of nodes, or repeat one long text many times.
const (
	maxNodes    = 50_000
	maxUnfolded = 4 * maxManifest
)

// maxNesting limits the depth of an input.
const maxNesting = 64

// parseYAML parses one document. It returns nil if the text has none, and an error if it has
// several.
func parseYAML(text string) (node *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil { // the parser may panic on hostile text
			node, err = nil, fmt.Errorf("the file cannot be read: %v", p)
		}
	}()
	dec := yaml.NewDecoder(strings.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	var more yaml.Node
	switch err := dec.Decode(&more); {
	case err == nil:
		return nil, errors.New("yaml: line " + strconv.Itoa(max(1, more.Line)) + ": one document a file")
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	if len(doc.Content) != 1 {
		return nil, nil
	}
	return doc.Content[0], nil
}

var yamlPlace = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// yamlError returns the line and the message of an error of the parser.
func yamlError(err error) (int, string) {
	msg := err.Error()
	line := 1
	if m := yamlPlace.FindStringSubmatch(msg); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		msg = msg[len(m[0]):]
	}
	return line, string(bytes.ToValidUTF8([]byte(msg), []byte("?")))
}

func member(n *yaml.Node, name string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// manifestReader reads the nodes of one manifest.
type manifestReader struct {
	*reader
	file string
	left int // nodes that may still be read
	room int // bytes of text that may still be read
}

func (m *manifestReader) at(n *yaml.Node) place {
	return place{file: m.file, line: max(1, n.Line), column: max(1, n.Column)}
}

func (m *manifestReader) refuse(n *yaml.Node, format string, args ...any) {
	m.report(m.at(n).issue(ruleManifest, format, args...))
}

// follow resolves aliases and counts the node and its text. It returns nil if a limit is exceeded.
func (m *manifestReader) follow(n *yaml.Node) *yaml.Node {
	for range 4 {
		if n.Kind != yaml.AliasNode {
			break
		}
		n = n.Alias
	}
	if m.left--; m.left < 0 {
		if m.left == -1 {
			m.refuse(n, "the file expands to more than %d values: too many aliases", maxNodes)
		}
		return nil
	}
	had := m.room
	m.room -= textOf(n)
	if m.room < 0 {
		if had >= 0 {
			m.refuse(n, "the file expands to more than %d bytes: too many aliases", maxUnfolded)
		}
		return nil
	}
	return n
}

// textOf returns how many bytes of text a node has itself: its own text and, for a mapping, its
// keys.
func textOf(n *yaml.Node) int {
	size := len(n.Value)
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			size += len(n.Content[i].Value)
		}
	}
	return size
}

// members calls the reader of each member of a mapping. A member without a reader is an issue. It
// returns false if n is not a mapping.
func (m *manifestReader) members(n *yaml.Node, readers map[string]func(*yaml.Node)) bool {
	n = m.follow(n)
	if n == nil {
		return false
	}
	if n.Kind != yaml.MappingNode {
		m.refuse(n, "a mapping is expected here")
		return false
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		read := readers[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || read == nil:
			m.refuse(key, "unknown member %q: there are %s", clip(key.Value), strings.Join(slices.Sorted(maps.Keys(readers)), ", "))
		case seen[key.Value]:
			m.refuse(key, "the member %q occurs twice", key.Value)
		default:
			seen[key.Value] = true
			if v := m.follow(n.Content[i+1]); v != nil {
				read(v)
			}
		}
	}
	return true
}

// items calls read for each item of a list. A list with more items than most is an issue.
func (m *manifestReader) items(n *yaml.Node, most int, read func(*yaml.Node)) {
	switch {
	case n.Kind != yaml.SequenceNode:
		m.refuse(n, "a list is expected here")
	case len(n.Content) > most:
		m.refuse(n, "the list has more than %d items", most)
	default:
		for _, item := range n.Content {
			if v := m.follow(item); v != nil {
				read(v)
			}
		}
	}
}

func (m *manifestReader) text(n *yaml.Node, most int) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		m.refuse(n, "a string is expected here; put it in quotes")
	case len([]rune(n.Value)) > most:
		m.refuse(n, "the text is longer than %d characters", most)
	case strings.ContainsRune(n.Value, 0):
		m.refuse(n, "the text contains a NUL")
	default:
		return n.Value, true
	}
	return "", false
}

// name reads the name of an object.
func (m *manifestReader) name(n *yaml.Node) (string, bool) {
	text, ok := m.text(n, maxName)
	if offence := fault.NameOffence(text); ok && offence != "" {
		m.refuse(n, "%s", offence)
		return "", false
	}
	return text, ok
}

func (m *manifestReader) flag(n *yaml.Node) (value bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(&value) != nil {
		m.refuse(n, "true or false is expected here")
	}
	return value
}

func (m *manifestReader) id(n *yaml.Node) (int64, bool) {
	var v int64
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" && n.Decode(&v) == nil && v > 0 {
		return v, true
	}
	m.refuse(n, "an id is expected here")
	return 0, false
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func (m *manifestReader) controls(n *yaml.Node) {
	m.items(n, MaxFiles, func(item *yaml.Node) { m.control(item, "controls") })
}

// control reads the entry of one control and adds it to the control's module. within is "" if the
// manifest is one entry.
func (m *manifestReader) control(n *yaml.Node, within string) {
	var c Control
	var file, kind *yaml.Node
	ok := m.members(n, map[string]func(*yaml.Node){
		"file": func(v *yaml.Node) { file = v },
		"name": func(v *yaml.Node) {
			name, ok := m.name(v)
			if name = strings.TrimSpace(name); ok && name == "" {
				m.refuse(v, "the name is required")
			}
			c.Name = name
		},
		"description": func(v *yaml.Node) {
			if text, ok := m.text(v, maxText); ok {
				c.Description = &text
			}
		},
		"kind": func(v *yaml.Node) {
			if v.Value != "control" && v.Value != "library" {
				m.refuse(v, "kind must be control or library")
				return
			}
			kind = v
		},
		"status": func(v *yaml.Node) {
			if !slices.Contains([]string{"draft", "active", "inactive"}, v.Value) {
				m.refuse(v, "status must be draft, active or inactive")
				return
			}
			c.Status = &v.Value
		},
		"resource": func(v *yaml.Node) { c.Resource = m.link(v, true) },
		"bouncer":  func(v *yaml.Node) { c.Bouncer = m.link(v, false) },
		"tests": func(v *yaml.Node) {
			cases := []Case{}
			m.items(v, maxCases, func(item *yaml.Node) { cases = append(cases, m.testCase(item)) })
			c.Cases = &cases
		},
		"hidden_tests": func(v *yaml.Node) {
			if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!int" || v.Decode(&c.HiddenCases) != nil || c.HiddenCases < 0 {
				m.refuse(v, "a number of tests is expected here")
			}
		},
	})
	if !ok {
		return
	}
	target := m.target(n, file, within)
	if target == nil {
		return
	}
	if target.at != (place{}) {
		m.refuse(n, "%s is described twice", target.Path)
		return
	}
	if c.Name == "" {
		c.Name = target.Name
	}
	c.Path, c.Source, c.at = target.Path, target.Source, m.at(n)
	if kind != nil && (kind.Value == "library") != c.IsLibrary() {
		m.refuse(kind, "the module is not a %s: only libraries have a package under lib", kind.Value)
	}
	if c.IsLibrary() && c.Cases != nil && len(*c.Cases) > 0 {
		m.refuse(n, "a library decides nothing and has no tests here: write Rego tests")
	}
	*target = c
}

// target returns the module that an entry describes, or nil.
func (m *manifestReader) target(n, file *yaml.Node, within string) *Control {
	dir := path.Dir(m.file)
	if file != nil {
		name, ok := m.text(file, maxPath)
		if !ok {
			return nil
		}
		target := m.reader.controls[path.Join(dir, name)]
		if target == nil || strings.Contains(name, "/") {
			m.refuse(file, "there is no control %s beside this file", strconv.Quote(clip(name)))
			return nil
		}
		return target
	}
	var beside []string
	for _, p := range m.paths {
		if path.Dir(p) == dir {
			beside = append(beside, p)
		}
	}
	switch {
	case within != "":
		m.refuse(n, "the member file must name the control")
	case len(beside) == 0:
		m.refuse(n, "there is no control beside this file")
	case len(beside) > 1:
		m.refuse(n, "there are %d controls beside this file: list them under controls, each with its file", len(beside))
	default:
		return m.reader.controls[beside[0]]
	}
	return nil
}

// link reads the resource or bouncer that a control is linked to. It returns nil if there is an
// issue.
func (m *manifestReader) link(n *yaml.Node, resource bool) *Link {
	l := &Link{at: m.at(n)}
	if isNull(n) {
		l.None = true
		return l
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		name, ok := m.name(n)
		if !ok || name == "" {
			return nil
		}
		l.Name = name
		return l
	}
	readers := map[string]func(*yaml.Node){
		"id":   func(v *yaml.Node) { l.ID, _ = m.id(v) },
		"name": func(v *yaml.Node) { l.Name, _ = m.name(v) },
	}
	if resource {
		readers["type"] = func(v *yaml.Node) { l.Type, _ = m.text(v, 64) }
		readers["path"] = func(v *yaml.Node) { l.Path, _ = m.text(v, 2048) }
	}
	if !m.members(n, readers) {
		return nil
	}
	named := l.Name != "" || l.Type != "" || l.Path != ""
	if (l.ID != 0) == named {
		m.refuse(n, "either an id or a name is expected here")
		return nil
	}
	return l
}

// object reads a mapping as a JSON object.
func (m *manifestReader) object(n *yaml.Node, what string) map[string]any {
	out, ok := m.value(n, 0).(map[string]any)
	if !ok {
		m.refuse(n, "%s is a mapping", what)
	}
	return out
}

func (m *manifestReader) testCase(n *yaml.Node) Case {
	c := Case{at: m.at(n)}
	said := map[string]bool{}
	ok := m.members(n, map[string]func(*yaml.Node){
		"name": func(v *yaml.Node) {
			c.Name, said["name"] = m.name(v)
		},
		"input": func(v *yaml.Node) { c.Input, said["input"] = m.object(v, "an input"), true },
		"data": func(v *yaml.Node) {
			c.Data = map[string]any{}
			m.members(v, map[string]func(*yaml.Node){
				"resources": func(v *yaml.Node) { c.Data["resources"] = m.object(v, "resources") },
				"pip":       func(v *yaml.Node) { c.Data["pip"] = m.object(v, "pip") },
			})
		},
		"expected": func(v *yaml.Node) { c.Expected, said["expected"] = m.flag(v), true },
	})
	if ok && (c.Name == "" || !said["input"] || !said["expected"]) {
		m.refuse(n, "a test needs a name, an input and expected")
	}
	return c
}

func clip(s string) string {
	return truncate.Text(s, 60, "…")
}

// Package redact removes from documents what must not be logged: the values of members that are
// named like secrets, and owner_email. It also finds these values, and removes them from texts that
// a control built from them. It is pure.
package redact

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Mark replaces a secret.
const Mark = "[redacted]"

// isSecret reports whether a member with this name has a secret value: whether one of the words below
// occurs in the name, which is folded to lower-case letters and digits, so that api_key, API-Key
// and apiKey are the same. Names that end in token are secrets, but names of counts of tokens are
// not.
func isSecret(folded []byte) bool {
	for i := range folded {
		if secretAt(folded[i:]) {
			return true
		}
	}
	return bytes.HasSuffix(folded, []byte("token"))
}

// secretAt reports whether s begins with a word that names a secret. It is called for each byte of
// each name of an input, so it decides most cases by the first byte.
func secretAt(s []byte) bool {
	switch s[0] {
	case 'a':
		return hasPrefix(s, "authorization") || hasPrefix(s, "apikey")
	case 'b':
		return hasPrefix(s, "bearer")
	case 'c':
		return hasPrefix(s, "credential") || hasPrefix(s, "cookie")
	case 'p':
		return hasPrefix(s, "password") || hasPrefix(s, "passwd") || hasPrefix(s, "passphrase") || hasPrefix(s, "privatekey")
	case 's':
		return hasPrefix(s, "secret")
	}
	return false
}

func hasPrefix(s []byte, word string) bool {
	return len(s) >= len(word) && string(s[:len(word)]) == word
}

func isPersonal(folded []byte) bool { return string(folded) == "owneremail" }

// IsHidden reports whether the value of a member with this name is hidden.
func IsHidden(name string) bool {
	var buf [64]byte
	folded := foldName(buf[:0], name)
	return isSecret(folded) || isPersonal(folded)
}

func foldName[T string | []byte](dst []byte, name T) []byte {
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c >= 'A' && c <= 'Z':
			dst = append(dst, c+'a'-'A')
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c >= utf8.RuneSelf:
			dst = append(dst, c)
		}
	}
	return dst
}

// minText is the shortest text that is looked for: a shorter one is in any
// sentence.
const minText = 4

// Secrets has the texts of hidden members, the longest first.
type Secrets []string

// FindSecrets returns the texts of the hidden members of documents.
func FindSecrets(docs ...value.Value) Secrets {
	var f Secrets
	for _, doc := range docs {
		f = f.With(doc, false)
	}
	return f
}

// With adds the texts of the hidden members of v; all texts of v if hidden is true. It allocates
// nothing if there are none.
func (f Secrets) With(v value.Value, hidden bool) Secrets {
	switch v.Kind() {
	case value.ObjectKind:
		return f.withMembers(v, hidden)
	case value.ArrayKind, value.SetKind:
		for _, e := range v.Elems() {
			f = f.With(e, hidden)
		}
	case value.StringKind:
		if s, _ := v.Str(); hidden {
			return f.text(s)
		}
	case value.NumberKind:
		if hidden {
			return f.text(string(v.AppendJSON(nil)))
		}
	}
	return f
}

func (f Secrets) withMembers(v value.Value, hidden bool) Secrets {
	v.Each(func(key string, inner value.Value) bool {
		if k := inner.Kind(); hidden || k >= value.ArrayKind || k == value.StringKind || k == value.NumberKind {
			f = f.With(inner, hidden || IsHidden(key))
		}
		return true
	})
	return f
}

// text adds a text, the forms in which a control may show it, and its parts that
// are secrets too: what follows the scheme of an Authorization header, the lines
// of a key.
func (f Secrets) text(s string) Secrets {
	f = f.add(s)
	quoted := value.AppendString(nil, s)
	f = f.add(string(quoted[1 : len(quoted)-1]))
	if scheme, rest, ok := strings.Cut(s, " "); ok && slices.Contains([]string{"bearer", "basic", "token", "dpop", "negotiate"}, strings.ToLower(scheme)) {
		f = f.add(strings.TrimSpace(rest))
	}
	if strings.Contains(s, "\n") {
		for line := range strings.SplitSeq(s, "\n") {
			f = f.add(strings.TrimSpace(line))
		}
	}
	return f
}

func (f Secrets) add(s string) Secrets {
	if utf8.RuneCountInString(s) < minText || slices.Contains(f, s) {
		return f
	}
	at, _ := slices.BinarySearchFunc(f, s, func(a, b string) int { return len(b) - len(a) })
	return slices.Insert(f, at, s) // what holds another goes first
}

// cutFrom is the length from which on a text may have been cut within a secret.
const cutFrom = 1000

// Text returns s with Mark in place of every found text.
func (f Secrets) Text(s string) string {
	for _, secret := range f {
		s = strings.ReplaceAll(s, secret, Mark)
	}
	if len(s) < cutFrom {
		return s
	}
	for _, secret := range f {
		for n := min(len(secret), len(s)) - 1; n >= minText; n-- {
			if strings.HasSuffix(s, secret[:n]) {
				return s[:len(s)-n] + Mark
			}
		}
	}
	return s
}

// Value returns v with Mark in place of every found text, in its texts and names, and of numbers
// that equal a found text.
func (f Secrets) Value(v value.Value) value.Value {
	if len(f) == 0 {
		return v
	}
	return f.value(v, nil)
}

// ownMembers are those of an explanation and a trace that say nothing of the
// input: their words and numbers stay, whatever a secret has the luck to be. What
// stands below values is the input's.
var ownMembers = []string{
	"step_number", "step_type", "result", "policy_id", "policy_name", "policy_version", "effect", "rule", "line", "column", "holds", "unreached", "partial",
}

// bindingMembers are those of a value that an explanation shows.
var bindingMembers = []string{"path", "variable", "value"}

// Document returns one of our explanations or traces, as JSON, without the found texts; null if it
// cannot be read.
func (f Secrets) Document(text []byte) []byte { return f.document(text, ownMembers) }

// ForeignDocument is like Document, for a document whose members are not ours.
func (f Secrets) ForeignDocument(text []byte) []byte { return f.document(text, nil) }

func (f Secrets) document(text []byte, own []string) []byte {
	if len(f) == 0 {
		return text
	}
	v, err := value.Decode(text, value.Limits{Depth: 512, Values: 4_000_000})
	if err != nil {
		return []byte("null")
	}
	return f.value(v, own).AppendJSON(nil)
}

// value is Value, but for the members that are named in own. With own, the names
// are ours.
func (f Secrets) value(v value.Value, own []string) value.Value {
	switch v.Kind() {
	case value.ObjectKind:
		members := make([]value.Member, 0, v.Len())
		v.Each(func(key string, inner value.Value) bool {
			switch {
			case slices.Contains(own, key):
			case own != nil && key == "values":
				inner = f.value(inner, nil)
			default:
				inner = f.value(inner, own)
			}
			if own == nil && !slices.Contains(bindingMembers, key) {
				key = f.Text(key)
			}
			members = append(members, value.Member{Key: key, Value: inner})
			return true
		})
		return value.Object(members...)
	case value.ArrayKind:
		elems := make([]value.Value, 0, v.Len())
		for _, e := range v.Elems() {
			elems = append(elems, f.value(e, own))
		}
		return value.Array(elems...)
	case value.StringKind:
		s, _ := v.Str()
		return value.String(f.Text(s))
	case value.NumberKind:
		if slices.Contains(f, string(v.AppendJSON(nil))) {
			return value.String(Mark)
		}
	}
	return v
}

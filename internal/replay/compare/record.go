package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// record is the part of a log entry that a replay needs. Other members, such as a long
// trace, are skipped without decoding.
type record struct {
	id, decision, effect, mode, action, userID, path string
	at                                               time.Time
	policyID, policyVersion                          int64
	resourceID, bouncerID, revision                  int64
	input                                            []byte // raw, aliases the line
}

var errRecord = errors.New("not a decision record")

// parse reads the members of line that a replay needs. It skips other values without a check of
// their syntax, because the log checked them when it wrote them.
func parse(line []byte, r *record) error {
	*r = record{}
	if err := members(line, r.member); err != nil {
		return err
	}
	if r.id == "" || r.at.IsZero() {
		return errRecord
	}
	return nil
}

// members calls fn for each member of the object in line.
func members(line []byte, fn func(key string, raw []byte) error) error {
	i := skipSpace(line, 0)
	if i >= len(line) || line[i] != '{' {
		return errRecord
	}
	for i++; ; {
		i = skipSpace(line, i)
		if i < len(line) && line[i] == '}' {
			return nil
		}
		from := i
		end, ok := skipValue(line, i)
		if !ok || line[from] != '"' {
			return errRecord
		}
		key := line[from+1 : end-1]
		if i = skipSpace(line, end); i >= len(line) || line[i] != ':' {
			return errRecord
		}
		from = skipSpace(line, i+1)
		if end, ok = skipValue(line, from); !ok {
			return errRecord
		}
		if err := fn(string(key), line[from:end]); err != nil {
			return err
		}
		if i = skipSpace(line, end); i < len(line) && line[i] == ',' {
			i++
		}
		if i >= len(line) {
			return errRecord
		}
	}
}

func (r *record) member(key string, raw []byte) (err error) {
	switch key {
	case "decision_id":
		r.id, err = text(raw)
	case "timestamp":
		var s string
		if s, err = text(raw); err == nil {
			r.at, err = time.Parse(time.RFC3339Nano, s)
		}
	case "decision":
		r.decision, err = text(raw)
	case "effect":
		r.effect, err = text(raw)
	case "mode":
		r.mode, err = text(raw)
	case "action":
		r.action, err = text(raw)
	case "user":
		r.userID = memberText(raw, "id")
	case "resource":
		r.path = memberText(raw, "path")
	case "policy_id":
		r.policyID, err = strconv.ParseInt(string(raw), 10, 64)
	case "policy_version":
		r.policyVersion, err = strconv.ParseInt(string(raw), 10, 64)
	case "resource_id":
		r.resourceID, err = strconv.ParseInt(string(raw), 10, 64)
	case "bouncer_id":
		r.bouncerID, err = strconv.ParseInt(string(raw), 10, 64)
	case "revision":
		r.revision, err = strconv.ParseInt(string(raw), 10, 64)
	case "input":
		r.input = raw
	}
	if err != nil {
		return errRecord
	}
	return nil
}

func text(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", errRecord
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// memberText returns a text member of a small object, or "" if it has none.
func memberText(raw []byte, name string) string {
	v, err := value.Decode(raw, value.Limits{})
	if err != nil {
		return ""
	}
	s, _ := v.Get(name).Str()
	return s
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the end of the value that begins at i.
func skipValue(b []byte, i int) (end int, ok bool) {
	depth := 0
	for i < len(b) {
		switch c := b[i]; c {
		case '"':
			if i = skipString(b, i); i < 0 {
				return 0, false
			}
			if depth == 0 {
				return i, true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i, true // the end of a scalar
			}
			if depth--; depth == 0 {
				return i + 1, true
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i, true
			}
		}
		i++
	}
	return 0, false
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
	return -1
}

// redactedMark is the text that redact.JSON writes instead of a secret.
const redactedMark = "[redacted]"

// decodeInput reads a stored input. The input of a stock OPA may have members that differ
// only in case, which the strict decoder refuses.
func decodeInput(raw []byte) (value.Value, error) {
	v, err := value.Decode(raw, value.Limits{})
	if err == nil {
		return v, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var x any
	if json.Unmarshal(raw, new(json.RawMessage)) != nil || dec.Decode(&x) != nil {
		return value.Value{}, err
	}
	return value.FromAny(x)
}

// redactedPaths returns the paths of redacted values.
func redactedPaths(v value.Value) [][]string {
	var out [][]string
	var walk func(v value.Value, at []string)
	walk = func(v value.Value, at []string) {
		switch v.Kind() {
		case value.StringKind:
			if s, _ := v.Str(); s == redactedMark {
				out = append(out, append([]string{}, at...))
			}
		case value.ObjectKind:
			v.Each(func(key string, m value.Value) bool { walk(m, append(at, key)); return true })
		case value.ArrayKind:
			for i, e := range v.Elems() {
				walk(e, append(at, strconv.Itoa(i)))
			}
		}
	}
	walk(v, nil)
	return out
}

// touches reports whether a path of reads is equal to a path of places, or contains it or is inside
// it.
func touches(reads, places [][]string) bool {
	for _, p := range places {
		for _, r := range reads {
			n := min(len(p), len(r))
			if strings.Join(p[:n], "\x00") == strings.Join(r[:n], "\x00") {
				return true
			}
		}
	}
	return false
}

// Member returns the raw value of one member of a record. It returns nil if there is none, or if
// line is not an object.
func Member(line []byte, name string) []byte {
	var out []byte
	err := members(line, func(key string, raw []byte) error {
		if key == name {
			out = raw
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return out
}

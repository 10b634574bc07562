package masking

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// testHashKey is the key that tests hash with.
var testHashKey = HashKey("a key of 32 bytes for tests only")

func TestApplyMask(t *testing.T) {
	doc := `{ "user" : {"email":"ann@example.com","ssn":"123-45-6789", "age":41}, "items":[{"id":1,"card":"4111111111111111"},{"id":2,"card":4111111111119999}],"n":1.50e+3, "a/b":{"c~d":"x"}, "\u0065t":"esc" }`
	for _, tc := range []struct {
		name  string
		rules []MaskRule
		want  string
	}{
		{"dotted", []MaskRule{{Path: "user.email", Strategy: "redact"}}, `{ "user" : {"email":"[redacted]","ssn":"123-45-6789", "age":41}, "items":[{"id":1,"card":"4111111111111111"},{"id":2,"card":4111111111119999}],"n":1.50e+3, "a/b":{"c~d":"x"}, "\u0065t":"esc" }`},
		{"pointer", []MaskRule{{Path: "/a~1b/c~0d", Strategy: "redact"}}, `{ "user" : {"email":"ann@example.com","ssn":"123-45-6789", "age":41}, "items":[{"id":1,"card":"4111111111111111"},{"id":2,"card":4111111111119999}],"n":1.50e+3, "a/b":{"c~d":"[redacted]"}, "\u0065t":"esc" }`},
		{"remove first and last", []MaskRule{{Path: "user", Strategy: "remove"}, {Path: "et", Strategy: "remove"}}, `{  "items":[{"id":1,"card":"4111111111111111"},{"id":2,"card":4111111111119999}],"n":1.50e+3, "a/b":{"c~d":"x"}}`},
		{"last4 in every element", []MaskRule{{Path: "items.*.card", Strategy: "last4"}, {Path: "user.ssn", Strategy: "last4"}, {Path: "user.age", Strategy: "last4"}}, `{ "user" : {"email":"ann@example.com","ssn":"****6789", "age":"****"}, "items":[{"id":1,"card":"****1111"},{"id":2,"card":"****9999"}],"n":1.50e+3, "a/b":{"c~d":"x"}, "\u0065t":"esc" }`},
		{"stricter wins, outer covers inner", []MaskRule{{Path: "user.ssn", Strategy: "last4"}, {Path: "user.*", Strategy: "remove"}, {Path: "items.0", Strategy: "redact"}, {Path: "items.*.id", Strategy: "hash"}}, `{ "user" : {}, "items":["[redacted]",{"id":"sha256:65d7ddafbece2dafbb92c257625d9f41c26ef61524f7fe0117d2511093b056fe","card":4111111111119999}],"n":1.50e+3, "a/b":{"c~d":"x"}, "\u0065t":"esc" }`},
		{"absent", []MaskRule{{Path: "nobody.here", Strategy: "remove"}}, doc},
	} {
		got, err := Apply([]byte(doc), tc.rules, testHashKey)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %v\n got %s\nwant %s", tc.name, err, got, tc.want)
		}
		if !json.Valid(got) {
			t.Errorf("%s: not JSON", tc.name)
		}
	}
	for _, bad := range []string{``, `{`, `{"a":1,}`, `[1,]`, `{"a" 1}`, `{"a":1} x`, `tru`, `{"a":01}`, "{\"a\":\"\n\"}", `{"a":"\x"}`, `[1 2]`, `<html>`} {
		if got, err := Apply([]byte(bad), []MaskRule{{Path: "a", Strategy: "redact"}}, nil); err == nil {
			t.Errorf("%q passed as %q", bad, got)
		}
	}
}

func FuzzApplyMask(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":"x","c":1},{"b":2}],"d":"1234567"}`), "a.*.b", uint8(3))
	f.Add([]byte(`[[],{},{"":""},null,true]`), "/0", uint8(0))
	strategies := []string{Redact, Hash, Last4, Remove}
	f.Fuzz(func(t *testing.T, doc []byte, path string, s uint8) {
		got, err := Apply(doc, []MaskRule{{Path: path, Strategy: strategies[s%4]}}, testHashKey)
		if err != nil {
			return
		}
		if !json.Valid(doc) {
			t.Fatalf("%q is not JSON, but passed as %q", doc, got)
		}
		if !json.Valid(got) {
			t.Fatalf("%q became %q", doc, got)
		}
	})
}

// Without a path that is there, not a byte changes.
func TestApplyMaskKeepsBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Custom(drawJSON).Draw(t, "doc")
		doc, _ := json.MarshalIndent(v, "", " ")
		got, err := Apply(doc, []MaskRule{{Path: "no.such.path", Strategy: Remove}}, nil)
		if err != nil || !bytes.Equal(got, doc) {
			t.Fatalf("%v: %s became %s", err, doc, got)
		}
	})
}

func drawJSON(t *rapid.T) any { return drawDepth(t, 3) }

func drawDepth(t *rapid.T, left int) any {
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	switch {
	case kind == 0:
		return nil
	case kind == 1:
		return rapid.Bool().Draw(t, "b")
	case kind == 2:
		return rapid.IntRange(-3, 3).Draw(t, "n")
	case kind == 3 || left == 0:
		return rapid.SampledFrom([]string{"", "a", "1", "ann", "bob", "x;y", "ünï"}).Draw(t, "s")
	case kind == 4:
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "len") {
			out = append(out, drawDepth(t, left-1))
		}
		return out
	default:
		out := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "len") {
			out[rapid.SampledFrom([]string{"id", "a", "b", "roles", "x"}).Draw(t, "k")] = drawDepth(t, left-1)
		}
		return out
	}
}

// A path goes on into strings that hold a document, and what begins as one and
// cannot be read is hidden whole.
func TestApplyMaskInStrings(t *testing.T) {
	for name, tc := range map[string]struct{ path, doc, want string }{
		"an object":       {"text.ssn", `{"text":"{\"ssn\":\"canary\",\"n\":1}"}`, `{"text":"{\"ssn\":\"[redacted]\",\"n\":1}"}`},
		"an array":        {"text.*.ssn", `{"text":" [{\"ssn\":\"canary\"}]"}`, `{"text":"[{\"ssn\":\"[redacted]\"}]"}`},
		"twice":           {"a.b.c", `{"a":"{\"b\":\"{\\\"c\\\":\\\"canary\\\"}\"}"}`, `{"a":"{\"b\":\"{\\\"c\\\":\\\"[redacted]\\\"}\"}"}`},
		"written again":   {"a.b", `{"a":"\"{\\\"b\\\":\\\"canary\\\"}\""}`, `{"a":"\"{\\\"b\\\":\\\"[redacted]\\\"}\""}`},
		"again, broken":   {"a.b", `{"a":"\"{\\\"b\\\":\\\"canary\\\"}"}`, `{"a":"[redacted]"}`},
		"quoted words":    {"a.b", `{"a":"\"so\" they say"}`, `{"a":"\"so\" they say"}`},
		"with escapes":    {"text.ssn", `{"text":"\u007b\"s\\u0073n\":\"canary\"}"}`, `{"text":"{\"s\\u0073n\":\"[redacted]\"}"}`},
		"broken":          {"text.ssn", `{"text":"{\"ssn\":\"canary\""}`, `{"text":"[redacted]"}`},
		"two documents":   {"text.ssn", `{"text":"{} {\"ssn\":\"canary\"}"}`, `{"text":"[redacted]"}`},
		"a text":          {"text.ssn", `{"text":"no document"}`, `{"text":"no document"}`},
		"nothing in it":   {"text.ssn", `{"text":"{\"x\": 1}"}`, `{"text":"{\"x\": 1}"}`},
		"the path ends":   {"text", `{"text":"{\"x\": 1}"}`, `{"text":"[redacted]"}`},
		"no path to it":   {"other.ssn", `{"text":"{\"ssn\": 1"}`, `{"text":"{\"ssn\": 1"}`},
		"the whole of it": {"*.*", `{"text":"{\"a\":1,\"b\":2}"}`, `{"text":"{\"a\":\"[redacted]\",\"b\":\"[redacted]\"}"}`},
	} {
		got, err := Apply([]byte(tc.doc), []MaskRule{{Path: tc.path, Strategy: Redact}}, nil)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %s %v, want %s", name, got, err, tc.want)
		}
	}
}

func TestHashKey(t *testing.T) {
	one, other := HashKey("one key that is thirty-two bytes"), HashKey("another, which is 32 bytes too..")
	bare := "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" // of a
	switch a := one.Hash([]byte("a")); {
	case a == bare, len(a) != len(bare), a == other.Hash([]byte("a")), a == one.Hash([]byte("b")), a != one.Hash([]byte("a")):
		t.Errorf("the hash of a is %s", a)
	}
	if got := HashKey(nil).Hash([]byte("a")); got != Redacted {
		t.Errorf("without a key a value becomes %s", got)
	}
	if s := one.Derive("sessions"); len(s) != HashKeyBytes || string(s) == string(one) || string(s) == string(one.Derive("other")) || HashKey(nil).Derive("x") != nil {
		t.Error("a derived key is no key of its own")
	}
}

// In pieces the result is the same, whatever goes and however large a value is.
func TestApplyMaskTo(t *testing.T) {
	rules := []MaskRule{
		{Path: "rows.*.secret", Strategy: Hash},
		{Path: "rows.*.gone", Strategy: Remove},
		{Path: "rows.0", Strategy: Remove},
		{Path: "rows.*.deep.*.a", Strategy: Last4},
		{Path: "big", Strategy: Redact},
		{Path: "rows.*.text.inner", Strategy: Remove},
	}
	row := `{"secret": "s", "gone":{"a":[1,2,{"b":"` + strings.Repeat("x", 700) + `"}]}, "kept":"` + strings.Repeat("é", 300) + `","deep":[{"a":"abcdefgh"},{"a":12345678,"b":null}],"text":"{\"inner\":1,\"b\":2}" }`
	long := strings.Repeat("y", 3*maskPiece)
	for name, doc := range map[string]string{
		"rows":        `{"rows":[` + strings.Repeat(row+", ", 400) + row + `],"big":"` + long + `","tail":[]}`,
		"long values": `{ "a":"` + long + `","big":{"x":"` + long + `"},"rows":["` + long + `",{"gone":"` + long + `"}]}`,
		"small":       `{"rows":[{}, {"gone":1}]}`,
		"a word":      ` true `,
	} {
		want, err := Apply([]byte(doc), rules, HashKey("k"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []byte
		pieces := 0
		if err := ApplyTo([]byte(doc), rules, HashKey("k"), func(p []byte) error { pieces++; got = append(got, p...); return nil }); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(got, want) || !json.Valid(got) {
			t.Errorf("%s: in pieces it is another document", name)
		}
		if pieces < len(want)/(4*maskPiece) {
			t.Errorf("%s: %d bytes came in %d pieces", name, len(want), pieces)
		}
	}
	refused := errors.New("full")
	if err := ApplyTo([]byte(`{"rows":[]}`), rules, nil, func([]byte) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("the error of the receiver is %v", err)
	}
}

// A document in a string that is too large to be gone into is hidden whole.
func TestApplyMaskInLargeStrings(t *testing.T) {
	inner := `{"secret":"canary","b":"` + strings.Repeat("x", maxInnerDocument) + `"}`
	quoted, _ := json.Marshal(map[string]string{"text": inner, "plain": strings.Repeat("x", maxInnerDocument+1)})
	got, err := Apply(quoted, []MaskRule{{Path: "text.secret", Strategy: Remove}, {Path: "plain.secret", Strategy: Remove}}, nil)
	if err != nil || bytes.Contains(got, []byte("canary")) || !bytes.Contains(got, []byte(`"text":"[redacted]"`)) || len(got) < maxInnerDocument {
		t.Errorf("%.200s %v", got, err)
	}
}

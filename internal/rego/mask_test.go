package rego

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestApplyMask(t *testing.T) {
	doc := `{ "user" : {"email":"ann@example.com","ssn":"123-45-6789", "age":41}, "items":[{"id":1,"card":"4111111111111111"},{"id":2,"card":4111111111119999}],"n":1.50e+3, "a/b":{"c~d":"x"}, "\u0065t":"esc" }`
	for _, tc := range []struct {
		name  string
		rules []MaskRule
		want  string
	}{
		{"dotted", []MaskRule{{"user.email", "redact"}}, `{ "user" : {"email":"[redacted]","ssn":"123-45-6789", "age":41}, "items":[{"id":1,"card":"4111111111111111"},{"id":2,"card":4111111111119999}],"n":1.50e+3, "a/b":{"c~d":"x"}, "\u0065t":"esc" }`},
		{"pointer", []MaskRule{{"/a~1b/c~0d", "redact"}}, `{ "user" : {"email":"ann@example.com","ssn":"123-45-6789", "age":41}, "items":[{"id":1,"card":"4111111111111111"},{"id":2,"card":4111111111119999}],"n":1.50e+3, "a/b":{"c~d":"[redacted]"}, "\u0065t":"esc" }`},
		{"remove first and last", []MaskRule{{"user", "remove"}, {"et", "remove"}}, `{  "items":[{"id":1,"card":"4111111111111111"},{"id":2,"card":4111111111119999}],"n":1.50e+3, "a/b":{"c~d":"x"}}`},
		{"last4 in every element", []MaskRule{{"items.*.card", "last4"}, {"user.ssn", "last4"}, {"user.age", "last4"}}, `{ "user" : {"email":"ann@example.com","ssn":"****6789", "age":"****"}, "items":[{"id":1,"card":"****1111"},{"id":2,"card":"****9999"}],"n":1.50e+3, "a/b":{"c~d":"x"}, "\u0065t":"esc" }`},
		{"stricter wins, outer covers inner", []MaskRule{{"user.ssn", "last4"}, {"user.*", "remove"}, {"items.0", "redact"}, {"items.*.id", "hash"}}, `{ "user" : {}, "items":["[redacted]",{"id":"sha256:d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","card":4111111111119999}],"n":1.50e+3, "a/b":{"c~d":"x"}, "\u0065t":"esc" }`},
		{"absent", []MaskRule{{"nobody.here", "remove"}}, doc},
	} {
		got, err := ApplyMask([]byte(doc), tc.rules)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %v\n got %s\nwant %s", tc.name, err, got, tc.want)
		}
		if !json.Valid(got) {
			t.Errorf("%s: not JSON", tc.name)
		}
	}
	for _, bad := range []string{``, `{`, `{"a":1,}`, `[1,]`, `{"a" 1}`, `{"a":1} x`, `tru`, `{"a":01}`, "{\"a\":\"\n\"}", `{"a":"\x"}`, `[1 2]`, `<html>`} {
		if got, err := ApplyMask([]byte(bad), []MaskRule{{"a", "redact"}}); err == nil {
			t.Errorf("%q passed as %q", bad, got)
		}
	}
}

func FuzzApplyMask(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":"x","c":1},{"b":2}],"d":"1234567"}`), "a.*.b", uint8(3))
	f.Add([]byte(`[[],{},{"":""},null,true]`), "/0", uint8(0))
	strategies := []string{StrategyRedact, StrategyHash, StrategyLast4, StrategyRemove}
	f.Fuzz(func(t *testing.T, doc []byte, path string, s uint8) {
		got, err := ApplyMask(doc, []MaskRule{{path, strategies[s%4]}})
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
		got, err := ApplyMask(doc, []MaskRule{{"no.such.path", StrategyRemove}})
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

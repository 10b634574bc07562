package fault

import (
	"fmt"
	"testing"
)

func TestUnknownMembers(t *testing.T) {
	known := []string{"cache_ttl", "identity", "flags.resources.assist"}
	for name, c := range map[string]struct {
		sent, stored map[string]any
		want         string
	}{
		"known":             {map[string]any{"cache_ttl": "1s", "flags.resources.assist": true}, nil, "[]"},
		"free":              {map[string]any{"x-team": 1, "x-": nil}, nil, "[]"},
		"a typo":            {map[string]any{"cahce_ttl": 1}, nil, `[/configuration/cahce_ttl there is no such member here; did you mean "cache_ttl"?]`},
		"another case":      {map[string]any{"Cache_TTL": 1}, nil, `[/configuration/Cache_TTL there is no such member here; did you mean "cache_ttl"?]`},
		"nothing near":      {map[string]any{"colour": 1}, nil, "[/configuration/colour there is no such member here]"},
		"all, in order":     {map[string]any{"zz": 1, "a/b~": 1}, nil, "[/configuration/a~1b~0 there is no such member here /configuration/zz there is no such member here]"},
		"null":              {map[string]any{"colour": nil}, nil, "[]"},
		"stored":            {map[string]any{"colour": map[string]any{"a": 1.0}}, map[string]any{"colour": map[string]any{"a": 1.0}}, "[]"},
		"stored, other now": {map[string]any{"colour": 2.0}, map[string]any{"colour": 1.0}, "[/configuration/colour there is no such member here]"},
		"nested": {
			map[string]any{"flags": map[string]any{"resources": map[string]any{"asist": true}}},
			nil,
			`[/configuration/flags/resources/asist there is no such member here; write it as one name, "flags.resources.assist"]`,
		},
		"nested, far":         {map[string]any{"flags": map[string]any{"z": map[string]any{}}}, nil, "[/configuration/flags/z there is no such member here]"},
		"a dotted typo":       {map[string]any{"flags.resource.assist": true}, nil, `[/configuration/flags.resource.assist there is no such member here; did you mean "flags.resources.assist"?]`},
		"a prefix, no object": {map[string]any{"flags": true}, nil, "[/configuration/flags there is no such member here]"},
	} {
		var got []string
		for _, d := range UnknownMembers("/configuration", c.sent, c.stored, known) {
			got = append(got, d.Pointer+" "+d.Message)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

package source

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// TestCheck checks that each error in a configuration is reported at its pointer.
func TestCheck(t *testing.T) {
	one := 1
	edited := func(edit func(c *Config, s *Credentials)) (Config, Credentials) {
		c, s := Config{URL: "https://x.example/"}, Credentials{}
		edit(&c, &s)
		return c, s
	}
	for want, edit := range map[string]func(c *Config, s *Credentials){
		"": func(c *Config, _ *Credentials) {
			c.Pagination, c.Records = &Pagination{Type: "page", First: &one}, "$.a"
		},
		"/configuration/url":             func(c *Config, _ *Credentials) { c.URL = "" },
		"/configuration/body":            func(c *Config, _ *Credentials) { c.Body = map[string]any{} },
		"/configuration/records":         func(c *Config, _ *Credentials) { c.Records = "$..a" },
		"/configuration/key":             func(c *Config, _ *Credentials) { c.Key = "$.a[*]" },
		"/configuration/fields/a~1b":     func(c *Config, _ *Credentials) { c.Fields = map[string]string{"a/b": "$.a[?(@.x)]"} },
		"/configuration/fields/a":        func(c *Config, _ *Credentials) { c.Fields = map[string]string{"a": ""} },
		"/configuration/headers/Host":    func(c *Config, _ *Credentials) { c.Headers = map[string]string{"Host": "x"} },
		"/configuration/headers/cookie":  func(c *Config, _ *Credentials) { c.Headers = map[string]string{"cookie": "x"} },
		"/configuration/headers/a b":     func(c *Config, _ *Credentials) { c.Headers = map[string]string{"a b": "x"} },
		"/configuration/headers/a":       func(c *Config, _ *Credentials) { c.Headers = map[string]string{"a": "x\r\nHost: y"} },
		"/configuration/headers":         func(c *Config, _ *Credentials) { c.Headers = map[string]string{"Aa": "x", "aA": "y"} },
		"/configuration/pagination/next": func(c *Config, _ *Credentials) { c.Pagination, c.Records = &Pagination{Type: "cursor"}, "$.a" },
		"/configuration/pagination/page_size": func(c *Config, _ *Credentials) {
			c.Pagination, c.Records = &Pagination{Type: "page", SizeParameter: "n"}, "$.a"
		},
		"/configuration/oauth":    func(_ *Config, s *Credentials) { s.OAuth = &Client{"a", "b"} },
		"/credentials":            func(_ *Config, s *Credentials) { s.Token, s.Username = "a", "b" },
		"/credentials/username":   func(_ *Config, s *Credentials) { s.Password = "b" },
		"/credentials/token":      func(_ *Config, s *Credentials) { s.Token = "a\r\nb" },
		"/credentials/headers/te": func(_ *Config, s *Credentials) { s.Headers = map[string]string{"te": "x"} },
		"/credentials/headers/X-Key": func(c *Config, s *Credentials) {
			c.Headers, s.Headers = map[string]string{"x-key": "a"}, map[string]string{"X-Key": "b"}
		},
	} {
		c, s := edited(edit)
		wrong := Check(HTTPJSON, c, s)
		switch {
		case want == "" && len(wrong) > 0:
			t.Errorf("Check of a valid configuration = %v, want no offence", wrong)
		case want != "" && (len(wrong) == 0 || wrong[0].Pointer != want):
			t.Errorf("Check = %v, want an offence at %s", wrong, want)
		}
		for _, d := range wrong {
			if strings.Contains(d.Message, "\n") || d.Message == "" {
				t.Errorf("the message at %s is %q, want one line", d.Pointer, d.Message)
			}
		}
	}
	c, s := edited(func(c *Config, _ *Credentials) { c.Pagination = &Pagination{Type: "page"} })
	if wrong := Check(HTTPJSON, c, s); len(wrong) != 1 || wrong[0].Pointer != "/configuration/records" {
		t.Errorf("Check of pages without records = %v, want an offence at /configuration/records", wrong)
	}
	c, s = edited(func(c *Config, _ *Credentials) { c.Incremental = &Incremental{Parameter: "since"} })
	if wrong := Check(HTTPJSON, c, s); len(wrong) != 1 || wrong[0].Pointer != "/configuration/key" {
		t.Errorf("Check of changes without a key = %v, want an offence at /configuration/key", wrong)
	}
}

// FuzzPath checks that no path fails on a document, or finds more values than the document has.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"$", "a", "$.a", "$['a']", `$["b c"][0].d`, "$[*].*", "$..a", "$[-1]", "$[01]", "$[", "$.a[", "$['", "$.é", "$[99999999999999999999]"} {
		f.Add(seed, `{"a":[1,{"b":2}],"b c":[{"d":[]}],"é":null}`)
	}
	f.Fuzz(func(t *testing.T, text, doc string) {
		v, err := value.Decode([]byte(doc), value.Limits{})
		if err != nil {
			return
		}
		p, err := parsePath(text)
		if err != nil {
			return
		}
		found := p.all(v)
		if len(found) > len(doc) || !p.many && len(found) > 1 {
			t.Errorf("the path %q finds %d values in %s, want no more than it has, and one without a wildcard", text, len(found), doc)
		}
		if one := p.one(v); !p.many && len(found) == 1 && !value.Identical(one, found[0]) {
			t.Errorf("the path %q: one = %s, want %s as in all", text, one.AppendJSON(nil), found[0].AppendJSON(nil))
		}
	})
}

package source

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// TestCheck: each error in a configuration is reported at its pointer.
func TestCheck(t *testing.T) {
	one := 1
	good := func(edit func(c *Config, s *Credentials)) (Config, Credentials) {
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
		c, s := good(edit)
		wrong := Check(HTTPJSON, c, s)
		switch {
		case want == "" && len(wrong) > 0:
			t.Errorf("a good configuration: %v", wrong)
		case want != "" && (len(wrong) == 0 || wrong[0].Pointer != want):
			t.Errorf("want an offence at %s, got %v", want, wrong)
		}
		for _, d := range wrong {
			if strings.Contains(d.Message, "\n") || d.Message == "" {
				t.Errorf("%s: the message is %q", want, d.Message)
			}
		}
	}
	c, s := good(func(c *Config, _ *Credentials) { c.Pagination = &Pagination{Type: "page"} })
	if wrong := Check(HTTPJSON, c, s); len(wrong) != 1 || wrong[0].Pointer != "/configuration/records" {
		t.Errorf("pages of a whole answer: %v", wrong)
	}
	c, s = good(func(c *Config, _ *Credentials) { c.Incremental = &Incremental{Parameter: "since"} })
	if wrong := Check(HTTPJSON, c, s); len(wrong) != 1 || wrong[0].Pointer != "/configuration/key" {
		t.Errorf("changes without keys: %v", wrong)
	}
}

// FuzzPath: no path fails on a document, or finds more values than the document has.
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
			t.Errorf("%q finds %d values in %s", text, len(found), doc)
		}
		if one := p.one(v); !p.many && len(found) == 1 && !value.Identical(one, found[0]) {
			t.Errorf("%q: one and all differ", text)
		}
	})
}

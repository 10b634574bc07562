package source

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

const (
	maxHeaders = 20
	maxFields  = 100
)

// plan is a checked configuration with its defaults and parsed paths.
type plan struct {
	Config
	provider                           string
	records, key, next, total, deleted path
	fields                             []mapped
}

// mapped is a field of a record: its name, and its path in the source's record.
type mapped struct {
	name string
	from path
}

// Check returns the errors in a configuration and its credentials, each with its JSON pointer. It
// does not check whether the addresses may be called: CheckTargets does.
func Check(provider string, c Config, secrets Credentials) []fault.Detail {
	p, wrong := prepare(provider, c)
	return append(wrong, checkCredentials(p, secrets)...)
}

// checker collects errors.
type checker struct{ wrong []fault.Detail }

func (k *checker) add(pointer, message string) {
	k.wrong = append(k.wrong, fault.Detail{Pointer: pointer, Message: message})
}

// path parses a path that may be empty.
func (k *checker) path(pointer, text string) path {
	if text == "" {
		return path{}
	}
	p, err := parsePath(text)
	if err != nil {
		k.add(pointer, err.Error())
	}
	return p
}

// prepare checks a configuration and fills in its defaults. The plan is usable only if there are
// no errors.
func prepare(provider string, c Config) (plan, []fault.Detail) {
	const at = "/configuration"
	k := &checker{}
	k.members(provider, c)
	c = withDefaults(provider, c)
	p := plan{provider: provider, Config: c, records: k.path(at+"/records", c.Records), key: k.path(at+"/key", c.Key)}
	if c.URL == "" {
		k.add(at+"/url", "is required")
	}
	if c.Body != nil && c.Method != "POST" {
		k.add(at+"/body", "can be set with the method POST only")
	}
	if c.Format == formatCSV && c.Pagination != nil {
		k.add(at+"/pagination", "cannot be set with the format csv")
	}
	if p.key.many {
		k.add(at+"/key", "must lead to one value")
	}
	k.headers(at+"/headers", c.Headers, false)
	if len(c.Fields) > maxFields {
		k.add(at+"/fields", "must not have more than 100 members")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Fields)) {
		if name == "" || len(name) > 200 {
			k.add(at+"/fields", "the name of a member must have 1 to 200 bytes")
		}
		p.fields = append(p.fields, mapped{name, k.path(at+"/fields/"+fault.PointerStep(name), c.Fields[name])})
		if c.Fields[name] == "" {
			k.add(at+"/fields/"+fault.PointerStep(name), "must be a JSONPath such as $.name, or the name of a member")
		}
	}
	k.pages(&p)
	k.changes(&p)
	if (provider == SQL || provider == LDAP) && c.URL != "" {
		if _, _, err := serverOf(provider, c.URL); err != nil {
			k.add(at+"/url", err.Error())
		}
	}
	k.query(c)
	k.search(c)
	return p, k.wrong
}

// pages checks the pagination and fills in its defaults, in a copy.
func (k *checker) pages(p *plan) {
	const at = "/configuration/pagination"
	if p.Pagination == nil {
		return
	}
	how := *p.Pagination
	p.Pagination = &how
	p.next = k.path(at+"/next", how.Next)
	first := 0
	switch how.Type {
	case "cursor":
		if how.Next == "" {
			k.add(at+"/next", "is required for cursor")
		}
	case "page":
		first = 1
	}
	if how.Next != "" && how.Type != "cursor" && how.Type != "link" {
		k.add(at+"/next", "can be set for cursor and link only")
	}
	p.total = k.path(at+"/total", how.Total)
	if how.Total != "" && how.Type != "page" && how.Type != "offset" {
		k.add(at+"/total", "can be set for page and offset only")
	}
	if p.total.many {
		k.add(at+"/total", "must lead to one value")
	}
	if p.next.many {
		k.add(at+"/next", "must lead to one value")
	}
	if how.First == nil {
		how.First = &first
	}
	how.Parameter = cmp.Or(how.Parameter, how.Type)
	if p.Records == "" && p.Key == "" {
		k.add("/configuration/records", "is required with pagination: it names the records that the pages consist of")
	}
	if how.SizeParameter != "" && how.PageSize == 0 {
		k.add(at+"/page_size", "is required with size_parameter")
	}
}

// changes checks the settings for incremental reads and fills in their defaults, in a copy.
func (k *checker) changes(p *plan) {
	if p.Incremental == nil {
		return
	}
	how := *p.Incremental
	p.Incremental = &how
	how.FullHours = cmp.Or(how.FullHours, 24)
	k.since(p.provider, &how)
	p.deleted = k.path("/configuration/incremental/deleted", how.Deleted)
	if p.Key == "" {
		k.add("/configuration/key", "is required with incremental: changed records replace those of the same key")
	}
}

// reserved are the header fields that gatehouse sets itself, and those that would change how the
// connection or caching works.
var reserved = []string{
	"host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect", "accept-encoding",
	"proxy-authorization", "proxy-connection", "range", "if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range",
}

// secretive are header fields whose values are secrets. They belong in the credentials, which are
// stored encrypted.
var secretive = []string{"authorization", "cookie", "x-api-key", "api-key", "x-auth-token"}

// headers checks header fields. If secret is set, they are stored as credentials and may contain
// secrets.
func (k *checker) headers(pointer string, fields map[string]string, secret bool) {
	if len(fields) > maxHeaders {
		k.add(pointer, "must not have more than 20 members")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at, lower := pointer+"/"+fault.PointerStep(name), strings.ToLower(name)
		switch {
		case !token(name) || len(name) > 100:
			k.add(at, "is not the name of a header field")
		case slices.Contains(reserved, lower):
			k.add(at, "is set by gatehouse")
		case !secret && slices.Contains(secretive, lower):
			k.add(at, "is a secret: it belongs in credentials.headers")
		case len(fields[name]) > 8000 || strings.ContainsFunc(fields[name], func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f }):
			k.add(at, "must be printable ASCII, at most 8000 characters")
		}
	}
	folded := map[string]bool{}
	for name := range fields {
		if folded[strings.ToLower(name)] {
			k.add(pointer, "names that differ only in case are one header field")
			return
		}
		folded[strings.ToLower(name)] = true
	}
}

// token reports whether a text is an HTTP token (RFC 9110, 5.6.2).
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// checkCredentials checks that there is at most one way to sign in, and that it is complete.
func checkCredentials(c plan, s Credentials) []fault.Detail {
	const at = "/credentials"
	k := &checker{}
	k.account(c.provider, s)
	ways := 0
	for _, is := range []bool{s.Token != "", s.Username != "" || s.Password != "", s.OAuth != nil} {
		if is {
			ways++
		}
	}
	k.headers(at+"/headers", s.Headers, true)
	for name := range s.Headers {
		if strings.EqualFold(name, "authorization") {
			ways++
		}
		for shown := range c.Headers {
			if strings.EqualFold(name, shown) {
				k.add(at+"/headers/"+fault.PointerStep(name), "is in configuration.headers too")
			}
		}
	}
	if ways > 1 {
		k.add(at, "must have one of token, username with password, oauth, and the header field Authorization")
	}
	if s.Password != "" && s.Username == "" {
		k.add(at+"/username", "is required with password")
	}
	if strings.Contains(s.Username, ":") && (c.provider == HTTPJSON || c.provider == SCIM) {
		k.add(at+"/username", "must not contain a colon")
	}
	if strings.ContainsFunc(s.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		k.add(at+"/token", "must be printable ASCII without spaces")
	}
	if s.OAuth != nil && c.OAuth == nil {
		k.add("/configuration/oauth", "is required with credentials.oauth")
	}
	if s.OAuth != nil && (s.OAuth.ID == "" || s.OAuth.Secret == "") {
		k.add(at+"/oauth", "must have client_id and client_secret")
	}
	return k.wrong
}

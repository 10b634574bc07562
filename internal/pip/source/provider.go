package source

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// accepted lists the members of a configuration that each provider takes besides url, key and
// fields.
var accepted = map[string][]string{
	HTTPJSON: {"method", "headers", "body", "format", "records", "pagination", "incremental", "oauth"},
	SCIM:     {"headers", "incremental", "oauth"},
	S3:       {"format", "records", "s3"},
	SQL:      {"sql", "incremental"},
	LDAP:     {"ldap", "incremental"},
	Git:      {"format", "records", "git"},
}

// members refuses members that the provider does not take, and checks for those that it requires.
func (k *checker) members(provider string, c Config) {
	for _, m := range []struct {
		name string
		sent bool
	}{
		{"method", c.Method != ""},
		{"headers", len(c.Headers) > 0},
		{"body", c.Body != nil},
		{"format", c.Format != ""},
		{"records", c.Records != ""},
		{"pagination", c.Pagination != nil},
		{"incremental", c.Incremental != nil},
		{"oauth", c.OAuth != nil},
		{"s3", c.S3 != nil},
		{"sql", c.SQL != nil},
		{"ldap", c.LDAP != nil},
		{"git", c.Git != nil},
	} {
		if m.sent && !slices.Contains(accepted[provider], m.name) {
			k.add("/configuration/"+m.name, "cannot be set with the provider "+provider)
		}
	}
	if c.Format == formatYAML && provider != Git {
		k.add("/configuration/format", "yaml cannot be set with the provider "+provider)
	}
	k.repository(provider, c)
	if formatOf(c) == formatCSV && c.Records != "" {
		k.add("/configuration/records", "cannot be set with the format csv: each line is a record")
	}
	switch {
	case provider == SQL && c.SQL == nil:
		k.add("/configuration/sql", "is required with the provider sql")
	case provider == LDAP && c.LDAP == nil:
		k.add("/configuration/ldap", "is required with the provider ldap")
	}
}

// withDefaults fills in the members that follow from the provider and the format.
func withDefaults(provider string, c Config) Config {
	c.Format = formatOf(c)
	switch {
	case provider == SCIM:
		first := 1
		c.Records = "$.Resources"
		c.Pagination = &Pagination{Type: "offset", Parameter: "startIndex", First: &first, Total: "$.totalResults", SizeParameter: "count", PageSize: 100}
		if c.Key == "" {
			c.Key = scimKey(c.URL)
		}
	case provider == SQL, provider == LDAP, c.Format == formatCSV:
		c.Records = "$"
	}
	return c
}

// scimKey returns the member that is the default key of the resources at an address: the name that
// people know, for users and groups.
func scimKey(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "id"
	}
	switch path := strings.ToLower(strings.TrimRight(u.Path, "/")); {
	case strings.HasSuffix(path, "/users"):
		return "userName"
	case strings.HasSuffix(path, "/groups"):
		return "displayName"
	}
	return "id"
}

// since checks the provider's part of the settings for incremental reads.
func (k *checker) since(provider string, how *Incremental) {
	const at = "/configuration/incremental"
	switch {
	case provider == HTTPJSON && how.Parameter == "":
		k.add(at+"/parameter", "is required")
	case (provider == SCIM || provider == SQL) && how.Parameter != "":
		k.add(at+"/parameter", "cannot be set with the provider "+provider)
	case provider == SCIM:
		how.Parameter = "filter"
	case provider == LDAP && how.Parameter == "":
		how.Parameter = "modifyTimestamp"
	case provider == LDAP && !attributeName(how.Parameter):
		k.add(at+"/parameter", "is not the name of an attribute")
	}
	if provider != HTTPJSON && how.Format != "" {
		k.add(at+"/format", "cannot be set with the provider "+provider)
	}
}

// account checks the session token, and the credentials of the providers other than http_json and
// scim: a name and a password, or a token for git.
func (k *checker) account(provider string, s Credentials) {
	const at = "/credentials"
	switch {
	case s.SessionToken == "":
	case provider != S3:
		k.add(at+"/session_token", "cannot be set with the provider "+provider)
	case s.Username == "":
		k.add(at+"/username", "is required with session_token")
	case strings.ContainsFunc(s.SessionToken, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		k.add(at+"/session_token", "must have printable ASCII characters only")
	}
	if provider == HTTPJSON || provider == SCIM {
		return
	}
	if provider == Git && s.OAuth == nil && len(s.Headers) == 0 && s.Username == "" {
		return // a token, or nothing
	}
	if s.Token != "" || s.OAuth != nil || len(s.Headers) > 0 {
		k.add(at, "must have username and password only, with the provider "+provider)
	}
	switch {
	case provider == SQL && s.Username == "":
		k.add(at+"/username", "is required with the provider sql")
	case provider != SQL && s.Username != "" && s.Password == "":
		// A directory treats a name without a password as an anonymous user (RFC 4513, 5.1.2).
		k.add(at+"/password", "is required with username")
	}
	if strings.ContainsRune(s.Username+s.Password, 0) {
		k.add(at, "must not contain the character U+0000")
	}
}

// CheckTargets checks, when a source is saved, whether its servers may be called. If one may not,
// the error is an Invalid fault, like that of outbound.Client.Check.
func CheckTargets(ctx context.Context, target *outbound.Client, provider string, c Config) error {
	const at = "/configuration/url"
	if provider == SQL || provider == LDAP {
		s, _, err := serverOf(provider, c.URL)
		if err != nil {
			return fault.Invalidf(at, "%s", err.Error())
		}
		return target.CheckServer(ctx, at, s)
	}
	if err := target.Check(ctx, at, c.URL); err != nil || c.OAuth == nil {
		return err
	}
	return target.Check(ctx, "/configuration/oauth/token_url", c.OAuth.TokenURL)
}

// Origins returns the origins that the credentials of a source are sent to, and "plain" if the
// connection to the database is not encrypted. Stored credentials are used only while these stay.
func Origins(c Config) [3]string {
	out := [3]string{outbound.Origin(c.URL)}
	if c.OAuth != nil {
		out[1] = outbound.Origin(c.OAuth.TokenURL)
	}
	if s, _, err := serverOf(SQL, c.URL); err == nil && s.Plain {
		out[2] = "plain"
	}
	return out
}

// serverOf parses the address of a database or a directory. For a database it also returns the
// name, which is the path. The messages of its errors follow the word "url".
func serverOf(provider, address string) (outbound.Server, string, error) {
	s, schemes := outbound.Server{Protocol: outbound.Database}, map[string]uint16{"postgres": 5432, "postgresql": 5432}
	if provider == LDAP {
		s.Protocol, schemes = outbound.Directory, map[string]uint16{"ldap": 389, "ldaps": 636}
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return s, "", failf("is not a URL with a host")
	}
	standard, known := schemes[u.Scheme]
	switch {
	case !known && provider == LDAP:
		return s, "", failf("must begin with ldaps:// or ldap://")
	case !known:
		return s, "", failf("must begin with postgres://")
	case u.User != nil:
		return s, "", failf("must not contain credentials: they belong in credentials")
	case u.Fragment != "" || strings.Contains(address, "#"):
		return s, "", failf("must not have a fragment")
	}
	s.Host, s.Port = u.Hostname(), standard
	if text := u.Port(); text != "" || strings.HasSuffix(u.Host, ":") {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return s, "", failf("has a port that is not a number from 1 to 65535")
		}
		s.Port = uint16(n)
	}
	name := strings.TrimPrefix(u.Path, "/")
	if provider == LDAP {
		if name != "" || u.RawQuery != "" {
			return s, "", failf("must have no path and no query: what to read stands in ldap")
		}
		return s, "", nil
	}
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return s, "", failf("must name a database, such as postgres://db.example.com/people")
	}
	s.Plain, err = plainSQL(u.RawQuery)
	return s, name, err
}

// plainSQL parses the query of the address of a database, which may set only sslmode.
func plainSQL(query string) (plain bool, err error) {
	switch query {
	case "", "sslmode=verify-full":
		return false, nil
	case "sslmode=disable":
		return true, nil
	}
	return false, failf("may have the query sslmode=verify-full (the default), or sslmode=disable for an address that the operator allows, and no other")
}

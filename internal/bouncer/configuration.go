package bouncer

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Signed is the value of configuration.signing for signed bundles.
const Signed = "signed"

var (
	hostLabel  = regexp.MustCompile(`^[a-zA-Z0-9_]([-a-zA-Z0-9_]{0,61}[a-zA-Z0-9_])?$`)
	headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")
)

// Signing reports whether the bouncer's bundles are signed.
func (b Bouncer) Signing() bool { return b.Configuration["signing"] == Signed }

// maxOffences limits the offences in one answer, because lists may be long.
const maxOffences = 100

// rule checks one known member of the configuration. It passes what is wrong with it, or with which
// element of it, to add.
type rule func(at string, v any, add func(pointer, msg string))

// whole returns the rule for a member that is valid or invalid as a whole.
func whole(wrong func(v any) string) rule {
	return func(at string, v any, add func(pointer, msg string)) { add(at, wrong(v)) }
}

// each returns the rule for a list.
func each(wrong func(v any) string) rule {
	return func(at string, v any, add func(pointer, msg string)) {
		list, ok := v.([]any)
		if !ok {
			add(at, "must be a list")
		}
		for i, e := range list {
			add(at+"/"+strconv.Itoa(i), wrong(e))
		}
	}
}

// rules returns the members of the configuration that the data plane or the bridge reads. It
// refuses everything for which the data plane would refuse a bundle, because a person reads this
// answer.
func rules() map[string]rule {
	return map[string]rule{
		"cache_enabled":       whole(boolean),
		"keep_trailing_slash": whole(boolean),
		"cache_ttl":           whole(duration),
		"max_stale":           whole(duration),
		"enforcement_mode":    whole(oneOf("shadow", "enforce")),
		"default_action":      whole(oneOf("pass_through", "deny")),
		"signing":             whole(oneOf("unsigned", Signed)),
		"headers":             each(shown),
		"discovery":           whole(oneOf("on", "off")),
		"audit":               whole(oneOf("best_effort", "required")),
		"identity":            whole(object),
	}
}

func identityRules() map[string]rule {
	return map[string]rule{
		"jwks_url":             whole(address),
		"jwks":                 whole(object),
		"public_keys":          each(text),
		"issuer":               whole(text),
		"audience":             textOrTexts,
		"leeway_seconds":       whole(seconds),
		"token_header":         whole(header),
		"pass_token":           whole(boolean),
		"user_claim":           whole(text),
		"email_claim":          whole(text),
		"roles_claim":          whole(text),
		"groups_claim":         whole(text),
		"user_header":          whole(header),
		"email_header":         whole(header),
		"groups_header":        whole(header),
		"trusted_proxies":      each(network),
		"forward_auth_headers": whole(boolean),
	}
}

// normal returns b in its stored form, and every offence in it.
func (b Bouncer) normal() (Bouncer, []fault.Detail) {
	var out []fault.Detail
	add := func(pointer, msg string) {
		if msg != "" && len(out) < maxOffences {
			out = append(out, fault.Detail{Pointer: pointer, Message: msg})
		}
	}
	if b.Name = strings.TrimSpace(b.Name); b.Name == "" {
		add("/name", "the name is required")
	}
	if b.Hostname != "" && net.ParseIP(b.Hostname) == nil && !validHost(b.Hostname) {
		add("/hostname", "not a host name or address")
	}
	if b.Port < 0 || b.Port > 65535 {
		add("/port", "a port must be from 0 to 65535")
	}
	add("/target_app", hostPort(b.TargetApp))
	b.ResourceIDs = slices.Clone(b.ResourceIDs)
	slices.Sort(b.ResourceIDs)
	b.ResourceIDs = slices.Compact(b.ResourceIDs)
	if b.ResourceIDs == nil {
		b.ResourceIDs = []int64{}
	}
	if b.Configuration == nil {
		b.Configuration = map[string]any{}
	}
	check("/configuration", b.Configuration, rules(), add)
	if identity, ok := b.Configuration["identity"].(map[string]any); ok {
		check("/configuration/identity", identity, identityRules(), add)
		if identity["jwks_url"] != nil || identity["jwks"] != nil || identity["public_keys"] != nil {
			for _, needed := range []string{"issuer", "audience"} {
				if v := identity[needed]; v == nil || v == "" {
					add("/configuration/identity/"+needed, "with keys, an issuer and an audience are required")
				}
			}
		}
	}
	return b, out
}

func check(at string, members map[string]any, known map[string]rule, add func(pointer, msg string)) {
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if v, sent := members[name]; sent {
			known[name](at+"/"+name, v, add)
		}
	}
}

// unknownMembers returns the unknown members of the configuration and of its identity, except those
// that stored has with the same value.
func unknownMembers(next, stored map[string]any) []fault.Detail {
	identity, _ := next["identity"].(map[string]any)
	storedIdentity, _ := stored["identity"].(map[string]any)
	out := fault.UnknownMembers("/configuration", next, stored, slices.Collect(maps.Keys(rules())))
	out = append(out, fault.UnknownMembers("/configuration/identity", identity, storedIdentity, slices.Collect(maps.Keys(identityRules())))...)
	return out[:min(len(out), maxOffences)]
}

func boolean(v any) string {
	if _, ok := v.(bool); !ok {
		return "must be true or false"
	}
	return ""
}

func text(v any) string {
	if s, ok := v.(string); !ok || s == "" {
		return "must be a text"
	}
	return ""
}

func object(v any) string {
	if _, ok := v.(map[string]any); !ok {
		return "must be an object"
	}
	return ""
}

func textOrTexts(at string, v any, add func(pointer, msg string)) {
	if _, ok := v.([]any); ok {
		each(text)(at, v, add)
	} else if text(v) != "" {
		add(at, "must be a string or a list of strings")
	}
}

func duration(v any) string {
	s, ok := v.(string)
	if !ok {
		return `must be a duration such as "30s"`
	}
	if d, err := time.ParseDuration(s); err != nil || d < 0 {
		return `must be a duration such as "30s"`
	}
	return ""
}

func seconds(v any) string {
	if n, ok := v.(float64); !ok || n != float64(int(n)) || n < 0 || n > 60 {
		return "must be a whole number from 0 to 60"
	}
	return ""
}

func oneOf(values ...string) func(v any) string {
	return func(v any) string {
		if s, ok := v.(string); !ok || !slices.Contains(values, s) {
			return "must be one of " + strings.Join(values, ", ")
		}
		return ""
	}
}

func header(v any) string {
	if s, ok := v.(string); !ok || !headerName.MatchString(s) {
		return "must be the name of a header"
	}
	return ""
}

// shown returns the name of a header that controls may see, and that is therefore recorded: none
// that carries credentials.
func shown(v any) string {
	if msg := header(v); msg != "" {
		return msg
	}
	s, _ := v.(string)
	if slices.Contains([]string{"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key", "api-key", "x-goog-api-key"}, strings.ToLower(s)) {
		return s + " carries credentials and is never shown to controls"
	}
	return ""
}

func address(v any) string {
	s, _ := v.(string)
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return "must be an http or https address without user and password"
	}
	return ""
}

func network(v any) string {
	s, _ := v.(string)
	if _, err := netip.ParseAddr(s); err == nil {
		return ""
	}
	if _, err := netip.ParsePrefix(s); err != nil {
		return "must be an address or a CIDR"
	}
	return ""
}

// hostPort returns what is wrong with the application's address, or "".
func hostPort(s string) string {
	if s == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "must be host:port"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "must be host:port"
	}
	if net.ParseIP(host) == nil && !validHost(host) {
		return "must be host:port"
	}
	return ""
}

func validHost(h string) bool {
	if h == "" || len(h) > 253 {
		return false
	}
	for label := range strings.SplitSeq(h, ".") {
		if !hostLabel.MatchString(label) {
			return false
		}
	}
	return true
}

// changedMembers lists the members that differ between two configurations.
func changedMembers(a, b map[string]any) []string {
	out := []string{}
	for _, m := range []map[string]any{a, b} {
		for name := range m {
			if !reflect.DeepEqual(a[name], b[name]) && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

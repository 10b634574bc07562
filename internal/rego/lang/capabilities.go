package lang

import (
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// offered is the allow-list of built-ins. A built-in that OPA adds later is not offered until
// somebody has reviewed it. Operators are listed under their function names.
const offered = `
eq equal neq lt lte gt gte assign internal.member_2 internal.member_3 internal.print internal.template_string
plus minus mul div rem round ceil floor abs numbers.range numbers.range_step
bits.and bits.lsh bits.negate bits.or bits.rsh bits.xor
and or intersection union count sum product max min sort
array.concat array.flatten array.reverse array.slice
object.filter object.get object.keys object.remove object.subset object.union object.union_n
concat contains endswith format_int indexof indexof_n lower replace split sprintf startswith
strings.any_prefix_match strings.any_suffix_match strings.count strings.replace_n strings.reverse strings.split_n
substring trim trim_left trim_prefix trim_right trim_space trim_suffix upper
regex.find_all_string_submatch_n regex.find_n regex.globs_match regex.is_valid regex.match regex.replace regex.split regex.template_match
glob.match glob.quote_meta
is_array is_boolean is_null is_number is_object is_set is_string type_name to_number
base64.decode base64.encode base64.is_valid base64url.decode base64url.encode base64url.encode_no_pad hex.decode hex.encode
json.filter json.is_valid json.marshal json.marshal_with_options json.patch json.remove json.unmarshal
yaml.is_valid yaml.marshal yaml.unmarshal uri.is_valid uri.parse
urlquery.decode urlquery.decode_object urlquery.encode urlquery.encode_object
crypto.hmac.equal crypto.hmac.md5 crypto.hmac.sha1 crypto.hmac.sha256 crypto.hmac.sha512 crypto.md5 crypto.sha1 crypto.sha256
io.jwt.decode io.jwt.decode_verify
io.jwt.verify_eddsa io.jwt.verify_es256 io.jwt.verify_es384 io.jwt.verify_es512 io.jwt.verify_hs256 io.jwt.verify_hs384
io.jwt.verify_hs512 io.jwt.verify_ps256 io.jwt.verify_ps384 io.jwt.verify_ps512 io.jwt.verify_rs256 io.jwt.verify_rs384 io.jwt.verify_rs512
net.cidr_contains net.cidr_contains_matches net.cidr_expand net.cidr_intersects net.cidr_is_valid net.cidr_merge
time.add_date time.clock time.date time.diff time.format time.now_ns time.parse_duration_ns time.parse_ns time.parse_rfc3339_ns time.weekday
graph.reachable graph.reachable_paths walk
semver.compare semver.is_valid units.parse units.parse_bytes uuid.parse uuid.rfc4122 rand.intn
print trace rego.metadata.chain rego.metadata.rule
`

// refusals says why a built-in is not offered, by a prefix of its name.
var refusals = []struct{ prefix, why string }{
	{"http.send", "a control cannot use the network; provide the data with a PIP connection (data.pip)"},
	{"net.lookup_ip_addr", "a control cannot use name servers"},
	{"opa.runtime", "it reads the host's environment"},
	{"rego.parse_module", "a control cannot read policy text"},
	{"providers.aws", "it signs requests to other services"},
	{"crypto.parse_private_keys", "a control must not contain keys"},
	{"crypto.x509", "certificates are checked where the TLS connection ends, not in a control"},
	{"io.jwt.encode_sign", "a control does not issue tokens"},
	{"json.match_schema", "schemas can refer to remote documents and their check cannot be bounded"},
	{"json.verify_schema", "schemas can refer to remote documents and their check cannot be bounded"},
	{"graphql.", "its work cannot be bounded"},
	{"strings.render_template", "templates can loop and cannot be bounded; use sprintf"},
	{"net.cidr_overlap", "it is deprecated; use net.cidr_contains"},
	{"internal.test_case", "it is for OPA's own test runner"},
}

// Capabilities returns the part of OPA's capabilities that is offered, without network access for
// schema references. It is computed once, and must not be changed.
var Capabilities = sync.OnceValue(func() *ast.Capabilities {
	all := ast.CapabilitiesForThisVersion()
	names := offeredNames()
	c := &ast.Capabilities{
		// No future keywords: a control must mean the same in other versions of OPA.
		Features: all.Features,
		AllowNet: []string{},
	}
	for _, b := range all.Builtins {
		if names[b.Name] {
			c.Builtins = append(c.Builtins, b)
		}
	}
	return c
})

func offeredNames() map[string]bool {
	names := map[string]bool{}
	for name := range strings.FieldsSeq(offered) {
		names[name] = true
	}
	return names
}

// forbidden maps each built-in of OPA that is not offered to the reason.
var forbidden = sync.OnceValue(func() map[string]string {
	names := offeredNames()
	out := map[string]string{}
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		if names[b.Name] {
			continue
		}
		out[b.Name] = "it is not in the list of built-ins for controls"
		for _, r := range refusals {
			if strings.HasPrefix(b.Name, r.prefix) {
				out[b.Name] = r.why
			}
		}
	}
	return out
})

// Builtins returns the names of the built-ins that controls may call, sorted.
func Builtins() []string {
	var out []string
	for _, b := range Capabilities().Builtins {
		out = append(out, b.Name)
	}
	slices.Sort(out)
	return out
}

// The results of clockBuiltins depend on the time of the evaluation, those of randomBuiltins are
// random. Decisions of a control that calls either are not cached.
var (
	clockBuiltins  = []string{"time.now_ns", "io.jwt.decode_verify"}
	randomBuiltins = []string{"rand.intn", "uuid.rfc4122"}
)

// findForbidden reports every place where a built-in that is not offered is called, or named in a
// `with`. The compiler refuses them too, because they are not in the capabilities, but it does not
// say why and does not find all of them.
func findForbidden(mod *ast.Module) []Issue {
	own := TopNames(mod)
	var out []Issue
	report := func(t *ast.Term) {
		name := BuiltinName(t)
		why, bad := forbidden()[name]
		if !bad || own[strings.SplitN(name, ".", 2)[0]] {
			return
		}
		is := Issue{Message: "built-in " + name + " is not offered: " + why, Severity: SeverityError, Rule: "forbidden_builtin"}
		if t.Location != nil {
			is.Line, is.Column = t.Location.Row, t.Location.Col
		}
		out = append(out, is)
	}
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Expr:
			if terms, ok := x.Terms.([]*ast.Term); ok && len(terms) > 0 {
				report(terms[0])
			}
			for _, w := range x.With {
				report(w.Target)
				report(w.Value)
			}
		case ast.Call:
			if len(x) > 0 {
				report(x[0])
			}
		}
		return false
	}).Walk(mod)
	return out
}

// TopNames returns the names of a module's imports and rules. They hide built-ins.
func TopNames(mod *ast.Module) map[string]bool {
	own := map[string]bool{}
	for _, imp := range mod.Imports {
		own[string(imp.Name())] = true
	}
	for _, r := range mod.Rules {
		if ref := r.Head.Ref(); len(ref) > 0 {
			if v, ok := ref[0].Value.(ast.Var); ok {
				own[string(v)] = true
			}
		}
	}
	return own
}

// BuiltinName returns the dotted name in a term, which may be the operator of a call; "" if the
// term is not such a name.
func BuiltinName(t *ast.Term) string {
	switch v := t.Value.(type) {
	case ast.Var:
		return string(v)
	case ast.Ref:
		for i, p := range v {
			if _, ok := p.Value.(ast.String); i > 0 && !ok {
				return ""
			}
		}
		return v.String()
	}
	return ""
}

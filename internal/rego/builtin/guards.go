package builtin

import (
	"net/netip"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// callable names the built-ins for which we may call OPA's implementation. They are pure, and
// the size of the operands (or a guard) bounds their work. Built-ins that are not listed are not
// supported.
var callable = names(`
	abs round ceil floor plus minus mul div rem and or to_number format_int
	count sum product max min sort all any
	bits.and bits.or bits.xor bits.negate bits.lsh bits.rsh
	array.concat array.slice array.reverse array.flatten
	intersection union
	concat contains endswith startswith indexof indexof_n lower upper replace strings.replace_n
	split sprintf substring trim trim_left trim_right trim_prefix trim_suffix trim_space
	strings.reverse strings.any_prefix_match strings.any_suffix_match strings.count strings.split_n
	internal.template_string
	regex.match regex.is_valid regex.split regex.template_match regex.replace regex.find_all_string_submatch_n
	regex.find_n regex.globs_match
	glob.match glob.quote_meta
	graph.reachable graph.reachable_paths
	net.cidr_contains net.cidr_contains_matches net.cidr_intersects net.cidr_is_valid net.cidr_merge net.cidr_expand
	time.parse_rfc3339_ns time.parse_ns time.parse_duration_ns time.format time.date time.clock time.weekday time.add_date time.diff
	time.now_ns
	object.get object.keys object.union object.union_n object.remove object.filter object.subset
	json.filter json.remove json.marshal json.unmarshal json.is_valid json.patch
	yaml.marshal yaml.unmarshal yaml.is_valid
	base64.encode base64.decode base64.is_valid base64url.encode base64url.encode_no_pad base64url.decode
	hex.encode hex.decode urlquery.encode urlquery.decode urlquery.encode_object urlquery.decode_object
	units.parse units.parse_bytes semver.compare semver.is_valid
	crypto.md5 crypto.sha1 crypto.sha256 crypto.hmac.md5 crypto.hmac.sha1 crypto.hmac.sha256 crypto.hmac.sha512 crypto.hmac.equal
	io.jwt.decode io.jwt.decode_verify io.jwt.verify_eddsa io.jwt.verify_es256 io.jwt.verify_es384 io.jwt.verify_es512
	io.jwt.verify_hs256 io.jwt.verify_hs384 io.jwt.verify_hs512 io.jwt.verify_ps256 io.jwt.verify_ps384 io.jwt.verify_ps512
	io.jwt.verify_rs256 io.jwt.verify_rs384 io.jwt.verify_rs512
	uuid.parse uuid.rfc4122 rand.intn trace uri.parse uri.is_valid json.marshal_with_options
	numbers.range numbers.range_step
	is_null is_boolean is_number is_string is_array is_object is_set type_name
	cast_array cast_set cast_string cast_boolean cast_null cast_object set_diff
	eq equal neq lt lte gt gte internal.member_2 internal.member_3
`)

func names(list string) map[string]bool {
	out := map[string]bool{}
	for n := range strings.FieldsSeq(list) {
		out[n] = true
	}
	return out
}

// guards estimate the cost of calls whose cost may exceed the size of their operands.
var guards = map[string]func(args []value.Value) int{
	"replace":           replaceCost,
	"strings.replace_n": replaceAllCost,
	"sprintf":           sprintfCost,
	"indexof":           searchCost,
	"indexof_n":         searchCost,
	"split":             func(a []value.Value) int { return 4 * length(a[0]) },
	"mul":               func(a []value.Value) int { return digits(a[0]) * digits(a[1]) },
	"glob.match":        globCost,
	"regex.globs_match": func(a []value.Value) int { return refuseUnless(length(a[0])+length(a[1]) <= MaxGlobSet) },
	"net.cidr_contains_matches": func(a []value.Value) int {
		return product(max(1, a[0].Len()), max(1, a[1].Len()), 64)
	},
	"net.cidr_expand": expandCost,
	"net.cidr_merge":  func(a []value.Value) int { return product(a[0].Len(), 64, 1+a[0].Len()/512) },
	"json.patch":      func(a []value.Value) int { return product(int(a[0].Size()>>3), 1+a[1].Len()) >> 3 },
	"json.filter":     func(a []value.Value) int { return product(int(a[0].Size()>>3), 1+int(a[1].Size()>>3)) >> 6 },
	"json.remove":     func(a []value.Value) int { return product(int(a[0].Size()>>3), 1+int(a[1].Size()>>3)) >> 6 },
	"json.unmarshal":  func(a []value.Value) int { return 4 * length(a[0]) },
	"yaml.unmarshal":  func(a []value.Value) int { return 32 * length(a[0]) },
	"yaml.is_valid":   func(a []value.Value) int { return 32 * length(a[0]) },
	"yaml.marshal":    func(a []value.Value) int { return 8 * int(a[0].Size()) },

	"strings.reverse":       func(a []value.Value) int { return 4 * length(a[0]) },
	"io.jwt.decode":         tokenCost,
	"io.jwt.decode_verify":  verifyCost,
	"io.jwt.verify_eddsa":   verifyCost,
	"io.jwt.verify_es256":   verifyCost,
	"io.jwt.verify_es384":   verifyCost,
	"io.jwt.verify_es512":   verifyCost,
	"io.jwt.verify_hs256":   verifyCost,
	"io.jwt.verify_hs384":   verifyCost,
	"io.jwt.verify_hs512":   verifyCost,
	"io.jwt.verify_ps256":   verifyCost,
	"io.jwt.verify_ps384":   verifyCost,
	"io.jwt.verify_ps512":   verifyCost,
	"io.jwt.verify_rs256":   verifyCost,
	"io.jwt.verify_rs384":   verifyCost,
	"io.jwt.verify_rs512":   verifyCost,
	"regex.template_match":  func(a []value.Value) int { return refuseUnless(length(a[0]) <= maxStates) },
	"time.parse_rfc3339_ns": func(a []value.Value) int { return 4 * length(a[0]) },
}

const (
	maxToken = 64 << 10 // bytes of a token
	maxKey   = 8 << 10  // bytes of a key or certificate

	// MaxGlobSet limits the patterns of regex.globs_match, in bytes.
	MaxGlobSet = 256
	// MaxHostBits limits the networks that net.cidr_expand lists, by their host bits.
	MaxHostBits = 16
)

// refuseUnless returns 0 if ok, and otherwise a cost that exceeds every budget.
func refuseUnless(ok bool) int {
	if ok {
		return 0
	}
	return MaxOperands + 1
}

// product multiplies sizes, up to a value far beyond any limit.
func product(ns ...int) int {
	out := 1
	for _, n := range ns {
		if out *= n; out > 1<<40 {
			return 1 << 40
		}
	}
	return out
}

func tokenCost(a []value.Value) int { return refuseUnless(length(a[0]) <= maxToken) + 4*length(a[0]) }

// verifyCost is the cost of verifying a token: some tenths of a millisecond of arithmetic, more with
// a long key.
func verifyCost(a []value.Value) int {
	return tokenCost(a) + refuseUnless(int(a[1].Size()) <= maxKey) + 16*int(a[1].Size()) + 8<<10
}

func expandCost(a []value.Value) int {
	p, err := netip.ParsePrefix(text(a[0]))
	if err != nil {
		return 0
	}
	host := p.Addr().BitLen() - p.Bits()
	return refuseUnless(host <= MaxHostBits) + 24<<min(host, MaxHostBits)
}

// searchCost is the cost of a search in text that may not be UTF-8: OPA may compare the
// substring in full at each position.
func searchCost(a []value.Value) int {
	return 8*length(a[0]) + product(length(a[0]), length(a[1]))>>4
}

// globCost is the cost of a glob: the matcher may try each * at each position.
func globCost(a []value.Value) int {
	p := text(a[0])
	stars := 1 + strings.Count(p, "*") + strings.Count(p, "{") + strings.Count(p, ",")
	return product(len(p)+length(a[2])+16, stars, stars)/4 + refuseUnless(len(p) <= maxPatternText)
}

// maxPatternText limits the length of a glob, in bytes.
const maxPatternText = 4 << 10

func length(v value.Value) int {
	if v.Kind() != value.StringKind {
		return 0
	}
	return v.Len()
}

func text(v value.Value) string {
	s, _ := v.Str()
	return s
}

func digits(v value.Value) int { return len(v.NumberText()) }

func replaceCost(a []value.Value) int {
	n := strings.Count(text(a[0]), text(a[1]))
	return n * length(a[2])
}

// maxReplacements limits the number of texts that strings.replace_n replaces.
const maxReplacements = 1000

func replaceAllCost(a []value.Value) int {
	s, n, longest := text(a[1]), 0, 0
	if a[0].Kind() != value.ObjectKind || a[0].Len() > maxReplacements {
		return refuseUnless(a[0].Kind() != value.ObjectKind)
	}
	for i := range a[0].Len() {
		p := a[0].Pair(i)
		n += strings.Count(s, text(p.K)) * length(p.V)
		longest = max(longest, length(p.K))
	}
	// The longest key may be compared at each position.
	return n + product(len(s), longest)>>6
}

// widestStar returns the largest width that a * in sprintf can take from the operands. Package fmt
// refuses widths over a million.
func widestStar(list value.Value) (n int) {
	for _, e := range list.Elems() {
		if i, ok := e.Int64(); ok && i >= -maxWidth && i <= maxWidth {
			n = max(n, int(i), -int(i))
		}
	}
	return n
}

const maxWidth = 1_000_000

// sprintfCost bounds widths and precisions: package fmt pads each verb with up to a million
// characters.
func sprintfCost(a []value.Value) int {
	f, n := text(a[0]), 0
	each := int(a[1].Size()) / max(1, a[1].Len())
	if strings.Contains(f, "[") { // a verb may select its operand, and all may select the longest
		each = int(a[1].Size())
	}
	for i := 0; i < len(f); i++ {
		if f[i] != '%' {
			continue
		}
		width := 0
		for i++; i < len(f) && strings.IndexByte("+-# 0123456789.*[]", f[i]) >= 0; i++ {
			if f[i] == '*' {
				n += widestStar(a[1])
			}
			if d := f[i] - '0'; d <= 9 {
				width = min(width*10+int(d), MaxOperands)
			}
		}
		if n += width; n > MaxOperands {
			return n
		}
		n += each
	}
	return n
}

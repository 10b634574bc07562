package native

import (
	"math"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// bridged names the built-ins for which OPA's implementation may be called:
// pure, without access to anything outside, and with work that is bounded by
// the size of the operands (or by a guard). What is not here is left to topdown.
var bridged = names(`
	abs round ceil floor plus minus mul div rem and or to_number format_int
	count sum product max min sort all any
	bits.and bits.or bits.xor bits.negate
	array.concat array.slice array.reverse array.flatten
	intersection union
	concat contains endswith startswith indexof indexof_n lower upper replace strings.replace_n
	split sprintf substring trim trim_left trim_right trim_prefix trim_suffix trim_space
	strings.reverse strings.any_prefix_match strings.any_suffix_match strings.count strings.split_n
	internal.template_string
	regex.match regex.is_valid regex.split regex.template_match regex.replace regex.find_all_string_submatch_n
	glob.match glob.quote_meta
	net.cidr_contains net.cidr_contains_matches net.cidr_intersects net.cidr_is_valid net.cidr_merge
	time.parse_rfc3339_ns time.parse_ns time.parse_duration_ns time.format time.date time.clock time.weekday time.add_date time.diff
	object.get object.keys object.union object.union_n object.remove object.filter object.subset
	json.filter json.remove json.marshal json.unmarshal json.is_valid
	base64.encode base64.decode base64.is_valid base64url.encode base64url.encode_no_pad base64url.decode
	hex.encode hex.decode urlquery.encode urlquery.decode urlquery.encode_object urlquery.decode_object
	units.parse units.parse_bytes semver.compare semver.is_valid
	crypto.md5 crypto.sha1 crypto.sha256 crypto.hmac.md5 crypto.hmac.sha1 crypto.hmac.sha256 crypto.hmac.sha512 crypto.hmac.equal
	io.jwt.decode uuid.parse uri.parse uri.is_valid json.marshal_with_options
	numbers.range numbers.range_step
	is_null is_boolean is_number is_string is_array is_object is_set type_name
	cast_array cast_set cast_string cast_boolean cast_null cast_object set_diff
	internal.member_2 internal.member_3
`)

func names(list string) map[string]bool {
	out := map[string]bool{}
	for _, n := range strings.Fields(list) {
		out[n] = true
	}
	return out
}

// guards estimate the size of a result that may exceed that of the operands.
var guards = map[string]func(args []value.Value) int{
	"replace":           replaced,
	"strings.replace_n": replacedAll,
	"regex.replace": func(a []value.Value) int {
		return max(matched(a[1], a[0]), length(a[0])*(length(a[2])+1)*(1+strings.Count(text(a[2]), "$")))
	},
	"sprintf":     formatted,
	"indexof_n":   func(a []value.Value) int { return 8 * length(a[0]) },
	"split":       func(a []value.Value) int { return 4 * length(a[0]) },
	"regex.split": func(a []value.Value) int { return max(matched(a[0], a[1]), 32*length(a[1])) },
	"regex.find_all_string_submatch_n": func(a []value.Value) int {
		return max(matched(a[0], a[1]), 64*length(a[1])*(1+strings.Count(text(a[0]), "(")))
	},
	"mul":                  func(a []value.Value) int { return digits(a[0]) * digits(a[1]) },
	"product":              func(a []value.Value) int { return int(a[0].Size()) * 8 },
	"numbers.range":        ranged,
	"numbers.range_step":   ranged,
	"glob.match":           func(a []value.Value) int { return length(a[0]) * 64 },
	"regex.match":          func(a []value.Value) int { return max(matched(a[0], a[1]), length(a[0])*64) },
	"regex.is_valid":       func(a []value.Value) int { return length(a[0]) * 64 },
	"regex.template_match": func(a []value.Value) int { return max(matched(a[0], a[1]), length(a[0])*64) },
}

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

// maxRegexWork bounds text times pattern: some hundred milliseconds.
const maxRegexWork = 32 << 20

// patternStates is about how many states a pattern compiles to: counted
// repetition makes up to a thousand of a few characters.
func patternStates(p string) int {
	n := len(p) + 8
	if strings.Contains(p, "{") {
		n += 1000
	}
	return n
}

// matched is the cost of a match: maxBridged at maxRegexWork.
func matched(pattern, subject value.Value) int {
	return int(int64(length(subject)) * int64(patternStates(text(pattern))) >> 4)
}

func ranged(a []value.Value) int {
	x, ok1 := a[0].Float64()
	y, ok2 := a[1].Float64()
	if !ok1 || !ok2 {
		return 0 // an error without any work
	}
	if n := math.Abs(x-y) * 8; n <= maxBridged {
		return int(n)
	}
	return maxBridged + 1 // or not a number: both are infinite
}

func digits(v value.Value) int { return len(v.NumberText()) }

func replaced(a []value.Value) int {
	n := strings.Count(text(a[0]), text(a[1]))
	return n * length(a[2])
}

func replacedAll(a []value.Value) int {
	s, n := text(a[1]), 0
	for i := range a[0].Len() {
		if a[0].Kind() == value.ObjectKind {
			p := a[0].Pair(i)
			n += strings.Count(s, text(p.K)) * length(p.V)
		}
	}
	return n
}

// formatted bounds widths and precisions: fmt pads up to a million characters for each verb.
func formatted(a []value.Value) int {
	f, n := text(a[0]), 0
	for i := 0; i < len(f); i++ {
		if f[i] != '%' {
			continue
		}
		width := 0
		for i++; i < len(f) && strings.IndexByte("+-# 0123456789.*[]", f[i]) >= 0; i++ {
			if f[i] == '*' {
				return maxBridged + 1
			}
			if d := f[i] - '0'; d <= 9 {
				width = min(width*10+int(d), maxBridged)
			}
		}
		if n += width; n > maxBridged {
			return n
		}
		n += int(a[1].Size()) / max(1, a[1].Len())
	}
	return n
}

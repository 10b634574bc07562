package suite

import (
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// The bounds on single calls.
const (
	maxString     = 1 << 20 // bytes of one string argument or result
	maxTree       = 8 << 20 // bytes of a document that is serialised or copied
	maxElems      = 100_000 // elements of an array or set that is made
	maxPairs      = 1 << 20 // product of two sizes, if a built-in compares each element with each
	maxDigits     = 20_000  // digits of a number
	maxExponent   = 1_000
	maxShift      = 1 << 16
	maxRegexWork  = 32 << 20  // bytes of text times size of the pattern
	maxSearched   = 256 << 10 // bytes of a text whose matches are all listed
	maxGlobSet    = 256       // bytes of a pattern in regex.globs_match
	maxKey        = 8 << 10   // bytes of a key or certificate
	maxToken      = 64 << 10
	maxPaths      = 10_000 // paths or visits of graph.reachable_paths
	maxExpanded   = 1 << 16
	termBytes     = 64 // approximate size of a term in memory
	maxFormatPads = 1 << 20
)

// bounds returns the bounds by the name of the built-in.
func bounds() map[string]bound {
	out := map[string]bound{
		"graph.reachable_paths": boundPaths,
		"bits.lsh":              boundShift,
		"bits.rsh":              boundShift,
		"json.patch":            boundPatch,
		"numbers.range":         boundRange,
		"numbers.range_step":    boundRange,
		"split":                 boundSplit,
		"strings.split_n":       boundSplit,
		"concat":                boundConcat,
		"sprintf":               boundSprintf,
		"replace":               boundReplace,
		"strings.replace_n":     boundReplaceN,
		"array.concat":          boundElems,
		"product":               boundProduct,
		"net.cidr_expand":       boundExpand,
		"regex.replace":         boundRegexReplace,
		"regex.globs_match":     boundGlobSets,
	}
	add := func(b bound, names ...string) {
		for _, n := range names {
			out[n] = b
		}
	}
	add(boundNumbers, "plus", "minus", "mul", "div", "rem", "round", "ceil", "floor", "abs", "format_int",
		"bits.and", "bits.or", "bits.xor", "bits.negate", "sum", "to_number")
	add(boundTree, "json.marshal", "json.marshal_with_options", "yaml.marshal", "urlquery.encode_object",
		"internal.template_string", "array.flatten", "graph.reachable", "object.union", "object.union_n", "union", "intersection")
	add(boundStrings, "hex.encode", "base64.encode", "base64url.encode", "base64url.encode_no_pad", "urlquery.encode",
		"json.unmarshal", "json.is_valid", "yaml.unmarshal", "yaml.is_valid", "upper", "lower", "indexof_n", "glob.quote_meta",
		"glob.match", "urlquery.decode_object")
	add(boundPairs, "strings.any_prefix_match", "strings.any_suffix_match", "net.cidr_contains_matches",
		"object.subset", "json.filter", "json.remove", "net.cidr_merge")
	add(boundRegex(0, 1), "regex.match", "regex.template_match")
	add(boundFinds, "regex.find_n", "regex.find_all_string_submatch_n", "regex.split")
	add(boundToken, "io.jwt.decode", "io.jwt.decode_verify", "io.jwt.verify_eddsa", "io.jwt.verify_es256", "io.jwt.verify_es384",
		"io.jwt.verify_es512", "io.jwt.verify_hs256", "io.jwt.verify_hs384", "io.jwt.verify_hs512", "io.jwt.verify_ps256",
		"io.jwt.verify_ps384", "io.jwt.verify_ps512", "io.jwt.verify_rs256", "io.jwt.verify_rs384", "io.jwt.verify_rs512")
	return out
}

// termSize returns about how many bytes a serialised term takes, with shared parts counted each
// time. It stops counting beyond limit.
func termSize(t *ast.Term, limit int64) int64 {
	var n int64
	var walk func(v ast.Value) bool
	each := func(t *ast.Term) bool { return !walk(t.Value) }
	walk = func(v ast.Value) bool {
		n += 8
		switch v := v.(type) {
		case ast.String:
			n += int64(len(v))
		case ast.Number:
			n += int64(len(v))
		case *ast.Array:
			v.Until(each)
		case ast.Set:
			v.Until(each)
		case ast.Object:
			v.Until(func(k, x *ast.Term) bool { return each(k) || each(x) })
		}
		return n <= limit
	}
	walk(t.Value)
	return n
}

func str(t *ast.Term) string {
	s, _ := t.Value.(ast.String)
	return string(s)
}

// size returns the number of elements of a collection, or the length of a string.
func size(t *ast.Term) int64 {
	switch v := t.Value.(type) {
	case *ast.Array:
		return int64(v.Len())
	case ast.Set:
		return int64(v.Len())
	case ast.Object:
		return int64(v.Len())
	case ast.String:
		return int64(len(v))
	}
	return 1
}

func integer(t *ast.Term) (int, bool) {
	n, ok := t.Value.(ast.Number)
	if !ok {
		return 0, false
	}
	return n.Int()
}

// timesWithin returns the cost n times factor; n above limit is refused.
func timesWithin(n, limit, factor int64) int64 {
	if n > limit {
		return refused
	}
	return n * factor
}

// stepCost returns the cost of n steps that allocate little: an eighth of a byte each.
func stepCost(n, limit int64) int64 {
	if n > limit {
		return refused
	}
	return n / 8
}

func boundStrings(_ *allowance, args []*ast.Term) int64 {
	var n int64
	for _, a := range args {
		n += size(a)
	}
	return timesWithin(n, maxString, 3)
}

func boundTree(_ *allowance, args []*ast.Term) int64 {
	var n int64
	for _, a := range args {
		if n += termSize(a, maxTree); n > maxTree {
			return refused
		}
	}
	return 2 * n
}

func boundElems(_ *allowance, args []*ast.Term) int64 {
	var n int64
	for _, a := range args {
		n += size(a)
	}
	return timesWithin(n, maxElems, 8)
}

func boundPairs(_ *allowance, args []*ast.Term) int64 {
	n := int64(1)
	for _, a := range args {
		w := termSize(a, maxTree)
		if w > maxTree {
			return refused
		}
		n = satMul(n, max(w/8, 1))
	}
	return stepCost(n, maxPairs*16)
}

// satMul multiplies without overflow.
func satMul(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > 1<<62 {
		return 1 << 62
	}
	return int64(lo)
}

// boundNumber refuses numbers with which arithmetic takes long: those with many digits, or with an
// exponent that stands for many digits.
func boundNumber(t *ast.Term) int64 {
	n, ok := t.Value.(ast.Number)
	if !ok || len(n) <= 16 && !strings.ContainsAny(string(n), "eE") {
		return 0
	}
	if len(n) > maxDigits {
		return refused
	}
	if i := strings.IndexAny(string(n), "eE"); i >= 0 {
		if e, err := strconv.Atoi(string(n[i+1:])); err != nil || e > maxExponent || e < -maxExponent {
			return refused
		}
	}
	return int64(len(n))
}

func boundNumbers(_ *allowance, args []*ast.Term) int64 {
	var n int64
	for _, a := range args {
		c := boundNumber(a)
		if c < 0 {
			return refused
		}
		n += c
		if set, ok := a.Value.(ast.Set); ok {
			n += int64(set.Len()) * 8
		}
		if s, ok := a.Value.(ast.String); ok && len(s) > maxDigits {
			return refused
		}
	}
	return n
}

func boundProduct(_ *allowance, args []*ast.Term) int64 {
	if n := termSize(args[0], maxDigits*2); n > maxDigits*2 {
		return refused
	}
	return maxDigits
}

func boundShift(_ *allowance, args []*ast.Term) int64 {
	by, ok := integer(args[1])
	if !ok && boundNumber(args[1]) >= 0 {
		_, isNum := args[1].Value.(ast.Number)
		if !isNum || strings.HasPrefix(args[1].Value.String(), "-") {
			return 0 // the built-in reports the error
		}
		return refused
	}
	if by > maxShift || boundNumber(args[0]) < 0 || boundNumber(args[1]) < 0 {
		return refused
	}
	return int64(by/8) + 64
}

func boundRange(_ *allowance, args []*ast.Term) int64 {
	a, ok1 := integer(args[0])
	b, ok2 := integer(args[1])
	if !ok1 || !ok2 {
		for _, t := range args {
			if n, ok := t.Value.(ast.Number); ok && len(n) > 15 {
				return refused
			}
		}
		return 0
	}
	step := 1
	if len(args) > 2 {
		if s, ok := integer(args[2]); ok && s > 0 {
			step = s
		}
	}
	n := int64(max(a, b)) - int64(min(a, b))
	if n < 0 {
		return refused
	}
	return timesWithin(n/int64(step)+1, maxElems, termBytes)
}

func boundSplit(_ *allowance, args []*ast.Term) int64 {
	s, sep := str(args[0]), str(args[1])
	if len(s) > maxString {
		return refused
	}
	return timesWithin(int64(strings.Count(s, sep))+1, maxElems, termBytes)
}

func boundConcat(_ *allowance, args []*ast.Term) int64 {
	if size(args[1]) > maxElems {
		return refused
	}
	n := size(args[1]) * int64(len(str(args[0])))
	add := func(t *ast.Term) { n += int64(len(str(t))) }
	switch v := args[1].Value.(type) {
	case *ast.Array:
		v.Foreach(add)
	case ast.Set:
		v.Foreach(add)
	}
	return timesWithin(n, maxString, 1)
}

// boundSprintf estimates the longest possible result: every verb may select the largest argument by
// its index, and every number may be a width.
func boundSprintf(_ *allowance, args []*ast.Term) int64 {
	f := str(args[0])
	if len(f) > maxString {
		return refused
	}
	largest := termSize(args[1], maxTree)
	pads, digits := int64(0), 0
	for i := range len(f) {
		if f[i] >= '0' && f[i] <= '9' {
			digits = min(digits*10+int(f[i]-'0'), maxFormatPads+1)
			continue
		}
		pads, digits = pads+int64(digits), 0
	}
	if strings.Contains(f, "*") {
		pads += maxFormatPads / 4 * int64(strings.Count(f, "*"))
	}
	verbs := int64(strings.Count(f, "%"))
	return timesWithin(satMul(verbs, largest)+pads+int64(len(f)), maxTree, 1)
}

func boundReplace(_ *allowance, args []*ast.Term) int64 {
	s, old, to := str(args[0]), str(args[1]), str(args[2])
	if len(s) > maxString {
		return refused
	}
	return timesWithin(int64(len(s))+satMul(int64(strings.Count(s, old)), int64(len(to))), maxString, 1)
}

func boundReplaceN(_ *allowance, args []*ast.Term) int64 {
	s := int64(len(str(args[1])))
	n := size(args[0])
	longest := termSize(args[0], maxString)
	if n > 1000 || s > maxString || longest > maxString {
		return refused
	}
	return timesWithin(satMul(s+1, longest/max(n, 1)+1), maxTree, 1)
}

func boundExpand(_ *allowance, args []*ast.Term) int64 {
	p, err := netip.ParsePrefix(str(args[0]))
	if err != nil {
		return 0
	}
	host := p.Addr().BitLen() - p.Bits()
	if host > 16 {
		return refused
	}
	return timesWithin(int64(1)<<host, maxExpanded, 2*termBytes)
}

// regexSize estimates the number of states of a compiled pattern.
func regexSize(p string) int64 {
	n := int64(len(p)) + 8
	if strings.Contains(p, "{") {
		n += 1000 // Go's limit on counted repetition
	}
	return n
}

// boundRegex bounds text times pattern; pattern and text are the indexes of the arguments.
func boundRegex(pattern, text int) bound {
	return func(_ *allowance, args []*ast.Term) int64 {
		p, s := str(args[pattern]), str(args[text])
		if len(s) > maxString {
			return refused
		}
		return stepCost(satMul(int64(len(s))+1, regexSize(p)), maxRegexWork)
	}
}

// boundFinds bounds built-ins that list all matches: each byte of the text may be a match, which
// takes far more than a byte.
func boundFinds(b *allowance, args []*ast.Term) int64 {
	if len(str(args[1])) > maxSearched {
		return refused
	}
	return boundRegex(0, 1)(b, args)
}

func boundRegexReplace(b *allowance, args []*ast.Term) int64 {
	s, p, to := str(args[0]), str(args[1]), str(args[2])
	if boundRegex(1, 0)(b, args) < 0 || len(p) > maxString {
		return refused
	}
	grown := satMul(int64(len(s))+1, int64(len(to))+1+int64(strings.Count(to, "$"))*int64(len(s)))
	if !strings.Contains(to, "$") {
		grown = satMul(int64(len(s))+1, int64(len(to))+1)
	}
	return timesWithin(grown, maxTree, 1)
}

func boundGlobSets(_ *allowance, args []*ast.Term) int64 {
	return timesWithin(size(args[0])+size(args[1]), maxGlobSet, 1)
}

func boundToken(_ *allowance, args []*ast.Term) int64 {
	if len(str(args[0])) > maxToken {
		return refused
	}
	for _, a := range args[1:] {
		if termSize(a, maxToken) > maxKey {
			return refused
		}
	}
	return 4 * size(args[0])
}

func boundPatch(_ *allowance, args []*ast.Term) int64 {
	doc := termSize(args[0], maxTree)
	if doc > maxTree || termSize(args[1], maxTree) > maxTree {
		return refused
	}
	return stepCost(satMul(doc/8, size(args[1])+1), maxPairs*16)
}

// boundPaths walks the graph like the built-in, but builds no result. It refuses the call after too
// many visits, because the number of paths grows with the factorial of the number of nodes.
func boundPaths(b *allowance, args []*ast.Term) int64 {
	graph, ok := args[0].Value.(ast.Object)
	if !ok {
		return 0
	}
	visits := int64(0)
	var walk func(node *ast.Term, path []*ast.Term) bool
	walk = func(node *ast.Term, path []*ast.Term) bool {
		if visits += int64(len(path)) + 1; visits > maxPaths || b.Cancelled() {
			return false
		}
		edges := graph.Get(node)
		if edges == nil {
			return true
		}
		path = append(path, node)
		return eachTerm(edges, func(next *ast.Term) bool {
			for _, p := range path {
				if p.Equal(next) {
					visits += int64(len(path))
					return visits <= maxPaths
				}
			}
			return walk(next, path)
		})
	}
	if !eachTerm(args[1], func(n *ast.Term) bool { return walk(n, nil) }) {
		return refused
	}
	return visits * termBytes
}

// eachTerm calls fn for the elements of an array or set until fn returns false.
func eachTerm(t *ast.Term, fn func(*ast.Term) bool) bool {
	all := true
	stop := func(x *ast.Term) bool {
		all = fn(x)
		return !all
	}
	switch v := t.Value.(type) {
	case *ast.Array:
		v.Until(stop)
	case ast.Set:
		v.Until(stop)
	}
	return all
}

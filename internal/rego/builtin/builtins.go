package builtin

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Our own implementations of the most common built-ins, by the number of operands. ok is false for
// operands of unusual types; OPA's implementation decides those.
type (
	// One implements a built-in with one operand.
	One func(m *Memory, a value.Value) (v value.Value, ok bool)
	// Two implements a built-in with two operands.
	Two func(m *Memory, a, b value.Value) (v value.Value, ok bool)
	// Three implements a built-in with three operands.
	Three func(m *Memory, a, b, c value.Value) (v value.Value, ok bool)
	// Many implements a built-in with four or more operands.
	Many func(m *Memory, args []value.Value) (v value.Value, ok bool)
)

// Unary returns our own implementation of a built-in with one operand, or nil.
func Unary(name string) One { return unaries[name] }

// Binary returns our own implementation of a built-in with two operands, or nil.
func Binary(name string) Two { return binaries[name] }

// Ternary returns our own implementation of a built-in with three operands, or nil.
func Ternary(name string) Three { return ternaries[name] }

// Nary returns our own implementation of a built-in with four or more operands, or nil.
func Nary(name string) Many { return naries[name] }

// Comparison returns the test of a built-in that compares two values of any type. Call count
// before it: count counts the work, and true means stop.
func Comparison(name string) (test func(a, b value.Value) bool, count func(b *eval.Budget, x, y value.Value) bool, ok bool) {
	count = (*eval.Budget).CountComparison
	if name == ast.Member.Name {
		count = (*eval.Budget).CountMembership
	}
	test, ok = comparisons[name]
	return test, count, ok
}

// Nothing writes to the tables below.

var comparisons = map[string]func(a, b value.Value) bool{
	"eq":                value.Equal,
	"equal":             value.Equal,
	"neq":               func(a, b value.Value) bool { return !value.Equal(a, b) },
	"lt":                func(a, b value.Value) bool { return value.Compare(a, b) < 0 },
	"lte":               func(a, b value.Value) bool { return value.Compare(a, b) <= 0 },
	"gt":                func(a, b value.Value) bool { return value.Compare(a, b) > 0 },
	"gte":               func(a, b value.Value) bool { return value.Compare(a, b) >= 0 },
	"internal.member_2": member,
}

func member(x, coll value.Value) bool {
	switch coll.Kind() {
	case value.SetKind:
		return coll.Has(x)
	case value.ArrayKind:
		for _, e := range coll.Elems() {
			if value.Equal(e, x) {
				return true
			}
		}
	case value.ObjectKind:
		for i := range coll.Len() {
			if value.Equal(coll.Pair(i).V, x) {
				return true
			}
		}
	}
	return false
}

var unaries = map[string]One{
	"count":             count,
	"sum":               tryBoth(sum, total(0, (*big.Int).Add, (*big.Float).Add)),
	"product":           total(1, (*big.Int).Mul, (*big.Float).Mul),
	"sort":              sortValues,
	"union":             unionOf,
	"intersection":      intersectionOf,
	"object.union_n":    objectUnionN,
	"regex.is_valid":    regexIsValid,
	"units.parse":       parseUnits,
	"yaml.unmarshal":    numbersInRange,
	"units.parse_bytes": parseUnits,
	"uuid.rfc4122":      uuid4,
	"trace": func(_ *Memory, a value.Value) (value.Value, bool) {
		return value.Bool(true), a.Kind() == value.StringKind
	},
	"max":                   maximum,
	"min":                   minimum,
	"abs":                   absolute,
	"round":                 integer,
	"ceil":                  integer,
	"floor":                 integer,
	"to_number":             toNumber,
	"lower":                 stringMap(strings.ToLower),
	"upper":                 stringMap(strings.ToUpper),
	"trim_space":            stringMap(strings.TrimSpace),
	"is_null":               isKind(value.NullKind),
	"is_boolean":            isKind(value.BoolKind),
	"is_number":             isKind(value.NumberKind),
	"is_string":             isKind(value.StringKind),
	"is_array":              isKind(value.ArrayKind),
	"is_object":             isKind(value.ObjectKind),
	"is_set":                isKind(value.SetKind),
	"type_name":             func(_ *Memory, a value.Value) (value.Value, bool) { return value.String(a.Kind().String()), true },
	"object.keys":           objectKeys,
	"time.clock":            clock,
	"time.weekday":          weekday,
	"time.parse_rfc3339_ns": parseRFC3339,
	"array.reverse":         reverse,
}

var binaries = map[string]Two{
	"plus":            plus,
	"format_int":      formatInt,
	"minus":           minus,
	"mul":             times,
	"rem":             remainder,
	"and":             setOperation(intersect),
	"or":              setOperation(mergeSorted),
	"contains":        stringTest(strings.Contains),
	"startswith":      stringTest(strings.HasPrefix),
	"endswith":        stringTest(strings.HasSuffix),
	"trim_prefix":     stringCut(strings.TrimPrefix),
	"trim_suffix":     stringCut(strings.TrimSuffix),
	"trim":            stringTrim(true, true),
	"trim_left":       stringTrim(true, false),
	"trim_right":      stringTrim(false, true),
	"indexof":         indexOf,
	"indexof_n":       indexOfAll,
	"bits.lsh":        shift((*big.Int).Lsh),
	"bits.rsh":        shift((*big.Int).Rsh),
	"numbers.range":   numbersRange,
	"object.union":    objectUnion,
	"object.subset":   objectSubset,
	"graph.reachable": reachable,
	"rand.intn":       random,
	"regex.match":     regexMatch,
	"regex.split":     regexSplit,

	"graph.reachable_paths":     reachablePaths,
	"net.cidr_contains_matches": cidrMatches,
	"strings.any_prefix_match":  anyMatch(strings.HasPrefix),
	"strings.any_suffix_match":  anyMatch(strings.HasSuffix),
	"split":                     split,
	"concat":                    concat,
	"sprintf":                   format,
	"array.concat":              arrayConcat,
	"net.cidr_contains":         cidrContains,
}

// naries holds the built-ins with four or more operands.
var naries = map[string]Many{
	"regex.template_match": templateMatch,
}

var ternaries = map[string]Three{
	"object.get":                       objectGet,
	"internal.member_3":                memberKey,
	"numbers.range_step":               (*Memory).numbersFrom,
	"regex.find_n":                     regexFind,
	"regex.find_all_string_submatch_n": regexFindGroups,
	"regex.replace":                    regexReplace,
}

// tryBoth tries two implementations, the faster one first.
func tryBoth(quick, other func(m *Memory, a value.Value) (value.Value, bool)) func(m *Memory, a value.Value) (value.Value, bool) {
	return func(m *Memory, a value.Value) (value.Value, bool) {
		if v, ok := quick(m, a); ok {
			return v, true
		}
		return other(m, a)
	}
}

// InNetwork reports whether an address is in a network. ok is false for addresses that Go's older
// parsers, which OPA uses, might read differently.
func InNetwork(p netip.Prefix, text string) (in, ok bool) {
	ip, err := netip.ParseAddr(text)
	if err != nil || ip.Zone() != "" || ip.Is4In6() || p.Addr().Is4In6() {
		return false, false
	}
	return p.Contains(ip), true
}

func cidrContains(_ *Memory, a, b value.Value) (value.Value, bool) {
	network, ok1 := a.Str()
	text, ok2 := b.Str()
	if !ok1 || !ok2 {
		return value.Value{}, false
	}
	p, err := netip.ParsePrefix(network)
	if err != nil {
		return value.Value{}, false
	}
	in, ok := InNetwork(p, text)
	return value.Bool(in), ok
}

func count(m *Memory, a value.Value) (value.Value, bool) {
	switch a.Kind() {
	case value.StringKind:
		str, _ := a.Str()
		return value.Int(int64(utf8.RuneCountInString(str))), !m.Work(len(str) >> 4)
	case value.ArrayKind, value.ObjectKind, value.SetKind:
		return value.Int(int64(a.Len())), true
	}
	return value.Value{}, false
}

func sum(m *Memory, a value.Value) (value.Value, bool) {
	if a.Kind() != value.ArrayKind && a.Kind() != value.SetKind || m.Work(a.Len()) {
		return value.Value{}, false
	}
	total := int64(0)
	for _, e := range a.Elems() {
		i, _ := e.Int64()
		if !e.IsInt() || overflows(total, i) {
			return value.Value{}, false
		}
		total += i
	}
	return value.Int(total), true
}

func overflows(a, b int64) bool {
	return b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b
}

func maximum(m *Memory, a value.Value) (value.Value, bool) { return extreme(m, a, 1) }
func minimum(m *Memory, a value.Value) (value.Value, bool) { return extreme(m, a, -1) }

func extreme(m *Memory, a value.Value, sign int) (value.Value, bool) {
	e := a.Elems()
	if a.Kind() != value.ArrayKind && a.Kind() != value.SetKind || m.Work(int(a.Size())>>4) {
		return value.Value{}, false
	}
	if len(e) == 0 {
		return value.Value{}, true // undefined, as in topdown
	}
	best := e[0]
	for _, x := range e[1:] {
		if value.Compare(x, best)*sign >= 0 && a.Kind() == value.ArrayKind || value.Compare(x, best)*sign > 0 {
			best = x
		}
	}
	return best, true
}

func absolute(_ *Memory, a value.Value) (value.Value, bool) {
	i, _ := a.Int64()
	if !a.IsInt() || !small(i) {
		return value.Value{}, false
	}
	return value.Int(max(i, -i)), true
}

// integer returns small integers unchanged. It implements round, ceil and floor.
func integer(_ *Memory, a value.Value) (value.Value, bool) {
	i, _ := a.Int64()
	return a, a.IsInt() && small(i)
}

// small integers have exact sums, products and conversions to float64.
func small(i int64) bool { return i > -1<<31 && i < 1<<31 }

func stringMap(f func(string) string) func(*Memory, value.Value) (value.Value, bool) {
	return func(m *Memory, a value.Value) (value.Value, bool) {
		s, ok := a.Str()
		if !ok || !m.Alloc(len(s)) || m.Work(len(s)>>4) {
			return value.Value{}, false
		}
		return m.CheckSize(value.String(f(s))), true
	}
}

func isKind(k value.Kind) func(*Memory, value.Value) (value.Value, bool) {
	return func(_ *Memory, a value.Value) (value.Value, bool) { return value.Bool(a.Kind() == k), true }
}

func objectKeys(m *Memory, a value.Value) (value.Value, bool) {
	if a.Kind() != value.ObjectKind || !m.Alloc(eval.ValueBytes*a.Len()) || m.Work(a.Len()) {
		return value.Value{}, false
	}
	keys := make([]value.Value, a.Len())
	for i := range keys {
		keys[i] = a.Pair(i).K
	}
	return value.SortedSet(keys), true
}

func reverse(m *Memory, a value.Value) (value.Value, bool) {
	e := a.Elems()
	if a.Kind() != value.ArrayKind || !m.Alloc(eval.ValueBytes*len(e)) || m.Work(len(e)) {
		return value.Value{}, false
	}
	out := make([]value.Value, len(e))
	for i := range e {
		out[len(e)-1-i] = e[i]
	}
	return value.Array(out...), true
}

// utc converts nanoseconds since 1970 to a time. ok is false if the number is not an integer.
func utc(a value.Value) (time.Time, bool) {
	i, _ := a.Int64()
	return time.Unix(0, i).UTC(), a.IsInt()
}

func clock(m *Memory, a value.Value) (value.Value, bool) {
	t, ok := utc(a)
	if !ok || !m.Alloc(3*eval.ValueBytes) {
		return value.Value{}, false
	}
	h, min, s := t.Clock()
	return value.Array(value.Int(int64(h)), value.Int(int64(min)), value.Int(int64(s))), true
}

func weekday(_ *Memory, a value.Value) (value.Value, bool) {
	t, ok := utc(a)
	return value.String(t.Weekday().String()), ok
}

func parseRFC3339(_ *Memory, a value.Value) (value.Value, bool) {
	s, _ := a.Str()
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Year() < 1900 || t.Year() > 2200 {
		return value.Value{}, false // OPA decides the edge cases
	}
	return value.Int(t.UnixNano()), true
}

// formatInt writes an integer in a base. OPA's implementation rounds other numbers.
func formatInt(m *Memory, a, b value.Value) (value.Value, bool) {
	n, base, ok := ints(a, b)
	if !ok || base != 2 && base != 8 && base != 10 && base != 16 || !m.Alloc(34) {
		return value.Value{}, false
	}
	return value.String(strconv.FormatInt(n, int(base))), true
}

func ints(a, b value.Value) (x, y int64, ok bool) {
	x, _ = a.Int64()
	y, _ = b.Int64()
	return x, y, a.IsInt() && b.IsInt() && small(x) && small(y)
}

func plus(_ *Memory, a, b value.Value) (value.Value, bool) {
	x, y, ok := ints(a, b)
	return value.Int(x + y), ok
}

func minus(m *Memory, a, b value.Value) (value.Value, bool) {
	if a.Kind() == value.SetKind && b.Kind() == value.SetKind {
		return setOperation(subtract)(m, a, b)
	}
	x, y, ok := ints(a, b)
	return value.Int(x - y), ok
}

func times(_ *Memory, a, b value.Value) (value.Value, bool) {
	x, y, ok := ints(a, b)
	return value.Int(x * y), ok
}

func remainder(_ *Memory, a, b value.Value) (value.Value, bool) {
	x, y, ok := ints(a, b)
	if !ok || y == 0 {
		return value.Value{}, false
	}
	return value.Int(x % y), true
}

func setOperation(f func(a, b, out []value.Value) []value.Value) func(m *Memory, a, b value.Value) (value.Value, bool) {
	return func(m *Memory, a, b value.Value) (value.Value, bool) {
		if a.Kind() != value.SetKind || b.Kind() != value.SetKind {
			return value.Value{}, false
		}
		n := a.Len() + b.Len()
		if !m.Alloc(n*eval.ValueBytes) || m.Work(int(a.Size()>>4+b.Size()>>4)) {
			return value.Value{}, true
		}
		return m.CheckSize(value.SortedSet(f(a.Elems(), b.Elems(), make([]value.Value, 0, n)))), true
	}
}

func intersect(a, b, out []value.Value) []value.Value {
	if len(b) < len(a) { // of equal elements, topdown keeps those of the smaller set
		a, b = b, a
	}
	for len(a) > 0 && len(b) > 0 {
		c := value.Compare(a[0], b[0])
		if c == 0 {
			out = append(out, a[0])
		}
		a, b = advance(a, b, c)
	}
	return out
}

func mergeSorted(a, b, out []value.Value) []value.Value {
	for len(a) > 0 && len(b) > 0 {
		c := value.Compare(a[0], b[0])
		if c <= 0 {
			out = append(out, a[0])
		} else {
			out = append(out, b[0])
		}
		a, b = advance(a, b, c)
	}
	return append(append(out, a...), b...)
}

func subtract(a, b, out []value.Value) []value.Value {
	for len(a) > 0 && len(b) > 0 {
		c := value.Compare(a[0], b[0])
		if c < 0 {
			out = append(out, a[0])
		}
		a, b = advance(a, b, c)
	}
	return append(out, a...)
}

func advance(a, b []value.Value, c int) (x, y []value.Value) {
	if c <= 0 {
		a = a[1:]
	}
	if c >= 0 {
		b = b[1:]
	}
	return a, b
}

func stringTest(f func(a, b string) bool) func(*Memory, value.Value, value.Value) (value.Value, bool) {
	return func(m *Memory, a, b value.Value) (value.Value, bool) {
		x, ok1 := a.Str()
		y, ok2 := b.Str()
		if !ok1 || !ok2 || m.Work((len(x)+len(y))>>6) {
			return value.Value{}, false
		}
		return value.Bool(f(x, y)), true
	}
}

func stringCut(f func(a, b string) string) func(*Memory, value.Value, value.Value) (value.Value, bool) {
	return func(m *Memory, a, b value.Value) (value.Value, bool) {
		x, ok1 := a.Str()
		y, ok2 := b.Str()
		if !ok1 || !ok2 || m.Work((len(x)+len(y))>>4) {
			return value.Value{}, false
		}
		return value.String(f(x, y)), true
	}
}

func split(m *Memory, a, b value.Value) (value.Value, bool) {
	x, ok1 := a.Str()
	y, ok2 := b.Str()
	if !ok1 || !ok2 {
		return value.Value{}, false
	}
	if !strings.Contains(x, y) { // also true of two empty strings
		return value.Array(a), true
	}
	n := strings.Count(x, y) + 1
	if !m.Alloc(n*(eval.ValueBytes+16)) || m.Work(n+len(x)>>4) {
		return value.Value{}, true
	}
	parts := strings.Split(x, y)
	out := make([]value.Value, len(parts))
	for i, p := range parts {
		out[i] = value.String(p)
	}
	return m.CheckSize(value.Array(out...)), true
}

func concat(m *Memory, a, b value.Value) (value.Value, bool) {
	sep, ok := a.Str()
	if !ok || b.Kind() != value.ArrayKind && b.Kind() != value.SetKind {
		return value.Value{}, false
	}
	e := b.Elems()
	n := len(sep) * len(e)
	for i := range e {
		s, ok := e[i].Str()
		if !ok {
			return value.Value{}, false
		}
		if n += len(s); n > eval.MaxValue {
			m.Fail(eval.ErrLimit)
			return value.Value{}, true
		}
	}
	if !m.Alloc(n) || m.Work(len(e)+n>>4) {
		return value.Value{}, true
	}
	var out strings.Builder
	out.Grow(n)
	for i := range e {
		if i > 0 {
			out.WriteString(sep)
		}
		s, _ := e[i].Str()
		out.WriteString(s)
	}
	return value.String(out.String()), true
}

// maxArgs limits the operands of sprintf that need no slice on the heap.
const maxArgs = 8

// format implements sprintf for strings and integers, which OPA passes to package fmt unchanged.
func format(m *Memory, f, list value.Value) (value.Value, bool) {
	layout, ok := f.Str()
	if !ok || list.Kind() != value.ArrayKind || list.Len() > maxArgs {
		return value.Value{}, false
	}
	size := len(layout) + int(list.Size()) + sprintfCost([]value.Value{f, list})
	if size > MaxOperands || !m.Alloc(2*size) || m.Work(size>>4) {
		m.Fail(eval.ErrLimit)
		return value.Value{}, true
	}
	var args [maxArgs]any
	for i, e := range list.Elems() {
		if str, ok := e.Str(); ok {
			args[i] = str
		} else if n, ok := e.Int64(); ok && e.IsInt() {
			args[i] = n
		} else {
			return value.Value{}, false
		}
	}
	return m.CheckSize(value.String(fmt.Sprintf(layout, args[:list.Len()]...))), true
}

func arrayConcat(m *Memory, a, b value.Value) (value.Value, bool) {
	if a.Kind() != value.ArrayKind || b.Kind() != value.ArrayKind {
		return value.Value{}, false
	}
	n := a.Len() + b.Len()
	if !m.Alloc(n*eval.ValueBytes) || m.Work(n) {
		return value.Value{}, true
	}
	out := make([]value.Value, 0, n)
	return m.CheckSize(value.Array(append(append(out, a.Elems()...), b.Elems()...)...)), true
}

func objectGet(m *Memory, obj, path, dflt value.Value) (value.Value, bool) {
	if obj.Kind() != value.ObjectKind {
		return value.Value{}, false
	}
	v := obj
	if path.Kind() == value.ArrayKind {
		if m.Work(int(path.Size() >> 3)) {
			return value.Value{}, true
		}
		for _, k := range path.Elems() {
			v = v.Lookup(k)
		}
	} else {
		v = obj.Lookup(path)
	}
	if !v.Defined() {
		v = dflt
	}
	return v, true
}

func memberKey(m *Memory, k, x, coll value.Value) (value.Value, bool) {
	if coll.Kind() < value.ArrayKind {
		return value.Bool(false), true
	}
	if m.Work(int(k.Size() >> 4)) {
		return value.Value{}, true
	}
	v := coll.Lookup(k)
	return value.Bool(v.Defined() && m.Equal(v, x)), true
}

package builtin

import (
	"net"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// anyMatch implements strings.any_prefix_match, and strings.any_suffix_match with
// strings.HasSuffix.
func anyMatch(test func(s, affix string) bool) func(m *Memory, a, b value.Value) (value.Value, bool) {
	return func(m *Memory, a, b value.Value) (value.Value, bool) {
		texts, ok1 := stringsOf(a)
		affixes, ok2 := stringsOf(b)
		if !ok1 || !ok2 {
			return value.Value{}, false
		}
		for _, s := range texts {
			for _, p := range affixes {
				if m.Work(1 + min(len(s), len(p))>>6) {
					return value.Value{}, true
				}
				if test(s, p) {
					return value.Bool(true), true
				}
			}
		}
		return value.Bool(false), true
	}
}

func stringsOf(v value.Value) ([]string, bool) {
	if s, ok := v.Str(); ok {
		return []string{s}, true
	}
	if v.Kind() != value.ArrayKind && v.Kind() != value.SetKind {
		return nil, false
	}
	out := make([]string, v.Len())
	for i, e := range v.Elems() {
		s, ok := e.Str()
		if !ok {
			return nil, false
		}
		out[i] = s
	}
	return out, true
}

// indexOf implements indexof: a position in characters, or -1.
func indexOf(m *Memory, a, b value.Value) (value.Value, bool) {
	s, ok1 := a.Str()
	sub, ok2 := b.Str()
	if !ok1 || !ok2 || sub == "" || !utf8.ValidString(s) || !utf8.ValidString(sub) {
		return value.Value{}, false
	}
	if m.Work((len(s) + len(sub)) >> 3) {
		return value.Value{}, true
	}
	i := strings.Index(s, sub)
	if i > 0 {
		i = utf8.RuneCountInString(s[:i])
	}
	return value.Int(int64(i)), true
}

// indexOfAll implements indexof_n: all positions in characters, overlapping ones too.
func indexOfAll(m *Memory, a, b value.Value) (value.Value, bool) {
	s, ok1 := a.Str()
	sub, ok2 := b.Str()
	if !ok1 || !ok2 || sub == "" || !utf8.ValidString(s) || !utf8.ValidString(sub) {
		return value.Value{}, false
	}
	base := len(m.stack)
	for at, runes := 0, 0; at+len(sub) <= len(s); {
		i := strings.Index(s[at:], sub)
		if i < 0 {
			m.Work((len(s) - at) >> 3)
			break
		}
		runes += utf8.RuneCountInString(s[at : at+i])
		if m.Work(1+(i+len(sub))>>3) || m.Push(value.Int(int64(runes))) {
			break
		}
		_, width := utf8.DecodeRuneInString(s[at+i:])
		at, runes = at+i+width, runes+1
	}
	return m.CheckSize(value.Array(m.Pop(base)...)), true
}

// stringTrim implements trim, trim_left and trim_right.
func stringTrim(left, right bool) func(m *Memory, a, b value.Value) (value.Value, bool) {
	return func(m *Memory, a, b value.Value) (value.Value, bool) {
		s, ok1 := a.Str()
		cutset, ok2 := b.Str()
		if !ok1 || !ok2 {
			return value.Value{}, false
		}
		if m.Work((len(s) + len(cutset)) >> 2) {
			return value.Value{}, true
		}
		in := func(r rune) bool { return strings.ContainsRune(cutset, r) }
		if len(cutset) > 32 {
			if !m.Alloc(32 * len(cutset)) {
				return value.Value{}, true
			}
			set := make(map[rune]bool, len(cutset))
			for _, r := range cutset {
				set[r] = true
			}
			in = func(r rune) bool { return set[r] }
		}
		if left {
			s = strings.TrimLeftFunc(s, in)
		}
		if right {
			s = strings.TrimRightFunc(s, in)
		}
		return value.String(s), true
	}
}

// cidrMatches implements net.cidr_contains_matches. It parses each network once, and counts each
// pair as a step.
func cidrMatches(m *Memory, a, b value.Value) (value.Value, bool) {
	xs, ok1 := networksOf(m, a)
	ys, ok2 := networksOf(m, b)
	if !ok1 || !ok2 {
		return value.Value{}, m.Err != nil
	}
	base := len(m.stack)
	for _, x := range xs {
		if x.network == nil {
			if len(ys) > 0 {
				m.stack = m.stack[:base]
				return value.Value{}, false
			}
			continue
		}
		for _, y := range ys {
			if y.ip == nil && y.network == nil {
				m.stack = m.stack[:base]
				return value.Value{}, false
			}
			if m.Tick() || x.contains(y) && m.Push(value.Array(x.index, y.index)) {
				return m.PopSet(base), true
			}
		}
	}
	return m.PopSet(base), true
}

type address struct {
	index   value.Value
	ip      net.IP // set for a single address
	network *net.IPNet
	last    net.IP // last address of the network
}

func (x *address) contains(y address) bool {
	if y.ip != nil {
		return x.network.Contains(y.ip)
	}
	return x.network.Contains(y.network.IP) && x.network.Contains(y.last)
}

// networksOf parses an operand. ok is false if OPA's implementation must report an error.
func networksOf(m *Memory, v value.Value) (out []address, ok bool) {
	n := max(1, v.Len())
	if v.Kind() == value.StringKind {
		n = 1
	}
	if !m.Alloc(128*n) || m.Work(8*n) {
		return nil, false
	}
	add := func(e, index value.Value) bool {
		if e.Kind() == value.ArrayKind && e.Len() > 0 {
			e = e.Index(0)
		}
		s, ok := e.Str()
		if ok {
			x := address{index: index, ip: net.ParseIP(s)}
			if x.ip == nil {
				if _, network, err := net.ParseCIDR(s); err == nil {
					x.network, x.last = network, lastIP(network)
				}
			}
			out = append(out, x)
		}
		return ok
	}
	switch v.Kind() {
	case value.StringKind:
		ok = add(v, v) && len(out) > 0
		return out, ok
	case value.ArrayKind, value.SetKind:
		for i, e := range v.Elems() {
			index := e
			if v.Kind() == value.ArrayKind {
				index = value.Int(int64(i))
			}
			if !add(e, index) {
				return nil, false
			}
		}
		return out, true
	case value.ObjectKind:
		for i := range v.Len() {
			if p := v.Pair(i); !add(p.V, p.K) {
				return nil, false
			}
		}
		return out, true
	}
	return nil, false
}

func lastIP(n *net.IPNet) net.IP {
	out := make(net.IP, len(n.IP))
	for i := range out {
		out[i] = n.IP[i] | ^n.Mask[i]
	}
	return out
}

package native

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The built-ins over collections whose work can outgrow their operands: each
// counts its steps while it runs.

// sorted is sort.
func sorted(m *machine, a value.Value) (value.Value, bool) {
	if a.Kind() == value.SetKind {
		return value.Array(a.Elems()...), !m.work(1)
	}
	if a.Kind() != value.ArrayKind {
		return value.Value{}, false
	}
	if !m.alloc(valueBytes*a.Len()) || m.work(a.Len()) || !m.sortWork(a.Elems()) {
		return value.Value{}, true
	}
	out := slices.Clone(a.Elems())
	slices.SortStableFunc(out, value.Compare)
	return value.Array(out...), true
}

// unionOf is union: all elements of the sets in a set.
func unionOf(m *machine, a value.Value) (value.Value, bool) {
	n, ok := sizesOf(a, value.SetKind)
	if a.Kind() != value.SetKind || !ok {
		return value.Value{}, false
	}
	if !m.alloc(valueBytes*n) || m.work(n) {
		return value.Value{}, true
	}
	out := make([]value.Value, 0, n)
	for _, s := range a.Elems() {
		out = append(out, s.Elems()...)
	}
	if !m.sortWork(out) {
		return value.Value{}, true
	}
	return m.made(value.SetOf(out)), true
}

// intersectionOf is intersection: what all sets in a set have in common.
func intersectionOf(m *machine, a value.Value) (value.Value, bool) {
	if _, ok := sizesOf(a, value.SetKind); a.Kind() != value.SetKind || !ok {
		return value.Value{}, false
	}
	if a.Len() == 0 {
		return value.SortedSet(nil), true
	}
	out := a.Index(0)
	for _, s := range a.Elems()[1:] {
		v, ok := setOperation(intersect)(m, out, s)
		if m.err != nil || !ok {
			return value.Value{}, true
		}
		out = v
	}
	return out, true
}

// sizesOf is how many elements the elements of a collection have, and whether
// all are of a kind.
func sizesOf(a value.Value, kind value.Kind) (n int, ok bool) {
	for _, e := range a.Elems() {
		if e.Kind() != kind {
			return 0, false
		}
		n += e.Len()
	}
	return n, true
}

// objectUnion is object.union: the right one's members over the left one's,
// objects within both united.
func objectUnion(m *machine, a, b value.Value) (value.Value, bool) {
	if a.Kind() != value.ObjectKind || b.Kind() != value.ObjectKind {
		return value.Value{}, false
	}
	return m.unite(a, b, true), true
}

// unite gives the members of both, those of b over those of a. Of two spellings of
// a key, left keeps that of a.
func (m *machine) unite(a, b value.Value, left bool) value.Value {
	switch {
	case a.Len() == 0:
		return b
	case b.Len() == 0:
		return a
	}
	n := a.Len() + b.Len()
	if !m.alloc(2*valueBytes*n) || m.work(n) {
		return value.Value{}
	}
	out := make([]value.Pair, 0, n)
	for i, j := 0, 0; i < a.Len() || j < b.Len(); {
		c := -1
		if i == a.Len() {
			c = 1
		} else if j < b.Len() {
			x, y := a.Pair(i).K, b.Pair(j).K
			if deep(m, x, y) {
				return value.Value{}
			}
			c = value.Compare(x, y)
		}
		switch {
		case c < 0:
			out = append(out, a.Pair(i))
			i++
		case c > 0:
			out = append(out, b.Pair(j))
			j++
		default:
			p, under := b.Pair(j), a.Pair(i).V
			if left {
				p.K = a.Pair(i).K
			}
			if p.V.Kind() == value.ObjectKind && under.Kind() == value.ObjectKind {
				if p.V = m.unite(under, p.V, left); m.err != nil {
					return value.Value{}
				}
			}
			out = append(out, p)
			i, j = i+1, j+1
		}
	}
	return m.made(value.LastOf(out))
}

// objectUnionN is object.union_n.
func objectUnionN(m *machine, a value.Value) (value.Value, bool) {
	if _, ok := sizesOf(a, value.ObjectKind); a.Kind() != value.ArrayKind || !ok {
		return value.Value{}, false
	}
	out := value.Object()
	for _, o := range a.Elems() {
		if out = m.unite(out, o, false); m.err != nil {
			return value.Value{}, true
		}
	}
	return out, true
}

// objectSubset is object.subset, also of sets and arrays.
func objectSubset(m *machine, super, sub value.Value) (value.Value, bool) {
	a, b := super.Kind(), sub.Kind()
	switch {
	case a == b && a >= value.ArrayKind:
		return value.Bool(m.subset(super, sub)), true
	case a == value.ArrayKind && b == value.SetKind:
		left := sub.Len()
		for _, e := range super.Elems() {
			if m.tick() || searched(m, e, sub) {
				return value.Value{}, true
			}
			if sub.Has(e) {
				left--
			}
			if left == 0 {
				return value.Bool(true), true
			}
		}
		return value.Bool(false), true
	}
	return value.Value{}, false
}

func (m *machine) subset(super, sub value.Value) bool {
	if super.Kind() != sub.Kind() {
		return false
	}
	switch sub.Kind() {
	case value.ObjectKind:
		for i := range sub.Len() {
			p := sub.Pair(i)
			if m.tick() || m.work(int(p.K.Size()>>4)) {
				return false
			}
			v := super.Lookup(p.K)
			if !v.Defined() || !m.equal(p.V, v) && !m.subset(v, p.V) {
				return false
			}
		}
		return true
	case value.SetKind:
		for _, e := range sub.Elems() {
			if m.tick() || searched(m, e, super) || !super.Has(e) {
				return false
			}
		}
		return true
	case value.ArrayKind:
		return m.within(super, sub)
	}
	return false
}

// within tells whether an array stands in another one, in a row. It goes back
// as OPA does: not to the start of a match that broke off within another.
func (m *machine) within(super, sub value.Value) bool {
	if sub.Len() > super.Len() {
		return false
	}
	if m.equal(sub, super) {
		return true
	}
	for at, n := 0, 0; m.err == nil; {
		if n == sub.Len() {
			return true
		}
		if at+n == super.Len() || m.tick() {
			return false
		}
		if m.equal(super.Index(at+n), sub.Index(n)) {
			n++
		} else {
			at, n = at+1, 0
		}
	}
	return false
}

// reachable is graph.reachable.
func reachable(m *machine, graph, from value.Value) (value.Value, bool) {
	if graph.Kind() != value.ObjectKind || from.Kind() != value.ArrayKind && from.Kind() != value.SetKind {
		return value.Value{}, false
	}
	queue := slices.Clone(from.Elems())
	seen := map[string]bool{}
	var out []value.Value
	for i := 0; i < len(queue); i++ {
		node := queue[i]
		if m.tick() || m.work(int(node.Size()>>3)) || !m.alloc(int(node.Size())+2*valueBytes) {
			return value.Value{}, true
		}
		key := string(node.AppendKey(nil))
		edges := graph.Lookup(node)
		if seen[key] || !edges.Defined() {
			continue
		}
		seen[key] = true
		out = append(out, node)
		if !m.alloc(valueBytes*len(edges.Elems())) || m.work(len(edges.Elems())) {
			return value.Value{}, true
		}
		queue = append(queue, edges.Elems()...)
	}
	if !m.sortWork(out) {
		return value.Value{}, true
	}
	return m.made(value.SetOf(out)), true
}

// reachablePaths is graph.reachable_paths: every way from a node until it ends
// or would meet itself.
func reachablePaths(m *machine, graph, from value.Value) (value.Value, bool) {
	if graph.Kind() != value.ObjectKind || from.Kind() != value.ArrayKind && from.Kind() != value.SetKind {
		return value.Value{}, false
	}
	base := len(m.stack)
	for _, node := range from.Elems() {
		edges := graph.Lookup(node)
		if !edges.Defined() {
			continue
		}
		next := edges.Elems()
		if len(next) == 0 && m.push(value.Array(node)) {
			break
		}
		for _, n := range next {
			if m.follow(graph, n, []value.Value{node}) {
				break
			}
		}
	}
	v := m.popSet(base)
	return v, true
}

// follow pushes the ways on from a path; true means stop.
func (m *machine) follow(graph, node value.Value, path []value.Value) bool {
	if m.work(1+len(path)) || m.work(int(node.Size()>>4)) {
		return true
	}
	commit := func(path []value.Value) bool {
		return !m.alloc(valueBytes*len(path)) || m.push(m.made(value.Array(slices.Clone(path)...)))
	}
	edges := graph.Lookup(node)
	if !edges.Defined() {
		return commit(path)
	}
	path = append(path, node)
	next := edges.Elems()
	if len(next) == 0 {
		return commit(path)
	}
	for _, n := range next {
		met := slices.ContainsFunc(path, func(p value.Value) bool { return m.equal(p, n) })
		if m.err != nil || met && commit(path) || !met && m.follow(graph, n, path[:len(path):len(path)]) {
			return true
		}
	}
	return false
}

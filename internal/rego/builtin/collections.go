package builtin

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// These built-ins work on collections, and their work can exceed the size of their operands. Each
// counts its steps while it runs.

func sortValues(m *Memory, a value.Value) (value.Value, bool) {
	if a.Kind() == value.SetKind {
		return value.Array(a.Elems()...), !m.Work(1)
	}
	if a.Kind() != value.ArrayKind {
		return value.Value{}, false
	}
	if !m.Alloc(eval.ValueBytes*a.Len()) || m.Work(a.Len()) || !m.SortWork(a.Elems()) {
		return value.Value{}, true
	}
	out := slices.Clone(a.Elems())
	slices.SortStableFunc(out, value.Compare)
	return value.Array(out...), true
}

// unionOf implements union: all elements of a set of sets.
func unionOf(m *Memory, a value.Value) (value.Value, bool) {
	n, ok := sizesOf(a, value.SetKind)
	if a.Kind() != value.SetKind || !ok {
		return value.Value{}, false
	}
	if !m.Alloc(eval.ValueBytes*n) || m.Work(n) {
		return value.Value{}, true
	}
	out := make([]value.Value, 0, n)
	for _, s := range a.Elems() {
		out = append(out, s.Elems()...)
	}
	if !m.SortWork(out) {
		return value.Value{}, true
	}
	return m.CheckSize(value.SetOf(out)), true
}

// intersectionOf implements intersection: the elements that all sets in a set have in common.
func intersectionOf(m *Memory, a value.Value) (value.Value, bool) {
	if _, ok := sizesOf(a, value.SetKind); a.Kind() != value.SetKind || !ok {
		return value.Value{}, false
	}
	if a.Len() == 0 {
		return value.SortedSet(nil), true
	}
	out := a.Index(0)
	for _, s := range a.Elems()[1:] {
		v, ok := setOperation(intersect)(m, out, s)
		if m.Err != nil || !ok {
			return value.Value{}, true
		}
		out = v
	}
	return out, true
}

// sizesOf adds up the lengths of the elements of a collection. ok is false if one of them is not of
// the kind.
func sizesOf(a value.Value, kind value.Kind) (n int, ok bool) {
	for _, e := range a.Elems() {
		if e.Kind() != kind {
			return 0, false
		}
		n += e.Len()
	}
	return n, true
}

// objectUnion implements object.union: members of b replace those of a, and objects in both are
// merged recursively.
func objectUnion(m *Memory, a, b value.Value) (value.Value, bool) {
	if a.Kind() != value.ObjectKind || b.Kind() != value.ObjectKind {
		return value.Value{}, false
	}
	return m.mergeTwo(a, b, true), true
}

// mergeTwo merges two objects; members of b replace those of a. If both have a key in different
// spellings, left keeps the spelling of a.
func (m *Memory) mergeTwo(a, b value.Value, left bool) value.Value {
	switch {
	case a.Len() == 0:
		return b
	case b.Len() == 0:
		return a
	}
	n := a.Len() + b.Len()
	if !m.Alloc(2*eval.ValueBytes*n) || m.Work(n) {
		return value.Value{}
	}
	out := make([]value.Pair, 0, n)
	for i, j := 0, 0; i < a.Len() || j < b.Len(); {
		c := -1
		if i == a.Len() {
			c = 1
		} else if j < b.Len() {
			x, y := a.Pair(i).K, b.Pair(j).K
			if m.CountComparison(x, y) {
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
				if p.V = m.mergeTwo(under, p.V, left); m.Err != nil {
					return value.Value{}
				}
			}
			out = append(out, p)
			i, j = i+1, j+1
		}
	}
	return m.CheckSize(value.LastOf(out))
}

func objectUnionN(m *Memory, a value.Value) (value.Value, bool) {
	if _, ok := sizesOf(a, value.ObjectKind); a.Kind() != value.ArrayKind || !ok {
		return value.Value{}, false
	}
	out := value.Object()
	for _, o := range a.Elems() {
		if out = m.mergeTwo(out, o, false); m.Err != nil {
			return value.Value{}, true
		}
	}
	return out, true
}

// objectSubset implements object.subset, also for sets and arrays.
func objectSubset(m *Memory, super, sub value.Value) (value.Value, bool) {
	a, b := super.Kind(), sub.Kind()
	switch {
	case a == b && a >= value.ArrayKind:
		return value.Bool(m.subset(super, sub)), true
	case a == value.ArrayKind && b == value.SetKind:
		left := sub.Len()
		for _, e := range super.Elems() {
			if m.Tick() || m.CountMembership(e, sub) {
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

func (m *Memory) subset(super, sub value.Value) bool {
	if super.Kind() != sub.Kind() {
		return false
	}
	switch sub.Kind() {
	case value.ObjectKind:
		for i := range sub.Len() {
			p := sub.Pair(i)
			if m.Tick() || m.Work(int(p.K.Size()>>4)) {
				return false
			}
			v := super.Lookup(p.K)
			if !v.Defined() || !m.Equal(p.V, v) && !m.subset(v, p.V) {
				return false
			}
		}
		return true
	case value.SetKind:
		for _, e := range sub.Elems() {
			if m.Tick() || m.CountMembership(e, super) || !super.Has(e) {
				return false
			}
		}
		return true
	case value.ArrayKind:
		return m.within(super, sub)
	}
	return false
}

// within reports whether an array contains another one as a contiguous part.
func (m *Memory) within(super, sub value.Value) bool {
	if sub.Len() > super.Len() {
		return false
	}
	if m.Equal(sub, super) {
		return true
	}
	for at, n := 0, 0; m.Err == nil; {
		if n == sub.Len() {
			return true
		}
		if at+n == super.Len() || m.Tick() {
			return false
		}
		if m.Equal(super.Index(at+n), sub.Index(n)) {
			n++
		} else {
			at, n = at+1, 0
		}
	}
	return false
}

func reachable(m *Memory, graph, from value.Value) (value.Value, bool) {
	if graph.Kind() != value.ObjectKind || from.Kind() != value.ArrayKind && from.Kind() != value.SetKind {
		return value.Value{}, false
	}
	queue := slices.Clone(from.Elems())
	seen := map[string]bool{}
	var out []value.Value
	for i := 0; i < len(queue); i++ {
		node := queue[i]
		if m.Tick() || m.Work(int(node.Size()>>3)) || !m.Alloc(int(node.Size())+2*eval.ValueBytes) {
			return value.Value{}, true
		}
		key := string(node.AppendKey(nil))
		edges := graph.Lookup(node)
		if seen[key] || !edges.Defined() {
			continue
		}
		seen[key] = true
		out = append(out, node)
		if !m.Alloc(eval.ValueBytes*len(edges.Elems())) || m.Work(len(edges.Elems())) {
			return value.Value{}, true
		}
		queue = append(queue, edges.Elems()...)
	}
	if !m.SortWork(out) {
		return value.Value{}, true
	}
	return m.CheckSize(value.SetOf(out)), true
}

// reachablePaths implements graph.reachable_paths: every path from a node until it ends or would
// repeat a node.
func reachablePaths(m *Memory, graph, from value.Value) (value.Value, bool) {
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
		if len(next) == 0 && m.Push(value.Array(node)) {
			break
		}
		for _, n := range next {
			if m.follow(graph, n, []value.Value{node}) {
				break
			}
		}
	}
	v := m.PopSet(base)
	return v, true
}

// follow pushes all continuations of a path; true means stop.
func (m *Memory) follow(graph, node value.Value, path []value.Value) bool {
	if m.Work(1+len(path)) || m.Work(int(node.Size()>>4)) {
		return true
	}
	commit := func(path []value.Value) bool {
		return !m.Alloc(eval.ValueBytes*len(path)) || m.Push(m.CheckSize(value.Array(slices.Clone(path)...)))
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
		met := slices.ContainsFunc(path, func(p value.Value) bool { return m.Equal(p, n) })
		if m.Err != nil || met && commit(path) || !met && m.follow(graph, n, slices.Clip(path)) {
			return true
		}
	}
	return false
}

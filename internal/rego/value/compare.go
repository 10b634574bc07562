package value

import (
	"cmp"
	"strings"
)

// Compare compares two values in Rego's order: by type (null, boolean, number, string, array,
// object, set), then by value. Numbers compare by value (1 == 1.0).
func Compare(a, b Value) int {
	if a.k != b.k {
		return cmp.Compare(a.k, b.k)
	}
	switch a.k {
	case BoolKind:
		return cmp.Compare(a.n, b.n)
	case NumberKind:
		return compareNumbers(a, b)
	case StringKind:
		return strings.Compare(a.str(), b.str())
	case ArrayKind, SetKind:
		return compareElems(a, b)
	case ObjectKind:
		return compareObjects(a, b)
	}
	return 0
}

func compareElems(a, b Value) int {
	if a.p == b.p && a.n == b.n {
		return 0
	}
	x, y := a.elems(), b.elems()
	for i := range min(len(x), len(y)) {
		if c := Compare(x[i], y[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

func compareObjects(a, b Value) int {
	if a.p == b.p {
		return 0
	}
	for i := range min(a.Len(), b.Len()) {
		x, y := a.Pair(i), b.Pair(i)
		if c := Compare(x.K, y.K); c != 0 {
			return c
		}
		if c := Compare(x.V, y.V); c != 0 {
			return c
		}
	}
	return cmp.Compare(a.Len(), b.Len())
}

// Equal reports whether a and b are equal in Rego. Undefined equals undefined.
func Equal(a, b Value) bool {
	if a.k != b.k {
		return false
	}
	switch a.k {
	case BoolKind:
		return a.n == b.n
	case NumberKind:
		return compareNumbers(a, b) == 0
	case StringKind:
		return a.n == b.n && a.str() == b.str()
	case ArrayKind, SetKind:
		return equalElems(a, b)
	case ObjectKind:
		return equalObjects(a, b)
	}
	return true
}

func equalElems(a, b Value) bool {
	x, y := a.elems(), b.elems()
	if len(x) != len(y) {
		return false
	}
	if a.p == b.p {
		return true
	}
	for i := range x {
		if !Equal(x[i], y[i]) {
			return false
		}
	}
	return true
}

func equalObjects(a, b Value) bool {
	if a.p == b.p {
		return true
	}
	x, y := a.obj(), b.obj()
	if len(x.mem) != len(y.mem) {
		return false
	}
	for i := range x.mem {
		j := y.lookup(x.mem[i].K)
		if j < 0 || !Equal(x.mem[i].V, y.mem[j].V) {
			return false
		}
	}
	return true
}

package value

import (
	"errors"
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"
)

// ErrConflict means that an object would have two different values for one key.
var ErrConflict = errors.New("object keys must be unique")

// indexFrom is the number of members from which an object has a map as index.
const indexFrom = 17

// object keeps its members in the order in which they were decoded. Its sorted order and its index
// are built at the first use, because the objects of a request rarely need them.
type object struct {
	mem   []Pair
	order atomic.Pointer[[]uint32]
	index atomic.Pointer[map[string]uint32]
}

func (v Value) obj() *object { return (*object)(v.p) }

func objectOf(o *object) Value {
	w := uint32(2)
	for i := range o.mem {
		w = addSize(addSize(w, o.mem[i].K.Size()), o.mem[i].V.Size())
	}
	return Value{k: ObjectKind, p: unsafe.Pointer(o), w: w}
}

// Object returns an object with string keys in the given order. The last of equal keys counts;
// undefined members are left out.
func Object(members ...Member) Value {
	o := room(len(members))
	mem := o.mem
	var seen map[string]int
	if len(members) >= indexFrom {
		seen = make(map[string]int, len(members))
	}
	for _, m := range members {
		if m.Value.k == UndefinedKind {
			continue
		}
		at := -1
		if seen != nil {
			if i, ok := seen[m.Key]; ok {
				at = i
			} else {
				seen[m.Key] = len(mem)
			}
		} else {
			at = scan(mem, m.Key)
		}
		if at >= 0 {
			mem[at].V = m.Value
			continue
		}
		mem = append(mem, Pair{String(m.Key), m.Value})
	}
	o.mem = mem
	return objectOf(o)
}

// room returns an empty object with capacity for n members. A small object, like most in a request,
// is in one piece of memory with its members.
func room(n int) *object {
	switch n {
	case 0:
		return new(object)
	case 1:
		o := new(struct {
			object
			few [1]Pair
		})
		o.mem = o.few[:0]
		return &o.object
	case 2:
		o := new(struct {
			object
			few [2]Pair
		})
		o.mem = o.few[:0]
		return &o.object
	case 3:
		o := new(struct {
			object
			few [3]Pair
		})
		o.mem = o.few[:0]
		return &o.object
	case 4, 5:
		o := new(struct {
			object
			few [5]Pair
		})
		o.mem = o.few[:0]
		return &o.object
	case 6, 7, 8:
		o := new(struct {
			object
			few [8]Pair
		})
		o.mem = o.few[:0]
		return &o.object
	case 9, 10, 11, 12:
		o := new(struct {
			object
			few [12]Pair
		})
		o.mem = o.few[:0]
		return &o.object
	}
	return &object{mem: make([]Pair, 0, n)}
}

// ObjectOf returns an object of pairs with keys of any kind. It keeps and reorders pairs. Equal keys
// with equal values become one member; with different values the error is ErrConflict.
func ObjectOf(pairs []Pair) (Value, error) {
	sortPairs(pairs)
	out := pairs[:0]
	for i := range pairs {
		if n := len(out); n > 0 && Equal(out[n-1].K, pairs[i].K) {
			if !Equal(out[n-1].V, pairs[i].V) {
				return Value{}, ErrConflict
			}
			continue
		}
		out = append(out, pairs[i])
	}
	return objectOf(&object{mem: out}), nil
}

// LastOf returns an object of pairs that are sorted by key. The last of equal keys counts.
func LastOf(pairs []Pair) Value {
	out := pairs[:0]
	for i := range pairs {
		if n := len(out); n > 0 && Equal(out[n-1].K, pairs[i].K) {
			out[n-1] = pairs[i]
			continue
		}
		out = append(out, pairs[i])
	}
	return objectOf(&object{mem: out})
}

// LiteralOf returns the object of an object literal with these pairs, whose keys may be of any kind.
// It keeps and reorders pairs. For equal keys, the first spelling (a number has several) and the
// last value count.
func LiteralOf(pairs []Pair) Value {
	sortPairs(pairs)
	for i := 1; i < len(pairs); i++ {
		if Equal(pairs[i-1].K, pairs[i].K) {
			pairs[i].K = pairs[i-1].K
		}
	}
	return LastOf(pairs)
}

func sortPairs(pairs []Pair) {
	if !slices.IsSortedFunc(pairs, comparePairs) {
		slices.SortStableFunc(pairs, comparePairs)
	}
}

func comparePairs(a, b Pair) int { return Compare(a.K, b.K) }

// SetOf returns a set. It keeps and reorders elems.
func SetOf(elems []Value) Value {
	if !slices.IsSortedFunc(elems, Compare) {
		slices.SortStableFunc(elems, Compare)
	}
	return SortedSet(slices.CompactFunc(elems, Equal))
}

// SortedSet returns a set of elements that are already sorted and unique. It keeps elems.
func SortedSet(elems []Value) Value {
	return Value{k: SetKind, n: len(elems), p: unsafe.Pointer(unsafe.SliceData(elems)), w: sizeOf(elems)}
}

// With returns a copy of v with the member key set to val. If val is undefined, it removes the
// member. If v is not an object, it starts with an empty one.
func (v Value) With(key string, val Value) Value {
	var old []Pair
	at := -1
	if v.k == ObjectKind {
		old, at = v.obj().mem, v.obj().find(key)
	}
	if val.k == UndefinedKind {
		if at < 0 {
			if v.k == ObjectKind {
				return v
			}
			return objectOf(&object{})
		}
		mem := make([]Pair, 0, len(old)-1)
		return objectOf(&object{mem: append(append(mem, old[:at]...), old[at+1:]...)})
	}
	mem := make([]Pair, len(old), len(old)+1)
	copy(mem, old)
	if at >= 0 {
		mem[at].V = val
	} else {
		mem = append(mem, Pair{String(key), val})
	}
	return objectOf(&object{mem: mem})
}

// Without returns v without the member key. A value that does not have it is returned as it is.
func Without(v Value, key string) Value {
	if !v.Get(key).Defined() {
		return v
	}
	return v.With(key, Value{})
}

// Pairs returns the members of an object in Rego's order; nil if v is not an object. The caller must
// not change the slice.
func (v Value) Pairs() []Pair {
	if v.k != ObjectKind {
		return nil
	}
	o := v.obj()
	order := o.sorted()
	if order == nil {
		return o.mem
	}
	out := make([]Pair, len(order))
	for i, at := range order {
		out[i] = o.mem[at]
	}
	return out
}

// Pair returns member i of an object in Rego's order, without the copy that Pairs makes.
func (v Value) Pair(i int) Pair {
	o := v.obj()
	if order := o.sorted(); order != nil {
		return o.mem[order[i]]
	}
	return o.mem[i]
}

// sorted returns the order of the members by key; nil if they are stored in that order.
func (o *object) sorted() []uint32 {
	if p := o.order.Load(); p != nil {
		return *p
	}
	var order []uint32
	if !slices.IsSortedFunc(o.mem, comparePairs) {
		order = make([]uint32, len(o.mem))
		for i := range order {
			order[i] = uint32(i)
		}
		slices.SortFunc(order, func(a, b uint32) int { return Compare(o.mem[a].K, o.mem[b].K) })
	}
	o.order.Store(&order)
	return order
}

// find returns the index of a string key, or -1.
func (o *object) find(key string) int {
	if len(o.mem) < indexFrom {
		return scan(o.mem, key)
	}
	p := o.index.Load()
	if p == nil {
		m := make(map[string]uint32, len(o.mem))
		for i := range o.mem {
			if o.mem[i].K.k == StringKind {
				m[o.mem[i].K.str()] = uint32(i)
			}
		}
		p = &m
		o.index.Store(p)
	}
	if i, ok := (*p)[key]; ok {
		return int(i)
	}
	return -1
}

func scan(mem []Pair, key string) int {
	for i := range mem {
		if k := &mem[i].K; k.n == len(key) && k.k == StringKind && k.str() == key {
			return i
		}
	}
	return -1
}

// lookup returns the index of a key of any kind, or -1.
func (o *object) lookup(k Value) int {
	if k.k == StringKind {
		return o.find(k.str())
	}
	if len(o.mem) < indexFrom {
		for i := range o.mem {
			if o.mem[i].K.k == k.k && Equal(o.mem[i].K, k) {
				return i
			}
		}
		return -1
	}
	order := o.sorted()
	at := func(i int) int {
		if order == nil {
			return i
		}
		return int(order[i])
	}
	i := sort.Search(len(o.mem), func(i int) bool { return Compare(o.mem[at(i)].K, k) >= 0 })
	if i < len(o.mem) && Equal(o.mem[at(i)].K, k) {
		return at(i)
	}
	return -1
}

// findIn returns the index of k among the elements of a set.
func findIn(elems []Value, k Value) (int, bool) {
	if len(elems) <= 8 {
		for i := range elems {
			if elems[i].k == k.k && Equal(elems[i], k) {
				return i, true
			}
		}
		return 0, false
	}
	return slices.BinarySearchFunc(elems, k, Compare)
}

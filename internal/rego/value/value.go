// Package value has JSON values as Rego sees them. They are immutable, compact, and fast to decode,
// compare and write. The whole decision path uses them: requests are strictly decoded to them,
// controls are evaluated on them, and cache keys are made from them.
package value

import (
	"math"
	"strconv"
	"unsafe"
)

// Kind is the type of a value, in the order in which Rego sorts types.
type Kind uint8

// The kinds. The zero Value is Undefined: absent, not null.
const (
	UndefinedKind Kind = iota
	NullKind
	BoolKind
	NumberKind
	StringKind
	ArrayKind
	ObjectKind
	SetKind
)

// String returns the kind's name like Rego's type_name.
func (k Kind) String() string {
	switch k {
	case NullKind:
		return "null"
	case BoolKind:
		return "boolean"
	case NumberKind:
		return "number"
	case StringKind:
		return "string"
	case ArrayKind:
		return "array"
	case ObjectKind:
		return "object"
	case SetKind:
		return "set"
	}
	return "undefined"
}

// Value is an immutable JSON value or Rego set. It takes three words, is cheap to copy, and is safe
// for concurrent use. The zero Value is undefined.
//
// The kind gives the meaning of the pointer and the word. String: its bytes and length. Number: nil
// and an int64, or a *number. Array and set: the first element and the length. Object: an *object.
// Compared with an interface that holds Go types, this halves the cost of a decision.
type Value struct {
	p unsafe.Pointer
	n int
	k Kind
	w uint32 // of arrays, objects and sets: see Size
}

// The word must hold an int64: this does not compile on a 32-bit machine.
const _ = uint64(math.MaxInt - math.MaxInt64)

// Member is one member of an object with a string key.
type Member struct {
	Key   string
	Value Value
}

// Pair is one member of an object with a key of any kind, as Rego allows.
type Pair struct{ K, V Value }

// Null returns null.
func Null() Value { return Value{k: NullKind} }

// Bool returns a boolean.
func Bool(b bool) Value {
	if b {
		return Value{k: BoolKind, n: 1}
	}
	return Value{k: BoolKind}
}

// Int returns an integer.
func Int(i int64) Value { return Value{k: NumberKind, n: int(i)} }

// String returns a string. It keeps s, which must not alias a buffer that is used again.
func String(s string) Value {
	return Value{k: StringKind, n: len(s), p: unsafe.Pointer(unsafe.StringData(s))}
}

// Array returns an array. It keeps elems, which the caller must not change afterwards. Undefined
// elements become null.
func Array(elems ...Value) Value {
	for i := range elems {
		if elems[i].k == UndefinedKind {
			elems[i] = Null()
		}
	}
	return arrayOf(elems)
}

func arrayOf(elems []Value) Value {
	return Value{k: ArrayKind, n: len(elems), p: unsafe.Pointer(unsafe.SliceData(elems)), w: sizeOf(elems)}
}

func sizeOf(elems []Value) uint32 {
	w := uint32(2)
	for i := range elems {
		w = addSize(w, elems[i].Size())
	}
	return w
}

func addSize(a, b uint32) uint32 {
	if a+b < a {
		return math.MaxUint32
	}
	return a + b
}

// Size returns about how many bytes v takes as JSON, at most 4 GiB, with shared parts counted each
// time. The size is stored in the value, so that a value with many shared parts can be refused
// before anything walks it.
func (v Value) Size() uint32 {
	switch v.k {
	case ArrayKind, ObjectKind, SetKind:
		return v.w
	case StringKind:
		return uint32(min(v.n+3, math.MaxUint32))
	}
	return 8
}

// Kind returns the value's type.
func (v Value) Kind() Kind { return v.k }

// Defined reports whether v is not undefined.
func (v Value) Defined() bool { return v.k != UndefinedKind }

// IsNull reports whether v is null.
func (v Value) IsNull() bool { return v.k == NullKind }

// Str returns the content of a string. The result is false if v is not a string.
func (v Value) Str() (string, bool) {
	if v.k != StringKind {
		return "", false
	}
	return v.str(), true
}

func (v Value) str() string { return unsafe.String((*byte)(v.p), v.n) }

// Bool returns the value of a boolean. ok is false if v is not a boolean.
func (v Value) Bool() (b, ok bool) { return v.n != 0, v.k == BoolKind }

// True reports whether v is true.
func (v Value) True() bool { return v.k == BoolKind && v.n != 0 }

// False reports whether v is false.
func (v Value) False() bool { return v.k == BoolKind && v.n == 0 }

// Len returns the number of elements or members, or the bytes of a string; 0 for other kinds.
func (v Value) Len() int {
	switch v.k {
	case StringKind, ArrayKind, SetKind:
		return v.n
	case ObjectKind:
		return len(v.obj().mem)
	}
	return 0
}

// Index returns element i of an array, or of a set in Rego's order; undefined if there is none.
func (v Value) Index(i int) Value {
	e := v.elems()
	if uint(i) >= uint(len(e)) {
		return Value{}
	}
	return e[i]
}

// Elems returns the elements of an array, or of a set in Rego's order; nil for other kinds. The
// caller must not change the slice.
func (v Value) Elems() []Value { return v.elems() }

func (v Value) elems() []Value {
	if v.k == ArrayKind || v.k == SetKind {
		return unsafe.Slice((*Value)(v.p), v.n)
	}
	return nil
}

// Get returns the member of an object with this key; undefined if there is none, or if v is not an
// object.
func (v Value) Get(key string) Value {
	if v.k != ObjectKind {
		return Value{}
	}
	if i := v.obj().find(key); i >= 0 {
		return v.obj().mem[i].V
	}
	return Value{}
}

// At returns the value at a path of member names, and of decimal indices in arrays; undefined if
// there is none.
func (v Value) At(path ...string) Value {
	for _, p := range path {
		if v.k == ArrayKind {
			i, err := strconv.Atoi(p)
			if err != nil {
				return Value{}
			}
			v = v.Index(i)
			continue
		}
		v = v.Get(p)
	}
	return v
}

// Members returns the value at a path of member names; undefined if there is none. It follows only
// objects, as Rego does for strings: "0" is not an index of an array.
func (v Value) Members(path ...string) Value {
	for _, p := range path {
		v = v.Get(p)
	}
	return v
}

// Lookup returns Rego's v[k]: an element of an array, a member of an object, or k itself if the set
// v contains it; undefined if there is none.
func (v Value) Lookup(k Value) Value {
	switch v.k {
	case ObjectKind:
		if i := v.obj().lookup(k); i >= 0 {
			return v.obj().mem[i].V
		}
	case ArrayKind:
		if i, ok := k.Integer(); ok && uint64(i) < uint64(v.n) {
			return v.elems()[i]
		}
	case SetKind:
		if i, ok := findIn(v.elems(), k); ok {
			return v.elems()[i]
		}
	}
	return Value{}
}

// Has reports whether a set contains k.
func (v Value) Has(k Value) bool {
	if v.k != SetKind {
		return false
	}
	_, ok := findIn(v.elems(), k)
	return ok
}

// Each calls fn for the members of an object in the order in which they were decoded, until fn
// returns false. It skips members whose key is not a string.
func (v Value) Each(fn func(key string, val Value) bool) {
	if v.k != ObjectKind {
		return
	}
	for i := range v.obj().mem {
		if m := &v.obj().mem[i]; m.K.k == StringKind && !fn(m.K.str(), m.V) {
			return
		}
	}
}

// Same reports whether a and b are certainly equal, without reading their content: they are equal
// scalars, or arrays, objects or sets that share their storage. False says nothing.
func Same(a, b Value) bool {
	if a.k != b.k {
		return false
	}
	if a.k == StringKind {
		return a.str() == b.str()
	}
	return a == b
}

// Package value holds JSON values as Rego sees them: immutable, compact and
// quick to decode, compare and write. It is the one representation on the
// decision path: requests are decoded into it strictly, controls are evaluated
// over it, cache keys are made from it.
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

// String is the kind's name as Rego's type_name gives it.
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

// Value is an immutable JSON value or Rego set. It is three words, copied
// freely and safe for concurrent use. The zero Value is undefined.
//
// The pointer and the word mean, by kind: string: its bytes and length; number:
// nil and an int64, or a *number; array and set: the first element and the length;
// object: an *object. Keeping them untagged by an interface halves the
// cost of a decision against a tagged union of Go types.
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

// Null is JSON's null.
func Null() Value { return Value{k: NullKind} }

// Bool is a boolean.
func Bool(b bool) Value {
	if b {
		return Value{k: BoolKind, n: 1}
	}
	return Value{k: BoolKind}
}

// Int is a number that is an integer.
func Int(i int64) Value { return Value{k: NumberKind, n: int(i)} }

// String is a string. It keeps s, which therefore must not alias a buffer that is used again.
func String(s string) Value {
	return Value{k: StringKind, n: len(s), p: unsafe.Pointer(unsafe.StringData(s))}
}

// Array is an array. It keeps elems: the caller must not change them afterwards.
// An undefined element becomes null.
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

// Size is about how many bytes v takes as JSON, with every shared part counted
// each time; it stops at 4 GiB. It costs nothing: a value made of parts that
// are shared over and over has to be recognised before anyone walks it.
func (v Value) Size() uint32 {
	switch v.k {
	case ArrayKind, ObjectKind, SetKind:
		return v.w
	case StringKind:
		return uint32(min(v.n+3, math.MaxUint32))
	}
	return 8
}

// Kind is the value's type.
func (v Value) Kind() Kind { return v.k }

// Defined tells whether there is a value at all.
func (v Value) Defined() bool { return v.k != UndefinedKind }

// IsNull tells whether v is JSON's null.
func (v Value) IsNull() bool { return v.k == NullKind }

// Str is the string that v is.
func (v Value) Str() (string, bool) {
	if v.k != StringKind {
		return "", false
	}
	return v.str(), true
}

func (v Value) str() string { return unsafe.String((*byte)(v.p), v.n) }

// Bool is the boolean that v is.
func (v Value) Bool() (b, ok bool) { return v.n != 0, v.k == BoolKind }

// True tells whether v is the boolean true.
func (v Value) True() bool { return v.k == BoolKind && v.n != 0 }

// False tells whether v is the boolean false.
func (v Value) False() bool { return v.k == BoolKind && v.n == 0 }

// Len is the number of elements or members, or the bytes of a string; 0 for all else.
func (v Value) Len() int {
	switch v.k {
	case StringKind, ArrayKind, SetKind:
		return v.n
	case ObjectKind:
		return len(v.obj().mem)
	}
	return 0
}

// Index is element i of an array, or of a set in Rego's order; undefined outside of it.
func (v Value) Index(i int) Value {
	e := v.elems()
	if uint(i) >= uint(len(e)) {
		return Value{}
	}
	return e[i]
}

// Elems are the elements of an array, or of a set in Rego's order; nil for all
// else. The caller must not change them.
func (v Value) Elems() []Value { return v.elems() }

func (v Value) elems() []Value {
	if v.k == ArrayKind || v.k == SetKind {
		return unsafe.Slice((*Value)(v.p), v.n)
	}
	return nil
}

// Get is the member named key of an object; undefined where there is none or v is no object.
func (v Value) Get(key string) Value {
	if v.k != ObjectKind {
		return Value{}
	}
	if i := v.obj().find(key); i >= 0 {
		return v.obj().mem[i].V
	}
	return Value{}
}

// At follows member names, and indices written in decimal through arrays.
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

// Members follows member names through objects alone, as Rego follows strings:
// "0" is no index of an array. Undefined where a name leads nowhere.
func (v Value) Members(path ...string) Value {
	for _, p := range path {
		v = v.Get(p)
	}
	return v
}

// Lookup is what Rego's v[k] is: an array's element, an object's member or, if
// a set holds k, k itself. Undefined where there is none.
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

// Has tells whether a set holds k.
func (v Value) Has(k Value) bool {
	if v.k != SetKind {
		return false
	}
	_, ok := findIn(v.elems(), k)
	return ok
}

// Each calls fn for the members of an object in the order in which they were
// decoded, until it answers false. Members whose key is no string are passed over.
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

// Same tells, without looking inside, that a and b are one value: equal
// scalars, or arrays, objects and sets that share their storage. False says nothing.
func Same(a, b Value) bool {
	if a.k != b.k {
		return false
	}
	if a.k == StringKind {
		return a.str() == b.str()
	}
	return a == b
}

package value

import "unsafe"

// Pack copies values, with everything in them, into a few pieces of memory, in which neighbours are
// side by side. If thousands of lists of constants are read in turn, each then takes only a few
// cache lines, and only a few objects of the garbage collector. A string that is in known is not
// copied: the result uses the string in known.
func Pack(vs []Value, known map[string]string) []Value {
	p := packer{known: known}
	for _, v := range vs {
		p.count(v)
	}
	p.elems = make([]Value, 0, len(vs)+p.values)
	p.pairs = make([]Pair, 0, p.members)
	p.objects = make([]object, p.maps)
	p.text = make([]byte, 0, p.bytes)
	return p.all(vs)
}

// packer first counts the elements, and then copies them into lists that never grow, because values
// point into them.
type packer struct {
	known                        map[string]string
	values, members, maps, bytes int

	elems   []Value
	pairs   []Pair
	objects []object
	text    []byte
}

func (p *packer) count(v Value) {
	switch v.k {
	case StringKind:
		if _, ok := p.known[v.str()]; !ok {
			p.bytes += v.n
		}
	case ArrayKind, SetKind:
		p.values += v.n
		for _, e := range v.elems() {
			p.count(e)
		}
	case ObjectKind:
		p.maps++
		p.members += len(v.obj().mem)
		for i := range v.obj().mem {
			p.count(v.obj().mem[i].K)
			p.count(v.obj().mem[i].V)
		}
	}
}

func (p *packer) all(vs []Value) []Value {
	from := len(p.elems)
	p.elems = p.elems[:from+len(vs)]
	out := p.elems[from : from+len(vs) : from+len(vs)]
	for i := range vs {
		out[i] = p.one(vs[i])
	}
	return out
}

func (p *packer) one(v Value) Value {
	switch v.k {
	case StringKind:
		v.p = unsafe.Pointer(unsafe.StringData(p.string(v.str())))
	case ArrayKind, SetKind:
		v.p = unsafe.Pointer(unsafe.SliceData(p.all(v.elems())))
	case ObjectKind:
		o := &p.objects[0]
		p.objects = p.objects[1:]
		mem, from := v.obj().mem, len(p.pairs)
		p.pairs = p.pairs[:from+len(mem)]
		o.mem = p.pairs[from : from+len(mem) : from+len(mem)]
		for i := range mem {
			o.mem[i] = Pair{p.one(mem[i].K), p.one(mem[i].V)}
		}
		v.p = unsafe.Pointer(o)
	}
	return v
}

func (p *packer) string(s string) string {
	if k, ok := p.known[s]; ok {
		return k
	}
	from := len(p.text)
	p.text = append(p.text, s...)
	return unsafe.String(unsafe.SliceData(p.text[from:]), len(s))
}

// Strings calls fn for every string in v, keys included.
func (v Value) Strings(fn func(string)) {
	switch v.k {
	case StringKind:
		fn(v.str())
	case ArrayKind, SetKind:
		for _, e := range v.elems() {
			e.Strings(fn)
		}
	case ObjectKind:
		for i := range v.obj().mem {
			v.obj().mem[i].K.Strings(fn)
			v.obj().mem[i].V.Strings(fn)
		}
	}
}

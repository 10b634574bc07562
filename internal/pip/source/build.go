package source

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	// sampled is how many records a sample has, and typed how many its types are read from.
	sampled = 5
	typed   = 100
)

// builder makes one document of the records of all pages.
type builder struct {
	*plan
	records []value.Value  // with their keys, where there are keys
	keys    []string       // of records
	at      map[string]int // of keys
	// taken is how many records the pages had, and size about how large they are, as JSON.
	taken int
	size  uint64
	seen  []value.Value // the first records, for the sample
}

// newBuilder begins with the records of a document, or with none.
func newBuilder(p *plan, base value.Value) *builder {
	b := &builder{plan: p, at: map[string]int{}}
	base.Each(func(key string, record value.Value) bool {
		b.put(key, record)
		return true
	})
	return b
}

// add adds the records of a page, and says how many there are.
func (b *builder) add(doc value.Value) (int, error) {
	if b.Records == "" && b.Key == "" {
		return 1, nil
	}
	found := b.recordsOf(doc)
	for _, record := range found {
		b.taken++
		if b.Key != "" {
			key, ok := keyOf(b.key.one(record))
			if !ok {
				return 0, failf("record %d has no key at %s: a text of 1 to 500 bytes, or an integer", b.taken, b.Config.Key)
			}
			if b.isDeleted(record) {
				b.remove(key)
				continue
			}
			mapped := b.mapRecord(record)
			b.show(mapped)
			b.put(key, mapped)
		} else {
			mapped := b.mapRecord(record)
			b.show(mapped)
			b.size += uint64(mapped.Size())
			b.records = append(b.records, mapped)
		}
		if len(b.records) > MaxRecords {
			return 0, tooMany()
		}
		// A path may take one value over and over.
		if b.size > 4*MaxBytes {
			return 0, tooLarge()
		}
	}
	return len(found), nil
}

// recordsOf are the records of an answer.
func (b *builder) recordsOf(doc value.Value) []value.Value {
	found := b.plan.records.all(doc)
	if !b.plan.records.many && len(found) == 1 && found[0].Kind() == value.ArrayKind {
		return found[0].Elems()
	}
	return found
}

// put adds a record, in place of one of the same key.
func (b *builder) put(key string, record value.Value) {
	b.size += uint64(len(key)) + uint64(record.Size())
	if i, known := b.at[key]; known {
		b.size -= uint64(len(key)) + uint64(b.records[i].Size())
		b.records[i] = record
		return
	}
	b.at[key] = len(b.records)
	b.records, b.keys = append(b.records, record), append(b.keys, key)
}

// remove removes the record of a key. Its place stays, empty.
func (b *builder) remove(key string) {
	if i, known := b.at[key]; known {
		b.size -= uint64(len(key)) + uint64(b.records[i].Size())
		b.records[i] = value.Value{}
		delete(b.at, key)
	}
}

// isDeleted reports whether a record says that it was deleted.
func (b *builder) isDeleted(record value.Value) bool {
	if b.Incremental == nil || b.Incremental.Deleted == "" {
		return false
	}
	v := b.deleted.one(record)
	if n, isNumber := v.Float64(); isNumber {
		return n != 0
	}
	if text, isText := v.Str(); isText {
		return text != ""
	}
	return v.Defined() && !v.IsNull() && !v.False()
}

// document is the document of all records, in the order of their keys, and their number.
func (b *builder) document() (value.Value, int) {
	if b.Key == "" {
		return value.Array(b.records...), len(b.records)
	}
	members := make([]value.Member, 0, len(b.at))
	for key, i := range b.at {
		members = append(members, value.Member{Key: key, Value: b.records[i]})
	}
	slices.SortFunc(members, func(a, b value.Member) int { return cmp.Compare(a.Key, b.Key) })
	return value.Object(members...), len(members)
}

// mapRecord is a record with the members that were asked for.
func (p *plan) mapRecord(record value.Value) value.Value {
	if len(p.fields) == 0 {
		return record
	}
	members := make([]value.Member, len(p.fields))
	for i, f := range p.fields {
		members[i] = value.Member{Key: f.name, Value: f.from.one(record)} // undefined: no member
	}
	return value.Object(members...)
}

// keyOf is the key that a value makes.
func keyOf(v value.Value) (string, bool) {
	if text, ok := v.Str(); ok {
		return text, text != "" && len(text) <= 500
	}
	if n, ok := v.Integer(); ok {
		return strconv.FormatInt(n, 10), true
	}
	return "", false
}

// show notes a record for the sample.
func (b *builder) show(record value.Value) {
	if len(b.seen) < typed {
		b.seen = append(b.seen, record)
	}
}

// sample are the first records, cut, and the members of more of them.
func (b *builder) sample() ([]value.Value, []Field) {
	types, out := map[string]string{}, []value.Value{}
	for i, record := range b.seen {
		if i < sampled {
			out = append(out, brief(record, 0))
		}
		record.Each(func(name string, v value.Value) bool {
			switch kind := v.Kind().String(); {
			case types[name] == "" && len(types) < 2*maxFields:
				types[name] = kind
			case types[name] != "" && types[name] != kind:
				types[name] = "mixed"
			}
			return true
		})
	}
	fields := []Field{}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		fields = append(fields, Field{Name: name, Type: types[name]})
	}
	return out, fields
}

// brief is a value cut to what a person reads.
func brief(v value.Value, depth int) value.Value {
	const longest, most, deepest = 300, 20, 5
	switch v.Kind() {
	case value.StringKind:
		if text, _ := v.Str(); len(text) > longest {
			cut := longest
			for cut > 0 && text[cut]&0xc0 == 0x80 { // not within a character
				cut--
			}
			return value.String(text[:cut] + "…")
		}
	case value.ArrayKind:
		if depth == deepest {
			return value.String("…")
		}
		var elems []value.Value
		for _, e := range v.Elems()[:min(v.Len(), most)] {
			elems = append(elems, brief(e, depth+1))
		}
		return value.Array(elems...)
	case value.ObjectKind:
		if depth == deepest {
			return value.String("…")
		}
		var members []value.Member
		v.Each(func(name string, m value.Value) bool {
			if len(name) <= longest {
				members = append(members, value.Member{Key: name, Value: brief(m, depth+1)})
			}
			return len(members) < most
		})
		return value.Object(members...)
	}
	return v
}

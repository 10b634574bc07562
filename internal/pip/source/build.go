package source

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// sampled is how many records a sample shows. typed is how many records the types of its
	// fields are read from.
	sampled = 5
	typed   = 100
)

// builder makes one document from the records of all pages.
type builder struct {
	*plan
	records []value.Value  // an undefined one was removed
	keys    []string       // the keys of records, if there are keys
	at      map[string]int // the index in records, by key
	// taken is how many records the pages had. size is about how large the kept ones are, as JSON.
	taken int
	size  uint64
	seen  []value.Value // the first records, for the sample
}

// newBuilder returns a builder that has the records of the document base; undefined: none.
func newBuilder(p *plan, base value.Value) *builder {
	b := &builder{plan: p, at: map[string]int{}}
	base.Each(func(key string, record value.Value) bool {
		b.put(key, record)
		return true
	})
	return b
}

// add adds the records of a page, and returns how many the page has. The error is a *Failure.
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
		// The bound on answers is not enough: several fields may copy the same value.
		if b.size > 4*MaxBytes {
			return 0, tooLarge()
		}
	}
	return len(found), nil
}

// recordsOf returns the records of an answer: all values at Records, or the elements if it leads
// to one array.
func (b *builder) recordsOf(doc value.Value) []value.Value {
	found := b.plan.records.all(doc)
	if !b.plan.records.many && len(found) == 1 && found[0].Kind() == value.ArrayKind {
		return found[0].Elems()
	}
	return found
}

// put adds a record, or replaces the one with the same key.
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

// remove removes the record with a key. Its place in records stays, undefined.
func (b *builder) remove(key string) {
	if i, known := b.at[key]; known {
		b.size -= uint64(len(key)) + uint64(b.records[i].Size())
		b.records[i] = value.Value{}
		delete(b.at, key)
	}
}

// isDeleted reports whether the source marked a record as deleted: whether the value at
// Incremental.Deleted is anything but false, null, 0 or an empty text.
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

// document returns the document of all records, and their number: an object sorted by key, or an
// array if there are no keys.
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

// mapRecord returns a record with the configured fields only; without any, the record itself.
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

// keyOf returns the key for a value: a text of 1 to 500 bytes, or an integer in decimal.
func keyOf(v value.Value) (string, bool) {
	if text, ok := v.Str(); ok {
		return text, text != "" && len(text) <= 500
	}
	if n, ok := v.Integer(); ok {
		return strconv.FormatInt(n, 10), true
	}
	return "", false
}

// show keeps one of the first records for the sample.
func (b *builder) show(record value.Value) {
	if len(b.seen) < typed {
		b.seen = append(b.seen, record)
	}
}

// sample returns the first records, shortened, and the fields of the first typed records.
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

// brief returns a value shortened for a person to read: texts of at most 300 bytes, 20 elements or
// members, 5 levels.
func brief(v value.Value, depth int) value.Value {
	const longest, most, deepest = 300, 20, 5
	switch v.Kind() {
	case value.StringKind:
		text, _ := v.Str()
		return value.String(truncate.Text(text, longest, "…"))
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

package rego

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Tables are the documents that the matcher of a bundle, which is written in Rego, reads.
type Tables struct {
	// Resources has the resources by id, with their patterns as spelled and as folded.
	Resources value.Value
	// Match has the patterns by host: the shapes of the patterns, and the resource ids by key.
	Match value.Value
	// Fold has the replacements that fold a path.
	Fold value.Value
}

// Tables returns the tables for the set's resources.
func (s *Set) Tables() Tables {
	var resources []value.Member
	for _, sl := range s.sortedSlots() {
		resources = append(resources, value.Member{Key: strconv.FormatInt(sl.res.ID, 10), Value: sl.document()})
	}
	return Tables{Resources: value.Object(resources...), Match: s.matchTables(), Fold: foldTable()}
}

// foldTable returns foldTables as a document.
var foldTable = sync.OnceValue(func() value.Value {
	object := func(table map[string]string) value.Value {
		members := make([]value.Member, 0, len(table))
		for _, from := range slices.Sorted(maps.Keys(table)) {
			members = append(members, value.Member{Key: from, Value: value.String(table[from])})
		}
		return value.Object(members...)
	}
	t := folding()
	return value.Object(
		value.Member{Key: "unreserved", Value: object(t.unreserved)},
		value.Member{Key: "ascii", Value: object(t.ascii)},
		value.Member{Key: "wide", Value: object(t.wide)},
	)
})

// document returns a resource as it is in Tables.Resources.
func (s *slot) document() value.Value {
	list := func(in []string) value.Value {
		out := make([]value.Value, 0, len(in))
		for _, x := range in {
			out = append(out, value.String(x))
		}
		return value.Array(out...)
	}
	doc := s.res.Doc
	if doc.Kind() != value.ObjectKind {
		doc = value.Object()
	}
	return value.Object(
		value.Member{Key: "id", Value: value.Int(s.res.ID)},
		value.Member{Key: "name", Value: value.String(s.res.Name)},
		value.Member{Key: "type", Value: value.String(s.res.Type)},
		value.Member{Key: "host", Value: value.String(s.res.Host)},
		value.Member{Key: "path", Value: value.String(s.res.Path)},
		value.Member{Key: "methods", Value: list(s.methods)},
		value.Member{Key: "path_matching", Value: value.String(s.res.PathMatching)},
		value.Member{Key: "discovered", Value: value.Bool(s.res.Discovered)},
		value.Member{Key: "spelling", Value: list(s.segs)},
		value.Member{Key: "folded", Value: list(s.folded)},
		value.Member{Key: "audit_level", Value: value.String(s.res.AuditLevel)},
		value.Member{Key: "tags", Value: list(s.res.Tags)},
		value.Member{Key: "doc", Value: doc},
	)
}

func (s *Set) sortedSlots() []*slot {
	out := slices.DeleteFunc(slices.Clone(s.slots), func(sl *slot) bool { return sl == nil })
	slices.SortFunc(out, func(a, b *slot) int { return cmp.Compare(a.res.ID, b.res.ID) })
	return out
}

// matchTables returns the patterns in a form for Rego, which cannot walk a tree. The shape of a
// pattern says which segments are literal, and whether `**` follows. Patterns of one shape differ
// only in their literals, so a path is looked up once for each shape. The shapes are sorted from
// the most to the least specific, in the order of node.find.
func (s *Set) matchTables() value.Value {
	byHost := map[string][]*slot{"": nil}
	var all []*slot
	for _, sl := range s.sortedSlots() {
		if !sl.bad {
			byHost[sl.host] = append(byHost[sl.host], sl)
			all = append(all, sl)
		}
	}
	var shapes, keys []value.Member
	add := func(group string, slots []*slot) {
		sh, ks := shapeTable(slots)
		shapes = append(shapes, value.Member{Key: group, Value: sh})
		keys = append(keys, value.Member{Key: group, Value: ks})
	}
	add("any", all) // for requests without a host
	for _, h := range slices.Sorted(maps.Keys(byHost)) {
		add("host:"+h, byHost[h])
	}
	return value.Object(
		value.Member{Key: "shapes", Value: value.Object(shapes...)},
		value.Member{Key: "keys", Value: value.Object(keys...)},
	)
}

// shapeTable returns the shapes of a group of slots, and for each shape the resource ids by key.
func shapeTable(slots []*slot) (list, tables value.Value) {
	type shape struct {
		literal []value.Value
		rest    bool
		keys    map[string][]*slot
	}
	shapes := map[string]*shape{}
	for _, sl := range slots {
		// The letters sort in the order of node.find: a literal, `*`, the end, `**`.
		var order strings.Builder
		sh := &shape{keys: map[string][]*slot{}}
		key := make([]string, 0, len(sl.folded))
		for _, seg := range sl.folded {
			switch seg {
			case target.Rest:
				sh.rest = true
			case target.OneSegment:
				order.WriteByte('b')
				sh.literal, key = append(sh.literal, value.Bool(false)), append(key, "*")
			default:
				order.WriteByte('a')
				sh.literal, key = append(sh.literal, value.Bool(true)), append(key, seg)
			}
		}
		order.WriteByte(map[bool]byte{false: 'c', true: 'd'}[sh.rest])
		if shapes[order.String()] == nil {
			shapes[order.String()] = sh
		}
		sh = shapes[order.String()]
		at := strings.Join(key, "/")
		sh.keys[at] = insertSlot(sh.keys[at], sl)
	}
	out := make([]value.Value, 0, len(shapes))
	tabs := make([]value.Value, 0, len(shapes))
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		sh := shapes[name]
		var keys []value.Member
		for _, k := range slices.Sorted(maps.Keys(sh.keys)) {
			ids := make([]value.Value, 0, len(sh.keys[k]))
			for _, sl := range sh.keys[k] {
				ids = append(ids, value.Int(sl.res.ID))
			}
			keys = append(keys, value.Member{Key: k, Value: value.Array(ids...)})
		}
		out = append(out, value.Object(
			value.Member{Key: "literal", Value: value.Array(sh.literal...)},
			value.Member{Key: "rest", Value: value.Bool(sh.rest)},
		))
		tabs = append(tabs, value.Object(keys...))
	}
	return value.Array(out...), value.Array(tabs...)
}

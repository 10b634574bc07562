package rego

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed" // the two modules below
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

//go:embed entry.rego
var entryModule string

//go:embed rules.rego
var rulesModule string

// The files of a bundle.
const (
	manifestFile   = ".manifest"
	signaturesFile = ".signatures.json"
	indexFile      = "gatehouse/data.json"
	entryFile      = "gatehouse/decision.rego"
	rulesFile      = "gatehouse/rules.rego"
	strictFile     = "gatehouse/strict.rego"
)

// bundleRoots are what a bundle owns of an OPA's data.
var bundleRoots = []string{"gatehouse", "resources", "pip"}

// BundleSpec is what WriteBundle writes.
type BundleSpec struct {
	// Revision is the bundle's ETag and what OPA reports as active.
	Revision string
	// Set holds the controls, resources and data; of the data only what the
	// controls refer to is written.
	Set *Set
	// Meta goes into the manifest's metadata: an object, or undefined.
	Meta value.Value
	// Bouncer is the bouncer's own configuration, under gatehouse.bouncer; an
	// object, or undefined.
	Bouncer value.Value
	// Signing signs the bundle; nil leaves it unsigned.
	Signing *SigningKey
}

// WriteBundle writes an OPA bundle: a gzipped tar with a manifest, the controls
// rewritten into packages of their own, the data, and one entry point,
// data.gatehouse.decision, that gives a stock OPA the decision of Set.Decide.
// The bytes depend on nothing but the spec.
func WriteBundle(spec BundleSpec) ([]byte, error) {
	files, err := bundleFiles(spec)
	if err != nil {
		return nil, err
	}
	if spec.Signing != nil {
		sig, err := spec.Signing.sign(files)
		if err != nil {
			return nil, err
		}
		files[signaturesFile] = sig
	}
	var buf bytes.Buffer
	zip := gzip.NewWriter(&buf)
	out := tar.NewWriter(zip)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: "/" + name, Mode: 0o600, Size: int64(len(files[name])), ModTime: time.Unix(0, 0).UTC(), Format: tar.FormatUSTAR, Typeflag: tar.TypeReg}
		if err := out.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("write the bundle: %w", err)
		}
		if _, err := out.Write(files[name]); err != nil {
			return nil, fmt.Errorf("write the bundle: %w", err)
		}
	}
	if err := out.Close(); err != nil {
		return nil, fmt.Errorf("write the bundle: %w", err)
	}
	if err := zip.Close(); err != nil {
		return nil, fmt.Errorf("write the bundle: %w", err)
	}
	return buf.Bytes(), nil
}

// bundleFiles are the files by name, but for the signatures.
func bundleFiles(spec BundleSpec) (map[string][]byte, error) {
	s := spec.Set
	files := map[string][]byte{
		entryFile: []byte(entryModule),
		rulesFile: []byte(rulesModule),
	}
	strict := map[string]bool{}
	for _, c := range s.controls {
		text, err := c.bundled()
		if err != nil {
			return nil, err
		}
		for _, name := range text.strict {
			strict[name] = true
		}
		files["gatehouse/controls/"+controlKey(c.meta.ID)+".rego"] = text.control
		files["gatehouse/outcomes/"+controlKey(c.meta.ID)+".rego"] = text.outcome
		for key, library := range text.libraries {
			files["gatehouse/libraries/"+key+".rego"] = library
		}
	}
	files[strictFile] = []byte(strictModule(slices.Sorted(maps.Keys(strict))))
	index := []value.Member{{Key: "index", Value: s.index()}}
	if spec.Bouncer.Defined() {
		index = append(index, value.Member{Key: "bouncer", Value: spec.Bouncer})
	}
	files[indexFile] = value.Object(index...).AppendJSON(nil)
	for root, doc := range s.referredData() {
		files[root+"/data.json"] = doc.AppendJSON(nil)
	}
	files[manifestFile] = manifest(spec.Revision, spec.Meta, bundleRoots)
	return files, nil
}

func manifest(revision string, meta value.Value, roots []string) []byte {
	list := make([]value.Value, 0, len(roots))
	for _, r := range roots {
		list = append(list, value.String(r))
	}
	m := []value.Member{
		{Key: "revision", Value: value.String(revision)},
		{Key: "roots", Value: value.Array(list...)},
		{Key: "rego_version", Value: value.Int(1)},
	}
	if meta.Defined() {
		m = append(m, value.Member{Key: "metadata", Value: meta})
	}
	return value.Object(m...).AppendJSON(nil)
}

// index is data.gatehouse.index: the controls' names and sources, which
// controls are in scope where, the resources and the matcher's tables.
func (s *Set) index() value.Value {
	controls := make([]value.Member, 0, len(s.controls))
	libraries := map[string]lang.Library{}
	for _, c := range s.controls {
		libs := c.Libraries()
		used := make([]value.Value, 0, len(libs))
		for _, l := range libs {
			libraries[libraryKey(l)] = l
			used = append(used, value.String(libraryKey(l)))
		}
		var refused value.Value
		if issues := c.Broken(); len(issues) > 0 {
			refused = value.Object(value.Member{Key: "message", Value: value.String(issues[0].Message)},
				value.Member{Key: "line", Value: value.Int(int64(issues[0].Line))}, value.Member{Key: "column", Value: value.Int(int64(issues[0].Column))})
		}
		controls = append(controls, value.Member{Key: controlKey(c.meta.ID), Value: value.Object(
			value.Member{Key: "id", Value: value.Int(c.meta.ID)},
			value.Member{Key: "name", Value: value.String(c.meta.Name)},
			value.Member{Key: "version", Value: value.Int(c.meta.Version)},
			value.Member{Key: "resource_id", Value: value.Int(c.meta.ResourceID)},
			value.Member{Key: "source", Value: value.String(c.source)},
			value.Member{Key: "refused", Value: refused},
			value.Member{Key: "libraries", Value: value.Array(used...)},
		)})
	}
	var resources, scope []value.Member
	for _, sl := range s.sortedSlots() {
		key := strconv.FormatInt(sl.res.ID, 10)
		resources = append(resources, value.Member{Key: key, Value: sl.value()})
		if own := s.linked[sl.res.ID]; len(own) > 0 {
			scope = append(scope, value.Member{Key: key, Value: controlKeys(mergeByID(s.global, own))})
		}
	}
	return value.Object(
		value.Member{Key: "env", Value: value.String(s.env)},
		value.Member{Key: "revision", Value: value.Int(s.revision)},
		value.Member{Key: "controls", Value: value.Object(controls...)},
		value.Member{Key: "libraries", Value: libraryIndex(libraries)},
		value.Member{Key: "global", Value: controlKeys(s.global)},
		value.Member{Key: "scope", Value: value.Object(scope...)},
		value.Member{Key: "resources", Value: value.Object(resources...)},
		value.Member{Key: "match", Value: s.matchTables()},
		value.Member{Key: "fold", Value: foldIndex()},
		value.Member{Key: "strictness", Value: strictnessTable()},
	)
}

// foldIndex is what folding replaces, for the entry point.
var foldIndex = sync.OnceValue(func() value.Value {
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

func libraryIndex(libraries map[string]lang.Library) value.Value {
	var list []value.Member
	for _, key := range slices.Sorted(maps.Keys(libraries)) {
		l := libraries[key]
		list = append(list, value.Member{Key: key, Value: value.Object(
			value.Member{Key: "id", Value: value.Int(l.ID)},
			value.Member{Key: "name", Value: value.String(l.Name)},
			value.Member{Key: "version", Value: value.Int(l.Version)},
			value.Member{Key: "source", Value: value.String(l.Source)},
		)})
	}
	return value.Object(list...)
}

func strictnessTable() value.Value {
	var m []value.Member
	for _, name := range []string{lang.StrategyLast4, lang.StrategyHash, lang.StrategyRedact, lang.StrategyRemove} {
		m = append(m, value.Member{Key: name, Value: value.Int(int64(lang.Strictness(name)))})
	}
	return value.Object(m...)
}

func controlKeys(list []*Control) value.Value {
	keys := make([]value.Value, 0, len(list))
	for _, c := range list {
		keys = append(keys, value.String(controlKey(c.meta.ID)))
	}
	return value.Array(keys...)
}

// value is a resource as a bundle holds it.
func (s *slot) value() value.Value {
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

// matchTables are the matcher for Rego, which cannot walk a tree. Patterns of
// one shape (which segments are literal, and whether `**` follows) differ only
// in their literals, so a path is looked up once a shape: the shapes stand
// from the most to the least specific, in the order that node.find walks.
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
	add("any", all) // for requests that name no host
	for _, h := range slices.Sorted(maps.Keys(byHost)) {
		add("host:"+h, byHost[h])
	}
	return value.Object(
		value.Member{Key: "shapes", Value: value.Object(shapes...)},
		value.Member{Key: "keys", Value: value.Object(keys...)},
	)
}

// shapeTable are the shapes of a group, and for each the ids by key.
func shapeTable(slots []*slot) (list, tables value.Value) {
	type shape struct {
		literal []value.Value
		rest    bool
		keys    map[string][]*slot
	}
	shapes := map[string]*shape{}
	for _, sl := range slots {
		// The letters sort as node.find walks: literal, one, the end, the rest.
		var order strings.Builder
		sh := &shape{keys: map[string][]*slot{}}
		key := make([]string, 0, len(sl.folded))
		for _, seg := range sl.folded {
			switch seg {
			case theRest:
				sh.rest = true
			case oneSegment:
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

// referredData is what the controls refer to of data.resources and data.pip,
// by root.
func (s *Set) referredData() map[string]value.Value {
	refs := make([]lang.Refs, 0, len(s.controls))
	for _, c := range s.controls {
		refs = append(refs, c.Refs())
	}
	out := map[string]value.Value{}
	for _, p := range lang.UniteRefs(refs...).Data {
		v := s.Data(p)
		if !v.Defined() {
			continue
		}
		// Only two levels are cut out; below that a document is whole.
		switch len(p) {
		case 1:
			out[p[0]] = v
		default:
			root := out[p[0]]
			if !root.Defined() {
				root = value.Object()
			}
			out[p[0]] = root.With(p[1], s.Data(p[:2]))
		}
	}
	return out
}

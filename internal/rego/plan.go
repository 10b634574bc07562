package rego

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// plan holds what is needed to decide requests to one resource: the controls in scope, and what
// they read. It is built at the first request and then kept.
type plan struct {
	res       *target.Resource // nil if no resource matched
	controls  []*Control
	own       [1]*Control // backs controls if there is only one
	cacheable bool
	readsData bool
	// readsResource says that some control reads below input.resource. Otherwise a decision does
	// not touch the resource's document, which may be in none of the processor's caches.
	readsResource bool
	reads         []readPath
	refs          lang.Refs // of all controls together
	// identity is the digest of everything that the decision depends on besides the request. Equal
	// identities and equal values at the paths in reads give equal decisions, in any set, revision
	// or tenant.
	identity [32]byte
	_        [32]byte // fills cache lines, so that the fields above start one
}

// part is a member of input.
type part uint8

const (
	partAll part = iota
	partUser
	partAction
	partResource
	partContext
	partExtra
)

// inputPath is a path below input that a plan reads, split into its part of input and the rest.
type inputPath struct {
	part part
	rest []string // below the part; for partExtra with the member's name first
	path bool     // it covers input.resource.path, which is normalised
}

// planOf returns the plan for a slot; a nil slot means no resource.
func (s *Set) planOf(sl *slot) *plan {
	at := &s.noPlan
	if sl != nil {
		at = &s.plans[sl.index]
	}
	if p := at.Load(); p != nil {
		return p
	}
	// Two callers may build it at once, with the same result.
	p := s.newPlan(sl)
	at.Store(p)
	return p
}

func (s *Set) newPlan(sl *slot) *plan {
	p := &plan{cacheable: true, controls: s.global}
	if sl != nil {
		p.res = sl.res
		if own := s.linked[sl.res.ID]; len(own) > 0 {
			p.controls = mergeByID(s.global, own)
		}
	}
	if len(p.controls) == 1 { // share the lists of the only control
		c := p.controls[0]
		p.own[0] = c
		p.controls = p.own[:]
		p.refs, p.reads = c.Refs(), c.reads
	} else {
		p.unite()
	}
	p.cacheable = p.refs.Cacheable()
	p.readsData = len(p.refs.Data) > 0
	p.readsResource = slices.ContainsFunc(p.reads, func(in readPath) bool { return in.part == partAll || in.part == partResource })
	p.identity = s.identity(p)
	return p
}

// unite sets refs and reads from what the plan's controls read.
func (p *plan) unite() {
	refs := make([]lang.Refs, len(p.controls))
	for i, c := range p.controls {
		refs[i] = c.Refs()
	}
	p.refs = lang.UniteRefs(refs...)
	p.reads = readPaths(p.refs.Input)
}

// mergeByID merges two lists that are sorted by id.
func mergeByID(a, b []*Control) []*Control {
	out := make([]*Control, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if compareControls(a[0], b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

func newInputPath(path []string) inputPath {
	if len(path) == 0 {
		return inputPath{part: partAll, path: true}
	}
	p := inputPath{rest: path[1:]}
	switch path[0] {
	case "user":
		p.part = partUser
	case "action":
		p.part = partAction
	case "resource":
		p.part = partResource
		p.path = len(path) == 1 || path[1] == "path"
	case "context":
		p.part = partContext
	default:
		p.part, p.rest = partExtra, path
	}
	return p
}

// identity digests the controls, the resource and the data that the controls read. Each list is
// prefixed with its length, and the values are exactly those that controls see.
func (s *Set) identity(p *plan) [32]byte {
	h := sha256.New()
	key := binary.BigEndian.AppendUint64(nil, uint64(len(p.controls)))
	for _, c := range p.controls {
		key = append(key, c.sum[:]...)
	}
	h.Write(key)
	key = append(key[:0], 'n')
	if p.res != nil {
		key = binary.BigEndian.AppendUint64(append(key[:0], 'r'), uint64(p.res.ID))
		key = p.res.Doc.AppendExact(key)
	}
	h.Write(key)
	for _, path := range p.refs.Data {
		if len(path) == 0 || len(path) == 1 && path[0] == "resources" {
			s.allResources()
			h.Write(s.resourcesSum[:])
			if len(path) == 1 {
				continue
			}
			path = []string{"pip"}
		}
		key = binary.BigEndian.AppendUint64(append(key[:0], 'd'), uint64(len(path)))
		for _, name := range path {
			key = value.String(name).AppendExact(key)
		}
		if path[0] == "pip" {
			sum := s.sumOf(path)
			h.Write(append(key, sum[:]...))
			continue
		}
		h.Write(s.Data(path).AppendExact(key))
	}
	return [32]byte(h.Sum(nil))
}

// appendKey appends the key of a cached decision: the plan's identity, and what the plan reads of
// a request. Every value is prefixed with its type and length, and two values have the same
// encoding only if no control can tell them apart. So two requests that differ in a value that is
// read never have the same key. Values are looked up as controls look them up: a name leads
// through objects only.
func (p *plan) appendKey(dst []byte, r *Request, path string) []byte {
	dst = append(dst, p.identity[:]...)
	for i := range p.reads {
		in := &p.reads[i]
		switch in.part {
		case partAll:
			dst = r.User.AppendExact(dst)
			dst = r.Action.AppendExact(dst)
			dst = r.Resource.AppendExact(dst)
			dst = r.Context.AppendExact(dst)
			dst = r.Extra.AppendExact(dst)
		case partUser:
			dst = r.User.Members(in.rest...).AppendExact(dst)
		case partAction:
			dst = r.Action.Members(in.rest...).AppendExact(dst)
		case partResource:
			dst = r.Resource.Members(in.rest...).AppendExact(dst)
		case partContext:
			dst = r.Context.Members(in.rest...).AppendExact(dst)
		case partExtra:
			dst = r.Extra.Members(in.rest...).AppendExact(dst)
		}
		if in.path {
			dst = binary.AppendUvarint(dst, uint64(len(path)))
			dst = append(dst, path...)
		}
	}
	return dst
}

// input returns the document that the controls see: the request's parts, with the given resource
// as input.resource.
func input(r *Request, resource value.Value) value.Value {
	members := make([]value.Member, 0, 8)
	add := func(key string, v value.Value) {
		if v.Defined() {
			members = append(members, value.Member{Key: key, Value: v})
		}
	}
	add("user", r.User)
	add("action", r.Action)
	add("resource", resource)
	add("context", r.Context)
	r.Extra.Each(func(key string, v value.Value) bool {
		if newInputPath([]string{key}).part == partExtra {
			add(key, v)
		}
		return true
	})
	return value.Object(members...)
}

// mergeResource merges the matched resource's document into the resource as sent. Registered
// values take precedence over the caller's, except for id and path: these identify the instance,
// while the document has the pattern. Attributes are merged member by member. If path is not
// empty, it replaces the path.
func (p *plan) mergeResource(sent value.Value, path string) value.Value {
	if p.res == nil && path == "" {
		return sent
	}
	if sent.Kind() != value.ObjectKind {
		sent = value.Object()
	}
	doc := value.Object()
	if p.res != nil && p.res.Doc.Kind() == value.ObjectKind {
		doc = p.res.Doc
	}
	var room [16]value.Member // keeps the list off the heap: the object copies it
	members := room[:0]
	sent.Each(func(key string, v value.Value) bool {
		if key == "path" && path != "" {
			return true
		}
		if key != "id" && key != "path" {
			if d := doc.Get(key); d.Defined() {
				if key == "attributes" {
					d = mergeObjects(v, d)
				}
				v = d
			}
		}
		members = append(members, value.Member{Key: key, Value: v})
		return true
	})
	if path != "" {
		members = append(members, value.Member{Key: "path", Value: value.String(path)})
	}
	doc.Each(func(key string, d value.Value) bool {
		if !sent.Get(key).Defined() && !(key == "path" && path != "") {
			members = append(members, value.Member{Key: key, Value: d})
		}
		return true
	})
	return value.Object(members...)
}

// mergeObjects returns over, completed by the members that only under has.
func mergeObjects(under, over value.Value) value.Value {
	if under.Kind() != value.ObjectKind || over.Kind() != value.ObjectKind {
		return over
	}
	members := make([]value.Member, 0, under.Len()+over.Len())
	under.Each(func(key string, v value.Value) bool {
		if !over.Get(key).Defined() {
			members = append(members, value.Member{Key: key, Value: v})
		}
		return true
	})
	over.Each(func(key string, v value.Value) bool {
		members = append(members, value.Member{Key: key, Value: v})
		return true
	})
	return value.Object(members...)
}

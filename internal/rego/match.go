package rego

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unique"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// slot is a resource in a set.
type slot struct {
	res     *target.Resource // points to own, next to the other parts that a decision reads
	index   int
	exact   bool     // it covers only paths that are spelled like the pattern
	bad     bool     // its pattern is invalid: it is found by id only
	segs    []string // the pattern as spelled; `**` if the resource has none
	folded  []string // the pattern with its literals folded
	own     target.Resource
	methods []string // upper case
	host    string
	data    value.Value // the entry of data.resources: Doc without owner_email
	_       [48]byte    // fills cache lines, so that each slot starts one
}

func newSlot(r *target.Resource, index int) *slot {
	s := &slot{own: *r, data: value.Without(r.Doc, ownerEmail), index: index, host: canonicalHost(r.Host), exact: r.PathMatching == target.PathExact}
	s.res = &s.own
	s.own.OwnerEmail, _ = r.Doc.Get(ownerEmail).Str()
	// There are few distinct values, so one copy of each stays in the processor's caches.
	s.own.Type, s.own.AuditLevel = unique.Make(r.Type).Value(), unique.Make(r.AuditLevel).Value()
	for _, m := range r.Methods {
		if m == "*" {
			s.methods = nil
			break
		}
		s.methods = append(s.methods, strings.ToUpper(m))
	}
	if r.Path == "" {
		s.segs, s.folded = []string{target.Rest}, []string{target.Rest}
		return s
	}
	segs, err := target.ParsePattern(r.Path)
	s.segs, s.folded, s.bad = segs, foldPattern(segs), err != nil
	return s
}

// foldPattern folds the literals of a pattern; it returns segs if nothing changes.
func foldPattern(segs []string) []string {
	out := segs
	for i, seg := range segs {
		if seg == target.Rest || seg == target.OneSegment {
			continue
		}
		if f := foldPath("/" + seg).folded[1:]; f != seg {
			if &out[0] == &segs[0] {
				out = slices.Clone(segs)
			}
			out[i] = f
		}
	}
	return out
}

// isExact reports whether a canonical path that the folded pattern matches is spelled like the
// pattern.
func (s *slot) isExact(path string) bool {
	if path == "" {
		return true
	}
	rest := path[1:]
	for _, seg := range s.segs {
		if seg == target.Rest {
			return true
		}
		at, tail, _ := strings.Cut(rest, "/")
		if seg != target.OneSegment && seg != at {
			return false
		}
		rest = tail
	}
	return true
}

// literalAt reports whether the n-th segment of the pattern, from 1, is a literal.
func (s *slot) literalAt(n int) bool {
	return s != nil && len(s.folded) >= n && s.folded[n-1] != target.OneSegment && s.folded[n-1] != target.Rest
}

// covers reports whether the folded pattern matches a folded path.
func (s *slot) covers(folded string) bool {
	rest := strings.TrimPrefix(folded, "/")
	for _, seg := range s.folded {
		if seg == target.Rest {
			return true
		}
		if rest == "" {
			return false
		}
		at, tail, _ := strings.Cut(rest, "/")
		if seg != target.OneSegment && seg != at {
			return false
		}
		rest = tail
	}
	return rest == ""
}

// controlPath returns the path that the controls see for a path that the slot matched: without
// the parameters of its segments, and in the spelling of the pattern where that is literal. The
// slot may be nil.
func (s *slot) controlPath(l location) string {
	if s != nil && s.exact || l.path == "" || l.path == l.folded && (s == nil || len(s.segs) > 0 && &s.segs[0] == &s.folded[0]) {
		return l.path
	}
	bare := withoutParameters(l.path)
	if s == nil || !s.covers(l.folded) { // the request named the resource by id
		return bare
	}
	segs := strings.Split(bare[1:], "/")
	for i, seg := range s.segs {
		if i < len(segs) && seg != target.OneSegment && seg != target.Rest {
			segs[i] = seg
		}
	}
	return "/" + strings.Join(segs, "/")
}

// accepts reports whether the slot covers requests of this type, method and path. An empty type
// or method does not restrict.
func (s *slot) accepts(typ, method, path string) bool {
	if s.exact && !s.isExact(path) {
		return false
	}
	if typ != "" && s.res.Type != "" && typ != s.res.Type {
		return false
	}
	return method == "" || len(s.methods) == 0 || slices.Contains(s.methods, method)
}

// compareSlots orders slots with the same pattern, the more specific first. In this order, a slot
// comes first if it is not discovered, names a method, names a type, has no host (this matters
// only to requests without a host), or has the lower id.
func compareSlots(a, b *slot) int {
	return cmp.Or(
		cmp.Compare(flag(a.res.Discovered), flag(b.res.Discovered)),
		cmp.Compare(flag(len(a.methods) == 0), flag(len(b.methods) == 0)),
		cmp.Compare(flag(a.res.Type == ""), flag(b.res.Type == "")),
		cmp.Compare(flag(a.host != ""), flag(b.host != "")),
		cmp.Compare(a.res.ID, b.res.ID))
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// canonicalHost returns a host in lower case, without a final dot.
func canonicalHost(h string) string {
	return strings.TrimSuffix(strings.ToLower(h), ".")
}

// withoutPort cuts the port off a host; IPv6 literals stay in brackets.
func withoutPort(h string) string {
	i := strings.LastIndexByte(h, ':')
	if i < 0 || strings.HasSuffix(h, "]") {
		return h
	}
	return h[:i]
}

// node is one segment of the pattern tree. A tree is immutable once it is in a set: edits copy
// the nodes on the way to the change.
type node struct {
	lit  map[string]*node
	one  *node
	here []*slot // patterns that end here
	rest []*slot // patterns that end here with **
}

// query holds what a search in a tree needs besides the segments: the type and method, which may
// be empty, the path in its canonical form, and the controls by resource.
type query struct {
	typ, method, path string
	linked            map[int64][]*Control
	// spelled accepts only patterns that are spelled like the path.
	spelled bool
}

// yieldsToHostless reports whether resources without a host take precedence over this resource of
// the request's host.
func (q *query) yieldsToHostless(s *slot) bool {
	return s.res.Discovered && len(q.linked[s.res.ID]) == 0
}

// find returns the most specific slot for the segments of folded, which has no leading slash. At
// the first segment in which two patterns differ, a literal takes precedence over `*`, `*` over
// the end of the pattern, and the end over `**`.
func (n *node) find(folded string, q *query) *slot {
	if folded == "" {
		if s := q.pick(n.here); s != nil {
			return s
		}
		return q.pick(n.rest)
	}
	seg, tail, _ := strings.Cut(folded, "/")
	if next := n.lit[seg]; next != nil {
		if s := next.find(tail, q); s != nil {
			return s
		}
	}
	if n.one != nil {
		if s := n.one.find(tail, q); s != nil {
			return s
		}
	}
	return q.pick(n.rest)
}

// pick returns the first slot that accepts a request. For HEAD, a slot that names HEAD comes
// first, then one that covers GET, because a response to HEAD reveals part of the response to GET.
func (q *query) pick(slots []*slot) *slot {
	if len(slots) == 0 {
		return nil
	}
	method := q.method
	if method == "HEAD" {
		named := func(s *slot) bool { return len(s.methods) > 0 && s.accepts(q.typ, method, q.path) }
		if s := q.first(slots, named); s != nil {
			return s
		}
		method = "GET"
	}
	return q.first(slots, func(s *slot) bool { return s.accepts(q.typ, method, q.path) })
}

// first returns the first slot that fits. If patterns differ only in spelling, it returns the one
// that is spelled like the path.
func (q *query) first(slots []*slot, fits func(*slot) bool) *slot {
	var found *slot
	for _, s := range slots {
		if !fits(s) {
			continue
		}
		switch {
		case !q.spelled && len(slots) == 1 || s.isExact(q.path):
			return s
		case !q.spelled && found == nil:
			found = s
		}
	}
	return found
}

// add adds s to a tree in place. No set may share the tree yet.
func (n *node) add(s *slot) {
	for _, seg := range s.folded {
		switch seg {
		case target.Rest:
			n.rest = insertSlot(n.rest, s)
			return
		case target.OneSegment:
			if n.one == nil {
				n.one = &node{}
			}
			n = n.one
		default:
			if n.lit == nil {
				n.lit = map[string]*node{}
			}
			if n.lit[seg] == nil {
				n.lit[seg] = &node{}
			}
			n = n.lit[seg]
		}
	}
	n.here = insertSlot(n.here, s)
}

func insertSlot(list []*slot, s *slot) []*slot {
	i, _ := slices.BinarySearchFunc(list, s, compareSlots)
	return slices.Insert(list, i, s)
}

// edits tracks the nodes that were copied for one new set. Trees of the previous set do not
// change: a node is copied at its first change, and later changes are made in the copy. So a
// thousand changes below one node copy its parts once.
type edits map[*node]*copied

// copied says which parts of a copied node are no longer shared with the original.
type copied struct{ lit, here, rest bool }

// change returns the tree with s added or removed.
func (e edits) change(n *node, segs []string, s *slot, remove bool) *node {
	own := e[n]
	if own == nil {
		cpy := &node{}
		if n != nil {
			*cpy = *n
		}
		own, n = &copied{}, cpy
		e[n] = own
	}
	switch {
	case len(segs) == 0:
		n.here = editSlots(n.here, s, remove, &own.here)
	case segs[0] == target.Rest:
		n.rest = editSlots(n.rest, s, remove, &own.rest)
	case segs[0] == target.OneSegment:
		n.one = e.change(n.one, segs[1:], s, remove)
	default:
		if !own.lit {
			n.lit, own.lit = maps.Clone(n.lit), true
		}
		if n.lit == nil {
			n.lit = map[string]*node{}
		}
		n.lit[segs[0]] = e.change(n.lit[segs[0]], segs[1:], s, remove)
	}
	return n
}

// editSlots adds a slot to a list or removes it. It copies the list first if that is shared.
func editSlots(list []*slot, s *slot, remove bool, own *bool) []*slot {
	if !*own {
		list, *own = slices.Clone(list), true
	}
	if !remove {
		return insertSlot(list, s)
	}
	if i, found := slices.BinarySearchFunc(list, s, compareSlots); found {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// matcher finds the resource of a request. It is immutable.
type matcher struct {
	byID   map[int64]*slot
	byHost map[string]*node // "" has the resources without a host
	any    *node            // has all resources, for requests without a host
	hosted int              // number of resources with a host; at 0, any is byHost[""]
}

func newMatcher(slots []*slot) *matcher {
	m := &matcher{byID: make(map[int64]*slot, len(slots)), byHost: map[string]*node{"": {}}}
	for _, s := range slots {
		m.byID[s.res.ID] = s
		m.hosted += flag(s.host != "")
	}
	m.any = m.byHost[""]
	if m.hosted > 0 {
		m.any = &node{}
	}
	for _, s := range slots {
		if s.bad {
			continue
		}
		if m.byHost[s.host] == nil {
			m.byHost[s.host] = &node{}
		}
		m.byHost[s.host].add(s)
		if m.hosted > 0 {
			m.any.add(s)
		}
	}
	return m
}

// matched is the result of a match.
type matched struct {
	*slot // nil if no resource matches
	// literal is another resource with controls of its own, which a server that distinguishes
	// spellings would serve. It is usually nil.
	literal *slot
}

// match finds the resource of a request by its id. For a request without an id it looks by host,
// and then by path, type and method, if the request has a path, type or host. linked are the
// controls by resource, needed for discovered hosts. match fails for a path that steps up, or that
// leads to another resource, on servers that divide it into other segments.
func (m *matcher) match(r *Request, l location, linked map[int64][]*Control) (matched, error) {
	if r.ByID || r.ResourceID != 0 {
		return matched{slot: m.byID[r.ResourceID]}, nil
	}
	if l.path == "" && r.Type == "" && r.Host == "" {
		return matched{}, nil
	}
	q := query{typ: r.Type, method: upper(r.Method), path: l.path, linked: linked}
	s := m.search(r, l.folded, &q)
	if s != nil && s.exact {
		return matched{slot: s}, nil
	}
	if l.hidden {
		return matched{}, errPathHidden
	}
	for _, path := range l.others {
		q.path = path
		if other := m.search(r, path, &q); other != nil && other != s && !other.covers(l.folded) {
			return matched{}, errPathHidden
		}
	}
	q.path = l.path
	for _, bare := range withoutFormat(l.folded) {
		if bare == "" || s.literalAt(strings.Count(bare, "/")) {
			continue
		}
		if other := m.search(r, bare, &q); other != nil && other != s && !other.covers(l.folded) {
			return matched{other, m.literal(r, l, q, other)}, nil
		}
	}
	if s == nil || s.isExact(l.path) {
		return matched{slot: s}, nil
	}
	return matched{s, m.literal(r, l, q, s)}, nil
}

// literal returns the resource whose pattern is spelled exactly like the path. It returns nil if
// that is s, or if the resource has no controls.
func (m *matcher) literal(r *Request, l location, q query, s *slot) *slot {
	q.spelled = true
	other := m.search(r, l.folded, &q)
	if other == nil || other == s || len(q.linked[other.res.ID]) == 0 {
		return nil
	}
	return other
}

// search looks up a folded path: first under the request's host, then under the host without its
// port, then without a host. Discovered hosts without a control come last.
func (m *matcher) search(r *Request, folded string, q *query) *slot {
	if r.Host == "" {
		return lookup(m.any, folded, q)
	}
	host := canonicalHost(r.Host)
	at := lookup(m.byHost[host], folded, q)
	if at != nil && !q.yieldsToHostless(at) {
		return at
	}
	if bare := withoutPort(host); bare != host {
		s := lookup(m.byHost[bare], folded, q)
		if s != nil && !q.yieldsToHostless(s) {
			return s
		}
		at = cmp.Or(at, s)
	}
	return cmp.Or(lookup(m.byHost[""], folded, q), at)
}

func lookup(n *node, folded string, q *query) *slot {
	switch {
	case n == nil:
		return nil
	case folded == "":
		return q.pick(n.rest) // the request has no path: only `**` alone matches
	}
	return n.find(folded[1:], q)
}

// upper is strings.ToUpper with a fast path for strings in upper case.
func upper(s string) string {
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'Z' {
			return strings.ToUpper(s)
		}
	}
	return s
}

package rego

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// cacheControls read different parts of the input; together they cover every
// way in which a plan's key is made.
var cacheControls = []string{
	abac,
	"package a\nallow if input.user.id == input.resource.id\nreason := json.marshal(input.user)",
	"package b\nmask contains p if some p in input.context.paths\ndeny contains input.resource.path if startswith(input.resource.path, \"/a\")",
	"package c\nallow if count(input.user.roles) > 1\nreason := input.resource.attributes.owner",
	"package d\nallow := true\nreason := json.marshal(input)",
	"package e\ndeny if input.mcp.tool == \"x\"\nallow if input[input.context.a].id",
	"package f\nallow if data.resources[input.context.a].level == 1\nreason := data.pip.hr.name",
}

// A cached decision is the decision (design 4): over random sets, requests and
// changes, one cache shared by all of them.
func TestCachedIsFresh(t *testing.T) {
	var controls []*Control
	for i, src := range cacheControls {
		controls = append(controls, mustCompile(t, Meta{ID: int64(i + 1), Name: fmt.Sprint("c", i), Version: 1}, src))
		linked := mustCompile(t, Meta{ID: int64(i + 101), Name: fmt.Sprint("l", i), Version: 1, ResourceID: int64(i%3 + 1)}, src)
		controls = append(controls, linked)
	}
	cache := NewCache(4 << 20)
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		spec := SetSpec{Revision: int64(rapid.IntRange(1, 3).Draw(t, "rev"))}
		for _, c := range controls {
			if rapid.IntRange(0, 3).Draw(t, "in") == 0 {
				spec.Controls = append(spec.Controls, c)
			}
		}
		for id := range 3 {
			spec.Resources = append(spec.Resources, target.Resource{
				ID: int64(id + 1), Type: "api", Path: []string{"/a/*", "/b/**", "/c"}[id],
				Doc: value.Object(value.Member{Key: "level", Value: value.Int(int64(rapid.IntRange(1, 2).Draw(t, "level")))}),
			})
		}
		spec.PIP = mustDecode(fmt.Sprintf(`{"hr":{"name":"n%d","suspended":{"ann":true}}}`, rapid.IntRange(1, 2).Draw(t, "pip")))
		s := NewSet(spec)
		for range 20 {
			r := drawRequest(t)
			opt := Options{Now: testNow, Deadline: time.Minute}
			fresh := s.Decide(context.Background(), &r, opt)
			opt.Cache = cache
			for range 2 {
				cached := s.Decide(context.Background(), &r, opt)
				if cached.CacheHit {
					hits++
				}
				cached.CacheHit = false
				if d := cmp.Diff(describe(fresh), describe(cached)); d != "" {
					t.Fatalf("%s", d)
				}
			}
		}
	})
	if hits == 0 {
		t.Error("nothing was cached")
	}
	t.Logf("%d hits, %+v", hits, cache.Stats())
}

func describe(d Decision) string {
	res := int64(0)
	if d.Resource != nil {
		res = d.Resource.ID
	}
	return fmt.Sprintf("%s res=%d path=%s rev=%d n=%d err=%v", d.AppendJSON(nil), res, d.Path, d.Revision, d.Considered, d.Err)
}

func mustDecode(s string) value.Value {
	v, err := value.Decode([]byte(s), value.Limits{})
	if err != nil {
		panic(err)
	}
	return v
}

// drawRequest draws values that are easily confused: 1 and "1", null and
// absent, texts that hold separators.
func drawRequest(t *rapid.T) Request {
	part := func(name string) value.Value {
		v, err := value.FromAny(rapid.Custom(func(t *rapid.T) map[string]any {
			out := map[string]any{}
			for _, k := range []string{"id", "roles", "a", "name", "hour", "paths", "attributes", "tool"} {
				if rapid.Bool().Draw(t, k) {
					out[k] = drawDocument(t, 2)
				}
			}
			return out
		}).Draw(t, name))
		errtest.Must(t, err)
		return v
	}
	r := Request{User: part("user"), Action: part("action"), Resource: part("resource"), Context: part("context")}
	if rapid.Bool().Draw(t, "extra") {
		r.Extra = value.Object(value.Member{Key: "mcp", Value: part("mcp")})
	}
	if rapid.Bool().Draw(t, "has path") {
		r.Path = rapid.SampledFrom([]string{"/a/x", "/a//x/", "/b", "/b/c/d", "/c", "/%63", "x", "/\\", "/zz"}).Draw(t, "path")
		r.Resource = r.Resource.With("path", value.String(r.Path))
	}
	return r
}

// A set after changes is the set that is built anew.
// TestRan: a decision knows the controls that it asked, from the cache too.
func TestRan(t *testing.T) {
	s := NewSet(SetSpec{Controls: []*Control{
		mustCompile(t, Meta{ID: 3}, "package a\nallow if input.user.id == \"ann\""),
		mustCompile(t, Meta{ID: 5}, "package b\ndeny if input.user.id == \"eve\""),
		mustCompile(t, Meta{ID: 8}, "package c\nallow if lower(input.user.id) == \"bob\""),
	}})
	opt := Options{Cache: NewCache(1 << 20)}
	for user, want := range map[string]string{`"ann"`: "3 5 8", `"eve"`: "3 5", `"zoe"`: "3 5 8", `7`: "3 5 8"} {
		r := Request{User: mustDecode(`{"id":` + user + `}`)}
		for range 2 {
			d := s.Decide(context.Background(), &r, opt)
			var ids []string
			for _, c := range d.Ran {
				ids = append(ids, fmt.Sprint(c.Meta().ID))
			}
			if got := strings.Join(ids, " "); got != want || cap(d.Ran) != len(d.Ran) {
				t.Errorf("%s: %s ran, not %s (hit %t)", user, got, want, d.CacheHit)
			}
		}
	}
	bad := Request{Path: "/a%2fb"}
	if d := s.Decide(context.Background(), &bad, opt); d.Err == nil || len(d.Ran) != 0 {
		t.Errorf("an invalid path: %+v", d)
	}
}

func TestWithIsNewSet(t *testing.T) {
	var controls []*Control
	for i, src := range cacheControls {
		controls = append(controls, mustCompile(t, Meta{ID: int64(i + 1), Version: 1, ResourceID: int64(i % 4)}, src))
	}
	rapid.Check(t, func(t *rapid.T) {
		have := map[int64]*Control{}
		resources := map[int64]target.Resource{}
		pip := value.Object()
		s := NewSet(SetSpec{})
		for step := range 8 {
			ch := Change{Revision: int64(step)}
			for _, c := range controls {
				switch rapid.IntRange(0, 4).Draw(t, "control") {
				case 0:
					ch.Controls = append(ch.Controls, c)
					have[c.Meta().ID] = c
				case 1:
					ch.RemovedControls = append(ch.RemovedControls, c.Meta().ID)
					delete(have, c.Meta().ID)
				}
			}
			for id := int64(1); id < 6; id++ {
				switch rapid.IntRange(0, 4).Draw(t, "resource") {
				case 0:
					r := target.Resource{
						ID: id, Type: "api", Host: rapid.SampledFrom([]string{"", "", "h"}).Draw(t, "host"), Discovered: rapid.Bool().Draw(t, "discovered"),
						Path: rapid.SampledFrom(patterns).Draw(t, "pattern"), Doc: value.Object(value.Member{Key: "level", Value: value.Int(int64(step))}),
					}
					ch.Resources = append(ch.Resources, r)
					resources[id] = r
				case 1:
					ch.RemovedResources = append(ch.RemovedResources, id)
					delete(resources, id)
				}
			}
			if rapid.Bool().Draw(t, "pip") {
				pip = mustDecode(fmt.Sprintf(`{"hr":{"name":"n%d"}}`, step))
				ch.PIP = &pip
			}
			s = s.With(ch)
			spec := SetSpec{Revision: int64(step), PIP: pip}
			for _, c := range have {
				spec.Controls = append(spec.Controls, c)
			}
			for _, r := range resources {
				spec.Resources = append(spec.Resources, r)
			}
			anew := NewSet(spec)
			for range 4 {
				r := drawRequest(t)
				r.Host = rapid.SampledFrom([]string{"", "h", "h:8", "g"}).Draw(t, "host")
				opt := Options{Now: testNow, Deadline: time.Minute}
				if d := cmp.Diff(describe(anew.Decide(context.Background(), &r, opt)), describe(s.Decide(context.Background(), &r, opt))); d != "" {
					t.Fatalf("%s", d)
				}
			}
		}
	})
}

var patterns = []string{"", "/", "/a", "/a/*", "/a/{x}", "/a/**", "/**", "/*", "/*/x", "/a/x", "/b/c/d", "/*/c/**", "/b/**", "/c/", "/%63"}

// The tree finds what the rules say, tried one pattern after another.
func TestMatcherAgainstPlainSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []target.Resource
		for id := range rapid.IntRange(1, 12).Draw(t, "n") {
			list = append(list, target.Resource{
				ID: int64(id + 1), Path: rapid.SampledFrom(patterns).Draw(t, "p"),
				Type:    rapid.SampledFrom([]string{"", "t", "u"}).Draw(t, "t"),
				Host:    rapid.SampledFrom([]string{"", "", "h"}).Draw(t, "h"),
				Methods: rapid.SampledFrom([][]string{nil, {"GET"}, {"put", "GET"}}).Draw(t, "m"),

				Discovered: rapid.Bool().Draw(t, "d"),
			})
		}
		s := NewSet(SetSpec{Resources: list})
		for range 10 {
			r := Request{
				Path:   rapid.SampledFrom([]string{"", "/", "/a", "/a/x", "/a/x/y", "/b/c/d", "/b/c", "/c", "/q/x", "/q/c/d/e"}).Draw(t, "path"),
				Type:   rapid.SampledFrom([]string{"", "t", "u", "v"}).Draw(t, "type"),
				Host:   rapid.SampledFrom([]string{"", "h", "H:80", "other"}).Draw(t, "host"),
				Method: rapid.SampledFrom([]string{"", "GET", "put", "POST"}).Draw(t, "method"),
			}
			want, got := plainSearch(list, &r), s.Match(&r)
			if (want == nil) != (got == nil) || want != nil && want.ID != got.ID {
				t.Fatalf("%+v: got %+v, want %+v", r, got, want)
			}
		}
	})
}

func plainSearch(list []target.Resource, r *Request) *target.Resource {
	if r.Path == "" && r.Type == "" && r.Host == "" {
		return nil
	}
	groups := []string{"*"}
	if r.Host != "" {
		groups = []string{strings.ToLower(r.Host), withoutPort(strings.ToLower(r.Host)), ""}
	}
	var yielding *target.Resource
	for _, host := range groups {
		type hit struct {
			shape string
			slot  *slot
		}
		var hits []hit
		for i := range list {
			sl := newSlot(&list[i], i)
			if host != "*" && sl.host != host || !sl.accepts(r.Type, strings.ToUpper(r.Method), "") {
				continue
			}
			if shape, ok := plainShape(sl.segs, r.Path); ok {
				hits = append(hits, hit{shape, sl})
			}
		}
		slices.SortFunc(hits, func(a, b hit) int {
			if c := strings.Compare(a.shape, b.shape); c != 0 {
				return c
			}
			return compareSlots(a.slot, b.slot)
		})
		switch {
		case len(hits) == 0:
		case host != "" && host != "*" && hits[0].slot.res.Discovered: // no control is linked to it
			yielding = stdcmp.Or(yielding, hits[0].slot.res)
		default:
			return hits[0].slot.res
		}
	}
	return yielding
}

// plainShape matches segment by segment; the shape sorts by specificity.
func plainShape(segs []string, path string) (string, bool) {
	if path == "" {
		return "d", slices.Equal(segs, []string{target.Rest})
	}
	var have []string
	if path != "/" {
		have = strings.Split(path[1:], "/")
	}
	shape := ""
	for i, seg := range segs {
		switch {
		case seg == target.Rest:
			return shape + "d", true
		case i >= len(have):
			return "", false
		case seg == target.OneSegment:
			shape += "b"
		case seg == have[i]:
			shape += "a"
		default:
			return "", false
		}
	}
	return shape + "c", len(segs) == len(have)
}

func TestParseRequest(t *testing.T) {
	r, bad := ParseRequest(valuetest.Decode(t, `{"user":{"id":"a"},"resource":{"id":7,"type":"api","path":"/x","host":"h"},"action":{"method":"GET"},"context":null,"mcp":{"tool":"t"},"decision_id":"d"}`))
	if bad != nil || r.ResourceID != 7 || r.Type != "api" || r.Path != "/x" || r.Host != "h" || r.Method != "GET" || r.Context.Defined() || !r.Extra.Get("mcp").Defined() {
		t.Errorf("%+v %v", r, bad)
	}
	_, bad = ParseRequest(valuetest.Decode(t, `{"user":"x","usr":{},"resource":{"type":1,"path":[],"attributes":3,"id":[]},"action":{"method":null,"name":2},"context":7}`))
	var at []string
	for _, d := range bad {
		at = append(at, d.Pointer)
	}
	slices.Sort(at)
	if got := strings.Join(at, " "); got != "/action/name /context /resource/attributes /resource/id /resource/path /resource/type /user /usr" {
		t.Error(got)
	}
	_, bad = ParseRequest(valuetest.Decode(t, `{"user":{"roles":["a",1,null,"b",{}]}}`))
	if len(bad) != 3 || bad[0].Pointer != "/user/roles/1" || bad[1].Pointer != "/user/roles/2" || bad[2].Pointer != "/user/roles/4" {
		t.Errorf("roles: %v", bad)
	}
	many := `{"user":{"roles":[` + strings.Repeat("1,", 5000) + `1]}}`
	if _, bad := ParseRequest(valuetest.Decode(t, many)); len(bad) != maxOffences {
		t.Errorf("%d offences are told", len(bad))
	}
	if _, bad := ParseRequest(valuetest.Decode(t, `[]`)); len(bad) != 1 {
		t.Error(bad)
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := NewCache(1 << 20)
	for i := range 20_000 {
		key := fmt.Appendf(nil, "%064d", i)
		c.put(c.hash(key), key, verdict{reason: "r"}, time.Time{})
		if v := c.get(c.hash(key), key, &Options{}); v == nil {
			t.Fatal("what was just put is not there")
		}
	}
	st := c.Stats()
	if st.Bytes > 1<<20 || st.Entries == 0 || st.Entries > 5000 {
		t.Errorf("%+v", st)
	}
	key := []byte("key")
	c.put(1, key, verdict{reason: "mine"}, time.Time{})
	if c.get(1, []byte("other"), &Options{}) != nil {
		t.Error("a collision of hashes is a hit")
	}
}

func benchSet(b *testing.B, source string, resources int) (*Set, Request) {
	b.Helper()
	c := mustCompile(b, Meta{ID: 1, Name: "docs", Version: 1}, source)
	spec := SetSpec{Revision: 1, Controls: []*Control{c}, PIP: valuetest.Decode(b, `{"hr":{"suspended":{"eve":true}}}`)}
	doc := valuetest.Decode(b, `{"id":7,"data_classification":"internal","attributes":{"owner":"bob"}}`)
	for i := range resources {
		spec.Resources = append(spec.Resources, target.Resource{ID: int64(i + 1), Type: "api", Path: fmt.Sprintf("/svc%d/docs/*", i), Doc: doc})
	}
	r, bad := ParseRequest(valuetest.Decode(b, `{"user":{"id":"ann","roles":["editor","x"],"department":"d"},"action":{"name":"read","method":"GET"},"resource":{"type":"api","path":"/svc0/docs/x"},"context":{"hour":3}}`))
	if bad != nil {
		b.Fatal(bad)
	}
	return NewSet(spec), r
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1, 100_000} {
		s, r := benchSet(b, abac, n)
		for _, bc := range []struct {
			name string
			s    *Set
			opt  Options
		}{
			{"hit", s, Options{Cache: NewCache(1 << 20), Clock: time.Now}},
			{"native", s, Options{Clock: time.Now}},
		} {
			b.Run(fmt.Sprintf("%s/resources=%d", bc.name, n), func(b *testing.B) {
				b.ReportAllocs()
				ctx := b.Context()
				for b.Loop() {
					bc.s.Decide(ctx, &r, bc.opt)
				}
			})
		}
	}
}

func BenchmarkDecideParallelHit(b *testing.B) {
	s, r := benchSet(b, abac, 1000)
	opt := Options{Cache: NewCache(1 << 20)}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.Decide(context.Background(), &r, opt)
		}
	})
}

func BenchmarkSet(b *testing.B) {
	s, _ := benchSet(b, abac, 100_000)
	res := s.Resources()
	c := mustCompile(b, Meta{ID: 9, ResourceID: 77}, abac)
	b.Run("new/100k", func(b *testing.B) {
		for b.Loop() {
			NewSet(SetSpec{Controls: s.Controls(), Resources: res})
		}
	})
	b.Run("with control/100k", func(b *testing.B) {
		for b.Loop() {
			s.With(Change{Controls: []*Control{c}})
		}
	})
	b.Run("with resource/100k", func(b *testing.B) {
		for b.Loop() {
			s.With(Change{Resources: res[500:501]})
		}
	})
	b.Run("with 1000 resources/100k", func(b *testing.B) {
		for b.Loop() {
			s.With(Change{Resources: res[500:1500]})
		}
	})
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			if _, issues := Compile(Meta{ID: 1}, abac); issues != nil {
				b.Fatal(issues)
			}
		}
	})
}

// drawDocument draws a document of so many levels.
func drawDocument(t *rapid.T, left int) any {
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	switch {
	case kind == 0:
		return nil
	case kind == 1:
		return rapid.Bool().Draw(t, "b")
	case kind == 2:
		return rapid.IntRange(-3, 3).Draw(t, "n")
	case kind == 3 || left == 0:
		return rapid.SampledFrom([]string{"", "a", "1", "ann", "bob", "x;y", "ünï"}).Draw(t, "s")
	case kind == 4:
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "len") {
			out = append(out, drawDocument(t, left-1))
		}
		return out
	default:
		out := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "len") {
			out[rapid.SampledFrom([]string{"id", "a", "b", "roles", "x"}).Draw(t, "k")] = drawDocument(t, left-1)
		}
		return out
	}
}

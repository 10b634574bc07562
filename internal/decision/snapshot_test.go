package decision_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// fakeStore has resources and controls, and knows what each revision changed.
type fakeStore struct {
	revision  int64
	resources map[int64]target.Resource
	controls  map[int64]decision.ControlText
	touched   map[int64][]int64 // revision → changed resources; none: something else changed
	noted     map[int64][]int64 // revision → changed controls; none: something else changed
	libraries []lang.Library
	pip       value.Value
	loads     int
	deltas    int
	down      bool
}

func newStore() *fakeStore {
	return &fakeStore{resources: map[int64]target.Resource{}, controls: map[int64]decision.ControlText{}, touched: map[int64][]int64{}, noted: map[int64][]int64{}}
}

func (w *fakeStore) texts() []decision.ControlText {
	return slices.SortedFunc(maps.Values(w.controls), func(a, b decision.ControlText) int { return cmp.Compare(a.ID, b.ID) })
}

func (w *fakeStore) load(context.Context, scope.TenantID, scope.Env) (decision.Source, error) {
	if w.down {
		return decision.Source{}, fault.New(fault.Unavailable, "store_unavailable", "down")
	}
	w.loads++
	src := decision.Source{Revision: w.revision, Controls: w.texts(), Libraries: w.libraries, PIP: w.pip}
	for _, id := range slices.Sorted(maps.Keys(w.resources)) {
		src.Resources = append(src.Resources, w.resources[id])
	}
	return src, nil
}

func (w *fakeStore) changes(_ context.Context, _ scope.TenantID, _ scope.Env, since int64) (decision.Delta, bool, error) {
	if w.down {
		return decision.Delta{}, false, fault.New(fault.Unavailable, "store_unavailable", "down")
	}
	w.deltas++
	d := decision.Delta{Revision: w.revision, PIP: []value.Member{{Key: "gone"}}}
	w.pip.Each(func(name string, v value.Value) bool {
		d.PIP = append(d.PIP, value.Member{Key: name, Value: v})
		return true
	})
	ids := map[int64]bool{}
	for r := since + 1; r <= w.revision; r++ {
		d.Rest = d.Rest || len(w.touched[r]) == 0
		d.Whole = d.Whole || len(w.touched[r])+len(w.noted[r]) == 0
		for _, id := range w.touched[r] {
			ids[id] = true
		}
	}
	for id := range ids {
		if r, there := w.resources[id]; there {
			d.Resources = append(d.Resources, r)
		} else {
			d.RemovedResources = append(d.RemovedResources, id)
		}
	}
	if !d.Rest {
		return d, true, nil
	}
	d.Libraries = w.libraries
	if d.Whole {
		d.Controls = w.texts()
		return d, true, nil
	}
	changed := map[int64]bool{}
	for r := since + 1; r <= w.revision; r++ {
		for _, id := range w.noted[r] {
			changed[id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(changed)) {
		if c, there := w.controls[id]; there {
			d.Controls = append(d.Controls, c)
		} else {
			d.RemovedControls = append(d.RemovedControls, id)
		}
	}
	return d, true, nil
}

// snapshots returns snapshots of the store, which follow changes or load everything.
func (w *fakeStore) snapshots(incremental bool) *decision.Snapshots {
	s := &decision.Snapshots{Load: w.load, Idle: time.Hour, Now: time.Now}
	if incremental {
		s.Changes = w.changes
	}
	return s
}

// bump records a change of resources, or of something else.
func (w *fakeStore) bump(s *decision.Snapshots, ids ...int64) {
	w.revision++
	w.touched[w.revision] = ids
	s.OnChange(scope.DefaultTenant, "env:sandbox")
}

// bumpControl records a change of a control, which the journal may name or not.
func (w *fakeStore) bumpControl(s *decision.Snapshots, named bool, id int64) {
	if w.bump(s); named {
		w.noted[w.revision] = []int64{id}
	}
}

func newResource(id int64, name, host, path, level string) target.Resource {
	doc, err := value.FromAny(map[string]any{"id": id, "name": name, "level": level, "path": path})
	if err != nil {
		panic(err)
	}
	return target.Resource{ID: id, Name: name, Type: "api", Host: host, Path: path, Doc: doc}
}

// controlText returns a control on resources of a level.
func controlText(id, version, resource int64, level string) decision.ControlText {
	more := ""
	if level == "high" {
		more = "\n\ndeny if data.lib.levels.shown == 3"
	}
	return decision.ControlText{
		Meta:   rego.Meta{ID: id, Name: fmt.Sprint("c", id), Version: version, ResourceID: resource},
		Source: fmt.Sprintf("package c\n\nallow if input.resource.level == %q\n\ndeny if count(data.resources) == 3\n\nreason := %q%s", level, fmt.Sprint(version), more),
	}
}

// wantSame fails unless got is the set that is built from everything.
func wantSame(t *rapid.T, got, want *rego.Set) {
	if got.Revision() != want.Revision() {
		t.Fatalf("revision %d, want %d", got.Revision(), want.Revision())
	}
	metas := func(s *rego.Set) (out []rego.Meta) {
		for _, c := range s.Controls() {
			out = append(out, c.Meta())
		}
		return out
	}
	if !slices.Equal(metas(got), metas(want)) {
		t.Fatalf("controls %v, want %v", metas(got), metas(want))
	}
	docs := func(s *rego.Set) (out []string) {
		for _, r := range s.Resources() {
			out = append(out, fmt.Sprint(r.ID, r.Name, r.Host, r.Path, string(r.Doc.AppendJSON(nil))))
		}
		slices.Sort(out)
		return out
	}
	if !slices.Equal(docs(got), docs(want)) {
		t.Fatalf("resources %v, want %v", docs(got), docs(want))
	}
	if a, b := got.Data([]string{"resources"}), want.Data([]string{"resources"}); !value.Equal(a, b) {
		t.Fatalf("data.resources %s, want %s", a.AppendJSON(nil), b.AppendJSON(nil))
	}
	for _, host := range []string{"", "a.example", "b.example"} {
		for _, path := range []string{"/x", "/y", "/x/1", "/z"} {
			req := rego.Request{Host: host, Path: path, Method: "GET", Resource: value.Object(value.Member{Key: "path", Value: value.String(path)})}
			a, b := got.Decide(context.Background(), &req, rego.Options{}), want.Decide(context.Background(), &req, rego.Options{})
			if a.Effect != b.Effect || a.Reason != b.Reason || a.PolicyID != b.PolicyID || (a.Resource == nil) != (b.Resource == nil) || a.Resource != nil && a.Resource.ID != b.Resource.ID {
				t.Fatalf("%s%s: decided %+v, want %+v", host, path, a, b)
			}
		}
	}
}

// TestFollowedIsBuilt checks that a snapshot that follows changes is, after each of them, the one that
// would be built from everything.
func TestFollowedIsBuilt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newStore()
		following := w.snapshots(true)
		get := func(s *decision.Snapshots) *rego.Set {
			set, err := s.Get(context.Background(), scope.DefaultTenant, scope.Sandbox)
			errtest.Must(t, err)
			return set
		}
		small := rapid.Int64Range(1, 5)
		level := rapid.SampledFrom([]string{"high", "low"})
		reads := 0
		t.Repeat(map[string]func(*rapid.T){
			"resources": func(t *rapid.T) {
				ids := rapid.SliceOfNDistinct(small, 1, 3, rapid.ID[int64]).Draw(t, "ids")
				for _, id := range ids {
					w.resources[id] = newResource(id, rapid.SampledFrom([]string{"m", "n"}).Draw(t, "name"), rapid.SampledFrom([]string{"", "a.example", "b.example"}).Draw(t, "host"),
						rapid.SampledFrom([]string{"/x", "/y", "/x/*", "/**"}).Draw(t, "path"), level.Draw(t, "level"))
				}
				w.bump(following, ids...)
			},
			"remove": func(t *rapid.T) {
				id := small.Draw(t, "id")
				delete(w.resources, id)
				w.bump(following, id)
			},
			"control": func(t *rapid.T) {
				id := small.Draw(t, "id")
				w.controls[id] = controlText(id, w.controls[id].Version+1, rapid.Int64Range(0, 5).Draw(t, "resource"), level.Draw(t, "level"))
				w.bumpControl(following, rapid.Bool().Draw(t, "noted"), id)
			},
			"drop": func(t *rapid.T) {
				id := small.Draw(t, "id")
				delete(w.controls, id)
				w.bumpControl(following, rapid.Bool().Draw(t, "noted"), id)
			},
			"library": func(t *rapid.T) {
				w.libraries = []lang.Library{{ID: 9, Name: "levels", Version: w.revision, Source: "package lib.levels\n\nshown := " + fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "shown"))}}
				w.bumpControl(following, rapid.Bool().Draw(t, "noted"), 9)
			},
			"read": func(t *rapid.T) {
				reads++
				wantSame(t, get(following), get(w.snapshots(false)))
			},
		})
		wantSame(t, get(following), get(w.snapshots(false)))
		if w.loads > reads+2 {
			t.Fatalf("%d full loads for %d reads, want the changes followed", w.loads, reads)
		}
	})
}

// Following a change compiles only the controls that differ, and continues with the last set while the
// store is unavailable.
func TestFollowingSharesWhatDidNotChange(t *testing.T) {
	w := newStore()
	for id := range int64(3) {
		w.resources[id+1] = newResource(id+1, "r", "", fmt.Sprint("/", id), "low")
		w.controls[id+1] = controlText(id+1, 1, id+1, "low")
	}
	s := w.snapshots(true)
	get := func() *rego.Set {
		t.Helper()
		set, err := s.Get(context.Background(), scope.DefaultTenant, scope.Sandbox)
		errtest.Must(t, err)
		return set
	}
	first := get()
	w.resources[2] = newResource(2, "other", "", "/1", "high")
	w.bump(s, 2)
	w.controls[3] = controlText(3, 2, 3, "high")
	w.bump(s)
	second := get()
	if w.loads != 1 || w.deltas != 1 {
		t.Errorf("%d loads and %d deltas, want one of each", w.loads, w.deltas)
	}
	if a, b := first.Controls(), second.Controls(); a[0] != b[0] || a[1] != b[1] || a[2] == b[2] {
		t.Errorf("the controls are %p, after the change %p, want only the third compiled again", a, b)
	}
	if second != get() {
		t.Error("without a change there is another set")
	}
	w.down = true
	w.bump(s, 1)
	if set := get(); set != second {
		t.Error("while the store is unavailable there is another set, want the last one")
	}
	w.down = false
	if set := get(); set.Revision() != w.revision {
		t.Errorf("after the store is available again: revision %d, want %d", set.Revision(), w.revision)
	}
}

// A stored control that does not compile denies what it covers, with that reason. It is never left out,
// and affects no other control.
func TestBrokenControlDenies(t *testing.T) {
	w := newStore()
	for id := range int64(2) {
		w.resources[id+1] = newResource(id+1, "r", "", fmt.Sprint("/", id+1), "low")
		w.controls[id+1] = controlText(id+1, 1, id+1, "low")
	}
	w.controls[2] = decision.ControlText{Meta: rego.Meta{ID: 2, Name: "bad", Version: 1, ResourceID: 2}, Source: "package c\n\nallow if nonsense(1)"}
	s := w.snapshots(true)
	ask := func(path string) rego.Decision {
		t.Helper()
		set, err := s.Get(context.Background(), scope.DefaultTenant, scope.Sandbox)
		errtest.Must(t, err)
		req := rego.Request{Path: path, Resource: value.Object(value.Member{Key: "path", Value: value.String(path)})}
		return set.Decide(context.Background(), &req, rego.Options{Cache: rego.NewCache(1 << 20)})
	}
	if d := ask("/1"); !d.Permit {
		t.Errorf("a resource without the broken control: %+v, want a permit", d)
	}
	for range 2 {
		if d := ask("/2"); d.Permit || d.Effect != rego.Deny || d.Err == nil || d.PolicyID != 2 || !strings.Contains(d.Reason, `Control "bad" could not be evaluated: it does not compile: `) {
			t.Errorf("a resource with the broken control: %+v, want a denial by it", d)
		}
	}
	w.controls[2] = controlText(2, 2, 2, "low")
	w.bump(s)
	if d := ask("/2"); !d.Permit {
		t.Errorf("after the correction: %+v, want a permit", d)
	}
}

// BenchmarkChange measures one change of one resource among many, until the next decision can be made:
// following the change, and building everything again.
func BenchmarkChange(b *testing.B) {
	const many = 100_000
	w := newStore()
	for id := range int64(many) {
		w.resources[id+1] = newResource(id+1, "r", fmt.Sprintf("h%d.example", id%1000), fmt.Sprintf("/p%d/*", id), "low")
	}
	for id := range int64(200) {
		w.controls[id+1] = controlText(id+1, 1, id+1, "low")
	}
	for name, incremental := range map[string]bool{"following": true, "building": false} {
		b.Run(name, func(b *testing.B) {
			s := w.snapshots(incremental)
			get := func() {
				errtest.Must(b, errtest.Of(s.Get(context.Background(), scope.DefaultTenant, scope.Sandbox)))
			}
			get()
			for b.Loop() {
				id := w.revision%many + 1
				r := w.resources[id]
				w.resources[id] = newResource(id, "changed", r.Host, r.Path, "high")
				w.bump(s, id)
				get()
			}
		})
	}
}

// Data that a connection now spells in another way is new data, which controls see.
func TestSnapshotFollowsSpellings(t *testing.T) {
	w := newStore()
	w.pip = value.Object(value.Member{Key: "level", Value: value.Int(1)})
	s := w.snapshots(true)
	errtest.Must(t, errtest.Of(s.Get(context.Background(), scope.DefaultTenant, "sandbox")))
	for _, spelling := range []string{"1.0", "1e0", "1"} {
		n, err := value.Number(spelling)
		errtest.Must(t, err)
		w.pip = value.Object(value.Member{Key: "level", Value: n})
		w.bump(s)
		set, err := s.Get(context.Background(), scope.DefaultTenant, "sandbox")
		errtest.Must(t, err)
		if got := string(set.Data([]string{"pip", "level"}).AppendJSON(nil)); got != spelling {
			t.Errorf("data.pip.level is %s, want %s", got, spelling)
		}
	}
}

// TestSnapshotWhileTheStoreHangs checks that a rebuild that does not end delays no decision but the
// first: the former set decides.
func TestSnapshotWhileTheStoreHangs(t *testing.T) {
	var hangs atomic.Bool
	release := make(chan struct{})
	s := &decision.Snapshots{
		Now: time.Now, Idle: time.Hour,
		Load: func(context.Context, scope.TenantID, scope.Env) (decision.Source, error) {
			if hangs.Load() {
				<-release
				return decision.Source{Revision: 2}, nil
			}
			return decision.Source{Revision: 1}, nil
		},
	}
	// Long enough for a few decisions that wait for the store, but not for each of a thousand.
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	get := func() int64 {
		if err := ctx.Err(); err != nil {
			t.Fatalf("decisions wait for the store: %v", err)
		}
		set, err := s.Get(context.Background(), "acme", scope.Production)
		errtest.Must(t, err)
		return set.Revision()
	}
	if get() != 1 {
		t.Fatal("the first set is not revision 1")
	}
	hangs.Store(true)
	s.OnChange("acme", "env:production")
	for range 1000 {
		if rev := get(); rev != 1 {
			t.Fatalf("revision %d, want 1", rev)
		}
	}
	close(release)
	for get() != 2 {
		runtime.Gosched()
	}
}

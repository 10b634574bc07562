package resource

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// copyOf is a reader's copy of one environment, as of a revision.
type copyOf struct {
	env      scope.Env
	revision int64
	docs     map[int64]string
	// was has the copies at earlier revisions, for rewind.
	was map[int64]map[int64]string
}

// render returns a document as text.
func render(r target.Resource) string {
	return fmt.Sprintf("%s %v %s %s", r.Host, r.Methods, r.AuditLevel, r.Doc.AppendJSON(nil))
}

// follow updates a copy with the changes, and compares it with all resources.
func (p *copyOf) follow(t *rapid.T, store *db.DB, s *Service) {
	ctx := context.Background()
	err := store.Read(ctx, func(tx *db.Tx) error {
		to, err := tx.Revision(ctx, Revision(p.env))
		if err != nil {
			return err
		}
		d, ok, err := DocsSince(ctx, tx, p.env, p.revision, to)
		if err != nil || !ok {
			return fmt.Errorf("ok %v: %w", ok, err)
		}
		for _, doc := range d.Docs {
			p.docs[doc.ID] = render(doc)
		}
		for _, id := range d.Removed {
			delete(p.docs, id)
		}
		p.revision = to
		all, err := Docs(ctx, tx, p.env)
		if err != nil {
			return err
		}
		want := map[int64]string{}
		for _, doc := range all {
			want[doc.ID] = render(doc)
		}
		if diff := cmp.Diff(want, p.docs); diff != "" {
			t.Fatalf("%s at revision %d (-stored +followed): %s", p.env, to, diff)
		}
		p.was[to] = maps.Clone(p.docs)
		return nil
	})
	errtest.Must(t, err)
}

// TestDocsSinceIsDocs: after any steps, and however rarely a reader updates its copy,
// the updated copy equals a complete read.
func TestDocsSinceIsDocs(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		store := tenantStore(t, c)
		var ids []int64
		envs := []scope.Env{scope.Sandbox, scope.Production}
		readers := map[scope.Env]*copyOf{}
		for _, env := range envs {
			readers[env] = &copyOf{env: env, docs: map[int64]string{}, was: map[int64]map[int64]string{}}
		}
		rapid.Check(t, func(t *rapid.T) {
			some := func() int64 {
				if len(ids) == 0 {
					return 0
				}
				return rapid.SampledFrom(ids).Draw(t, "id")
			}
			change := func(_ any, err error) { errtest.Must(t, err) }
			steps := map[string]func(*rapid.T){
				"create": func(t *rapid.T) {
					r, err := s.Create(ctx, sc(""), Draft{
						Name: rapid.SampledFrom([]string{"mcp", "orders", "email"}).Draw(t, "name"), Type: "api", Path: "/" + rand.Text(),
						Environment: rapid.SampledFrom(envs).Draw(t, "env"),
					})
					change(r, err)
					ids = append(ids, r.ID)
				},
				"enrich": func(t *rapid.T) {
					if id := some(); id != 0 {
						change(s.Enrich(ctx, sc(""), id, EnrichmentChange{OwnerTeam: patch.Set(rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "team"))}, 0))
					}
				},
				"delete": func(t *rapid.T) {
					if id := some(); id != 0 {
						change(s.Delete(ctx, sc(""), id, 0))
						ids = slices.DeleteFunc(ids, func(x int64) bool { return x == id })
					}
				},
				"bulk": func(t *rapid.T) {
					change(s.ClassifyBulk(ctx, sc(rapid.SampledFrom(envs).Draw(t, "env")), 3))
				},
				"promote": func(t *rapid.T) {
					id := some()
					if id == 0 {
						return
					}
					change(nil, store.Write(ctx, func(tx *db.Tx) error {
						twin, err := s.Counterpart(ctx, tx, sc(""), id)
						if err == nil && !slices.Contains(ids, twin) {
							ids = append(ids, twin)
						}
						return err
					}))
				},
				"control": func(t *rapid.T) {
					change(nil, store.Write(ctx, func(tx *db.Tx) error {
						_, err := tx.Bump(ctx, Revision(rapid.SampledFrom(envs).Draw(t, "env")))
						return err
					}))
				},
				"follow": func(t *rapid.T) { readers[rapid.SampledFrom(envs).Draw(t, "env")].follow(t, store, s) },
			}
			// Each run has few steps. All runs share the store, so together they are one long history.
			for _, name := range rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(steps))), 1, 8).Draw(t, "steps") {
				steps[name](t)
			}
			for _, p := range readers {
				p.follow(t, store, s)
			}
		})
		for _, p := range readers {
			p.rewind(t, store, s)
		}
	})
}

// TestDocsSinceKnowsItsLimits: DocsSince reports what changed, and refuses revisions that the journal does
// not cover.
func TestDocsSinceKnowsItsLimits(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		store := tenantStore(t, c)
		since := func(from int64) (d Delta, ok bool) {
			t.Helper()
			err := store.Read(ctx, func(tx *db.Tx) error {
				to, err := tx.Revision(ctx, Revision(scope.Sandbox))
				if err == nil {
					d, ok, err = DocsSince(ctx, tx, scope.Sandbox, from, to)
				}
				return err
			})
			errtest.Must(t, err)
			return d, ok
		}
		bump := func(n int) {
			t.Helper()
			for range n {
				if err := store.Write(ctx, func(tx *db.Tx) error { _, err := tx.Bump(ctx, Revision(scope.Sandbox)); return err }); err != nil {
					t.Fatal(err)
				}
			}
		}
		r := create(t, s, Draft{Name: "a"})
		if d, ok := since(0); !ok || d.Revisions != 1 || len(d.Docs) != 1 || d.Docs[0].ID != r.ID {
			t.Errorf("DocsSince(0) = %+v, %v, want the new resource", d, ok)
		}
		bump(1)
		if d, ok := since(1); !ok || d.Revisions != 0 || len(d.Docs)+len(d.Removed) != 0 {
			t.Errorf("DocsSince after a change of a control = %+v, %v, want no document", d, ok)
		}
		if d, ok := since(2); !ok || d.Revisions != 0 {
			t.Errorf("DocsSince of the newest revision = %+v, %v, want no change", d, ok)
		}
		if _, ok := since(7); ok {
			t.Error("DocsSince of a revision that does not exist yet = ok, want not")
		}
		errtest.Must(t, errtest.Of(s.Delete(ctx, sc(""), r.ID, 0)))
		if d, ok := since(0); !ok || d.Revisions != 2 || len(d.Docs) != 0 || !slices.Equal(d.Removed, []int64{r.ID}) {
			t.Errorf("DocsSince after a deletion = %+v, %v, want %d removed", d, ok, r.ID)
		}
		bump(KeptRevisions)
		if _, ok := since(0); ok {
			t.Error("DocsSince of a revision before the journal = ok, want not")
		}
		create(t, s, Draft{Name: "b"})
		err := store.Read(ctx, func(tx *db.Tx) error {
			n, err := db.One[int64](ctx, tx, `SELECT count(*) FROM resource_changes`)
			if err == nil && n != 1 {
				t.Errorf("the journal has %d rows, want 1", n)
			}
			return err
		})
		errtest.Must(t, err)
	})
}

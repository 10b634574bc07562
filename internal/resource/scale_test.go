package resource

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// tenantStore returns the store of the default tenant.
func tenantStore(t testing.TB, c *db.Cluster) *db.DB {
	t.Helper()
	store, err := c.Tenant(context.Background(), scope.DefaultTenant)
	errtest.Must(t, err)
	return store
}

// TestBulkOfMany: a batch of several statements is one change. Each of its resources is
// written and has its journal entry and event, as if it were alone.
func TestBulkOfMany(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s, store := context.Background(), service(c, nil, nil), tenantStore(t, c)
		const n = 612 // not a multiple of the rows of one statement
		err := store.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 612)
				INSERT INTO resources (name, type, environment, path, auto_discovered, owner_team, version, created_at, updated_at)
				SELECT CASE WHEN i % 3 = 0 THEN 'card ' ELSE 'orders ' END || i, 'api', 'sandbox', '/', FALSE, 'team ' || i, i, 0, 0 FROM n`)
			return err
		})
		errtest.Must(t, err)
		before := revision(t, c, scope.Sandbox)
		out, err := s.ClassifyBulk(ctx, sc(scope.Sandbox), 1000)
		if err != nil || out.Classified != n || out.Examined != n || len(out.Errors) != 0 {
			t.Fatalf("ClassifyBulk = %+v, %v, want %d classified", out, err, n)
		}
		type emitted struct {
			Type string         `db:"type"`
			Data map[string]any `db:"data"`
		}
		var events []emitted
		err = store.Read(ctx, func(tx *db.Tx) (err error) {
			now, err := tx.Revision(ctx, Revision(scope.Sandbox))
			if err != nil || now != before+1 {
				t.Errorf("revision = %d, %v, want %d", now, err, before+1)
			}
			d, ok, err := DocsSince(ctx, tx, scope.Sandbox, before, now)
			if err != nil || !ok || len(d.Docs) != n || d.Revisions != 1 || len(d.Removed) != 0 {
				t.Errorf("DocsSince = %d documents, %v, %v, want %d", len(d.Docs), ok, err, n)
			}
			events, err = db.All[emitted](ctx, tx, `SELECT type, data FROM events ORDER BY seq`)
			return err
		})
		if err != nil || len(events) != n {
			t.Fatalf("%d events, %v, want %d", len(events), err, n)
		}
		page, err := s.List(ctx, sc(scope.Sandbox), Filter{Limit: 1000})
		errtest.Must(t, err)
		for i, r := range page.Resources {
			level, pii := "", []string{}
			if strings.HasPrefix(r.Name, "card") {
				level, pii = "restricted", []string{"card_numbers"}
			}
			if r.Version != int64(i)+2 || r.Kind != "api" || r.DataClassification != level || !slices.Equal(r.PIICategories, pii) || r.Source != "heuristic" ||
				r.Confidence == nil || !r.LastClassifiedAt.Equal(now) || !r.UpdatedAt.Equal(now) || r.OwnerTeam != fmt.Sprint("team ", i+1) {
				t.Fatalf("resource = %+v", r)
			}
			if e := events[i]; e.Type != "resource.updated" || e.Data["resource_id"] != float64(r.ID) || e.Data["resource_name"] != r.Name {
				t.Fatalf("event %d = %+v, want of the resource %d", i, e, r.ID)
			}
		}
		if out, err = s.ClassifyBulk(ctx, sc(scope.Sandbox), 1000); err != nil || out.Unchanged != n || revision(t, c, scope.Sandbox) != before+1 {
			t.Errorf("ClassifyBulk again = %+v, %v, want no change", out, err)
		}
	})
}

// TestLongest: each store accepts the longest values that the API accepts. PostgreSQL
// limits the size of index entries, and no list of tags or path may exceed that limit.
func TestLongest(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s, random := context.Background(), service(c, nil, nil), rand.New(rand.NewPCG(1, 2))
		text := func(n int) string { // random, so that it cannot be compressed
			out := make([]rune, n)
			for i := range out {
				out[i] = rune(0x4e00 + random.IntN(0x5000))
			}
			return string(out)
		}
		tags := make([]string, 50)
		for i := range tags {
			tags[i] = text(64)
		}
		d := Draft{
			Name: text(200), Type: text(64), Path: "/" + text(2047), Description: text(4000), URL: "https://h.example.com/" + strings.Repeat("x", 2000),
			EnrichmentChange: EnrichmentChange{ComplianceTags: patch.Set(tags), OwnerTeam: patch.Set(text(200)), BusinessContext: patch.Set(text(500))},
		}
		r, err := s.Create(ctx, sc(""), d)
		errtest.Must(t, err)
		create(t, s, Draft{Name: "short", EnrichmentChange: EnrichmentChange{ComplianceTags: patch.Set([]string{tags[7], "GDPR"})}})
		got, err := s.Inventory(ctx, sc(scope.Sandbox))
		if err != nil || got.Total != 2 || len(got.ByTag) != 51 || got.ByTag[tags[7]] != 2 || got.ByTag[tags[8]] != 1 || got.ByTag["GDPR"] != 1 {
			t.Errorf("Inventory = %d resources, %d tags, %v, want 2 and 51", got.Total, len(got.ByTag), err)
		}
		err = tenantStore(t, c).Read(ctx, func(tx *db.Tx) error {
			found, err := selectSame(ctx, tx, scope.Sandbox, r)
			if err != nil || found != r.ID {
				t.Errorf("selectSame = %d, %v, want %d", found, err, r.ID)
			}
			return err
		})
		errtest.Must(t, err)
	})
}

// TestInventoryOfMany compares the inventory with a count over all resources. Their ids
// are in several parts, with gaps between them.
func TestInventoryOfMany(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s, store := context.Background(), service(c, nil, nil), tenantStore(t, c)
		for seed, few := range []int{0, 3, 30, 900} {
			populateSome(t, store, few)
			for _, env := range []scope.Env{scope.AnyEnv, scope.Sandbox, scope.Production} {
				got, err := s.Inventory(ctx, sc(env))
				errtest.Must(t, err)
				want := countInventory(t, store, env)
				if env != scope.AnyEnv {
					want.Environment = &env
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("Inventory of set %d in %q (-want +got): %s", seed, env, diff)
				}
			}
		}
	})
}

// populateSome replaces all resources with 1200 new ones. About few of them lack something,
// and about as many have no control.
func populateSome(t *testing.T, store *db.DB, few int) {
	t.Helper()
	ctx, random := context.Background(), rand.New(rand.NewPCG(uint64(few), 7))
	pick := func(some ...string) string { return some[random.IntN(len(some))] }
	err := store.Write(ctx, func(tx *db.Tx) error {
		for _, table := range []string{"resources", "policies"} {
			if _, err := tx.Exec(ctx, `DELETE FROM `+table); err != nil {
				return err
			}
		}
		var resources, policies [][]any
		id := int64(random.IntN(2000))
		for range 1200 {
			id += int64(1 + random.IntN(4)*random.IntN(100)/60)
			env, kind, level, source, confidence := pick("sandbox", "sandbox", "production"), pick("api", "tool", "mcp_server"), pick("public", "internal"), "manual", 1.0
			if random.IntN(1200) < few {
				kind, level, source, confidence = pick("", "api", "agent", "llm_endpoint"), pick("", "public"), pick("", "heuristic", "assist"), random.Float64()
			}
			resources = append(resources, []any{id, fmt.Sprint("r", id), env, kind, level, pick("[]", `["GDPR"]`, `["GDPR","SOX"]`), source, confidence, random.IntN(2) == 0})
			status, deleted := "active", any(nil)
			if random.IntN(1200) < few {
				if status = pick("draft", "inactive", "active"); status == "active" {
					deleted = int64(1)
				}
			}
			for range 1 + random.IntN(2) {
				policies = append(policies, []any{env, status, id, deleted})
			}
		}
		_, err := db.ExecRows(ctx, tx, `INSERT INTO resources (id, name, environment, resource_kind, data_classification, compliance_tags,
			classification_source, classification_confidence, auto_discovered, type, path, version, created_at, updated_at)
			SELECT v.column1, v.column2, v.column3, v.column4, v.column5, v.column6, v.column7, v.column8, v.column9, 'api', '/', 1, 0, 0 FROM (VALUES `,
			resources, `) AS v`, "BIGINT", "TEXT", "TEXT", "TEXT", "TEXT", "TEXT", "TEXT", "DOUBLE PRECISION", "BOOLEAN")
		if err != nil {
			return err
		}
		_, err = db.ExecRows(ctx, tx, `INSERT INTO policies (environment, status, resource_id, deleted_at, name, name_folded, rego_code, version, created_at, updated_at)
			SELECT v.column1, v.column2, v.column3, v.column4, 'c', 'c', '', 1, 0, 0 FROM (VALUES `, policies, `) AS v`, "TEXT", "TEXT", "BIGINT", "BIGINT")
		return err
	})
	errtest.Must(t, err)
}

// countInventory counts the inventory resource by resource.
func countInventory(t *testing.T, store *db.DB, env scope.Env) Inventory {
	t.Helper()
	out := Inventory{ByKind: map[string]int64{}, ByLevel: map[string]int64{}, ByTag: map[string]int64{}, Attention: []Attention{}}
	err := store.Read(context.Background(), func(tx *db.Tx) error {
		rows, err := db.All[suspect](context.Background(), tx, `SELECT `+suspectColumns+` FROM resources r ORDER BY r.id`)
		if err != nil {
			return err
		}
		tags := map[int64][]string{}
		for _, e := range []scope.Env{scope.Sandbox, scope.Production} {
			rs, err := all(context.Background(), tx, e)
			if err != nil {
				return err
			}
			for _, r := range rs {
				tags[r.ID] = r.ComplianceTags
			}
		}
		byCount := map[int][]Attention{}
		for _, x := range rows {
			if env != scope.AnyEnv && env != x.Env {
				continue
			}
			out.add(tally{Kind: x.Kind, Level: x.Level, Tags: tags[x.ID], Count: 1})
			if x.Protected {
				out.Protected++
			}
			if a := x.attention(); len(a.Reasons) > 0 {
				byCount[x.countMissing()] = append(byCount[x.countMissing()], a)
			}
		}
		for n := 5; n >= 0; n-- {
			out.Attention = append(out.Attention, byCount[n]...)
		}
		out.Attention = out.Attention[:min(len(out.Attention), attention)]
		return nil
	})
	errtest.Must(t, err)
	return out
}

// TestIndexed: the expressions in the queries equal those of the indexes. Otherwise the queries would
// still work, but slowly.
func TestIndexed(t *testing.T) {
	for backend, explain := range map[string]string{dbtest.SQLite: "EXPLAIN QUERY PLAN ", dbtest.Postgres: "EXPLAIN (COSTS OFF) "} {
		t.Run(backend, func(t *testing.T) {
			ctx, store := context.Background(), tenantStore(t, dbtest.Open(t, backend))
			for query, index := range map[string]string{
				`SELECT r.id FROM resources r WHERE r.environment = 'sandbox' AND ` + gaps + ` > 0 ORDER BY ` + gaps + ` DESC, r.id LIMIT 25`:                "resources_lacking",
				`SELECT DISTINCT resource_id FROM (` + strings.ReplaceAll(guarding, "$1", "'sandbox'") + `) g`:                                               "policies_guarding",
				`SELECT resource_kind, data_classification, compliance_tags FROM resources WHERE environment = 'sandbox' AND length(compliance_tags) <= 400`: "resources_tally",
				`SELECT resource_kind, data_classification, compliance_tags FROM resources WHERE environment = 'sandbox' AND length(compliance_tags) > 400`:  "resources_tally_long",
			} {
				plan := ""
				err := store.Write(ctx, func(tx *db.Tx) error {
					if backend == dbtest.SQLite {
						steps, err := db.All[struct {
							ID     int64  `db:"id"`
							Parent int64  `db:"parent"`
							Unused int64  `db:"notused"`
							Detail string `db:"detail"`
						}](ctx, tx, explain+query)
						for _, s := range steps {
							plan += s.Detail + "\n"
						}
						return err
					}
					if _, err := tx.Exec(ctx, `SET LOCAL enable_seqscan = off`); err != nil {
						return err
					}
					steps, err := db.All[string](ctx, tx, explain+query)
					plan = strings.Join(steps, "\n")
					return err
				})
				if err != nil || !strings.Contains(plan, index+" ") && !strings.HasSuffix(plan, index) && !strings.Contains(plan, index+"\n") || strings.Contains(plan, "Sort") || strings.Contains(plan, "TEMP B-TREE") {
					t.Errorf("plan of %s uses no %s, or sorts, %v:\n%s", query, index, err, plan)
				}
			}
		})
	}
}

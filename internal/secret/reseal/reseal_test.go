package reseal

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

func box(t testing.TB, keys ...byte) *secret.Box {
	t.Helper()
	all := make([][secret.KeyBytes]byte, len(keys))
	for i, k := range keys {
		all[i][0] = k
	}
	b, err := secret.New(all...)
	errtest.Must(t, err)
	return b
}

func place(t scope.TenantID, kid string) string { return string(t) + "/" + kid }

func maskKeys(b *secret.Box) Column {
	return Column{Table: "mask_keys", Name: "sealed", Key: "kid", Box: b, Place: ByName(place)}
}

// put seals n values of both tenants with b.
func put(t *testing.T, c *db.Cluster, b *secret.Box, n int) {
	t.Helper()
	for _, id := range []scope.TenantID{scope.DefaultTenant, dbtest.Second} {
		errtest.Must(t, c.Write(context.Background(), id, func(tx *db.Tx) error {
			for i := range n {
				kid := fmt.Sprintf("k%04d", i)
				sealed, err := b.Seal([]byte(kid), place(id, kid))
				if err != nil {
					return err
				}
				if _, err := tx.Exec(context.Background(), `INSERT INTO mask_keys (kid, sealed, created_at) VALUES ($1, $2, $3)`, kid, sealed, 0); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func set(t *testing.T, c *db.Cluster, id scope.TenantID, kid string, sealed []byte) {
	t.Helper()
	errtest.Must(t, c.Write(context.Background(), id, func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), `UPDATE mask_keys SET sealed = $2 WHERE kid = $1`, kid, sealed)
		return err
	}))
}

func get(t *testing.T, c *db.Cluster, id scope.TenantID, kid string) []byte {
	t.Helper()
	out, err := db.Read(context.Background(), c, id, func(tx *db.Tx) ([]byte, error) {
		return db.One[[]byte](context.Background(), tx, `SELECT sealed FROM mask_keys WHERE kid = $1`, kid)
	})
	errtest.Must(t, err)
	return out
}

// TestReplicas: several replicas seal the same values again at once. All of them succeed and know
// that nothing is left under the old key, and the new key alone opens every value.
func TestReplicas(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		const n = 2*batch + 7 // more than two transactions for each tenant
		put(t, c, box(t, 1), n)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				s := Sealer{Stores: c, Columns: []Column{maskKeys(box(t, 2, 1))}, Logger: slog.New(slog.DiscardHandler)}
				if _, known := s.Counts(); known {
					t.Error("the counts are known before the first run")
				}
				if err := s.Run(context.Background()); err != nil {
					t.Errorf("Run: %v", err)
				}
				if got, known := s.Counts(); !known || got != (Counts{}) {
					t.Errorf("Counts = %+v, %v, want nothing left", got, known)
				}
			})
		}
		wg.Wait()
		fresh := box(t, 2)
		for _, id := range []scope.TenantID{scope.DefaultTenant, dbtest.Second} {
			for i := range n {
				kid := fmt.Sprintf("k%04d", i)
				if plain, err := fresh.Open(get(t, c, id, kid), place(id, kid)); err != nil || string(plain) != kid {
					t.Fatalf("%s of %s opens as %q, %v, want its name", kid, id, plain, err)
				}
			}
		}
	})
}

// TestConcurrentChange: a value that somebody stores while a run has read the old one is kept. If it
// keeps changing, the run ends and counts it.
func TestConcurrentChange(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		old := box(t, 1)
		put(t, c, old, 1)
		changes := 0
		column := maskKeys(box(t, 2, 1))
		column.Place = func(id scope.TenantID, key any) string {
			if at := place(id, key.(string)); id == dbtest.Second { // between the read and the write
				changes++
				sealed, err := old.Seal(fmt.Appendf(nil, "change %d", changes), at)
				errtest.Must(t, err)
				set(t, c, id, key.(string), sealed)
			}
			return place(id, key.(string))
		}
		s := Sealer{Stores: c, Columns: []Column{column}, Logger: slog.New(slog.DiscardHandler)}
		errtest.Must(t, s.Run(context.Background()))
		if got, known := s.Counts(); !known || got != (Counts{Old: 1}) || changes != rounds {
			t.Errorf("Counts = %+v, %v after %d changes, want one left after %d", got, known, changes, rounds)
		}
		if plain, err := old.Open(get(t, c, dbtest.Second, "k0000"), place(dbtest.Second, "k0000")); err != nil || string(plain) != fmt.Sprint("change ", changes) {
			t.Errorf("the value is %q, %v, want the last change", plain, err)
		}
	})
}

// TestUnreadable: values that do not open are counted and named, and stay as they are. The rest is
// sealed again.
func TestUnreadable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		put(t, c, box(t, 1), 3)
		lost, err := box(t, 9).Seal([]byte("lost-secret"), place(dbtest.Second, "k0001"))
		errtest.Must(t, err)
		set(t, c, dbtest.Second, "k0001", lost)
		elsewhere := get(t, c, dbtest.Second, "k0000") // bound to another row
		set(t, c, scope.DefaultTenant, "k0002", elsewhere)
		set(t, c, scope.DefaultTenant, "k0000", []byte{}) // no secret
		var log bytes.Buffer
		s := Sealer{Stores: c, Columns: []Column{maskKeys(box(t, 2, 1))}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		errtest.Must(t, s.Run(context.Background()))
		if got, known := s.Counts(); !known || got != (Counts{Unreadable: 2}) {
			t.Errorf("Counts = %+v, %v, want two unreadable values", got, known)
		}
		if text := log.String(); !strings.Contains(text, "mask_keys.sealed k0001") || !strings.Contains(text, "mask_keys.sealed k0002") || strings.Contains(text, "lost-secret") || strings.Count(text, "level=ERROR") != 1 {
			t.Errorf("the log has %s, want one line with both rows", text)
		}
		if !bytes.Equal(get(t, c, dbtest.Second, "k0001"), lost) || !bytes.Equal(get(t, c, scope.DefaultTenant, "k0002"), elsewhere) || len(get(t, c, scope.DefaultTenant, "k0000")) != 0 {
			t.Error("a value that does not open has changed")
		}
		if _, err := box(t, 2).Open(get(t, c, dbtest.Second, "k0002"), place(dbtest.Second, "k0002")); err != nil {
			t.Errorf("a value behind an unreadable one: %v", err)
		}
		s.Columns = []Column{{Table: "no_such_table", Name: "x", Key: "y", Box: box(t, 2)}}
		if err := s.Run(context.Background()); err == nil {
			t.Error("Run of a table that does not exist succeeds, want an error")
		}
		if _, known := s.Counts(); known {
			t.Error("the counts are known after a run that failed")
		}
	})
}

// TestBrokenColumn: if one column cannot be read, the others are sealed again all the same, and the error
// names the one.
func TestBrokenColumn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		put(t, c, box(t, 1), 2)
		bad := maskKeys(box(t, 2, 1))
		bad.Table = "no_such_table"
		s := Sealer{Stores: c, Columns: []Column{bad, maskKeys(box(t, 2, 1))}, Logger: slog.New(slog.DiscardHandler)}
		if err := s.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "no_such_table.sealed") {
			t.Errorf("Run = %v, want an error that names the column", err)
		}
		if plain, err := box(t, 2).Open(get(t, c, dbtest.Second, "k0001"), place(dbtest.Second, "k0001")); err != nil || string(plain) != "k0001" {
			t.Errorf("a value of another column opens as %q, %v, want its name", plain, err)
		}
	})
}

package simulator

import (
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestRetain checks that runs are deleted when the audit would delete decisions about their resource, by
// its level, and scenarios with their control.
func TestRetain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := &Service{Stores: c, Now: func() time.Time { return ran }}
		store, err := c.Tenant(t.Context(), scope.DefaultTenant)
		errtest.Must(t, err)
		levels := []audit.Level{audit.None, audit.Basic, audit.Detailed, audit.Comprehensive}
		err = store.Write(t.Context(), func(tx *db.Tx) error {
			for _, level := range levels {
				for _, age := range []time.Duration{level.Keep() + time.Hour, level.Keep() - time.Hour} {
					for range 150 {
						r := row{PolicyID: 1, Environment: scope.Sandbox, ActorKind: scope.Person, ActorID: "u", AuditLevel: string(level), Record: "{}", CreatedAt: ran.Add(-age)}
						if _, err := insert(t.Context(), tx, r); err != nil {
							return err
						}
					}
				}
			}
			_, err := insertScenario(t.Context(), tx, Scenario{PolicyID: 99, Name: "orphan", CreatedAt: ran})
			return err
		})
		errtest.Must(t, err)
		n, err := s.Retain(t.Context(), scope.DefaultTenant)
		if err != nil || n != int64(len(levels))*150+1 {
			t.Errorf("Retain deletes %d rows, %v, want %d", n, err, len(levels)*150+1)
		}
		h, err := s.ListOwn(t.Context(), scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "u"}}, Filter{Limit: 200})
		if err != nil || h.Total != int64(len(levels))*150 || !h.HasMore {
			t.Errorf("%d runs stay, %v, want %d and more pages", h.Total, err, len(levels)*150)
		}
		if n, err := s.Retain(t.Context(), scope.DefaultTenant); err != nil || n != 0 {
			t.Errorf("a second Retain deletes %d rows, %v, want none", n, err)
		}
	})
}

// TestAlteredRecord checks that a record that was edited in the store is not intact.
func TestAlteredRecord(t *testing.T) {
	k := keptSample(t, sample(t))
	r := row{Record: string(k.Text), Digest: strings.TrimPrefix(k.Checksum, "sha256:")}
	if got, err := parseStored(r); err != nil || !got.Intact {
		t.Errorf("an unchanged record: intact %v, %v, want true", got.Intact, err)
	}
	r.Record = strings.Replace(r.Record, `"decision":"DENY"`, `"decision":"ALLOW"`, 1)
	if got, err := parseStored(r); err != nil || got.Intact || got.Record.Decision != "ALLOW" {
		t.Errorf("an edited record: intact %v, %s, %v, want false and ALLOW", got.Intact, got.Record.Decision, err)
	}
}

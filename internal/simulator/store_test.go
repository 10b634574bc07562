package simulator

import (
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestRetain: runs go when the audit would let decisions about their resource
// go, by its level; scenarios go with a control that is gone for good.
func TestRetain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := &Service{Stores: c, Now: func() time.Time { return ran }}
		store, err := c.Tenant(t.Context(), scope.DefaultTenant)
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		n, err := s.Retain(t.Context(), scope.DefaultTenant)
		if err != nil || n != int64(len(levels))*150+1 {
			t.Errorf("%d rows went: %v", n, err)
		}
		h, err := s.ListOwn(t.Context(), scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "u"}}, Filter{Limit: 200})
		if err != nil || h.Total != int64(len(levels))*150 || !h.HasMore {
			t.Errorf("%d are left: %v", h.Total, err)
		}
		if n, err := s.Retain(t.Context(), scope.DefaultTenant); err != nil || n != 0 {
			t.Errorf("again, %d rows went: %v", n, err)
		}
	})
}

// TestAlteredRecord: a record that somebody edited in the store says so.
func TestAlteredRecord(t *testing.T) {
	k := keptSample(t, sample(t))
	r := row{Record: string(k.Text), Digest: strings.TrimPrefix(k.Checksum, "sha256:")}
	if got, err := parseStored(r); err != nil || !got.Intact {
		t.Errorf("an unchanged record: %v %v", got.Intact, err)
	}
	r.Record = strings.Replace(r.Record, `"decision":"DENY"`, `"decision":"ALLOW"`, 1)
	if got, err := parseStored(r); err != nil || got.Intact || got.Record.Decision != "ALLOW" {
		t.Errorf("an edited record: %v %s %v", got.Intact, got.Record.Decision, err)
	}
}

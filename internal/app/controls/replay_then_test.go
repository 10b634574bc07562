package controls_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

const (
	thenLibrary = "package lib.trust\n\nmay(role) if role in {\"clerk\", \"manager\"}\n"
	thenControl = `package ledgers

import data.lib.trust

default allow := false

allow if {
	trust.may(input.user.role)
	input.resource.data_classification != "restricted"
	input.resource.attributes.owner == "finance"
}
`
	vaultControl = "package vault\n\ndefault allow := false\n\nallow if data.resources[\"%d\"].attributes.open == true\n"
)

// driftless is the result of a replay with the data and controls of then.
type driftless struct {
	apptest.ImpactFigures
	Drifted struct {
		Total, Controls, Data, Unknown int64
	} `json:"drifted"`
}

func replayThen(t testing.TB, a *apptest.Client, ask body) driftless {
	t.Helper()
	var out driftless
	ask["environment"], ask["window_hours"] = "production", 1
	a.Do(t, "POST", "/compliance/impact-preview", ask).Want(200).Into(&out)
	return out
}

// TestReplayThen checks that a replay uses what decided then, whatever changed after the decision:
// its resource, one that its control reads, a library, or the control, and also if all are deleted.
// Nothing drifts, and the old control changes nothing.
func TestReplayThen(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin.With("X-Environment", "production")
		lib := a.Do(t, "POST", "/policies", body{"kind": "library", "name": "trust", "status": "active", "environment": "production", "rego_code": thenLibrary}).Want(201).ID()
		make1 := func(name string) int64 {
			id := a.Do(t, "POST", "/resources", body{"name": name, "type": "api", "path": "/" + name + "/**", "environment": "production", "attributes": body{"owner": "finance", "open": true}}).Want(201).ID()
			a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", id), body{"audit_level": "detailed", "data_classification": "internal"}).Want(200)
			return id
		}
		ledgers, vault, key := make1("ledgers"), make1("vault"), make1("key")
		control := apptest.Activate(t, a, "ledgers", "production", thenControl, body{"resource_id": ledgers})
		guard := apptest.Activate(t, a, "vault", "production", fmt.Sprintf(vaultControl, key), body{"resource_id": vault})
		n := int64(0)
		decide := func(want string, paths ...string) {
			t.Helper()
			for _, path := range paths {
				r := a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "u", "role": "clerk"}, "action": body{"name": "read", "method": "GET"}, "resource": body{"type": "api", "path": path}}).Want(200)
				if r.Get("decision") != want {
					t.Fatalf("the decision on %s = %s", path, r.Body)
				}
				n++
			}
		}
		ledgersAt, controlAt := fmt.Sprint("/resources/", ledgers), fmt.Sprint("/policies/", control)
		decide("PERMIT", "/ledgers/1", "/vault/1")
		a.Do(t, "PUT", ledgersAt+"/enrich", body{"data_classification": "restricted", "compliance_tags": []string{"SOX"}}).Want(200)
		a.Do(t, "PUT", fmt.Sprint("/resources/", key), body{"attributes": body{"open": false}}).Want(200)
		decide("DENY", "/ledgers/2", "/vault/2")
		a.Do(t, "PUT", ledgersAt+"/enrich", body{"data_classification": "internal"}).Want(200)
		decide("PERMIT", "/ledgers/3")
		a.Do(t, "PUT", fmt.Sprint("/policies/", lib), body{"rego_code": strings.Replace(thenLibrary, `"clerk", `, "", 1)}).Want(200)
		decide("DENY", "/ledgers/4")
		a.Do(t, "PUT", controlAt, body{"rego_code": "package ledgers\n\nallow if input.user.role == \"clerk\"\n"}).Want(200)
		decide("PERMIT", "/ledgers/5")
		same := func(name string, ask body, changed int64) {
			t.Helper()
			got := replayThen(t, a, ask)
			if got.Evaluated != n || got.Changed != changed || got.Drifted.Total != 0 || got.Note != "" {
				t.Errorf("%s: the replay of %d = %+v, want no drift", name, n, got)
			}
		}
		same("as it was", body{}, 0)
		// The old control agrees with its own decisions, which the newest is not.
		same("the old control", body{"candidates": []body{{"policy_id": control, "rego_code": thenControl}}}, 1)
		// The resources and everything that decided are deleted.
		a.Do(t, "DELETE", controlAt, nil).Want(200)
		a.Do(t, "DELETE", fmt.Sprint("/policies/", guard), nil).Want(200)
		for _, id := range []int64{ledgers, vault, key} {
			a.Do(t, "DELETE", fmt.Sprint("/resources/", id), nil).Want(200)
		}
		a.Do(t, "DELETE", fmt.Sprint("/policies/", lib), nil).Want(200)
		make1("ledgers")
		same("all gone", body{}, 0)
		same("an edit over what is gone", body{"candidates": []body{{"name": "shut", "rego_code": "package shut\n\ndeny if input.resource.data_classification == \"restricted\"\n"}}}, 0)
		same("a flip of what is gone", body{"candidates": []body{{"name": "shut", "rego_code": "package shut\n\ndeny if input.resource.data_classification == \"internal\"\n"}}}, 4)
		today := replayThen(t, a, body{"data": "now"})
		if today.Evaluated != n || today.Drifted.Data != 4 || today.Drifted.Total != 4 || today.Changed != 0 {
			t.Errorf("the replay with today's data = %+v, want 4 drifted by data", today)
		}
		now := replayThen(t, a, body{"baseline": "now"})
		if now.Evaluated != n || now.Drifted.Controls != 4 || now.Drifted.Total != 4 || now.WouldBlock != n {
			t.Errorf("the replay with today's controls = %+v, want 4 drifted by controls", now)
		}
	})
}

// TestReplayBundleThen checks that the replay of a lagging bouncer's decisions uses its bundle and
// not the service's data, also after the bouncer is deleted.
func TestReplayBundleThen(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin.With("X-Environment", "production")
	resource := a.Do(t, "POST", "/resources", body{"name": "desk", "type": "api", "path": "/desk/**", "environment": "production"}).Want(201).ID()
	at := fmt.Sprint("/resources/", resource)
	a.Do(t, "PUT", at+"/enrich", body{"audit_level": "detailed", "data_classification": "internal"}).Want(200)
	apptest.Activate(t, a, "desk", "production", "package desk\n\nallow if input.resource.data_classification == \"internal\"\n", body{"resource_id": resource})
	reg := s.Register(t, a, body{"name": "opa", "environment": "production", "resource_ids": []int64{resource}}, "127.0.0.1:9")
	o := apptest.ConfiguredOPA(t, s, reg, nil)
	asks := func(path string) body {
		return body{"input": body{"user": body{"id": "ann"}, "resource": body{"type": "api", "path": path}, "action": body{"method": "GET"}}}
	}
	decides := func(path, want string) {
		t.Helper()
		apptest.Eventually(t, 30*time.Second, func() error {
			r, err := o.Try("POST", "/v1/data/gatehouse/decision", asks(path))
			if err != nil || !strings.Contains(string(r.Body), `"`+want+`"`) {
				return fmt.Errorf("OPA does not decide %s: %v\n%s", want, err, o.Log)
			}
			return nil
		})
	}
	decides("/desk/1", "PERMIT")
	a.Do(t, "PUT", at+"/enrich", body{"data_classification": "restricted", "compliance_tags": []string{"SOX"}}).Want(200)
	// Until the bundle arrives, OPA permits what the service denies.
	decides("/desk/2", "DENY")
	a.Do(t, "PUT", fmt.Sprint("/bouncers/", reg.ID), body{"resource_ids": []int64{}}).Want(200)
	decides("/desk/3", "NO_MATCH")
	apptest.Eventually(t, 30*time.Second, func() error {
		got := replayThen(t, a, body{})
		if got.Evaluated < 2 || got.WouldBlock == 0 || got.WouldAllow == 0 || got.Drifted.Total != 0 {
			return fmt.Errorf("the replay = %+v, want both effects and no drift", got)
		}
		return nil
	})
	a.Do(t, "DELETE", fmt.Sprint("/bouncers/", reg.ID), nil).Want(200)
	got := replayThen(t, a, body{})
	if got.Evaluated < 2 || got.Drifted.Total != 0 {
		t.Errorf("the replay after the bouncer is deleted = %+v, want no drift", got)
	}
	if today := replayThen(t, a, body{"data": "now"}); today.Drifted.Data == 0 {
		t.Errorf("the replay with today's data = %+v, want drift by data", today)
	}
}

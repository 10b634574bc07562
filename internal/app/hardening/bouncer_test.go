package hardening_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

var bouncerCases = []hardeningCase{
	{"B7 a bouncer's token elsewhere", bouncerElsewhere},
	{"B7 a bouncer's token that ended", bouncerEnded},
	{"B7 a bundle holds what is its bouncer's", bouncerBundle},
}

// enforcer registers a bouncer and gives a client with its token.
func (r *rig) enforcer(t *testing.T, p *party, members body) (id int64, c *apptest.Client) {
	t.Helper()
	draft := body{"name": r.name("bouncer"), "hostname": "edge.example", "port": 8443, "environment": "sandbox"}
	for k, v := range members {
		draft[k] = v
	}
	made := p.admin.Do(t, "POST", "/bouncers", draft).Want(201)
	r.reporting[p.id] = true
	// A bundle that is asked for twice over one connection counts as refused.
	c = r.s.Anonymous().With("Connection", "close")
	c.Bearer, _ = made.Get("token").(string)
	return made.ID(), c
}

// bouncerElsewhere: a bouncer's token opens the bridge for its own bouncer, and
// no operation of the API.
func bouncerElsewhere(t *testing.T, r *rig) {
	own, c := r.enforcer(t, r.alpha, nil)
	sibling, _ := r.enforcer(t, r.alpha, nil)
	bundle := func(id any) string { return fmt.Sprintf("/bridge/bundles/%v", id) }
	c.Do(t, "GET", "/bridge/self", nil).Want(200)
	c.Do(t, "GET", bundle(own), nil).Want(200)
	r.unchanged(t, func() {
		for _, op := range r.secured() {
			if op.bridge() {
				continue
			}
			res := op.send(t, c, op.at(r.alpha.valueOf))
			// Who one is, and counters of one's own tenant, anyone with a credential may ask.
			if harmless := op.id == "get-current-user"; res.Status != 403 && res.Status != 401 && !harmless && !(op.id == "logout" && res.Status == 400) {
				t.Errorf("%s with a bouncer's token: %d %s", op.id, res.Status, res.Body)
			}
		}
		for _, path := range []string{bundle("%v"), bundle("%v") + "/discovery"} {
			never := r.do(t, asked(c), "GET", fmt.Sprintf(path, 987654321), 404, nil)
			for _, foreign := range []int64{sibling, r.beta.bouncer} {
				if res := r.do(t, asked(c), "GET", fmt.Sprintf(path, foreign), 404, nil); !bytes.Equal(res.Body, never.Body) {
					t.Errorf("a foreign bouncer is %s, one that never was %s", res.Body, never.Body)
				}
			}
		}
		for _, other := range []*apptest.Client{c.With("X-Tenant-ID", r.beta.id), c.With("X-Environment", "production")} {
			r.do(t, other, "GET", bundle(own), 403, nil)
		}
	})
	// The token is no API key, and other credentials are no bouncer's.
	r.do(t, &apptest.Client{Base: c.Base, Bearer: c.Bearer[:len(c.Bearer)-1]}, "GET", "/bridge/self", 401, nil)
	r.do(t, r.alpha.key, "GET", bundle(own), 403, nil)
	r.do(t, r.alpha.admin, "POST", "/bridge/logs", 403, []byte("[]"))
	if strings.Contains(r.s.StoredText(t), c.Bearer) || strings.Contains(r.s.Log.String(), c.Bearer) {
		t.Error("a bouncer's token is kept in clear")
	}
	// What a bouncer reports is its own, whatever it says of itself.
	event := body{
		"decision_id": r.name("forged"), "timestamp": "2026-01-01T00:00:00Z", "path": "gatehouse/decision", "input": body{"user": body{"id": "u"}},
		"result": body{"decision": "PERMIT"}, "labels": body{"bouncer_id": fmt.Sprint(sibling), "id": fmt.Sprint(sibling)}, "bouncer_id": sibling, "tenant_id": r.beta.id,
	}
	c.Do(t, "POST", "/bridge/logs", []any{event}).Want(200, 202, 204)
	apptest.Eventually(t, 5*time.Second, func() error {
		logs := r.alpha.admin.Do(t, "GET", "/decisions/audit?limit=1000&environment=sandbox", nil).Want(200)
		for _, entry := range logs.Get("logs").([]any) {
			if e, _ := entry.(map[string]any); e["decision_id"] == event["decision_id"] {
				if e["bouncer_id"] != float64(own) {
					t.Errorf("the event is said to be of %v, and is of %d", e["bouncer_id"], own)
				}
				return nil
			}
		}
		return fmt.Errorf("the event is not in the log")
	})
}

// bouncerEnded: a token that was rotated, and those of a bouncer or tenant that
// is gone or suspended, stop within a second.
func bouncerEnded(t *testing.T, r *rig) {
	p := r.tenant(t, "Fleet")
	stops := func(what string, c *apptest.Client, f func()) {
		t.Helper()
		c.Do(t, "GET", "/bridge/self", nil).Want(200)
		f()
		apptest.Eventually(t, time.Second, func() error {
			if res := c.Do(t, "GET", "/bridge/self", nil); res.Status != 401 && res.Status != 403 {
				return fmt.Errorf("%s: %d %s", what, res.Status, res.Body)
			}
			return nil
		})
	}
	id, c := r.enforcer(t, p, nil)
	stops("rotated", c, func() { p.admin.Do(t, "POST", fmt.Sprintf("/bouncers/%d/rotate-token", id), nil).Want(200, 201) })
	id, c = r.enforcer(t, p, nil)
	stops("deleted", c, func() { p.admin.Do(t, "DELETE", fmt.Sprintf("/bouncers/%d", id), nil).Want(200) })
	id, c = r.enforcer(t, p, nil)
	// A poll that is parked ends with its tenant, and brings nothing.
	first := c.Do(t, "GET", fmt.Sprintf("/bridge/bundles/%d", id), nil).Want(200)
	parked := make(chan *apptest.Response, 1)
	go func() {
		res, err := c.With("If-None-Match", first.Header.Get("ETag")).With("Prefer", "wait=300").Try("GET", fmt.Sprintf("/bridge/bundles/%d", id), nil)
		if err != nil {
			res = nil
		}
		parked <- res
	}()
	stops("suspended", c, func() { r.s.Admin.Do(t, "PUT", "/tenants/"+p.id, body{"status": "suspended"}).Want(200) })
	select {
	case res := <-parked:
		if res != nil && res.Status == 200 {
			t.Errorf("the parked poll was answered %d with %d bytes", res.Status, len(res.Body))
		}
	case <-time.After(30 * time.Second):
		t.Error("the parked poll goes on after its tenant was suspended")
	}
	r.s.Admin.Do(t, "PUT", "/tenants/"+p.id, body{"status": "active"}).Want(200)
	stops("purged", c, func() { r.s.Admin.Do(t, "DELETE", "/tenants/"+p.id+"?hard_delete=true", nil).Want(200) })
}

// bouncerBundle: a bundle holds the controls of its bouncer's resources and the
// tenant-wide ones of its environment, and none that is a draft or deleted.
func bouncerBundle(t *testing.T, r *rig) {
	p := r.tenant(t, "Bundles")
	res := func(env string) int64 {
		return p.admin.Do(t, "POST", "/resources", body{"name": r.name("res"), "type": "api", "path": "/" + r.name("x"), "environment": env}).Want(201).ID()
	}
	mine, others, far := res("sandbox"), res("sandbox"), res("production")
	id, c := r.enforcer(t, p, body{"resource_ids": []int64{mine}})
	source := func(canary string) string { return "package p\n\nreason := \"" + canary + "\"\n\nallow := true\n" }
	deleted := r.control(t, p, body{"status": "active", "rego_code": source("canary-deleted")})
	for canary, members := range map[string]body{
		"canary-wide":       {"status": "active"},
		"canary-mine":       {"status": "active", "resource_id": mine},
		"canary-others":     {"status": "active", "resource_id": others},
		"canary-draft":      {"status": "draft", "resource_id": mine},
		"canary-production": {"status": "active", "environment": "production", "resource_id": far},
	} {
		members["rego_code"] = source(canary)
		r.control(t, p, members)
	}
	p.admin.Do(t, "DELETE", fmt.Sprintf("/policies/%d", deleted), nil).Want(200)
	apptest.Eventually(t, 5*time.Second, func() error {
		text := apptest.Unpacked(t, c.Do(t, "GET", fmt.Sprintf("/bridge/bundles/%d", id), nil).Want(200).Body)
		for canary, want := range map[string]bool{
			"canary-wide": true, "canary-mine": true, "canary-others": false, "canary-draft": false, "canary-production": false, "canary-deleted": false,
		} {
			if strings.Contains(text, canary) != want {
				return fmt.Errorf("%s in the bundle: %v, want %v", canary, !want, want)
			}
		}
		return nil
	})
}

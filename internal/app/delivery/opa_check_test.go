package delivery_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// waitForBouncer waits until the record of a bouncer has the status and the detail.
func waitForBouncer(t *testing.T, a *apptest.Client, id int64, status, detail string) {
	t.Helper()
	apptest.Eventually(t, 30*time.Second, func() error {
		r := a.Do(t, "GET", fmt.Sprint("/bouncers/", id), nil).Want(200)
		if got, _ := r.Get("status_detail").(string); r.Get("status") != status || !strings.Contains(got, detail) {
			return fmt.Errorf("the bouncer is %s, want %s (%s)", r.Body, status, detail)
		}
		return nil
	})
}

// TestOPASigning checks that with the configuration of the API a stock OPA verifies signed bundles, and
// that with another key it accepts none, which the bouncer's record shows.
func TestOPASigning(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	apptest.Activate(t, a, "only", "production", permitOnly("alice"), nil)
	signed := body{"name": "right", "environment": "production", "configuration": body{"signing": "signed"}}
	right := s.Register(t, a, signed, "127.0.0.1:9")
	signed["name"] = "wrong"
	wrong := s.Register(t, a, signed, "127.0.0.1:9")
	o := apptest.ConfiguredOPA(t, s, right, nil)
	foreign := apptest.ConfiguredOPA(t, s, wrong, func(config string) string {
		head, _, found := strings.Cut(config, "    key: |\n")
		if !found {
			t.Fatalf("the configuration has no key: %s", config)
		}
		return head + "    key: |\n      " + strings.ReplaceAll(strings.TrimSpace(newPublicKey(t)), "\n", "\n      ") + "\n"
	})
	o.WaitForDecision(t, 20*time.Second, "alice", "PERMIT")
	o.WaitForDecision(t, time.Second, "bob", "DENY")
	waitForBouncer(t, a, right.ID, "connected", "")
	waitForBouncer(t, a, wrong.ID, "degraded", "it refuses its configuration")
	if r := foreign.Do(t, "POST", "/v1/data/gatehouse/decision", body{"input": body{}}).Want(200); r.Get("result") != nil {
		t.Errorf("OPA's decision with another key = %s, want none", r.Body)
	}
	if v := a.Do(t, "GET", "/deployments/revisions/production", nil).Want(200).Get("converged"); v != false {
		t.Errorf("converged is %v with a bouncer that accepts no bundle, want false", v)
	}
}

// newPublicKey returns a new public key in PEM.
func newPublicKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.Must(t, err)
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	errtest.Must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// TestOPARefuses checks that the error of an OPA that cannot compile a bundle shows on the control, with
// file and line, and that this OPA gets the next bundle and not the same one again. A current OPA
// compiles everything that we accept, so the test sends the messages of an older one.
func TestOPARefuses(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	apptest.Activate(t, a, "fine", "production", permitOnly("alice"), nil)
	b := s.Register(t, a, body{"name": "old opa", "environment": "production"}, "127.0.0.1:9")
	c := s.WithToken(b.Token)
	ask := func(tags string, wait int) *apptest.Response {
		return c.With("If-None-Match", tags).With("Prefer", fmt.Sprint("modes=snapshot,delta;wait=", wait)).Do(t, "GET", fmt.Sprint("/bridge/bundles/", b.ID), nil)
	}
	status := func(active, more string) {
		t.Helper()
		c.Do(t, "POST", "/bridge/status", []byte(`{"labels":{"id":"0","version":"0.70.0"},"bundles":{"authz":{"name":"authz","active_revision":"`+active+`","type":"snapshot"`+more+`}},"plugins":{"bundle":{"state":"OK"}}}`)).Want(200)
	}
	first := ask("", 0).Want(200).Header.Get("ETag")
	status(strings.Trim(first, `"`), "")
	waitForBouncer(t, a, b.ID, "connected", "")

	policy := apptest.Activate(t, a, "newest", "production", permitOnly("bob"), nil)
	at := fmt.Sprint("/policies/", policy)
	second := ask(first, 10).Want(200).Header.Get("ETag")
	file := fmt.Sprintf("authz/gatehouse/controls/c%d.rego", policy)
	status(strings.Trim(first, `"`), `,"code":"bundle_error","message":"1 error occurred: rego_type_error: undefined function","errors":[{"code":"rego_type_error","message":"undefined function strings.shout","location":{"file":"`+file+`","row":3,"col":10}}]`)
	apptest.Eventually(t, 30*time.Second, func() error {
		r := a.Do(t, "GET", at, nil).Want(200)
		list, _ := r.Get("sync_errors").([]any)
		want := map[string]any{"bouncer_id": float64(b.ID), "version": 1.0, "message": "undefined function strings.shout", "file": file, "line": 3.0}
		if len(list) != 1 || !cmp.Equal(list[0], any(want)) {
			return fmt.Errorf("the control is %s, want the error %v", r.Body, want)
		}
		return nil
	})
	waitForBouncer(t, a, b.ID, "degraded", "refused revision "+strings.Trim(second, `"`))
	// OPA polls with the revision that it runs. The server does not send it the same bundle again.
	ask(first, 1).Want(304)
	ask(first, 1).Want(304)
	// The corrected control reaches the waiting poll.
	answered := make(chan string, 1)
	go func() { answered <- ask(first, 30).Header.Get("ETag") }()
	a.Do(t, "PUT", at, body{"rego_code": permitOnly("carol")}).Want(200)
	third := <-answered
	if third == second || third == first || third == "" {
		t.Fatalf("the poll got the bundle %q, want another than %s and %s", third, first, second)
	}
	status(strings.Trim(third, `"`), "")
	waitForBouncer(t, a, b.ID, "connected", "")
	apptest.Eventually(t, 30*time.Second, func() error {
		if r := a.Do(t, "GET", at, nil).Want(200); len(r.Get("sync_errors").([]any)) != 0 {
			return fmt.Errorf("the control is %s, want no errors", r.Body)
		}
		return nil
	})
}

// parityControls are controls with every outcome, with resources and without.
var parityControls = map[string]string{
	"payroll": apptest.Payroll,
	"wide":    "package wide\n\ndeny if input.user.id in {\"mallory\", \"trudy\"}\n\nreason := sprintf(\"%s is barred\", [input.user.id]) if deny\n",
	"hours":   "package hours\n\nallow if {\n\tinput.context.hour >= 8\n\tinput.context.hour < 18\n}\n\nallow if input.user.clearance > 3\n",
	"owners": `package owners

default allow := false

allow if input.user.id == input.resource.attributes.owner

allow if {
	some r in input.user.roles
	r in data.resources[sprintf("%d", [input.resource.id])].attributes.readers
}

mask["body.text"] := "redact" if not input.user.id == input.resource.attributes.owner

mask["card"] := "last4" if count(input.user.roles) > 1
`,
	"text": "package text\n\nallow if regex.match(`^/files/[a-z]+[.]txt$`, input.resource.path)\n\nallow if lower(input.action.name) == \"read\"\n\nreason := concat(\" \", [\"not\", input.action.name]) if not allow\n",
}

// TestOPAParity checks that a stock OPA, the decision API and the API for OPA's clients give the same
// decision, effect, reason and mask for random inputs.
func TestOPAParity(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	ids := map[string]int64{}
	var linked []int64
	paths := map[string]string{"payroll": "/employees/**", "hours": "/office/{room}", "owners": "/docs/*/body", "text": "/files/*"}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		path := paths[name]
		ids[name] = a.Do(t, "POST", "/resources", body{
			"name": name, "type": "api", "path": path, "environment": "production", "attributes": body{"owner": "alice", "readers": []string{"staff", "auditor"}},
		}).Want(201).ID()
		linked = append(linked, ids[name])
	}
	for _, name := range slices.Sorted(maps.Keys(parityControls)) {
		members := body{}
		if id, ok := ids[name]; ok {
			members["resource_id"] = id
		}
		apptest.Activate(t, a, name, "production", parityControls[name], members)
	}
	b := s.Register(t, a, body{"name": "opa", "environment": "production", "resource_ids": linked}, "127.0.0.1:9")
	o := apptest.ConfiguredOPA(t, s, b, nil)
	apptest.Eventually(t, 30*time.Second, func() error {
		r, err := o.Try("POST", "/v1/data/gatehouse/decision", body{"input": body{}})
		if err != nil || !strings.Contains(string(r.Body), `"effect"`) {
			return fmt.Errorf("OPA makes no decision: %v\n%s", err, o.Log)
		}
		return nil
	})
	root := root(a)
	effects := map[any]int{}
	rng := mathrand.New(mathrand.NewPCG(7, 11))
	logged, ours := map[string]bool{}, map[string]string{} // OPA's decision ids, and ours with OPA's effect
	for i := range 200 {
		in := randomInput(rng, linked)
		want := o.Do(t, "POST", "/v1/data/gatehouse/decision", body{"input": in}).Want(200)
		stock, _ := want.Get("result").(map[string]any)
		as, _ := root.Do(t, "POST", "/v1/data/gatehouse/decision", body{"input": in}).Want(200).Get("result").(map[string]any)
		if d := cmp.Diff(stock, as); d != "" || stock == nil {
			t.Errorf("input %d %v: OPA (-) and our API for its clients (+) differ:\n%s", i, in, d)
		}
		var own map[string]any
		a.Do(t, http.MethodPost, "/decisions/evaluate?environment=production", in).Want(200).Into(&own)
		for _, k := range []string{"decision", "reason", "policy_name"} {
			if !cmp.Equal(stock[k], own[k]) {
				t.Errorf("input %d %v: our %s is %v, OPA's is %v", i, in, k, own[k], stock[k])
			}
		}
		if mask, _ := own["mask"].([]any); !cmp.Equal(stock["mask"], append([]any{}, mask...)) {
			t.Errorf("input %d %v: our mask is %v, OPA's is %v", i, in, mask, stock["mask"])
		}
		ours[fmt.Sprint(own["decision_id"])] = fmt.Sprint(stock["effect"])
		effects[stock["effect"]]++
		if id, _ := want.Get("decision_id").(string); id != "" {
			logged[id] = true
		}
	}
	for _, effect := range []string{"ALLOW", "DENY", "MASK"} {
		if effects[effect] < 10 {
			t.Errorf("%d of 200 inputs have the effect %s, want at least 10", effects[effect], effect)
		}
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		n, m := 0, 0
		for _, e := range apptest.DecisionLog(t, a, "production") {
			if logged[e.ID] && e.BouncerID == b.ID {
				n++
			}
			if effect, known := ours[e.ID]; known {
				if m++; e.Effect != effect {
					t.Errorf("the effect of %s is %s in our log, %s in OPA", e.ID, e.Effect, effect)
				}
			}
		}
		if n != 200 || m != 200 {
			return fmt.Errorf("the log has %d of OPA's decisions and %d of ours, want 200 each", n, m)
		}
		return nil
	})
}

// randomInput returns a decision request with values from small sets, so that controls often match.
func randomInput(rng *mathrand.Rand, resources []int64) body {
	pick := func(from ...any) any { return from[rng.IntN(len(from))] }
	roles := []any{}
	for _, r := range []any{"hr", "staff", "auditor"} {
		if rng.IntN(2) == 0 {
			roles = append(roles, r)
		}
	}
	user := body{"id": pick("alice", "bob", "mallory", "trudy", "zoé"), "roles": roles}
	if rng.IntN(3) == 0 {
		user["clearance"] = pick(1, 3.5, 4, "4", nil)
	}
	resource := body{"type": pick("api", "api", "api", "file"), "path": pick("/employees/1", "/employees/a/b", "/office/7", "/docs/x/body", "/docs/x", "/files/a.txt", "/files/a.TXT", "/")}
	if rng.IntN(4) == 0 {
		resource = body{"id": pick(resources[0], resources[1], resources[2], resources[3], 987654)}
	}
	return body{
		"user": user, "action": body{"name": pick("read", "READ", "write"), "method": pick("GET", "POST")}, "resource": resource,
		"context": body{"hour": pick(7, 8, 12, 18)},
	}
}

// TestOPAHealth checks the parameters of /health that clients of OPA send.
func TestOPAHealth(t *testing.T) {
	anyone := apptest.StartServer(t, dbtest.SQLite).Anonymous()
	anyone.Do(t, "GET", "/health?bundles&plugins", nil).Want(200)
	anyone.Do(t, "GET", "/health?bundles=true&exclude-plugin=a&exclude-plugin=b", nil).Want(200)
	anyone.Do(t, "GET", "/health?bundle", nil).Want(400)
}

// TestOPABodies checks that a body that is no query gets the same status as from a stock OPA, and a body
// with the same members.
func TestOPABodies(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	root, o := root(s.Admin), &apptest.StockOPA{}
	o.Run(t, "{}")
	apptest.Eventually(t, 30*time.Second, func() error {
		_, err := o.Try("GET", "/health", nil)
		return err
	})
	for _, sent := range []string{`[]`, `"x"`, `1`, `true`, `{`, `[1`, ``, ` `, `null`, `{}`, `{"input":null}`, `{"inputt":1}`} {
		want := o.Do(t, "POST", "/v1/data/gatehouse/decision", []byte(sent))
		got := root.Do(t, "POST", "/v1/data/gatehouse/decision", []byte(sent))
		if got.Status != want.Status || got.Status >= 400 && (got.Get("code") != want.Get("code") || got.Get("message") == nil) {
			t.Errorf("POST %q = %d %s, OPA answers %d %s", sent, got.Status, got.Body, want.Status, want.Body)
		}
		if got.Status < 400 && got.Get("result", "decision") == nil {
			t.Errorf("POST %q = %s, want a decision", sent, got.Body)
		}
	}
}

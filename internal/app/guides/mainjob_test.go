package guides_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// TestMainJob does the product's main job with real processes: an author writes, validates, tests and
// activates a control, the bridge delivers it, the bouncer enforces it, the audit has each decision, and
// the control is promoted.
func TestMainJob(t *testing.T) {
	apptest.Inner(t)
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		upstream, seen := apptest.Application(t)
		a := s.Admin
		a.Do(t, "PUT", "/environments/sandbox/enforcement", body{"mode": "enforce"}).Want(200)
		resource := a.Do(t, "POST", "/resources", body{
			"name": "Payroll", "type": "api", "path": "/employees/**", "methods": []string{"GET", "POST"}, "environment": "sandbox",
		}).Want(201).ID()
		bouncer := s.Bouncer(t, a, body{"name": "payroll", "environment": "sandbox"}, upstream)
		other := s.Bouncer(t, a, body{"name": "elsewhere", "environment": "sandbox"}, upstream)

		a.Do(t, "POST", "/policies/validate", body{"rego_code": "package x\n\nallow if nonsense(1)"}).Want(200)
		if v := a.Do(t, "POST", "/policies/validate", body{"rego_code": apptest.Payroll}).Want(200).Get("valid"); v != true {
			t.Fatalf("POST /policies/validate = %v, want it valid", v)
		}
		tests := []body{
			{"name": "staff read", "expected": true, "input": body{"user": body{"roles": []string{"staff"}}, "action": body{"method": "GET"}}},
			{"name": "visitors do not", "expected": false, "input": body{"user": body{"roles": []string{"visitor"}}, "action": body{"method": "GET"}}},
		}
		policy := a.Do(t, "POST", "/policies", body{
			"name": "payroll", "rego_code": apptest.Payroll, "environment": "sandbox", "resource_id": resource, "bouncer_id": bouncer.ID, "test_cases": tests,
		}).Want(201).ID()
		path := fmt.Sprintf("/policies/%d", policy)
		if f := a.Do(t, "POST", path+"/test", body{}).Want(200).Get("summary", "failed"); f != 0.0 {
			t.Fatalf("%v stored tests fail, want none", f)
		}
		a.Do(t, "PUT", path, body{"status": "active"}).Want(200)

		visitor, staff, hr := bouncer.As("eve", "visitor"), bouncer.As("ben", "staff"), bouncer.As("ada", "hr")
		apptest.WaitForStatus(t, visitor, "/employees/1", 403, 5*time.Second)
		before := seen()
		res := visitor.Do(t, "GET", "/employees/1", nil).Want(403)
		if !bytes.Contains(res.Body, []byte("only HR and staff")) || seen() != before {
			t.Errorf("the denial = %s and %d requests at the application, want the reason and none", res.Body, seen()-before)
		}
		if got := staff.Do(t, "GET", "/employees/1", nil).Want(200); bytes.Contains(got.Body, []byte("900-12")) || bytes.Contains(got.Body, []byte("98000")) || !bytes.Contains(got.Body, []byte("Ada")) {
			t.Errorf("the masked answer = %s, want it without number and salary", got.Body)
		}
		if got := hr.Do(t, "GET", "/employees/1", nil).Want(200); !bytes.Contains(got.Body, []byte("900-12-3456")) {
			t.Errorf("the permitted answer = %s, want the number", got.Body)
		}
		// Another bouncer does not apply the control.
		other.As("eve", "visitor").Do(t, "GET", "/employees/1", nil).Want(200)

		apptest.Eventually(t, 5*time.Second, func() error {
			logs := a.Do(t, "GET", "/decisions/audit?environment=sandbox&limit=100", nil).Want(200)
			for _, effect := range []string{`"DENY"`, `"MASK"`, `"ALLOW"`} {
				if !bytes.Contains(logs.Body, []byte(effect)) {
					return fmt.Errorf("the decision log %s lacks %s", logs.Body, effect)
				}
			}
			return nil
		})
		if v := a.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
			t.Errorf("GET /audit/verify = %v, want it valid", v)
		}
		if env := a.Do(t, "POST", path+"/promote", body{"deployment_notes": "first"}).Want(200).Get("environment"); env != "production" {
			t.Errorf("the control is promoted to %v, want production", env)
		}
		a.Do(t, "POST", path+"/promote", body{}).Want(409)
	})
}

// TestTour runs the tour of the README against `gatehouse dev`.
func TestTour(t *testing.T) {
	dir := t.TempDir()
	api, sandbox, production, demo := freeport.Addr(t), freeport.Addr(t), freeport.Addr(t), freeport.Addr(t)
	dev := apptest.Launch(t, "http://"+sandbox, "/_bouncer/ready", []string{
		"GATEHOUSE_LISTEN=" + api, "GATEHOUSE_DATA_DIR=" + filepath.Join(dir, ".gatehouse"), "GATEHOUSE_DEV_SANDBOX=" + sandbox,
		"GATEHOUSE_DEV_PRODUCTION=" + production, "GATEHOUSE_DEV_APPLICATION=" + demo,
	}, "dev")
	apptest.Eventually(t, 20*time.Second, func() error {
		if !strings.Contains(dev.Log.String(), "Try it:") {
			return fmt.Errorf("gatehouse dev writes no welcome: %s", dev.Log)
		}
		return nil
	})
	readme, err := os.ReadFile("../../../README.md")
	errtest.Must(t, err)
	ports := strings.NewReplacer("127.0.0.1:8080", api, "127.0.0.1:8081", sandbox, "127.0.0.1:8082", production, "127.0.0.1:8083", demo)
	steps := tourSteps(ports.Replace(string(readme)))
	out := runSteps(t, dir, steps)
	for i, want := range tourExpectations {
		if i >= len(out) {
			t.Fatalf("the tour has %d steps, want %d", len(out), len(tourExpectations))
		}
		apptest.WantTexts(t, out[i], want...)
	}
	dev.Interrupt()
	if code := dev.Wait(10 * time.Second); code != 0 {
		t.Errorf("Ctrl-C ended gatehouse dev with %d, want 0:\n%s", code, dev.Log)
	}
	dev.Start()
	apptest.WaitForStatus(t, &apptest.Client{Base: "http://" + sandbox}, "/_bouncer/ready", 200, 20*time.Second)
}

package decisions_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestShadowedControls checks that there is a warning about a resource with a host and without a control
// that takes requests from the controls of resources without a host: for its registration and list, and
// for creating, validating or promoting such a control.
func TestShadowedControls(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		register := func(members apptest.Body) *apptest.Response {
			t.Helper()
			b := apptest.Body{"type": "api", "environment": "sandbox"}
			maps.Copy(b, members)
			return a.Do(t, "POST", "/resources", b).Want(201)
		}
		const source = "package closed\n\ndeny if true\n"
		guard := register(apptest.Body{"name": "admin pages", "path": "/admin/**"})
		control := a.Do(t, "POST", "/policies", apptest.Body{"name": "closed", "rego_code": source, "resource_id": guard.Get("id"), "status": "active"}).Want(201)
		elsewhere := register(apptest.Body{"name": "orders", "path": "/orders/**", "original_host": "pay.example"})
		for _, res := range []*apptest.Response{guard, control, elsewhere, a.Do(t, "GET", "/resources", nil).Want(200)} {
			if strings.Contains(string(res.Body), "warnings") {
				t.Errorf("the answer has warnings without a shadowed control: %s", res.Body)
			}
		}
		ask := func() any {
			return a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", apptest.Body{
				"user": apptest.Body{"id": "eve"}, "action": apptest.Body{"method": "GET"}, "resource": apptest.Body{"type": "api", "host": "pay.example", "path": "/admin/keys"},
			}).Want(200).Get("policy_name")
		}
		if got := ask(); got != "closed" {
			t.Errorf("the control %v decides before, want closed", got)
		}

		shadow := register(apptest.Body{"name": "pay", "path": "/**", "original_host": "pay.example"})
		if got := ask(); got == "closed" {
			t.Error("the new resource shadows no control, so the test checks nothing")
		}
		ids := fmt.Sprintf("[%v %v]", shadow.Get("id"), guard.Get("id"))
		wantWarning := func(what string, res *apptest.Response, code, ids string) {
			t.Helper()
			list, _ := res.Get("warnings").([]any)
			for _, w := range list {
				if m, _ := w.(map[string]any); m["code"] == code && fmt.Sprint(m["resource_ids"]) == ids {
					return
				}
			}
			t.Errorf("%s = %s, want a warning about %s", what, res.Body, ids)
		}
		wantWarning("the registration", shadow, "shadows_controls", ids)
		wantWarning("the list", a.Do(t, "GET", "/resources", nil).Want(200), "shadows_controls", ids)
		first := fmt.Sprintf("[%v]", shadow.Get("id"))
		second := a.Do(t, "POST", "/policies", apptest.Body{"name": "also closed", "rego_code": source, "resource_id": guard.Get("id")}).Want(201)
		wantWarning("the control", second, "shadowed", first)
		files := []apptest.Body{{"path": "closed.rego", "content": source}}
		if res := a.Do(t, "POST", "/policies-as-code/validate", apptest.Body{"files": files, "resource_id": guard.Get("id")}).Want(200); !strings.Contains(string(res.Body), `"rule":"shadowed"`) {
			t.Errorf("the validation = %s, want a warning", res.Body)
		}
		there := a.Do(t, "POST", "/resources", apptest.Body{"name": "pay", "type": "api", "path": "/**", "original_host": "pay.example", "environment": "production"}).Want(201)
		wantWarning("the promotion", a.Do(t, "POST", fmt.Sprintf("/policies/%v/promote", control.Get("id")), nil).Want(200), "shadowed", fmt.Sprintf("[%v]", there.Get("id")))

		// A control of the resource ends the warning.
		a.Do(t, "POST", "/policies", apptest.Body{"name": "open", "rego_code": "package open\n\nallow if true\n", "resource_id": there.Get("id"), "environment": "production", "status": "active"}).Want(201)
		if res := a.Do(t, "GET", "/resources?environment=production", nil).Want(200); res.Get("warnings") != nil {
			t.Errorf("the list = %s, want no warnings", res.Body)
		}
	})
}

package decisions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestShadowedControlsAreSaid: a resource that names a host and has no control takes
// requests from the controls of resources without a host. Whoever registers or lists such
// a resource, or makes, validates or promotes such a control, is told.
func TestShadowedControlsAreSaid(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		register := func(members apptest.Body) *apptest.Response {
			t.Helper()
			b := apptest.Body{"type": "api", "environment": "sandbox"}
			for k, v := range members {
				b[k] = v
			}
			return a.Do(t, "POST", "/resources", b).Want(201)
		}
		const source = "package closed\n\ndeny if true\n"
		guard := register(apptest.Body{"name": "admin pages", "path": "/admin/**"})
		control := a.Do(t, "POST", "/policies", apptest.Body{"name": "closed", "rego_code": source, "resource_id": guard.Get("id"), "status": "active"}).Want(201)
		elsewhere := register(apptest.Body{"name": "orders", "path": "/orders/**", "original_host": "pay.example"})
		for _, res := range []*apptest.Response{guard, control, elsewhere, a.Do(t, "GET", "/resources", nil).Want(200)} {
			if strings.Contains(string(res.Body), "warnings") {
				t.Errorf("there is nothing to warn of: %s", res.Body)
			}
		}
		ask := func() any {
			return a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", apptest.Body{
				"user": apptest.Body{"id": "eve"}, "action": apptest.Body{"method": "GET"}, "resource": apptest.Body{"type": "api", "host": "pay.example", "path": "/admin/keys"},
			}).Want(200).Get("policy_name")
		}
		if got := ask(); got != "closed" {
			t.Errorf("before, %v decides", got)
		}

		shadow := register(apptest.Body{"name": "pay", "path": "/**", "original_host": "pay.example"})
		if got := ask(); got == "closed" {
			t.Error("the resource shadows nothing: the test is of no use")
		}
		ids := fmt.Sprintf("[%v %v]", shadow.Get("id"), guard.Get("id"))
		told := func(what string, res *apptest.Response, code, ids string) {
			t.Helper()
			list, _ := res.Get("warnings").([]any)
			for _, w := range list {
				if m, _ := w.(map[string]any); m["code"] == code && fmt.Sprint(m["resource_ids"]) == ids {
					return
				}
			}
			t.Errorf("%s does not warn of %s: %s", what, ids, res.Body)
		}
		told("the registration", shadow, "shadows_controls", ids)
		told("the list", a.Do(t, "GET", "/resources", nil).Want(200), "shadows_controls", ids)
		first := fmt.Sprintf("[%v]", shadow.Get("id"))
		second := a.Do(t, "POST", "/policies", apptest.Body{"name": "also closed", "rego_code": source, "resource_id": guard.Get("id")}).Want(201)
		told("the control", second, "shadowed", first)
		files := []apptest.Body{{"path": "closed.rego", "content": source}}
		if res := a.Do(t, "POST", "/policies-as-code/validate", apptest.Body{"files": files, "resource_id": guard.Get("id")}).Want(200); !strings.Contains(string(res.Body), `"rule":"shadowed"`) {
			t.Errorf("the validation does not warn: %s", res.Body)
		}
		there := a.Do(t, "POST", "/resources", apptest.Body{"name": "pay", "type": "api", "path": "/**", "original_host": "pay.example", "environment": "production"}).Want(201)
		told("the promotion", a.Do(t, "POST", fmt.Sprintf("/policies/%v/promote", control.Get("id")), nil).Want(200), "shadowed", fmt.Sprintf("[%v]", there.Get("id")))

		// A control of its own ends it.
		a.Do(t, "POST", "/policies", apptest.Body{"name": "open", "rego_code": "package open\n\nallow if true\n", "resource_id": there.Get("id"), "environment": "production", "status": "active"}).Want(201)
		if res := a.Do(t, "GET", "/resources?environment=production", nil).Want(200); res.Get("warnings") != nil {
			t.Errorf("the list still warns: %s", res.Body)
		}
	})
}

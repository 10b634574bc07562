package controls_test

import (
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestKeptCopyKeepsOrigin checks that drift shows the sandbox copy of a promotion as it showed the
// promoted control: as deployed, or as changed outside.
func TestKeptCopyKeepsOrigin(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		a.Do(t, "POST", "/resources", body{"name": "door", "type": "api", "path": "/door/**", "environment": "sandbox"}).Want(201)
		state := func() any {
			t.Helper()
			files := apptest.CodeFiles("door/door.rego", letIn("Ann", "Edited"), "door/gatehouse.yaml", doorYAML)
			list := a.Do(t, "POST", "/policies-as-code/drift", body{"files": files}).Want(200).Get("controls").([]any)
			if len(list) != 1 {
				t.Fatalf("the drift has the controls %v, want 1", list)
			}
			return list[0].(map[string]any)["state"]
		}
		first := fromCode(t, a, letIn("Ann"))
		promote(t, a, first, body{"keep_in_sandbox": true})
		if got := state(); got != "changed" {
			t.Errorf("the copy of a deployed control is %v, want changed", got)
		}
		copied := fromCode(t, a, letIn("Ben"))
		if copied == first {
			t.Error("the deployment did not change the copy")
		}
		a.Do(t, "PUT", fmt.Sprint("/policies/", copied), body{"description": "by hand"}).Want(200)
		res := a.Do(t, "POST", fmt.Sprintf("/policies/%d/promote", copied), body{"keep_in_sandbox": true, "replace": true}).Want(200)
		if id, _ := res.Get("sandbox_copy_id").(float64); int64(id) <= copied {
			t.Errorf("the promotion = %s, want the id of a new copy", res.Body)
		}
		if got := state(); got != "changed_outside" {
			t.Errorf("the copy of a control that was changed outside is %v, want changed_outside", got)
		}
	})
}

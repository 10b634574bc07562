package connections_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestActors checks that an application says for whom an agent acts, in both APIs, and that nobody
// else can.
func TestActors(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		apptest.Activate(t, a, "on behalf", "production", `package on_behalf

allow if {
	input.user.id == "ann"
	input.user.act.sub == "agent:7"
}
`, nil)
		az := *a
		az.Base = s.URL
		for name, c := range map[string]struct {
			act  any
			want string
		}{
			"agent 7": {body{"sub": "agent:7"}, "PERMIT"}, "agent 8": {body{"sub": "agent:8"}, "DENY"}, "nobody": {nil, "DENY"},
			"agent 8 before": {body{"sub": "agent:7", "act": body{"sub": "agent:8"}}, "PERMIT"}, "agent 7 before": {body{"sub": "agent:8", "act": body{"sub": "agent:7"}}, "DENY"},
		} {
			res := a.Do(t, "POST", "/decisions/evaluate", asked(body{"id": "ann", "act": c.act})).Want(200)
			if res.Get("decision") != c.want {
				t.Errorf("%s: the decision = %s, want %v", name, res.Body, c.want)
			}
			res = az.Do(t, "POST", "/access/v1/evaluation", body{
				"subject": body{"type": "user", "id": "ann", "properties": body{"act": c.act}}, "resource": body{"type": "api", "id": "x"}, "action": body{"name": "read"},
			}).Want(200)
			if res.Get("decision") != (c.want == "PERMIT") {
				t.Errorf("%s: the decision of AuthZEN = %s, want %s", name, res.Body, c.want)
			}
		}
		for _, act := range []any{"agent:7", body{}, body{"sub": 7}, []any{}, body{"sub": "agent:7", "act": "agent:8"}} {
			if res := a.Do(t, "POST", "/decisions/evaluate", asked(body{"id": "ann", "act": act})).Want(422); !strings.Contains(string(res.Body), `"/user/act"`) {
				t.Errorf("a request with act %v = %s, want the pointer /user/act", act, res.Body)
			}
			az.Do(t, "POST", "/access/v1/evaluation", body{
				"subject": body{"type": "user", "id": "ann", "properties": body{"act": act}}, "resource": body{"type": "api", "id": "x"}, "action": body{"name": "read"},
			}).Want(400)
		}
	})
}

package decisions_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// oddTexts are JSON texts that a database or a log may refuse.
var oddTexts = []string{
	`"a\u0000b"`, `"\u0000"`, `"\ud800"`, `"\udc00\ud800"`, `"\uffff\ufffe"`, `"\u202e\u200b\u00ad"`, `"\u0001\u001f\u007f\u0085\u2028"`, `"\\u0000"`, `"'; DROP TABLE decisions; --"`,
	`"\\x00"`, `"%s%00%"`, `"𝒳\u0301"`, `"` + strings.Repeat("é", 5000) + `"`, `"` + strings.Repeat(`\u0000`, 3000) + `"`,
}

// oddNumbers are numbers at the limits of databases.
var oddNumbers = []string{`9223372036854775807`, `9223372036854775808`, `-9223372036854775809`, `1e308`, `1e-400`, `0.1e1`, `123456789012345678901234567890`, `-0`}

// TestOddTextsAreLogged checks that a decision request with odd texts and numbers is answered or refused
// as a bad request, and that the log stores all decisions.
func TestOddTextsAreLogged(t *testing.T) {
	apptest.Both(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		apptest.Activate(t, a, "any", "production", "package any\n\nallow if input.action.name\n\nreason := sprintf(\"for %v\", [input.context])\n", nil)
		resource := a.Do(t, "POST", "/resources?environment=production", body{"name": "x", "type": "api", "path": "/x"}).Want(201).ID()
		a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", resource), body{"audit_level": "comprehensive"}).Want(200)
		forms := []string{
			`{"user":{"id":%s},"action":{"name":"read"},"resource":{"type":"api","path":"/x"}}`,
			`{"user":{"id":"u","email":%s,"roles":["r"]},"action":{"name":"read"},"resource":{"type":"api","path":"/x"}}`,
			`{"user":{"id":"u","roles":[%s]},"action":{"name":"read"},"resource":{"type":"api","path":"/x"}}`,
			`{"user":{"id":"u"},"action":{"name":%s},"resource":{"type":"api","path":"/x"}}`,
			`{"user":{"id":"u"},"action":{"name":"read","method":%s},"resource":{"type":"api","path":"/x"}}`,
			`{"user":{"id":"u"},"action":{"name":"read"},"resource":{"type":"api","path":%s}}`,
			`{"user":{"id":"u"},"action":{"name":"read"},"resource":{"type":%s,"id":"1","path":"/x"}}`,
			`{"user":{"id":"u"},"action":{"name":"read"},"resource":{"type":"api","id":%s}}`,
			`{"user":{"id":"u"},"action":{"name":"read"},"resource":{"type":"api","path":"/x"},"context":{"note":%s}}`,
			`{"user":{"id":"u","attributes":{"a":%s}},"action":{"name":"read"},"resource":{"type":"api","path":"/x"}}`,
			`{"user":{"id":"u"},"action":{"name":"read"},"resource":{"type":"api","path":"/x"},"context":{"ip_address":%s,"user_agent":%[1]s}}`,
		}
		answered := map[string]string{}
		for _, form := range forms {
			for _, odd := range append(append([]string{}, oddTexts...), oddNumbers...) {
				request := fmt.Appendf(nil, form, odd)
				res := a.Do(t, "POST", "/decisions/evaluate", request)
				switch {
				case res.Status == 200:
					id := res.Text("decision_id")
					answered[id] = string(request[:min(len(request), 200)])
				case res.Status < 400 || res.Status >= 500:
					t.Errorf("POST %.200s = %d %s, want 200 or a refusal", request, res.Status, res.Body)
				}
				if !json.Valid(res.Body) {
					t.Errorf("POST %.200s = %s, want JSON", request, res.Body)
				}
			}
		}
		if len(answered) == 0 {
			t.Fatal("no request got a decision")
		}
		apptest.Eventually(t, 60*time.Second, func() error {
			left := len(answered)
			for _, e := range apptest.DecisionLog(t, a, "production") {
				if answered[e.ID] != "" {
					left--
				}
			}
			if left != 0 {
				return fmt.Errorf("the log lacks %d of %d decisions\n%s", left, len(answered), s.Log)
			}
			return nil
		})
		if v := a.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
			t.Errorf("GET /audit/verify = %v, want it valid", v)
		}
	})
}

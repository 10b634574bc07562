package decisions_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// oddTexts are texts that a database or a log may not take as they are, in JSON.
var oddTexts = []string{
	`"a\u0000b"`, `"\u0000"`, `"\ud800"`, `"\udc00\ud800"`, `"\uffff\ufffe"`, `"\u202e\u200b\u00ad"`, `"\u0001\u001f\u007f\u0085\u2028"`, `"\\u0000"`, `"'; DROP TABLE decisions; --"`,
	`"\\x00"`, `"%s%00%"`, `"𝒳\u0301"`, `"` + strings.Repeat("é", 5000) + `"`, `"` + strings.Repeat(`\u0000`, 3000) + `"`,
}

// oddNumbers are numbers at the edges of what databases keep.
var oddNumbers = []string{`9223372036854775807`, `9223372036854775808`, `-9223372036854775809`, `1e308`, `1e-400`, `0.1e1`, `123456789012345678901234567890`, `-0`}

// TestOddTextsAreLogged: whatever texts and numbers a decision is asked with, it is
// answered or refused as a bad request, and the log goes on: none of them keeps it
// from being stored.
func TestOddTextsAreLogged(t *testing.T) {
	apptest.Both(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		apptest.Activate(t, a, "any", "production", "package any\n\nallow if input.action.name\n\nreason := sprintf(\"for %v\", [input.context])\n", nil)
		kept := a.Do(t, "POST", "/resources?environment=production", body{"name": "x", "type": "api", "path": "/x"}).Want(201).ID()
		a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", kept), body{"audit_level": "comprehensive"}).Want(200)
		member := func(format, odd string) []byte { return []byte(fmt.Sprintf(format, odd)) }
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
				request := member(form, odd)
				res := a.Do(t, "POST", "/decisions/evaluate", request)
				switch {
				case res.Status == 200:
					id, _ := res.Get("decision_id").(string)
					answered[id] = string(request[:min(len(request), 200)])
				case res.Status < 400 || res.Status >= 500:
					t.Errorf("%.200s: %d %s", request, res.Status, res.Body)
				}
				if !json.Valid(res.Body) {
					t.Errorf("%.200s: %s", request, res.Body)
				}
			}
		}
		if len(answered) == 0 {
			t.Fatal("nothing was answered")
		}
		apptest.Eventually(t, 60*time.Second, func() error {
			left := len(answered)
			for _, e := range apptest.DecisionLog(t, a, "production") {
				if answered[e.ID] != "" {
					left--
				}
			}
			if left != 0 {
				return fmt.Errorf("%d of %d decisions are not in the log\n%s", left, len(answered), s.Log)
			}
			return nil
		})
		if v := a.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
			t.Error("the audit does not verify")
		}
	})
}

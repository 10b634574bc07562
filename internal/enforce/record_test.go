package enforce

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// TestRecordedAsMasked: values that a request mask hides are in no event, in both modes, at the
// levels that keep the input. Other values are.
func TestRecordedAsMasked(t *testing.T) {
	const canary = "4111 1111 1111 1111"
	const source = `package masks

allow := true

mask contains "request:pii:card_numbers"

mask contains "request:params.arguments.token"

mask contains "request:messages.*.name"

used if input.llm.messages

used if input.mcp.arguments
`
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for _, mode := range []string{"enforce", "shadow"} {
		for _, level := range []string{"detailed", "comprehensive"} {
			p := newPlane(t)
			p.publish(policySet{
				revision: 1, mode: mode, controls: []control{{id: 1, source: source, resource: 5}},
				resources: []rego.Resource{{ID: 5, Type: "api", Path: "/**", AuditLevel: level}},
			})
			b := start(t, p, app.URL, nil).at(t, 1)
			for _, body := range []string{
				`{"model":"m","messages":[{"role":"user","name":"canary-name","content":"My card is ` + canary + `, order two socks"}]}`,
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"card":"` + canary + `","token":"canary-token","what":"two socks"}}}`,
			} {
				if got := post(t, b.url+"/v1/x", "application/json", body, nil); got.status != 200 {
					t.Fatalf("%s: %d %s", mode, got.status, got.body)
				}
			}
			told := fmt.Sprint(p.logged(2))
			if strings.Contains(told, "4111 ") || strings.Contains(told, "canary") || strings.Count(told, "two socks") != 2 || strings.Count(told, "[redacted]") < 4 {
				t.Errorf("%s, %s: %s", mode, level, told)
			}
		}
	}
}

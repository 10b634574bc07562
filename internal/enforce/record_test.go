package enforce

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// TestRecordedAsMasked checks that records do not contain what a mask of the request hides, in either
// mode, at the audit levels that keep the input. The rest of the input is recorded.
func TestRecordedAsMasked(t *testing.T) {
	t.Parallel()
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
				resources: []target.Resource{{ID: 5, Type: "api", Path: "/**", AuditLevel: level}},
			})
			b := start(t, p, app.URL, nil).at(t, 1)
			for _, body := range []string{
				`{"model":"m","messages":[{"role":"user","name":"canary-name","content":"My card is ` + canary + `, order two socks"}]}`,
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"card":"` + canary + `","token":"canary-token","what":"two socks"}}}`,
			} {
				if got := post(t, b.url+"/v1/x", "application/json", body, nil); got.status != 200 {
					t.Fatalf("%s: %s, want 200", mode, got)
				}
			}
			recorded := fmt.Sprint(p.logged(2))
			if strings.Contains(recorded, "4111 ") || strings.Contains(recorded, "canary") || strings.Count(recorded, "two socks") != 2 || strings.Count(recorded, "[redacted]") < 4 {
				t.Errorf("%s, level %s: the log is %s, want it masked, with the order in clear", mode, level, recorded)
			}
		}
	}
}

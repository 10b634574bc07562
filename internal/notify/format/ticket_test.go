package format

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// TestOddTickets checks that an invalid ticket id from a ticketing system gets neither into the
// store nor into a URL.
func TestOddTickets(t *testing.T) {
	m := Message{ID: "n1", Title: "t", Status: Firing, Severity: Error}
	for _, id := range []string{"", ".", "..", "../../admin", "a/b", "a?b", "a#b", "a\x00b", "a\r\nb", "é", "a b", strings.Repeat("a", 101)} {
		for _, open := range []bool{true, false} {
			for _, name := range []string{Jira, ServiceNow} {
				kind, _ := Find(name)
				var paths []string
				out := kind.Send(func(r outbound.Request) (outbound.Response, error) {
					paths = append(paths, r.URL)
					found := ""
					if open || len(paths) > 1 {
						found = fmt.Sprintf(`{"key":%q,"sys_id":%q}`, "ID", "ID")
					}
					body := `{"issues":[` + found + `],"result":[` + found + `]}`
					if len(paths) > 1 {
						body = `{"key":"ID","result":{"sys_id":"ID"}}`
					}
					quoted := strings.Trim(strings.ReplaceAll(fmt.Sprintf("%+q", id), `\x`, `\u00`), `"`)
					return outbound.Response{Status: 200, Body: []byte(strings.ReplaceAll(body, "ID", quoted))}, nil
				}, Channel{Endpoint: "https://desk.example", Settings: map[string]any{"project": "OPS"}, Credential: map[string]string{AccessToken: "t"}}, m)
				if out.Error == "" || out.Ticket != "" {
					t.Errorf("%s with the ticket id %q = %+v after %q, want an error", name, id, out, paths)
				}
				for _, p := range paths {
					if id != "" && strings.HasSuffix(p, id) || len(paths) > 2 {
						t.Errorf("%s calls %q, want at most two addresses, without the id %q", name, paths, id)
					}
				}
			}
		}
	}
}

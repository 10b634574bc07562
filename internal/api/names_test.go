package api

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
)

// foreignBodies are the operations whose handlers read bodies of foreign protocols, or check a
// signature of the body before they read it.
var foreignBodies = []string{"/v1/data/", "/access/v1/", "/api/v1/decisions/", "/api/v1/bridge/", "/api/v1/auth/token", "/api/v1/ide-integration/webhook", "/api/v1/integrations/{integration_id}/break-glass"}

// TestNames: each operation refuses a name with invisible characters, at each place of its body that is a
// name, and accepts other scripts.
func TestNames(t *testing.T) {
	g := newRig(t, nil)
	tried := map[string]int{}
	for path, item := range g.Spec.Paths.Map() {
		if slices.ContainsFunc(foreignBodies, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			continue
		}
		for method, op := range item.Operations() {
			if op.RequestBody == nil || op.RequestBody.Value.Content["application/json"] == nil {
				continue
			}
			target := parameter.ReplaceAllString(strings.NewReplacer("{environment}", "sandbox", "{tenant_id}", "default").Replace(path), "1")
			if strings.HasPrefix(path, "/api/v1/pis/policies/") {
				target += "?environment=sandbox"
			}
			offence := func(at []string, text string) bool {
				w := rawDo(g, resttest.Call{Method: method, Path: target, Body: placed(t, at, text), Headers: bearer("platform")})
				return strings.Contains(w, "direction of text") && strings.Contains(w, "/"+strings.Join(at, "/"))
			}
			for _, at := range namePlaces(op.RequestBody.Value.Content["application/json"].Schema.Value, nil, nil) {
				tried[at[slices.IndexFunc(at, func(s string) bool { return s != "0" })]]++
				for _, bad := range []string{"a\nb", "a\tb", "\u001b[2Jx", "x\u0085", "pay\u202egnp", "\u2066x\u2069", "\u200fx", "\u061cx", "a\u2028b", "pay\u200broll", "\ufeffpayroll", "pay\u00adroll", "payroll\u3164", "payroll\U000e0041"} {
					if !offence(at, bad) {
						t.Errorf("%s accepts %q at %v, want an offence", op.OperationID, bad, at)
					}
				}
				for _, good := range []string{"Zahlungen: nur für Eigentümer", "支払い", "مدفوعات", "תשלומים", "a\u200db", "👩\u200d💻 team", "❤\ufe0f"} {
					if offence(at, good) {
						t.Errorf("%s refuses %q at %v, want it accepted", op.OperationID, good, at)
					}
				}
			}
		}
	}
	for member, least := range map[string]int{"name": 10, "username": 2, "compliance_tags": 2} {
		if tried[member] < least {
			t.Errorf("%d places named %s were tried, want at least %d: %v", tried[member], member, least, tried)
		}
	}
}

// rawDo sends a call and returns the body of the answer. The API has no services, so the
// handler fails if the request is valid.
func rawDo(g *rig, c resttest.Call) string {
	w := httptest.NewRecorder()
	g.Handler.ServeHTTP(w, c.Request())
	return w.Body.String()
}

// namePlaces returns the paths of a body's texts that are names: those of members called
// name, username and so on, and of elements of such lists.
func namePlaces(s *openapi3.Schema, at []string, above []*openapi3.Schema) (out [][]string) {
	if s == nil || slices.Contains(above, s) {
		return nil
	}
	above = append(slices.Clone(above), s)
	if s.Items != nil {
		out = namePlaces(s.Items.Value, append(slices.Clone(at), "0"), above)
	}
	for member, ref := range s.Properties {
		prop, here := ref.Value, append(slices.Clone(at), member)
		if slices.Contains([]string{"name", "username", "tags", "compliance_tags", "roles"}, member) && ref.Ref == "" && !prop.ReadOnly {
			switch {
			case prop.Type.Includes("string") && len(prop.Enum) == 0:
				out = append(out, here)
			case prop.Type.Includes("array") && prop.Items.Value.Type.Includes("string") && len(prop.Items.Value.Enum) == 0:
				out = append(out, append(here, "0"))
			}
		}
		out = append(out, namePlaces(prop, here, above)...)
	}
	return out
}

// placed returns a document with a text at a path.
func placed(t *testing.T, at []string, text string) string {
	t.Helper()
	var doc any = text
	for _, step := range slices.Backward(at) {
		if step == "0" {
			doc = []any{doc}
			continue
		}
		doc = map[string]any{step: doc}
	}
	raw, err := json.Marshal(doc)
	errtest.Must(t, err)
	return string(raw)
}

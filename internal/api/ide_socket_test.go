package api

import (
	"encoding/json"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// FuzzSocketMessage: no frame does more than fail, with a 400's fault.
func FuzzSocketMessage(f *testing.F) {
	for _, seed := range []string{
		`{"type":"ping","data":{}}`, `{"type":"validate","data":{"policy_content":"package a"}}`, `{"type":"deployment_status","data":{"deployment_id":"x"}}`,
		`{"type":7}`, `{"type":"ping","data":[]}`, `{"type":"ping","type":"validate"}`, `{"type":"ping","Type":"validate"}`, `null`, `[]`, `{`, ``, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := socketMessage(body)
		if err != nil {
			if !fault.Is(err, fault.BadRequest) {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		if m.Type == "" || !json.Valid(body) {
			t.Errorf("%q becomes %+v", body, m)
		}
	})
}

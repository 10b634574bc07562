package audit

import (
	"encoding/json"

	"github.com/gatehouse-dev/gatehouse/internal/redact"
)

// redactMap returns m as JSON with secrets redacted. An empty map is {}.
func redactMap(m map[string]any) (string, error) {
	if len(m) == 0 {
		return "{}", nil
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	out, _ := redact.JSON(make([]byte, 0, len(raw)), raw)
	return string(out), nil
}

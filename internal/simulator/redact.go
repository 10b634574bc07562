package simulator

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/simulator/record"
)

// minSecret is the length from which a secret is also removed from within texts. Shorter secrets
// are removed only if they are the whole text.
const minSecret = 6

// ownWords are values that this service writes into records. They stay, even if a secret has the
// same value, so that the record still says what happened.
var ownWords = []string{
	"ALLOW", "DENY", "MASK", "NO_MATCH", "PERMIT", "allow", "deny", "mask", "reason", "manual", "scenario", "regression", "sandbox", "production",
	"enabled", "inactive", "draft", "held", "failed", "decided", "user", "api_key", "policy_matched", "condition_eval", "final_decision",
}

// sealRecord returns a record in the form in which it is stored: without secrets, as canonical JSON.
func sealRecord(rec record.Record) (text []byte, clean record.Record, err error) {
	secrets := secretsIn(rec.Input.Value, rec.EvaluatedInput.Value)
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(rec); err != nil {
		return nil, rec, err
	}
	out, _ := redact.JSON(make([]byte, 0, raw.Len()), raw.Bytes())
	doc, err := decode(out)
	if err != nil {
		return nil, rec, err
	}
	if len(secrets) > 0 {
		doc = scrub(doc, "", secrets)
	}
	text = doc.AppendJSON(nil)
	err = json.Unmarshal(text, &clean)
	return text, clean, err
}

// decode reads a record. A record is nested deeper than the input, and has more values.
func decode(text []byte) (value.Value, error) {
	return value.Decode(text, value.Limits{Depth: 160, Values: 4_000_000})
}

// secretsIn returns the scalars below members that are named like secrets, the longest first.
func secretsIn(docs ...value.Value) []string {
	var found []string
	var walk func(v value.Value, secret bool)
	walk = func(v value.Value, secret bool) {
		switch v.Kind() {
		case value.ObjectKind:
			v.Each(func(key string, inner value.Value) bool {
				walk(inner, secret || redact.IsHidden(key))
				return true
			})
		case value.ArrayKind:
			for _, inner := range v.Elems() {
				walk(inner, secret)
			}
		case value.StringKind, value.NumberKind:
			if text := record.Plain(v); secret && text != "" && !slices.Contains(ownWords, text) {
				found = append(found, text)
			}
		}
	}
	for _, doc := range docs {
		walk(doc, false)
	}
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) }) // a secret may contain a shorter one
	return slices.Compact(found)
}

// scrub removes secrets from all texts of a record: the control's reason may contain them, and the
// trace shows the values that conditions read.
func scrub(v value.Value, name string, secrets []string) value.Value {
	switch v.Kind() {
	case value.ObjectKind:
		var members []value.Member
		v.Each(func(key string, inner value.Value) bool {
			members = append(members, value.Member{Key: hide(key, "", secrets), Value: scrub(inner, key, secrets)})
			return true
		})
		return value.Object(members...)
	case value.ArrayKind:
		items := make([]value.Value, 0, v.Len())
		for _, inner := range v.Elems() {
			items = append(items, scrub(inner, name, secrets))
		}
		return value.Array(items...)
	case value.StringKind, value.NumberKind:
		text := record.Plain(v)
		if clean := hide(text, name, secrets); clean != text {
			return value.String(clean)
		}
	}
	return v
}

// structural are the members of a record whose numbers this service writes.
var structural = []string{"id", "version", "line", "step_number", "policy_id", "policy_version", "resource_id", "execution_time_ms", "timestamp"}

func hide(text, name string, secrets []string) string {
	if slices.Contains(structural, name) {
		return text
	}
	for _, secret := range secrets {
		switch {
		case text == secret:
			return masking.Redacted
		case len(secret) >= minSecret:
			text = strings.ReplaceAll(text, secret, masking.Redacted)
		}
	}
	return text
}

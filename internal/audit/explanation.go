package audit

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Explanation is what the log knows about the reason for a decision.
type Explanation struct {
	DecisionID string `json:"decision_id" doc:"The decision"`
	AuditLevel Level  `json:"audit_level" enum:"basic,detailed,comprehensive" doc:"How much was stored of it"`
	Decision   string `json:"decision" enum:"PERMIT,DENY" doc:"The decision"`
	Reason     string `json:"reason" doc:"The reason in the answer"`
	// PolicyID, PolicyName and PolicyVersion name the control that decided.
	PolicyID      int64   `json:"policy_id,omitempty" doc:"The control that decided; absent where none matched"`
	PolicyName    *string `json:"policy_name" nullable:"true" doc:"Its name; null where none matched"`
	PolicyVersion int64   `json:"policy_version,omitempty" doc:"Its version at the time of the decision"`
	// Available reports whether the rule and the conditions are known.
	Available bool `json:"available" doc:"Whether rule and conditions were stored"`
	// Explanations are those of the control that decided, or of each control that did not match,
	// the nearest first.
	Explanations []reason.Explanation `json:"explanations" doc:"The rule of the control that decided; if none matched, the rules of the controls in scope, the nearest first"`
	Text         string               `json:"text" doc:"The explanation in words, for administrators"`
	Public       string               `json:"public" doc:"The explanation for the person who asked for access"`
	Note         string               `json:"note,omitempty" doc:"Why the explanation is incomplete"`
}

// One returns a decision by its id. Fault: NotFound when the log has none that the caller may
// see.
func (rd *Reader) One(ctx context.Context, sc scope.Scope, id string) (Decision, error) {
	rd.waitShipped(ctx)
	var line string
	err := rd.cluster.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		line, err = recordByID(ctx, tx, id, stats.Visible(sc, scope.AnyEnv))
		return err
	})
	if err != nil {
		return Decision{}, err
	}
	if line == "" {
		return Decision{}, fault.NotFoundf("the log has no such decision")
	}
	return decodeDecision([]byte(line))
}

// Hide returns what the log may store of a value at a path such as input.user.password: the
// value without secrets inside it, or a note if a part of the path has a secret name.
func Hide(path string, v value.Value) value.Value {
	if !v.Defined() || v.IsNull() || v.Kind() == value.BoolKind {
		return v
	}
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(`.[]"`, r) }) {
		if redact.IsHidden(part) {
			return value.String(redact.Mark)
		}
	}
	if v.Kind() < value.ArrayKind {
		return v
	}
	text, ok := redact.JSON(nil, v.AppendJSON(nil))
	if !ok {
		return value.String(redact.Mark)
	}
	clean, err := value.Decode(text, value.Limits{})
	if err != nil {
		return value.String(redact.Mark)
	}
	return clean
}

// hiderOf returns Hide for a decision whose input contained these secrets. It also removes them
// from every value.
func hiderOf(found redact.Secrets) func(path string, v value.Value) value.Value {
	if len(found) == 0 {
		return Hide
	}
	return func(path string, v value.Value) value.Value { return found.Value(Hide(path, v)) }
}

// appendExplanation writes the explanations of a decision without secrets. A document in another
// format, such as the note about one that was too long, is redacted by member names.
func appendExplanation(dst, src []byte, found redact.Secrets) []byte {
	var list []reason.Explanation
	if json.Unmarshal(src, &list) != nil {
		return appendForeign(dst, src, found)
	}
	for i := range list {
		list[i] = list[i].Redacted(hiderOf(found))
	}
	return append(dst, found.Document(marshalled(list))...)
}

// appendTrace writes the trace of a decision without secrets, in the same way.
func appendTrace(dst, src []byte, found redact.Secrets) []byte {
	var steps []reason.Step
	if json.Unmarshal(src, &steps) != nil || len(steps) == 0 || steps[0].Type == "" {
		return appendForeign(dst, src, found)
	}
	return append(dst, found.Document(marshalled(reason.RedactedSteps(steps, hiderOf(found))))...)
}

func appendForeign(dst, src []byte, found redact.Secrets) []byte {
	text, _ := redact.JSON(nil, src)
	return append(dst, found.ForeignDocument(text)...)
}

func marshalled(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return text
}

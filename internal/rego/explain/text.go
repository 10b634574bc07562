package explain

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
)

// headline returns the first line of the text for administrators.
func headline(e *reason.Explanation, out rego.Outcome) string {
	name := fmt.Sprintf("Control %q", e.PolicyName)
	if e.PolicyVersion > 0 {
		name += fmt.Sprintf(" (version %d)", e.PolicyVersion)
	}
	at := ""
	if e.Line > 0 {
		at = fmt.Sprintf(" in line %d", e.Line)
	}
	switch {
	case out.Err != nil:
		return fmt.Sprintf("%s denied: it could not be evaluated%s: %s", name, at, lang.FirstLine(out.Reason))
	case e.Effect == "ALLOW" && e.Rule != "":
		return fmt.Sprintf("%s allowed: rule %s%s holds.", name, e.Rule, at)
	case e.Effect == "MASK" && e.Rule != "":
		return fmt.Sprintf("%s allowed with masks: rule %s%s holds.", name, e.Rule, at)
	case e.Effect == "DENY" && e.Rule == "deny":
		return fmt.Sprintf("%s denied: rule deny%s holds.", name, at)
	case e.Effect == "DENY" && len(e.Conditions) > 0:
		return fmt.Sprintf("%s denied: rule %s%s is false.", name, e.Rule, at)
	case e.Effect == "DENY" && at != "":
		return fmt.Sprintf("%s denied: no rule allows it, and %s is false by default%s.", name, e.Rule, at)
	case e.Effect == "NO_MATCH":
		return name + " does not apply: none of its rules holds, so access is not granted."
	default:
		return fmt.Sprintf("%s decided %s.", name, e.Effect)
	}
}

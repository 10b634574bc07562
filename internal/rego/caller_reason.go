package rego

// The neutral texts for the caller, for decisions in which the control gave no reason. They
// contain no rule, no name and no value.
const (
	publicDenied  = "You do not have access to this. If you think you should, ask the people who run this service and give them the decision id."
	publicAllowed = "Access is granted."
	publicMasked  = "Access is granted; some of the content is hidden."
	publicFailed  = "Access could not be decided and is refused. Ask the people who run this service and give them the decision id."
)

// CallerReason returns the text for the caller: the reason that the control gave, or else a neutral
// text, which names no control, no rule and no value.
func (d *Decision) CallerReason() string {
	switch {
	case d.Err != nil:
		return publicFailed
	case d.Effect != NoMatch && d.Reason != "" && d.Reason != defaultReason(d.PolicyName, d.Effect):
		return d.Reason
	}
	switch d.Effect {
	case Allow:
		return publicAllowed
	case Mask:
		return publicMasked
	default:
		return publicDenied
	}
}

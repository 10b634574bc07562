package rego

// The neutral sentences for the caller, used if the control gives no reason of its own. They
// contain no rule, no name and no value.
const (
	publicDenied  = "You do not have access to this. If you think you should, ask the people who run this service and give them the decision id."
	publicAllowed = "Access is granted."
	publicMasked  = "Access is granted; some of the content is hidden."
	publicFailed  = "Access could not be decided and is refused. Ask the people who run this service and give them the decision id."
)

// Public returns the text for the caller: the author's own reason, or else a neutral sentence. It
// names no control, no rule and no value.
func (d *Decision) Public() string {
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

package lang

// The strategies of a mask, from the mildest to the strictest: last4 shows the last four
// characters, hash shows whether values are equal, redact shows that there is a value, and remove
// shows nothing.
const (
	StrategyLast4  = "last4"
	StrategyHash   = "hash"
	StrategyRedact = "redact"
	StrategyRemove = "remove"
)

// Strictness ranks a mask strategy; 0 means that there is no such strategy.
func Strictness(strategy string) int {
	switch strategy {
	case StrategyLast4:
		return 1
	case StrategyHash:
		return 2
	case StrategyRedact:
		return 3
	case StrategyRemove:
		return 4
	}
	return 0
}

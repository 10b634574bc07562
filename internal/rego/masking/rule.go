package masking

// MaskRule says which value of a document is hidden, and how.
type MaskRule struct {
	// Path is dotted (user.email, items.*.ssn) or a JSON pointer (/user/email);
	// `*` stands for every element of an array or member of an object.
	Path string `json:"path" doc:"Dotted path or JSON pointer; * matches every element"`
	// Strategy is redact, hash, last4 or remove.
	Strategy string `json:"strategy" enum:"redact,hash,last4,remove" doc:"How the value is hidden"`
}

// The strategies of a mask, from the mildest to the strictest: last4 shows the last four
// characters, hash shows whether values are equal, redact shows that there is a value, and remove
// shows nothing.
const (
	Last4  = "last4"
	Hash   = "hash"
	Redact = "redact"
	Remove = "remove"
)

// Strictness ranks a mask strategy; 0 means that there is no such strategy.
func Strictness(strategy string) int {
	switch strategy {
	case Last4:
		return 1
	case Hash:
		return 2
	case Redact:
		return 3
	case Remove:
		return 4
	}
	return 0
}

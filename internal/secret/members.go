package secret

import (
	"encoding/json"
	"fmt"
)

// SealMembers seals texts with their names, such as the user name and the password of one
// credential. Without members, the result is empty.
func (b *Box) SealMembers(members map[string]string, aad string) ([]byte, error) {
	if len(members) == 0 {
		return []byte{}, nil
	}
	clear, err := json.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	return b.Seal(clear, aad)
}

// OpenMembers returns what SealMembers sealed for the same aad. Error: ErrOpen.
func (b *Box) OpenMembers(sealed []byte, aad string) (map[string]string, error) {
	out := map[string]string{}
	if len(sealed) == 0 {
		return out, nil
	}
	clear, err := b.Open(sealed, aad)
	if err == nil {
		err = json.Unmarshal(clear, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("open a credential: %w", err)
	}
	return out, nil
}

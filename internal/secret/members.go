package secret

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// AskAgain returns the fault Invalid "credential_required" at pointer if err is ErrOpen: whoever has
// the stored value must send it again. It returns any other error unchanged.
func AskAgain(err error, pointer string) error {
	if !errors.Is(err, ErrOpen) {
		return err
	}
	f := fault.Invalidf(pointer, "the stored value cannot be decrypted: send it again")
	f.Code = "credential_required"
	return f.Because(err)
}

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

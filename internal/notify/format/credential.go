package format

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// ReadCredential reads a credential from a request: an object of strings, or the main secret of the
// type as a string. It also returns the errors in it.
func (t Type) ReadCredential(sent any) (map[string]string, []fault.Detail) {
	switch v := sent.(type) {
	case nil:
		return map[string]string{}, nil
	case string:
		if v == "" {
			return map[string]string{}, nil
		}
		return map[string]string{t.MainSecret(v): v}, nil
	case map[string]any:
		out := map[string]string{}
		var wrong []fault.Detail
		for name, value := range v {
			s, isText := value.(string)
			switch {
			case !slices.Contains(t.Secrets, name):
				wrong = append(wrong, fault.Detail{Pointer: "/credential/" + name, Message: "is not a member of the credential of this type"})
			case !isText:
				wrong = append(wrong, fault.Detail{Pointer: "/credential/" + name, Message: "must be a string"})
			case len(s) > 8000:
				wrong = append(wrong, fault.Detail{Pointer: "/credential/" + name, Message: "must not be longer than 8000 characters"})
			case s != "":
				out[name] = s
			}
		}
		slices.SortFunc(wrong, func(a, b fault.Detail) int { return strings.Compare(a.Pointer, b.Pointer) })
		return out, wrong
	}
	return nil, []fault.Detail{{Pointer: "/credential", Message: "must be an object of strings, or a string"}}
}

package assist

import (
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Attributes returns the members of the input that a source reads. Their types are guessed from
// their use. It returns nil if the source does not parse.
func Attributes(source string) []Member {
	list, issues := lang.Attributes(source)
	if len(list) == 0 && len(issues) > 0 {
		return nil
	}
	out := make([]Member, 0, len(list))
	for _, a := range list {
		m := Member{Path: "input." + a.Key, Type: a.Type, Doc: a.Description}
		if len(a.Values) > 0 {
			var values []string
			for _, v := range a.Values {
				values = append(values, fmt.Sprintf("`%v`", v))
			}
			m.Doc = strings.TrimSpace(m.Doc + "\n\nCompared with " + strings.Join(values, ", "))
		}
		out = append(out, m)
	}
	return out
}

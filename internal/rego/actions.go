package rego

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// actionNames are the action names of one control, nil before the first call. Few callers need
// them, and a tenant may have thousands of controls, so nothing else of the parsed source is
// kept.
type actionNames = atomic.Pointer[[]string]

// ActionNames returns the names that the control compares the action with, sorted, each once.
// Only the first call parses the source. Two callers may parse it at once; both get the same
// answer. The caller must not change the slice.
func (c *Control) ActionNames() []string {
	if known := c.actions.Load(); known != nil {
		return *known
	}
	found := actionNamesOf(c.source)
	c.actions.Store(&found)
	return found
}

func actionNamesOf(source string) []string {
	if !strings.Contains(source, "action") {
		return nil
	}
	var found []string
	list, _ := lang.Attributes(source) // a source that does not parse has no action names
	for _, a := range list {
		if a.Key != "action.name" && a.Key != "action.method" && a.Key != "authzen.action.name" {
			continue
		}
		for _, v := range a.Values {
			if name, ok := v.(string); ok && name != "" {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return slices.Clip(slices.Compact(found))
}

package fault

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// FreePrefix is the prefix of members that callers may define themselves. They are never unknown.
const FreePrefix = "x-"

// UnknownMembers returns an offence for each member of sent that is not in known and does not begin
// with FreePrefix, with the nearest known name. at is the JSON pointer of sent. A member with the
// same value in stored is accepted, so that a client can send back what it has read; so is a null,
// which removes the member. If a known name has dots and is sent as nested objects, the offence
// names the dotted spelling.
func UnknownMembers(at string, sent, stored map[string]any, known []string) []Detail {
	var out []Detail
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		v := sent[name]
		if v == nil || slices.Contains(known, name) || strings.HasPrefix(name, FreePrefix) {
			continue
		}
		if old, there := stored[name]; there && sameJSON(old, v) {
			continue
		}
		if nested := dotted(at, name, v, known); nested != nil {
			out = append(out, nested...)
			continue
		}
		out = append(out, Detail{Pointer: at + "/" + PointerStep(name), Message: "there is no such member here" + DidYouMean(name, known)})
	}
	return out
}

// dotted returns the offences for the leaves of an object whose name begins a known name with dots;
// nil if it begins none.
func dotted(at, name string, v any, known []string) []Detail {
	object, ok := v.(map[string]any)
	if !ok || !slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, name+".") }) {
		return nil
	}
	var out []Detail
	var walk func(at, name string, v any)
	walk = func(at, name string, v any) {
		if inner, ok := v.(map[string]any); ok && len(inner) > 0 {
			for _, k := range slices.Sorted(maps.Keys(inner)) {
				walk(at+"/"+PointerStep(k), name+"."+k, inner[k])
			}
			return
		}
		message := "there is no such member here"
		if near := Nearest(name, known); near != "" {
			message += `; write it as one name, "` + near + `"`
		}
		out = append(out, Detail{Pointer: at, Message: message})
	}
	walk(at+"/"+PointerStep(name), name, object)
	return out
}

// PointerStep escapes a name as a token of a JSON pointer (RFC 6901 section 3).
func PointerStep(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

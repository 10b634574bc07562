package fault

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// FreePrefix begins the names of members that an object takes although nobody
// here knows them: they are the caller's own.
const FreePrefix = "x-"

// UnknownMembers finds the members of an object that are neither among the known
// names nor begin with FreePrefix, each with the nearest known name. at is the
// object's JSON pointer. A member that stored holds with the same value is no offence: what
// was read can be sent back. A null says that the member goes, and is none
// either. A known name with dots that is sent as nested objects is told as one.
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

// dotted tells of the leaves below an object whose name begins a known name with
// dots; nil where name begins none.
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

// PointerStep writes a name as a step of a JSON pointer (RFC 6901).
func PointerStep(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

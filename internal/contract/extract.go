package contract

import (
	"maps"
	"strings"
)

// Family is a part of the API below its own root, for clients that use only this part. It has
// its own document.
type Family struct {
	Name, Root string
	// Title, Description and Version are the members of info in its document. Extensions are
	// further members of info.
	Title, Description, Version string
	Extensions                  map[string]any
}

// Narrow removes from the document of the whole API what does not belong to a family. With the
// zero Family, it removes what belongs to any family. It keeps the components that the remaining
// paths need.
func Narrow(doc Document, families []Family, family Family) {
	if family.Name != "" {
		delete(doc, "webhooks") // events are not the family's
		info, _ := doc["info"].(map[string]any)
		info["title"], info["version"], info["description"] = family.Title, family.Version, family.Description
		maps.Copy(info, family.Extensions)
	}
	paths, _ := doc["paths"].(map[string]any)
	maps.DeleteFunc(paths, func(path string, _ any) bool { return familyOf(families, path) != family.Name })
	components, _ := doc["components"].(map[string]any)
	needed := map[string]bool{}
	references(components, paths, needed)
	references(components, doc["webhooks"], needed)
	for _, kind := range []string{"schemas", "parameters", "headers"} {
		parts, _ := components[kind].(map[string]any)
		maps.DeleteFunc(parts, func(name string, _ any) bool { return !needed["#/components/"+kind+"/"+name] })
	}
}

// familyOf returns the name of the family that a path belongs to; empty for none.
func familyOf(families []Family, path string) string {
	for _, f := range families {
		if strings.HasPrefix(path, f.Root+"/") {
			return f.Name
		}
	}
	return ""
}

// references adds to found each component that a node refers to, directly or through
// others.
func references(components map[string]any, node any, found map[string]bool) {
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			references(components, item, found)
		}
	case map[string]any:
		for name, member := range n {
			ref, ok := member.(string)
			if name != "$ref" || !ok {
				references(components, member, found)
				continue
			}
			if found[ref] {
				continue
			}
			found[ref] = true
			kind, part, _ := strings.Cut(strings.TrimPrefix(ref, "#/components/"), "/")
			if parts, ok := components[kind].(map[string]any); ok {
				references(components, parts[part], found)
			}
		}
	}
}

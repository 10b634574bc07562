package lang

// Annotated reports whether the package of a source has a custom annotation that is true. The
// source is one that compiled, so OPA's parser does not panic on it.
func Annotated(source, name string) (yes bool) {
	mod, issues := parse(sourceName, source)
	if issues != nil {
		return false
	}
	for _, a := range mod.Annotations {
		if a.Scope == "package" {
			on, _ := a.Custom[name].(bool)
			yes = yes || on
		}
	}
	return yes
}

package lang

// Annotated reports whether the package of a source has a custom annotation of this name that is
// true. The source must be one that compiled: Annotated does not recover from panics of OPA's
// parser.
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

package lang

// Annotated reports whether the package of a source has a custom annotation that is true. A
// source that does not parse has none.
func Annotated(source, name string) (yes bool) {
	defer func() {
		if recover() != nil { // OPA's parser on hostile text
			yes = false
		}
	}()
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

package lang

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
)

// Format formats source like `opa fmt`. ok is false if the source does not parse within the bounds
// of Check, or if the formatted text is not the same module (see CVE-2022-23628: OPA's formatter
// changed the meaning of a policy).
func Format(source string) (out string, ok bool) {
	defer func() {
		if recover() != nil { // OPA's code may panic on hostile text
			out, ok = "", false
		}
	}()
	if checkText(source) != nil {
		return "", false
	}
	options := ast.ParserOptions{RegoVersion: ast.RegoV1}
	before, err := ast.ParseModuleWithOpts(sourceName, source, options)
	if err != nil || before == nil || before.Package == nil || checkShape(before) != nil {
		return "", false
	}
	text, err := format.SourceWithOpts(sourceName, []byte(source), format.Opts{RegoVersion: ast.RegoV1, ParserOptions: &options})
	if err != nil {
		return "", false
	}
	after, err := ast.ParseModuleWithOpts(sourceName, string(text), options)
	if err != nil || !after.Equal(before) {
		return "", false
	}
	return string(text), true
}

// Refusal returns why a built-in of OPA is not offered to controls; "" if it is offered, or if
// there is no such built-in.
func Refusal(name string) string { return forbidden()[name] }

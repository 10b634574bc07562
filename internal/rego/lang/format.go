package lang

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
)

// Format lays source out as `opa fmt` does. ok is false where the source does
// not parse within the bounds of Check, or where the text that was laid out
// would not be the same module (CVE-2022-23628: a formatter that changed what a
// policy meant).
func Format(source string) (out string, ok bool) {
	defer func() {
		if recover() != nil { // other people's code on hostile text
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

// Refusal says why a built-in of OPA is not offered to controls; "" for what is
// offered, or is no built-in.
func Refusal(name string) string { return forbidden()[name] }

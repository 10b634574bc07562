package rego_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
)

// TestPanicsOfChecksAreKept: a panic of OPA's compiler comes with the issues of each
// check, and with the decision of a stored control, and no answer holds its stack.
func TestPanicsOfChecksAreKept(t *testing.T) {
	own := ast.CryptoMd5.Decl
	ast.CryptoMd5.Decl = nil // OPA's compiler panics where it is called
	t.Cleanup(func() { ast.CryptoMd5.Decl = own })
	const source = "package m\n\nallow if crypto.md5(input.user.id) == \"x\"\n"
	kept := func(what string, issues ...lang.Issue) {
		t.Helper()
		caught := lang.Caught(issues...)
		if len(caught) == 0 || !strings.Contains(string(caught[0].Stack), "opa") {
			t.Errorf("%s: %v, caught %v", what, issues, caught)
		}
		if text, _ := json.Marshal(issues); strings.Contains(string(text), "goroutine") {
			t.Errorf("%s: an answer would hold the stack: %s", what, text)
		}
	}
	issues := lang.Check(source)
	kept("a check", issues...)
	_, issues = rego.Compile(rego.Meta{ID: 1, Name: "m"}, source)
	kept("a control", issues...)
	for _, is := range suite.CheckModules([]suite.Module{{Path: "m.rego", Content: source}}) {
		kept("a file", is.Issue)
	}
	stored := rego.Defer(rego.Meta{ID: 1, Name: "m"}, source, nil)
	kept("a stored control", stored.Broken()...)
}

package lang

import (
	"fmt"
	"runtime/debug"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
)

// CrashIssue returns the issue of a check that ended in a panic. OPA's parser and compiler are
// third-party code that runs on hostile text. The issue carries the panic, so that the caller of
// the check can log and count it.
func CrashIssue(what string, thrown any, rule string) Issue {
	return Issue{
		Message: fmt.Sprintf("%s: %v", what, thrown), Severity: SeverityError, Rule: rule,
		caught: &eval.PanicError{Value: thrown, Stack: debug.Stack()},
	}
}

// Caught returns the panics that the issues carry, so that the caller can log and count them.
func Caught(issues ...Issue) []*eval.PanicError {
	var out []*eval.PanicError
	for i := range issues {
		if p := issues[i].caught; p != nil {
			out = append(out, p)
		}
	}
	return out
}

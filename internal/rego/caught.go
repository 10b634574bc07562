package rego

import (
	"fmt"
	"runtime/debug"
)

// brokeOff is the issue of a check that a panic ended: OPA's parser and compiler are
// other people's code on hostile text. The panic goes with the issue, so that whoever
// asked for the check can log and count it.
func brokeOff(what string, thrown any, rule string) Issue {
	return Issue{
		Message: fmt.Sprintf("%s: %v", what, thrown), Severity: SeverityError, Rule: rule,
		caught: &Panic{Value: thrown, Stack: debug.Stack()},
	}
}

// Caught are the panics that ended checks, to log and to count.
func Caught(issues ...Issue) []*Panic {
	var out []*Panic
	for i := range issues {
		if p := issues[i].caught; p != nil {
			out = append(out, p)
		}
	}
	return out
}

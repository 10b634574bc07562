// Package lang is the language of controls: Rego as tenants write it. It parses, checks and
// compiles controls and libraries within bounds, lints and formats them, and finds what they read.
//
// All source is treated as hostile. There is an allow-list of built-ins (capabilities.go), and
// bounds on the text and on the syntax tree apply before OPA's compiler gets them (source.go).
package lang

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// Issue is one finding in Rego source: an error of the check or a warning of the linter.
type Issue struct {
	// Line and Column count from 1; they are 0 if the finding is about the whole text. Columns
	// count characters.
	Line    int    `json:"line" doc:"Line in the source, from 1; 0 for the whole text"`
	Column  int    `json:"column" doc:"Column in the line, from 1"`
	Message string `json:"message" doc:"What is wrong"`
	// Severity is "error" (the control is refused) or "warning".
	Severity string `json:"severity" enum:"error,warning" doc:"error: the control is refused; warning: advice"`
	// Rule names the check: a code of the compiler, or the category/title of the linter.
	Rule string `json:"rule,omitempty" doc:"The check that reports it: a compiler code, or the linter's category/title"`

	file   string           // of the module, while the check runs
	caught *eval.PanicError // the panic that ended the check
}

// The two severities of an Issue.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// maxMessage bounds the first line of a message, in bytes.
const maxMessage = 300

// FirstLine returns the first line of a message of OPA or of the evaluator. It cuts a long line.
func FirstLine(message string) string {
	message, _, _ = strings.Cut(message, "\n")
	return truncate.Text(message, maxMessage, "...")
}

package decision_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// breakMD5 makes crypto.md5 panic with its operand, as a fault of OPA could.
func breakMD5(t *testing.T) {
	own := topdown.GetBuiltin(ast.CryptoMd5.Name)
	topdown.RegisterBuiltinFunc(ast.CryptoMd5.Name, func(_ topdown.BuiltinContext, args []*ast.Term, _ func(*ast.Term) error) error {
		panic("no digest of " + args[0].String())
	})
	t.Cleanup(func() { topdown.RegisterBuiltinFunc(ast.CryptoMd5.Name, own) })
}

// TestPanicsAreReported checks that a panic of the evaluator denies, and is logged with its stack and
// counted, in single decisions and in bulk. The log has nothing of the input.
func TestPanicsAreReported(t *testing.T) {
	breakMD5(t)
	c := newFixture(t, `{}`, "package a\n\nallow if crypto.md5(input.context.note) == \"x\"")
	var log bytes.Buffer
	counted := map[string]int{}
	c.Panics = &fault.Panics{Log: slog.New(slog.NewTextHandler(&log, nil)), Add: func(where string) { counted[where]++ }}
	const request = `{"user":{"id":"ann"},"resource":{"type":"api","path":"/r"},"action":{"name":"read"},"context":{"note":"4111-hidden"}}`
	res, err := c.Evaluate(context.Background(), anyone, c.object(request))
	if err != nil || res.Decision == "PERMIT" {
		t.Fatalf("%+v, %v, want no permit", res, err)
	}
	one := counted["decision"] // its trace panics too
	if one == 0 {
		t.Errorf("counted %v after one decision, want some", counted)
	}
	errtest.Must(t, errtest.Of(c.EvaluateBulk(context.Background(), anyone, c.items("["+request+","+request+"]"))))
	if counted["decision"] != 3*one {
		t.Errorf("counted %v after three decisions, want %d", counted, 3*one)
	}
	text := log.String()
	if strings.Count(text, "a panic was recovered") != 3*one || !strings.Contains(text, "goroutine") || !strings.Contains(text, "breakMD5") || !strings.Contains(text, "tenant=acme") {
		t.Errorf("the log is %s, want %d panics with their stacks", text, 3*one)
	}
	if strings.Contains(text, "hidden") {
		t.Errorf("the log is %s, want nothing of the input", text)
	}
}

// TestPanicsOfTheCompilerAreReported checks that a stored control on which the compiler panics denies,
// and that each decision logs and counts it.
func TestPanicsOfTheCompilerAreReported(t *testing.T) {
	own := ast.CryptoMd5.Decl
	ast.CryptoMd5.Decl = nil // OPA's compiler panics at a call of it
	t.Cleanup(func() { ast.CryptoMd5.Decl = own })
	c := newFixture(t, `{}`, "package a\n\nallow if crypto.md5(input.context.note) == \"x\"")
	var log bytes.Buffer
	counted := 0
	c.Panics = &fault.Panics{Log: slog.New(slog.NewTextHandler(&log, nil)), Add: func(string) { counted++ }}
	res, err := c.Evaluate(context.Background(), anyone, c.object(`{"user":{"id":"ann"},"resource":{"type":"api","path":"/r"},"action":{"name":"read"}}`))
	if err != nil || res.Decision == "PERMIT" || counted == 0 || !strings.Contains(log.String(), "goroutine") {
		t.Errorf("%+v, %v, %d counted, the log is %s, want a denial that is counted and logged", res, err, counted, log.String())
	}
}

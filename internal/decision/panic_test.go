package decision_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// breakMD5 makes crypto.md5 panic with its operand, as a bug of OPA's could.
func breakMD5(t *testing.T) {
	own := topdown.GetBuiltin(ast.CryptoMd5.Name)
	topdown.RegisterBuiltinFunc(ast.CryptoMd5.Name, func(_ topdown.BuiltinContext, args []*ast.Term, _ func(*ast.Term) error) error {
		panic("no digest of " + args[0].String())
	})
	t.Cleanup(func() { topdown.RegisterBuiltinFunc(ast.CryptoMd5.Name, own) })
}

// TestPanicsAreTold: a fault of the evaluator denies, and is logged with its stack
// and counted, in single decisions and in bulk. The log has nothing of the input.
func TestPanicsAreTold(t *testing.T) {
	breakMD5(t)
	c := newClerk(t, `{}`, "package a\n\nallow if crypto.md5(input.context.note) == \"x\"")
	var log bytes.Buffer
	counted := map[string]int{}
	c.Panics = &fault.Panics{Log: slog.New(slog.NewTextHandler(&log, nil)), Add: func(where string) { counted[where]++ }}
	const request = `{"user":{"id":"ann"},"resource":{"type":"api","path":"/r"},"action":{"name":"read"},"context":{"note":"4111-hidden"}}`
	res, err := c.Evaluate(context.Background(), anyone, c.object(request))
	if err != nil || res.Decision == "PERMIT" {
		t.Fatalf("%+v, %v", res, err)
	}
	one := counted["decision"] // its trace fails too
	if one == 0 {
		t.Errorf("counted %v after one decision", counted)
	}
	if _, err := c.EvaluateBulk(context.Background(), anyone, c.items("["+request+","+request+"]")); err != nil {
		t.Fatal(err)
	}
	if counted["decision"] != 3*one {
		t.Errorf("counted %v after three decisions", counted)
	}
	text := log.String()
	if strings.Count(text, "a panic was recovered") != 3*one || !strings.Contains(text, "goroutine") || !strings.Contains(text, "breakMD5") || !strings.Contains(text, "tenant=acme") {
		t.Errorf("the log has no stack: %s", text)
	}
	if strings.Contains(text, "hidden") {
		t.Errorf("the log has the input: %s", text)
	}
}

// TestPanicsOfTheCompilerAreTold: a stored control on which the compiler panics denies,
// and each decision logs and counts it.
func TestPanicsOfTheCompilerAreTold(t *testing.T) {
	own := ast.CryptoMd5.Decl
	ast.CryptoMd5.Decl = nil // OPA's compiler panics where it is called
	t.Cleanup(func() { ast.CryptoMd5.Decl = own })
	c := newClerk(t, `{}`, "package a\n\nallow if crypto.md5(input.context.note) == \"x\"")
	var log bytes.Buffer
	counted := 0
	c.Panics = &fault.Panics{Log: slog.New(slog.NewTextHandler(&log, nil)), Add: func(string) { counted++ }}
	res, err := c.Evaluate(context.Background(), anyone, c.object(`{"user":{"id":"ann"},"resource":{"type":"api","path":"/r"},"action":{"name":"read"}}`))
	if err != nil || res.Decision == "PERMIT" || counted == 0 || !strings.Contains(log.String(), "goroutine") {
		t.Errorf("%+v, %v, %d counted: %s", res, err, counted, log.String())
	}
}

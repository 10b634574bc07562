package builtin

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/builtins"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Bridged calls OPA's implementation of a built-in. The result is undefined if the call fails.
type Bridged func(m *Memory, args ...value.Value) value.Value

// Bridge returns a function that calls OPA's implementation of a built-in with converted operands,
// for a call at a place of a module. ok is false if the built-in is not offered. An error in the
// built-in makes the result undefined, as in topdown, unless the environment is strict.
func Bridge(name string, at *ast.Location) (slow Bridged, ok bool) {
	f := topdown.GetBuiltin(name)
	if !callable[name] || f == nil {
		return nil, false
	}
	call := &bridging{name: name, at: at, f: f}
	guard := guards[name]
	return func(m *Memory, args ...value.Value) value.Value {
		if m.Err != nil {
			return value.Value{}
		}
		size := 0
		for _, a := range args {
			size += int(a.Size())
		}
		if guard != nil && size <= MaxOperands {
			size += guard(args)
		}
		if size > MaxOperands || !m.Alloc(4*size) || m.Work(16+size>>3) {
			m.Fail(eval.ErrLimit)
			return value.Value{}
		}
		if name == ast.JWTDecodeVerify.Name && !stringKeys(args[1]) { // OPA's implementation would panic
			m.builtinFailed(name, call.at, builtins.NewOperandErr(2, "must be object with keys that are strings"))
			return value.Value{}
		}
		operands := make([]*ast.Term, len(args))
		for i, a := range args {
			operands[i] = a.Term()
		}
		return call.call(m, operands)
	}, true
}

// stringKeys reports whether all keys of v are strings. It is true for values that are not objects.
func stringKeys(v value.Value) bool {
	for i := range v.Len() {
		if v.Kind() == value.ObjectKind && v.Pair(i).K.Kind() != value.StringKind {
			return false
		}
	}
	return true
}

// bridging is a call of one of OPA's built-ins at one place of a program.
type bridging struct {
	name string
	at   *ast.Location
	f    topdown.BuiltinFunc
}

// MaxOperands limits the size of the operands and of the expected result of OPA's built-ins, because
// a running one cannot be stopped.
const MaxOperands = 2 << 20

func (b *bridging) call(m *Memory, operands []*ast.Term) (v value.Value) {
	defer func() {
		if r := recover(); r != nil { // a bug in OPA: the control fails
			m.Fail(&eval.PanicError{Value: r, Stack: debug.Stack()})
			v = value.Value{}
		}
	}()
	err := b.f(m.context(), operands, func(out *ast.Term) (err error) {
		if v, err = result(out.Value, operands); err != nil {
			return err
		}
		if m.Alloc(int(v.Size())) {
			v = m.CheckSize(v)
		}
		return nil
	})
	if err != nil {
		m.builtinFailed(b.name, b.at, err)
	}
	if err != nil || m.Err != nil {
		return value.Value{}
	}
	return v
}

// result converts the result of one of OPA's built-ins. OPA treats numbers in exponent notation as
// exact integers in arithmetic; those beyond the range of exact integers become doubles again.
func result(out ast.Value, operands []*ast.Term) (value.Value, error) {
	v, err := value.FromAST(out)
	n, isNumber := out.(ast.Number)
	if !errors.Is(err, value.ErrRange) || !isNumber || !slices.ContainsFunc(operands, exponential) {
		return v, err
	}
	f, perr := strconv.ParseFloat(string(n), 64)
	if perr != nil || f == 0 {
		return v, err
	}
	return value.Float(f), nil
}

func exponential(t *ast.Term) bool {
	n, ok := t.Value.(ast.Number)
	return ok && strings.ContainsAny(string(n), "eE")
}

// builtinFailed records the error of a built-in, in the words of topdown. If the environment is not
// strict, the expression is only undefined.
func (m *Memory) builtinFailed(name string, at *ast.Location, err error) {
	if m.Err != nil {
		return
	}
	if halt, ok := errors.AsType[topdown.Halt](err); ok {
		err = halt.Err
	} else if errors.Is(err, value.ErrRange) {
		m.Fail(eval.ErrLimit)
		return
	} else if !m.Env.Strict || errors.Is(err, topdown.BuiltinEmpty{}) { //nolint:staticcheck // OPA's own built-ins still return it
		return
	}
	te, evaluated := errors.AsType[*topdown.Error](err)
	_, operand := errors.AsType[builtins.ErrOperand](err)
	switch {
	case evaluated && te.Code == topdown.CancelErr:
		m.Fail(eval.ErrLimit)
	case evaluated:
		m.Fail(eval.ErrorAt(te.Code, te.Message, at))
	case operand:
		m.Fail(eval.ErrorAt(topdown.TypeErr, name+": "+err.Error(), at))
	default:
		m.Fail(eval.ErrorAt(topdown.BuiltinErr, name+": "+err.Error(), at))
	}
}

// context returns the context in which OPA's built-ins are called.
func (m *Memory) context() topdown.BuiltinContext {
	if m.bctx == nil {
		m.bctx = &topdown.BuiltinContext{
			Time:    ast.NewTerm(ast.Number(strconv.FormatInt(m.Now(), 10))),
			Cancel:  cancel{m},
			Context: context.Background(),
			Seed:    rand.Reader,
			Metrics: metrics.NoOp(),
		}
	}
	return *m.bctx
}

// cancel tells OPA's built-ins when to stop. Only a few of them check it.
type cancel struct{ m *Memory }

// Cancel does nothing: built-ins do not call it.
func (cancel) Cancel() {}

// Cancelled counts a step.
func (c cancel) Cancelled() bool { return c.m.Tick() || c.m.Err != nil }

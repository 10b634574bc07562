package fault

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
)

// Panics logs and counts recovered panics. A nil *Panics does nothing.
type Panics struct {
	// Log receives one line for each panic, with its stack.
	Log *slog.Logger
	// Add counts one in the place where it was recovered, such as decision; nil
	// counts none.
	Add func(where string)
}

// Caught logs and counts a panic. attrs are key-value pairs for the log. Neither they nor the stack
// may contain data of a caller.
func (p *Panics) Caught(ctx context.Context, where string, thrown any, stack []byte, attrs ...any) {
	if p == nil {
		return
	}
	p.Count(where)
	p.Log.ErrorContext(ctx, "a panic was recovered", append([]any{"where", where, "panic", DescribePanic(thrown), "stack", string(stack)}, attrs...)...)
}

// Count counts a panic that is logged elsewhere.
func (p *Panics) Count(where string) {
	if p != nil && p.Add != nil {
		p.Add(where)
	}
}

// DescribePanic returns what a log may contain of a panic's value: the text of Go's runtime errors,
// which name types, indices and lengths, and otherwise only the type. A text that was formatted by
// code may contain a caller's data.
func DescribePanic(v any) string {
	switch v := v.(type) {
	case runtime.Error:
		return v.Error()
	case Recovered:
		return string(v)
	}
	return fmt.Sprintf("%T", v)
}

// Recovered is what Thrown said in another process.
type Recovered string

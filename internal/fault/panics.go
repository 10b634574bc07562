package fault

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
)

// Panics is told of each panic that was recovered, so that none passes unseen. The
// nil *Panics tells no one.
type Panics struct {
	// Log gets a line with the stack.
	Log *slog.Logger
	// Add counts one in the place where it was recovered, such as decision; nil
	// counts none.
	Add func(where string)
}

// Caught logs and counts a panic. attrs are pairs for the log; neither they nor
// the stack may hold what a caller sent.
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

// DescribePanic is what a log may say of the value of a panic: the text of Go's own
// errors, which name types, indices and lengths, and only the type of all else. A
// text that somebody put together may hold a caller's data.
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

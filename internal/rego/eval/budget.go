package eval

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Budget is what an evaluation may still use. An evaluation that exceeds it fails with ErrLimit.
type Budget struct {
	Env *Env
	// Err is the reason why the evaluation failed; nil if it has not failed.
	Err error

	fuel  int // steps until CheckLimits is called next
	steps int // steps left after fuel is used up
	bytes int // bytes that may still be allocated
}

// ValueBytes is the size in bytes of an element of a collection, for Alloc.
const ValueBytes = 24

// fuelLoad is the number of steps between two calls of CheckLimits, which is about 50 us.
const fuelLoad = 2048

// New returns the full budget of an evaluation.
func New(env *Env) Budget {
	b := Budget{Env: env, steps: env.Steps, bytes: env.Bytes}
	if b.steps == 0 {
		b.steps = defaultSteps
	}
	if b.bytes == 0 {
		b.bytes = defaultBytes
	}
	b.fuel = min(fuelLoad, b.steps)
	b.steps -= b.fuel
	return b
}

// Tick counts one step; true means stop.
func (b *Budget) Tick() bool {
	b.fuel--
	return b.fuel < 0 && b.refill()
}

// Work counts n steps; true means stop.
func (b *Budget) Work(n int) bool {
	b.fuel -= n
	return b.fuel < 0 && b.refill()
}

func (b *Budget) refill() bool {
	b.steps += b.fuel // the steps used beyond the load
	if b.steps <= 0 {
		return b.Fail(ErrLimit)
	}
	b.fuel = min(fuelLoad, b.steps)
	b.steps -= b.fuel
	return b.CheckLimits()
}

// CheckLimits checks the deadline and whether the caller wants to stop; true means stop.
func (b *Budget) CheckLimits() bool {
	select {
	case <-b.Env.Done:
		return b.Fail(ErrLimit)
	case <-b.Env.Expired:
		return b.Fail(ErrLimit)
	default:
	}
	if b.Env.Pause != nil && !b.Env.Pause() {
		return b.Fail(ErrLimit)
	}
	if b.Env.Clock != nil && !b.Env.Deadline.IsZero() && !b.Env.Clock().Before(b.Env.Deadline) {
		return b.Fail(ErrLimit)
	}
	return false
}

// Alloc counts n bytes; false means stop.
func (b *Budget) Alloc(n int) bool {
	if b.bytes -= n; b.bytes < 0 {
		b.Fail(ErrLimit)
		return false
	}
	return true
}

// CheckSize returns v, a value that the evaluation made. If v is larger than MaxValue, it stops the
// evaluation and returns undefined.
func (b *Budget) CheckSize(v value.Value) value.Value {
	if v.Size() > MaxValue {
		b.Fail(ErrLimit)
		return value.Value{}
	}
	return v
}

// Fail stops the evaluation, and returns true. The first error wins.
func (b *Budget) Fail(err error) bool {
	if b.Err == nil {
		b.Err = err
	}
	return true
}

// Conflict stops the evaluation because rules contradict each other at loc; it returns true.
func (b *Budget) Conflict(message string, loc *ast.Location) bool {
	return b.Fail(ErrorAt(topdown.ConflictErr, message, loc))
}

// Equal compares two values, and counts the work if they are large.
func (b *Budget) Equal(x, y value.Value) bool {
	if x.Kind() >= value.StringKind && x.Kind() == y.Kind() {
		if n := min(x.Size(), y.Size()); n > 64 && b.Work(int(n>>5)) {
			return false
		}
	}
	return value.Equal(x, y)
}

// SortWork counts the work of sorting values, beyond the one step that each has cost already;
// false means stop.
func (b *Budget) SortWork(vs []value.Value) bool {
	n := len(vs) >> 2
	for i := range vs {
		if vs[i].Kind() >= value.StringKind {
			n += int(vs[i].Size() >> 5)
		}
	}
	return !b.Work(n * log2(len(vs)))
}

// PairWork counts the work of making an object from pairs; false means stop.
func (b *Budget) PairWork(ps []value.Pair) bool {
	n := len(ps) >> 2
	for i := range ps {
		if ps[i].V.Kind() >= value.ArrayKind {
			n += int(ps[i].V.Size() >> 4)
		}
		if ps[i].K.Kind() >= value.StringKind {
			n += int(ps[i].K.Size()>>5) * log2(len(ps))
		}
	}
	return !b.Work(n)
}

// CountComparison counts the work of a comparison; true means stop.
func (b *Budget) CountComparison(x, y value.Value) bool {
	if x.Kind() < value.StringKind || x.Kind() != y.Kind() {
		return false
	}
	if n := min(x.Size(), y.Size()); n > 64 {
		return b.Work(int(n >> 5))
	}
	return false
}

// CountMembership counts the work of looking for a value in a collection; true means stop.
func (b *Budget) CountMembership(x, coll value.Value) bool {
	switch coll.Kind() {
	case value.SetKind:
		return b.Work(int(x.Size()>>5) * log2(coll.Len()))
	case value.ArrayKind, value.ObjectKind:
		n := coll.Len()
		if x.Kind() >= value.StringKind {
			n += int(min(uint64(x.Size())*uint64(n), uint64(coll.Size())) >> 5)
		}
		return b.Work(n >> 2)
	}
	return false
}

// log2 returns the number of comparisons of a binary search in n elements.
func log2(n int) int {
	l := 1
	for ; n > 2; n >>= 1 {
		l++
	}
	return l
}

package worker

import (
	"context"
	"runtime/debug"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// childPanic is a panic that a child recovered. The server logs and counts it.
type childPanic struct {
	What  string `json:"what"`
	Stack string `json:"stack"`
}

// maxPanics limits the panics in one reply. In a replay, the same panic may occur in each of a
// million decisions.
const maxPanics = 8

// addPanic keeps a panic for the next reply.
func (c *child) addPanic(p *rego.Panic) {
	if len(c.panics) < maxPanics {
		c.panics = append(c.panics, childPanic{What: fault.DescribePanic(p.Value), Stack: string(p.Stack)})
	}
}

// withPanics adds the recovered panics to a reply, including those of checks.
func (c *child) withPanics(rep reply) reply {
	c.addCheckPanics(rep.Issues...)
	if rep.Modules != nil {
		for _, is := range rep.Modules.Issues {
			c.addCheckPanics(is.Issue)
		}
	}
	rep.Panics, c.panics = c.panics, nil
	return rep
}

func (c *child) addCheckPanics(issues ...lang.Issue) {
	for _, p := range lang.Caught(issues...) {
		c.addPanic(p)
	}
}

// panicReply returns the reply to a request in which the child itself panicked.
func (c *child) panicReply(p any) reply {
	c.addPanic(&rego.Panic{Value: p, Stack: debug.Stack()})
	return reply{Error: "the evaluator failed"}
}

// reportPanics logs and counts the panics that a child recovered.
func reportPanics(ctx context.Context, to *fault.Panics, rep reply) {
	for _, c := range rep.Panics {
		to.Caught(ctx, "worker", fault.Recovered(c.What), []byte(c.Stack))
	}
}

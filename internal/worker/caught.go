package worker

import (
	"context"
	"runtime/debug"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// caught is a panic that a child recovered, for the server to log and to count.
type caught struct {
	What  string `json:"what"`
	Stack string `json:"stack"`
}

// maxCaught is how many panics one answer tells of: a replay may meet the same one
// in each of a million decisions.
const maxCaught = 8

// note keeps a panic for the next answer.
func (c *child) note(p *rego.Panic) {
	if len(c.caught) < maxCaught {
		c.caught = append(c.caught, caught{What: fault.DescribePanic(p.Value), Stack: string(p.Stack)})
	}
}

// answer adds what was noted to an answer, and the panics that ended checks.
func (c *child) answer(rep reply) reply {
	c.noteChecks(rep.Issues...)
	if rep.Modules != nil {
		for _, is := range rep.Modules.Issues {
			c.noteChecks(is.Issue)
		}
	}
	rep.Caught, c.caught = c.caught, nil
	return rep
}

func (c *child) noteChecks(issues ...lang.Issue) {
	for _, p := range lang.Caught(issues...) {
		c.note(p)
	}
}

// panicReply is the answer to a request in which the child itself panicked.
func (c *child) panicReply(p any) reply {
	c.note(&rego.Panic{Value: p, Stack: debug.Stack()})
	return reply{Error: "the evaluator failed"}
}

// reportCaught logs and counts what a child recovered.
func reportCaught(ctx context.Context, to *fault.Panics, rep reply) {
	for _, c := range rep.Caught {
		to.Caught(ctx, "worker", fault.Recovered(c.What), []byte(c.Stack))
	}
}

package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Main runs a child: it answers requests until its input ends. memory is the memory limit of the
// process, in bytes. If it is exceeded, the process exits with exitMemory.
func Main(ctx context.Context, in io.Reader, out io.Writer, memory int64) error {
	debug.SetMemoryLimit(memory * 3 / 4)
	limitAddressSpace(memory)
	ctx, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watchMemory(ctx, memory)
	}()
	defer func() { stop(); <-watched }()

	c := child{}
	for {
		var req request
		if err := readFrame(in, &req); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read request: %w", err)
		}
		if req.Op == opReplay && req.Replay != nil {
			if err := c.replay(ctx, req, in, out); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("replay: %w", err)
			}
			return nil
		}
		if err := writeFrame(out, c.withPanics(c.serve(ctx, req))); err != nil {
			return fmt.Errorf("write reply: %w", err)
		}
	}
}

// child caches what is slow to create: the linter (a third of a second) and the controls of recent
// simulations.
type child struct {
	linter   *lang.Linter
	controls map[[sha256.Size]byte]*rego.Control
	panics   []childPanic // recovered during the current request
}

func (c *child) serve(ctx context.Context, req request) (rep reply) {
	defer func() {
		if p := recover(); p != nil {
			rep = c.panicReply(p)
		}
	}()
	switch req.Op {
	case opValidate:
		return reply{Issues: lang.CheckModule(req.Source, req.Libraries...)}
	case opLint:
		return c.lint(ctx, req)
	case opTest:
		return c.test(ctx, req)
	case opCheckModules:
		return c.checkModules(req)
	case opTestModules:
		return c.testModules(ctx, req)
	case opSimulate:
		return c.simulate(ctx, req)
	case opAttributes:
		return c.attributes(req)
	case opUnpack:
		return c.unpack(req)
	default:
		return reply{Error: "unknown operation " + req.Op}
	}
}

func (c *child) lint(ctx context.Context, req request) reply {
	if c.linter == nil {
		l, err := lang.NewLinter(ctx)
		if err != nil {
			return reply{Error: "prepare the linter: " + err.Error()}
		}
		c.linter = l
	}
	issues, err := c.linter.Lint(ctx, req.Source)
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Issues: issues}
}

// watchMemory ends the process if the Go runtime holds more memory than the limit. The child checks
// itself, because not every platform has a process table.
func watchMemory(ctx context.Context, limit int64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	tick := time.NewTicker(4 * time.Millisecond)
	for {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		metrics.Read(samples)
		if int64(samples[0].Value.Uint64()-samples[1].Value.Uint64()) > limit {
			os.Exit(exitMemory)
		}
	}
}

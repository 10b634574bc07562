package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// closers are named cleanup functions. They run in reverse order of their registration, each with a
// time limit.
type closers struct {
	list []closer
	log  *slog.Logger
}

type closer struct {
	name  string
	limit time.Duration
	run   func(context.Context) error
}

func (c *closers) add(name string, limit time.Duration, run func(context.Context) error) {
	c.list = append(c.list, closer{name, limit, run})
}

// close runs all cleanup functions. It logs one that takes too long and does not wait for it. It
// returns the first error.
func (c *closers) close() error {
	var first error
	for _, cl := range slices.Backward(c.list) {
		ctx, cancel := context.WithTimeout(context.Background(), cl.limit)
		done := make(chan error, 1)
		go func() { done <- cl.run(ctx) }()
		var err error
		select {
		case err = <-done:
		case <-ctx.Done():
			err = fmt.Errorf("did not end within %s", cl.limit)
		}
		cancel()
		if err != nil {
			c.log.Error("a part did not stop cleanly", "part", cl.name, "error", err)
			if first == nil {
				first = fmt.Errorf("%s: %w", cl.name, err)
			}
		}
	}
	c.list = nil
	return first
}

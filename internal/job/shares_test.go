package job_test

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// TestJobsThatHang checks that jobs that hang, also with their system, do not keep other tenants
// from theirs, and that all of them run in the end.
func TestJobsThatHang(t *testing.T) {
	for name, c := range map[string]struct {
		slots int
		hang  func(task job.Task, f func() error) error
	}{
		"in slots": {4, func(_ job.Task, f func() error) error { return f() }},
		"away":     {1, func(task job.Task, f func() error) error { return task.Away(f) }},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, stores *db.Cluster) {
				const hanging = 20
				begun, ended, other, release := make(chan bool, hanging), make(chan bool, hanging), make(chan bool, 3), make(chan bool)
				handlers := map[string]job.Handler{
					"hang": func(ctx context.Context, task job.Task) error {
						err := c.hang(task, func() error {
							begun <- true
							select {
							case <-release:
							case <-ctx.Done():
							}
							return ctx.Err()
						})
						if err == nil {
							ended <- true
						}
						return err
					},
					"other": func(context.Context, job.Task) error { other <- true; return nil },
				}
				first, second := tenant(t, stores, "default"), tenant(t, stores, dbtest.Second)
				for range hanging {
					insert(t, first, job.Job{Kind: "hang"})
				}
				start(t, &job.Runner{Cluster: stores, Kinds: kinds(handlers, nil), Concurrency: c.slots})
				get(t, begun)
				for range 3 {
					insert(t, second, job.Job{Kind: "other"})
					get(t, other)
				}
				close(release)
				for range hanging {
					get(t, ended)
				}
				timetest.WaitFor(t, "no job in the store", func() bool { return len(states(t, first))+len(states(t, second)) == 0 })
			})
		})
	}
}

// Package shadow decides in shadow mode, concurrently with the traffic. A slow control must not
// delay requests that it cannot stop.
package shadow

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcpguard"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/record"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/relay"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/usage"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
)

// Bounds of shadow decisions.
const (
	shadowQueue = 1024                 // requests that wait
	shadowSlow  = 5 * time.Millisecond // a decision that takes longer makes the worker rest
	shadowDrain = time.Second          // for decisions that are queued at the end
)

// Decider decides in shadow mode. Make it with New.
type Decider struct {
	judge    *judge.Judge
	recorder *record.Recorder
	relay    *relay.Relay
	tools    *mcpguard.Guard
	accounts *usage.Accounts
	ids      *ids.Source
	count    *metrics.Counters
	now      func() time.Time
	Held     *atomic.Int64 // bytes of bodies that wait for a decision
	queue    chan Job
}

// New returns a decider for the requests that r forwards.
func New(r *relay.Relay, record *record.Recorder, accounts *usage.Accounts) *Decider {
	return &Decider{
		judge: r.Judge, recorder: record, relay: r, tools: r.Tools, accounts: accounts, ids: r.Judge.IDs, count: r.Count, now: r.Now, Held: r.Tools.Held,
		queue: make(chan Job, shadowQueue),
	}
}

// Job is a queued decision.
type Job struct {
	State       *settings.State
	Inbound     request.Inbound
	Caller      *identity.Caller
	identityErr error
}

// Decide queues a decision. A full queue is counted and recorded as a decision that was
// not taken.
func (d *Decider) Decide(st *settings.State, in *request.Inbound, who *identity.Caller, idErr error) {
	job := Job{st, *in, who, idErr}
	job.Inbound.Headers = st.CopyShown(in.Headers)
	select {
	case d.queue <- job:
	default:
		d.RecordSkipped(job)
	}
}

// RecordSkipped records a request that passed in shadow mode without a decision.
func (d *Decider) RecordSkipped(j Job) {
	d.count.ShadowSkipped.Add(1)
	d.releaseBody(j.Inbound.Seen)
	v := judge.Verdict{ID: d.ids.Next(j.Inbound.At), Mode: settings.Shadowing, Pass: true, Outcome: metrics.PassThrough, Failure: "not decided: too many shadow decisions wait"}
	v.Refusal = request.Refusal{Code: "shadow_overload", Message: v.Failure}
	d.recorder.Record(j.State, &j.Inbound, j.Caller, &v)
}

// Work decides on queued requests until ctx ends, and then for shadowDrain. After a slow decision
// it pauses for as long as the decision took, so that a slow control leaves processor time for the
// traffic.
func (d *Decider) Work(ctx context.Context) {
	decide := func(j Job) {
		began := d.now()
		defer func() {
			if took := d.now().Sub(began); took > shadowSlow {
				pause.For(ctx, took)
			}
		}()
		defer d.releaseBody(j.Inbound.Seen)
		v := d.judge.Decide(context.WithoutCancel(ctx), j.State, &j.Inbound, j.Caller, j.identityErr)
		d.recorder.Record(j.State, &j.Inbound, j.Caller, &v)
	}
	for {
		select {
		case j := <-d.queue:
			decide(j)
		case <-ctx.Done():
			for end := d.now().Add(shadowDrain); ; {
				select {
				case j := <-d.queue:
					if d.now().Before(end) {
						decide(j)
					} else {
						d.RecordSkipped(j)
					}
				default:
					return
				}
			}
		}
	}
}

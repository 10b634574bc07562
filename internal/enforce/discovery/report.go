package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/controlplane"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
)

// Run reports hosts until ctx ends. A report that fails is sent again, unless the control
// plane does not accept it: then its hosts are reported again later.
func (rep *Reporter) Run(ctx context.Context) {
	tick := time.NewTicker(promoteEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rep.wake:
		case <-tick.C:
			if !rep.promote(rep.now(), rep.set()) {
				continue
			}
		}
		if !pause.For(ctx, collectTime) {
			return
		}
		list := rep.drainQueue()
		for wait := controlplane.RetryMin; len(list) > 0; wait = min(2*wait, controlplane.RetryMax) {
			refused, err := rep.report(ctx, list)
			if err == nil {
				rep.count.HostsReported.Add(uint64(len(list)))
				rep.refuse(list, refused, rep.now().Add(refusedFor))
				break
			}
			if statusErr, ok := errors.AsType[*controlplane.StatusError](err); ok && statusErr.Final() {
				rep.log.WarnContext(ctx, "the control plane did not accept the report of hosts", "error", err)
				rep.postpone(hostsOf(list), rep.now().Add(refusedFor))
				break
			}
			if !pause.For(ctx, rep.ids.Jitter(max(wait, controlplane.RetryAfter(err)))) {
				return
			}
		}
	}
}

func hostsOf(list []sighting) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.Host
	}
	return out
}

// report sends one report. It returns the refused hosts with the reasons.
func (rep *Reporter) report(ctx context.Context, list []sighting) (refused map[string]string, err error) {
	body, err := json.Marshal(map[string]any{"hosts": list})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Refused []struct {
			Host   string `json:"host"`
			Reason string `json:"reason"`
		} `json:"refused"`
	}
	if err := rep.client.Ask(ctx, "/bridge/discovery", body, &answer); err != nil {
		return nil, err
	}
	refused = make(map[string]string, len(answer.Refused))
	for _, r := range answer.Refused {
		refused[r.Host] = r.Reason
	}
	return refused, nil
}

package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/uplink"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
)

// Run reports hosts until ctx ends. A report that fails is sent again, unless the control
// plane does not accept it: then its hosts are reported again later.
func (s *Scout) Run(ctx context.Context) {
	tick := time.NewTicker(promoteEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-tick.C:
			if !s.promote(s.now(), s.set()) {
				continue
			}
		}
		if !pause.For(ctx, collectTime) {
			return
		}
		list := s.drainQueue()
		for wait := uplink.RetryMin; len(list) > 0; wait = min(2*wait, uplink.RetryMax) {
			refused, err := s.report(ctx, list)
			var statusErr *uplink.StatusError
			if err == nil {
				s.count.HostsReported.Add(uint64(len(list)))
				s.refuse(list, refused, s.now().Add(refusedFor))
				break
			}
			if errors.As(err, &statusErr) && statusErr.Final() {
				s.log.WarnContext(ctx, "the control plane did not accept the report of hosts", "error", err)
				s.postpone(hostsOf(list), s.now().Add(refusedFor))
				break
			}
			if !pause.For(ctx, s.ids.Jitter(max(wait, uplink.RetryAfter(err)))) {
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
func (s *Scout) report(ctx context.Context, list []sighting) (refused map[string]string, err error) {
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
	if err := s.client.Ask(ctx, "/bridge/discovery", body, &answer); err != nil {
		return nil, err
	}
	refused = make(map[string]string, len(answer.Refused))
	for _, r := range answer.Refused {
		refused[r.Host] = r.Reason
	}
	return refused, nil
}

package bridge

import (
	"context"
	"encoding/json"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// MaxSightings is the largest number of hosts in a report.
const MaxSightings = 100

// Sightings is a bouncer's report of hosts for which it has no resource.
type Sightings struct {
	Hosts []resource.Sighting `json:"hosts" maxItems:"100" doc:"Hosts with traffic that no resource of the bouncer's bundle names."`
}

// Discover processes a report of hosts. The token determines the bouncer and its environment.
// Faults: BadRequest for a body that is not a report, Invalid for too many hosts.
func (s *Service) Discover(ctx context.Context, sc scope.Scope, token string, body []byte) (resource.Discovery, error) {
	f, d, err := s.bouncerState(ctx, sc, token)
	if err != nil {
		return resource.Discovery{}, err
	}
	var report Sightings
	if err := json.Unmarshal(body, &report); err != nil {
		return resource.Discovery{}, fault.New(fault.BadRequest, "invalid_report", "this is not a report of hosts")
	}
	if len(report.Hosts) > MaxSightings {
		return resource.Discovery{}, fault.Invalidf("/hosts", "a report may name at most %d hosts", MaxSightings)
	}
	s.activity.add(f.tenant, d, activity{seen: s.cfg.Now()})
	if off, _ := d.currentTarget().meta.At("bouncer", "configuration", "discovery").Str(); off == "off" {
		out := resource.Discovery{Created: []resource.Discovered{}, Known: []string{}, Refused: []resource.Undiscovered{}}
		for _, h := range report.Hosts {
			out.Refused = append(out.Refused, resource.Undiscovered{Host: clip(h.Host, 260), Reason: resource.RefusedOff})
		}
		return out, nil
	}
	return s.cfg.Discover(ctx, sc, d.id, report.Hosts, func(names []string) []string { return f.currentSet().UnknownHosts(names) })
}

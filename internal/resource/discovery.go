package resource

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/classify"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// discoveriesPerHour is how many resources one bouncer may create within an hour.
	discoveriesPerHour = 100
	// oftenPerHour is how many more are reserved for hosts with at least oftenSeen
	// requests, so that a flood of invented names cannot hide a host in use.
	oftenPerHour = 20
	oftenSeen    = 3
	// maxUnreviewed is how many discovered resources without a person's classification an
	// environment holds, so that invented host names cannot fill the table. Once it is
	// full, a host with traffic replaces the oldest one without.
	maxUnreviewed = 1000
	// maxNotes is how many segments of the first request's path are kept.
	maxNotes = 4
)

// Why a host was refused.
const (
	RefusedHost   = "invalid_host"
	RefusedBudget = "rate_limited"
	RefusedFull   = "too_many_unreviewed"
	RefusedOff    = "discovery_off"
)

// Sighting is traffic to a host without a resource.
type Sighting struct {
	Host   string `json:"host" maxLength:"260" doc:"Host name of the request; a port is ignored." example:"api.openai.com"`
	Scheme string `json:"scheme,omitempty" enum:"http,https" doc:"Scheme of the request."`
	Path   string `json:"path,omitempty" maxLength:"2048" doc:"Normalised path of the first request, without its query. Only the leading words are kept, as a hint for classification." example:"/v1/chat/completions"`
	// Requests is set only if the host is reported because of this number of requests.
	Requests int `json:"requests,omitempty" minimum:"0" doc:"Number of requests that named the host, when that is the reason why it is reported beyond the hourly limit."`
}

// allowance returns how many resources a bouncer may create within an hour, including the
// one for this host.
func (s Sighting) allowance() int64 {
	if s.Requests >= oftenSeen {
		return discoveriesPerHour + oftenPerHour
	}
	return discoveriesPerHour
}

// Discovered is a host that became a resource.
type Discovered struct {
	Host       string `json:"host" doc:"The host name."`
	ResourceID int64  `json:"resource_id" doc:"The resource that was created."`
}

// Undiscovered is a host that was refused.
type Undiscovered struct {
	Host   string `json:"host" doc:"The host as it was reported."`
	Reason string `json:"reason" enum:"invalid_host,rate_limited,too_many_unreviewed,discovery_off" doc:"Why: it is not a host name; the bouncer has used up its hourly limit; people should first classify the resources found so far; or the bouncer's configuration turns discovery off."`
}

// Discovery is the result of a bouncer's report.
type Discovery struct {
	Created   []Discovered   `json:"created" doc:"Hosts that now have a resource."`
	Known     []string       `json:"known" doc:"Hosts that a resource already names; the resource does not change."`
	Refused   []Undiscovered `json:"refused" doc:"Hosts that got no resource, and why."`
	Remaining int64          `json:"remaining" doc:"How many more hosts this bouncer may report within the hour."`
}

// Discover creates resources for reported hosts that no resource of the scope's environment
// names. unknown filters the names: it returns those that the caller does not know
// otherwise. Existing resources never change. The audit rows name the bouncer as the actor.
func (s *Service) Discover(ctx context.Context, sc scope.Scope, bouncer int64, seen []Sighting, unknown func(names []string) []string) (Discovery, error) {
	d := discovery{service: s, sc: sc, bouncer: bouncer}
	candidates := d.dedupe(seen, unknown)
	most := int64(discoveriesPerHour)
	for _, c := range candidates {
		most = max(most, c.allowance())
	}
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		used, err := countDiscoveries(ctx, tx, bouncer, s.Now().Add(-time.Hour))
		d.out.Remaining = max(most-used, 0)
		return err
	})
	if err != nil {
		return Discovery{}, err
	}
	if d.out.Remaining == 0 {
		for _, c := range candidates {
			d.refuse(c.Host, RefusedBudget)
		}
		return d.out, nil
	}
	if len(candidates) == 0 {
		return d.out, nil
	}
	sifted := d.out
	err = s.write(ctx, sc, func(tx *db.Tx) error {
		// A transaction may run again, so each run starts from the sifted report.
		d.tx, d.out = tx, Discovery{Created: []Discovered{}, Known: append([]string{}, sifted.Known...), Refused: append([]Undiscovered{}, sifted.Refused...)}
		return d.register(ctx, candidates)
	})
	if err != nil {
		return Discovery{}, err
	}
	return d.out, nil
}

// discovery is a report in progress.
type discovery struct {
	service *Service
	sc      scope.Scope
	bouncer int64
	tx      *db.Tx
	out     Discovery
}

func (d *discovery) refuse(host, reason string) {
	d.out.Refused = append(d.out.Refused, Undiscovered{Host: truncate.Text(host, maxHost, ""), Reason: reason})
}

// maxHost limits how much of a refused host name is repeated.
const maxHost = 260

// dedupe keeps each unknown host of a report once.
func (d *discovery) dedupe(seen []Sighting, unknown func([]string) []string) []Sighting {
	d.out = Discovery{Created: []Discovered{}, Known: []string{}, Refused: []Undiscovered{}}
	first := map[string]Sighting{}
	var names []string
	for _, sight := range seen {
		name, ok := target.HostName(sight.Host)
		if _, twice := first[name]; !ok || twice {
			if !ok {
				d.refuse(sight.Host, RefusedHost)
			}
			continue
		}
		sight.Host = name
		first[name] = sight
		names = append(names, name)
	}
	var out []Sighting
	for _, name := range unknown(names) {
		out = append(out, first[name])
		delete(first, name)
	}
	for _, name := range names {
		if _, known := first[name]; known {
			d.out.Known = append(d.out.Known, name)
		}
	}
	return out
}

// register creates the resources that are new and within the limits. It counts again,
// because the earlier count may be out of date.
func (d *discovery) register(ctx context.Context, candidates []Sighting) error {
	s, tx := d.service, d.tx
	now := s.Now()
	if err := forgetDiscoveries(ctx, tx, now.Add(-time.Hour)); err != nil {
		return err
	}
	used, err := countDiscoveries(ctx, tx, d.bouncer, now.Add(-time.Hour))
	if err != nil {
		return err
	}
	unreviewed, err := countUnreviewed(ctx, tx, d.sc.Env)
	if err != nil {
		return err
	}
	d.out.Remaining = max(discoveriesPerHour-used, 0)
	for _, c := range candidates {
		known, err := hasHost(ctx, tx, d.sc.Env, c.Host)
		if err != nil {
			return err
		}
		if !known && used < c.allowance() && unreviewed >= maxUnreviewed && c.Requests >= oftenSeen {
			gave, err := d.makeRoom(ctx)
			if err != nil {
				return err
			}
			unreviewed -= gave
		}
		switch {
		case known:
			d.out.Known = append(d.out.Known, c.Host)
		case used >= c.allowance():
			d.refuse(c.Host, RefusedBudget)
		case unreviewed >= maxUnreviewed:
			d.refuse(c.Host, RefusedFull)
		default:
			if err := d.create(ctx, c, now); err != nil {
				return err
			}
			used++
			d.out.Remaining = max(discoveriesPerHour-used, 0)
			unreviewed++
		}
	}
	return d.list(ctx)
}

// makeRoom removes the oldest discovered resource that nobody has changed and that has had
// fewer than oftenSeen requests, because invented names come once. It returns how many
// resources it removed: 0 or 1.
func (d *discovery) makeRoom(ctx context.Context) (int64, error) {
	s, tx := d.service, d.tx
	untouched, err := untouchedDiscoveries(ctx, tx, d.sc.Env, maxUnreviewed)
	if err != nil {
		return 0, err
	}
	seen, err := audit.DecidedOn(ctx, tx, d.sc.Env, untouched)
	if err != nil {
		return 0, err
	}
	for _, id := range untouched {
		if seen[id] >= oftenSeen {
			continue
		}
		r, err := s.load(ctx, tx, d.sc, id)
		if err != nil {
			return 0, err
		}
		if len(r.Policies) > 0 { // a control without its resource would protect nothing
			continue
		}
		if s.RemoveFromBouncers != nil {
			if err := s.RemoveFromBouncers(ctx, tx, d.sc, id); err != nil {
				return 0, err
			}
		}
		if err := s.drop(ctx, tx, d.sc, r); err != nil {
			return 0, err
		}
		return 1, s.record(ctx, tx, d.sc, r, "deleted", map[string]any{"auto_discovered": true, "requests": seen[id], "reason": "it made room for a host with traffic"})
	}
	return 0, nil
}

// list adds the new resources to the bouncer's list, so that it gets their controls without
// a person's help.
func (d *discovery) list(ctx context.Context) error {
	if len(d.out.Created) == 0 || d.service.AddToBouncer == nil {
		return nil
	}
	ids := make([]int64, len(d.out.Created))
	for i, c := range d.out.Created {
		ids[i] = c.ResourceID
	}
	return d.service.AddToBouncer(ctx, d.tx, d.sc, d.bouncer, ids)
}

// create creates one resource, classified by the heuristic.
func (d *discovery) create(ctx context.Context, c Sighting, now time.Time) error {
	r := Resource{
		Name: truncate.Text(c.Host, 200, ""), Type: "api", Environment: d.sc.Env, Path: "/**", Methods: []string{}, OriginalHost: c.Host, URL: c.address(),
		Attributes: map[string]any{}, AutoDiscovered: true, Version: 1, CreatedAt: now, UpdatedAt: now,
	}
	p := classify.Propose(r.subject())
	r.Enrichment, _ = r.Enrichment.fillFrom(p)
	r.Source, r.Confidence, r.LastClassifiedAt = classify.Heuristic, &p.Confidence, &now
	r.Classification.Tags = r.labels()
	r, offences := r.normal()
	if len(offences) > 0 {
		d.refuse(c.Host, RefusedHost)
		return nil
	}
	made, err := d.service.add(ctx, d.tx, r)
	if err != nil {
		return err
	}
	if err := insertDiscovery(ctx, d.tx, made.ID, d.bouncer, now); err != nil {
		return err
	}
	d.out.Created = append(d.out.Created, Discovered{Host: c.Host, ResourceID: made.ID})
	return d.service.record(ctx, d.tx, d.sc, made, "created", map[string]any{
		"path": made.Path, "type": made.Type, "auto_discovered": true, "bouncer_id": d.bouncer,
		"classification_source": made.Source, "classification_confidence": p.Confidence,
	})
}

// address returns the part of the address that is stored. The first words of a path say what
// a host offers. The rest may contain names, numbers or secrets.
func (s Sighting) address() string {
	scheme := "https"
	if s.Scheme == "http" {
		scheme = s.Scheme
	}
	u := url.URL{Scheme: scheme, Host: s.Host, Path: "/"}
	if path, err := target.NormalisePath(s.Path); err == nil && path != "/" {
		var kept []string
		for seg := range strings.SplitSeq(path[1:], "/") {
			if len(kept) == maxNotes || !plainWord(seg) {
				break
			}
			kept = append(kept, seg)
		}
		u.Path += strings.Join(kept, "/")
	}
	return u.String()
}

// plainWord reports whether a path segment looks like a word of an API and not like an
// identifier: it begins with a letter, has at most 40 characters, and few digits.
func plainWord(s string) bool {
	if s == "" || len(s) > 40 {
		return false
	}
	digits := 0
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i == 0:
			return false
		case c >= '0' && c <= '9':
			digits++
		case c != '-' && c != '_' && c != '.' && c != ':':
			return false
		}
	}
	return digits <= 4
}

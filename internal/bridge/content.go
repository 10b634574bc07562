package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// packs caches the results of earlier rounds, so that a change only costs time for the
// bouncers that it affects. Resources that no bouncer protects are skipped.
type packs struct {
	controls  map[*rego.Control][sha256.Size]byte
	resources map[*target.Resource]*sentData
	groups    map[string]*group       // by the ids of the resources
	data      map[string]digestedData // by the path below data
	work      packTotals
}

// digestedData is data that controls read, with its digest: a document may be large, and many
// bouncers may get it.
type digestedData struct {
	of  value.Value
	sum [sha256.Size]byte
}

// packTotals counts the objects that rounds had to build again.
type packTotals struct{ controls, resources, groups int }

// sentData is a resource as bouncers get it, without the fields that do not concern
// them.
type sentData struct {
	target.Resource
	sum [sha256.Size]byte
}

// group is the content that bouncers with the same resources share.
type group struct {
	identity [sha256.Size]byte
	packed   *bundle.Packed
	items    []bouncer.Item
}

func newPacks() packs {
	return packs{controls: map[*rego.Control][sha256.Size]byte{}, resources: map[*target.Resource]*sentData{}, groups: map[string]*group{}, data: map[string]digestedData{}}
}

// targets determines what each bouncer should run.
func (e *environment) targets(ctx context.Context, set *rego.Set, r *reading) (map[int64]*desiredBundle, error) {
	round := e.packs.newRound(set)
	agents := agentsOf(set.Agents())
	out := make(map[int64]*desiredBundle, len(r.list))
	for i := range r.list {
		b := &r.list[i]
		ids := round.knownResources(append(slices.Clone(b.ResourceIDs), r.links[b.ID]...))
		g, err := round.group(ids)
		if err != nil {
			return nil, err
		}
		meta, err := metaOf(e.tenant, b, r)
		if err != nil {
			return nil, fmt.Errorf("bouncer %d: %w", b.ID, err)
		}
		t := &desiredBundle{packed: g.packed, items: g.items, meta: meta, agents: agents, masks: r.masks, signed: b.Signing(), resources: ids, denies: b.Denies()}
		if t.hash, err = e.hashOf(ctx, t); err != nil {
			return nil, err
		}
		out[b.ID] = t
	}
	e.packs = round.nextPacks()
	return out, nil
}

// sentAgents is the part of all manifests about the tenant's AI agents, with its digest. All bouncers
// share it, because it may be long.
type sentAgents struct {
	member value.Member
	sum    [sha256.Size]byte
}

// agentsOf returns that part; nil if it is empty, so that nothing changes for the bouncers of other
// tenants.
func agentsOf(agents actor.Agents) *sentAgents {
	if agents.IsEmpty() {
		return nil
	}
	m := bundle.AgentsMeta(agents)
	return &sentAgents{m, sha256.Sum256(m.Value.AppendJSON(nil))}
}

// manifestMeta returns the metadata of the manifest, after the members that are given.
func (t *desiredBundle) manifestMeta(first ...value.Member) value.Value {
	t.meta.Each(func(name string, v value.Value) bool {
		first = append(first, value.Member{Key: name, Value: v})
		return true
	})
	if t.agents != nil {
		first = append(first, t.agents.member)
	}
	return value.Object(first...)
}

// metaOf returns the bouncer's part of the manifest. The member replay is only present when replay
// is off, so that nothing changes for the bouncers of other tenants, and a bouncer that does not
// know the member works as before.
func metaOf(tenant scope.TenantID, b *bouncer.Bouncer, r *reading) (value.Value, error) {
	configuration, err := value.FromAny(b.Configuration)
	if err != nil {
		return value.Value{}, err
	}
	members := []value.Member{
		{Key: "id", Value: value.Int(b.ID)},
		{Key: "name", Value: value.String(b.Name)},
		{Key: "tenant", Value: value.String(string(tenant))},
		{Key: "environment", Value: value.String(string(b.Environment))},
		{Key: "mode", Value: value.String(r.mode)},
		{Key: "target_app", Value: value.String(b.TargetApp)},
		{Key: "configuration", Value: configuration},
	}
	if b.CredentialsNo > 0 { // only their number: bundles do not contain credentials
		members = append(members, value.Member{Key: "credentials", Value: value.Int(b.CredentialsNo)})
	}
	if r.replayOff {
		members = append(members, value.Member{Key: "replay", Value: value.String("off")})
	}
	return value.Object(value.Member{Key: "bouncer", Value: value.Object(members...)}), nil
}

// hashOf returns the hash of everything in a bouncer's bundle except its revision.
func (e *environment) hashOf(ctx context.Context, t *desiredBundle) (string, error) {
	h := sha256.New()
	sum := t.packed.Sum()
	h.Write(sum[:])
	h.Write(t.meta.AppendJSON(nil))
	h.Write([]byte("\nmasks by " + t.masks.id))
	if t.agents != nil {
		h.Write([]byte("\nagents " + hex.EncodeToString(t.agents.sum[:])))
	}
	if t.signed {
		key, err := e.svc.signingKey(ctx, e.tenant)
		if err != nil {
			return "", err
		}
		h.Write([]byte("\nsigned by " + key.ID))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// round is one pass over all bouncers of an environment.
type round struct {
	set       *rego.Set
	old, next packs
}

func (p packs) newRound(set *rego.Set) *round {
	r := &round{set: set, old: p, next: newPacks()}
	r.next.work = p.work
	return r
}

func (r *round) nextPacks() packs { return r.next }

// knownResources sorts ids and drops those that are not in the set.
func (r *round) knownResources(ids []int64) []int64 {
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id int64) bool { return r.set.Resource(id) == nil })
}

// resource returns a resource of the set as bouncers get it. An object that did not
// change is reused.
func (r *round) resource(id int64) *sentData {
	at := r.set.Resource(id)
	if d := r.next.resources[at]; d != nil {
		return d
	}
	d := r.old.resources[at]
	if d == nil {
		d = &sentData{Resource: *at}
		d.Doc = value.Without(at.Doc, "owner_email")
		h := sha256.New()
		writeResource(h, &d.Resource)
		d.sum = [sha256.Size]byte(h.Sum(nil))
		r.next.work.resources++
	}
	r.next.resources[at] = d
	return d
}

// group returns the content for the bouncers that protect these resources.
func (r *round) group(ids []int64) (*group, error) {
	var name strings.Builder
	for _, id := range ids {
		name.WriteString(strconv.FormatInt(id, 10))
		name.WriteByte(' ')
	}
	if g := r.next.groups[name.String()]; g != nil {
		return g, nil
	}
	controls := r.set.ControlsOf(ids)
	resources := r.resourcesOf(ids, controls)
	identity := r.identity(controls, resources)
	g := r.old.groups[name.String()]
	if g == nil || g.identity != identity {
		spec := rego.SetSpec{Env: r.set.Env(), Controls: controls, PIP: r.set.PIP(), Grants: r.set.Grants()}
		for _, id := range resources {
			spec.Resources = append(spec.Resources, r.resource(id).Resource)
		}
		packed, err := bundle.Pack(rego.NewSet(spec))
		if err != nil {
			return nil, err
		}
		r.next.work.groups++
		g = &group{identity: identity, packed: packed, items: make([]bouncer.Item, 0, len(controls))}
		for _, c := range controls {
			g.items = append(g.items, bouncer.Item{PolicyID: c.Meta().ID, Version: c.Meta().Version})
		}
	}
	r.next.groups[name.String()] = g
	return g, nil
}

// resourcesOf adds to ids the resources whose data the controls read.
func (r *round) resourcesOf(ids []int64, controls []*rego.Control) []int64 {
	out := slices.Clone(ids)
	for _, c := range controls {
		for _, path := range c.Refs().Data {
			switch {
			case len(path) == 0, path[0] == "resources" && len(path) == 1:
				return r.allResources()
			case path[0] == "resources":
				if id, err := strconv.ParseInt(path[1], 10, 64); err == nil && r.set.Resource(id) != nil {
					out = append(out, id)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// allResources returns the ids of all resources, for a control that reads
// data.resources as a whole.
func (r *round) allResources() []int64 {
	all := r.set.Resources()
	out := make([]int64, len(all))
	for i := range all {
		out[i] = all[i].ID
	}
	slices.Sort(out)
	return out
}

// identity distinguishes contents without packing them.
func (r *round) identity(controls []*rego.Control, resources []int64) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte(r.set.Env()))
	for _, c := range controls {
		sum := r.controlSum(c)
		h.Write(sum[:])
		for _, path := range c.Refs().Data {
			if len(path) > 0 && path[0] == native.GrantsRoot {
				path = path[:1] // bundles hold all grants
			}
			if len(path) == 0 || path[0] == "pip" || path[0] == native.GrantsRoot {
				sum := r.dataSum(path)
				h.Write(sum[:])
			}
		}
	}
	h.Write([]byte("resources"))
	for _, id := range resources {
		h.Write(r.resource(id).sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// dataSum digests a path below data and the value there. A value that did not change since
// the last round is not read again.
func (r *round) dataSum(path []string) [sha256.Size]byte {
	key := fmt.Sprintf("%q", path)
	if d, ok := r.next.data[key]; ok {
		return d.sum
	}
	v := r.set.Data(path)
	d, ok := r.old.data[key]
	if !ok || !value.Same(d.of, v) {
		d = digestedData{v, sha256.Sum256(v.AppendJSON([]byte(key + " ")))}
	}
	r.next.data[key] = d
	return d.sum
}

func (r *round) controlSum(c *rego.Control) [sha256.Size]byte {
	if sum, ok := r.next.controls[c]; ok {
		return sum
	}
	sum, ok := r.old.controls[c]
	if !ok {
		m := c.Meta()
		h := sha256.New()
		fmt.Fprintf(h, "%d %d %d %q %d ", m.ID, m.Version, m.ResourceID, m.Name, len(c.Source()))
		h.Write([]byte(c.Source()))
		for _, l := range c.Libraries() {
			fmt.Fprintf(h, "%d %d %q %q ", l.ID, l.Version, l.Name, l.Source)
		}
		sum = [sha256.Size]byte(h.Sum(nil))
		r.next.work.controls++
	}
	r.next.controls[c] = sum
	return sum
}

// writeResource hashes every field of a resource that a bouncer uses. A change of a
// field that is missing here would not reach any bouncer.
func writeResource(h hash.Hash, res *target.Resource) {
	_ = json.NewEncoder(h).Encode(res) // writing to a hash never fails
}

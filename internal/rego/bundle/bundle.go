// Package bundle writes, signs and reads the OPA bundles that carry controls to bouncers and to
// stock OPAs.
//
// A bundle holds the controls twice. An index has their sources, which a bouncer compiles
// (read.go). They are also rewritten for a stock OPA (rewrite.go), which evaluates the entry point
// entry.rego. Both reach the same decisions.
package bundle

import (
	"bytes"
	_ "embed" // the modules below
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

//go:embed entry.rego
var entryModule string

//go:embed rules.rego
var rulesModule string

//go:embed grants.rego
var grantsModule string

// The files of a bundle.
const (
	manifestFile   = ".manifest"
	signaturesFile = ".signatures.json"
	indexFile      = "gatehouse/data.json"
	entryFile      = "gatehouse/decision.rego"
	rulesFile      = "gatehouse/rules.rego"
	strictFile     = "gatehouse/strict.rego"
	grantsFile     = "gatehouse/grants.rego"
)

// bundleRoots are the roots of a bundle: the parts of an OPA's data that it owns.
var bundleRoots = []string{"gatehouse", "resources", "pip"}

// Spec is the content of a bundle that Write writes.
type Spec struct {
	// Revision is the bundle's ETag. OPA reports it as the active revision.
	Revision string
	// Set has the controls, resources and data. Only data that the controls refer to is written.
	Set *rego.Set
	// Meta is the manifest's metadata: an object, or undefined.
	Meta value.Value
	// Signing signs the bundle; nil leaves it unsigned.
	Signing *SigningKey
}

// agentsMember is the member of a manifest's metadata about the tenant's AI agents.
const agentsMember = "agents"

// AgentsMeta returns the member of a manifest's metadata about the tenant's AI agents. It is in the
// metadata, and not among the files that bouncers share, because then a change packs no files
// again. Bouncers that do not know the member, and stock OPAs, ignore it.
func AgentsMeta(a actor.Agents) value.Member {
	return value.Member{Key: agentsMember, Value: a.Value()}
}

// agentsIn reads the member of AgentsMeta. Older servers send none.
func agentsIn(meta map[string]any) (actor.Agents, error) {
	of, there := meta[agentsMember]
	if !there {
		return actor.Agents{}, nil
	}
	v, err := value.FromAny(of)
	if err != nil {
		return actor.Agents{}, err
	}
	return actor.ReadAgents(v)
}

// Write packs a set and returns its bundle for one enforcement point. Servers use Pack and
// Packed.Bundle, because many enforcement points share what is packed.
func Write(spec Spec) ([]byte, error) {
	packed, err := Pack(spec.Set)
	if err != nil {
		return nil, err
	}
	parts, err := packed.Bundle(spec.Revision, spec.Meta, nil, spec.Signing)
	if err != nil {
		return nil, err
	}
	return bytes.Join(parts, nil), nil
}

// bundleFiles returns the files of a bundle by name, without the manifest and the signatures: the
// controls, each rewritten into its own package, the data, and the entry point
// data.gatehouse.decision, with which a stock OPA reaches the decision of rego.Set.Decide. Equal sets
// give equal files.
func bundleFiles(s *rego.Set) (map[string][]byte, error) {
	files := map[string][]byte{
		entryFile: []byte(entryModule),
		rulesFile: []byte(rulesModule),
	}
	strict := map[string]bool{}
	for _, c := range s.Controls() {
		text, err := textOf(c)
		if err != nil {
			return nil, err
		}
		for _, name := range text.strict {
			strict[name] = true
		}
		files["gatehouse/controls/"+controlKey(c.Meta().ID)+".rego"] = text.control
		files["gatehouse/outcomes/"+controlKey(c.Meta().ID)+".rego"] = text.outcome
		for key, library := range text.libraries {
			files["gatehouse/libraries/"+key+".rego"] = library
		}
	}
	files[strictFile] = []byte(strictModule(slices.Sorted(maps.Keys(strict))))
	index := []value.Member{{Key: "index", Value: index(s)}}
	referred := referredData(s)
	if granted := referred[native.GrantsRoot]; granted.Defined() {
		index = append(index, value.Member{Key: "granted", Value: granted})
		files[grantsFile] = []byte(grantsModule)
		delete(referred, native.GrantsRoot)
	}
	files[indexFile] = value.Object(index...).AppendJSON(nil)
	for root, doc := range referred {
		files[root+"/data.json"] = doc.AppendJSON(nil)
	}
	return files, nil
}

func manifest(revision string, meta value.Value, roots []string) []byte {
	list := make([]value.Value, 0, len(roots))
	for _, r := range roots {
		list = append(list, value.String(r))
	}
	m := []value.Member{
		{Key: "revision", Value: value.String(revision)},
		{Key: "roots", Value: value.Array(list...)},
		{Key: "rego_version", Value: value.Int(1)},
	}
	if meta.Defined() {
		m = append(m, value.Member{Key: "metadata", Value: meta})
	}
	return value.Object(m...).AppendJSON(nil)
}

// index returns data.gatehouse.index: the names and sources of the controls, the controls in scope
// of each resource, the resources, and the matcher's tables.
func index(s *rego.Set) value.Value {
	controls := make([]value.Member, 0, len(s.Controls()))
	libraries := map[string]lang.Library{}
	linked := map[int64]bool{} // resources with controls of their own
	for _, c := range s.Controls() {
		linked[c.Meta().ResourceID] = true
		for _, l := range c.Libraries() {
			libraries[libraryKey(l)] = l
		}
		controls = append(controls, value.Member{Key: controlKey(c.Meta().ID), Value: controlIndex(c)})
	}
	var scope []value.Member
	tables := s.Tables()
	for _, p := range tables.Resources.Pairs() {
		id, _ := p.V.Get("id").Int64()
		if linked[id] {
			key, _ := p.K.Str()
			scope = append(scope, value.Member{Key: key, Value: controlKeys(s.ControlsOf([]int64{id}))})
		}
	}
	return value.Object(
		value.Member{Key: "env", Value: value.String(s.Env())},
		value.Member{Key: "revision", Value: value.Int(s.Revision())},
		value.Member{Key: "controls", Value: value.Object(controls...)},
		value.Member{Key: "libraries", Value: libraryIndex(libraries)},
		value.Member{Key: "global", Value: controlKeys(s.ControlsOf(nil))},
		value.Member{Key: "scope", Value: value.Object(scope...)},
		value.Member{Key: "resources", Value: tables.Resources},
		value.Member{Key: "match", Value: tables.Match},
		value.Member{Key: "fold", Value: tables.Fold},
		value.Member{Key: "strictness", Value: strictnessTable()},
	)
}

// controlIndex returns the entry of a control in the index.
func controlIndex(c *rego.Control) value.Value {
	libs := c.Libraries()
	used := make([]value.Value, 0, len(libs))
	for _, l := range libs {
		used = append(used, value.String(libraryKey(l)))
	}
	var refused value.Value
	if issues := c.Broken(); len(issues) > 0 {
		refused = value.Object(value.Member{Key: "message", Value: value.String(issues[0].Message)},
			value.Member{Key: "line", Value: value.Int(int64(issues[0].Line))}, value.Member{Key: "column", Value: value.Int(int64(issues[0].Column))})
	}
	m := c.Meta()
	members := []value.Member{
		{Key: "id", Value: value.Int(m.ID)},
		{Key: "name", Value: value.String(m.Name)},
		{Key: "version", Value: value.Int(m.Version)},
		{Key: "resource_id", Value: value.Int(m.ResourceID)},
		{Key: "source", Value: value.String(c.Source())},
		{Key: "refused", Value: refused},
		{Key: "libraries", Value: value.Array(used...)},
	}
	if m.Targets != "" {
		var targets []value.Value
		for t := range strings.FieldsSeq(m.Targets) {
			targets = append(targets, value.String(t))
		}
		members = append(members, value.Member{Key: "action_targets", Value: value.Array(targets...)})
	}
	if c.Requestable() {
		members = append(members, value.Member{Key: "requestable", Value: value.Bool(true)})
	}
	return value.Object(members...)
}

func libraryIndex(libraries map[string]lang.Library) value.Value {
	var list []value.Member
	for _, key := range slices.Sorted(maps.Keys(libraries)) {
		l := libraries[key]
		list = append(list, value.Member{Key: key, Value: value.Object(
			value.Member{Key: "id", Value: value.Int(l.ID)},
			value.Member{Key: "name", Value: value.String(l.Name)},
			value.Member{Key: "version", Value: value.Int(l.Version)},
			value.Member{Key: "source", Value: value.String(l.Source)},
		)})
	}
	return value.Object(list...)
}

func strictnessTable() value.Value {
	var m []value.Member
	for _, name := range []string{masking.Last4, masking.Hash, masking.Redact, masking.Remove} {
		m = append(m, value.Member{Key: name, Value: value.Int(int64(masking.Strictness(name)))})
	}
	return value.Object(m...)
}

func controlKeys(list []*rego.Control) value.Value {
	keys := make([]value.Value, 0, len(list))
	for _, c := range list {
		keys = append(keys, value.String(controlKey(c.Meta().ID)))
	}
	return value.Array(keys...)
}

// referredData returns the parts of data.resources, data.pip and data.grants that the controls
// refer to, by root.
func referredData(s *rego.Set) map[string]value.Value {
	refs := make([]lang.Refs, 0, len(s.Controls()))
	for _, c := range s.Controls() {
		refs = append(refs, c.Refs())
	}
	out := map[string]value.Value{}
	for _, p := range lang.UniteRefs(refs...).Data {
		if p[0] == native.GrantsRoot { // write all grants: a subject may get one later
			p = p[:1]
		}
		v := s.Data(p)
		if !v.Defined() {
			continue
		}
		// Paths select at most two levels, or three in the metadata of connections; a document
		// below that is written as a whole.
		levels := 2
		if p[0] == "pip" && len(p) > 1 && p[1] == rego.PIPMeta {
			levels = 3
		}
		p = p[:min(levels, len(p))]
		out[p[0]] = put(out[p[0]], p[1:], s.Data(p))
	}
	return out
}

// put returns an object with v at a path; it adds missing objects on the path.
func put(at value.Value, path []string, v value.Value) value.Value {
	if len(path) == 0 {
		return v
	}
	if !at.Defined() {
		at = value.Object()
	}
	return at.With(path[0], put(at.Get(path[0]), path[1:], v))
}

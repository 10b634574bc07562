package resource

import (
	"cmp"
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/classify"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// attention is how many rows the needs-attention table has.
const attention = 25

// The names of missing values in the inventory.
const (
	unknownKind = "unknown"
	unsetLevel  = "unset"
)

// noControl is the least important reason: resources with another reason come first.
const noControl = "no_control"

// Inventory is the summary of an environment's resources.
type Inventory struct {
	Environment *scope.Env       `json:"environment" nullable:"true" doc:"The environment in the request; null: both." example:"production"`
	Total       int64            `json:"total" doc:"All resources."`
	Protected   int64            `json:"protected" doc:"Resources with an active control bound to them."`
	Classified  int64            `json:"classified" doc:"Resources with a data_classification."`
	AICount     int64            `json:"ai_count" doc:"Resources with a model: llm_endpoint, mcp_server, agent, rag_index."`
	ByKind      map[string]int64 `json:"by_kind" doc:"Number of each resource_kind; unknown where there is none."`
	ByLevel     map[string]int64 `json:"by_classification" doc:"Number with each data_classification; unset where there is none."`
	ByTag       map[string]int64 `json:"by_compliance_tag" doc:"Number with each compliance tag."`
	Attention   []Attention      `json:"needs_attention" doc:"At most 25 incomplete resources, those that lack most first."`
}

// Attention is a resource that somebody should review.
type Attention struct {
	ID          int64     `json:"id" doc:"Id of the resource"`
	Name        string    `json:"name" doc:"Display name."`
	Environment scope.Env `json:"environment" enum:"sandbox,production" doc:"Environment the resource belongs to."`
	Kind        string    `json:"resource_kind" doc:"Its resource_kind, or unknown." example:"unknown"`
	Level       string    `json:"data_classification" doc:"Its data_classification, or unset." example:"unset"`
	Reasons     []string  `json:"reasons" enum:"auto_discovered,no_resource_kind,no_data_classification,no_ai_provider,low_confidence,no_control" doc:"What is missing: it was discovered and nobody has classified it; it has no kind, classification or provider; the heuristic was not sure; no active control is bound to it."`
}

// tally is the number of resources with the same values.
type tally struct {
	Kind  string   `db:"resource_kind"`
	Level string   `db:"data_classification"`
	Tags  []string `db:"compliance_tags"`
	Count int64    `db:"n"`
}

// suspect is a row of the needs-attention table as stored.
type suspect struct {
	ID         int64     `db:"id"`
	Name       string    `db:"name"`
	Env        scope.Env `db:"environment"`
	Kind       string    `db:"resource_kind"`
	Level      string    `db:"data_classification"`
	Provider   string    `db:"ai_provider"`
	Source     string    `db:"classification_source"`
	Confidence *float64  `db:"classification_confidence"`
	Discovered bool      `db:"auto_discovered"`
	Protected  bool      `db:"protected"`
}

// Inventory sums up the resources of the scope's environment, or of both.
func (s *Service) Inventory(ctx context.Context, sc scope.Scope) (Inventory, error) {
	out := Inventory{ByKind: map[string]int64{}, ByLevel: map[string]int64{}, ByTag: map[string]int64{}, Attention: []Attention{}}
	envs := []scope.Env{scope.Production, scope.Sandbox}
	if sc.Env != scope.AnyEnv {
		out.Environment, envs = &sc.Env, []scope.Env{sc.Env}
	}
	err := s.read(ctx, sc, func(tx *db.Tx) error {
		var worst, open []suspect
		for _, env := range envs {
			w, o, err := out.selectSuspects(ctx, tx, env)
			if err != nil {
				return err
			}
			worst, open = append(worst, w...), append(open, o...)
		}
		slices.SortFunc(worst, func(a, b suspect) int {
			return cmp.Or(cmp.Compare(b.countMissing(), a.countMissing()), cmp.Compare(a.ID, b.ID))
		})
		slices.SortFunc(open, func(a, b suspect) int { return cmp.Compare(a.ID, b.ID) })
		for _, x := range append(worst, open...) {
			if len(out.Attention) < attention {
				out.Attention = append(out.Attention, x.attention())
			}
		}
		return nil
	})
	return out, err
}

// selectSuspects adds one environment to the sums. It returns rows for the needs-attention table:
// first resources that lack something else, then, if there is room, those that lack only
// a control.
func (i *Inventory) selectSuspects(ctx context.Context, tx *db.Tx, env scope.Env) (worst, open []suspect, err error) {
	rows, err := tallies(ctx, tx, env)
	if err != nil {
		return nil, nil, err
	}
	total, under := int64(0), int64(0)
	for _, t := range rows {
		i.add(t)
		total += t.Count
	}
	safe, err := countGuarded(ctx, tx, env)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range safe {
		under += p.Count
	}
	i.Protected += under
	worst, err = incomplete(ctx, tx, env, attention)
	if err == nil && len(worst) < attention && under < total {
		open, err = exposed(ctx, tx, env, safe, worst)
	}
	return worst, open, err
}

// exposed returns the first resources without a control that are not in had. It reads only
// parts with unguarded resources, and stops when the table is full; the caller cuts off the
// rest.
func exposed(ctx context.Context, tx *db.Tx, env scope.Env, safe []part, had []suspect) (out []suspect, err error) {
	parts, err := countParts(ctx, tx, env)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.N, b.N) })
	under, listed := map[int64]int64{}, map[int64]bool{}
	for _, p := range safe {
		under[p.N] = p.Count
	}
	for _, x := range had {
		listed[x.ID] = true
	}
	for _, p := range parts {
		if p.Count == under[p.N] {
			continue
		}
		if len(had)+len(out) >= attention {
			break
		}
		found, err := unprotected(ctx, tx, env, p.N*block, p.N*block+block-1, attention+len(had))
		if err != nil {
			return nil, err
		}
		for _, x := range found {
			if !listed[x.ID] {
				out = append(out, x)
			}
		}
	}
	return out, nil
}

func (i *Inventory) add(t tally) {
	i.Total += t.Count
	if classify.AI(t.Kind) {
		i.AICount += t.Count
	}
	if t.Level != "" {
		i.Classified += t.Count
	}
	i.ByKind[orDefault(t.Kind, unknownKind)] += t.Count
	i.ByLevel[orDefault(t.Level, unsetLevel)] += t.Count
	for _, tag := range t.Tags {
		i.ByTag[tag] += t.Count
	}
}

// countMissing is how many things the resource lacks, apart from a control.
func (x suspect) countMissing() int {
	n := 0
	for _, why := range x.attention().Reasons {
		if why != noControl {
			n++
		}
	}
	return n
}

func (x suspect) attention() Attention {
	a := Attention{ID: x.ID, Name: x.Name, Environment: x.Env, Kind: orDefault(x.Kind, unknownKind), Level: orDefault(x.Level, unsetLevel), Reasons: []string{}}
	for _, r := range []struct {
		name string
		on   bool
	}{
		{"auto_discovered", x.Discovered && (x.Source == "" || x.Source == classify.Heuristic)}, // no person has reviewed it
		{"no_resource_kind", x.Kind == ""},
		{"no_data_classification", x.Level == ""},
		{"no_ai_provider", (x.Kind == classify.LLMEndpoint || x.Kind == classify.Agent) && x.Provider == ""},
		{"low_confidence", x.Confidence != nil && *x.Confidence < classify.AssistThreshold && x.Source == classify.Heuristic},
		{noControl, !x.Protected},
	} {
		if r.on {
			a.Reasons = append(a.Reasons, r.name)
		}
	}
	return a
}

func orDefault(v, otherwise string) string {
	if v == "" {
		return otherwise
	}
	return v
}

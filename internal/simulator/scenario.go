package simulator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxScenarios limits the scenarios of one control, because they are listed without pages.
const maxScenarios = 500

// Scenarios returns the scenarios of one control in the scope, or of all controls for 0. Fault:
// NotFound for a control that does not exist.
func (s *Service) Scenarios(ctx context.Context, sc scope.Scope, policyID int64) ([]Scenario, error) {
	if policyID != 0 {
		if _, err := s.Policies.Get(ctx, sc, policyID); err != nil {
			return nil, err
		}
	}
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) ([]Scenario, error) { return listScenarios(ctx, tx, sc.Env, policyID) })
}

// Scenario returns one scenario in the scope.
func (s *Service) Scenario(ctx context.Context, sc scope.Scope, id int64) (Scenario, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Scenario, error) { return loadScenario(ctx, tx, sc, id) })
}

// CreateScenario stores an input for a control of the scope.
func (s *Service) CreateScenario(ctx context.Context, sc scope.Scope, d ScenarioDraft) (Scenario, error) {
	next := Scenario{PolicyID: d.PolicyID, Name: strings.TrimSpace(d.Name), Description: d.Description, Attributes: d.Attributes, CreatedBy: nameOf(sc.Actor)}
	if err := next.check(); err != nil {
		return Scenario{}, err
	}
	p, err := s.control(ctx, sc, d.PolicyID)
	if err != nil {
		return Scenario{}, err
	}
	err = s.write(ctx, sc, func(tx *db.Tx) error {
		n, err := countScenarios(ctx, tx, d.PolicyID)
		if err != nil {
			return err
		}
		if n >= maxScenarios {
			return fault.Newf(fault.BadRequest, "limit_exceeded", "a control may have at most %d scenarios", maxScenarios)
		}
		next.CreatedAt = s.Now()
		id, err := insertScenario(ctx, tx, next)
		if err != nil {
			return err
		}
		if next, err = loadScenario(ctx, tx, sc, id); err != nil {
			return err
		}
		return s.recordScenario(ctx, tx, sc, "CREATED", p.Environment, next)
	})
	return next, err
}

// UpdateScenario changes the members that were sent.
func (s *Service) UpdateScenario(ctx context.Context, sc scope.Scope, id int64, c ScenarioChange) (Scenario, error) {
	old, err := s.Scenario(ctx, sc, id)
	if err != nil {
		return Scenario{}, err
	}
	of := old.PolicyID
	if c.PolicyID != nil {
		of = *c.PolicyID
	}
	p, err := s.Policies.Get(ctx, sc, of)
	if err != nil {
		return Scenario{}, err
	}
	var next Scenario
	err = s.write(ctx, sc, func(tx *db.Tx) error {
		if next, err = loadScenario(ctx, tx, sc, id); err != nil {
			return err
		}
		next.PolicyID = of
		if c.Name != nil {
			next.Name = strings.TrimSpace(*c.Name)
		}
		c.Description.Apply(&next.Description)
		c.Attributes.Apply(&next.Attributes)
		if err := next.check(); err != nil {
			return err
		}
		if err := updateScenario(ctx, tx, next); err != nil {
			return err
		}
		if next, err = loadScenario(ctx, tx, sc, id); err != nil {
			return err
		}
		return s.recordScenario(ctx, tx, sc, "UPDATED", p.Environment, next)
	})
	return next, err
}

// DeleteScenario removes a scenario. Its runs stay in the history.
func (s *Service) DeleteScenario(ctx context.Context, sc scope.Scope, id int64) error {
	return s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := loadScenario(ctx, tx, sc, id)
		if err != nil {
			return err
		}
		if err := deleteScenario(ctx, tx, id); err != nil {
			return err
		}
		return s.recordScenario(ctx, tx, sc, "DELETED", sc.Env, old)
	})
}

func (s *Service) recordScenario(ctx context.Context, tx *db.Tx, sc scope.Scope, verb string, env scope.Env, of Scenario) error {
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
		Type: "SIMULATION_SCENARIO_" + verb, Object: "simulation_scenario", ObjectID: strconv.FormatInt(of.ID, 10), ObjectName: of.Name, Env: env,
		Changes: map[string]any{"policy_id": of.PolicyID, "name": of.Name, "attributes": slices.Sorted(maps.Keys(of.Attributes))},
	})
}

func loadScenario(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) (Scenario, error) {
	found, err := getScenario(ctx, tx, sc.Env, id)
	if errors.Is(err, db.ErrNoRows) {
		return Scenario{}, fault.NotFoundf("no such scenario")
	}
	if found.Attributes == nil {
		found.Attributes = map[string]any{}
	}
	return found, err
}

// check returns what is wrong with a scenario.
func (s Scenario) check() error {
	if s.Name == "" {
		return fault.Invalidf("/name", "the name is required")
	}
	_, err := expand(s.Attributes)
	return err
}

// expand makes an input from attributes: the key user.role becomes the member role of user.
func expand(attributes map[string]any) (value.Value, error) {
	input := value.Object()
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		v, err := value.FromAny(attributes[key])
		if err != nil {
			return input, fault.Invalidf("/attributes/"+key, "the value cannot be read")
		}
		path := strings.Split(key, ".")
		if slices.Contains(path, "") || len(path) > 32 {
			return input, fault.Invalidf("/attributes/"+key, "an attribute's key must be a path such as user.role")
		}
		var ok bool
		if input, ok = place(input, path, v); !ok {
			return input, fault.Invalidf("/attributes/"+key, "another attribute sets a part of this path to a value that is not an object")
		}
	}
	return input, nil
}

// place sets v at a path, and adds missing objects on the way. It returns false if the path leads
// through a value that is not an object, or ends at an existing value.
func place(in value.Value, path []string, v value.Value) (value.Value, bool) {
	switch {
	case len(path) == 0:
		if !in.Defined() {
			return v, true
		}
		return in, false
	case !in.Defined():
		in = value.Object()
	case in.Kind() != value.ObjectKind:
		return in, false
	}
	inner, ok := place(in.Get(path[0]), path[1:], v)
	if !ok {
		return in, false
	}
	return in.With(path[0], inner), true
}

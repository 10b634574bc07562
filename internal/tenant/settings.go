package tenant

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// The kinds of object that a tenant's settings limit.
const (
	Policies = "policies"
	Users    = "users"
	Bouncers = "bouncers"
)

// kinds lists them in the order of the specification.
func kinds() []string { return []string{Policies, Users, Bouncers} }

// FourEyesSetting is the switch that has somebody else approve a promotion.
const FourEyesSetting = "four_eyes"

// Settings is the open object `settings` of a tenant: max_policies, max_users,
// max_bouncers, four_eyes, and whatever else its owner keeps there.
type Settings map[string]any

func limitNames() []string { return []string{"max_policies", "max_users", "max_bouncers"} }

// Limit is how many objects of a kind the tenant may have; false: as many as it likes.
func (s Settings) Limit(kind string) (int64, bool) { return whole(s["max_"+kind]) }

// FourEyes reports whether a promotion needs an approver other than the caller.
func (s Settings) FourEyes() bool { on, _ := s[FourEyesSetting].(bool); return on }

// merge sets the members of change, and removes those that are null there.
func (s Settings) merge(change Settings) Settings {
	out := maps.Clone(s)
	if out == nil {
		out = Settings{}
	}
	for name, v := range change {
		if v == nil {
			delete(out, name)
			continue
		}
		out[name] = v
	}
	return out
}

// same reports whether both have the same value under name; 1 and 1.0 are one.
func (s Settings) same(o Settings, name string) bool {
	a, aok := whole(s[name])
	b, bok := whole(o[name])
	if aok || bok {
		return aok == bok && a == b
	}
	return reflect.DeepEqual(s[name], o[name])
}

// check refuses values that the typed members cannot have, all of them at once,
// and settings that are too big to be any.
func (s Settings) check() error {
	const pointer = "/settings"
	var bad []fault.Detail
	for _, name := range limitNames() {
		if v, sent := s[name]; sent {
			if n, ok := whole(v); !ok || n < 0 {
				bad = append(bad, fault.Detail{Pointer: pointer + "/" + name, Message: "must be a whole number of at least 0"})
			}
		}
	}
	if v, sent := s[FourEyesSetting]; sent {
		if _, ok := v.(bool); !ok {
			bad = append(bad, fault.Detail{Pointer: pointer + "/" + FourEyesSetting, Message: "must be true or false"})
		}
	}
	if raw, err := json.Marshal(s); err != nil || len(raw) > 64<<10 {
		bad = append(bad, fault.Detail{Pointer: pointer, Message: "must be at most 64 KiB of JSON"})
	}
	if len(bad) == 0 {
		return nil
	}
	f := fault.New(fault.Invalid, "validation_failed", fmt.Sprintf("%s %s", bad[0].Pointer, bad[0].Message))
	f.Details = bad
	return f
}

// whole reads a JSON number without a fraction.
func whole(v any) (int64, bool) {
	switch n := v.(type) {
	case int:
		return int64(n), true
	case int64:
		return n, true
	case float64:
		if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
			return int64(n), true
		}
	case json.Number:
		i, err := n.Int64()
		return i, err == nil
	}
	return 0, false
}

// Schema tells the document about the members that are known; the object is open.
func (Settings) Schema(huma.Registry) *huma.Schema {
	zero := 0.0
	limit := func(what string) *huma.Schema {
		return &huma.Schema{
			Type: huma.TypeInteger, Format: "int64", Minimum: &zero, Nullable: true,
			Description: "How many " + what + " the tenant may have; absent: no limit.",
		}
	}
	s := &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true,
		Properties: map[string]*huma.Schema{
			"max_policies": limit("controls"), "max_users": limit("people"), "max_bouncers": limit("bouncers"),
			FourEyesSetting: {Type: huma.TypeBoolean, Nullable: true, Description: "A promotion needs an approver other than the caller."},
		},
	}
	for _, p := range s.Properties {
		p.PrecomputeMessages()
	}
	return s
}

package tenant

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// The kinds of object that a tenant's settings limit.
const (
	Policies = "policies"
	Users    = "users"
	Bouncers = "bouncers"
)

// kinds lists them in the order of the API.
func kinds() []string { return []string{Policies, Users, Bouncers} }

// FourEyesSetting is the name of the setting that requires a second person to approve a promotion.
const FourEyesSetting = "four_eyes"

// FactorSetting is the name of the setting that requires a second factor of people who sign in with
// a password.
const FactorSetting = "require_second_factor"

// AssistSetting is the name of the flag that lets classification use a model.
const AssistSetting = "flags.resources.assist_classification"

// Settings of the gate that replays recorded decisions before a promotion.
const (
	ImpactGateSetting      = "impact_gate"
	ImpactThresholdSetting = "impact_gate_threshold_percent"
	ImpactWindowSetting    = "impact_gate_window_hours"
)

// ReplaySetting is the name of the setting for stored inputs of decisions.
const ReplaySetting = "replay"

// AccessLifeSetting is the name of the setting for how many hours a request for access waits for a
// decision.
const AccessLifeSetting = "access_request_hours"

// The default and the largest value of AccessLifeSetting, in hours: a week and 90 days.
const (
	defaultAccessLife = 168
	maxAccessLife     = 2160
)

// AnomaliesSetting is the name of the setting for the factor from which a deviation is an anomaly.
const AnomaliesSetting = "anomalies"

// The limits and the default of the anomaly setting.
const (
	leastAnomaly   = 2
	mostAnomaly    = 20
	defaultAnomaly = 3
)

// The modes of the impact gate.
const (
	ImpactOff   = "off"
	ImpactWarn  = "warn"
	ImpactBlock = "block"
)

// The default and the largest window of the impact gate, in hours: a week and a year.
const (
	defaultImpactWindow = 168
	maxImpactWindow     = 8760
)

// ImpactGate holds the settings of the impact gate: the mode (off by default), the largest accepted
// share of newly blocked decisions in percent, and how many hours of decisions are replayed.
type ImpactGate struct {
	Mode        string
	Threshold   float64
	WindowHours int
}

// Settings is the object `settings` of a tenant. Its members are those that Schema declares, and
// any that begin with fault.FreePrefix. Unknown members that were stored by an earlier version stay
// readable.
type Settings map[string]any

func limitNames() []string { return []string{"max_policies", "max_users", "max_bouncers"} }

// Limit returns how many objects of a kind the tenant may have; false: there is no limit.
func (s Settings) Limit(kind string) (int64, bool) { return wholeNumber(s["max_"+kind]) }

// FourEyes reports whether a promotion needs an approver other than the caller.
func (s Settings) FourEyes() bool { on, _ := s[FourEyesSetting].(bool); return on }

// RequireFactor reports whether people who sign in with a password need a second factor.
func (s Settings) RequireFactor() bool { on, _ := s[FactorSetting].(bool); return on }

// ImpactGate reads the gate's settings.
func (s Settings) ImpactGate() ImpactGate {
	g := ImpactGate{Mode: ImpactOff, WindowHours: defaultImpactWindow}
	if mode, ok := s[ImpactGateSetting].(string); ok {
		g.Mode = mode
	}
	g.Threshold, _ = number(s[ImpactThresholdSetting])
	if hours, ok := wholeNumber(s[ImpactWindowSetting]); ok {
		g.WindowHours = int(hours)
	}
	return g
}

// AccessRequestLife returns how long a request for access waits for a decision.
func (s Settings) AccessRequestLife() time.Duration {
	hours, ok := wholeNumber(s[AccessLifeSetting])
	if !ok {
		hours = defaultAccessLife
	}
	return time.Duration(hours) * time.Hour
}

// AnomalyFactor returns the factor from which a deviation from the usual is an anomaly; false:
// detection is off.
func (s Settings) AnomalyFactor() (float64, bool) {
	if s[AnomaliesSetting] == "off" {
		return 0, false
	}
	if n, ok := number(s[AnomaliesSetting]); ok {
		return n, true
	}
	return defaultAnomaly, true
}

// checkAnomalies reports errors in the anomaly setting.
func (s Settings) checkAnomalies(wrong func(name, message string)) {
	v, sent := s[AnomaliesSetting]
	if !sent || v == "off" {
		return
	}
	if n, ok := number(v); !ok || n < leastAnomaly || n > mostAnomaly {
		wrong(AnomaliesSetting, fmt.Sprintf(`must be "off" or a number from %d to %d`, leastAnomaly, mostAnomaly))
	}
}

// checkImpact reports errors in the settings of the impact gate.
func (s Settings) checkImpact(wrong func(name, message string)) {
	if v, sent := s[ImpactGateSetting]; sent && v != ImpactOff && v != ImpactWarn && v != ImpactBlock {
		wrong(ImpactGateSetting, "must be off, warn or block")
	}
	if v, sent := s[ImpactThresholdSetting]; sent {
		if n, ok := number(v); !ok || n < 0 || n > 100 {
			wrong(ImpactThresholdSetting, "must be a number from 0 to 100")
		}
	}
	if v, sent := s[ImpactWindowSetting]; sent {
		if n, ok := wholeNumber(v); !ok || n < 1 || n > maxImpactWindow {
			wrong(ImpactWindowSetting, fmt.Sprintf("must be a whole number from 1 to %d", maxImpactWindow))
		}
	}
}

// maxReplayHours is how long inputs may be stored for replay. The audit stores its entries longer
// at every level.
const maxReplayHours = 720

// Replay reads the setting for stored inputs of decisions: "off", a number of hours, or an object
// with hours, decisions and size_mib.
func (s Settings) Replay() audit.Kept {
	k := audit.Kept{For: audit.KeptFor, Rows: audit.KeptRows, Bytes: audit.KeptBytes}
	switch v := s[ReplaySetting].(type) {
	case string:
		k.Off = v == "off"
	case map[string]any:
		if n, ok := wholeNumber(v["hours"]); ok {
			k.For = time.Duration(n) * time.Hour
		}
		if n, ok := wholeNumber(v["decisions"]); ok {
			k.Rows = n
		}
		if n, ok := wholeNumber(v["size_mib"]); ok {
			k.Bytes = n << 20
		}
	default:
		if n, ok := wholeNumber(v); ok {
			k.For = time.Duration(n) * time.Hour
		}
	}
	return k
}

// replayBounds returns the members of the setting replay as an object, with their largest values.
func replayBounds() map[string]int64 {
	return map[string]int64{"hours": maxReplayHours, "decisions": audit.KeptRows, "size_mib": audit.KeptBytes >> 20}
}

// checkReplay reports errors in the setting replay.
func (s Settings) checkReplay(wrong func(name, message string)) {
	bounded := func(name string, v any, most int64) {
		if n, ok := wholeNumber(v); !ok || n < 1 || n > most {
			wrong(name, fmt.Sprintf("must be a whole number from 1 to %d", most))
		}
	}
	switch v := s[ReplaySetting].(type) {
	case nil:
	case string:
		if v != "off" {
			wrong(ReplaySetting, `must be "off", a number of hours, or an object with hours, decisions and size_mib`)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if most, known := replayBounds()[name]; known {
				bounded(ReplaySetting+"/"+name, v[name], most)
			}
		}
	default:
		bounded(ReplaySetting, v, maxReplayHours)
	}
}

// merge sets the members of change, and removes those that are null in change.
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

// same reports whether both have the same value for a name; 1 and 1.0 are equal.
func (s Settings) same(o Settings, name string) bool {
	a, aok := wholeNumber(s[name])
	b, bok := wholeNumber(o[name])
	if aok || bok {
		return aok == bok && a == b
	}
	return reflect.DeepEqual(s[name], o[name])
}

// unknown returns the unknown members, also those of replay, except those that stored has with the
// same value.
func (s Settings) unknown(stored Settings) []fault.Detail {
	known := slices.Collect(maps.Keys(s.Schema(nil).Properties))
	replay, _ := s[ReplaySetting].(map[string]any)
	storedReplay, _ := stored[ReplaySetting].(map[string]any)
	return append(fault.UnknownMembers("/settings", s, stored, known),
		fault.UnknownMembers("/settings/"+ReplaySetting, replay, storedReplay, slices.Collect(maps.Keys(replayBounds())))...)
}

// check refuses invalid values, unknown members that are not already stored, and settings that are
// too large. It reports all errors at once.
func (s Settings) check(stored Settings) error {
	const pointer = "/settings"
	var bad []fault.Detail
	for _, name := range limitNames() {
		if v, sent := s[name]; sent {
			if n, ok := wholeNumber(v); !ok || n < 0 {
				bad = append(bad, fault.Detail{Pointer: pointer + "/" + name, Message: "must be a whole number of at least 0"})
			}
		}
	}
	for _, name := range []string{FourEyesSetting, AssistSetting, FactorSetting} {
		if v, sent := s[name]; sent {
			if _, ok := v.(bool); !ok {
				bad = append(bad, fault.Detail{Pointer: pointer + "/" + name, Message: "must be true or false"})
			}
		}
	}
	wrong := func(name, message string) {
		bad = append(bad, fault.Detail{Pointer: pointer + "/" + name, Message: message})
	}
	s.checkImpact(wrong)
	s.checkReplay(wrong)
	s.checkAnomalies(wrong)
	if v, sent := s[AccessLifeSetting]; sent {
		if n, ok := wholeNumber(v); !ok || n < 1 || n > maxAccessLife {
			wrong(AccessLifeSetting, fmt.Sprintf("must be a whole number from 1 to %d", maxAccessLife))
		}
	}
	bad = append(bad, s.unknown(stored)...)
	if raw, err := json.Marshal(s); err != nil || len(raw) > 64<<10 {
		bad = append(bad, fault.Detail{Pointer: pointer, Message: "must be at most 64 KiB of JSON"})
	}
	if len(bad) == 0 {
		return nil
	}
	return fault.CheckValues(fmt.Sprintf("%s %s", bad[0].Pointer, bad[0].Message), bad)
}

// number reads a JSON number.
func number(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	}
	i, ok := wholeNumber(v)
	return float64(i), ok
}

// wholeNumber reads a JSON number without a fraction.
func wholeNumber(v any) (int64, bool) {
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

// Schema declares the known members. The object is open in the document, for members that begin
// with x- and for those that are already stored; check refuses others.
func (Settings) Schema(huma.Registry) *huma.Schema {
	zero, one, hundred, year, quarter := 0.0, 1.0, 100.0, float64(maxImpactWindow), float64(maxAccessLife)
	limit := func(what string) *huma.Schema {
		return &huma.Schema{
			Type: huma.TypeInteger, Format: "int64", Minimum: &zero, Nullable: true,
			Description: "Largest number of " + what + "; absent: no limit.",
		}
	}
	s := &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true,
		Properties: map[string]*huma.Schema{
			"max_policies": limit("controls"), "max_users": limit("people"), "max_bouncers": limit("bouncers"),
			AssistSetting:   {Type: huma.TypeBoolean, Nullable: true, Description: "Classification may ask the server's configured model when its own rules are not sure."},
			FourEyesSetting: {Type: huma.TypeBoolean, Nullable: true, Description: "A promotion needs an approver other than the caller."},
			FactorSetting:   {Type: huma.TypeBoolean, Nullable: true, Description: "People who sign in with a password need a second factor. Whoever has none can only enrol one. Sign-ins at the identity provider and API keys do not need it."},
			ImpactGateSetting: {
				Type: huma.TypeString, Nullable: true, Enum: []any{ImpactOff, ImpactWarn, ImpactBlock},
				Description: "Whether a promotion first replays production's recorded decisions. off (default): no. warn: the figures are in the answer. block: the promotion is refused above the threshold.",
			},
			ImpactThresholdSetting: {
				Type: huma.TypeNumber, Format: "double", Minimum: &zero, Maximum: &hundred, Nullable: true,
				Description: "Largest share of the replayed decisions that a promotion may newly block, in percent; absent: none.",
			},
			ImpactWindowSetting: {
				Type: huma.TypeInteger, Format: "int64", Minimum: &one, Maximum: &year, Nullable: true,
				Description: "How many hours of decisions are replayed before a promotion; absent: 168.",
			},
			AccessLifeSetting: {
				Type: huma.TypeInteger, Format: "int64", Minimum: &one, Maximum: &quarter, Nullable: true,
				Description: "After how many hours a request for access that nobody decided lapses; absent: 168, a week. It holds for requests that are filed from then on.",
			},
			AnomaliesSetting: {
				Description: "How many times the usual value is an anomaly: off, or a number from 2 to 20; absent: 3.",
			},
			ReplaySetting: {
				Description: "How long inputs of decisions are stored for replay, apart from the audit: off; a number of hours (1 to 720); or an object with hours, decisions (at most 100000) and size_mib (at most 256). Absent: 24 hours, and at most 100000 decisions or 256 MiB. Resources at audit level none store nothing.",
			},
		},
	}
	for _, p := range s.Properties {
		p.PrecomputeMessages()
	}
	return s
}

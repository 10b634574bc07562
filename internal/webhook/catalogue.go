package webhook

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// EventActor is who caused an event.
type EventActor struct {
	Kind string `json:"kind" enum:"user,api_key,bouncer,vendor,system" doc:"Cause."`
	ID   string `json:"id" doc:"Id of the user, key or bouncer."`
	Name string `json:"name" doc:"Its name."`
}

// The data of events. Further members describe what changed.
type (
	// PolicyData is the data of policy.* events.
	PolicyData struct {
		_           struct{}   `additionalProperties:"true"`
		PolicyID    int64      `json:"policy_id" doc:"The policy."`
		PolicyName  string     `json:"policy_name" doc:"Its name."`
		Environment string     `json:"environment" enum:"sandbox,production" doc:"Where it is."`
		Actor       EventActor `json:"actor" doc:"Who caused it."`
		Version     int64      `json:"version" doc:"Its version after the change."`
	}
	// PolicyDeployedData is the data of policy.deployed.
	PolicyDeployedData struct {
		_           struct{}   `additionalProperties:"true"`
		PolicyID    int64      `json:"policy_id" doc:"The policy."`
		PolicyName  string     `json:"policy_name" doc:"Its name."`
		Environment string     `json:"environment" enum:"sandbox,production" doc:"Where it is."`
		Actor       EventActor `json:"actor" doc:"Who caused it."`
		DeployedBy  string     `json:"deployed_by" doc:"Name of the person or key that activated it."`
		Version     int64      `json:"version" doc:"Its version after the change."`
	}
	// ResourceData is the data of resource.* events.
	ResourceData struct {
		_            struct{}   `additionalProperties:"true"`
		ResourceID   int64      `json:"resource_id" doc:"The resource."`
		ResourceName string     `json:"resource_name" doc:"Its name."`
		Environment  string     `json:"environment" enum:"sandbox,production" doc:"Where it is."`
		Actor        EventActor `json:"actor" doc:"Who caused it."`
	}
	// UserData is the data of user.* events.
	UserData struct {
		_        struct{}   `additionalProperties:"true"`
		UserID   string     `json:"user_id" doc:"The user."`
		UserName string     `json:"user_name" doc:"Its username."`
		Actor    EventActor `json:"actor" doc:"Who caused it."`
	}
	// AnomalyData is the data of decision.* events.
	AnomalyData struct {
		_           struct{}       `additionalProperties:"true"`
		AnomalyID   int64          `json:"anomaly_id" doc:"The anomaly; GET /dashboard/anomalies lists it."`
		AnomalyName string         `json:"anomaly_name" doc:"Kind of anomaly, such as denial_spike."`
		Environment string         `json:"environment" enum:"sandbox,production" doc:"Where it is."`
		Actor       EventActor     `json:"actor" doc:"Who caused it."`
		Subject     string         `json:"subject" doc:"The user, resource or address that it concerns; empty: the whole environment."`
		Evidence    map[string]any `json:"evidence" doc:"Evidence: summary, measured, usual, threshold, unit and more."`
	}
	// BouncerData is the data of bouncer.* events.
	BouncerData struct {
		_           struct{}   `additionalProperties:"true"`
		BouncerID   int64      `json:"bouncer_id" doc:"The bouncer."`
		BouncerName string     `json:"bouncer_name" doc:"Its name."`
		Environment string     `json:"environment" enum:"sandbox,production" doc:"Where it is."`
		Actor       EventActor `json:"actor" doc:"Who caused it."`
		Reason      string     `json:"reason,omitempty" doc:"Reason, if something failed."`
	}
	// SyncData is the data of policy-bridge.* events.
	SyncData struct {
		_           struct{}   `additionalProperties:"true"`
		BouncerID   int64      `json:"bouncer_id" doc:"The bouncer."`
		BouncerName string     `json:"bouncer_name" doc:"Its name."`
		Environment string     `json:"environment" enum:"sandbox,production" doc:"Where it is."`
		Actor       EventActor `json:"actor" doc:"Who caused it."`
		Revision    int64      `json:"revision" doc:"Revision of its bundle."`
		Reason      string     `json:"reason,omitempty" doc:"Reason, if something failed."`
	}
)

// EventType is one type of event.
type EventType struct {
	Type        string         `json:"type" doc:"The subscription." example:"policy.deployed"`
	Description string         `json:"description" doc:"When it happens."`
	DataSchema  map[string]any `json:"data_schema" doc:"JSON Schema of the member data."`
	Example     Payload        `json:"example" doc:"A body without its signature."`

	// Data is the type of the member data, for the API document.
	Data reflect.Type `json:"-"`
}

// Catalogue returns all event types, in the order of the specification.
func Catalogue() []EventType {
	actor := EventActor{"user", "u-1", "alice"}
	policy := PolicyData{PolicyID: 7, PolicyName: "payments", Environment: "sandbox", Actor: actor, Version: 3}
	resource := ResourceData{ResourceID: 4, ResourceName: "payments API", Environment: "sandbox", Actor: actor}
	user := UserData{UserID: "u-2", UserName: "bob", Actor: actor}
	detectors := EventActor{"system", "anomalies", "anomalies"}
	bridge := EventActor{"bouncer", "2", "edge-1"}
	bouncer := BouncerData{BouncerID: 2, BouncerName: "edge-1", Environment: "production", Actor: bridge}
	sync := SyncData{BouncerID: 2, BouncerName: "edge-1", Environment: "production", Actor: bridge, Revision: 12}
	gone, refused := bouncer, sync
	gone.Reason, refused.Reason = "not seen since", "refused the bundle"
	anomaly := AnomalyData{
		AnomalyID: 5, AnomalyName: "denial_spike", Environment: "production", Actor: detectors,
		Evidence: map[string]any{"summary": "40 % of the decisions are denials", "measured": 40, "usual": 3, "threshold": 9, "unit": "percent"},
	}
	suspicious := anomaly
	suspicious.AnomalyName, suspicious.Subject = "suspicious_source_ip", "203.0.113.9"
	suspicious.Evidence = map[string]any{"summary": "One address is denied repeatedly", "measured": 60, "usual": 1, "threshold": 20, "unit": "decisions"}
	list := []struct {
		name, when string
		data       any
	}{
		{event.PolicyCreated, "A policy was created.", policy},
		{event.PolicyUpdated, "A policy was changed or restored.", policy},
		{event.PolicyDeleted, "A policy was deleted; it may be restorable.", policy},
		{event.PolicyDeployed, "A policy became active.", PolicyDeployedData{PolicyID: 7, PolicyName: "payments", Environment: "sandbox", Actor: actor, DeployedBy: "alice", Version: 3}},
		{event.PolicyPromoted, "A policy was promoted to production.", policy},
		{event.ResourceCreated, "A resource was registered, by a person or on first traffic.", resource},
		{event.ResourceUpdated, "A resource was changed, enriched or classified.", resource},
		{event.ResourceDeleted, "A resource was deleted.", resource},
		{event.UserCreated, "A user was created.", user},
		{event.UserUpdated, "A user was changed.", user},
		{event.UserDeleted, "A user was deleted.", user},
		{event.UserRoleChanged, "The roles of a user were changed.", user},
		{event.HighDenyRate, "Far more decisions than usual are denied.", anomaly},
		{event.Suspicious, "An anomaly detector found something other than a high share of denials.", suspicious},
		{event.BouncerConnected, "A bouncer connected to the bridge.", bouncer},
		{event.BouncerGone, "A bouncer has been silent for too long.", gone},
		{event.SyncCompleted, "A bouncer runs the newest bundle.", sync},
		{event.SyncFailed, "A bouncer refused a bundle.", refused},
	}
	out := make([]EventType, len(list))
	at := time.Date(2026, 1, 15, 9, 30, 0, 0, time.UTC)
	for i, e := range list {
		t := reflect.TypeOf(e.data)
		out[i] = EventType{
			Type: e.name, Description: e.when, DataSchema: schemaOf(t), Data: t,
			Example: Payload{EventID: "evt_0123456789abcdef0123456789abcdef", EventType: e.name, Timestamp: at, Data: membersOf(e.data)},
		}
	}
	return out
}

// schemaOf returns the JSON Schema of one of the types above.
func schemaOf(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		if options == "" {
			required = append(required, name)
		}
		p := map[string]any{}
		switch f.Type.Kind() {
		case reflect.Int64:
			p["type"] = "integer"
		case reflect.Struct:
			p = schemaOf(f.Type)
		case reflect.Map:
			p["type"] = "object"
		default:
			p["type"] = "string"
		}
		p["description"] = f.Tag.Get("doc")
		if enum := f.Tag.Get("enum"); enum != "" {
			p["enum"] = strings.Split(enum, ",")
		}
		properties[name] = p
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// membersOf converts a value of one of the types above to its JSON members.
func membersOf(data any) map[string]any {
	out := map[string]any{}
	text, err := json.Marshal(data)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return nil // these types always encode
	}
	return out
}

// TestSend is the input of Test.
type TestSend struct {
	EventType string `json:"event_type,omitempty" maxLength:"100" doc:"Type of the event to send; absent: the first that the webhook subscribes to."`
}

// Test sends an example event and returns the receiver's answer. It makes one attempt, even if the
// subscription is disabled.
func (s *Service) Test(ctx context.Context, sc scope.Scope, id int64, t TestSend) (TestResult, error) {
	w, err := s.Get(ctx, sc, id)
	if err != nil {
		return TestResult{}, err
	}
	if t.EventType == "" {
		t.EventType = w.Events[0]
	}
	var example Payload
	for _, e := range Catalogue() {
		if e.Type == t.EventType {
			example = e.Example
		}
	}
	if example.EventType == "" {
		return TestResult{}, fault.Invalidf("/event_type", "no such event type; GET /webhooks/event-types lists them")
	}
	random := make([]byte, 16)
	if _, err := io.ReadFull(s.Random, random); err != nil {
		return TestResult{}, fault.Wrap(err, "generate an id")
	}
	example.Data["test"] = true
	data, err := json.Marshal(example.Data)
	if err != nil {
		return TestResult{}, fault.Wrap(err, "an example")
	}
	secrets, err := s.secrets(sc.Tenant, w)
	if err != nil {
		return TestResult{}, fault.Wrap(secret.AskAgain(err, ""), "open the secret")
	}
	now := s.Now()
	p := payload{"evt_" + hex.EncodeToString(random), t.EventType, db.Stamp(now), data}
	a, _ := s.post(ctx, w.URL, secrets, p, now)
	state := Dead
	if a.ok() {
		state = Delivered
	}
	out := TestResult{
		Delivered: a.ok(), EventID: p.EventID, EventType: p.EventType, ResponseStatus: a.ResponseStatus, DurationMS: a.DurationMS, Error: a.Error,
	}
	err = s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		if _, err := load(ctx, tx, id); err != nil {
			return err // deleted meanwhile
		}
		if err := insertPayload(ctx, tx, p); err != nil {
			return err
		}
		if out.DeliveryID, err = insertTested(ctx, tx, id, p, a, state); err != nil {
			return err
		}
		if a.ok() { // a receiver that was away can be reached again
			if err := wake(ctx, tx, id); err != nil {
				return err
			}
		}
		return audit.Append(ctx, tx, sc, s.Now(), w.entry("WEBHOOK_TESTED", map[string]any{"event_type": p.EventType, "delivered": a.ok()}))
	})
	return out, err
}

package decision_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

const abac = `package abac

roles := {"admin": {"read", "write"}, "engineer": {"read", "write"}, "analyst": {"read"}}

default allow := false

allow if {
	some role in input.user.roles
	input.action.name in roles[role]
	input.user.department == input.resource.attributes.department
	input.user.attributes.clearance >= input.resource.attributes.sensitivity
	net.cidr_contains("10.0.0.0/8", input.context.ip_address)
}

reason := "not permitted" if not allow
`

// BenchmarkEvaluate measures one decision from the text of the request to the record and the text of
// the answer, without HTTP and disk. Those with replay in their name also write the record, as the
// audit does, and store each input for replay or none. A server stores a limited number a second.
func BenchmarkEvaluate(b *testing.B) {
	for name, env := range map[string]scope.Env{"cache=false": scope.Production, "cache=true": scope.Production, "cache=true,env=none": scope.AnyEnv} {
		b.Run(name, func(b *testing.B) { evaluateEach(b, service(name != "cache=false"), env) })
	}
	for _, cached := range []bool{false, true} {
		for _, replay := range []string{"off", "on"} {
			b.Run(fmt.Sprintf("cache=%v,replay=%s", cached, replay), func(b *testing.B) {
				s := service(cached)
				s.Record = auditLog(b, s).Record
				s.KeepsInput = func(scope.TenantID, time.Time) bool { return replay == "on" }
				evaluateEach(b, s, scope.Production)
			})
		}
	}
}

func evaluateEach(b *testing.B, s *decision.Service, env scope.Env) {
	b.Helper()
	sc := scope.Scope{Tenant: "default", Env: env}
	bodies := make([][]byte, 1000)
	for i := range bodies {
		bodies[i] = fmt.Appendf(nil, `{"user":{"id":"u%d","email":"u%d@x.example","roles":["guest","engineer"],"department":"legal","attributes":{"clearance":%d,"manager":"u1"}},
"resource":{"id":1,"type":"api","path":"/records/1"},"action":{"name":"read","method":"GET"},"context":{"ip_address":"10.1.2.%d","timestamp":"2026-11-20T10:15:00Z","request_id":"req-%d"}}`, i, i, i%5, i%250, i)
	}
	var out []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		v, err := value.Decode(bodies[i%len(bodies)], value.Limits{})
		errtest.Must(b, err)
		r, err := s.Evaluate(context.Background(), sc, v)
		errtest.Must(b, err)
		out = r.AppendJSON(out[:0])
	}
}

// auditLog is an audit log that writes its spool and ships nothing.
func auditLog(b *testing.B, s *decision.Service) *audit.DecisionLog {
	b.Helper()
	log, err := spool.Open(spool.Config{Dir: b.TempDir(), Sync: spool.SyncNever})
	errtest.Must(b, err)
	b.Cleanup(func() { log.Close() })
	return audit.NewDecisionLog(audit.Config{Spool: log, Now: s.Now, Logger: slog.Default(), Alarm: func(scope.TenantID, error) {}})
}

func service(cached bool) *decision.Service {
	now := func() time.Time { return time.Now().UTC() }
	doc, _ := value.FromAny(map[string]any{"id": 1, "attributes": map[string]any{"department": "legal", "sensitivity": 2}})
	s := &decision.Service{
		Snapshots: &decision.Snapshots{
			Load: func(context.Context, scope.TenantID, scope.Env) (decision.Source, error) {
				return decision.Source{
					Revision: 1, Controls: []decision.ControlText{{Meta: rego.Meta{ID: 1, Name: "abac", Version: 1}, Source: abac}},
					Resources: []target.Resource{{ID: 1, Name: "records", Type: "api", Path: "/records/*", Doc: doc}},
				}, nil
			},
			Now: now, Idle: time.Hour,
		},
		Person:    func(context.Context, scope.TenantID, string) (value.Value, error) { return value.Value{}, nil },
		Record:    func(scope.TenantID, *audit.Decision) error { return nil },
		RecordAll: func(scope.TenantID, []audit.Decision) error { return nil },
		Tally:     func(scope.TenantID, int64) *rego.Tally { return new(rego.Tally) },
		Now:       now, NewID: func() string { return "01a1fbff-30f1-7efa-a96b-6862b2010610" }, Deadline: time.Second,
		Share: decision.NewProcessorShare(runtime.GOMAXPROCS(0), now),
	}
	if cached {
		s.Cache = rego.NewCache(64 << 20)
	}
	return s
}

// BenchmarkBulk measures one bulk call of 100 from its text to the text of the answer, with the encoding
// of the audit, without HTTP and disk.
func BenchmarkBulk(b *testing.B) {
	s := service(false)
	sc := scope.Scope{Tenant: "default", Env: scope.Production}
	var body []byte
	body = append(body, `{"decisions":[`...)
	for i := range 100 {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"decision_id":"b-%d","user":{"id":"u%d","email":"u%d@x.example","roles":["guest","engineer"],"department":"legal","attributes":{"clearance":%d,"manager":"u1"}},
"resource":{"id":1,"type":"api","path":"/records/1"},"action":{"name":"read","method":"GET"},"context":{"ip_address":"10.1.2.%d","timestamp":"2026-11-20T10:15:00Z","request_id":"req-%d"}}`, i, i, i, i%5, i%250, i)
	}
	body = append(body, "]}"...)
	s.RecordAll = auditLog(b, s).RecordAll
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		r, err := s.EvaluateBulk(context.Background(), sc, func() ([]value.Value, error) {
			v, err := value.Decode(body, value.Limits{})
			return v.Get("decisions").Elems(), err
		})
		errtest.Must(b, err)
		out = r.AppendJSON(out[:0])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/decision")
}

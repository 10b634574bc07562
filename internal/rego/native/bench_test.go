package native

import (
	"context"
	"fmt"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// abac is the control of the benchmarks: five roles, department, clearance, networks, hours, and a
// lookup of the resource.
const abac = `package example.abac

default allow := false

permissions := {
	"admin": {"read", "write", "delete", "share", "audit"},
	"editor": {"read", "write", "share"},
	"analyst": {"read"},
	"auditor": {"read", "audit"},
	"viewer": {"read"},
}

networks := ["10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12"]

resource := data.resources[input.resource.id]

allow if {
	role_permits
	same_department
	cleared
	trusted_network
	working_hours
}

role_permits if {
	some role in input.user.roles
	input.action.name in permissions[role]
}

same_department if input.user.department == resource.department

same_department if "admin" in input.user.roles

cleared if input.user.clearance >= resource.sensitivity

trusted_network if {
	some network in networks
	net.cidr_contains(network, input.context.ip)
}

working_hours if {
	input.context.hour >= 7
	input.context.hour < 20
}

reason := "role does not permit the action" if not role_permits
else := "another department" if not same_department
else := "clearance too low" if not cleared
else := "untrusted network" if not trusted_network
else := "outside of working hours" if not working_hours
else := "permitted"
`

const abacRequest = `{"user":{"id":"u-1042","department":"finance","roles":["viewer","analyst"],"clearance":3,"email":"ann@corp.example","mfa":true},
"action":{"name":"read","method":"GET"},"resource":{"id":"r-5531","type":"document","path":"/finance/q3","owner":"u-77"},
"context":{"ip":"10.1.22.33","time":"2026-03-04T10:11:12Z","hour":10,"device":{"managed":true,"os":"linux"},"session":"s-99120"},"request_id":"01J9ZK3T5M8Q"}`

func abacData() value.Value {
	departments := []string{"finance", "sales", "legal", "engineering"}
	members := make([]value.Member, 10_000)
	for i := range members {
		members[i] = value.Member{Key: fmt.Sprintf("r-%d", i), Value: value.Object(
			value.Member{Key: "department", Value: value.String(departments[(i+1)%4])},
			value.Member{Key: "sensitivity", Value: value.Int(int64(i % 5))},
			value.Member{Key: "name", Value: value.String("document")})}
	}
	return value.Object(value.Member{Key: "resources", Value: value.Object(members...)})
}

func benchSubject(b testing.TB) (*subject, value.Value, value.Value) {
	b.Helper()
	s, err := load(abac)
	if err != nil || s.err != nil {
		b.Fatal(err, s.err)
	}
	in, err := value.Decode([]byte(abacRequest), value.Limits{})
	errtest.Must(b, err)
	return s, in, abacData()
}

func TestBenchControlAgrees(t *testing.T) {
	fulltest.Only(t)
	s, in, data := benchSubject(t)
	for _, hour := range []int64{3, 10, 23} {
		for _, roles := range []string{"viewer", "admin", "none"} {
			for _, id := range []string{"r-5531", "r-5532", "r-5534", "none"} {
				x := in.With("context", in.Get("context").With("hour", value.Int(hour))).
					With("user", in.Get("user").With("roles", value.Array(value.String(roles)))).
					With("resource", in.Get("resource").With("id", value.String(id)))
				for _, name := range s.names {
					s.agree(t, name, x, data)
				}
			}
		}
	}
	r, err := s.prog.Eval(&eval.Env{Now: testNow}, in, tree{data})
	if err != nil || !r.Allow.True() {
		t.Fatalf("the benchmark's request must be permitted: %+v, %v", r, err)
	}
}

func BenchmarkNative(b *testing.B) {
	s, in, data := benchSubject(b)
	env, src := &eval.Env{Now: testNow}, tree{data}
	for _, reason := range []bool{true, false} {
		b.Run(fmt.Sprintf("reason=%v", reason), func(b *testing.B) {
			env.SkipReason = !reason
			b.ReportAllocs()
			for b.Loop() {
				errtest.Must(b, errtest.Of(s.prog.Eval(env, in, src)))
			}
		})
	}
}

func BenchmarkNativeFromJSON(b *testing.B) {
	s, _, data := benchSubject(b)
	env, src := &eval.Env{Now: testNow}, tree{data}
	b.ReportAllocs()
	for b.Loop() {
		in, err := value.Decode([]byte(abacRequest), value.Limits{})
		errtest.Must(b, err)
		errtest.Must(b, errtest.Of(s.prog.Eval(env, in, src)))
	}
}

func BenchmarkTopdown(b *testing.B) {
	s, in, data := benchSubject(b)
	ctx := context.Background()
	doc, _ := data.Any().(map[string]any)
	store := inmem.NewFromObject(doc)
	txn := storage.NewTransactionOrDie(ctx, store)
	body, err := s.compiler.QueryCompiler().Compile(ast.MustParseBody("x = data.example.abac.allow; y = data.example.abac.reason"))
	errtest.Must(b, err)
	term := in.Term()
	b.ReportAllocs()
	for b.Loop() {
		rs, err := topdown.NewQuery(body).WithCompiler(s.compiler).WithStore(store).WithTransaction(txn).WithInput(term).Run(ctx)
		if err != nil || len(rs) != 1 {
			b.Fatal(rs, err)
		}
	}
}

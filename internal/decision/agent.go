package decision

import (
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// limitAgent restricts the key of an AI agent to requests about the agent itself, without roles or
// attributes in the request: otherwise the agent could give itself rights. A request without a user
// is about the agent. Fault: Forbidden "permission_denied".
func limitAgent(sc scope.Scope, req *rego.Request) error {
	if sc.Actor.Kind != scope.Agent {
		return nil
	}
	own := value.String(sc.Actor.ID)
	sent := req.User
	req.User = value.Object(value.Member{Key: "id", Value: own})
	if !sent.Defined() {
		return nil
	}
	other := req.NotStored
	sent.Each(func(member string, v value.Value) bool {
		text, _ := v.Str()
		switch member {
		case "id":
			other = other || text != sc.Actor.ID
		case "type":
			other = other || text != string(scope.Agent)
		default:
			other = true
		}
		return !other
	})
	if other {
		return fault.Newf(fault.Forbidden, "permission_denied", "the key of an AI agent asks only about the agent itself: the subject is %s, without other members", sc.Actor.ID)
	}
	return nil
}

package actor

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Agents is what decisions know of a tenant's AI agents: which must not act, because they are inactive
// or were removed, and which OAuth clients are agents. The zero value knows none. It is immutable. It
// holds ranges of ids, so the number of active agents bounds its size, not the number of agents that
// ever existed.
type Agents struct {
	stopped [][2]int64       // first and last id, sorted, with gaps between them
	clients map[string]int64 // agents by the ids of their OAuth clients
}

// NewAgents returns the agents of a tenant: all ids from 1 to last are stopped but those that are
// active. clients has the agents by the ids of their OAuth clients; the caller does not change it
// any more.
func NewAgents(active []int64, last int64, clients map[string]int64) Agents {
	a := Agents{clients: clients}
	next := int64(1)
	for _, id := range slices.Sorted(slices.Values(active)) {
		if id < next || id > last {
			continue
		}
		if next < id {
			a.stopped = append(a.stopped, [2]int64{next, id - 1})
		}
		next = id + 1
	}
	if next <= last {
		a.stopped = append(a.stopped, [2]int64{next, last})
	}
	return a
}

// IsEmpty reports whether no agent is stopped and no client is an agent.
func (a Agents) IsEmpty() bool { return len(a.stopped) == 0 && len(a.clients) == 0 }

// Stops reports whether the agent with an id must not act.
func (a Agents) Stops(id int64) bool {
	_, found := slices.BinarySearchFunc(a.stopped, id, func(r [2]int64, id int64) int {
		switch {
		case r[1] < id:
			return -1
		case r[0] > id:
			return 1
		}
		return 0
	})
	return found
}

// The members of Value.
const (
	stoppedMember = "stopped"
	clientsMember = "clients"
)

// Value returns a as JSON: {"stopped": [[first, last], …], "clients": {"client id": agent, …}}. The
// member clients is absent if there are none.
func (a Agents) Value() value.Value {
	list := make([]value.Value, len(a.stopped))
	for i, r := range a.stopped {
		list[i] = value.Array(value.Int(r[0]), value.Int(r[1]))
	}
	members := []value.Member{{Key: stoppedMember, Value: value.Array(list...)}}
	if len(a.clients) > 0 {
		var clients []value.Member
		for _, name := range slices.Sorted(maps.Keys(a.clients)) {
			clients = append(clients, value.Member{Key: name, Value: value.Int(a.clients[name])})
		}
		members = append(members, value.Member{Key: clientsMember, Value: value.Object(clients...)})
	}
	return value.Object(members...)
}

var errMalformed = errors.New("the list of agents is malformed")

// ReadAgents reads what Value returns. Unknown members are ignored. Anything else is an error,
// because a list that is read wrongly could let a stopped agent pass.
func ReadAgents(v value.Value) (Agents, error) {
	var a Agents
	list, clients := v.Get(stoppedMember), v.Get(clientsMember)
	if v.Kind() != value.ObjectKind || list.Kind() != value.ArrayKind || clients.Defined() && clients.Kind() != value.ObjectKind {
		return a, errMalformed
	}
	last := int64(0)
	for _, e := range list.Elems() {
		first, ok := e.Index(0).Int64()
		end, also := e.Index(1).Int64()
		if e.Kind() != value.ArrayKind || e.Len() != 2 || !ok || !also || first <= last || end < first {
			return Agents{}, errMalformed
		}
		a.stopped = append(a.stopped, [2]int64{first, end})
		last = end
	}
	valid := true
	clients.Each(func(name string, v value.Value) bool {
		id, ok := v.Int64()
		if valid = ok && id > 0; !valid {
			return false
		}
		if a.clients == nil {
			a.clients = make(map[string]int64, clients.Len())
		}
		a.clients[name] = id
		return true
	})
	if !valid {
		return Agents{}, errMalformed
	}
	return a, nil
}

// Refuse returns why a request of a user must be refused: the user, the subject of its token, one of
// those who act for it by the claim act, or an OAuth client that the token was issued to, is an agent
// that is stopped. It returns "" if there is no such agent. The server and the bouncers call it before
// they evaluate controls.
//
// The user is no OAuth client, whatever its id is: whoever may change agents must not be able to stop
// people by giving an agent their names.
func (a Agents) Refuse(user value.Value) string {
	if len(a.stopped) == 0 {
		return ""
	}
	claims := user.Get("attributes") // sub is among them if a bouncer takes the id from another claim
	id := a.stoppedAgent(user.Get("id"))
	if id == 0 {
		id = firstOf(claims.Get("sub"), a.stoppedAgent)
	}
	for act := user.Get("act"); id == 0 && act.Kind() == value.ObjectKind; act = act.Get("act") {
		id = firstOf(act.Get("sub"), a.stoppedIn)
	}
	if id == 0 {
		id = firstOf(claims.Get("client_id"), a.stoppedIn)
	}
	if id == 0 {
		id = firstOf(claims.Get("azp"), a.stoppedIn)
	}
	if id == 0 {
		return ""
	}
	return "The AI agent " + scope.AgentSubject(id) + " is not active"
}

// firstOf returns the first agent that find finds in a claim; 0: none. The claim should be a text (RFC
// 9068, section 2.2). If it is a list, each element counts, because a control may look for one of them.
func firstOf(claim value.Value, find func(value.Value) int64) int64 {
	id := find(claim)
	for i := 0; id == 0 && i < len(claim.Elems()); i++ {
		id = find(claim.Index(i))
	}
	return id
}

// stoppedAgent returns the id of the stopped agent whose subject id a name is; 0: it is none.
func (a Agents) stoppedAgent(name value.Value) int64 {
	text, _ := name.Str()
	if id := agentNumber(text); id != 0 && a.Stops(id) {
		return id
	}
	return 0
}

// stoppedIn is stoppedAgent for a name that may also be that of an OAuth client.
func (a Agents) stoppedIn(name value.Value) int64 {
	if id := a.stoppedAgent(name); id != 0 {
		return id
	}
	text, _ := name.Str()
	if id := a.clients[text]; id != 0 && a.Stops(id) {
		return id
	}
	return 0
}

// Acting returns the subject id of the agent that asks for a user: the actor of the claim act (RFC
// 8693, section 4.1), or else the user or the subject of its token if that is an agent, or else the
// OAuth client of the token if it is one (client_id of RFC 9068, azp of OpenID Connect). An actor that
// is the OAuth client of an agent is that agent. It returns "" if no agent asks.
func (a Agents) Acting(user value.Value) string {
	if sub, _ := user.At("act", "sub").Str(); sub != "" {
		if id := a.clients[sub]; id != 0 {
			return scope.AgentSubject(id)
		}
		return sub
	}
	claims := user.Get("attributes")
	for _, v := range [...]value.Value{user.Get("id"), claims.Get("sub")} {
		if name, _ := v.Str(); strings.HasPrefix(name, scope.AgentPrefix) {
			return name
		}
	}
	if len(a.clients) == 0 {
		return ""
	}
	for _, v := range [...]value.Value{claims.Get("client_id"), claims.Get("azp")} {
		text, _ := v.Str()
		if id := a.clients[text]; id != 0 {
			return scope.AgentSubject(id)
		}
	}
	return ""
}

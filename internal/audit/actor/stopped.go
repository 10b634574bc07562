package actor

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Stopped is the set of a tenant's AI agents that must not act: those that are inactive or were
// removed. The zero value stops nobody. It is immutable. It holds ranges of ids, so its size is
// bounded by the number of agents that are active, not by the number that ever existed.
type Stopped struct {
	ranges [][2]int64 // first and last id, sorted, with gaps between them
}

// StoppedBut returns the set of all ids from 1 to last, without those of the active agents.
func StoppedBut(active []int64, last int64) Stopped {
	var s Stopped
	next := int64(1)
	for _, id := range slices.Sorted(slices.Values(active)) {
		if id < next || id > last {
			continue
		}
		if next < id {
			s.ranges = append(s.ranges, [2]int64{next, id - 1})
		}
		next = id + 1
	}
	if next <= last {
		s.ranges = append(s.ranges, [2]int64{next, last})
	}
	return s
}

// IsEmpty reports whether the set stops nobody.
func (s Stopped) IsEmpty() bool { return len(s.ranges) == 0 }

// Has reports whether the set contains the agent with an id.
func (s Stopped) Has(id int64) bool {
	_, found := slices.BinarySearchFunc(s.ranges, id, func(r [2]int64, id int64) int {
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

// Value returns the set as JSON: an array of ranges, each an array of the first and the last id.
func (s Stopped) Value() value.Value {
	list := make([]value.Value, len(s.ranges))
	for i, r := range s.ranges {
		list[i] = value.Array(value.Int(r[0]), value.Int(r[1]))
	}
	return value.Array(list...)
}

// ReadStopped reads what Value returns. An undefined value is an empty set. Anything else is an
// error, because a set that is read wrongly could let an agent pass.
func ReadStopped(v value.Value) (Stopped, error) {
	var s Stopped
	if !v.Defined() {
		return s, nil
	}
	malformed := errors.New("the list of stopped agents is malformed")
	if v.Kind() != value.ArrayKind {
		return s, malformed
	}
	last := int64(0)
	for _, e := range v.Elems() {
		first, ok := e.Index(0).Int64()
		end, also := e.Index(1).Int64()
		if e.Kind() != value.ArrayKind || e.Len() != 2 || !ok || !also || first <= last || end < first {
			return Stopped{}, malformed
		}
		s.ranges = append(s.ranges, [2]int64{first, end})
		last = end
	}
	return s, nil
}

// Refuse returns why a request of a user must be refused: the user, or one of those who act for it
// by the claim act, is an agent of the set. It returns "" if there is no such agent. Both the server
// and the bouncers call it before they evaluate controls.
func (s Stopped) Refuse(user value.Value) string {
	if len(s.ranges) == 0 {
		return ""
	}
	id := s.stopped(user.Get("id"))
	for act := user.Get("act"); id == 0 && act.Kind() == value.ObjectKind; act = act.Get("act") {
		id = s.stopped(act.Get("sub"))
	}
	if id == 0 {
		return ""
	}
	return "The AI agent " + scope.AgentPrefix + strconv.FormatInt(id, 10) + " is not active"
}

// stopped returns the id of the agent of the set that a subject id names; 0: it names none.
func (s Stopped) stopped(subject value.Value) int64 {
	text, _ := subject.Str()
	if id := agentNumber(text); id != 0 && s.Has(id) {
		return id
	}
	return 0
}

// agentNumber returns the number of the agent that a subject id names; 0: it names none. It also
// accepts spellings that only look like the id, such as Agent:007: a control may fold them, and an
// agent that is stopped must not pass under any of them.
func agentNumber(subject string) int64 {
	subject = strings.TrimSpace(subject)
	if !scope.NamesAgent(subject) {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(subject[len(scope.AgentPrefix):]), 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

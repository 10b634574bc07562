package memory

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The pools of Pools: for bodies as they arrive, and for what they decode to, which is a multiple for
// JSON of many short values. A request that has taken of the second takes nothing of the first
// any more, so that two requests never wait for each other.
const (
	Bodies = iota
	Decoded
)

// Pools has the memory pools for the bodies of some operations.
type Pools [2]*Pool

const (
	largeBodies = 40 << 20
	longest     = 10 * time.Second

	// boundPart is how many bytes a value or member takes, with its garbage, together with the input
	// of an operation that is bound from it.
	boundPart = 512
	// freeCost is what a body may take without being counted.
	freeCost = 32 << 10
)

// ForBodies returns the pools for bodies that decode to this many bytes together. Each holder may
// take half.
func ForBodies(decoded int64) Pools {
	return Pools{New(largeBodies, largeBodies/2, longest), New(decoded, decoded/2, longest)}
}

// Cost returns how many bytes a JSON body decodes to, at most; 0 if it is so short that it need not
// be counted. It counts what can separate values, also within strings: that never counts too few.
// bound means that an input is bound from it, too.
func Cost(body []byte, bound bool) int64 {
	part := value.PartBytes
	if bound {
		part = boundPart
	}
	if len(body)*part <= freeCost {
		return 0
	}
	if cost := value.Weight(body, part); cost > freeCost {
		return int64(cost)
	}
	return 0
}

package native

import (
	"runtime"
	"sync"
	"weak"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/shape"
)

// A large environment has thousands of controls of few shapes: each is the one
// before with another name, number or list. They share the tree of closures, so
// that it stays in the processor's caches, and each keeps its constants.

// codes are those of the programs that are in use, by shape.
type codes struct {
	mu   sync.Mutex
	list map[shape.Digest]weak.Pointer[code]
}

// shared is one for the process, as the machines are. Of the control that it was
// compiled from, a code holds some strings only, which no other control can read.
var shared = codes{list: map[shape.Digest]weak.Pointer[code]{}}

// of is the code that programs of this shape share: fresh, if it is the first.
func (s *codes) of(key shape.Digest, fresh *code) *code {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.list[key].Value(); known != nil {
		return known
	}
	s.list[key] = weak.Make(fresh)
	runtime.AddCleanup(fresh, s.forget, key)
	return fresh
}

// forget drops a shape whose code nobody uses any more.
func (s *codes) forget(key shape.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list[key].Value() == nil { // it may have been compiled again
		delete(s.list, key)
	}
}

// shape describes the module that was compiled. Two modules of one shape compile
// to the same code, and to the same number of constants in the same order. ok is
// false for modules that use libraries or `with`: they share nothing.
func (c *builder) shape() (key shape.Digest, ok bool) {
	if len(c.packages) != 1 {
		return key, false
	}
	var rules []*ast.Rule
	c.packages[0].root.each(func(n *node) { rules = append(rules, n.rules...) })
	return shape.Of(c.pkg, rules)
}

package native

import (
	"runtime"
	"sync"
	"weak"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/shape"
)

// A large environment has thousands of controls of few shapes, which differ only in a name, a
// number or a list. Such controls share their tree of closures, so that it stays in the processor's
// caches. Each keeps its own constants.

// codes holds the code of the programs in use, by shape.
type codes struct {
	mu   sync.Mutex
	list map[shape.Digest]weak.Pointer[code]
}

// shared serves the whole process, as machines does. A code keeps only some strings of the control
// that it was compiled from, and no other control can read them.
var shared = codes{list: map[shape.Digest]weak.Pointer[code]{}}

// of returns the code that programs of this shape share, which is fresh for the first of them.
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

// forget removes a shape whose code is no longer in use.
func (s *codes) forget(key shape.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list[key].Value() == nil { // it may have been compiled again
		delete(s.list, key)
	}
}

// shape identifies the shape of the compiled module. Two modules of one shape compile to the same
// code, and to the same number of constants in the same order. ok is false for modules that use
// libraries or `with`; they share nothing.
func (c *Builder) shape() (key shape.Digest, ok bool) {
	if len(c.packages) != 1 {
		return key, false
	}
	var rules []*ast.Rule
	c.packages[0].root.each(func(n *node) { rules = append(rules, n.rules...) })
	return shape.Fingerprint(c.pkg, rules)
}

// Package session remembers whose a session of MCP is, what masks its answers had, and
// what servers say of their tools.
package session

import (
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

const (
	// Header is the field that carries the id of an MCP session.
	Header = "Mcp-Session-Id"
	// sealedSession begins the id of a session that was opened through a bouncer.
	sealedSession = "gh1."
	// maxSessions bounds the sessions that are remembered.
	maxSessions = 16_384
	// maxSessionMasks bounds the masks that are remembered of one.
	maxSessionMasks = 1000
)

// Book remember, of those that this bouncer saw, whose they are, where that is
// not in the id itself, and what masks their answers had.
type Book struct {
	mu   sync.Mutex
	seen map[string]*entry
}

type entry struct {
	owner string
	bound bool
	masks []rego.MaskRule
}

// of is a session, which is made if it is not known. Whoever calls holds mu.
func (s *Book) of(key string) *entry {
	if got := s.seen[key]; got != nil {
		return got
	}
	if s.seen == nil {
		s.seen = map[string]*entry{}
	}
	if len(s.seen) >= maxSessions {
		for other := range s.seen { // any
			delete(s.seen, other)
			break
		}
	}
	got := &entry{}
	s.seen[key] = got
	return got
}

// Claim binds a session to its first user; false: it is another one's.
func (s *Book) Claim(key, user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.of(key)
	if !got.bound {
		got.owner, got.bound = user, true
	}
	return got.owner == user
}

// NoteMasks remembers masks that answers in a session had.
func (s *Book) NoteMasks(key string, masks []rego.MaskRule) {
	if key == "" || len(masks) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.of(key)
	got.masks = UniteMasks(got.masks, masks)
}

// Masks are the masks that answers in a session had.
func (s *Book) Masks(key string) []rego.MaskRule {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.seen[key]; got != nil {
		return got.masks
	}
	return nil
}

// UniteMasks appends what is new of b to a copy of a.
func UniteMasks(a, b []rego.MaskRule) []rego.MaskRule {
	have := make(map[rego.MaskRule]bool, len(a)+len(b))
	out := make([]rego.MaskRule, 0, len(a)+len(b))
	for _, list := range [...][]rego.MaskRule{a, b} {
		for _, m := range list {
			if !have[m] && len(out) < maxSessionMasks {
				have[m] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// Package session remembers who opened an MCP session, which masks its answers had, and
// how servers describe their tools.
package session

import (
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

const (
	// Header is the field that carries the id of an MCP session.
	Header = "Mcp-Session-Id"
	// sealedSession is the prefix of ids that bouncers issue.
	sealedSession = "gh1."
	// maxSessions limits the sessions that are remembered.
	maxSessions = 16_384
	// maxSessionMasks limits the masks that are remembered for one session.
	maxSessionMasks = 1000
)

// Sessions remembers the sessions that this bouncer saw: their users, if the ids do not prove
// them, and the masks of their answers.
type Sessions struct {
	mu   sync.Mutex
	seen map[string]*entry
}

type entry struct {
	owner string
	bound bool
	masks []rego.MaskRule
}

// entryFor returns a session, and creates it if it is unknown. The caller holds mu.
func (s *Sessions) entryFor(key string) *entry {
	if got := s.seen[key]; got != nil {
		return got
	}
	if s.seen == nil {
		s.seen = map[string]*entry{}
	}
	if len(s.seen) >= maxSessions {
		for other := range s.seen { // any one
			delete(s.seen, other)
			break
		}
	}
	got := &entry{}
	s.seen[key] = got
	return got
}

// Claim binds a session to its first user. It returns false if that is another one.
func (s *Sessions) Claim(key, user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.entryFor(key)
	if !got.bound {
		got.owner, got.bound = user, true
	}
	return got.owner == user
}

// NoteMasks remembers the masks of an answer in a session.
func (s *Sessions) NoteMasks(key string, masks []rego.MaskRule) {
	if key == "" || len(masks) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.entryFor(key)
	got.masks = UniteMasks(got.masks, masks)
}

// Masks returns the masks that answers in a session had.
func (s *Sessions) Masks(key string) []rego.MaskRule {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.seen[key]; got != nil {
		return got.masks
	}
	return nil
}

// UniteMasks returns a copy of a with the masks of b that it lacks.
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

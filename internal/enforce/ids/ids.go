// Package ids makes ids for requests and decisions, and random pauses.
package ids

import (
	"encoding/hex"
	"math/rand/v2"
	"sync"
	"time"
)

// Source makes UUIDs of version 7 (RFC 9562), which sort by time. It is cheap enough for each
// decision. Its seed comes from the operating system.
type Source struct {
	mu  sync.Mutex
	rng *rand.ChaCha8
}

// New returns a source of ids.
func New(seed [32]byte) *Source { return &Source{rng: rand.NewChaCha8(seed)} }

// Next returns a new id.
func (s *Source) Next(now time.Time) string {
	s.mu.Lock()
	hi, lo := s.rng.Uint64(), s.rng.Uint64()
	s.mu.Unlock()
	var u [16]byte
	ms := uint64(now.UnixMilli())
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i))
	}
	u[6], u[7] = 0x70|byte(hi>>8)&0x0f, byte(hi)
	for i := range 8 {
		u[8+i] = byte(lo >> (8 * i))
	}
	u[8] = 0x80 | u[8]&0x3f
	var t [36]byte
	hex.Encode(t[0:8], u[0:4])
	hex.Encode(t[9:13], u[4:6])
	hex.Encode(t[14:18], u[6:8])
	hex.Encode(t[19:23], u[8:10])
	hex.Encode(t[24:36], u[10:16])
	t[8], t[13], t[18], t[23] = '-', '-', '-', '-'
	return string(t[:])
}

// Jitter returns a random duration between half of d and one and a half times d.
func (s *Source) Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return d/2 + time.Duration(s.rng.Uint64()%uint64(d))
}

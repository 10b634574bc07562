package bodies

import (
	"sync"
)

// Buffers is a pool of 32 KiB buffers for copying.
type Buffers struct{ pool sync.Pool }

// Get takes a buffer from the pool.
func (b *Buffers) Get() *[32 << 10]byte {
	if p, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return p
	}
	return new([32 << 10]byte)
}

// Put returns a buffer to the pool.
func (b *Buffers) Put(p *[32 << 10]byte) { b.pool.Put(p) }

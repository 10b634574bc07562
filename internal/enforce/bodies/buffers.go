package bodies

import (
	"sync"
)

// Buffers are 32 KiB copy buffers.
type Buffers struct{ pool sync.Pool }

// Get takes a buffer.
func (b *Buffers) Get() *[32 << 10]byte {
	if p, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return p
	}
	return new([32 << 10]byte)
}

// Put gives a buffer back.
func (b *Buffers) Put(p *[32 << 10]byte) { b.pool.Put(p) }

package region

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db/tablecopy"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
)

// brakes are the strengths of a brake: how long writes are allowed, and then how long they wait.
// The first one does not slow writes down.
var brakes = []struct{ free, closed time.Duration }{
	{},
	{250 * time.Millisecond, 250 * time.Millisecond},
	{150 * time.Millisecond, 500 * time.Millisecond},
	{75 * time.Millisecond, 750 * time.Millisecond},
	{30 * time.Millisecond, time.Second},
	{10 * time.Millisecond, pauseAim},
}

// quick is the target duration for copying the last changes. Writes are paused for about as long.
const quick = 300 * time.Millisecond

// brake slows the writers of a tenant down while its changes are copied.
type brake struct {
	cancel   context.CancelFunc
	running  sync.WaitGroup
	strength atomic.Int32
	loop     func()
}

// newBrake returns a brake with the strength that the deployment last used.
func (s *Service) newBrake(ctx context.Context, d *Deployment, c *tablecopy.Copy) *brake {
	ctx, cancel := context.WithCancel(ctx)
	b := &brake{cancel: cancel}
	b.loop = sync.OnceFunc(func() { b.running.Go(func() { s.slowDown(ctx, d, c, &b.strength) }) })
	if d.brake > 0 {
		b.set(d.brake)
	}
	return b
}

func (b *brake) set(strength int) {
	b.strength.Store(int32(strength))
	b.loop()
}

// release allows all writes again.
func (b *brake) release() {
	b.cancel()
	b.running.Wait()
}

// slowDown alternates between allowing writes and pausing them, until ctx ends. Writers wait during
// a pause.
func (s *Service) slowDown(ctx context.Context, d *Deployment, c *tablecopy.Copy, strength *atomic.Int32) {
	for pause.For(ctx, brakes[strength.Load()].free) {
		if c.Pause(ctx) == nil {
			_ = pause.For(ctx, brakes[strength.Load()].closed)
		}
		s.resume(ctx, d, c)
	}
}

// catchUp copies changes until the rest can be copied within quick. If a tenant changes faster than
// its changes are copied, a brake slows its writers down, more with each such round.
func (s *Service) catchUp(ctx context.Context, d *Deployment, c *tablecopy.Copy) error {
	b := s.newBrake(ctx, d, c)
	defer b.release()
	most := int64(math.MaxInt64)
	for lost := 0; lost < rounds; {
		began := s.Ticks()
		n, left, err := c.CatchUp(ctx)
		if err != nil {
			return err
		}
		d.ChangesCopied += int64(n)
		if err := s.saveProgress(ctx, d, catchingUp); err != nil {
			return err
		}
		if left == 0 && (n < backlog || s.Ticks().Sub(began) < quick) {
			return nil
		}
		if left+int64(n) > most { // writers added more than half of what the last round copied
			d.brakeHarder()
			b.set(d.brake)
			lost++
		}
		most = left + int64(n)/2
	}
	return nil
}

func (d *Deployment) brakeHarder() { d.brake = min(d.brake+1, len(brakes)-1) }

// resume allows writes on the source again, even if the server is stopping. It retries on errors,
// because writes wait until it succeeds.
func (s *Service) resume(ctx context.Context, d *Deployment, c *tablecopy.Copy) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseLimit)
	defer cancel()
	for {
		err := c.Resume(ctx)
		if err == nil || errors.Is(err, tablecopy.ErrLost) {
			return
		}
		if !pause.For(ctx, quick) {
			s.Logger.Warn("a tenant's writes wait longer for a deployment", "tenant", d.Tenant, "error", err)
			return
		}
	}
}

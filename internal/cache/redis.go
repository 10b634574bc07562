package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	probeEvery = time.Second
	// dialTimeout bounds a connection to Redis, its greeting, and a write to it.
	dialTimeout = time.Second
	// maxUnderWay bounds the calls that wait for Redis: less than what fits into the
	// queue of its connection, whose end nobody waits for.
	maxUnderWay = 512
)

// errSlow says that Redis did not answer within the patience of its caller.
var errSlow = errors.New("cache: Redis is slow")

var errWindow = errors.New("a window must be at least a millisecond")

// remote is Redis. Its client is made in the background when Redis does not
// answer at first.
type remote struct {
	cfg      Config
	option   rueidis.ClientOption
	cache    *Cache
	script   *rueidis.Lua
	failing  chan struct{} // holds a token when a call has failed
	underWay chan struct{} // holds a token for each call that somebody waits for, or waited
	gone     atomic.Bool   // the log says that Redis does not answer
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu     sync.RWMutex
	client rueidis.Client
}

func openRemote(ctx context.Context, cfg Config, c *Cache) (*remote, error) {
	option, err := rueidis.ParseURL(cfg.URL)
	if err != nil {
		return nil, errors.New("cache: the Redis URL is not valid") // its text may hold a password
	}
	option.DisableCache = true    // nothing is read twice
	option.DisableRetry = true    // this package falls back instead
	option.PipelineMultiplex = -1 // one connection, so that its state is the state of all
	option.Dialer.Timeout = dialTimeout
	option.ConnWriteTimeout = dialTimeout
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &remote{
		cfg: cfg, option: option, cache: c, cancel: cancel,
		failing: make(chan struct{}, 1), underWay: make(chan struct{}, maxUnderWay),
		script: rueidis.NewLuaScript(`local n = redis.call('INCRBY', KEYS[1], ARGV[1])
			if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
			return n`),
	}
	if err := r.connect(); err != nil {
		c.degraded.Store(true)
		r.connectionLost(err)
		r.failing <- struct{}{}
	}
	r.running.Go(func() { r.probe(run) })
	return r, nil
}

func (r *remote) close() {
	r.cancel()
	r.running.Wait()
	if c := r.conn(); c != nil {
		c.Close()
	}
}

func (r *remote) conn() rueidis.Client {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.client
}

func (r *remote) connect() error {
	c, err := rueidis.NewClient(r.option)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.client = c
	return nil
}

// failed records that a call failed; probe then takes over. It ignores a call whose caller has
// disconnected.
func (r *remote) failed(caller context.Context) {
	if caller.Err() != nil {
		return
	}
	r.cache.degraded.Store(true)
	select {
	case r.failing <- struct{}{}:
	default:
	}
}

// call runs one command within the timeout.
func (r *remote) call(ctx context.Context, do func(context.Context, rueidis.Client) error) error {
	c := r.conn()
	if c == nil {
		return errors.New("cache: not connected yet")
	}
	short, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	err := do(short, c)
	if err != nil {
		r.failed(ctx)
	}
	return err
}

// doWithin is like call, but returns errSlow if the caller's patience ends, while the command
// continues in the background. The results of do are valid only if the error is nil. done is called
// if the command succeeds, even if it is late.
func (r *remote) doWithin(ctx context.Context, do func(context.Context, rueidis.Client) error, done func()) error {
	select {
	case r.underWay <- struct{}{}:
	default:
		return errSlow
	}
	answer := make(chan error, 1)
	r.running.Go(func() {
		defer func() { <-r.underWay }()
		err := r.call(context.WithoutCancel(ctx), do)
		if err == nil {
			done()
		}
		answer <- err
	})
	timer := time.NewTimer(r.cfg.Patience)
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
		return errSlow
	}
}

// probe waits for a failure, and then pings Redis every second until it answers.
func (r *remote) probe(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.failing:
		}
		for {
			err := r.ping(ctx)
			if err == nil {
				break
			}
			r.connectionLost(err)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		r.cache.degraded.Store(false)
		if r.gone.Swap(false) {
			r.cfg.Logger.Info("Redis answers again: counters are shared again", "address", r.address())
		}
	}
}

// connectionLost logs once that Redis does not answer. It logs only the kind of the cause, because
// its text may contain the address with its password.
func (r *remote) connectionLost(err error) {
	if r.gone.Swap(true) {
		return
	}
	reason := "refused or not reachable"
	if errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err) {
		reason = "no answer in time"
	} else if _, ok := rueidis.IsRedisErr(err); ok {
		reason = "refused by Redis: check the password and the database number"
	}
	r.cfg.Logger.Warn("Redis does not answer: this process counts alone until it does", "address", r.address(), "reason", reason)
}

// address returns the host and port of Redis, without credentials.
func (r *remote) address() string { return strings.Join(r.option.InitAddress, ",") }

func (r *remote) ping(ctx context.Context) error {
	c := r.conn()
	if c == nil {
		return r.connect()
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	return c.Do(ctx, c.B().Ping().Build()).Error()
}

func windowKey(key string, start time.Time) string {
	return key + ":" + strconv.FormatInt(start.UnixMilli(), 10)
}

// count counts in Redis. known is called with the count, even if it arrives too late for the
// caller.
func (r *remote) count(ctx context.Context, key string, n int64, start time.Time, window time.Duration, known func(int64)) (int64, error) {
	// The key outlives its window a little, for replicas whose clocks are behind.
	keep := strconv.FormatInt((window + 10*time.Second).Milliseconds(), 10)
	var count int64
	err := r.doWithin(ctx, func(ctx context.Context, c rueidis.Client) (err error) {
		count, err = r.script.Exec(ctx, c, []string{windowKey(key, start)}, []string{strconv.FormatInt(n, 10), keep}).AsInt64()
		return err
	}, func() { known(count) })
	if err != nil {
		return 0, err // the command may be under way still: count is not ours
	}
	return count, nil
}

func (r *remote) drop(ctx context.Context, prefix string) error {
	cursor := uint64(0)
	for {
		var entry rueidis.ScanEntry
		err := r.call(ctx, func(ctx context.Context, c rueidis.Client) (err error) {
			entry, err = c.Do(ctx, c.B().Scan().Cursor(cursor).Match(prefix+"*").Count(1000).Build()).AsScanEntry()
			return err
		})
		if err == nil && len(entry.Elements) > 0 {
			err = r.call(ctx, func(ctx context.Context, c rueidis.Client) error {
				return c.Do(ctx, c.B().Unlink().Key(entry.Elements...).Build()).Error()
			})
		}
		if err != nil {
			return fmt.Errorf("cache: drop: %w", err)
		}
		if cursor = entry.Cursor; cursor == 0 {
			return nil
		}
	}
}

func (r *remote) health(ctx context.Context) (Health, error) {
	h := Health{Status: "up"}
	start := time.Now()
	err := r.call(ctx, func(ctx context.Context, c rueidis.Client) error {
		info, err := c.Do(ctx, c.B().Info().Section("memory").Build()).ToString()
		if err != nil {
			return err
		}
		for line := range strings.Lines(info) {
			if digits, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
				n, err := strconv.ParseFloat(digits, 64)
				h.MemoryUsageMB = float64(int64(n/10_000)) / 100
				return err
			}
		}
		return nil
	})
	h.LatencyMS = float64(time.Since(start).Microseconds()) / 1000
	return h, err
}

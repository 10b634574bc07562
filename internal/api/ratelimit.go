package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Limits are the requests an hour that one API key may make. The zero value is
// the specification's.
type Limits struct {
	// Off turns the limits off for the whole API: no header is sent.
	Off bool
	// DecisionsOff turns them off for /decisions alone.
	DecisionsOff bool
	// All is one figure for all plans; 0: by plan.
	All int64
	// Decisions is a limit of their own for /decisions, counted apart; 0: none,
	// they count with the rest.
	Decisions int64
}

// planLimits are the specification's (section Limits).
var planLimits = map[string]int64{"standard": 1000, "pro": 5000, "enterprise": 10_000}

const rateWindow = time.Hour

// limiter counts requests of API keys.
type limiter struct {
	limits Limits
	counts func(ctx context.Context, tenant, key string, n int64, window time.Duration) (cache.Window, error)
	now    func() time.Time
}

// limit is the figure that holds for a plan on a route; 0: none.
func (l *limiter) limit(rt *route, plan string) int64 {
	if l.limits.Off || rt.decisions && l.limits.DecisionsOff {
		return 0
	}
	if rt.decisions && l.limits.Decisions > 0 {
		return l.limits.Decisions
	}
	if l.limits.All > 0 {
		return l.limits.All
	}
	if n := planLimits[plan]; n > 0 {
		return n
	}
	return planLimits["standard"]
}

// count counts one request and says in the headers what is left. A counter
// that cannot be asked lets the request pass: it protects capacity, not data.
func (l *limiter) count(ctx context.Context, x *exchange, rt *route, who Principal) error {
	if !who.RateLimited || l.counts == nil {
		return nil
	}
	limit := l.limit(rt, who.Plan)
	if limit == 0 {
		return nil
	}
	key := "rate:" + who.KeyID
	if rt.decisions && l.limits.Decisions > 0 {
		key = "rate:decisions:" + who.KeyID
	}
	w, err := l.counts(ctx, string(who.Tenant), key, 1, rateWindow)
	if err != nil {
		return nil
	}
	left := max(0, limit-w.Count)
	rateHeaders(x.Header(), limit, left, w.Reset.Unix())
	if w.Count <= limit {
		return nil
	}
	return fault.New(fault.RateLimited, "rate_limit_exceeded", "this key has used up its requests for the hour").
		After(max(time.Second, w.Reset.Sub(l.now()))).With("limit", limit).With("remaining", left)
}

// rateHeaders sets the three headers; their values are cut from one string.
func rateHeaders(h http.Header, limit, left, reset int64) {
	var buf [64]byte
	text := strconv.AppendInt(buf[:0], limit, 10)
	first := len(text)
	text = strconv.AppendInt(text, left, 10)
	second := len(text)
	all := string(strconv.AppendInt(text, reset, 10))
	vs := []string{all[:first], all[first:second], all[second:]}
	h["X-Ratelimit-Limit"] = vs[0:1:1]
	h["X-Ratelimit-Remaining"] = vs[1:2:2]
	h["X-Ratelimit-Reset"] = vs[2:3:3]
}

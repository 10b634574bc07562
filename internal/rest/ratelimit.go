package rest

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Limits are the numbers of requests that one API key may make in an hour. The zero value applies
// the limits of the tenant's plan.
type Limits struct {
	// Off turns the limits off for the whole API; no header is sent.
	Off bool
	// DecisionsOff turns them off for areas with a limit of their own.
	DecisionsOff bool
	// All is one limit for all plans; 0: by plan.
	All int64
	// Decisions is the limit of areas with a limit of their own, which are counted separately. 0
	// means that they count with the rest.
	Decisions int64
}

// planLimits are the requests per hour by plan.
var planLimits = map[string]int64{"standard": 1000, "pro": 5000, "enterprise": 10_000}

const rateWindow = time.Hour

// limiter counts requests of API keys.
type limiter struct {
	limits Limits
	counts func(ctx context.Context, tenant, key string, n int64, window time.Duration) (cache.Window, error)
	now    func() time.Time
}

// limit returns the limit of a plan on a route; 0: none.
func (l *limiter) limit(rt *route, plan string) int64 {
	if l.limits.Off || rt.area.OwnLimit && l.limits.DecisionsOff {
		return 0
	}
	if rt.area.OwnLimit && l.limits.Decisions > 0 {
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

// count counts one request and reports in the headers how many are left. A request
// passes when the counter fails: it protects capacity, not data.
func (l *limiter) count(ctx context.Context, x *exchange, rt *route, who Principal) error {
	if !who.RateLimited || l.counts == nil {
		return nil
	}
	limit := l.limit(rt, who.Plan)
	if who.Limit > 0 && !l.limits.Off {
		limit = who.Limit
	}
	if limit == 0 {
		return nil
	}
	key := "rate:" + who.KeyID
	if rt.area.OwnLimit && l.limits.Decisions > 0 {
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

// rateHeaders sets the three headers; their values share one string.
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

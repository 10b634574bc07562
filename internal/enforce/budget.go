package enforce

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// codeBudget says that a request was refused for what was used before it.
const codeBudget = "budget_exhausted"

// outOfBudget makes 429 of a refusal that is about use alone: the same request
// would be granted once the counts of a window begin anew. When that is goes into
// Retry-After, by which clients of models wait and ask again. Only a refused
// request is asked about again, at most once a window.
func (b *Bouncer) outOfBudget(ctx context.Context, st *state, in *inbound, who *identity.Caller, v *verdict) {
	if v.no.code != "access_denied" || in.seen == nil || !in.seen.usage.Defined() {
		return
	}
	seen, asked := *in.seen, *in
	asked.seen = &seen
	renewed := map[string]bool{}
	for _, w := range usageWindows {
		renewed[w.name] = true
		seen.usage = unused(in.seen.usage, renewed)
		q := question(&asked, st.settings, who)
		d := st.set.Decide(ctx, &q, rego.Options{Now: in.at, Deadline: in.within(b.cfg.DecisionDeadline), Clock: b.cfg.Now, Caught: b.caught(ctx, in.id)})
		if d.Err != nil || !d.Permit {
			continue
		}
		left := windowStart(in.at, w.length).Add(w.length).Sub(in.at)
		v.no.status, v.no.code, in.retry = http.StatusTooManyRequests, codeBudget, max(left.Round(time.Second), time.Second)
		return
	}
}

// unused is input.usage with nothing counted in the windows that are renewed.
func unused(usage value.Value, renewed map[string]bool) value.Value {
	members := make([]value.Member, 0, usage.Len())
	usage.Each(func(name string, v value.Value) bool {
		switch {
		case v.Kind() == value.ObjectKind:
			v = unused(v, renewed)
		case renewed[name]:
			v = value.Int(0)
		}
		members = append(members, value.Member{Key: name, Value: v})
		return true
	})
	return value.Object(members...)
}

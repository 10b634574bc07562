package enforce

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/usage"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// codeBudget says that a request was refused for what was used before it.
const codeBudget = "budget_exhausted"

// outOfBudget makes 429 of a refusal that is about use alone: the same request
// would be granted once the counts of a window begin anew. When that is goes into
// Retry-After, by which clients of models wait and ask again. Only a refused
// request is asked about again, at most once a window.
func (b *Bouncer) outOfBudget(ctx context.Context, st *settings.State, in *inbound, who *identity.Caller, v *verdict) {
	if v.no.code != "access_denied" || in.seen == nil || !in.seen.usage.Defined() {
		return
	}
	seen, asked := *in.seen, *in
	asked.seen = &seen
	for renewed, left := range usage.Renewals(in.seen.usage, in.at) {
		seen.usage = renewed
		q := question(&asked, st.Settings, who)
		d := st.Set.Decide(ctx, &q, rego.Options{Now: in.at, Deadline: in.deadline(b.cfg.DecisionDeadline), Clock: b.cfg.Now, Caught: b.caught(ctx, in.id)})
		if d.Err != nil || !d.Permit {
			continue
		}
		v.no.status, v.no.code, in.retry = http.StatusTooManyRequests, codeBudget, max(left.Round(time.Second), time.Second)
		return
	}
}

package enforce

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
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
func (b *Bouncer) outOfBudget(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller, v *verdict) {
	if v.no.Code != "access_denied" || in.Seen == nil || !in.Seen.Usage.Defined() {
		return
	}
	seen, asked := *in.Seen, *in
	asked.Seen = &seen
	for renewed, left := range usage.Renewals(in.Seen.Usage, in.At) {
		seen.Usage = renewed
		q := asked.Question(st.Settings, who)
		d := st.Set.Decide(ctx, &q, rego.Options{Now: in.At, Deadline: in.Deadline(b.cfg.DecisionDeadline), Clock: b.cfg.Now, Caught: b.caught(ctx, in.ID)})
		if d.Err != nil || !d.Permit {
			continue
		}
		v.no.Status, v.no.Code, in.RetryAfter = http.StatusTooManyRequests, codeBudget, max(left.Round(time.Second), time.Second)
		return
	}
}

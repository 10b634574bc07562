package judge

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

// CodeBudget is the error code of a request that is refused only because of earlier use.
const CodeBudget = "budget_exhausted"

// outOfBudget turns a refusal into 429 if only the usage is the reason: the same request
// would be granted once a window's counts start again. Retry-After says when that is, so
// that clients of models wait and try again. To find out, it decides on a refused request
// again, at most once for each window.
func (j *Judge) outOfBudget(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller, v *Verdict) {
	if v.Refusal.Code != "access_denied" || v.Decision.Stopped || in.Seen == nil || !in.Seen.Usage.Defined() {
		return
	}
	seen, asked := *in.Seen, *in
	asked.Seen = &seen
	for renewed, left := range usage.Renewals(in.Seen.Usage, in.At) {
		seen.Usage = renewed
		q := asked.DecisionRequest(st.Settings, who, true)
		d := st.Set.Decide(ctx, &q, rego.Options{Now: in.At, Deadline: in.Deadline(j.Deadline), Clock: j.Now, Caught: j.Panics.EvaluatorHandler(ctx, in.ID)})
		if d.Err != nil || !d.Permit {
			continue
		}
		v.Refusal.Status, v.Refusal.Code, in.RetryAfter = http.StatusTooManyRequests, CodeBudget, max(left.Round(time.Second), time.Second)
		return
	}
}

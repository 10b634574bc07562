package dashboard

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The kinds that Top can rank.
const (
	ByPolicy   = "policy"
	ByResource = "resource"
)

// Top lists the controls or resources with the most denials.
type Top struct {
	By     string    `json:"by" enum:"policy,resource" doc:"The ranked kind."`
	Window string    `json:"window" enum:"15m,1h,6h,24h,7d,30d,90d,365d" doc:"The window that was asked for. The count starts at a full hour."`
	From   time.Time `json:"from" doc:"Start of the first hour that is counted."`
	Items  []TopItem `json:"items" doc:"Most denials first."`
}

// TopItem is one control or resource.
type TopItem struct {
	ID        string `json:"id" doc:"Id of the control or resource; for an unregistered resource, the name that callers used."`
	Permitted int64  `json:"permitted" doc:"PERMIT decisions."`
	Denied    int64  `json:"denied" doc:"DENY decisions."`
	Errors    int64  `json:"errors" doc:"Denials because a control failed or reached a limit."`
}

// Top returns the n controls or resources with the most denials in a window. Fault: BadRequest for
// an unknown window.
func (s *Service) Top(ctx context.Context, sc scope.Scope, by, window string, n int) (Top, error) {
	if window == "" {
		window = DefaultWindow
	}
	cut, ok := resolve(window)
	if !ok {
		return Top{}, unknownWindow(window)
	}
	what := stats.TopPolicies
	if by == ByResource {
		what = stats.TopResources
	}
	s.Log.WaitShipped(ctx)
	from := stats.Hour.Start(s.Now().Add(-cut.long))
	rows, err := s.Log.Top(ctx, sc, what, from, n)
	if err != nil {
		return Top{}, err
	}
	out := Top{By: by, Window: window, From: from, Items: make([]TopItem, 0, len(rows))}
	for _, r := range rows {
		out.Items = append(out.Items, TopItem{ID: r.Name, Permitted: r.Permitted, Denied: r.Denied, Errors: r.Errors})
	}
	return out, nil
}

func unknownWindow(window string) error {
	return fault.Newf(fault.BadRequest, "invalid_parameter", "window %q is not one of 15m, 1h, 6h, 24h, 7d, 30d, 90d, 365d", window)
}

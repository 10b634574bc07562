package apptest

import (
	"fmt"
	"testing"
)

// Clerks is a control that admits clerks and managers to invoices.
const Clerks = `package invoices

default allow := false

allow if input.user.role in {"clerk", "manager"}
`

// RecordDecisions creates a resource whose decisions keep their inputs, an active control, and n
// decisions, of which writes are writes of a clerk.
func RecordDecisions(t testing.TB, a *Client, env string, n, writes int) (resource, policy int64) {
	t.Helper()
	resource = a.Do(t, "POST", "/resources", Body{"name": "invoices", "type": "api", "path": "/invoices/**", "environment": env}).Want(201).ID()
	a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", resource), Body{"audit_level": "detailed"}).Want(200)
	policy = Activate(t, a, "invoices", env, Clerks, Body{"resource_id": resource})
	Decide(t, a, env, n, writes)
	return resource, policy
}

// Decide makes n decisions: the first writes of them for clerks who write, the others for managers
// who read.
func Decide(t testing.TB, a *Client, env string, n, writes int) {
	t.Helper()
	for from := 0; from < n; from += 500 {
		items := []Body{}
		for i := from; i < min(n, from+500); i++ {
			role, action := "manager", "read"
			if i < writes {
				role, action = "clerk", "write"
			}
			items = append(items, Body{
				"user": Body{"id": fmt.Sprint("u", i%7), "role": role}, "action": Body{"name": action, "method": "GET"},
				"resource": Body{"type": "api", "path": fmt.Sprint("/invoices/", i)}, "context": Body{"network": "outside"},
			})
		}
		a.With("X-Environment", env).Do(t, "POST", "/decisions/evaluate/bulk", Body{"decisions": items}).Want(200)
	}
}

// ImpactFigures are the counts in the answer of a replay.
type ImpactFigures struct {
	Evaluated    int64   `json:"evaluated"`
	WouldBlock   int64   `json:"would_block"`
	WouldAllow   int64   `json:"would_allow"`
	Changed      int64   `json:"changed"`
	NewlyBlocked int64   `json:"newly_blocked"`
	Percent      float64 `json:"would_block_percent"`
	Recorded     int64   `json:"recorded"`
	Without      int64   `json:"without_input"`
	Note         string  `json:"note"`
	Drifted      struct {
		Total    int64 `json:"total"`
		Controls int64 `json:"controls"`
	} `json:"drifted"`
	NotReplayable struct {
		Total      int64 `json:"total"`
		Incomplete int64 `json:"incomplete"`
	} `json:"not_replayable"`
	ByControl []struct {
		PolicyID int64 `json:"policy_id"`
		Changed  int64 `json:"changed"`
	} `json:"by_control"`
	BySubject []struct {
		UserID  string `json:"user_id"`
		Changed int64  `json:"changed"`
	} `json:"by_subject"`
	ByRule []struct {
		PolicyID int64  `json:"policy_id"`
		Rule     string `json:"rule"`
		Line     int    `json:"line"`
		Changed  int64  `json:"changed"`
	} `json:"by_rule"`
	Samples []struct {
		DecisionID string `json:"decision_id"`
		BouncerID  int64  `json:"bouncer_id"`
		Change     string `json:"change"`
		Before     struct{ Effect, Rule string }
		After      struct {
			Effect, Rule, Reason string
			Line                 int
		}
	} `json:"samples"`
}

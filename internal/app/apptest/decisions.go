package apptest

import (
	"testing"
	"time"
)

// LogEntry is an entry of the decision log.
type LogEntry struct {
	ID        string `json:"decision_id"`
	RequestID string `json:"request_id"`
	Decision  string `json:"decision"`
	Effect    string `json:"effect"`
	Reason    string `json:"reason"`
	Mode      string `json:"mode"`
	Error     string `json:"error"`
	BouncerID int64  `json:"bouncer_id"`
	PolicyID  int64  `json:"policy_id"`
	// PolicyName is the name of the control that decided.
	PolicyName string `json:"policy_name"`
	// Folded is set if the entry counts several decisions.
	Folded *struct {
		Count       int64
		First, Last time.Time
		Digest      string
	} `json:"folded"`
}

// DecisionLog returns the whole decision log of an environment.
func DecisionLog(t testing.TB, a *Client, env string) []LogEntry {
	t.Helper()
	var out []LogEntry
	for cursor := ""; ; {
		var page struct {
			Logs []LogEntry `json:"logs"`
			Next string     `json:"next_cursor"`
		}
		a.Do(t, "GET", "/decisions/audit?limit=1000&environment="+env+"&cursor="+cursor, nil).Want(200).Into(&page)
		out = append(out, page.Logs...)
		if cursor = page.Next; cursor == "" {
			return out
		}
	}
}

// ByRequest groups a log by request ids.
func ByRequest(log []LogEntry) map[string][]LogEntry {
	out := map[string][]LogEntry{}
	for _, e := range log {
		out[e.RequestID] = append(out[e.RequestID], e)
	}
	return out
}

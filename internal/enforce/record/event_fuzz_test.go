package record

import (
	"sync/atomic"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bundlesync"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/journal"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// FuzzEvent checks that an event is valid JSON, whatever its contents.
func FuzzEvent(f *testing.F) {
	f.Add("ann", "/a", "because", "id")
	f.Add("a\"\\\x00\x1f\u2028", "/\xff", "<script>", "\n")
	log, err := spool.Open(spool.Config{Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { log.Close() })
	var state atomic.Pointer[settings.State]
	r := New(&journal.Journal{Config: journal.Config{MaxBytes: 1 << 30}, Spool: log}, bundlesync.New(bundlesync.Config{State: &state}), nil, nil, fold.Defaults(), nil)
	f.Fuzz(func(t *testing.T, user, path, reason, id string) {
		st := &settings.State{Settings: &settings.Settings{Environment: user}, Revision: reason}
		v := judge.Verdict{ID: "0", Outcome: metrics.Deny, Refusal: request.Refusal{Code: "x", Message: reason}, Failure: reason}
		v.Decision.Reason, v.Decision.PolicyName = reason, user
		in := &request.Inbound{Path: path, Host: user, Client: id, ID: id, Method: "GET"}
		data := r.appendEvent(nil, st, in, &identity.Caller{ID: user, Email: id}, &v, false)
		if _, err := value.Decode(data, value.Limits{}); err != nil {
			t.Fatalf("the event %s is not JSON: %v", data, err)
		}
	})
}

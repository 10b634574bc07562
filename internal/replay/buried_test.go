package replay

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/job"
)

// TestBuriedOfAnotherKind checks that replay ignores jobs of other kinds, whatever their payload looks
// like. Any access to a run would panic, because there is no transaction.
func TestBuriedOfAnotherKind(t *testing.T) {
	s := &Service{}
	for _, kind := range []string{"", "ide-deploy", "replays", "Replay"} {
		if err := s.HandleDead(context.Background(), nil, job.Task{Kind: kind, Payload: json.RawMessage(`{"run":1}`)}, nil); err != nil {
			t.Errorf("a job of kind %q: %v, want no error", kind, err)
		}
	}
	if kinds := s.Jobs(); len(kinds) != 1 || kinds[0].Name != JobKind {
		t.Errorf("the kinds of jobs are %v, want %s alone", kinds, JobKind)
	}
}

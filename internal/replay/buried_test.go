package replay

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/job"
)

// TestBuriedOfAnotherKind: replay ignores jobs of other kinds, whatever their payload looks like.
// Any access to a run would panic, because there is no transaction.
func TestBuriedOfAnotherKind(t *testing.T) {
	s := &Service{}
	for _, kind := range []string{"", "ide-deploy", "replays", "Replay"} {
		if err := s.HandleDead(context.Background(), nil, job.Task{Kind: kind, Payload: json.RawMessage(`{"run":1}`)}, nil); err != nil {
			t.Errorf("%q: %v", kind, err)
		}
	}
	if kinds := s.Jobs(); len(kinds) != 1 || kinds[0].Name != JobKind {
		t.Errorf("%d kinds are taken", len(kinds))
	}
}

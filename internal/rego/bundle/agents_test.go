package bundle

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// TestAgentsMeta checks that stopped agents pass through a bundle, that the bundle of an older server
// has none, that a malformed list is refused, and that the list of a tenant with the greatest number
// of agents is small.
func TestAgentsMeta(t *testing.T) {
	write := func(meta value.Value) []byte {
		t.Helper()
		data, err := Write(Spec{Revision: "1", Set: bundleSet(t), Meta: meta})
		errtest.Must(t, err)
		return data
	}
	plain := valuetest.Decode(t, `{"bouncer":{"id":1}}`)
	older := write(plain)
	b, err := readVerified(older, nil)
	if err != nil || !b.Set.Agents().IsEmpty() {
		t.Errorf("the bundle of an older server: %v, stopped %v, want nobody stopped", err, b.Set.Agents())
	}
	active := make([]int64, 10_000) // every second one: the most ranges
	for i := range active {
		active[i] = int64(2*i + 2)
	}
	clients := map[string]int64{} // as long as they may be
	for i := range 1000 {
		clients[fmt.Sprintf("%0200d", i)] = int64(i + 1)
	}
	most := actor.NewAgents(active, 20_001, clients)
	long := write(plain.With(agentsMember, AgentsMeta(most).Value))
	if grown := len(long) - len(older); grown > 512<<10 {
		t.Errorf("10,000 agents add %d bytes to a bundle, want at most 512 KiB", grown)
	}
	if b, err = readVerified(long, nil); err != nil || !bytes.Equal(b.Set.Agents().Value().AppendJSON(nil), most.Value().AppendJSON(nil)) {
		t.Errorf("10,000 agents: %v, want them as they were written", err)
	}
	for _, bad := range []string{`{"agents":"all"}`, `{"agents":null}`, `{"agents":[]}`, `{"agents":{}}`, `{"agents":{"stopped":null}}`, `{"agents":{"stopped":[7]}}`, `{"agents":{"stopped":[["1","2"]]}}`, `{"agents":{"stopped":[[2,1]]}}`} {
		if _, err := readVerified(write(valuetest.Decode(t, bad)), nil); err == nil {
			t.Errorf("the metadata %s: no error", bad)
		}
	}
	if b, err := readVerified(write(valuetest.Decode(t, `{"agents":{"stopped":[[7,7]],"later":true}}`)), nil); err != nil || !b.Set.Agents().Stops(7) {
		t.Errorf("a newer server's member beside the list: %v, want it ignored", err)
	}
}

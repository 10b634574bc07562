package request

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// TestDecodedBodiesCountAsMemory checks that a decoded body counts towards the memory of all bodies
// until it is decided on: decoding short members takes many times their size.
func TestDecodedBodiesCountAsMemory(t *testing.T) {
	store, err := bodies.Open(t.TempDir(), rand.Reader)
	errtest.Must(t, err)
	var text strings.Builder
	text.WriteString(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":0`)
	for i := range 60_000 {
		fmt.Fprintf(&text, `,"k%d":0`, i)
	}
	text.WriteString("}}}")
	body := []byte(text.String()) // some 700 KB, which decode to more than 4 MB
	read := func() *Inspection {
		s := &Inspection{Refs: lang.Refs{MCP: true}, Body: body, Whole: true, Memory: store.NewReservation(), Head: HeadOf(http.Header{"Content-Type": {"application/json"}}, int64(len(body)))}
		s.Read(&Inbound{Method: "POST", Path: "/mcp", Headers: http.Header{"Content-Type": {"application/json"}}})
		return s
	}
	others := store.NewReservation()
	others.Grow(bodies.MaxBodiesInMemory - 6<<20)
	first, second := read(), read()
	if first.RPC == nil || first.Refusal != nil {
		t.Fatalf("the first body: %v, want it read", first.Refusal)
	}
	if second.Refusal == nil || second.Refusal.Status != http.StatusServiceUnavailable {
		t.Fatalf("the second body: %v with %d bytes counted, want 503", second.Refusal, store.InMemory())
	}
	first.DropParsed()
	again := read()
	if again.Refusal != nil {
		t.Errorf("after the decision on the first body: %v, want room for the next", again.Refusal)
	}
	again.Read(&Inbound{Method: "POST", Path: "/mcp", Headers: http.Header{"Content-Type": {"application/json"}}})
	for _, s := range []*Inspection{first, second, again} {
		s.Close()
	}
	others.Release()
	if n := store.InMemory(); n != 0 {
		t.Errorf("%d bytes stay counted, want 0", n)
	}
}

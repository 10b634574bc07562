package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// Servers and tools whose joined names are equal stay distinct.
func TestToolsBelongToTheirServer(t *testing.T) {
	b := OpenTools(t.TempDir())
	b.Note("a", []mcp.Tool{{Name: "b c", Digest: "1"}})
	if changed := b.Note("a b", []mcp.Tool{{Name: "c", Digest: "2"}}); len(changed) > 0 {
		t.Errorf("a tool of another server: changed = %v, want none", changed)
	}
	if changed := b.Note("a", []mcp.Tool{{Name: "b c", Digest: "3"}}); len(changed) != 1 {
		t.Errorf("a new digest: changed = %v, want the tool", changed)
	}
}

// The memory for schemas is limited.
func TestParamMemory(t *testing.T) {
	b := OpenTools(t.TempDir())
	for i := range maxServers + 50 {
		b.Note(fmt.Sprint("server ", i), manyTools(t, 3))
	}
	if len(b.params) > maxServers {
		t.Errorf("%d servers in memory, want at most %d", len(b.params), maxServers)
	}
	b.Note("big", manyTools(t, maxDeclared+100))
	if n := len(b.Declared("big")); n != maxDeclared {
		t.Errorf("%d tools of one server in memory, want %d", n, maxDeclared)
	}
}

// manyTools returns n tools that repeat an argument.
func manyTools(t *testing.T, n int) []mcp.Tool {
	t.Helper()
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"name":"t%d","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`, i))
	}
	_, tools, err := mcp.FilterTools([]byte(`{"result":{"tools":[`+strings.Join(list, ",")+`]}}`), func(string) bool { return true })
	errtest.Must(t, err)
	return tools
}

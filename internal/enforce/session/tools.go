package session

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
)

const (
	// maxTools limits the tools whose descriptions are remembered.
	maxTools = 50_000
	// maxServers limits the servers whose tool parameters are remembered, and maxDeclared
	// the tools of each, with at most 4 KiB for each.
	maxServers  = 256
	maxDeclared = 256
	// maxToolName limits the names of those tools, in bytes.
	maxToolName = 256
	// toolsName is the file that keeps them.
	toolsName = "mcp-tools.json"
)

// Tools remembers how servers describe their tools. A tool whose description changes
// after its approval is not the tool that was approved.
type Tools struct {
	path string

	mu   sync.Mutex
	seen map[string]string // server and tool, to digest
	// listed are the tools that each server has listed to somebody.
	listed map[string][]string
	// params are the declared parameters by server and tool. A server's map is replaced
	// and never changed, so it can be read without a lock.
	params map[string]map[string][]mcp.Param
}

// OpenTools reads the remembered tools. A file that cannot be read counts as empty.
func OpenTools(dir string) *Tools {
	t := &Tools{path: filepath.Join(dir, toolsName), seen: map[string]string{}, params: map[string]map[string][]mcp.Param{}}
	if data, err := os.ReadFile(t.path); err == nil {
		if json.Unmarshal(data, &t.seen) != nil || t.seen == nil {
			t.seen = map[string]string{}
		}
	}
	return t
}

// Note remembers a list of tools, and returns those whose description changed.
func (t *Tools) Note(server string, tools []mcp.Tool) (changed []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.storeParams(server, tools)
	write := false
	for _, tool := range tools {
		key := toolKey(server, tool.Name)
		before, known := t.seen[key]
		switch {
		case known && before == tool.Digest, !known && len(t.seen) >= maxTools, len(key) > 1024:
			continue
		case known && !slices.Contains(changed, tool.Name):
			changed = append(changed, tool.Name)
		}
		t.seen[key] = tool.Digest
		delete(t.listed, server)
		write = true
	}
	if !write {
		return nil
	}
	if data, err := json.Marshal(t.seen); err == nil {
		// If this fails, a change may be reported again after a restart. The log has it
		// in any case.
		if os.WriteFile(t.path+".new", data, 0o600) == nil {
			_ = os.Rename(t.path+".new", t.path)
		}
	}
	return changed
}

// storeParams remembers which arguments a server's tools repeat in headers. A list may have
// several pages, so tools that are not in this one stay.
func (t *Tools) storeParams(server string, tools []mcp.Tool) {
	known := t.params[server]
	if !slices.ContainsFunc(tools, func(tool mcp.Tool) bool {
		return !slices.EqualFunc(known[tool.Name], tool.Params, mcp.Param.Equal)
	}) {
		return
	}
	next := maps.Clone(known)
	if next == nil {
		next = map[string][]mcp.Param{}
	}
	for _, tool := range tools {
		delete(next, tool.Name)
		if len(tool.Params) > 0 && len(tool.Name) <= maxToolName && len(next) < maxDeclared {
			next[strings.Clone(tool.Name)] = tool.Params
		}
	}
	if _, is := t.params[server]; !is && len(t.params) >= maxServers {
		for other := range t.params { // any one: its list will come again
			delete(t.params, other)
			break
		}
	}
	t.params[server] = next
	if len(next) == 0 {
		delete(t.params, server)
	}
}

// toolKey names a tool of a server. The length says where the server's name ends.
func toolKey(server, tool string) string {
	return strconv.Itoa(len(server)) + " " + server + " " + tool
}

// Names returns the tools that a server has listed. They must not be changed.
func (t *Tools) Names(server string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names, ok := t.listed[server]
	if ok {
		return names
	}
	for key := range t.seen {
		if name, ok := strings.CutPrefix(key, toolKey(server, "")); ok && len(names) < maxDeclared {
			names = append(names, name)
		}
	}
	if t.listed == nil || len(t.listed) >= maxServers {
		t.listed = map[string][]string{}
	}
	t.listed[server] = names
	return names
}

// Declared returns the parameters that a server's tools declare. They must not be changed.
func (t *Tools) Declared(server string) map[string][]mcp.Param {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.params[server]
}

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
	// maxTools bounds the tools whose descriptions are remembered.
	maxTools = 50_000
	// maxServers bounds the servers whose tools' parameters are remembered, and
	// maxDeclared the tools of each, with at most 4 KiB for each.
	maxServers  = 256
	maxDeclared = 256
	// maxToolName bounds the names that are remembered there, in bytes.
	maxToolName = 256
	// toolsName is the file that keeps them.
	toolsName = "mcp-tools.json"
)

// Tools remembers what servers say of their tools: one whose description
// changes after it was approved is not the tool that was approved.
type Tools struct {
	path string

	mu   sync.Mutex
	seen map[string]string // server and tool, to digest
	// listed are the tools by server, as far as somebody asked for them.
	listed map[string][]string
	// params are the declared parameters by server and tool. A server's map is
	// replaced and never changed, so that who has it needs no lock.
	params map[string]map[string][]mcp.Param
}

// OpenTools reads what was remembered; a file that cannot be read is as none.
func OpenTools(dir string) *Tools {
	t := &Tools{path: filepath.Join(dir, toolsName), seen: map[string]string{}, params: map[string]map[string][]mcp.Param{}}
	if data, err := os.ReadFile(t.path); err == nil {
		if json.Unmarshal(data, &t.seen) != nil || t.seen == nil {
			t.seen = map[string]string{}
		}
	}
	return t
}

// Note remembers a list of tools, and gives those that are not what they were.
func (t *Tools) Note(server string, tools []mcp.Tool) (changed []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learn(server, tools)
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
		// Should it fail, a change is reported once more after a restart, or not: the log has it.
		if os.WriteFile(t.path+".new", data, 0o600) == nil {
			_ = os.Rename(t.path+".new", t.path)
		}
	}
	return changed
}

// learn remembers which arguments a server's tools have repeated in headers. A
// list may come in pages: what is not in this one stays.
func (t *Tools) learn(server string, tools []mcp.Tool) {
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
		for other := range t.params { // any: its list comes again
			delete(t.params, other)
			break
		}
	}
	t.params[server] = next
	if len(next) == 0 {
		delete(t.params, server)
	}
}

// toolKey names a tool of a server; the length tells where the server's name ends.
func toolKey(server, tool string) string {
	return strconv.Itoa(len(server)) + " " + server + " " + tool
}

// Names are the tools that a server has listed; not to be changed.
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

// Declared are the parameters that a server's tools declare; not to be changed.
func (t *Tools) Declared(server string) map[string][]mcp.Param {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.params[server]
}

package spelling

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// A name that some decoder may read as a known one is found.
func TestNames(t *testing.T) {
	set := New("jsonrpc", "method", "taskId", "_meta", "max_tokens", "id", "task")
	for name, want := range map[string]string{
		"method": "", "METHOD": "method", "Method": "method", "methoD": "method", "taskId": "", "taskid": "taskId", "TASKID": "taskId",
		"\u212aey": "", "tas\u212aId": "taskId", "tasKId": "taskId", "max_token\u017f": "max_tokens", "j\u017fonrpc": "jsonrpc", "\u0130d": "id", "\u0131d": "id", "i\u0307d": "id",
		"_META": "_meta", "other": "", "": "", "methods": "", "me thod": "", strings.Repeat("m", 500): "",
	} {
		known, is := set.Misspelt(name)
		if is != (want != "") || is && known != want {
			t.Errorf("Misspelt(%q) = %q %v, want %q", name, known, is, want)
		}
	}
	if !set.Exact("taskId") || set.Exact("taskid") || set.Exact("x") {
		t.Error("Exact(taskId, taskid, x) is not true, false, false")
	}
}

// Every spelling that Go's decoder reads as a known name is found.
func TestGoDecodesNothingElse(t *testing.T) {
	set := New("method", "taskid", "keys")
	letters := []rune("methodaskiMETHODASKI\u212a\u017f\u0130\u0131\u0307y")
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.SampledFrom(letters), 4, 8, -1).Draw(t, "name")
		doc, err := json.Marshal(map[string]string{name: "read"})
		errtest.Must(t, err)
		var into struct {
			Method string `json:"method"`
			TaskID string `json:"taskid"`
			Keys   string `json:"keys"`
		}
		errtest.Must(t, json.Unmarshal(doc, &into))
		if _, found := set.Find(name); !found && (into.Method+into.TaskID+into.Keys) != "" {
			t.Fatalf("Find(%q) finds nothing, and Go's decoder reads a known name", name)
		}
	})
}

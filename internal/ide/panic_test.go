package ide

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// TestPanicOfAFetchIsReported checks that a panic while a repository is read is an error of the import,
// and that it is logged with its stack and counted. The token is in neither.
func TestPanicOfAFetchIsReported(t *testing.T) {
	var log bytes.Buffer
	counted := map[string]int{}
	s := &Service{Panics: &fault.Panics{Log: slog.New(slog.NewTextHandler(&log, nil)), Add: func(where string) { counted[where]++ }}}
	s.Target = nil // the missing client panics
	pack, _, err := s.fetchPack(context.Background(), source{url: "https://git.example/r.git", token: "t-hidden", branch: "main"})
	if err == nil || pack != nil || counted["git"] != 1 || !strings.Contains(log.String(), "goroutine") {
		t.Errorf("fetchPack: %v, counted %v, the log is %s, want an error that is counted and logged", err, counted, log.String())
	}
	if text := log.String() + err.Error(); strings.Contains(text, "hidden") {
		t.Errorf("log and error are %s, want no token in them", text)
	}
}

package ide

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// TestPanicOfAFetchIsTold: a panic while reading a repository is an error of the import. It is
// logged with its stack and counted; neither contains the token.
func TestPanicOfAFetchIsTold(t *testing.T) {
	var log bytes.Buffer
	counted := map[string]int{}
	s := &Service{Panics: &fault.Panics{Log: slog.New(slog.NewTextHandler(&log, nil)), Add: func(where string) { counted[where]++ }}}
	s.Target = nil // the missing client panics
	pack, _, err := s.fetchPack(context.Background(), source{url: "https://git.example/r.git", token: "t-hidden", branch: "main"})
	if err == nil || pack != nil || counted["git"] != 1 || !strings.Contains(log.String(), "goroutine") {
		t.Errorf("%v, counted %v, log %s", err, counted, log.String())
	}
	if text := log.String() + err.Error(); strings.Contains(text, "hidden") {
		t.Errorf("the token is told: %s", text)
	}
}

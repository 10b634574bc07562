package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
)

// scripted answers each request with its next answer, and records the request.
type scripted struct {
	answers  []any // a replay.Run, an error, or a func() error
	requests []string
}

func (s *scripted) Do(ctx context.Context, method, path, key string, _, out any) error {
	s.requests = append(s.requests, strings.TrimSpace(method+" "+path+" "+key))
	if len(s.answers) == 0 {
		return errors.New("the test expects no further request")
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	switch a := next.(type) {
	case error:
		return a
	case func() error:
		return a()
	case replay.Run:
		if run, ok := out.(*replay.Run); ok {
			*run = a
		}
	}
	return ctx.Err()
}

// options are those of a replay on s.
func options(s *scripted, out, progress *strings.Builder) ReplayOptions {
	return ReplayOptions{Server: s, MaxBlocked: -1, Out: out, Progress: progress, NewID: func() string { return "key" }}
}

// runAt is a run that has made some progress.
func runAt(status string, percent float64, result *replay.Impact) replay.Run {
	return replay.Run{ID: 7, Status: status, Progress: replay.Progress{Evaluated: int64(percent), Total: 100, Percent: percent}, Result: result}
}

// The command waits for the end of a run, shows its progress, and prints the result.
func TestReplayWaits(t *testing.T) {
	s := &scripted{answers: []any{runAt(replay.Running, 0, nil), runAt(replay.Running, 50, nil), runAt(replay.Completed, 100, &replay.Impact{Evaluated: 100})}}
	var out, progress strings.Builder
	errtest.Must(t, Replay(t.Context(), options(s, &out, &progress)))
	if want := []string{"POST /compliance/replays key", "GET /compliance/replays/7?wait=10", "GET /compliance/replays/7?wait=10"}; !slices.Equal(s.requests, want) {
		t.Errorf("the requests are %q, want %q", s.requests, want)
	}
	want := "replay 7 [" + strings.Repeat("-", 30) + "] 0 of 100 decisions\n" +
		"replay 7 [" + strings.Repeat("#", 15) + strings.Repeat("-", 15) + "] 50 of 100 decisions\n" +
		"replay 7 [" + strings.Repeat("#", 30) + "] 100 of 100 decisions\n"
	if progress.String() != want {
		t.Errorf("the progress is\n%s\nwant\n%s", &progress, want)
	}
	if !strings.HasPrefix(out.String(), "0 of 100 decisions") {
		t.Errorf("the output is\n%s\nwant the figures", &out)
	}
	s = &scripted{answers: []any{runAt(replay.Completed, 100, &replay.Impact{})}}
	progress.Reset()
	o := options(s, &out, &progress)
	o.Live = true
	if err := Replay(t.Context(), o); err != nil || !strings.HasPrefix(progress.String(), "\r") || strings.Count(progress.String(), "\n") != 1 {
		t.Errorf("on a terminal: %v, progress %q, want one line that is overwritten", err, &progress)
	}
}

// TestProgressBounds checks that no figures of a server make the bar longer than its width, or
// negative.
func TestProgressBounds(t *testing.T) {
	for _, percent := range []float64{-1, -1e300, 0, 3.3, 3.4, 99.99, 100, 101, 1e300} {
		var b strings.Builder
		ReplayOptions{Progress: &b}.writeProgress(runAt(replay.Running, percent, nil))
		bar := b.String()[strings.Index(b.String(), "[")+1 : strings.Index(b.String(), "]")]
		if len(bar) != 30 || strings.Trim(bar, "#-") != "" || strings.Contains(bar, "-#") {
			t.Errorf("%g %%: the bar is %q, want 30 characters", percent, bar)
		}
	}
	ReplayOptions{}.writeProgress(runAt(replay.Running, 1, nil)) // without Progress, nothing is written
}

// The command fails if more decisions than allowed would be blocked.
func TestReplayJudges(t *testing.T) {
	for _, c := range []struct {
		blocked, evaluated int64
		most               float64
		over               bool
	}{
		{1, 100, -1, false},
		{100, 100, -1, false},
		{0, 100, 0, false},
		{1, 1_000_000, 0, true},
		{1, 100, 1, false},
		{2, 100, 1, true},
		{1, 3, 33.33, true},
		{1, 3, 33.34, false},
		{100, 100, 100, false},
		{0, 0, 0, false},
	} {
		s := &scripted{answers: []any{runAt(replay.Completed, 100, &replay.Impact{NewlyBlocked: c.blocked, Evaluated: c.evaluated})}}
		var out, progress strings.Builder
		o := options(s, &out, &progress)
		o.MaxBlocked = c.most
		if err := Replay(t.Context(), o); errors.Is(err, ErrOver) != c.over || err != nil && !c.over {
			t.Errorf("%d of %d, at most %g %%: %v, want ErrOver: %v", c.blocked, c.evaluated, c.most, err, c.over)
		}
		if out.Len() == 0 {
			t.Errorf("%d of %d: no output, want the figures", c.blocked, c.evaluated)
		}
	}
}

// A run that does not complete is an error without a result.
func TestReplayFails(t *testing.T) {
	refused := errors.New("refused")
	failed := runAt(replay.Failed, 10, nil)
	failed.Error = "the log is missing"
	for want, answers := range map[string][]any{
		"refused": {refused},
		"lost":    {runAt(replay.Running, 0, nil), errors.New("lost")},
		"the replay is failed: the log is missing": {failed},
		"the replay is cancelled: ":                {runAt(replay.Cancelled, 10, &replay.Impact{})},
		"the replay is completed: ":                {runAt(replay.Completed, 100, nil)},
	} {
		var out, progress strings.Builder
		if err := Replay(t.Context(), options(&scripted{answers: answers}, &out, &progress)); err == nil || err.Error() != want || out.Len() > 0 {
			t.Errorf("%v with the output %q, want %s and none", err, &out, want)
		}
	}
}

// TestReplayInterrupted checks that an interrupt cancels the run, even if the answer to its start was
// lost.
func TestReplayInterrupted(t *testing.T) {
	for _, c := range []struct {
		what     string
		start    bool // interrupted before the start was answered
		last     any
		want     string
		requests []string
	}{
		{"while it runs", false, nil, "interrupted; replay 7 is cancelled", []string{"POST /compliance/replays key", "GET /compliance/replays/7?wait=10", "DELETE /compliance/replays/7"}},
		{"while it starts", true, nil, "interrupted; replay 7 is cancelled", []string{"POST /compliance/replays key", "POST /compliance/replays key", "DELETE /compliance/replays/7"}},
		{"and cannot be cancelled", false, errors.New("lost"), "interrupted; the replay could not be cancelled: lost", []string{"POST /compliance/replays key", "GET /compliance/replays/7?wait=10", "DELETE /compliance/replays/7"}},
	} {
		ctx, stop := context.WithCancel(t.Context())
		hangUp := func() error { stop(); return ctx.Err() }
		s := &scripted{answers: []any{runAt(replay.Running, 0, nil), hangUp, c.last}}
		if c.start {
			s.answers = []any{hangUp, runAt(replay.Running, 0, nil), c.last}
		}
		var out, progress strings.Builder
		err := Replay(ctx, options(s, &out, &progress))
		if !errors.Is(err, ErrInterrupted) || err.Error() != c.want || !slices.Equal(s.requests, c.requests) || out.Len() > 0 {
			t.Errorf("%s: %v, requests %q, output %q, want %s, %q and none", c.what, err, s.requests, &out, c.want, c.requests)
		}
		stop()
	}
}

// The result as JSON has everything, and no control characters for a terminal.
func TestReplayJSON(t *testing.T) {
	run := runAt(replay.Completed, 100, &replay.Impact{Evaluated: 3, Samples: []compare.Sample{{DecisionID: "d\x1b[2J"}}})
	var out, progress strings.Builder
	o := options(&scripted{answers: []any{run}}, &out, &progress)
	o.JSON = true
	errtest.Must(t, Replay(t.Context(), o))
	var got replay.Run
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.Result.Evaluated != 3 || got.Result.Samples[0].DecisionID != "d\x1b[2J" || strings.Contains(out.String(), "\x1b") {
		t.Errorf("the output is %s, %v, want the run, with control characters escaped", &out, err)
	}
}

// The text of a result has the figures, at most ten of each list, and nothing that controls a terminal.
func TestImpactText(t *testing.T) {
	plain := &replay.Impact{Changed: 12, Evaluated: 10_000, WindowHours: 24, SourceEnvironment: "production", ChangedPercent: 0.12, Revision: 9, NewlyBlocked: 11, NewlyBlockedPercent: 0.11, NewlyAllowed: 1}
	if got := impactText(plain); got != "12 of 10000 decisions of the last 24 h in production would flip (0.12 %), decided again with revision 9.\n"+
		"  newly blocked 11 (0.11 %), newly allowed 1; in all: blocked 0, allowed 0, masked 0\n" {
		t.Errorf("the text of the figures alone is\n%s", got)
	}
	full := *plain
	full.Drifted = replay.Drift{Total: 3, Controls: 2, Data: 1}
	full.NotReplayable = replay.NotReplayable{Total: 10, NoInput: 1, Redacted: 2, Incomplete: 3, Unreadable: 4}
	full.Note = "a note"
	for i := range 12 {
		full.ByRule = append(full.ByRule, replay.ByRule{Rule: fmt.Sprintf("rule-%02d", i), PolicyName: "p\x1b[31m", Line: i, Changed: 1})
		full.ByResource = append(full.ByResource, replay.ByResource{Name: fmt.Sprintf("resource-%02d", i), Figures: replay.Figures{Evaluated: 2, Changed: 1}})
	}
	full.Samples = []compare.Sample{{
		DecisionID: "d1", UserID: "eve\u202e", Action: "GET", Path: "/x\ny",
		Before: compare.Verdict{Effect: "ALLOW"}, After: compare.Verdict{Effect: "DENY", Reason: "no", Rule: "deny", Line: 4},
	}}
	got := impactText(&full)
	for _, want := range []string{
		"  3 differ from what was recorded without the candidate: 2 by a control's version, 1 by data\n",
		"  10 could not be decided again: 1 without input, 2 redacted, 3 incomplete, 4 unreadable\n", "  note: a note\n",
		"rule-09", "resource-09", "p·[31m", "eve· ", "GET /x·y", "ALLOW → DENY", "no (deny, line 4)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the text is\n%s\nwant %q in it", got, want)
		}
	}
	if strings.Contains(got, "rule-10") || strings.Contains(got, "resource-10") || strings.ContainsAny(got, "\x1b\u202e\r") {
		t.Errorf("the text is\n%q\nwant at most ten of each, and no control characters", got)
	}
	full.ByResource[0].Changed = 0
	if strings.Contains(impactText(&full), "RESOURCE") {
		t.Error("the text lists resources without a flip")
	}
}

// A text of others is shown on one line, without control characters.
func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain": "plain", "Zoë → 日本": "Zoë → 日本", "a\tb\x00c\x7f": "a·b·c·", "\u0085\u009b": "··", "a\u202eb\u2066c\u200f": "a·b·c·", "a\u2028b": "a·b",
		strings.Repeat("é", 120): strings.Repeat("é", 120), strings.Repeat("é", 121): strings.Repeat("é", 120) + "…",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
}

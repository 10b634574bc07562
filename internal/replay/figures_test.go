package replay

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// A share has two decimals.
func TestPercent(t *testing.T) {
	for _, c := range []struct {
		n, all int64
		want   float64
	}{{0, 0, 0}, {5, 0, 0}, {0, 10, 0}, {10, 10, 100}, {1, 3, 33.33}, {2, 3, 66.67}, {1, 8, 12.5}, {12, 10_000, 0.12}, {1, 100_000, 0}, {5, 100_000, 0.01}, {99_999_999, 100_000_000, 100}} {
		if got := percent(c.n, c.all); got != c.want {
			t.Errorf("percent(%d, %d) = %g, want %g", c.n, c.all, got, c.want)
		}
	}
}

// TestExceeds checks that the gate compares the exact share, not the rounded one.
func TestExceeds(t *testing.T) {
	for _, c := range []struct {
		blocked, evaluated int64
		threshold          float64
		want               bool
	}{{0, 0, 0, false}, {0, 10, 0, false}, {1, 100_000, 0, true}, {1, 100, 1, false}, {1001, 100_000, 1, true}, {100_001, 10_000_000, 1, true}, {100_000, 10_000_000, 1, false}, {10, 10, 100, false}} {
		if got := exceeds(Impact{NewlyBlocked: c.blocked, Evaluated: c.evaluated}, c.threshold); got != c.want {
			t.Errorf("%d of %d exceed %g %%: %v, want %v", c.blocked, c.evaluated, c.threshold, got, c.want)
		}
	}
}

// A request without members gets its defaults, and one that its credential does not allow is refused.
func TestReady(t *testing.T) {
	bound := scope.Scope{Env: scope.Sandbox, EnvBound: true}
	for what, c := range map[string]struct {
		in          Request
		sc          scope.Scope
		env, source scope.Env
		refused     fault.Kind
	}{
		"no member":                 {Request{}, scope.Scope{}, scope.Production, scope.Production, 0},
		"of the credential":         {Request{}, scope.Scope{Env: scope.Sandbox}, scope.Sandbox, scope.Sandbox, 0},
		"of the request":            {Request{Environment: scope.Sandbox}, scope.Scope{Env: scope.Production}, scope.Sandbox, scope.Sandbox, 0},
		"of another source":         {Request{Environment: scope.Sandbox, SourceEnvironment: scope.Production}, scope.Scope{}, scope.Sandbox, scope.Production, 0},
		"no environment":            {Request{Environment: "moon"}, scope.Scope{}, "", "", fault.Invalid},
		"no source":                 {Request{SourceEnvironment: "moon"}, scope.Scope{}, "", "", fault.Invalid},
		"bound":                     {Request{}, bound, scope.Sandbox, scope.Sandbox, 0},
		"bound to the other":        {Request{Environment: scope.Production}, bound, "", "", fault.Forbidden},
		"bound, of another source":  {Request{SourceEnvironment: scope.Production}, bound, "", "", fault.Forbidden},
		"bound, and no environment": {Request{SourceEnvironment: "moon"}, bound, "", "", fault.Invalid},
	} {
		got, err := c.in.ready(c.sc)
		if c.refused != 0 {
			if !fault.Is(err, c.refused) {
				t.Errorf("%s: %v, want kind %d", what, err, c.refused)
			}
			continue
		}
		if err != nil || got.Environment != c.env || got.SourceEnvironment != c.source || got.WindowHours != 24 || got.Baseline != Then || got.Data != Then || *got.Samples != 20 {
			t.Errorf("%s: %+v %v, want environment %q of source %q and the defaults", what, got, err, c.env, c.source)
		}
	}
	none := 0
	if got, err := (Request{WindowHours: 3, Baseline: Now, Samples: &none}).ready(scope.Scope{}); err != nil || got.WindowHours != 3 || got.Baseline != Now || *got.Samples != 0 {
		t.Errorf("members with values: %+v %v, want them kept", got, err)
	}
}

// TestImpactOrder checks that lists are limited, and ordered by flips, then by decisions, then by id,
// independent of map order.
func TestImpactOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	part := &compare.Part{ByControl: map[int64]*compare.Tally{}, ByResource: map[int64]*compare.Tally{}, BySubject: map[string]*compare.Tally{}, ByRule: map[compare.Rule]int64{}}
	for i := range int64(maxListed + 50) {
		tally := func() *compare.Tally {
			return &compare.Tally{Name: fmt.Sprint("n", i), Counts: compare.Counts{Changed: random.Int64N(5), Evaluated: random.Int64N(5)}}
		}
		part.ByControl[i], part.ByResource[i], part.BySubject[fmt.Sprintf("%04d", i)] = tally(), tally(), tally()
		part.ByRule[compare.Rule{PolicyID: i % 7, Rule: "r", Line: int(i)}] = random.Int64N(5)
	}
	p := &plan{recording: audit.Recording{}}
	got := p.impact(part, false, time.Second)
	if len(got.ByControl) != maxListed || len(got.ByResource) != maxListed || len(got.BySubject) != maxSubjects || len(got.ByRule) != maxListed+50 {
		t.Errorf("lists of %d, %d, %d, %d, want them limited", len(got.ByControl), len(got.ByResource), len(got.BySubject), len(got.ByRule))
	}
	less := func(a, b Figures, ids int) bool {
		return cmp.Or(cmp.Compare(b.Changed, a.Changed), cmp.Compare(b.Evaluated, a.Evaluated), ids) <= 0
	}
	for i := 1; i < len(got.ByControl); i++ {
		a, b := got.ByControl[i-1], got.ByControl[i]
		c, d := got.ByResource[i-1], got.ByResource[i]
		if !less(a.Figures, b.Figures, cmp.Compare(a.PolicyID, b.PolicyID)) || !less(c.Figures, d.Figures, cmp.Compare(c.ResourceID, d.ResourceID)) {
			t.Fatalf("place %d: %+v before %+v, %+v before %+v, want them in order", i, a, b, c, d)
		}
	}
	if !slices.IsSortedFunc(got.BySubject, func(a, b BySubject) int {
		return cmp.Or(cmp.Compare(b.Changed, a.Changed), cmp.Compare(b.Evaluated, a.Evaluated), strings.Compare(a.UserID, b.UserID))
	}) {
		t.Error("the subjects are not in order")
	}
}

// Without records, the lists are empty, not null, and the note says why.
func TestImpactOfNothing(t *testing.T) {
	p := &plan{}
	got := p.impact(&compare.Part{}, false, 0)
	if got.ByControl == nil || got.ByResource == nil || got.BySubject == nil || got.ByRule == nil || got.Samples == nil {
		t.Errorf("a list is null: %+v", got)
	}
	if got.Truncated || got.DecisionsPerSecond != 0 || got.ChangedPercent != 0 || got.Note != "no decision was recorded in the window" {
		t.Errorf("%+v, want no figures, and a note", got)
	}
}

// The figures of a run say what was evaluated, what was not, and why.
func TestImpactFigures(t *testing.T) {
	p := &plan{recorded: 100, total: 80, left: 5, notes: []string{"first"}}
	part := &compare.Part{
		Lines: 80, Counts: compare.Counts{Evaluated: 70, WouldBlock: 30, WouldAllow: 35, WouldMask: 5, Changed: 7, NewlyBlocked: 4, NewlyAllowed: 3}, NoMatch: 2, Drifted: 9, ControlDrift: 6, UnknownDrift: 1,
		NotReplayable: map[string]int64{compare.NoInput: 1, compare.Redacted: 2, compare.Incomplete: 3, compare.Unreadable: 4},
	}
	got := p.impact(part, false, 2*time.Second)
	if got.WithoutInput != 15 || got.Drifted != (Drift{Total: 9, Controls: 6, Unknown: 1, Data: 2}) || got.NotReplayable != (NotReplayable{10, 1, 2, 3, 4}) || got.ChangedPercent != 10 || got.DecisionsPerSecond != 40 || got.DurationMS != 2000 {
		t.Errorf("the figures are %+v, want those of the parts", got)
	}
	if !got.Truncated || got.Note != "first; 15 decisions have no stored input and are not part of these figures; of 1 decisions it is no longer known what decided them; the closest known state was used" {
		t.Errorf("truncated %v with the note %q, want all notes", got.Truncated, got.Note)
	}
	p.left = 0
	p.total = 100
	if got = p.impact(part, true, time.Second); !got.Truncated || got.Note != "first; of 1 decisions it is no longer known what decided them; the closest known state was used; time ran out; the newest decisions were replayed" {
		t.Errorf("after the time: truncated %v with the note %q", got.Truncated, got.Note)
	}
	p.total, p.notes = 0, nil
	if got = p.impact(&compare.Part{}, false, time.Second); !strings.HasPrefix(got.Note, "no decision in the window has a stored input") || len(p.notes) != 0 {
		t.Errorf("without stored inputs: the note is %q", got.Note)
	}
}

// The name of a test case says what was decided, and is short.
func TestCaseName(t *testing.T) {
	permit := audit.Decision{DecisionID: "d1", Decision: audit.Permit, Action: "GET"}
	shadow := permit
	shadow.Effect = "SHADOW_WOULD_DENY"
	for want, d := range map[string]audit.Decision{"decision d1 permits GET": permit, "decision d1 denies GET": shadow, "decision d1 denies": {DecisionID: "d1"}} {
		if got := caseName(d); got != want {
			t.Errorf("caseName = %q, want %q", got, want)
		}
	}
	permit.Action = strings.Repeat("é", 1000)
	if got := []rune(caseName(permit)); len(got) != maxName || got[len(got)-1] != 'é' {
		t.Errorf("a long name has %d letters, the last %q, want %d", len(got), got[len(got)-1], maxName)
	}
}

// The progress of a run is 100 % only when it is completed.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		status           string
		evaluated, total int64
		want             float64
	}{{Running, 0, 0, 0}, {Running, 1, 4, 25}, {Completed, 0, 0, 100}, {Completed, 3, 4, 100}, {Failed, 3, 4, 75}} {
		r := Run{Status: c.status, Evaluated: c.evaluated, Total: c.total}
		if r.setProgress(); r.Progress != (Progress{c.evaluated, c.total, c.want}) {
			t.Errorf("%+v: the progress is %+v", c, r.Progress)
		}
	}
}

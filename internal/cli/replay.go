package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
)

// Server sends requests to a server. *client.Client implements it.
type Server interface {
	Do(ctx context.Context, method, path, key string, in, out any) error
}

// ReplayOptions are the options of Replay.
type ReplayOptions struct {
	Server  Server
	Request replay.Request
	// MaxBlocked is the share of newly blocked decisions, in percent, above which
	// Replay returns ErrOver. A negative number sets no limit.
	MaxBlocked float64
	// JSON writes the run as JSON, instead of text.
	JSON bool
	// The result is written to Out, and the progress to Progress unless it is nil. Live means that
	// Progress is a terminal, where a line can be overwritten.
	Out, Progress io.Writer
	Live          bool
	// NewID returns a new idempotency key, so that a repeated request does not start a second run.
	NewID func() string
}

// ErrOver means that more decisions would newly be blocked than MaxBlocked allows.
var ErrOver = errors.New("the share of newly blocked decisions is over --max-blocked-percent")

// ErrInterrupted means that ctx ended before the replay did.
var ErrInterrupted = errors.New("interrupted")

// Replay starts a replay, waits for it and writes the result. If ctx ends, it also cancels the
// replay on the server, and returns ErrInterrupted.
func Replay(ctx context.Context, o ReplayOptions) error {
	var run replay.Run
	key := o.NewID()
	if err := o.Server.Do(ctx, http.MethodPost, "/compliance/replays", key, o.Request, &run); err != nil {
		if ctx.Err() != nil {
			return o.cancel(ctx, key, 0)
		}
		return err
	}
	path := fmt.Sprint("/compliance/replays/", run.ID)
	for run.Status == replay.Running {
		o.writeProgress(run)
		if err := o.Server.Do(ctx, http.MethodGet, path+"?wait=10", "", nil, &run); err != nil {
			if ctx.Err() != nil {
				return o.cancel(ctx, key, run.ID)
			}
			return err
		}
	}
	o.writeProgress(run)
	if o.Live && o.Progress != nil {
		fmt.Fprintln(o.Progress)
	}
	if run.Status != replay.Completed || run.Result == nil {
		return fmt.Errorf("the replay is %s: %s", run.Status, run.Error)
	}
	if err := o.write(run); err != nil {
		return err
	}
	if i := run.Result; o.MaxBlocked >= 0 && i.Evaluated > 0 && float64(i.NewlyBlocked)*100 > o.MaxBlocked*float64(i.Evaluated) {
		return ErrOver
	}
	return nil
}

// cancel cancels a run on the server. If the id is 0, the request to start the run got no answer,
// but the run may have begun. cancel then sends the request again with the same key, which returns
// the id.
func (o ReplayOptions) cancel(ctx context.Context, key string, id int64) error {
	short, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	if o.Live && o.Progress != nil {
		fmt.Fprintln(o.Progress)
	}
	var run replay.Run
	var err error
	if id == 0 {
		err = o.Server.Do(short, http.MethodPost, "/compliance/replays", key, o.Request, &run)
		id = run.ID
	}
	if err == nil {
		err = o.Server.Do(short, http.MethodDelete, fmt.Sprint("/compliance/replays/", id), "", nil, nil)
	}
	if err != nil {
		return fmt.Errorf("%w; the replay could not be cancelled: %w", ErrInterrupted, err)
	}
	return fmt.Errorf("%w; replay %d is cancelled", ErrInterrupted, id)
}

// writeProgress writes the progress of a run. On a terminal it overwrites one line.
func (o ReplayOptions) writeProgress(run replay.Run) {
	if o.Progress == nil {
		return
	}
	const width = 30
	done := int(min(max(run.Progress.Percent, 0), 100) * width / 100)
	line := fmt.Sprintf("replay %d [%s%s] %d of %d decisions", run.ID, strings.Repeat("#", done), strings.Repeat("-", width-done), run.Progress.Evaluated, run.Progress.Total)
	if o.Live {
		fmt.Fprint(o.Progress, "\r"+line)
		return
	}
	fmt.Fprintln(o.Progress, line)
}

func (o ReplayOptions) write(run replay.Run) error {
	if o.JSON {
		return writeJSON(o.Out, run)
	}
	_, err := io.WriteString(o.Out, impactText(run.Result))
	return err
}

// impactText returns an impact as text.
func impactText(i *replay.Impact) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d decisions of the last %d h in %s would flip (%g %%), decided again with revision %d.\n",
		i.Changed, i.Evaluated, i.WindowHours, i.SourceEnvironment, i.ChangedPercent, i.Revision)
	fmt.Fprintf(&b, "  newly blocked %d (%g %%), newly allowed %d; in all: blocked %d, allowed %d, masked %d\n",
		i.NewlyBlocked, i.NewlyBlockedPercent, i.NewlyAllowed, i.WouldBlock, i.WouldAllow, i.WouldMask)
	if d := i.Drifted; d.Total > 0 {
		fmt.Fprintf(&b, "  %d differ from what was recorded without the candidate: %d by a control's version, %d by data\n", d.Total, d.Controls, d.Data)
	}
	if n := i.NotReplayable; n.Total > 0 {
		fmt.Fprintf(&b, "  %d could not be decided again: %d without input, %d redacted, %d incomplete, %d unreadable\n", n.Total, n.NoInput, n.Redacted, n.Incomplete, n.Unreadable)
	}
	if i.Note != "" {
		fmt.Fprintf(&b, "  note: %s\n", i.Note)
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(i.ByRule) > 0 {
		fmt.Fprintln(w, "\nRULE\tLINE\tCONTROL\tFLIPS")
		for _, r := range i.ByRule[:min(10, len(i.ByRule))] {
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\n", oneLine(r.Rule), r.Line, oneLine(r.PolicyName), r.Changed)
		}
	}
	if len(i.ByResource) > 0 && i.ByResource[0].Changed > 0 {
		fmt.Fprintln(w, "\nRESOURCE\tDECISIONS\tFLIPS")
		for _, r := range i.ByResource[:min(10, len(i.ByResource))] {
			fmt.Fprintf(w, "%s\t%d\t%d\n", oneLine(r.Name), r.Evaluated, r.Changed)
		}
	}
	if len(i.Samples) > 0 {
		fmt.Fprintln(w, "\nDECISION\tSUBJECT\tREQUEST\tFLIP\tWHY")
		for _, s := range i.Samples {
			fmt.Fprintf(w, "%s\t%s\t%s %s\t%s → %s\t%s\n", oneLine(s.DecisionID), oneLine(s.UserID), oneLine(s.Action), oneLine(s.Path), s.Before.Effect, s.After.Effect, sampleReason(s))
		}
	}
	_ = w.Flush()
	return b.String()
}

func sampleReason(s compare.Sample) string {
	out := oneLine(s.After.Reason)
	if s.After.Rule != "" {
		out += fmt.Sprintf(" (%s, line %d)", oneLine(s.After.Rule), s.After.Line)
	}
	return out
}

// oneLine makes text from a server safe for one line of a terminal. It replaces control characters
// and characters that change the direction of text, and truncates the text to 120 characters.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if isUnsafe(r) {
			return '·'
		}
		return r
	}, s)
	const most = 120
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

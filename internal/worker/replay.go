package worker

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const opReplay = "replay"

// Limits of replays. Each replay has a child of its own. The replays of a process take turns, one
// step at a time. So they never use more than one processor, and do not use the children of the
// pool.
const (
	replaysAtOnce    = 4
	replaysPerTenant = 2
	replayMemory     = 192 << 20
	// ReplayStepBytes limits the records in one step.
	ReplayStepBytes = 4 << 20
	// replayStep is how long one step may take, and replayStart how long the controls may
	// take to compile.
	replayStep  = 20 * time.Second
	replayStart = 20 * time.Second
	// replayAnswer is how long a child computes before it sends a partial answer.
	replayAnswer = 300 * time.Millisecond
	// resourceChunk limits one message with resources, in bytes.
	resourceChunk = 4 << 20
)

// replays limits the number of replays and gives them turns.
type replays struct {
	slots   chan struct{}
	turn    chan struct{}
	mu      sync.Mutex
	tenants map[scope.TenantID]*tenantSlots
}

type tenantSlots struct {
	taken chan struct{}
	users int
}

func newReplays() *replays {
	return &replays{slots: make(chan struct{}, replaysAtOnce), turn: make(chan struct{}, 1), tenants: map[scope.TenantID]*tenantSlots{}}
}

// acquire waits for a slot of the tenant and then for one of the process.
func (r *replays) acquire(ctx context.Context, tenant scope.TenantID) (leave func(), err error) {
	r.mu.Lock()
	mine := r.tenants[tenant]
	if mine == nil {
		mine = &tenantSlots{taken: make(chan struct{}, replaysPerTenant)}
		r.tenants[tenant] = mine
	}
	mine.users++
	r.mu.Unlock()
	forgetTenant := func() {
		r.mu.Lock()
		if mine.users--; mine.users == 0 {
			delete(r.tenants, tenant)
		}
		r.mu.Unlock()
	}
	if err := acquireSlot(ctx, mine.taken); err != nil {
		forgetTenant()
		return nil, err
	}
	if err := acquireSlot(ctx, r.slots); err != nil {
		<-mine.taken
		forgetTenant()
		return nil, err
	}
	return func() { <-r.slots; <-mine.taken; forgetTenant() }, nil
}

func acquireSlot(ctx context.Context, c chan struct{}) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "replay_busy", "other replays are running; try again later").After(5 * time.Second).Because(ctx.Err())
	}
}

// Replay is a running replay with its child. Only one goroutine may use it. Close ends it.
type Replay struct {
	owner   *replays
	proc    *process
	release func()
	panics  *fault.Panics
}

// Replay starts a replay in a new child. Faults: those of Check, and Invalid "invalid_policy" with
// the issues of controls that do not compile.
func (p *Pool) Replay(ctx context.Context, tenant scope.TenantID, spec compare.Spec) (*Replay, error) {
	leave, err := p.replays.acquire(ctx, tenant)
	if err != nil {
		return nil, err
	}
	cfg := p.cfg
	cfg.Memory = replayMemory
	proc, err := start(cfg)
	if err != nil {
		leave()
		return nil, fault.New(fault.Unavailable, "worker_unavailable", "the evaluator could not be started").After(time.Second).Because(err)
	}
	r := &Replay{owner: p.replays, proc: proc, release: leave, panics: p.cfg.Panics}
	var rep reply
	err = r.step(ctx, replayStart, func() error {
		if err := sendSpec(proc.in, spec); err != nil {
			return err
		}
		return readFrame(proc.out, &rep)
	})
	reportPanics(ctx, r.panics, rep)
	switch {
	case err != nil:
	case len(rep.Refused) > 0:
		err = refusedFault(spec, rep.Refused)
	case rep.Error != "":
		err = fault.New(fault.Invalid, "evaluation_failed", rep.Error)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Run decides recorded requests again. lines are entries of the decision log, newest first, with a
// total size of about ReplayStepBytes. Run may return before it has decided all of them: Part.Lines
// is the number of decided lines, and the caller sends the rest again. After an error, the replay
// must be closed. Faults: Invalid "evaluation_limit" if the child exceeded its time or memory
// limit, Unavailable if ctx ended.
func (r *Replay) Run(ctx context.Context, lines [][]byte) (*compare.Part, error) {
	var rep reply
	err := r.step(ctx, replayStep, func() error {
		if err := writeLines(r.proc.in, lines); err != nil {
			return err
		}
		return readFrame(r.proc.out, &rep)
	})
	reportPanics(ctx, r.panics, rep)
	if err == nil && rep.Error != "" {
		err = fault.New(fault.Invalid, "evaluation_failed", rep.Error)
	}
	if err == nil && rep.Part == nil {
		err = fault.Wrap(errors.New("the child sent no answer"), "replay")
	}
	return rep.Part, err
}

// step runs do within the limit, when it is the turn of this replay.
func (r *Replay) step(ctx context.Context, limit time.Duration, do func() error) error {
	if err := acquireSlot(ctx, r.owner.turn); err != nil {
		return err
	}
	defer func() { <-r.owner.turn }()
	return r.proc.runLimited(ctx, limit, do)
}

// Close ends the child.
func (r *Replay) Close() {
	r.proc.kill()
	r.release()
}

func refusedFault(spec compare.Spec, refused []compare.Refused) error {
	f := fault.New(fault.Invalid, "invalid_policy", "the control does not compile")
	var all []lang.Issue
	for _, c := range refused {
		for _, is := range c.Issues {
			name := spec.Controls[c.Control].Name
			f.Details = append(f.Details, fault.Detail{Pointer: "/rego_code", Message: name + ": " + is.Message, Line: is.Line, Column: is.Column})
			all = append(all, is)
		}
	}
	return f.With("errors", all)
}

// sendSpec writes the request, and then the resources and their earlier versions in separate
// messages.
func sendSpec(w io.Writer, spec compare.Spec) error {
	now, err := chunked(spec.Resources)
	if err != nil {
		return err
	}
	past, err := chunked(spec.Past)
	if err != nil {
		return err
	}
	spec.Resources, spec.Past = nil, nil
	if err := writeFrame(w, request{Op: opReplay, Replay: &spec, Chunks: len(now), PastChunks: len(past)}); err != nil {
		return err
	}
	for _, c := range append(now, past...) {
		if err := writeRaw(w, c); err != nil {
			return err
		}
	}
	return nil
}

// chunked encodes a list in several parts of about resourceChunk bytes.
func chunked[T any](list []T) (chunks [][]byte, err error) {
	for len(list) > 0 {
		chunk := []byte{'['}
		n := 0
		for ; n < len(list) && len(chunk) < resourceChunk; n++ {
			text, err := json.Marshal(list[n])
			if err != nil {
				return nil, fmt.Errorf("encode a resource: %w", err)
			}
			if n > 0 {
				chunk = append(chunk, ',')
			}
			chunk = append(chunk, text...)
		}
		chunks, list = append(chunks, append(chunk, ']')), list[n:]
	}
	return chunks, nil
}

// readChunks reads what chunked wrote.
func readChunks[T any](in io.Reader, n int) (list []T, err error) {
	for range n {
		chunk, err := readRaw(in, nil)
		if err != nil {
			return nil, err
		}
		var some []T
		if err := json.Unmarshal(chunk, &some); err != nil {
			return nil, fmt.Errorf("decode resources: %w", err)
		}
		list = append(list, some...)
	}
	return list, nil
}

// writeRaw writes an encoded message.
func writeRaw(w io.Writer, body []byte) error {
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err := w.Write(append(frame, body...))
	return err
}

// readRaw reads a message into buf.
func readRaw(r io.Reader, buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes is over the limit of %d", n, maxFrame)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	_, err := io.ReadFull(r, buf)
	return buf, err
}

// writeLines writes log entries as one message, each prefixed with its length. They are already
// JSON.
func writeLines(w io.Writer, lines [][]byte) error {
	size := 0
	for _, l := range lines {
		size += len(l) + binary.MaxVarintLen32
	}
	body := make([]byte, 0, size)
	for _, l := range lines {
		body = append(binary.AppendUvarint(body, uint64(len(l))), l...)
	}
	return writeRaw(w, body)
}

// splitLines splits a message of writeLines. The result shares its memory.
func splitLines(body []byte) ([][]byte, error) {
	var out [][]byte
	for len(body) > 0 {
		n, k := binary.Uvarint(body)
		if k <= 0 || n > uint64(len(body)-k) {
			return nil, errors.New("a message with records is broken")
		}
		out = append(out, body[k:k+int(n)])
		body = body[k+int(n):]
	}
	return out, nil
}

// replay runs a replay in the child. It first reports whether the controls compile, and then
// answers each message until the input ends.
func (c *child) replay(ctx context.Context, req request, in io.Reader, out io.Writer) error {
	spec := *req.Replay
	var err error
	if spec.Resources, err = readChunks[target.Resource](in, req.Chunks); err != nil {
		return err
	}
	if spec.Past, err = readChunks[compare.Past](in, req.PastChunks); err != nil {
		return err
	}
	spec.Caught = c.addPanic
	m, refused, err := compare.New(spec, time.Now)
	rep := reply{Refused: refused}
	if err != nil {
		rep.Error = err.Error()
	}
	if err := writeFrame(out, rep); err != nil || m == nil {
		return err
	}
	var buf []byte
	for {
		if buf, err = readRaw(in, buf); err != nil {
			return err
		}
		if err := writeFrame(out, c.withPanics(c.runLines(ctx, m, buf))); err != nil {
			return err
		}
	}
}

func (c *child) runLines(ctx context.Context, m *compare.Comparer, body []byte) (rep reply) {
	defer func() {
		if p := recover(); p != nil {
			rep = c.panicReply(p)
		}
	}()
	lines, err := splitLines(body)
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Part: m.Run(ctx, lines, replayAnswer)}
}

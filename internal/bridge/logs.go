package bridge

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// MaxLogBytes is the largest size of a chunk of a decision log after decompression, in
// bytes.
const MaxLogBytes = 64 << 20

// eventsPerCall is how many events go to the audit in one call.
const eventsPerCall = 200

// Intake is the result of receiving a chunk of a decision log.
type Intake struct {
	Accepted int `json:"accepted" doc:"Number of events that are stored safely."`
	SetAside int `json:"set_aside" doc:"Number of events that could not be read and were set aside."`
}

// logEvent is an event of OPA's decision log (its Decision Log Service API), with the
// members that a gatehouse bouncer adds under custom.
type logEvent struct {
	DecisionID  string          `json:"decision_id"`
	Timestamp   time.Time       `json:"timestamp"`
	Path        string          `json:"path"`
	RequestedBy string          `json:"requested_by"`
	Input       json.RawMessage `json:"input"`
	Result      json.RawMessage `json:"result"`
	Error       json.RawMessage `json:"error"`
	Trace       json.RawMessage `json:"intermediate_results"`
	Bundles     map[string]struct {
		Revision string `json:"revision"`
	} `json:"bundles"`
	Metrics map[string]json.RawMessage `json:"metrics"`
	Custom  logCustom                  `json:"custom"`
}

type logCustom struct {
	Mode       string `json:"mode"`
	Outcome    string `json:"outcome"`
	CacheHit   bool   `json:"cache_hit"`
	RequestID  string `json:"request_id"`
	AuditLevel string `json:"audit_level"`
	// Evaluated lists the ids of the controls that ran, if they differ from the one
	// that the result names.
	Evaluated json.RawMessage `json:"evaluated"`
	// Trace and Explanation come from gatehouse bouncers, at audit levels detailed and
	// comprehensive.
	Trace       json.RawMessage `json:"trace"`
	Explanation json.RawMessage `json:"explanation"`
	// Event is decisions_missing if the event reports that decisions could not be logged.
	Event string `json:"event"`
	// Agent is the AI agent that asked. A stock OPA does not say; then the input does.
	Agent *actor.AgentUse `json:"agent"`
	// Folded is set if the event stands for many refusals.
	Folded *audit.FoldedCount `json:"folded"`
}

// logResult is the value of data.gatehouse.decision.
type logResult struct {
	Decision      string  `json:"decision"`
	Allow         *bool   `json:"allow"`
	Effect        string  `json:"effect"`
	Reason        string  `json:"reason"`
	PolicyID      int64   `json:"policy_id"`
	PolicyName    *string `json:"policy_name"`
	PolicyVersion int64   `json:"policy_version"`
	ResourceID    int64   `json:"resource_id"`
}

// logInput is the part of an input that the log stores at every level.
type logInput struct {
	User struct {
		ID    any `json:"id"`
		Email any `json:"email"`
	} `json:"user"`
	Action struct {
		Name   any `json:"name"`
		Method any `json:"method"`
	} `json:"action"`
	Resource struct {
		ID   any `json:"id"`
		Type any `json:"type"`
		Path any `json:"path"`
	} `json:"resource"`
	Context struct {
		IP any `json:"ip_address"`
	} `json:"context"`
	Request struct {
		Method any `json:"method"`
		Path   any `json:"path"`
	} `json:"request"`
}

// Logs receives a chunk of a bouncer's decision log: a JSON array, gzipped or not. It
// never refuses a chunk for its content: events that it cannot read are set aside. When
// it returns without an error, all accepted events are stored safely. After an error
// the bouncer must send the chunk again; events that were already stored are recognised
// by their ids. Faults: BadRequest when the body is incomplete, TooLarge beyond
// MaxLogBytes, Unavailable when the audit accepts nothing.
func (s *Service) Logs(ctx context.Context, sc scope.Scope, token string, body io.Reader) (Intake, error) {
	f, d, err := s.bouncerState(ctx, sc, token)
	if err != nil {
		return Intake{}, err
	}
	in := intake{svc: s, environment: f, bouncer: d.id, body: bodyReader{in: body}}
	if err = in.read(ctx); err == nil {
		d.noteDelivery()
	}
	s.activity.add(f.tenant, d, activity{seen: s.cfg.Now()})
	return in.out, err
}

// intake reads one chunk.
type intake struct {
	svc         *Service
	environment *environment
	bouncer     int64
	body        bodyReader
	levels      map[int64]target.Resource
	batch       []audit.Decision
	ran         [][]int64 // the controls that were evaluated, for each event in batch
	out         Intake
}

// bodyReader records whether a body was read to its end.
type bodyReader struct {
	in    io.Reader
	whole bool
}

// Read implements io.Reader.
func (c *bodyReader) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.whole = c.whole || err == io.EOF //nolint:errorlint // net/http wraps the end of a body that broke off, and never a good one
	return n, err
}

func (in *intake) read(ctx context.Context) error {
	stream, err := decompress(&in.body)
	if err != nil {
		return in.invalidChunk(err)
	}
	events := newElementReader(stream)
	for {
		element, whole, err := events.next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			if ferr := in.flush(ctx); ferr != nil {
				return ferr
			}
			return in.invalidChunk(err)
		}
		var d audit.Decision
		var ran []int64
		if whole {
			d, ran, err = in.decision(element)
		} else {
			err = errors.New("the event is too large")
		}
		if err != nil {
			in.setAside(element, err)
			continue
		}
		in.ran = append(in.ran, ran)
		if in.batch = append(in.batch, d); len(in.batch) == eventsPerCall {
			if err := in.flush(ctx); err != nil {
				return err
			}
		}
	}
	return in.flush(ctx)
}

// unpacked returns the JSON of a body, and reads at most MaxLogBytes of it.
func decompress(body io.Reader) (io.Reader, error) {
	var magic [2]byte
	n, err := io.ReadFull(body, magic[:])
	if err != nil && n == 0 {
		return nil, ended(err)
	}
	whole := io.MultiReader(bytes.NewReader(magic[:n]), body)
	if n < 2 || magic != [2]byte{0x1f, 0x8b} {
		return &bounded{in: whole, left: MaxLogBytes}, nil
	}
	z, err := gzip.NewReader(whole)
	if err != nil {
		return nil, err
	}
	return &bounded{in: z, left: MaxLogBytes}, nil
}

// errTooLarge reports a chunk that unpacks to more than MaxLogBytes.
var errTooLarge = errors.New("too much")

type bounded struct {
	in   io.Reader
	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.in.Read(p)
	b.left -= int64(n)
	return n, err
}

// invalidChunk returns the result for a chunk whose stream ended with err. A chunk that is not a
// log, or that ends in the middle although all of it arrived, would be sent again forever, so it
// counts as received. A chunk that was cut off in transit must be sent again.
func (in *intake) invalidChunk(err error) error {
	if known, ok := errors.AsType[*fault.Error](err); ok {
		return known // an error of the reader of the body
	}
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	switch {
	case errors.Is(err, errTooLarge):
		return fault.Newf(fault.TooLarge, "payload_too_large", "a chunk may unpack to at most %d bytes", MaxLogBytes)
	case errors.Is(err, errNoArray), errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), corrupt, in.body.whole:
		in.setAside([]byte("(a chunk that is not a decision log)"), err)
		return nil
	}
	return fault.New(fault.BadRequest, "incomplete_body", "the chunk is incomplete").Because(err)
}

func (in *intake) setAside(line []byte, why error) {
	in.out.SetAside++
	in.svc.cfg.Audit.SetAside(in.environment.tenant, in.bouncer, line, why)
}

func (in *intake) flush(ctx context.Context) error {
	if len(in.batch) == 0 {
		return nil
	}
	refused, err := in.svc.cfg.Audit.Ingest(ctx, in.environment.tenant, in.batch)
	if err != nil {
		return err
	}
	in.out.SetAside += len(refused)
	in.out.Accepted += len(in.batch) - len(refused)
	for i := range in.batch {
		d := &in.batch[i]
		for _, id := range in.ran[i] {
			in.svc.cfg.Observe(in.environment.tenant, id, time.Duration(d.EvaluationTimeMS*float64(time.Millisecond))/time.Duration(len(in.ran[i])), d.CacheHit)
		}
	}
	in.batch, in.ran = in.batch[:0], in.ran[:0]
	return nil
}

// maxEvaluated is the largest number of controls that one event can count for.
const maxEvaluated = 1000

// evaluated returns the controls for which an event counts an evaluation: those that a
// gatehouse bouncer lists, else the one that decided. A stock OPA names only that one,
// so controls that it ran and that did not decide are not counted.
func evaluated(e *logEvent, deciding int64) []int64 {
	var ids []int64
	if json.Unmarshal(e.Custom.Evaluated, &ids) == nil && len(ids) > 0 && len(ids) <= maxEvaluated {
		return ids
	}
	if deciding == 0 {
		return nil
	}
	return []int64{deciding}
}

// decision converts an event to an audit entry. Tenant and environment come from the
// token, whatever the event says. It also returns the controls that were evaluated.
func (in *intake) decision(element []byte) (audit.Decision, []int64, error) {
	var e logEvent
	if err := json.Unmarshal(element, &e); err != nil {
		return audit.Decision{}, nil, err
	}
	if e.DecisionID == "" {
		return audit.Decision{}, nil, errors.New("the event has no decision_id")
	}
	d := audit.Decision{
		DecisionID: e.DecisionID, Timestamp: e.Timestamp, Decision: audit.Deny, Environment: in.environment.env, BouncerID: in.bouncer,
		RequestID: e.Custom.RequestID, CacheHit: e.Custom.CacheHit, Mode: e.Custom.Mode, IPAddress: hostOnly(e.RequestedBy),
		EvaluationTimeMS: nanoseconds(e.Metrics["timer_rego_query_eval_ns"]), Error: errorText(e.Error),
		Input: bytes.Clone(e.Input), Trace: bytes.Clone(e.Trace), Explanation: bytes.Clone(e.Custom.Explanation),
	}
	if len(e.Custom.Trace) > 0 {
		d.Trace = bytes.Clone(e.Custom.Trace)
	}
	for _, b := range e.Bundles {
		d.Revision, _ = strconv.ParseInt(b.Revision, 10, 64)
	}
	in.verdict(&d, &e)
	in.folded(&d, &e)
	in.subject(&d, e.Input)
	in.level(&d, e.Custom.AuditLevel)
	in.examine(&d, &e)
	if len(e.Result) == 0 && d.AuditLevel == audit.Basic {
		d.Input = nil // no control decided, so there is nothing to replay
	}
	return d, evaluated(&e, d.PolicyID), nil
}

// verdict reads the result: ours, or that of the bouncer's own query.
func (in *intake) verdict(d *audit.Decision, e *logEvent) {
	var r logResult
	if json.Unmarshal(e.Result, &r) == nil {
		if r.Decision == audit.Permit || r.Decision == "" && r.Allow != nil && *r.Allow {
			d.Decision = audit.Permit
		}
		d.Effect, d.Reason, d.PolicyID, d.PolicyVersion, d.ResourceID = r.Effect, r.Reason, r.PolicyID, r.PolicyVersion, r.ResourceID
		if r.PolicyID != 0 {
			d.PolicyName = r.PolicyName
		}
	} else if string(bytes.TrimSpace(e.Result)) == "true" {
		d.Decision = audit.Permit
	}
	if d.Reason == "" && len(e.Result) == 0 {
		d.Reason = "the query " + strings.TrimPrefix(e.Path, "/") + " has no result"
	}
	if strings.HasPrefix(e.Custom.Outcome, "SHADOW_WOULD_") {
		d.Effect = e.Custom.Outcome
	}
}

// maxFolded is the largest number of refusals that one event of a bouncer may stand
// for.
const maxFolded = 1 << 40

// folded copies the number of refusals that an event stands for. It ignores the number
// for permitted requests, and a number that is impossible.
func (in *intake) folded(d *audit.Decision, e *logEvent) {
	d.Gap = e.Custom.Event == "decisions_missing"
	if c := e.Custom.Folded; c != nil && d.Decision == audit.Deny && c.Count > 0 && c.Count < maxFolded && !c.First.IsZero() && !c.Last.Before(c.First) {
		c.By, c.Digest = clipped(c.By, 16), clipped(c.Digest, 64)
		d.Folded = c
	}
}

func clipped(s string, most int) string {
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}

func (in *intake) subject(d *audit.Decision, input []byte) {
	var i logInput
	if json.Unmarshal(input, &i) != nil {
		return
	}
	d.User = audit.User{ID: textOf(i.User.ID), Email: textOf(i.User.Email)}
	d.Action = firstOf(textOf(i.Action.Name), textOf(i.Action.Method), textOf(i.Request.Method))
	d.Resource = audit.Resource{ID: textOf(i.Resource.ID), Type: textOf(i.Resource.Type), Path: firstOf(textOf(i.Resource.Path), textOf(i.Request.Path))}
	d.IPAddress = firstOf(textOf(i.Context.IP), d.IPAddress)
}

// level returns the audit level of the resource as it is registered here. The bouncer's
// value only counts if the resource has none.
func (in *intake) level(d *audit.Decision, said string) {
	if in.levels == nil {
		in.levels = map[int64]target.Resource{}
		if set := in.environment.currentSet(); set != nil {
			for _, r := range set.Resources() {
				in.levels[r.ID] = r
			}
		}
	}
	d.AuditLevel = audit.LevelOf(said)
	if r, ok := in.levels[d.ResourceID]; ok {
		d.AuditLevel, d.RegulationTags = audit.LevelOf(r.AuditLevel), r.Tags
		if d.Resource.Type == "" {
			d.Resource.Type = r.Type
		}
	}
}

// examine finds the AI agent in the input, unless the bouncer names it, and values that must not appear in the event's texts: a control may have
// copied into its reason what its input has under a secret name. A gatehouse bouncer,
// which sends no complete input at the lower audit levels, has already removed them.
func (in *intake) examine(d *audit.Decision, e *logEvent) {
	d.Agent = e.Custom.Agent
	if v, err := value.Decode(e.Input, value.Limits{Depth: inputDepth}); err == nil {
		d.Hidden = redact.FindSecrets(v)
		if d.Agent == nil {
			d.Agent = in.environment.agents().Find(v.Get("user"), v.Get("mcp"), v.Get("llm"))
		}
	}
	if r, ok := in.levels[d.ResourceID]; ok {
		d.Hidden = d.Hidden.With(r.Doc, false)
	}
}

// inputDepth is how deep the search for secrets goes into an input.
const inputDepth = 512

// textOf converts a string or number to text.
func textOf(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return ""
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

// hostOnly removes the port from an address.
func hostOnly(addr string) string {
	if i := strings.LastIndexByte(addr, ':'); i > 0 && strings.IndexByte(addr, ':') == i || strings.HasPrefix(addr, "[") && i > 0 {
		return strings.Trim(addr[:i], "[]")
	}
	return addr
}

func nanoseconds(raw json.RawMessage) float64 {
	var n float64
	if json.Unmarshal(raw, &n) != nil || n < 0 {
		return 0
	}
	return n / 1e6
}

// errorText returns the error of an event: OPA's object, or a text.
func errorText(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var e struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(raw, &e) == nil && e.Message != "" {
		return e.Message
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return "error"
}

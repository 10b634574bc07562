package enforce

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// errTapFull ends a listener that has no room for more.
var errTapFull = errors.New("the list is too long to be listened to")

// toolTap listens in shadow mode to what a server lists, so that a changed
// description is noticed there too. The answer goes on as it came.
type toolTap struct {
	b *Bouncer
	// list is set once the request asks for the tools.
	list   atomic.Bool
	listed func([]mcp.Tool)
}

// tapTools has the answer listened to where a request may list the tools of an
// MCP server. What it asks for is known when it was read (asked), which is
// before a server answers it.
func (b *Bouncer) tapTools(r *http.Request, st *settings.State, in *request.Inbound, who *identity.Caller, v *verdict) *toolTap {
	if !in.Seen.Refs.MCP {
		return nil
	}
	h := &toolTap{b: b}
	// The request is decided on by others meanwhile: what is told here is told by itself.
	told := *in
	told.Seen = &request.Inspection{Refs: in.Seen.Refs, RPC: &mcp.Message{Method: "tools/list", Session: in.Seen.Head.MCP.Session, Version: in.Seen.Head.MCP.Version}}
	ctx := context.WithoutCancel(r.Context())
	h.listed = func(tools []mcp.Tool) {
		noted := verdict{mode: settings.Shadowing, pass: true, word: metrics.PassThrough, no: request.Refusal{Code: "ok"}}
		noted.dec.Resource = st.Set.Match(told.Locator())
		b.noteTools(ctx, st, &told, who, &noted, tools)
	}
	h.list.Store(b.resumes(r, st, in))
	v.tapAnswer = h.tapAnswer
	return h
}

// noteRequest is told the request's body.
func (h *toolTap) noteRequest(body []byte) {
	if h == nil || !bytes.Contains(body, []byte("tools")) {
		return
	}
	if doc, err := value.Decode(body, value.Limits{Depth: bodies.MaxDepth, Bytes: bodies.MaxInMemory}); err == nil {
		if method, _ := doc.Get("method").Str(); method == "tools/list" {
			h.list.Store(true)
		}
	}
}

// tapAnswer taps an answer.
func (h *toolTap) tapAnswer(ans *upstream.Answer) (done func()) {
	kind := ans.Header.Get("Content-Type")
	if ans.StatusCode != http.StatusOK || !bodies.IsEvents(kind) && !bodies.IsJSON(kind) {
		return func() {}
	}
	ear := &tapWriter{tap: h}
	ear.rules.Rewrite = func(doc []byte) ([]byte, error) {
		if _, tools, err := mcp.FilterTools(doc, func(string) bool { return true }); err == nil && len(tools) > 0 {
			h.listed(tools)
		}
		return doc, nil
	}
	packed := len(ans.Header["Content-Encoding"]) > 0
	if bodies.IsEvents(kind) && !packed {
		ear.to = ear.rules.EventsTo(func([]byte) error { return nil })
	}
	ans.Body = bodies.Tapped{ReadCloser: ans.Body, To: ear}
	return func() { ear.finish(ans, bodies.IsEvents(kind)) }
}

// tapWriter reads an answer that is handed on: events as they come, a document,
// or what is packed, whole and up to maxMasked bytes.
type tapWriter struct {
	tap     *toolTap
	rules   mask.Rules
	to      rewriter
	data    []byte
	stopped bool
}

// Write implements io.Writer. It takes all, whatever becomes of it.
func (e *tapWriter) Write(p []byte) (int, error) {
	if e.stopped || len(p) == 0 || !e.tap.list.Load() {
		return len(p), nil
	}
	if err := e.collect(p); err != nil {
		e.stop()
	}
	return len(p), nil
}

// collect is contained: a document that nobody thought of must not end the answer.
func (e *tapWriter) collect(p []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.tap.b.panicked(context.Background(), "reading an answer's tools panicked", p, "")
			err = errTapFull
		}
	}()
	if e.to != nil {
		_, err = e.to.Write(p)
		return err
	}
	if len(e.data)+len(p) > maxMasked || e.tap.b.shadowBytes.Add(int64(len(p))) > bodies.MaxShadow {
		if len(e.data)+len(p) <= maxMasked {
			e.tap.b.shadowBytes.Add(-int64(len(p)))
		}
		return errTapFull
	}
	e.data = append(e.data, p...)
	return nil
}

// stop gives the memory back.
func (e *tapWriter) stop() {
	e.tap.b.shadowBytes.Add(-int64(len(e.data)))
	e.stopped, e.data = true, nil
}

// finish reads what was gathered.
func (e *tapWriter) finish(ans *upstream.Answer, streamed bool) {
	defer func() {
		if p := recover(); p != nil {
			e.tap.b.panicked(context.Background(), "reading an answer's tools panicked", p, "")
		}
		e.stop()
	}()
	if e.stopped || len(e.data) == 0 {
		return
	}
	doc := e.data
	if len(ans.Header["Content-Encoding"]) > 0 {
		src, err := unpacked(ans, bytes.NewReader(doc))
		if err != nil {
			return
		}
		// What broke off may hold whole events; a document that did is none.
		doc, err = io.ReadAll(io.LimitReader(src, maxMasked+1))
		if len(doc) > maxMasked || err != nil && !errors.Is(err, gzip.ErrChecksum) && !streamed {
			return
		}
	}
	if streamed {
		to := e.rules.EventsTo(func([]byte) error { return nil })
		_, _ = to.Write(doc)
		return
	}
	_, _ = e.rules.Rewrite(doc)
}

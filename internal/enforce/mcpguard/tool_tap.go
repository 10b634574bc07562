package mcpguard

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
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/maskbody"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// errTapFull means that a list is too long to be kept in memory.
var errTapFull = errors.New("the list is too long to be read along")

// toolTap reads the lists of tools in shadow mode, so that changed descriptions are noticed there
// too. It does not change the answer.
type toolTap struct {
	g *Guard
	// list is set if the answer may list tools.
	list   atomic.Bool
	listed func([]mcp.Tool)
}

// Tap reads the answer to a request that may list the tools of an MCP server. NoteRequest decides
// that by the request's body, which is read before the server answers.
func (g *Guard) Tap(r *http.Request, st *settings.State, in *request.Inbound, who *identity.Caller, v *judge.Verdict) *toolTap {
	if !in.Seen.Refs.MCP {
		return nil
	}
	h := &toolTap{g: g}
	// The request is evaluated at the same time, so this uses a copy.
	told := *in
	told.Seen = &request.Inspection{Refs: in.Seen.Refs, RPC: &mcp.Message{Method: "tools/list", Session: in.Seen.Head.MCP.Session, Version: in.Seen.Head.MCP.Version}}
	ctx := context.WithoutCancel(r.Context())
	h.listed = func(tools []mcp.Tool) {
		noted := judge.Verdict{Mode: settings.Shadowing, Pass: true, Outcome: metrics.PassThrough, Refusal: request.Refusal{Code: "ok"}}
		noted.Decision.Resource = st.Set.Match(told.Locator())
		g.noteTools(ctx, st, &told, who, &noted, tools)
	}
	h.list.Store(g.resumes(r, st, in))
	v.TapAnswer = h.tapAnswer
	return h
}

// NoteRequest reads a request's body, to see whether it asks for the list of tools.
func (t *toolTap) NoteRequest(body []byte) {
	if t == nil || !bytes.Contains(body, []byte("tools")) {
		return
	}
	if doc, err := value.Decode(body, value.Limits{Depth: bodies.MaxDepth, Bytes: bodies.MaxInMemory}); err == nil {
		if method, _ := doc.Get("method").Str(); method == "tools/list" {
			t.list.Store(true)
		}
	}
}

// tapAnswer reads an answer while it passes. done ends that, and must be called.
func (t *toolTap) tapAnswer(ans *upstream.Answer) (done func()) {
	kind := ans.Header.Get("Content-Type")
	if ans.StatusCode != http.StatusOK || !bodies.IsEvents(kind) && !bodies.IsJSON(kind) {
		return func() {}
	}
	ear := &tapWriter{tap: t}
	ear.rules.Rewrite = func(doc []byte) ([]byte, error) {
		if _, tools, err := mcp.FilterTools(doc, func(string) bool { return true }); err == nil && len(tools) > 0 {
			t.listed(tools)
		}
		return doc, nil
	}
	packed := len(ans.Header["Content-Encoding"]) > 0
	if bodies.IsEvents(kind) && !packed {
		ear.to = ear.rules.EventsTo(func([]byte) error { return nil })
	}
	ans.Body = bodies.TeeBody{ReadCloser: ans.Body, To: ear}
	return func() { ear.finish(ans, bodies.IsEvents(kind)) }
}

// tapWriter reads a copy of an answer: events as they arrive, documents and compressed bodies as a
// whole, up to maskbody.MaxHeld bytes.
type tapWriter struct {
	tap     *toolTap
	rules   mask.Rules
	to      io.WriteCloser
	data    []byte
	stopped bool
}

// Write implements io.Writer. It never fails, so that the answer passes.
func (w *tapWriter) Write(p []byte) (int, error) {
	if w.stopped || len(p) == 0 || !w.tap.list.Load() {
		return len(p), nil
	}
	if err := w.collect(p); err != nil {
		w.stop()
	}
	return len(p), nil
}

// collect collects or reads p. It recovers panics, so that an odd document cannot end the answer.
func (w *tapWriter) collect(p []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.tap.g.Panics.Report(context.Background(), "reading an answer's tools panicked", p, "")
			err = errTapFull
		}
	}()
	if w.to != nil {
		_, err = w.to.Write(p)
		return err
	}
	if len(w.data)+len(p) > maskbody.MaxHeld || w.tap.g.Held.Add(int64(len(p))) > bodies.MaxShadow {
		if len(w.data)+len(p) <= maskbody.MaxHeld {
			w.tap.g.Held.Add(-int64(len(p)))
		}
		return errTapFull
	}
	w.data = append(w.data, p...)
	return nil
}

// stop releases the memory.
func (w *tapWriter) stop() {
	w.tap.g.Held.Add(-int64(len(w.data)))
	w.stopped, w.data = true, nil
}

// finish reads what was collected.
func (w *tapWriter) finish(ans *upstream.Answer, streamed bool) {
	defer func() {
		if p := recover(); p != nil {
			w.tap.g.Panics.Report(context.Background(), "reading an answer's tools panicked", p, "")
		}
		w.stop()
	}()
	if w.stopped || len(w.data) == 0 {
		return
	}
	doc := w.data
	if len(ans.Header["Content-Encoding"]) > 0 {
		src, err := maskbody.Unpacked(ans, bytes.NewReader(doc))
		if err != nil {
			return
		}
		// An interrupted stream may contain complete events. Half a document is useless.
		doc, err = io.ReadAll(io.LimitReader(src, maskbody.MaxHeld+1))
		if len(doc) > maskbody.MaxHeld || err != nil && !errors.Is(err, gzip.ErrChecksum) && !streamed {
			return
		}
	}
	if streamed {
		to := w.rules.EventsTo(func([]byte) error { return nil })
		_, _ = to.Write(doc)
		return
	}
	_, _ = w.rules.Rewrite(doc)
}

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
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// errHeardEnough ends a listener that has no room for more.
var errHeardEnough = errors.New("the list is too long to be listened to")

// toolsHeard listens in shadow mode to what a server lists, so that a changed
// description is noticed there too. The answer goes on as it came.
type toolsHeard struct {
	b *Bouncer
	// list is set once the request asks for the tools.
	list   atomic.Bool
	listed func([]mcp.Tool)
}

// hearTools has the answer listened to where a request may list the tools of an
// MCP server. What it asks for is known when it was read (asked), which is
// before a server answers it.
func (b *Bouncer) hearTools(r *http.Request, st *settings.State, in *inbound, who *identity.Caller, v *verdict) *toolsHeard {
	if !in.seen.refs.MCP {
		return nil
	}
	h := &toolsHeard{b: b}
	// The request is decided on by others meanwhile: what is told here is told by itself.
	told := *in
	told.seen = &inspection{refs: in.seen.refs, rpc: &mcp.Message{Method: "tools/list", Session: in.seen.head.mcp.Session, Version: in.seen.head.mcp.Version}}
	ctx := context.WithoutCancel(r.Context())
	h.listed = func(tools []mcp.Tool) {
		noted := verdict{mode: settings.Shadowing, pass: true, word: metrics.PassThrough, no: refusal{code: "ok"}}
		noted.dec.Resource = st.Set.Match(told.locator())
		b.noteTools(ctx, st, &told, who, &noted, tools)
	}
	h.list.Store(b.resumes(r, st, in))
	v.listen = h.listen
	return h
}

// asked is told the request's body.
func (h *toolsHeard) asked(body []byte) {
	if h == nil || !bytes.Contains(body, []byte("tools")) {
		return
	}
	if doc, err := value.Decode(body, value.Limits{Depth: bodies.MaxDepth, Bytes: bodies.MaxInMemory}); err == nil {
		if method, _ := doc.Get("method").Str(); method == "tools/list" {
			h.list.Store(true)
		}
	}
}

// listen taps an answer.
func (h *toolsHeard) listen(ans *upstream.Answer) (done func()) {
	kind := ans.Header.Get("Content-Type")
	if ans.StatusCode != http.StatusOK || !bodies.IsEvents(kind) && !bodies.IsJSON(kind) {
		return func() {}
	}
	ear := &toolsEar{heard: h}
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
	return func() { ear.end(ans, bodies.IsEvents(kind)) }
}

// toolsEar reads an answer that is handed on: events as they come, a document,
// or what is packed, whole and up to maxMasked bytes.
type toolsEar struct {
	heard *toolsHeard
	rules mask.Rules
	to    rewriter
	data  []byte
	deaf  bool
}

// Write implements io.Writer. It takes all, whatever becomes of it.
func (e *toolsEar) Write(p []byte) (int, error) {
	if e.deaf || len(p) == 0 || !e.heard.list.Load() {
		return len(p), nil
	}
	if err := e.hear(p); err != nil {
		e.stop()
	}
	return len(p), nil
}

// hear is contained: a document that nobody thought of must not end the answer.
func (e *toolsEar) hear(p []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.heard.b.panicked(context.Background(), "reading an answer's tools panicked", p, "")
			err = errHeardEnough
		}
	}()
	if e.to != nil {
		_, err = e.to.Write(p)
		return err
	}
	if len(e.data)+len(p) > maxMasked || e.heard.b.overheard.Add(int64(len(p))) > bodies.MaxShadow {
		if len(e.data)+len(p) <= maxMasked {
			e.heard.b.overheard.Add(-int64(len(p)))
		}
		return errHeardEnough
	}
	e.data = append(e.data, p...)
	return nil
}

// stop gives the memory back.
func (e *toolsEar) stop() {
	e.heard.b.overheard.Add(-int64(len(e.data)))
	e.deaf, e.data = true, nil
}

// end reads what was gathered.
func (e *toolsEar) end(ans *upstream.Answer, streamed bool) {
	defer func() {
		if p := recover(); p != nil {
			e.heard.b.panicked(context.Background(), "reading an answer's tools panicked", p, "")
		}
		e.stop()
	}()
	if e.deaf || len(e.data) == 0 {
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

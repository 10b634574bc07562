// Package maskbody masks the bodies of answers and requests. It refuses what it cannot mask, and
// never passes it on unmasked.
package maskbody

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/panics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/refuse"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
)

// MaxHeld is how much of an answer is held in memory, in bytes after decompression. If a mask needs
// the whole document, as paths do, a larger answer is stored on disk. Otherwise it is masked in
// pieces.
const MaxHeld = mask.MaxHeld

// maskedAway are the fields that describe the body as it was before masking.
var maskedAway = []string{
	"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Accept-Ranges", "Content-Range",
	"Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Signature", "Signature-Input", "Trailer",
}

// errUnmaskable says that a body is in a form that cannot be masked.
var errUnmaskable = errors.New("the answer cannot be masked")

// Masker masks answers and requests. Make it with New.
type Masker struct {
	Config
	turns chan struct{} // holds a token for each large answer that is being masked
}

// Config is what a masker needs.
type Config struct {
	Bodies   *bodies.Store
	Buffers  *bodies.Buffers
	Reader   *request.Reader
	Refusals *refuse.Writer
	Panics   *panics.Reporter
	Count    *metrics.Counters
	Log      *slog.Logger
	Now      func() time.Time
	// UpstreamTimeout is how long the application may take for an answer that is read
	// whole. BodyIdle is the longest pause in one that is masked as it comes.
	UpstreamTimeout, BodyIdle time.Duration
}

// New returns a masker. It masks two large answers at a time; the others wait.
func New(c Config) *Masker { return &Masker{c, make(chan struct{}, LargeMaskers)} }

// Answer masks an answer, or answers 502. An answer that cannot be read cannot be masked, and is
// never passed on unmasked. A document is read whole and gets a new length; a stream stays a
// stream.
func (m *Masker) Answer(ctx context.Context, w http.ResponseWriter, in *request.Inbound, ans *upstream.Answer, v *judge.Verdict, rules *mask.Rules) {
	clean := false
	defer func() { ans.Finish(clean) }()
	h := w.Header()
	header.CopyAnswer(h, ans.Header)
	for _, name := range maskedAway {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store") // the next caller may see something else
	_ = http.NewResponseController(w).SetWriteDeadline(m.Now().Add(bodies.ClientWriteTimeout))

	rules.Head(h)
	doc, err := []byte(nil), error(nil)
	how := rewriteMethodOf(ans.Header["Content-Type"], rules)
	if hasNoBody(in.Method, ans.StatusCode) {
		clean = true
		w.WriteHeader(ans.StatusCode)
		return
	}
	empty := ans.ContentLength == 0
	if !empty && how != events && (how != plainText || len(ans.Header["Content-Encoding"]) > 0) {
		// An empty body needs no type and no encoding.
		empty, err = m.isEmpty(ans)
	}
	switch {
	case err != nil:
	case empty:
		clean = true
	case ans.StatusCode == http.StatusPartialContent:
		// The bouncer asked for the whole document, and this is an unknown part of it.
		err = errUnmaskable
	case how == unreadableType && ans.StatusCode >= 300:
		// The status of a redirect or an error page is still useful, so only the body is
		// left out.
		h.Del("Content-Type")
	case how == unreadableType:
		err = errUnmaskable
	case how == wholeJSON, how == plainText && ans.ContentLength > 0 && ans.ContentLength <= MaxHeld:
		var rest io.Reader
		doc, rest, err = m.readWhole(ans, !rules.NeedsJSON())
		if err == nil && rest != nil && rules.NeedsJSON() {
			stored, refusal := m.maskLarge(ctx, doc, rest, rules)
			if refusal != nil {
				m.refuseUnmasked(w, in, v, refusal)
				return
			}
			clean = true
			m.sendStored(w, ans.StatusCode, stored)
			return
		}
		if err == nil && rest != nil {
			m.stream(w, ans, rules, how, io.MultiReader(bodies.NewMemoryBody(doc, nil), rest))
			clean = true
			return
		}
		if err == nil {
			clean = true
			doc, err = m.maskWhole(doc, rules, how)
		}
	default:
		var body io.Reader
		if body, err = Unpacked(ans, ans.Body); err == nil {
			m.stream(w, ans, rules, how, body)
			clean = true
			return
		}
	}
	if err != nil {
		m.refuseUnmasked(w, in, v, request.Refuse(http.StatusBadGateway, "mask_failed", "the application's answer could not be masked"))
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(doc)))
	w.WriteHeader(ans.StatusCode)
	_, _ = w.Write(doc)
}

// refuseUnmasked refuses a request whose answer could not be masked.
func (m *Masker) refuseUnmasked(w http.ResponseWriter, in *request.Inbound, v *judge.Verdict, refusal *request.Refusal) {
	m.Count.MaskFailures.Add(1)
	clear(w.Header())
	m.Refusals.Write(w, in, v.ID, refusal)
}

// hasNoBody reports whether an answer has no body, whatever its header says (RFC 9110
// section 6.4.1).
func hasNoBody(method string, status int) bool {
	return method == http.MethodHead || status == http.StatusNoContent || status == http.StatusResetContent || status == http.StatusNotModified
}

// isEmpty reports whether an answer's body is empty. It waits for the first byte as long
// as the application may take to answer.
func (m *Masker) isEmpty(ans *upstream.Answer) (bool, error) {
	timed := &timedBody{ans: ans, now: m.Now, end: m.Now().Add(m.UpstreamTimeout)}
	var first [1]byte
	n, err := io.ReadFull(timed, first[:])
	switch {
	case errors.Is(err, io.EOF):
		return true, nil
	case err != nil:
		return false, err
	}
	ans.Body = bodies.Prepend(first[:n], ans.Body)
	return false, nil
}

// maskWhole masks a document that was read whole.
func (m *Masker) maskWhole(doc []byte, rules *mask.Rules, how rewriteMethod) ([]byte, error) {
	if how == wholeJSON {
		return m.applyMask(doc, rules)
	}
	var out []byte
	err := m.Panics.Run("a mask panicked", func() error {
		to := rules.AnyTo(func(p []byte) error { out = append(out, p...); return nil })
		if _, err := to.Write(doc); err != nil {
			return err
		}
		return to.Close()
	})
	return out, err
}

// rewriteMethod is how an answer can be masked, by its media type.
type rewriteMethod uint8

const (
	unreadableType rewriteMethod = iota
	wholeJSON
	linesOfJSON
	events
	plainText
)

// rewriteMethodOf returns how an answer with these content types can be masked. Clients differ in how
// they read a document with two types or an unknown charset.
func rewriteMethodOf(types []string, rules *mask.Rules) rewriteMethod {
	if len(types) != 1 {
		return unreadableType
	}
	media, params, err := mime.ParseMediaType(types[0])
	if err != nil || !bodies.IsUTF8(params["charset"]) {
		return unreadableType
	}
	switch {
	case bodies.IsJSON(types[0]):
		return wholeJSON
	case media == "text/event-stream":
		return events
	case rules.NeedsJSON():
		return unreadableType
	case media == "application/x-ndjson", media == "application/ndjson", media == "application/jsonl", media == "application/jsonlines", media == "application/x-jsonlines",
		media == "application/json-seq", strings.HasSuffix(media, "+json-seq"):
		return linesOfJSON
	case strings.HasPrefix(media, "text/"), media == "application/xml", strings.HasSuffix(media, "+xml"), media == "application/yaml", strings.HasSuffix(media, "+yaml"):
		return plainText
	}
	return unreadableType
}

// stream masks a body piece by piece. The header is sent first, so that only a broken
// connection can tell the client that masking failed.
func (m *Masker) stream(w http.ResponseWriter, ans *upstream.Answer, rules *mask.Rules, how rewriteMethod, body io.Reader) {
	rc := http.NewResponseController(w)
	w.WriteHeader(ans.StatusCode)
	_ = rc.Flush()
	out := func(p []byte) error {
		_ = rc.SetWriteDeadline(m.Now().Add(bodies.ClientWriteTimeout))
		if _, err := w.Write(p); err != nil {
			return err
		}
		return rc.Flush()
	}
	var to io.WriteCloser
	switch how {
	case events:
		to = rules.EventsTo(out)
	case wholeJSON:
		to = rules.JSONTo(out)
	case linesOfJSON:
		to = rules.LinesTo(out)
	default:
		to = rules.AnyTo(out)
	}
	if err := m.rewrite(to, ans, body); err != nil {
		m.Count.MaskFailures.Add(1)
		panic(http.ErrAbortHandler)
	}
}

// rewrite copies a body through a rewriter.
func (m *Masker) rewrite(to io.WriteCloser, ans *upstream.Answer, body io.Reader) error {
	buf := m.Buffers.Get()
	defer m.Buffers.Put(buf)
	return m.Panics.Run("a mask panicked", func() error {
		for {
			if err := ans.Extend(m.BodyIdle); err != nil {
				return err
			}
			n, err := body.Read(buf[:])
			if n > 0 {
				if _, werr := to.Write(buf[:n]); werr != nil {
					return werr
				}
			}
			if errors.Is(err, io.EOF) {
				return to.Close()
			}
			if err != nil {
				return err
			}
		}
	})
}

// applyMask masks a document of JSON.
func (m *Masker) applyMask(doc []byte, rules *mask.Rules) (out []byte, err error) {
	if len(bytes.TrimSpace(doc)) == 0 {
		return nil, nil
	}
	err = m.Panics.Run("a mask panicked", func() error {
		out, err = rules.JSON(doc)
		return err
	})
	return out, err
}

// Unpacked returns a body without its content encoding. Encodings other than gzip are an error.
func Unpacked(ans *upstream.Answer, body io.Reader) (io.Reader, error) {
	switch enc := ans.Header["Content-Encoding"]; {
	case len(enc) == 0 || len(enc) == 1 && (enc[0] == "" || strings.EqualFold(enc[0], "identity")):
		return body, nil
	case len(enc) == 1 && (strings.EqualFold(enc[0], "gzip") || strings.EqualFold(enc[0], "x-gzip")):
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, errUnmaskable
		}
		return &gzipBody{z, body}, nil
	}
	return nil, errUnmaskable
}

// gzipBody is a gzip stream. Anything after its end is an error.
type gzipBody struct {
	*gzip.Reader
	below io.Reader
}

// Read implements io.Reader.
func (z *gzipBody) Read(p []byte) (int, error) {
	n, err := z.Reader.Read(p)
	if errors.Is(err, io.EOF) && !upstream.Drain(z.below) {
		return n, errUnmaskable
	}
	return n, err
}

// readWhole reads and decompresses the answer's document, within the size limit and the upstream
// timeout. For a larger document it returns the beginning and the rest. pieces removes the timeout
// for the rest.
func (m *Masker) readWhole(ans *upstream.Answer, pieces bool) (doc []byte, rest io.Reader, err error) {
	timed := &timedBody{ans: ans, now: m.Now, end: m.Now().Add(m.UpstreamTimeout)}
	src, err := Unpacked(ans, timed)
	if err != nil {
		return nil, nil, err
	}
	doc, err = readBounded(src, ans.ContentLength)
	switch {
	case err != nil:
		return nil, nil, err
	case len(doc) > MaxHeld:
		timed.free = pieces
		return doc, src, nil
	}
	if !upstream.Drain(timed) { // nothing may follow
		return nil, nil, errUnmaskable
	}
	return doc, nil, nil
}

// readBounded reads a whole body, or MaxHeld and one byte of it. Its buffer never grows beyond
// that.
func readBounded(src io.Reader, length int64) ([]byte, error) {
	size := int64(32 << 10)
	if length > 0 && length <= MaxHeld {
		size = length + 1
	}
	data := make([]byte, 0, size)
	for len(data) <= MaxHeld {
		if len(data) == cap(data) {
			data = append(make([]byte, 0, min(8*cap(data), MaxHeld+1)), data...)
		}
		n, err := src.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return data, nil
}

// timedBody reads a body until a fixed time.
type timedBody struct {
	ans *upstream.Answer
	now func() time.Time
	end time.Time
	// free is set when the caller bounds the time of each read itself.
	free bool
}

// Read implements io.Reader.
func (t *timedBody) Read(p []byte) (int, error) {
	if t.free {
		return t.ans.Body.Read(p)
	}
	left := t.end.Sub(t.now())
	if left <= 0 {
		return 0, errUnmaskable
	}
	if err := t.ans.Extend(left); err != nil {
		return 0, err
	}
	return t.ans.Body.Read(p)
}

// noRules mask nothing. Do not change them.
var noRules = &mask.Rules{}

// Rules prepares the masks of a verdict. An invalid mask is an error, because it is unknown
// what it should hide.
func (m *Masker) Rules(st *settings.Settings, v *judge.Verdict) (*mask.Rules, error) {
	answer, _ := mask.Split(v.Mask)
	if len(answer) == 0 && v.KeepTool == nil {
		return noRules, nil
	}
	rules, err := mask.New(answer, st.HashKey)
	if err == nil && v.KeepTool != nil {
		rules.Rewrite = func(doc []byte) ([]byte, error) {
			out, tools, err := mcp.FilterTools(doc, v.KeepTool)
			if err == nil {
				v.ToolsListed(tools)
			}
			return out, err
		}
	}
	return rules, err
}

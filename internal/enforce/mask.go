package enforce

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// maxMasked is how much of an answer is held while it comes, in bytes once
// unpacked. A larger one waits on disk where a mask needs the whole document, as
// paths do (maxMaskedBody), and is masked in pieces where none does.
const maxMasked = mask.MaxHeld

// maskedAway are fields that describe bytes which the client does not get.
var maskedAway = []string{
	"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Accept-Ranges", "Content-Range",
	"Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Signature", "Signature-Input", "Trailer",
}

var errUnmaskable = errors.New("the answer cannot be masked")

// maskAnswer rewrites an answer by the verdict's masks, or answers 502: what cannot
// be read cannot be masked, and is never handed on in clear. A
// document is read whole and has its length; what comes as a stream goes on as one.
func (b *Bouncer) maskAnswer(ctx context.Context, w http.ResponseWriter, in *request.Inbound, ans *upstream.Answer, v *verdict, rules *mask.Rules) {
	clean := false
	defer func() { ans.Finish(clean) }()
	h := w.Header()
	header.CopyAnswer(h, ans.Header)
	for _, name := range maskedAway {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store") // what one caller may see is not for the next
	_ = http.NewResponseController(w).SetWriteDeadline(b.cfg.Now().Add(clientWrite))

	rules.Head(h)
	doc, err := []byte(nil), error(nil)
	how := rewriting(ans.Header["Content-Type"], rules)
	if bodyless(in.Method, ans.StatusCode) {
		clean = true
		w.WriteHeader(ans.StatusCode)
		return
	}
	empty := ans.ContentLength == 0
	if !empty && how != events && (how != plainText || len(ans.Header["Content-Encoding"]) > 0) {
		// What is nothing is read by no type, and by no encoding.
		empty, err = b.isEmpty(ans)
	}
	switch {
	case err != nil:
	case empty:
		clean = true
	case ans.StatusCode == http.StatusPartialContent:
		// We asked for the whole: of a part it is not known what it is a part of.
		err = errUnmaskable
	case how == unreadableType && ans.StatusCode >= 300:
		// A redirect or an error page: its status is worth something, its text is left out.
		h.Del("Content-Type")
	case how == unreadableType:
		err = errUnmaskable
	case how == wholeJSON, how == plainText && ans.ContentLength > 0 && ans.ContentLength <= maxMasked:
		var rest io.Reader
		doc, rest, err = b.readWhole(ans, !rules.Structured())
		if err == nil && rest != nil && rules.Structured() {
			stored, no := b.maskLarge(ctx, doc, rest, rules)
			if no != nil {
				b.refuseUnmasked(w, in, v, no)
				return
			}
			clean = true
			b.sendStored(w, ans.StatusCode, stored)
			return
		}
		if err == nil && rest != nil {
			b.stream(w, ans, rules, how, io.MultiReader(bodies.NewSent(doc, nil), rest))
			clean = true
			return
		}
		if err == nil {
			clean = true
			doc, err = b.maskWhole(doc, rules, how)
		}
	default:
		var body io.Reader
		if body, err = unpacked(ans, ans.Body); err == nil {
			b.stream(w, ans, rules, how, body)
			clean = true
			return
		}
	}
	if err != nil {
		b.refuseUnmasked(w, in, v, request.Refuse(http.StatusBadGateway, "mask_failed", "the application's answer could not be masked"))
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(doc)))
	w.WriteHeader(ans.StatusCode)
	_, _ = w.Write(doc)
}

// refuseUnmasked refuses in place of an answer that could not be masked.
func (b *Bouncer) refuseUnmasked(w http.ResponseWriter, in *request.Inbound, v *verdict, no *request.Refusal) {
	b.count.MaskFailures.Add(1)
	clear(w.Header())
	b.refuse(w, in, v.id, no)
}

// bodyless reports an answer that has no body, whatever its head says (RFC 9110
// section 6.4.1).
func bodyless(method string, status int) bool {
	return method == http.MethodHead || status == http.StatusNoContent || status == http.StatusResetContent || status == http.StatusNotModified
}

// isEmpty reports whether an answer's body is at its end before its first byte. It
// waits for that byte as long as the application may take to answer.
func (b *Bouncer) isEmpty(ans *upstream.Answer) (bool, error) {
	timed := &timedBody{ans: ans, now: b.cfg.Now, end: b.cfg.Now().Add(b.cfg.UpstreamTimeout)}
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
func (b *Bouncer) maskWhole(doc []byte, rules *mask.Rules, how wayToRewrite) ([]byte, error) {
	if how == wholeJSON {
		return b.applyMask(doc, rules)
	}
	var out []byte
	err := b.guard(func() error {
		to := rules.AnyTo(func(p []byte) error { out = append(out, p...); return nil })
		if _, err := to.Write(doc); err != nil {
			return err
		}
		return to.Close()
	})
	return out, err
}

// guard runs fn: a document that nobody thought of must not let the rest pass.
func (b *Bouncer) guard(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			b.panicked(context.Background(), "a mask panicked", p, "")
			err = fmt.Errorf("%w: %s", errUnmaskable, fault.DescribePanic(p))
		}
	}()
	return fn()
}

// ways to rewrite an answer, by its media type.
type wayToRewrite uint8

const (
	unreadableType wayToRewrite = iota
	wholeJSON
	linesOfJSON
	events
	plainText
)

// rewriting tells how an answer of these types can be masked. A document whose
// type is told twice, or in another charset, is read by clients as they please.
func rewriting(types []string, rules *mask.Rules) wayToRewrite {
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
	case rules.Structured():
		return unreadableType
	case media == "application/x-ndjson", media == "application/ndjson", media == "application/jsonl", media == "application/jsonlines", media == "application/x-jsonlines",
		media == "application/json-seq", strings.HasSuffix(media, "+json-seq"):
		return linesOfJSON
	case strings.HasPrefix(media, "text/"), media == "application/xml", strings.HasSuffix(media, "+xml"), media == "application/yaml", strings.HasSuffix(media, "+yaml"):
		return plainText
	}
	return unreadableType
}

// rewriter is a body that is changed while it passes.
type rewriter interface {
	io.Writer
	Close() error
}

// stream hands a body on piece by piece. What cannot be masked breaks the
// connection: the head is gone, and nothing else tells that this is not all.
func (b *Bouncer) stream(w http.ResponseWriter, ans *upstream.Answer, rules *mask.Rules, how wayToRewrite, body io.Reader) {
	rc := http.NewResponseController(w)
	w.WriteHeader(ans.StatusCode)
	_ = rc.Flush()
	out := func(p []byte) error {
		_ = rc.SetWriteDeadline(b.cfg.Now().Add(clientWrite))
		if _, err := w.Write(p); err != nil {
			return err
		}
		return rc.Flush()
	}
	var to rewriter
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
	if err := b.rewrite(to, ans, body); err != nil {
		b.count.MaskFailures.Add(1)
		panic(http.ErrAbortHandler)
	}
}

// rewrite copies a body through a rewriter.
func (b *Bouncer) rewrite(to rewriter, ans *upstream.Answer, body io.Reader) error {
	buf := b.buffers.Get()
	defer b.buffers.Put(buf)
	return b.guard(func() error {
		for {
			if err := ans.Extend(b.cfg.BodyIdle); err != nil {
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
func (b *Bouncer) applyMask(doc []byte, rules *mask.Rules) (out []byte, err error) {
	if len(bytes.TrimSpace(doc)) == 0 {
		return nil, nil
	}
	err = b.guard(func() error {
		out, err = rules.JSON(doc)
		return err
	})
	return out, err
}

// unpacked is a body without its encoding; other encodings than gzip are an error.
func unpacked(ans *upstream.Answer, body io.Reader) (io.Reader, error) {
	switch enc := ans.Header["Content-Encoding"]; {
	case len(enc) == 0 || len(enc) == 1 && (enc[0] == "" || strings.EqualFold(enc[0], "identity")):
		return body, nil
	case len(enc) == 1 && (strings.EqualFold(enc[0], "gzip") || strings.EqualFold(enc[0], "x-gzip")):
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, errUnmaskable
		}
		return &zipped{z, body}, nil
	}
	return nil, errUnmaskable
}

// zipped is a gzip stream after which nothing may follow.
type zipped struct {
	*gzip.Reader
	below io.Reader
}

// Read implements io.Reader.
func (z *zipped) Read(p []byte) (int, error) {
	n, err := z.Reader.Read(p)
	if errors.Is(err, io.EOF) && !upstream.Drain(z.below) {
		return n, errUnmaskable
	}
	return n, err
}

// readWhole reads the answer's document, unpacking gzip, within the size bound
// and within the upstream timeout as a whole. A larger one is given as its
// beginning and its rest, for which pieces lifts the bound of time.
func (b *Bouncer) readWhole(ans *upstream.Answer, pieces bool) (doc []byte, rest io.Reader, err error) {
	timed := &timedBody{ans: ans, now: b.cfg.Now, end: b.cfg.Now().Add(b.cfg.UpstreamTimeout)}
	src, err := unpacked(ans, timed)
	if err != nil {
		return nil, nil, err
	}
	doc, err = gather(src, ans.ContentLength)
	switch {
	case err != nil:
		return nil, nil, err
	case len(doc) > maxMasked:
		timed.free = pieces
		return doc, src, nil
	}
	if !upstream.Drain(timed) { // nothing may follow
		return nil, nil, errUnmaskable
	}
	return doc, nil, nil
}

// gather reads a body whole, or maxMasked and a byte of it. It never has room
// for more: a buffer that doubles would.
func gather(src io.Reader, length int64) ([]byte, error) {
	size := int64(32 << 10)
	if length > 0 && length <= maxMasked {
		size = length + 1
	}
	data := make([]byte, 0, size)
	for len(data) <= maxMasked {
		if len(data) == cap(data) {
			data = append(make([]byte, 0, min(8*cap(data), maxMasked+1)), data...)
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
	// free: whoever reads on sets the time of each read.
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

// rulesFor are the masks of a verdict made ready; a mask that means nothing is
// an error, since what it was to hide is not known.
func (b *Bouncer) rulesFor(st *settings.Settings, v *verdict) (*mask.Rules, error) {
	answer, _ := mask.Split(v.mask)
	rules, err := mask.New(answer, st.HashKey)
	if err == nil && v.keep != nil {
		rules.Rewrite = func(doc []byte) ([]byte, error) {
			out, tools, err := mcp.FilterTools(doc, v.keep)
			if err == nil {
				v.listed(tools)
			}
			return out, err
		}
	}
	return rules, err
}

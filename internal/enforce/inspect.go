package enforce

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/llm"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	// maxBody is the largest body that is read for a control, in bytes.
	maxBody = 1 << 20
	// bodyDepth is how deep it may be nested.
	bodyDepth = 64
	// maxShadowBytes bounds the bodies that wait for a decision in shadow mode.
	maxShadowBytes = 64 << 20
)

// inspection is what a control may see of a request beside its head. It is made
// only where a control in scope refers to it (contract section 6).
type inspection struct {
	refs rego.Refs
	head bodyHead
	// body is what was read; whole is false where nothing was, as for what
	// cannot be JSON.
	body  []byte
	whole bool
	// no is why the body cannot be judged by: broken or too large.
	no *refusal

	rpc   *mcp.Message
	bad   *mcp.Error // what is wrong with a message of MCP
	llm   *llm.Request
	meter *metering
	usage value.Value
	// settled: the request was counted, and is decided on again.
	settled bool
}

// bodyHead are the header fields that say how a body is to be read.
type bodyHead struct {
	length                         int64
	contentType, encoding, version string
	origin                         string
	mcp                            mcp.Headers
}

func headOf(h http.Header, length int64) bodyHead {
	return bodyHead{
		length: length, contentType: strings.Join(h["Content-Type"], ", "),
		encoding: strings.Join(h["Content-Encoding"], ", "), version: h.Get("Anthropic-Version"),
		origin: strings.Join(h["Origin"], ", "), mcp: mcp.HeadersOf(h),
	}
}

// wanted is what the controls in scope want to see beside the head; false:
// nothing. It costs one look into the matcher.
func (b *Bouncer) wanted(st *state, in *inbound) (rego.Refs, bool) {
	if st.set == nil {
		return rego.Refs{}, false
	}
	refs := st.set.Needs(in.locator())
	return refs, refs.MCP || refs.LLM || refs.Usage
}

// inspect reads what the controls want to see, before anything is decided.
func (b *Bouncer) inspect(w http.ResponseWriter, r *http.Request, in *inbound, refs rego.Refs) (*inspection, error) {
	seen := &inspection{refs: refs, head: headOf(r.Header, r.ContentLength)}
	if r.Body == nil || r.Body == http.NoBody || !needsBody(refs) {
		seen.whole = true
		return seen, nil
	}
	body := &clientBody{ReadCloser: r.Body, rc: http.NewResponseController(w), now: b.cfg.Now, began: in.at}
	if seen.no = unreadable(seen.head); seen.no != nil {
		return seen, nil
	}
	data, whole, err := readBounded(body, seen.head)
	switch {
	case body.slow:
		return nil, errSlowBody
	case err != nil:
		return nil, err
	}
	if whole {
		seen.body, seen.whole = data, true
		r.Body, r.ContentLength = &sent{rest: data}, int64(len(data))
		r.TransferEncoding = nil
		if len(data) == 0 {
			r.Body = http.NoBody
		}
		return seen, nil
	}
	if mayBeJSON(data, seen.head) {
		seen.no = tooLarge()
		return seen, nil
	}
	r.Body = &replayed{Reader: io.MultiReader(bytes.NewReader(data), body), Closer: body}
	return seen, nil
}

// needsBody reports whether the body itself is asked for: who only counts
// requests needs none.
func needsBody(refs rego.Refs) bool {
	return refs.MCP || refs.LLM || slices.ContainsFunc(refs.Input, func(p []string) bool {
		return len(p) == 0 || p[0] == "usage" && (len(p) == 1 || p[1] != "requests")
	})
}

func tooLarge() *refusal {
	return &refusal{http.StatusRequestEntityTooLarge, "body_too_large", "a control needs this body, which is larger than " + strconv.Itoa(maxBody) + " bytes"}
}

// replayed is a body of which the beginning was read already.
type replayed struct {
	io.Reader
	io.Closer
}

// unreadable refuses bodies that would have to be guessed at.
func unreadable(h bodyHead) *refusal {
	if h.encoding != "" && !strings.EqualFold(h.encoding, "identity") {
		return &refusal{http.StatusUnsupportedMediaType, "body_encoded", "a control needs this body, which is compressed"}
	}
	if h.length > maxBody && isJSON(h.contentType) {
		return tooLarge()
	}
	return nil
}

// readBounded reads a body whole, or its beginning: as much as tells that it is
// no JSON, or more than maxBody.
func readBounded(body io.Reader, h bodyHead) (data []byte, whole bool, err error) {
	size := 4096
	if h.length >= 0 && h.length <= maxBody {
		size = int(h.length) + 1
	}
	data = make([]byte, 0, size)
	for {
		if len(data) == cap(data) {
			grown := make([]byte, len(data), min(4*cap(data), maxBody+1))
			copy(grown, data)
			data = grown
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			return data, true, nil
		case err != nil:
			return nil, false, err
		case len(data) > maxBody:
			return data, false, nil
		case len(data) > 64 && !mayBeJSON(data, h):
			return data, false, nil
		}
	}
}

// mayBeJSON reports whether any server could take these first bytes for the
// beginning of a JSON object or array, whatever the media type says. Bytes that
// hint at another encoding of Unicode count as such.
func mayBeJSON(data []byte, h bodyHead) bool {
	if isJSON(h.contentType) {
		return true
	}
	data = bytes.TrimLeft(data, " \t\r\n\f\v\x00")
	for _, bom := range [...]string{"\xef\xbb\xbf", "\xfe\xff", "\xff\xfe"} {
		data = bytes.TrimPrefix(data, []byte(bom))
	}
	data = bytes.TrimLeft(data, " \t\r\n\f\v\x00")
	return len(data) == 0 || data[0] == '{' || data[0] == '['
}

// read understands the body of a request for res, which may be nil. What is no
// JSON in the first place holds neither a call nor a prompt, and the controls are
// shown none; what is broken is refused.
func (s *inspection) read(path, host string, res *rego.Resource) {
	if s.no != nil || !s.whole || len(bytes.TrimSpace(s.body)) == 0 {
		return
	}
	if !mayBeJSON(s.body, s.head) {
		return
	}
	doc, err := value.Decode(s.body, value.Limits{Depth: bodyDepth, Bytes: maxBody})
	if err != nil {
		s.no = &refusal{http.StatusBadRequest, "body_malformed", "a control needs this body, which is not proper JSON: " + err.Error()}
		if s.refs.MCP && servesMCP(res) {
			s.bad = &mcp.Error{Code: mcp.CodeParse, Message: s.no.message}
		}
		return
	}
	if s.refs.MCP {
		if s.rpc, s.bad = mcp.Parse(doc, s.head.mcp, servesMCP(res)); s.rpc != nil || s.bad != nil {
			s.no = s.unfit(host)
			return
		}
	}
	if req, ok := llm.Parse(path, s.head.version, doc); ok {
		s.llm = &req
	}
}

// account begins the metering of a request whose controls ask for usage.
func (b *Bouncer) account(ctx context.Context, st *state, in *inbound, who *identity) {
	s := in.seen
	if !s.refs.Usage || s.no != nil || s.settled {
		return
	}
	if s.meter == nil {
		s.meter = b.newMetering(st, in, who, resourceKey(st, in))
	}
	s.usage = s.meter.reserve(ctx, in.at, s.llm)
}

// resourceKey names what is asked for: the registered resource, else the host.
func resourceKey(st *state, in *inbound) string {
	if res := st.set.Match(in.locator()); res != nil {
		return strconv.FormatInt(res.ID, 10)
	}
	return "host:" + in.host
}

// extra are the members of input that an inspection fills.
func (s *inspection) extra() []value.Member {
	if s == nil {
		return nil
	}
	var out []value.Member
	if s.rpc != nil {
		out = append(out, value.Member{Key: "mcp", Value: s.rpc.Doc()})
	}
	if s.llm != nil {
		out = append(out, value.Member{Key: "llm", Value: s.llm.Doc()})
	}
	if s.usage.Defined() {
		out = append(out, value.Member{Key: "usage", Value: s.usage})
	}
	return out
}

// look inspects a request before it is decided on; false: it was answered.
func (b *Bouncer) look(w http.ResponseWriter, r *http.Request, in *inbound, refs rego.Refs) bool {
	seen, err := b.inspect(w, r, in, refs)
	switch {
	case err == nil:
		in.seen = seen
		return true
	case r.Context().Err() != nil:
		b.count.clientGone.Add(1)
		panic(http.ErrAbortHandler)
	case errors.Is(err, errSlowBody):
		b.count.slowClient.Add(1)
		b.refuse(w, in, "", &refusal{http.StatusRequestTimeout, "request_timeout", "the request's body came too slowly"})
	default:
		b.count.refused.Add(1)
		b.refuse(w, in, "", badRequest("the request's body broke off"))
	}
	return false
}

// heard gives back the memory of a body that was decided on in shadow mode.
func (b *Bouncer) heard(s *inspection) {
	if s != nil {
		b.overheard.Add(-int64(len(s.body)))
		s.body = nil
	}
}

// metered is the request's metering; nil when nothing is counted.
func (s *inspection) metered() *metering {
	if s == nil {
		return nil
	}
	return s.meter
}

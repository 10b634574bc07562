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

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/llm"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/usage"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// inspection is what a control may see of a request beside its head. It is made
// only where a control in scope refers to it.
type inspection struct {
	refs   lang.Refs
	serves serving
	head   bodyHead
	// body is what is in memory of what was read, and kept the whole where that is
	// more than maxInMemory. whole is false where the body was not read, as for
	// what cannot be JSON.
	body  []byte
	kept  *bodies.File
	whole bool
	// cut: media were left out of body.
	cut  bool
	held *bodies.Hold // the room that body takes
	// waits is the room that it takes in shadow mode, in bytes.
	waits int64
	// no is why the body cannot be judged by: broken or too large.
	no *refusal

	rpc   *mcp.Message
	bad   *mcp.Error // what is wrong with a message of MCP
	llm   *llm.Request
	meter *usage.Account
	usage value.Value
	// counted: the request was counted, and is decided on again.
	counted bool
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

// needs is what the controls in scope want to see beside the head; false:
// nothing. It costs one look into the matcher.
func (b *Bouncer) needs(st *settings.State, in *inbound) (lang.Refs, bool) {
	if st.Set == nil {
		return lang.Refs{}, false
	}
	refs := in.placed(st.Set).Needs()
	return refs, refs.MCP || refs.LLM || refs.Usage
}

// inspect reads what the controls want to see, before anything is decided. wanted
// tells by a body's beginning whether it is to be read.
func (b *Bouncer) inspect(w http.ResponseWriter, r *http.Request, in *inbound, refs lang.Refs, wanted func(head bodyHead, begin []byte) bool) (*inspection, error) {
	seen := &inspection{refs: refs, head: headOf(r.Header, r.ContentLength)}
	if r.Body == nil || r.Body == http.NoBody || !needsBody(refs) {
		seen.whole = true
		return seen, nil
	}
	body := bodies.FromClient(w, r.Body, b.cfg.Now, in.at)
	if seen.no = unreadable(seen.head); seen.no != nil {
		return seen, nil
	}
	seen.held = b.bodies.Room()
	data, whole, err := readBounded(body, seen.head, seen.held, wanted)
	switch {
	case body.TooSlow():
		return nil, bodies.ErrSlow
	case errors.Is(err, bodies.ErrTooMany):
		seen.no = tooMany()
		return seen, nil
	case err != nil:
		return nil, err
	}
	switch {
	case whole:
		seen.body, seen.whole = data, true
		r.Body, r.ContentLength = bodies.NewSent(data, seen.held.Release), int64(len(data))
		if len(data) == 0 {
			r.Body = http.NoBody
		}
	case wanted(seen.head, data):
		return seen, b.keep(r, seen, data, body)
	default:
		r.Body = bodies.Prepend(data, body)
		return seen, nil
	}
	r.TransferEncoding = nil
	return seen, nil
}

// keep puts a large body on disk, from where it is read to be decided on and to be
// sent.
func (b *Bouncer) keep(r *http.Request, seen *inspection, begun []byte, body *bodies.Client) error {
	kept, tooLong, err := b.bodies.Keep(begun, body, bodies.MaxBody)
	seen.held.Release()
	switch {
	case body.TooSlow():
		return bodies.ErrSlow
	case tooLong:
		seen.no = tooLarge("body", bodies.MaxBody)
		return nil
	case errors.Is(err, bodies.ErrTooMany):
		b.log.WarnContext(r.Context(), "a body that a control needs could not be stored", "error", err)
		seen.no = tooMany()
		return nil
	case err != nil:
		return err
	}
	seen.kept, seen.whole = kept, true
	r.Body, r.ContentLength, r.TransferEncoding = kept.Open(), kept.Length(), nil
	return nil
}

// close gives back what a request kept of its body.
func (s *inspection) close() {
	if s != nil {
		s.kept.Close()
		s.held.Release()
	}
}

// needsBody reports whether the body itself is asked for: who only counts
// requests needs none.
func needsBody(refs lang.Refs) bool {
	return refs.MCP || refs.LLM || slices.ContainsFunc(refs.Input, func(p []string) bool {
		return len(p) == 0 || p[0] == "usage" && (len(p) == 1 || p[1] != "requests")
	})
}

// unreadable refuses bodies that would have to be guessed at.
func unreadable(h bodyHead) *refusal {
	if h.encoding != "" && !strings.EqualFold(h.encoding, "identity") {
		return &refusal{http.StatusUnsupportedMediaType, "body_encoded", "a control needs this body, which is compressed"}
	}
	if h.length > bodies.MaxBody && bodies.IsJSON(h.contentType) {
		return tooLarge("body", bodies.MaxBody)
	}
	return nil
}

// readBounded reads a body whole, or its beginning: as much as tells that it is
// not wanted, or more than maxInMemory.
func readBounded(body io.Reader, h bodyHead, held *bodies.Hold, wanted func(bodyHead, []byte) bool) (data []byte, whole bool, err error) {
	size := 4096
	if h.length >= 0 && h.length <= bodies.MaxInMemory {
		size = int(h.length) + 1
	}
	if !held.Grow(size) {
		return nil, false, bodies.ErrTooMany
	}
	data = make([]byte, 0, size)
	for {
		if len(data) == cap(data) {
			grown := make([]byte, len(data), min(4*cap(data), bodies.MaxInMemory+1))
			if !held.Grow(cap(grown) - cap(data)) {
				return nil, false, bodies.ErrTooMany
			}
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
		case len(data) > bodies.MaxInMemory:
			return data, false, nil
		case len(data) > 64 && !wanted(h, data):
			return data, false, nil
		}
	}
}

func mayBe(h bodyHead, begin []byte) bool { return mayBeJSON(begin, h) }

// mayBePrompt is mayBe at a model's: forms hold prompts too.
func mayBePrompt(h bodyHead, begin []byte) bool { return mayBeJSON(begin, h) || isForm(h.contentType) }

// mayBeJSON reports whether any server could take these first bytes for the
// beginning of a JSON object or array, whatever the media type says. Bytes that
// hint at another encoding of Unicode count as such.
func mayBeJSON(data []byte, h bodyHead) bool {
	if bodies.IsJSON(h.contentType) {
		return true
	}
	data = bytes.TrimLeft(data, " \t\r\n\f\v\x00")
	for _, bom := range [...]string{"\xef\xbb\xbf", "\xfe\xff", "\xff\xfe"} {
		data = bytes.TrimPrefix(data, []byte(bom))
	}
	data = bytes.TrimLeft(data, " \t\r\n\f\v\x00")
	return len(data) == 0 || data[0] == '{' || data[0] == '['
}

// account begins the metering of a request whose controls ask for usage.
func (b *Bouncer) account(ctx context.Context, st *settings.State, in *inbound, who *identity.Caller) {
	s := in.seen
	if !s.refs.Usage || s.no != nil || s.counted {
		return
	}
	if s.meter == nil {
		s.meter = b.accounts.Open(subjectOf(st, in, who))
	}
	s.usage = s.meter.Reserve(ctx, in.at, s.llm)
}

// subjectOf says whose use a request counts as.
func subjectOf(st *settings.State, in *inbound, who *identity.Caller) usage.Subject {
	return usage.Subject{Tenant: st.Tenant, Environment: st.Environment, Resource: resourceKey(st, in), Client: in.client, Who: who}
}

// resourceKey names what is asked for: the registered resource, else the host.
func resourceKey(st *settings.State, in *inbound) string {
	if res := st.Set.Match(in.locator()); res != nil {
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

// inspectRequest inspects a request before it is decided on; false: it was answered. What
// it keeps is given back by in.seen.close.
func (b *Bouncer) inspectRequest(w http.ResponseWriter, r *http.Request, st *settings.State, in *inbound, refs lang.Refs) bool {
	wanted := mayBe
	if servingOf(st, in).model {
		wanted = mayBePrompt
	}
	seen, err := b.inspect(w, r, in, refs, wanted)
	switch {
	case err == nil:
		in.seen = seen
		return true
	case errors.Is(err, bodies.ErrSlow): // the read that ran out of time ended the context, too
		b.count.SlowClient.Add(1)
		b.refuse(w, in, "", &refusal{http.StatusRequestTimeout, "request_timeout", "the request's body came too slowly"})
	case r.Context().Err() != nil:
		b.count.ClientGone.Add(1)
		panic(http.ErrAbortHandler)
	default:
		b.count.Refused.Add(1)
		b.refuse(w, in, "", badRequest("the request body is incomplete"))
	}
	return false
}

// releaseBody gives back the memory of a body that was decided on in shadow mode.
func (b *Bouncer) releaseBody(s *inspection) {
	if s != nil {
		b.shadowBytes.Add(-s.waits)
		s.body, s.waits = nil, 0
	}
}

// metered is the request's metering; nil when nothing is counted.
func (s *inspection) metered() *usage.Account {
	if s == nil {
		return nil
	}
	return s.meter
}

// tooLarge refuses what is larger than a limit.
func tooLarge(limit string, bytes int) *refusal {
	return &refusal{http.StatusRequestEntityTooLarge, "body_too_large", "a control needs this body, which is larger than the limit \"" + limit + "\" of " + strconv.Itoa(bytes) + " bytes"}
}

// tooMany refuses a body that there is no room for beside the others.
func tooMany() *refusal {
	return &refusal{http.StatusServiceUnavailable, "bodies_saturated", "a control needs this body, and the limit \"all_bodies\" is met by those that wait"}
}

package request

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
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

// Inspection is what the controls may see of a request beyond its head. A request has one
// only if a control in scope refers to it.
type Inspection struct {
	Refs   lang.Refs
	Serves requestResources
	Head   BodyHead
	// Body is the part of the body that is in memory. Kept holds the whole of a larger
	// one on disk. Whole is false when the body was not read, for example because it
	// cannot be JSON.
	Body  []byte
	Kept  *bodies.File
	Whole bool
	// Cut is set if media were left out of Body.
	Cut    bool
	Memory *bodies.Reservation // the memory of Body
	// parsed is the memory of the decoded Body, until the decision.
	parsed *bodies.Reservation
	// ShadowBytes is the memory of Body in shadow mode, in bytes.
	ShadowBytes int64
	// Refusal says why no decision on the body is possible; nil: one is.
	Refusal *Refusal

	RPC      *mcp.Message
	MCPError *mcp.Error // what is wrong with an MCP message
	LLM      *llm.Request
	// Account counts what the request uses; nil: nothing is counted.
	Account *usage.Account
	Usage   value.Value
	// Counted is set if the request is decided on again, so its usage was counted before.
	Counted bool
}

// BodyHead holds the header fields that say how to read the body.
type BodyHead struct {
	length                         int64
	contentType, Encoding, version string
	origin                         string
	MCP                            mcp.Headers
}

// HeadOf reads the header fields that say how to read a body of length bytes.
func HeadOf(h http.Header, length int64) BodyHead {
	return BodyHead{
		length: length, contentType: strings.Join(h["Content-Type"], ", "),
		Encoding: strings.Join(h["Content-Encoding"], ", "), version: h.Get("Anthropic-Version"),
		origin: strings.Join(h["Origin"], ", "), MCP: mcp.HeadersOf(h),
	}
}

// Needs returns what the controls in scope read beyond the head. It returns false if they read only
// the head. It costs one lookup.
func (in *Inbound) Needs(st *settings.State) (lang.Refs, bool) {
	if st.Set == nil {
		return lang.Refs{}, false
	}
	refs := in.FindPlace(st.Set).Needs()
	return refs, refs.MCP || refs.LLM || refs.Usage
}

// Inspect reads what the controls need. wanted decides from the beginning of the body
// whether the rest is read.
func (rd *Reader) Inspect(w http.ResponseWriter, r *http.Request, in *Inbound, refs lang.Refs, wanted func(head BodyHead, begin []byte) bool) (*Inspection, error) {
	seen := &Inspection{Refs: refs, Head: HeadOf(r.Header, r.ContentLength)}
	if r.Body == nil || r.Body == http.NoBody || !NeedsBody(refs) {
		seen.Whole = true
		return seen, nil
	}
	body := bodies.NewClientBody(w, r.Body, rd.now, in.At)
	if seen.Refusal = Unreadable(seen.Head); seen.Refusal != nil {
		return seen, nil
	}
	seen.Memory = rd.bodies.NewReservation()
	data, whole, err := readBounded(body, seen.Head, seen.Memory, wanted)
	switch {
	case body.IsTooSlow():
		return nil, bodies.ErrSlow
	case errors.Is(err, bodies.ErrTooMany):
		seen.Refusal = TooMany()
		return seen, nil
	case err != nil:
		return nil, err
	}
	switch {
	case whole:
		seen.Body, seen.Whole = data, true
		r.Body, r.ContentLength = bodies.NewMemoryBody(data, seen.Memory.Release), int64(len(data))
		if len(data) == 0 {
			r.Body = http.NoBody
		}
	case wanted(seen.Head, data):
		return seen, rd.storeBody(r, seen, data, body)
	default:
		r.Body = bodies.Prepend(data, body)
		return seen, nil
	}
	r.TransferEncoding = nil
	return seen, nil
}

// storeBody puts a large body on disk. The decision and the application read it from there.
func (rd *Reader) storeBody(r *http.Request, seen *Inspection, prefix []byte, body *bodies.ClientBody) error {
	kept, tooLong, err := rd.bodies.Save(prefix, body, bodies.MaxBody)
	seen.Memory.Release()
	switch {
	case body.IsTooSlow():
		return bodies.ErrSlow
	case tooLong:
		seen.Refusal = TooLarge("body", bodies.MaxBody)
		return nil
	case errors.Is(err, bodies.ErrTooMany):
		rd.log.WarnContext(r.Context(), "a body that a control needs could not be stored", "error", err)
		seen.Refusal = TooMany()
		return nil
	case err != nil:
		return err
	}
	seen.Kept, seen.Whole = kept, true
	r.Body, r.ContentLength, r.TransferEncoding = kept.Open(), kept.Length(), nil
	return nil
}

// Close releases the memory and disk space of the body.
func (s *Inspection) Close() {
	if s != nil {
		s.Kept.Close()
		s.Memory.Release()
		s.parsed.Release()
	}
}

// NeedsBody reports whether a control reads the body. Counting requests does not need it.
func NeedsBody(refs lang.Refs) bool {
	return refs.MCP || refs.LLM || slices.ContainsFunc(refs.Input, func(p []string) bool {
		return len(p) == 0 || p[0] == "usage" && (len(p) == 1 || p[1] != "requests")
	})
}

// Unreadable returns the refusal of a body that the bouncer cannot read, because it is encoded
// or too large; nil: it can.
func Unreadable(h BodyHead) *Refusal {
	if h.Encoding != "" && !strings.EqualFold(h.Encoding, "identity") {
		return Refuse(http.StatusUnsupportedMediaType, "body_encoded", "a control needs this body, which is compressed")
	}
	if h.length > bodies.MaxBody && bodies.IsJSON(h.contentType) {
		return TooLarge("body", bodies.MaxBody)
	}
	return nil
}

// readBounded reads a body. It stops early if the body turns out not to be wanted, or after
// bodies.MaxInMemory bytes.
func readBounded(body io.Reader, h BodyHead, held *bodies.Reservation, wanted func(BodyHead, []byte) bool) (data []byte, whole bool, err error) {
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

// MayBePrompt is MayBeJSON for models, which also take prompts in forms.
func MayBePrompt(h BodyHead, begin []byte) bool { return MayBeJSON(h, begin) || isForm(h.contentType) }

// MayBeJSON reports whether any server could take these first bytes for a JSON object or
// array, whatever the media type says. Bytes that hint at another Unicode encoding count.
func MayBeJSON(h BodyHead, data []byte) bool {
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

// UsageSubject returns the subject that the usage of a request counts towards.
func (in *Inbound) UsageSubject(st *settings.State, who *identity.Caller) usage.Subject {
	return usage.Subject{Tenant: st.Tenant, Environment: st.Environment, Resource: in.resourceKey(st), Client: in.Client, Who: who}
}

// resourceKey names the registered resource, or else the host.
func (in *Inbound) resourceKey(st *settings.State) string {
	if res := st.Set.Match(in.Locator()); res != nil {
		return strconv.FormatInt(res.ID, 10)
	}
	return "host:" + in.Host
}

// members returns the members of the input that come from an inspection.
func (s *Inspection) members() []value.Member {
	if s == nil {
		return nil
	}
	var out []value.Member
	if s.RPC != nil {
		out = append(out, value.Member{Key: "mcp", Value: s.RPC.Doc()})
	}
	if s.LLM != nil {
		out = append(out, value.Member{Key: "llm", Value: s.LLM.Doc()})
	}
	if s.Usage.Defined() {
		out = append(out, value.Member{Key: "usage", Value: s.Usage})
	}
	return out
}

// UsageAccount returns the account of a request, which may be nil.
func (s *Inspection) UsageAccount() *usage.Account {
	if s == nil {
		return nil
	}
	return s.Account
}

// TooLarge refuses a body that exceeds a limit.
func TooLarge(limit string, bytes int) *Refusal {
	return Refuse(http.StatusRequestEntityTooLarge, "body_too_large", "a control needs this body, which is larger than the limit \""+limit+"\" of "+strconv.Itoa(bytes)+" bytes")
}

// TooMany refuses a body because other bodies use up the memory.
func TooMany() *Refusal {
	return Refuse(http.StatusServiceUnavailable, "bodies_saturated", "a control needs this body, and the waiting bodies have reached the limit \"all_bodies\"")
}

// mcpRefusal returns the refusal of an MCP message on which no decision is made; nil: there is a decision.
func (s *Inspection) mcpRefusal(host string) *Refusal {
	switch {
	case s.MCPError != nil:
		return Refuse(http.StatusBadRequest, "mcp_invalid", s.MCPError.Message)
	case s.Head.origin != "" && !ownOrigin(s.Head.origin, host):
		// A page of another site makes the browser send this for its user (DNS
		// rebinding).
		return Refuse(http.StatusForbidden, "foreign_origin", "the request comes from a page of another origin")
	case !s.RPC.Known():
		return Refuse(http.StatusForbidden, "unknown_method", "the MCP method is not known")
	}
	return nil
}

func ownOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	name, ok := canonicalHost(u.Host)
	return ok && name == host
}

// Harmless reports whether the request is a ping or a notification to an MCP server,
// which may pass. The message alone does not prove that: under another reading of the
// path, another application may get it.
func (s *Inspection) Harmless() bool {
	return s != nil && s.RPC != nil && s.RPC.Harmless() && s.Serves.onlyMCP
}

// IsMCPCall reports whether the request is an MCP call, which expects an answer.
func (in *Inbound) IsMCPCall() bool {
	return in.Seen != nil && in.Seen.RPC != nil && in.Seen.RPC.ID != ""
}

// DropParsed drops what only the decision needed. While the application works on it, a request
// holds only the part of its body that is still to be sent.
func (s *Inspection) DropParsed() {
	if s == nil {
		return
	}
	s.Body = nil
	s.parsed.Release()
	if s.Kept != nil {
		s.Memory.Release()
	}
	if s.RPC != nil {
		s.RPC.Arguments = value.Value{}
	}
	if s.LLM != nil {
		s.LLM.Messages, s.LLM.Texts = value.Value{}, value.Value{}
		s.LLM.Model = strings.Clone(s.LLM.Model) // without the body that it is a part of
	}
}

// ServerKey names the MCP server that is asked: the resource, or the host, and the path.
func (in *Inbound) ServerKey(st *settings.State) string { return in.resourceKey(st) + " " + in.Path }

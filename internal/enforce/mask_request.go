package enforce

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maskRequest rewrites a request's body by those masks that are about it
// (request:...). A body that cannot be masked is refused: the application, or
// the model behind it, must not see it.
func (b *Bouncer) maskRequest(w http.ResponseWriter, r *http.Request, in *inbound, v *verdict) *refusal {
	_, list := mask.Split(v.mask)
	if len(list) == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	cannot := func(why string) *refusal {
		b.count.maskFailures.Add(1)
		return &refusal{http.StatusUnprocessableEntity, "request_unmaskable", "the request's body would have to be masked, but " + why}
	}
	rules, err := mask.New(list)
	if err != nil {
		return cannot(err.Error())
	}
	head := headOf(r.Header, r.ContentLength)
	if head.encoding != "" && head.encoding != "identity" {
		return cannot("it is compressed")
	}
	data, whole, err := readForMask(w, r, b, in)
	switch {
	case errors.Is(err, errSlowBody):
		return &refusal{http.StatusRequestTimeout, "request_timeout", "the request's body came too slowly"}
	case err != nil:
		return badRequest("the request's body broke off")
	case !whole:
		return &refusal{http.StatusRequestEntityTooLarge, "body_too_large", "the request's body would have to be masked, but it is too large"}
	}
	var out []byte
	switch how := rewriting(head.contentType, rules); {
	case len(data) == 0:
	case mayBeJSON(data, head):
		if out, err = applyMask(data, rules); err != nil {
			return cannot("it is not proper JSON")
		}
	case how == plainText:
		out = rules.Text(data)
	default:
		return cannot("its media type is none that is read")
	}
	r.Body, r.ContentLength, r.TransferEncoding = &sent{rest: out}, int64(len(out)), nil
	for _, name := range [...]string{"Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Signature", "Signature-Input"} {
		delete(in.headers, name) // of other bytes
	}
	if len(out) == 0 {
		r.Body = http.NoBody
	}
	return nil
}

// recordable is the request as the decision log may hold it: of what its body
// says only what the verdict's masks of the request leave, whether the
// application got it so or, in shadow mode, as it came. What cannot be masked is
// left out.
func (in *inbound) recordable(v *verdict) *inbound {
	_, list := mask.Split(v.dec.Mask)
	if len(list) == 0 || in.seen == nil || in.seen.rpc == nil && in.seen.llm == nil {
		return in
	}
	seen, told := *in.seen, *in
	told.seen = &seen
	seen.rpc, seen.llm = nil, nil
	rules, err := mask.New(list)
	if err != nil {
		return &told
	}
	body, err := applyMask(in.seen.body, rules)
	if err != nil {
		return &told
	}
	clean := inspection{refs: seen.refs, head: seen.head, body: body, whole: true}
	clean.head.mcp = mcp.Headers{Session: seen.head.mcp.Session} // they repeat what is masked
	clean.read(in.path, in.host, v.dec.Resource)
	seen.rpc, seen.llm = clean.rpc, clean.llm
	if seen.llm != nil && in.seen.llm != nil {
		seen.llm.Estimated = in.seen.llm.Estimated
	}
	return &told
}

// letGo drops what a decision was made by, once it is recorded: while the
// application works on its answer, a request holds no more than what of its body
// is still to be sent.
func (s *inspection) letGo() {
	if s == nil {
		return
	}
	s.body = nil
	if s.rpc != nil {
		s.rpc.Arguments = value.Value{}
	}
	if s.llm != nil {
		s.llm.Messages = value.Value{}
		s.llm.Model = strings.Clone(s.llm.Model) // and not the body that it is a part of
	}
}

// sent is a body that is in memory until it was read.
type sent struct {
	mu   sync.Mutex // the transport may still read when the answer is through
	rest []byte
}

// Read implements io.Reader.
func (s *sent) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := copy(p, s.rest)
	if s.rest = s.rest[n:]; len(s.rest) > 0 {
		return n, nil
	}
	s.rest = nil
	return n, io.EOF
}

// Close implements io.Closer.
func (s *sent) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = nil
	return nil
}

// readForMask reads a body within the bound; one that was read for a control is
// in memory already.
func readForMask(w http.ResponseWriter, r *http.Request, b *Bouncer, in *inbound) ([]byte, bool, error) {
	if in.seen != nil && in.seen.whole && needsBody(in.seen.refs) {
		return in.seen.body, true, nil
	}
	body := &clientBody{ReadCloser: r.Body, rc: http.NewResponseController(w), now: b.cfg.Now, began: in.at}
	data, err := io.ReadAll(io.LimitReader(body, maxBody+1))
	if body.slow {
		err = errSlowBody
	}
	return data, len(data) <= maxBody, err
}

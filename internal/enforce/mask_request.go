package enforce

import (
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/llm"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maskRequest rewrites a request's body by those masks that are about it
// (request:...). A body that cannot be masked is refused: the application, or
// the model behind it, must not see it.
func (b *Bouncer) maskRequest(w http.ResponseWriter, r *http.Request, st *settings.Settings, in *inbound, v *verdict) *refusal {
	_, list := mask.Split(v.mask)
	if len(list) == 0 {
		return nil
	}
	cannot := func(why string) *refusal {
		b.count.MaskFailures.Add(1)
		return &refusal{http.StatusUnprocessableEntity, "request_unmaskable", "the request's body would have to be masked, but " + why}
	}
	rules, err := mask.New(list, st.HashKey)
	if err != nil {
		return cannot(err.Error())
	}
	rules.Head(in.headers)
	if rules.Empty() || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	head := headOf(r.Header, r.ContentLength)
	if head.encoding != "" && head.encoding != "identity" {
		return cannot("it is compressed")
	}
	seen, no := b.readForMask(w, r, in)
	switch {
	case no != nil:
		return no
	case seen.kept != nil:
		return b.maskKept(r, in, seen, rules, cannot)
	}
	data := seen.body
	var out []byte
	switch how := rewriting(r.Header["Content-Type"], rules); {
	case len(data) == 0:
	case mayBeJSON(data, head):
		if out, err = b.applyMask(data, rules); err != nil {
			return cannot("it is not valid JSON")
		}
	case how == plainText && !mask.IsText(data):
		return cannot("its text is not UTF-8")
	case how == plainText:
		out = rules.Text(data)
	default:
		return cannot("its media type is not supported")
	}
	r.Body, r.ContentLength, r.TransferEncoding = bodies.NewSent(out, seen.held.Release), int64(len(out)), nil
	in.otherBytes()
	if len(out) == 0 {
		r.Body = http.NoBody
	}
	return nil
}

// otherBytes drops the fields that are about the body as it came.
func (in *inbound) otherBytes() {
	for _, name := range [...]string{"Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Signature", "Signature-Input"} {
		delete(in.headers, name)
	}
}

// maskKept masks a body that is on disk. Its media are no text: they are taken out
// before and put back behind, so that what is masked fits into memory.
func (b *Bouncer) maskKept(r *http.Request, in *inbound, seen *inspection, rules *mask.Rules, cannot func(string) *refusal) *refusal {
	if !mayBeJSON(seen.begin(), seen.head) {
		return cannot("it is large and not JSON")
	}
	var key [16]byte
	if _, err := io.ReadFull(rand.Reader, key[:]); err != nil {
		return cannot("no random numbers are available")
	}
	mark := letters(key[:])
	doc, cuts, err := llm.Excise(seen.content(), bodies.MaxMasked, mark)
	switch {
	case errors.Is(err, llm.ErrTooMuchText):
		return tooLarge("path_mask", bodies.MaxMasked)
	case err != nil:
		return cannot("it is not valid JSON")
	}
	room := b.bodies.Room()
	defer room.Release()
	if !room.Grow(copiesForPaths * len(doc)) {
		return tooMany()
	}
	out := make([]byte, 0, len(doc)+len(doc)/8)
	err = b.guard(func() error {
		return rules.JSONInto(doc, func(p []byte) error {
			if len(out)+len(p) > cap(out) { // short values may become long ones
				more := cap(out) + len(p)
				if !room.Grow(more) {
					return bodies.ErrTooMany
				}
				out = append(make([]byte, 0, cap(out)+more), out...)
			}
			out = append(out, p...)
			return nil
		})
	})
	switch {
	case errors.Is(err, bodies.ErrTooMany):
		return tooMany()
	case errors.Is(err, mask.ErrHeld):
		return tooLarge("value", mask.MaxHeld)
	case err != nil:
		return cannot("it is not valid JSON")
	}
	masked, err := b.bodies.Create()
	if err == nil {
		err = llm.Splice(masked, out, mark, cuts, seen.content())
	}
	if err != nil {
		masked.Close()
		return tooMany()
	}
	seen.kept.Close()
	seen.kept = masked
	r.Body, r.ContentLength, r.TransferEncoding = masked.Open(), masked.Length(), nil
	in.otherBytes()
	return nil
}

// letters writes bytes in letters alone.
func letters(key []byte) string {
	out := make([]byte, 0, 2*len(key))
	for _, c := range key {
		out = append(out, 'a'+c>>4, 'a'+c&15)
	}
	return string(out)
}

// recordable is the request as the decision log may hold it: of what its body
// says only what the verdict's masks of the request leave, whether the
// application got it so or, in shadow mode, as it came. What cannot be masked is
// left out.
func (b *Bouncer) recordable(in *inbound, v *verdict) *inbound {
	_, list := mask.Split(v.dec.Mask)
	if len(list) == 0 || in.seen == nil || in.seen.rpc == nil && in.seen.llm == nil {
		return in
	}
	seen, told := *in.seen, *in
	told.seen = &seen
	seen.rpc, seen.llm = nil, nil
	rules, err := mask.New(list, nil)
	if err != nil {
		return &told
	}
	body, err := b.applyMask(in.seen.body, rules)
	if err != nil {
		return &told
	}
	clean := inspection{refs: seen.refs, serves: seen.serves, head: seen.head, body: body, whole: true} // its media are left out already
	clean.head.mcp = mcp.Headers{Session: seen.head.mcp.Session}                                        // they repeat what is masked
	clean.read(in)
	seen.rpc, seen.llm = clean.rpc, clean.llm
	if seen.llm != nil && in.seen.llm != nil {
		seen.llm.Estimated = in.seen.llm.Estimated
	}
	return &told
}

// dropParsed drops what a decision was made by, once it is recorded: while the
// application works on its answer, a request holds no more than what of its body
// is still to be sent.
func (s *inspection) dropParsed() {
	if s == nil {
		return
	}
	s.body = nil
	if s.kept != nil {
		s.held.Release()
	}
	if s.rpc != nil {
		s.rpc.Arguments = value.Value{}
	}
	if s.llm != nil {
		s.llm.Messages, s.llm.Texts = value.Value{}, value.Value{}
		s.llm.Model = strings.Clone(s.llm.Model) // and not the body that it is a part of
	}
}

// readForMask reads a body that is to be masked; one that was read for a control
// is here already.
func (b *Bouncer) readForMask(w http.ResponseWriter, r *http.Request, in *inbound) (*inspection, *refusal) {
	seen := in.seen
	if seen == nil || !seen.whole || !needsBody(seen.refs) {
		read, err := b.inspect(w, r, in, lang.Refs{LLM: true}, func(bodyHead, []byte) bool { return true })
		switch {
		case errors.Is(err, bodies.ErrSlow):
			return nil, &refusal{http.StatusRequestTimeout, "request_timeout", "the request's body came too slowly"}
		case err != nil:
			return nil, badRequest("the request body is incomplete")
		case seen == nil:
			in.seen = read
		default:
			in.seen.body, in.seen.kept, in.seen.held, in.seen.whole, in.seen.no = read.body, read.kept, read.held, read.whole, read.no
		}
		seen = in.seen
	}
	if seen.no == nil && !seen.whole {
		return nil, &refusal{http.StatusUnprocessableEntity, "request_unmaskable", "the request's body would have to be masked, but its media type is not supported"}
	}
	return seen, seen.no
}

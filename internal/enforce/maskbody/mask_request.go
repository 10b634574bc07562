package maskbody

import (
	"crypto/rand"
	"errors"
	"io"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/llm"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Request masks a request's body (masks with request:...). A body that cannot be masked
// is refused, because neither the application nor a model behind it may see it.
func (m *Masker) Request(w http.ResponseWriter, r *http.Request, st *settings.Settings, in *request.Inbound, v *judge.Verdict) *request.Refusal {
	_, list := mask.Split(v.Mask)
	if len(list) == 0 {
		return nil
	}
	cannot := func(why string) *request.Refusal {
		m.Count.MaskFailures.Add(1)
		return request.Refuse(http.StatusUnprocessableEntity, "request_unmaskable", "the request's body would have to be masked, but "+why)
	}
	rules, err := mask.New(list, st.HashKey)
	if err != nil {
		return cannot(err.Error())
	}
	rules.Head(in.Headers)
	if rules.IsEmpty() || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	head := request.HeadOf(r.Header, r.ContentLength)
	if head.Encoding != "" && head.Encoding != "identity" {
		return cannot("it is compressed")
	}
	seen, refusal := m.readForMask(w, r, in)
	switch {
	case refusal != nil:
		return refusal
	case seen.Kept != nil:
		return m.maskKept(r, in, seen, rules, cannot)
	}
	data := seen.Body
	var out []byte
	switch how := rewriteMethodOf(r.Header["Content-Type"], rules); {
	case len(data) == 0:
	case request.MayBeJSON(head, data):
		if out, err = m.applyMask(data, rules); err != nil {
			return cannot("it is not valid JSON")
		}
	case how == plainText && !mask.IsText(data):
		return cannot("its text is not UTF-8")
	case how == plainText:
		out = rules.Text(data)
	default:
		return cannot("its media type is not supported")
	}
	r.Body, r.ContentLength, r.TransferEncoding = bodies.NewMemoryBody(out, seen.Memory.Release), int64(len(out)), nil
	dropBodyFields(in)
	if len(out) == 0 {
		r.Body = http.NoBody
	}
	return nil
}

// dropBodyFields drops the header fields that describe the body before masking.
func dropBodyFields(in *request.Inbound) {
	for _, name := range [...]string{"Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Signature", "Signature-Input"} {
		delete(in.Headers, name)
	}
}

// maskKept masks a body on disk. Media hold no text: they are cut out before masking and
// put back after it, so that the rest fits into memory.
func (m *Masker) maskKept(r *http.Request, in *request.Inbound, seen *request.Inspection, rules *mask.Rules, cannot func(string) *request.Refusal) *request.Refusal {
	if !request.MayBeJSON(seen.Head, seen.Prefix()) {
		return cannot("it is large and not JSON")
	}
	var key [16]byte
	if _, err := io.ReadFull(rand.Reader, key[:]); err != nil {
		return cannot("no random numbers are available")
	}
	mark := letters(key[:])
	doc, cuts, err := llm.Excise(seen.Content(), bodies.MaxMasked, mark)
	switch {
	case errors.Is(err, llm.ErrTooMuchText):
		return request.TooLarge("path_mask", bodies.MaxMasked)
	case err != nil:
		return cannot("it is not valid JSON")
	}
	room := m.Bodies.NewReservation()
	defer room.Release()
	if !room.Grow(copiesForPaths * len(doc)) {
		return request.TooMany()
	}
	out := make([]byte, 0, len(doc)+len(doc)/8)
	err = m.Panics.Run("a mask panicked", func() error {
		return rules.JSONInto(doc, func(p []byte) error {
			if len(out)+len(p) > cap(out) { // masked values may be longer
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
		return request.TooMany()
	case errors.Is(err, mask.ErrHeld):
		return request.TooLarge("value", mask.MaxHeld)
	case err != nil:
		return cannot("it is not valid JSON")
	}
	masked, err := m.Bodies.Create()
	if err == nil {
		err = llm.Splice(masked, out, mark, cuts, seen.Content())
	}
	if err != nil {
		masked.Close()
		return request.TooMany()
	}
	seen.Kept.Close()
	seen.Kept = masked
	r.Body, r.ContentLength, r.TransferEncoding = masked.Open(), masked.Length(), nil
	dropBodyFields(in)
	return nil
}

// letters writes bytes as letters.
func letters(key []byte) string {
	out := make([]byte, 0, 2*len(key))
	for _, c := range key {
		out = append(out, 'a'+c>>4, 'a'+c&15)
	}
	return string(out)
}

// readForMask reads a body for masking, unless a control had it read already.
func (m *Masker) readForMask(w http.ResponseWriter, r *http.Request, in *request.Inbound) (*request.Inspection, *request.Refusal) {
	seen := in.Seen
	if seen == nil || !seen.Whole || !request.NeedsBody(seen.Refs) {
		read, err := m.Reader.Inspect(w, r, in, lang.Refs{LLM: true}, func(request.BodyHead, []byte) bool { return true })
		switch {
		case errors.Is(err, bodies.ErrSlow):
			return nil, request.Refuse(http.StatusRequestTimeout, "request_timeout", "the request body arrived too slowly")
		case err != nil:
			return nil, request.BadRequest("the request body is incomplete")
		case seen == nil:
			in.Seen = read
		default:
			in.Seen.Body, in.Seen.Kept, in.Seen.Memory, in.Seen.Whole, in.Seen.Refusal = read.Body, read.Kept, read.Memory, read.Whole, read.Refusal
		}
		seen = in.Seen
	}
	if seen.Refusal == nil && !seen.Whole {
		return nil, request.Refuse(http.StatusUnprocessableEntity, "request_unmaskable", "the request's body would have to be masked, but its media type is not supported")
	}
	return seen, seen.Refusal
}

package enforce

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
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
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(out)), int64(len(out)), nil
	for _, name := range [...]string{"Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Signature", "Signature-Input"} {
		delete(in.headers, name) // of other bytes
	}
	if len(out) == 0 {
		r.Body = http.NoBody
	}
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

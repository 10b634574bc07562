package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rest/bind"
	"github.com/gatehouse-dev/gatehouse/internal/rest/schema"
)

// MaxDepth is how deep a JSON body may nest.
const MaxDepth = 64

// precheck checks everything except the content of the body: media type, encoding, size,
// parameters.
func (r *Router) precheck(x *exchange, req *http.Request) error {
	rt := x.route
	if enc := req.Header["Content-Encoding"]; len(enc) > 0 && !encodable(rt, enc) {
		return fault.New(fault.UnsupportedMedia, "unsupported_encoding", "bodies must be sent without Content-Encoding")
	}
	if rt.hasBody {
		if req.ContentLength > rt.op.MaxBody {
			return TooLarge(rt.op.MaxBody)
		}
		if err := checkMedia(rt, req); err != nil {
			return err
		}
	}
	if len(rt.params) > 0 || req.URL.RawQuery != "" {
		return r.checkParams(rt, req)
	}
	return nil
}

func encodable(rt *route, enc []string) bool {
	return len(enc) == 1 && (strings.EqualFold(enc[0], "identity") || rt.op.Gzip && strings.EqualFold(enc[0], "gzip"))
}

// checkMedia checks the media type of a body against those of the operation. A body
// without a type counts as what the operation expects.
func checkMedia(rt *route, req *http.Request) error {
	types := req.Header["Content-Type"]
	if len(types) == 0 || req.ContentLength == 0 {
		return nil
	}
	if len(types) == 1 && (types[0] == "application/json" || types[0] == "application/json; charset=utf-8") && slices.Contains(rt.media, "application/json") {
		return nil
	}
	if len(types) == 1 {
		media, params, err := mime.ParseMediaType(types[0])
		charset := strings.ToLower(params["charset"])
		if err == nil && slices.Contains(rt.media, media) && (charset == "" || charset == "utf-8" || charset == "utf8" || charset == "us-ascii") {
			return nil
		}
	}
	return fault.Newf(fault.UnsupportedMedia, "unsupported_media_type", "send the body as %s", strings.Join(rt.media, " or "))
}

// read fills the input of a Register operation: its parameters and its body, parsed
// strictly and checked. The body is bound from the value that was checked.
func (r *Router) read(x *exchange, req *http.Request, input *bind.Input, in reflect.Value) error {
	rt := x.route
	if err := r.precheck(x, req); err != nil {
		return err
	}
	query, err := parseQuery(req)
	if err != nil {
		return err
	}
	if err := input.Params(in, req, query); err != nil {
		return BadRequest("invalid_parameter", "a parameter cannot be read").Because(err)
	}
	if !rt.hasBody {
		return nil
	}
	data, err := x.read(req, false)
	if err != nil {
		return err
	}
	doc, err := r.checkBody(rt, data)
	if err != nil {
		return err
	}
	if err := input.Body(in, doc); err != nil {
		return wrongForm(err)
	}
	return nil
}

// wrongForm returns the fault for a value that its schema accepts and its type does not. It omits
// the error of the type's decoder, which may quote the value.
func wrongForm(err error) error {
	d := fault.Detail{Message: "a value does not have the expected form"}
	if wrong, ok := errors.AsType[*bind.WrongError](err); ok {
		d.Pointer = schema.Pointer(wrong.Path)
	}
	return invalid([]fault.Detail{d})
}

// checkBody parses and validates a JSON body. It returns the value without read-only
// members, or an undefined one for an optional body that is empty.
func (r *Router) checkBody(rt *route, data []byte) (value.Value, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		if rt.doc.RequestBody != nil && !rt.doc.RequestBody.Required {
			return value.Value{}, nil
		}
		return value.Value{}, BadRequest("invalid_json", "the body is empty; it must be a JSON document")
	}
	doc, err := Parse(data)
	if err != nil {
		return value.Value{}, err
	}
	doc, offences := r.valid.Check(schema.Body{Schema: rt.body, Record: rt.record, Lenient: rt.op.Lenient, Type: rt.bodyType}, doc)
	if len(offences) > 0 {
		return value.Value{}, invalid(offences)
	}
	return doc, nil
}

// write answers with the output of a Register operation.
func (r *Router) write(x *exchange, output *bind.Output, out reflect.Value) {
	status := output.Status(out, x.route.doc.DefaultStatus)
	output.Headers(out, x.Header())
	body, ok := output.Body(out)
	if !ok {
		x.WriteHeader(status)
		return
	}
	r.empty.fix(body)
	buf, reused := r.answers.Get().(*bytes.Buffer)
	if !reused {
		buf = &bytes.Buffer{}
	}
	defer r.recycle(buf)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body.Addr().Interface()); err != nil {
		x.fail(err)
		return
	}
	WriteBytes(x, status, JSONMedia, buf.Bytes())
}

// recycle keeps the buffer of an answer, unless it has grown large.
func (r *Router) recycle(buf *bytes.Buffer) {
	if buf.Cap() <= 64<<10 {
		buf.Reset()
		r.answers.Put(buf)
	}
}

// invalid returns the fault for all offences against a schema.
func invalid(ds []fault.Detail) *fault.Error {
	e := fault.New(fault.Invalid, "validation_failed", "the request is not valid")
	if len(ds) == 1 {
		e.Message = "a value does not match its schema"
	}
	e.Details = ds
	return e
}

// Parse reads one JSON document strictly: no duplicate members, no members that differ only in
// case, no invalid UTF-8, nothing after the document, at most MaxDepth levels, and no number that
// neither an int64 nor a double can hold. Faults: BadRequest, which quotes nothing of the document.
func Parse(data []byte) (value.Value, error) {
	doc, err := value.Decode(data, value.Limits{Depth: MaxDepth})
	if err == nil {
		return doc, nil
	}
	if se, ok := errors.AsType[*value.SyntaxError](err); ok {
		return doc, BadRequest("invalid_json", "the body is not valid JSON: %s, at byte %d", se.Message, se.Offset)
	}
	return doc, BadRequest("invalid_json", "the body is not valid JSON")
}

package request

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/llm"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxParts bounds the parts of a form.
const maxParts = 1000

var (
	errManyParts = errors.New("the form has too many parts")
	errOddPart   = errors.New("a part of the form cannot be read")
)

// form reads a form that is sent to a model. Its fields are texts. Its files are media, JSON lines
// or texts.
func (s *Inspection) form(in *Inbound) {
	f := &formReader{room: bodies.MaxText}
	media, params, err := mime.ParseMediaType(s.Head.contentType)
	switch {
	case err != nil:
	case media == "multipart/form-data":
		err = f.parts(multipart.NewReader(s.Content(), params["boundary"]))
	default:
		err = f.pairs(s.Content())
	}
	switch {
	case errors.Is(err, llm.ErrTooMuchText):
		s.Refusal = TooLarge("text", bodies.MaxText)
	case f.broken != "":
		s.Refusal = Refuse(http.StatusBadRequest, "body_malformed", f.broken)
	case err != nil:
		s.markUnreadable(in, true, "the form cannot be read: "+err.Error())
	default:
		req, bad := llm.Lines(s.source(in, true), append([]value.Value{value.Object(f.fields...)}, f.requests...))
		if s.setPrompt(req, bad); bad == nil {
			s.LLM.Media(f.media)
		}
	}
}

// formReader collects the content of a form.
type formReader struct {
	room     int // bytes of text that it may still read
	fields   []value.Member
	requests []value.Value
	media    int
	broken   string
}

// pairs reads a body of name=value pairs.
func (f *formReader) pairs(body io.Reader) error {
	text, err := f.readText(body)
	if err != nil {
		return err
	}
	names, err := url.ParseQuery(string(text))
	if err != nil {
		return err
	}
	for name, values := range names {
		for _, v := range values {
			if !utf8.ValidString(name) || !utf8.ValidString(v) {
				return errOddPart
			}
			f.field(name, v)
		}
	}
	return nil
}

// parts reads a multipart body.
func (f *formReader) parts(from *multipart.Reader) error {
	for n := 0; ; n++ {
		part, err := from.NextRawPart()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n == maxParts:
			return errManyParts
		}
		for name := range part.Header {
			if name != "Content-Disposition" && name != "Content-Type" && name != "Content-Length" {
				return errOddPart // an encoding, which some servers undo
			}
		}
		if part.FormName() == "" || !utf8.ValidString(part.FormName()+part.FileName()) {
			return errOddPart
		}
		if err := f.part(part); err != nil {
			return err
		}
	}
}

func (f *formReader) part(part *multipart.Part) error {
	head := make([]byte, 512)
	n, err := io.ReadFull(part, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = head[:n]
	file := part.FileName()
	if file != "" && llm.IsFile(head) && (!utf8.Valid(head) || bytes.HasPrefix(head, []byte("%PDF-"))) {
		f.media++
		f.field("filename", file)
		_, err := io.Copy(io.Discard, part)
		return err
	}
	text, err := f.readText(io.MultiReader(bytes.NewReader(head), part))
	if err != nil {
		return err
	}
	if !utf8.Valid(text) {
		return errOddPart
	}
	if file == "" {
		f.field(part.FormName(), string(text))
		return nil
	}
	f.field("filename", file)
	if !f.lines(text) {
		if low := strings.ToLower(file); strings.HasSuffix(low, ".jsonl") || strings.HasSuffix(low, ".json") || strings.HasSuffix(low, ".ndjson") {
			f.broken = "a control needs the file in this form, which is not proper JSON in lines"
			return errOddPart
		}
		f.field(part.FormName(), string(text))
	}
	return nil
}

// readText reads a text, within the room that is left.
func (f *formReader) readText(from io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, int64(f.room)+1))
	if f.room -= len(text); f.room < 0 {
		return nil, llm.ErrTooMuchText
	}
	return text, err
}

// field adds a text. Forms send numbers as texts, so a text that reads as a whole number
// becomes one.
func (f *formReader) field(name, text string) {
	v := value.String(text)
	if n, err := strconv.ParseInt(text, 10, 62); err == nil && strconv.FormatInt(n, 10) == text {
		v = value.Int(n)
	}
	for i, m := range f.fields { // a repeated field keeps all its values
		if m.Key == name {
			f.fields[i].Value = value.Array(append(append([]value.Value{}, elementsOf(m.Value)...), v)...)
			return
		}
	}
	f.fields = append(f.fields, value.Member{Key: name, Value: v})
}

func elementsOf(v value.Value) []value.Value {
	if v.Kind() == value.ArrayKind {
		return v.Elems()
	}
	return []value.Value{v}
}

// lines reads a file of JSON documents: one in each line, or one in all. It returns false
// when the file is neither.
func (f *formReader) lines(text []byte) bool {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return false
	}
	if doc, err := value.Decode(text, value.Limits{Depth: bodies.MaxDepth}); err == nil {
		f.requests = append(f.requests, doc)
		return true
	}
	var found []value.Value
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		doc, err := value.Decode(line, value.Limits{Depth: bodies.MaxDepth})
		if err != nil {
			return false
		}
		found = append(found, doc)
	}
	f.requests = append(f.requests, found...)
	return true
}

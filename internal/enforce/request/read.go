package request

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/llm"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// KindOf returns what a resource is registered as: its resource_kind, or else its type, with one
// name for models (llm_endpoint) and one for MCP servers (mcp_server).
func KindOf(res *target.Resource) string {
	if res == nil {
		return ""
	}
	if kind, _ := res.Doc.Get("resource_kind").Str(); kind != "" {
		return kind
	}
	switch res.Type {
	case "llm":
		return "llm_endpoint"
	case "mcp":
		return "mcp_server"
	}
	return res.Type
}

// servesModel reports whether a resource is registered as a model or an agent.
func servesModel(res *target.Resource) bool {
	kind := KindOf(res)
	return kind == "llm_endpoint" || kind == "agent"
}

// ServesMCP reports whether a resource is registered as an MCP server.
func ServesMCP(res *target.Resource) bool { return KindOf(res) == "mcp_server" }

// requestResources describes the resources of a request. A path with two readings has two resources, and it
// is unknown which one the application serves.
type requestResources struct {
	Model bool // some reading is a model or an agent
	MCP   bool // some reading is an MCP server
	// onlyMCP is set when every reading is an MCP server.
	onlyMCP bool
}

// Resources looks up both readings of a request.
func (in *Inbound) Resources(st *settings.State) requestResources {
	if st.Set == nil {
		return requestResources{}
	}
	res, literal := st.Set.Readings(in.Locator())
	return requestResources{
		Model:   servesModel(res) || servesModel(literal),
		MCP:     ServesMCP(res) || ServesMCP(literal),
		onlyMCP: ServesMCP(res) && (literal == nil || ServesMCP(literal)),
	}
}

// queryPrompts are query parameters that may hold a prompt.
var queryPrompts = []string{
	"prompt", "input", "inputs", "message", "messages", "content", "contents", "system", "instructions", "q", "query", "question", "text", "template", "suffix", "preamble",
}

// source returns what is known of a request to a model beside its body.
func (s *Inspection) source(in *Inbound, model bool) llm.Source {
	src := llm.Source{Path: in.Path, AnthropicVersion: s.Head.version, Model: model, Texts: readsTexts(s.Refs)}
	if model {
		src.Query = append(promptsOfQuery(in.params), s.promptsOfPath(in.Path)...)
	}
	return src
}

// promptsOfPath returns the segments of a path that may hold a prompt, as some services take it
// there. In a request without a body only segments with spaces count, because a GET of
// /models/some-model-name asks nothing.
func (s *Inspection) promptsOfPath(path string) (out []value.Member) {
	for seg := range strings.SplitSeq(path, "/") {
		text, err := url.PathUnescape(seg)
		if err == nil && llm.IsWordy(text) && (s.size() > 0 || strings.ContainsAny(text, " \t\r\n+")) {
			out = append(out, value.Member{Key: "path", Value: value.String(text)})
		}
	}
	return out
}

// promptsOfQuery returns the query parameters that may hold a prompt: those with the name of one,
// and those whose name or value is wordy.
func promptsOfQuery(params value.Value) (out []value.Member) {
	params.Each(func(name string, values value.Value) bool {
		says := slices.Contains(queryPrompts, strings.ToLower(name)) || llm.IsWordy(name)
		for _, v := range values.Elems() {
			text, _ := v.Str()
			says = says || llm.IsWordy(text)
		}
		if says {
			out = append(out, value.Member{Key: name, Value: values})
		}
		return true
	})
	return out
}

// readsTexts reports whether a control reads the texts of messages.
func readsTexts(refs lang.Refs) bool {
	return slices.ContainsFunc(refs.Input, func(p []string) bool {
		return len(p) == 0 || p[0] == "llm" && (len(p) == 1 || p[1] == "texts")
	})
}

// Read parses the body for the resources of the request. A body that is not JSON contains neither a
// call nor a prompt, so the controls see none; for a model it counts as unreadable. An invalid body
// is refused.
func (s *Inspection) Read(in *Inbound) {
	if s.Refusal != nil {
		return
	}
	model := s.Serves.Model
	switch {
	case in.opensSocket():
		s.inspectSocket(in, model)
	case !s.Whole:
		s.markUnreadable(in, model, "the body is not JSON")
	case s.size() == 0:
		s.inspectBodiless(in, model)
	case model && !readsCharset(s.Head.contentType):
		s.markUnreadable(in, model, "the charset of the body is not supported")
	case model && isForm(s.Head.contentType) && !MayBeJSON(s.Head, s.Prefix()):
		s.form(in)
	case !MayBeJSON(s.Head, s.Prefix()):
		s.markUnreadable(in, model, "the body is not JSON")
	default:
		s.inspectJSON(in, model)
	}
}

// size returns the length of the whole body in bytes.
func (s *Inspection) size() int64 {
	if s.Kept != nil {
		return s.Kept.Length()
	}
	return int64(len(bytes.TrimSpace(s.Body)))
}

// Content reads the whole body.
func (s *Inspection) Content() io.Reader {
	if s.Kept != nil {
		return s.Kept.Open()
	}
	return bytes.NewReader(s.Body)
}

// Prefix returns the beginning of the body.
func (s *Inspection) Prefix() []byte {
	if s.Kept == nil {
		return s.Body
	}
	head := make([]byte, 512)
	n, _ := io.ReadFull(s.Kept.Open(), head)
	return head[:n]
}

// markUnreadable marks a body in a form that the bouncer does not read.
func (s *Inspection) markUnreadable(in *Inbound, model bool, why string) {
	if model {
		s.LLM = llm.Unreadable(s.source(in, model), why)
	}
}

// opensSocket reports whether the request opens a WebSocket, here or behind a gateway.
func (in *Inbound) opensSocket() bool {
	return in.Upgrade || strings.Contains(strings.ToLower(strings.Join(in.Headers["Upgrade"], ",")), "websocket")
}

// inspectSocket handles a WebSocket. Its messages are never read, whatever the body of the request
// contains. MCP also runs over WebSockets, with the subprotocol mcp.
func (s *Inspection) inspectSocket(in *Inbound, model bool) {
	speaksMCP := s.Serves.MCP || strings.Contains(strings.ToLower(strings.Join(in.Headers["Sec-Websocket-Protocol"], ",")), "mcp")
	if s.Refs.MCP && speaksMCP {
		s.Refusal = Refuse(http.StatusForbidden, "body_unavailable", "a control needs the messages, and the bouncer does not read those of a socket")
	}
	s.markUnreadable(in, model, "the messages of a WebSocket are not read")
}

// inspectBodiless handles a request without a body.
func (s *Inspection) inspectBodiless(in *Inbound, model bool) {
	if !model {
		return
	}
	src := s.source(in, model)
	prompts := slices.DeleteFunc(slices.Clone(src.Query), func(m value.Member) bool { return !slices.Contains(queryPrompts, m.Key) })
	if len(src.Query) > 0 {
		src.Query = slices.DeleteFunc(src.Query, func(m value.Member) bool { return slices.Contains(queryPrompts, m.Key) })
		s.setPrompt(llm.Plain(src, prompts...))
	}
}

// inspectJSON reads a JSON body.
func (s *Inspection) inspectJSON(in *Inbound, model bool) {
	if refusal := s.reduce(); refusal != nil {
		s.Refusal = refusal
		return
	}
	s.parsed.Release() // of an earlier reading
	if s.parsed = s.Memory.NewReservation(); s.parsed != nil && !s.parsed.Grow(value.Weight(s.Body, value.PartBytes)) {
		s.Refusal = TooMany()
		return
	}
	doc, err := value.Decode(s.Body, value.Limits{Depth: bodies.MaxDepth, Bytes: bodies.MaxText})
	if err != nil {
		s.Refusal = Refuse(http.StatusBadRequest, "body_malformed", "a control needs this body, which is not proper JSON: "+err.Error())
		if s.Refs.MCP && s.Serves.MCP {
			s.MCPError = &mcp.Error{Code: mcp.CodeParse, Message: s.Refusal.Message}
		}
		return
	}
	if s.Refs.MCP {
		s.RPC, s.MCPError = mcp.Parse(doc, s.Head.MCP, s.Serves.MCP)
		if model && !s.Serves.MCP && s.RPC != nil && !s.RPC.Known() {
			s.RPC = nil // agents have JSON-RPC protocols of their own
		}
		if s.RPC != nil || s.MCPError != nil {
			s.Refusal = s.mcpRefusal(in.Host)
			if s.Refusal == nil && s.Cut {
				s.Refusal = TooLarge("text", bodies.MaxText) // a tool may read the part that was left out
			}
			if s.Refusal != nil || !model {
				return
			}
		}
	}
	s.setPrompt(llm.Parse(s.source(in, model), doc))
}

// reduce cuts the media out of a large body.
func (s *Inspection) reduce() *Refusal {
	if s.Kept == nil && len(s.Body) <= bodies.MaxInMemory {
		return nil
	}
	small, cut, err := llm.Reduce(s.Content(), bodies.MaxText)
	switch {
	case errors.Is(err, llm.ErrTooMuchText):
		return TooLarge("text", bodies.MaxText)
	case err != nil:
		return Refuse(http.StatusBadRequest, "body_malformed", "a control needs this body, which is not proper JSON: "+err.Error())
	}
	s.Body, s.Cut = small, cut > 0
	if s.Memory != nil && !s.Memory.Grow(2*len(small)) {
		return TooMany()
	}
	return nil
}

// setPrompt keeps what was found in a body.
func (s *Inspection) setPrompt(req *llm.Request, bad *llm.Error) {
	if bad != nil {
		s.Refusal = Refuse(http.StatusBadRequest, "prompt_ambiguous", bad.Message)
		return
	}
	s.LLM = req
}

// isForm reports whether a content type is one in which clients send forms and files.
func isForm(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "multipart/form-data" || media == "application/x-www-form-urlencoded") ||
		err != nil && strings.Contains(strings.ToLower(contentType), "form")
}

// readsCharset reports whether the bytes can be read as they are. In other charsets
// (UTF-7, ISO-2022) the same bytes mean something else.
func readsCharset(contentType string) bool {
	at := strings.Index(strings.ToLower(contentType), "charset")
	if at < 0 {
		return true
	}
	_, params, err := mime.ParseMediaType(contentType)
	charset := strings.ToLower(params["charset"])
	return err == nil && (charset == "" || charset == "utf-8" || charset == "utf8" || charset == "us-ascii" || charset == "ascii" ||
		strings.HasPrefix(charset, "iso-8859-") || strings.HasPrefix(charset, "windows-125"))
}

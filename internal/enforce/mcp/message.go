// Package mcp reads the Model Context Protocol over streamable HTTP
// (2025-06-18, 2025-11-25, 2026-07-28) as far as controls decide on it: the
// JSON-RPC message in a request's body, the headers that repeat parts of it,
// and the list of tools in an answer. It is pure: bytes in, facts out.
package mcp

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/spelling"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Codes of JSON-RPC errors (JSON-RPC 2.0 section 5.1; MCP 2026-07-28; COAZ-MCP).
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeInvalidParams  = -32602
	CodeUnavailable    = -32603
	CodeDenied         = -32001
	CodeHeaderMismatch = -32020
)

// Response is the method that controls see of an answer which a client gives
// to a question of the server.
const Response = "response"

// headersFrom is the version from which requests must repeat method and name
// in headers.
const headersFrom = "2026-07-28"

// versionMember is where a request's body names its version.
const versionMember = "io.modelcontextprotocol/protocolVersion"

// Message is one JSON-RPC message from a client.
type Message struct {
	Method string
	// ID is the id as JSON; empty for notifications, which have no answer.
	ID string
	// Session is the value of Mcp-Session-Id.
	Session string
	// Version is the protocol version that the request names; empty: none.
	Version string

	// Tool, Prompt, Resource and Task are what the method is about.
	Tool, Prompt, Resource, Task string
	Arguments                    value.Value
}

// Error is why a message is refused before any control is asked.
type Error struct {
	Code    int
	Message string
	ID      string // as JSON; empty: not known
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Notification reports whether the message has no answer.
func (m *Message) Notification() bool { return m.ID == "" && m.Method != Response }

// Harmless reports whether the message passes whoever sends it: pings and
// notifications (COAZ-MCP).
func (m *Message) Harmless() bool {
	return m.Method == "ping" || m.ID == "" && strings.HasPrefix(m.Method, "notifications/")
}

var known = map[string]bool{
	Response: true, "initialize": true, "ping": true, "server/discover": true, "subscriptions/listen": true,
	"tools/list": true, "tools/call": true, "prompts/list": true, "prompts/get": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true, "resources/subscribe": true, "resources/unsubscribe": true,
	"completion/complete": true, "logging/setLevel": true,
	"tasks/get": true, "tasks/list": true, "tasks/result": true, "tasks/cancel": true, "tasks/update": true,
}

// Known reports whether the method is one of MCP's for clients. What is not
// known cannot be judged by what it is about.
func (m *Message) Known() bool {
	return known[m.Method] || strings.HasPrefix(m.Method, "notifications/")
}

// Doc is input.mcp: method, tool, arguments, session, and
// prompt, resource and task where the method is about one.
func (m *Message) Doc() value.Value {
	members := make([]value.Member, 0, 6)
	add := func(key, s string) {
		if s != "" {
			members = append(members, value.Member{Key: key, Value: value.String(s)})
		}
	}
	add("method", m.Method)
	add("tool", m.Tool)
	if m.Arguments.Defined() {
		members = append(members, value.Member{Key: "arguments", Value: m.Arguments})
	}
	add("session", m.Session)
	add("prompt", m.Prompt)
	add("resource", m.Resource)
	add("task", m.Task)
	add("protocol_version", m.Version)
	return value.Object(members...)
}

// Parse reads a request's body. The message is nil where the body is none of
// MCP. The body decides; headers that say something else are an error. server
// says that an MCP server is asked: what it may take for a message must be one.
func Parse(doc value.Value, h Headers, server bool) (*Message, *Error) {
	switch {
	case doc.Kind() == value.ArrayKind:
		if server || anyRPC(doc) {
			return nil, &Error{Code: CodeInvalidRequest, Message: "batches are no part of MCP since 2025-06-18"}
		}
		return nil, nil
	case !isRPC(doc) && !(server && resembles(doc)):
		return nil, nil
	}
	m := &Message{Session: h.Session}
	id := doc.Get("id")
	switch id.Kind() {
	case value.StringKind, value.NumberKind:
		m.ID = string(id.AppendJSON(nil))
	case value.UndefinedKind:
	default:
		return nil, &Error{Code: CodeInvalidRequest, Message: "an id is a string or a number"}
	}
	fail := func(code int, message string) (*Message, *Error) { return nil, &Error{code, message, m.ID} }
	if bad := plainMembers(doc); bad != "" {
		return fail(CodeInvalidRequest, bad)
	}
	if s, _ := doc.Get("jsonrpc").Str(); s != "2.0" {
		return fail(CodeInvalidRequest, "the message is not JSON-RPC 2.0")
	}
	method, result, failure := doc.Get("method"), doc.Get("result"), doc.Get("error")
	answers := result.Defined() || failure.Defined()
	var isText bool
	switch m.Method, isText = method.Str(); {
	case !method.Defined() && answers:
		if bad := answer(doc); bad != "" {
			return fail(CodeInvalidRequest, bad)
		}
		m.Method = Response
		return m, h.agree(m)
	case !isText || answers || m.Method == "" || m.Method == Response:
		return fail(CodeInvalidRequest, "a message must have either a method or a result")
	}
	if bad := m.about(doc.Get("params")); bad != "" {
		return fail(CodeInvalidParams, bad)
	}
	return m, h.agree(m)
}

// Member names that decide what a message is and what it is about.
var (
	messageNames = spelling.Known("jsonrpc", "id", "method", "params", "result", "error")
	errorNames   = spelling.Known("code", "message", "data")
	paramNames   = spelling.Known("name", "arguments", "uri", "taskId", "ref", "protocolVersion", "_meta")
	refNames     = spelling.Known("type", "name", "uri")
	metaNames    = spelling.Known(versionMember)
)

// isRPC reports whether some server may take v for a message: servers differ in
// whether `Method` is `method` to them.
func isRPC(v value.Value) bool {
	has := membersOf(v)
	return has.version || has.method && (has.params || has.id)
}

// resembles reports a body that an MCP server may take for a message.
func resembles(v value.Value) bool {
	has := membersOf(v)
	return has.version || has.method || has.params || has.answer
}

// members are those of JSON-RPC that an object has, in any spelling.
type members struct{ version, method, params, id, answer bool }

func membersOf(v value.Value) (has members) {
	if v.Kind() != value.ObjectKind {
		return has
	}
	v.Each(func(name string, member value.Value) bool {
		switch known, _ := messageNames.Find(name); known {
		case "jsonrpc":
			has.version = true
		case "method":
			has.method = has.method || member.Kind() == value.StringKind
		case "params":
			has.params = true
		case "id":
			has.id = true
		case "result", "error":
			has.answer = true
		}
		return true
	})
	return has
}

// anyRPC reports a message in a list, or in a list within it.
func anyRPC(v value.Value) bool {
	if v.Kind() != value.ArrayKind {
		return isRPC(v)
	}
	return slices.ContainsFunc(v.Elems(), anyRPC)
}

// plainMembers holds a message to the members that JSON-RPC has, each in its
// one spelling; a text says what is wrong. What another decoder would read in
// another way has no one meaning.
func plainMembers(doc value.Value) string {
	bad := ""
	doc.Each(func(name string, _ value.Value) bool {
		if !messageNames.Exact(name) {
			bad = "a message has no member " + strconv.Quote(name)
		}
		return bad == ""
	})
	params := doc.Get("params")
	for _, level := range [...]struct {
		where string
		v     value.Value
		names spelling.Names
	}{
		{"error", doc.Get("error"), errorNames},
		{"params", params, paramNames},
		{"params.ref", params.Get("ref"), refNames},
		{"params._meta", params.Get("_meta"), metaNames},
	} {
		if bad == "" && level.v.Kind() == value.ObjectKind {
			bad = misspelt(level.where, level.v, level.names)
		}
	}
	return bad
}

func misspelt(where string, v value.Value, names spelling.Names) string {
	bad := ""
	v.Each(func(name string, _ value.Value) bool {
		if known, is := names.Misspelt(name); is {
			bad = where + " has " + strconv.Quote(name) + " where " + strconv.Quote(known) + " is meant"
		}
		return bad == ""
	})
	return bad
}

// answer holds an answer of a client to its form; a text says what is wrong.
func answer(doc value.Value) string {
	result, failure := doc.Get("result"), doc.Get("error")
	switch {
	case result.Defined() && failure.Defined():
		return "an answer has a result or an error, not both"
	case doc.Get("params").Defined():
		return "an answer has no params"
	case result.Defined() && !doc.Get("id").Defined():
		return "a result names what it answers"
	case failure.Defined() && failure.Kind() != value.ObjectKind:
		return "an error is an object"
	}
	return ""
}

// about reads what the method is about; a text says what is wrong with it.
func (m *Message) about(params value.Value) string {
	if k := params.Kind(); k != value.ObjectKind && k != value.UndefinedKind && k != value.NullKind {
		return "params must be an object"
	}
	m.Version, _ = params.At("_meta", versionMember).Str()
	take := func(to *string, name string) string {
		s, ok := params.Get(name).Str()
		if !ok || s == "" {
			return "params." + name + " must be a string"
		}
		*to = s
		return ""
	}
	if m.Method == "tools/call" || m.Method == "prompts/get" {
		m.Arguments = params.Get("arguments")
		if k := m.Arguments.Kind(); k != value.ObjectKind && k != value.UndefinedKind && k != value.NullKind {
			return "params.arguments must be an object"
		}
	}
	switch m.Method {
	case "tools/call":
		return take(&m.Tool, "name")
	case "prompts/get":
		return take(&m.Prompt, "name")
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return take(&m.Resource, "uri")
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return take(&m.Task, "taskId")
	case "completion/complete":
		ref := params.Get("ref")
		m.Prompt, _ = ref.Get("name").Str()
		m.Resource, _ = ref.Get("uri").Str()
	case "initialize":
		m.Version, _ = params.Get("protocolVersion").Str()
	}
	return ""
}

// Headers are the fields of a request that repeat parts of the message.
type Headers struct {
	Method, Name, Version, Session string
	// Params are the values of Mcp-Param-* by what stands behind that, in lower
	// case: arguments of a tool that its schema has repeated (x-mcp-header).
	Params map[string]string
	// Declared are the parameters of the server's tools that its last list has
	// repeated, by tool; without an entry it is not known which they are.
	Declared map[string][]Param
	// Twice: a field is there more than once.
	Twice bool
}

// paramPrefix begins the fields that repeat arguments.
const paramPrefix = "Mcp-Param-"

// HeadersOf reads them from fields by their canonical names.
func HeadersOf(h map[string][]string) (out Headers) {
	for _, f := range [...]struct {
		name string
		to   *string
	}{{"Mcp-Method", &out.Method}, {"Mcp-Name", &out.Name}, {"Mcp-Protocol-Version", &out.Version}, {"Mcp-Session-Id", &out.Session}} {
		switch lines := h[f.name]; len(lines) {
		case 0:
		case 1:
			*f.to = strings.TrimSpace(lines[0])
		default:
			out.Twice = true
		}
	}
	for name, lines := range h {
		if of, ok := strings.CutPrefix(name, paramPrefix); ok && len(lines) > 0 {
			if out.Params == nil {
				out.Params = map[string]string{}
			}
			out.Params[strings.ToLower(of)] = strings.TrimSpace(lines[0])
			out.Twice = out.Twice || len(lines) > 1
		}
	}
	return out
}

// agree holds the headers against the message (MCP 2026-07-28, streamable HTTP).
func (h Headers) agree(m *Message) *Error {
	fail := func(message string) *Error { return &Error{CodeHeaderMismatch, message, m.ID} }
	if h.Twice {
		return fail("an MCP header occurs more than once")
	}
	if m.Version != "" && h.Version != "" && m.Version != h.Version && m.Method != "initialize" {
		return fail("Mcp-Protocol-Version differs from the message")
	}
	if m.Version == "" {
		m.Version = h.Version
	}
	if m.Method == Response {
		return nil
	}
	needed := h.Version >= headersFrom
	if h.Method != m.Method && (h.Method != "" || needed) {
		return fail("Mcp-Method differs from the message")
	}
	if bad := h.paramsAgree(m, needed); bad != "" {
		return fail(bad)
	}
	name := m.Tool
	switch m.Method {
	case "prompts/get":
		name = m.Prompt
	case "resources/read":
		name = m.Resource
	case "tools/call":
	default:
		return nil // elsewhere a name means nothing
	}
	if h.Name == "" && !needed {
		return nil
	}
	given, ok := plain(h.Name)
	if !ok || given != name {
		return fail("Mcp-Name differs from the message")
	}
	return nil
}

// plain decodes a header's value that is no plain ASCII: =?base64?...?=.
func plain(s string) (string, bool) {
	inner, ok := strings.CutPrefix(s, "=?base64?")
	if !ok {
		return s, true
	}
	if inner, ok = strings.CutSuffix(inner, "?="); !ok {
		return s, true
	}
	b, err := base64.StdEncoding.DecodeString(inner)
	return string(b), err == nil
}

// Package mcp parses the Model Context Protocol over streamable HTTP (2025-06-18, 2025-11-25,
// 2026-07-28), as far as controls need it: the JSON-RPC message in a request body, the headers that
// repeat parts of it, and the list of tools in an answer. It does no I/O.
package mcp

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/spelling"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Codes of JSON-RPC errors (JSON-RPC 2.0 section 5.1, MCP 2026-07-28, COAZ-MCP).
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeInvalidParams  = -32602
	CodeUnavailable    = -32603
	CodeDenied         = -32001
	CodeHeaderMismatch = -32020
)

// response is the method that controls see if the client answers a question of the server.
const response = "response"

// headersFrom is the first version whose requests must repeat method and name in headers.
const headersFrom = "2026-07-28"

// versionMember is the member of a request body that names the version.
const versionMember = "io.modelcontextprotocol/protocolVersion"

// Message is one JSON-RPC message from a client.
type Message struct {
	Method string
	// ID is the id as JSON; empty for notifications, which get no answer.
	ID string
	// Session is the value of Mcp-Session-Id.
	Session string
	// Version is the protocol version of the request, or empty.
	Version string

	// Tool, Prompt, Resource and Task are the object of the method.
	Tool, Prompt, Resource, Task string
	Arguments                    value.Value
}

// Error says why a message is refused before a control decides.
type Error struct {
	Code    int
	Message string
	ID      string // as JSON; empty if unknown
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Harmless reports whether anybody may send the message: pings and notifications (COAZ-MCP).
func (m *Message) Harmless() bool {
	return m.Method == "ping" || m.ID == "" && strings.HasPrefix(m.Method, "notifications/")
}

var known = map[string]bool{
	response: true, "initialize": true, "ping": true, "server/discover": true, "subscriptions/listen": true,
	"tools/list": true, "tools/call": true, "prompts/list": true, "prompts/get": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true, "resources/subscribe": true, "resources/unsubscribe": true,
	"completion/complete": true, "logging/setLevel": true,
	"tasks/get": true, "tasks/list": true, "tasks/result": true, "tasks/cancel": true, "tasks/update": true,
}

// Known reports whether MCP defines the method for clients. An unknown method cannot be judged by
// its object.
func (m *Message) Known() bool {
	return known[m.Method] || strings.HasPrefix(m.Method, "notifications/")
}

// Doc returns input.mcp: method, tool, arguments and session, and also prompt, resource and task if
// the method has one.
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

// Parse parses a request body. The message is nil if the body is not MCP. The body decides; headers
// that contradict it are an error. server means that the request goes to an MCP server: then
// anything that the server may take for a message must be a valid one.
func Parse(doc value.Value, h Headers, server bool) (*Message, *Error) {
	switch {
	case doc.Kind() == value.ArrayKind:
		if server || anyRPC(doc) {
			return nil, &Error{Code: CodeInvalidRequest, Message: "MCP has no batches since 2025-06-18"}
		}
		return nil, nil
	case !isRPC(doc) && !(server && looksLikeRPC(doc)):
		return nil, nil
	}
	m := &Message{Session: h.Session}
	id := doc.Get("id")
	switch id.Kind() {
	case value.StringKind, value.NumberKind:
		m.ID = string(id.AppendJSON(nil))
	case value.UndefinedKind:
	default:
		return nil, &Error{Code: CodeInvalidRequest, Message: "an id must be a string or a number"}
	}
	fail := func(code int, message string) (*Message, *Error) { return nil, &Error{code, message, m.ID} }
	if bad := checkMembers(doc); bad != "" {
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
		if bad := checkAnswer(doc); bad != "" {
			return fail(CodeInvalidRequest, bad)
		}
		m.Method = response
		return m, h.compare(m)
	case !isText || answers || m.Method == "" || m.Method == response:
		return fail(CodeInvalidRequest, "a message must have either a method or a result")
	}
	if bad := m.readObject(doc.Get("params")); bad != "" {
		return fail(CodeInvalidParams, bad)
	}
	return m, h.compare(m)
}

// The member names that decide what a message is, and what its object is.
var (
	messageNames = spelling.New("jsonrpc", "id", "method", "params", "result", "error")
	errorNames   = spelling.New("code", "message", "data")
	paramNames   = spelling.New("name", "arguments", "uri", "taskId", "ref", "protocolVersion", "_meta")
	refNames     = spelling.New("type", "name", "uri")
	metaNames    = spelling.New(versionMember)
)

// isRPC reports whether some server may take v for a message. Servers differ in whether `Method`
// means `method`.
func isRPC(v value.Value) bool {
	has := membersOf(v)
	return has.version || has.method && (has.params || has.id)
}

// looksLikeRPC reports whether an MCP server may take v for a message.
func looksLikeRPC(v value.Value) bool {
	has := membersOf(v)
	return has.version || has.method || has.params || has.answer
}

// members are the members of JSON-RPC that an object has, in any spelling.
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

// anyRPC reports whether a list or a nested list contains a message.
func anyRPC(v value.Value) bool {
	if v.Kind() != value.ArrayKind {
		return isRPC(v)
	}
	return slices.ContainsFunc(v.Elems(), anyRPC)
}

// checkMembers checks that a message has only the members of JSON-RPC, each in its one spelling. It
// returns what is wrong, or "". Another decoder may read other spellings differently, so they are
// ambiguous.
func checkMembers(doc value.Value) string {
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
			bad = findMisspelt(level.where, level.v, level.names)
		}
	}
	return bad
}

func findMisspelt(where string, v value.Value, names spelling.Names) string {
	bad := ""
	v.Each(func(name string, _ value.Value) bool {
		if known, is := names.Misspelt(name); is {
			bad = where + " has " + strconv.Quote(name) + " where " + strconv.Quote(known) + " is meant"
		}
		return bad == ""
	})
	return bad
}

// checkAnswer checks the form of a client's answer. It returns what is wrong, or "".
func checkAnswer(doc value.Value) string {
	result, failure := doc.Get("result"), doc.Get("error")
	switch {
	case result.Defined() && failure.Defined():
		return "an answer must have a result or an error, not both"
	case doc.Get("params").Defined():
		return "an answer must not have params"
	case result.Defined() && !doc.Get("id").Defined():
		return "a result needs the id of its request"
	case failure.Defined() && failure.Kind() != value.ObjectKind:
		return "an error must be an object"
	}
	return ""
}

// readObject reads the object of the method. It returns what is wrong with it, or "".
func (m *Message) readObject(params value.Value) string {
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

// Headers are the header fields that repeat parts of the message.
type Headers struct {
	Method, Name, Version, Session string
	// Params are the values of Mcp-Param-* by the rest of the name in lower case: arguments of a
	// tool whose schema asks for that (x-mcp-header).
	Params map[string]string
	// Declared are the arguments that the server's last list of tools declares as repeated, by
	// tool. A tool without an entry is unknown.
	Declared map[string][]Param
	// Twice means that one of the fields occurs more than once.
	Twice bool
}

// paramPrefix is the prefix of the fields that repeat arguments.
const paramPrefix = "Mcp-Param-"

// HeadersOf returns the fields, given all fields by canonical name.
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

// compare compares the headers with the message (MCP 2026-07-28, streamable HTTP).
func (h Headers) compare(m *Message) *Error {
	fail := func(message string) *Error { return &Error{CodeHeaderMismatch, message, m.ID} }
	if h.Twice {
		return fail("an MCP header occurs more than once")
	}
	if m.Version != "" && h.Version != "" && m.Version != h.Version && m.Method != "initialize" {
		return fail("Mcp-Protocol-Version differs from the message")
	}
	m.Version = cmp.Or(m.Version, h.Version)
	if m.Method == response {
		return nil
	}
	needed := h.Version >= headersFrom
	if h.Method != m.Method && (h.Method != "" || needed) {
		return fail("Mcp-Method differs from the message")
	}
	if bad := h.compareParams(m, needed); bad != "" {
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
		return nil // other methods ignore the name
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

// plain decodes the encoding of header values that are not plain ASCII: =?base64?...?=.
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

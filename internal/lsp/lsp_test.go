package lsp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// check implements Validate in this process.
func check(_ context.Context, source string, libs ...lang.Library) (worker.Validation, error) {
	issues := lang.CheckModule(source, libs...)
	return worker.Validation{Valid: len(issues) == 0, Errors: issues}, nil
}

// newServer returns a server that checks in this process.
func newServer() *Server {
	return &Server{Validate: check, Log: slog.New(slog.DiscardHandler), Version: "test", Templates: []assist.Template{{ID: "RATE_LIMIT", Source: "package x\n"}}}
}

// editor is the client of a session.
type editor struct {
	t    testing.TB
	in   io.WriteCloser
	out  *bufio.Reader
	done chan error
	id   int
}

// start starts a session with s.
func start(t testing.TB, s *Server) *editor {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	e := &editor{t: t, in: inW, out: bufio.NewReader(outR), done: make(chan error, 1)}
	go func() {
		err := s.Run(t.Context(), inR, outW)
		outW.CloseWithError(io.EOF)
		e.done <- err
	}()
	t.Cleanup(func() { inW.Close(); go io.Copy(io.Discard, outR) })
	return e
}

// raw sends text without a frame.
func (e *editor) raw(text string) {
	e.t.Helper()
	if _, err := io.WriteString(e.in, text); err != nil {
		e.t.Fatal(err)
	}
}

// send sends a request, or a notification if id is nil.
func (e *editor) send(method string, id any, params any) {
	e.t.Helper()
	body := map[string]any{"jsonrpc": "2.0", "method": method}
	if id != nil {
		body["id"] = id
	}
	if params != nil {
		body["params"] = params
	}
	if err := writeFrame(e.in, body); err != nil {
		e.t.Fatal(err)
	}
}

type reply struct {
	ID     any             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

// next reads a message of the server.
func (e *editor) next() reply {
	e.t.Helper()
	body, err := readFrame(e.out)
	if err != nil {
		e.t.Fatalf("read: %v", err)
	}
	var r reply
	if err := json.Unmarshal(body, &r); err != nil {
		e.t.Fatalf("%s: %v", body, err)
	}
	return r
}

// ask sends a request and returns the error of its answer. It drops notifications that come first.
func (e *editor) ask(method string, params any, into any) *rpcError {
	e.t.Helper()
	e.id++
	e.send(method, e.id, params)
	for {
		r := e.next()
		if r.Method != "" {
			continue
		}
		if fmt.Sprint(r.ID) != fmt.Sprint(e.id) {
			e.t.Fatalf("the answer is to %v, want %d: %+v", r.ID, e.id, r.Error)
		}
		if r.Error == nil && into != nil {
			if err := json.Unmarshal(r.Result, into); err != nil {
				e.t.Fatalf("%s: %v", r.Result, err)
			}
		}
		return r.Error
	}
}

// published waits for the diagnostics of a version.
func (e *editor) published(version int64) published {
	e.t.Helper()
	for {
		r := e.next()
		var p published
		if r.Method != "textDocument/publishDiagnostics" {
			continue
		}
		if err := json.Unmarshal(r.Params, &p); err != nil {
			e.t.Fatal(err)
		}
		if p.Version != nil && *p.Version == version {
			return p
		}
	}
}

const uri = "file:///control.rego"

// document1 is version 1 of the document uri.
func document1(text string) map[string]any {
	return map[string]any{"textDocument": map[string]any{"uri": uri, "languageId": "rego", "version": 1, "text": text}}
}

// change replaces a part of the document, which then has a version.
func (e *editor) change(version int, part extent, text string) {
	e.t.Helper()
	e.send("textDocument/didChange", nil, map[string]any{
		"textDocument": map[string]any{"uri": uri, "version": version}, "contentChanges": []any{map[string]any{"range": part, "text": text}},
	})
}

// begin initialises the session.
func (e *editor) begin() {
	e.t.Helper()
	if err := e.ask("initialize", map[string]any{"capabilities": map[string]any{}}, nil); err != nil {
		e.t.Fatal(err)
	}
	e.send("initialized", nil, map[string]any{})
}

// Positions count UTF-16 units, as the protocol requires.
func TestDiagnosticsInUTF16(t *testing.T) {
	e := start(t, newServer())
	e.begin()
	// é is one UTF-16 unit and 😀 is two, so the call begins at unit 12 of its line.
	e.send("textDocument/didOpen", nil, document1("package a\r\nallow if \"é😀\" == startwith(1)\r\n"))
	p := e.published(1)
	line := utf16.Encode([]rune("allow if \"é😀\" == "))
	if len(p.Diagnostics) != 1 || p.Diagnostics[0].Range != (extent{position{1, len(line)}, position{1, len(line) + len("startwith")}}) || p.Diagnostics[0].Severity != severityError {
		t.Fatalf("the diagnostics are %+v, want an error at column %d", p.Diagnostics, len(line))
	}
	// The range of the change is in UTF-16 units, too.
	e.change(2, p.Diagnostics[0].Range, "concat")
	e.change(3, extent{position{1, len(line) + 7}, position{1, len(line) + 8}}, "\"\", []")
	if p := e.published(3); len(p.Diagnostics) != 0 {
		t.Fatalf("after the change: %+v, want none", p.Diagnostics)
	}
}

// A fix corrects its error, and formatting replaces the document.
func TestFixAndFormat(t *testing.T) {
	e := start(t, newServer())
	e.begin()
	e.send("textDocument/didOpen", nil, document1("package a\nallow { input.user.id == \"é\" }\n"))
	e.published(1)
	var actions []struct {
		Title string `json:"title"`
		Edit  struct {
			Changes map[string][]textEdit `json:"changes"`
		} `json:"edit"`
	}
	if err := e.ask("textDocument/codeAction", map[string]any{"textDocument": map[string]any{"uri": uri}, "range": extent{position{1, 0}, position{1, 3}}, "context": map[string]any{}}, &actions); err != nil || len(actions) != 1 {
		t.Fatalf("the actions are %+v, %v, want one", actions, err)
	}
	fix := actions[0].Edit.Changes[uri][0]
	e.change(2, fix.Range, fix.NewText)
	if p := e.published(2); len(p.Diagnostics) != 0 {
		t.Fatalf("after the fix: %+v, want none", p.Diagnostics)
	}
	var edits []textEdit
	if err := e.ask("textDocument/formatting", map[string]any{"textDocument": map[string]any{"uri": uri}, "options": map[string]any{}}, &edits); err != nil || len(edits) != 1 {
		t.Fatalf("the edits are %+v, %v, want one", edits, err)
	}
	if want := "package a\n\nallow if input.user.id == \"é\"\n"; edits[0].NewText != want || edits[0].Range != (extent{position{0, 0}, position{2, 0}}) {
		t.Errorf("the edit is %+v, want %q for the document", edits[0], want)
	}
}

// Completions replace the whole path, and a hover explains the member under the cursor.
func TestCompletionAndHover(t *testing.T) {
	e := start(t, newServer())
	e.begin()
	e.send("textDocument/didOpen", nil, document1("package a\n\nallow if input.user.ro\n"))
	var list struct {
		Items []completionItem `json:"items"`
	}
	if err := e.ask("textDocument/completion", at{identifier{URI: uri}, position{2, 22}}, &list); err != nil || len(list.Items) != 1 || list.Items[0].Label != "input.user.roles" {
		t.Fatalf("the completions are %+v, %v, want input.user.roles", list, err)
	}
	if list.Items[0].Edit.Range != (extent{position{2, 9}, position{2, 22}}) {
		t.Errorf("the completion replaces %+v, want the whole path", list.Items[0].Edit.Range)
	}
	var h struct {
		Contents markup `json:"contents"`
	}
	if err := e.ask("textDocument/hover", at{identifier{URI: uri}, position{2, 16}}, &h); err != nil || !strings.Contains(h.Contents.Value, "The subject") {
		t.Errorf("the hover is %+v, %v, want the subject", h, err)
	}
	if err := e.ask("textDocument/hover", at{identifier{URI: "file:///other"}, position{0, 0}}, nil); err == nil || err.Code != codeInvalidParams {
		t.Errorf("a document that is not open: %v, want code %d", err, codeInvalidParams)
	}
}

// A session begins with initialize and ends with shutdown and exit. An invalid message does not end it.
func TestLifecycle(t *testing.T) {
	e := start(t, newServer())
	if err := e.ask("textDocument/hover", nil, nil); err == nil || err.Code != codeNotInitialized {
		t.Errorf("before initialize: %v, want code %d", err, codeNotInitialized)
	}
	e.begin()
	if err := e.ask("initialize", map[string]any{}, nil); err == nil || err.Code != codeInvalidRequest {
		t.Errorf("a second initialize: %v, want code %d", err, codeInvalidRequest)
	}
	if err := e.ask("workspace/unknown", nil, nil); err == nil || err.Code != codeNoMethod {
		t.Errorf("an unknown method: %v, want code %d", err, codeNoMethod)
	}
	e.send("$/unknown", nil, nil) // a notification has no answer
	e.raw("Content-Length: 7\r\n\r\nnot JSO")
	if r := e.next(); r.Error == nil || r.Error.Code != codeParseError || r.ID != nil {
		t.Errorf("a message that is not JSON: %+v, want code %d without an id", r, codeParseError)
	}
	if err := e.ask("shutdown", nil, nil); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := e.ask("textDocument/hover", nil, nil); err == nil || err.Code != codeInvalidRequest {
		t.Errorf("after shutdown: %v, want code %d", err, codeInvalidRequest)
	}
	e.send("exit", nil, nil)
	if err := <-e.done; err != nil {
		t.Errorf("exit: %v", err)
	}
}

// A stream that is not framed is an error. A message that is too large is skipped.
func TestBadStreams(t *testing.T) {
	for name, text := range map[string]string{
		"no length":      "Content-Type: x\r\n\r\n{}",
		"no header":      "{}\r\n\r\n",
		"negative":       "Content-Length: -1\r\n\r\n",
		"two lengths":    "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
		"long header":    "X: " + strings.Repeat("a", maxHeader+1),
		"half a body":    "Content-Length: 20\r\n\r\n{}",
		"half a header":  "Content-Le",
		"a huge length":  "Content-Length: 99999999999999999999\r\n\r\n",
		"over, cut off":  "Content-Length: 99999999999\r\n\r\nxx",
		"exit too early": "Content-Length: 17\r\n\r\n{\"method\":\"exit\"}",
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := newServer().Run(t.Context(), strings.NewReader(text), &out); err == nil {
				t.Errorf("Run: no error; the output is %s", out.String())
			}
		})
	}
	var out bytes.Buffer
	over := "Content-Length: " + fmt.Sprint(maxFrame+1) + "\r\n\r\n"
	in := io.MultiReader(strings.NewReader(over), io.LimitReader(zeros{}, maxFrame+1), strings.NewReader("Content-Length: 31\r\n\r\n{\"id\":1,\"method\":\"initialize\"}\n"))
	if err := newServer().Run(t.Context(), in, &out); err != nil || strings.Count(out.String(), "Content-Length") != 2 {
		t.Errorf("after a message that is too large: %v, %s, want 2 answers", err, out.String())
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A document over the limit is not checked, and the diagnostic says so.
func TestLargeDocument(t *testing.T) {
	e := start(t, newServer())
	e.begin()
	e.send("textDocument/didOpen", nil, document1(strings.Repeat("x", maxDocument+1)))
	if p := e.published(1); len(p.Diagnostics) != 1 || p.Diagnostics[0].Code != "source_limit" {
		t.Errorf("the diagnostics are %+v, want source_limit", p.Diagnostics)
	}
}

// FuzzSession sends a whole stream. The server does not panic, and all answers are framed.
func FuzzSession(f *testing.F) {
	framed := func(bodies ...string) []byte {
		var b bytes.Buffer
		for _, body := range bodies {
			fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
		}
		return b.Bytes()
	}
	open := `{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"a","version":1,"text":"package a\nallow { input.x }"}}}`
	f.Add(framed(`{"id":1,"method":"initialize","params":{}}`, open, `{"id":2,"method":"textDocument/completion","params":{"textDocument":{"uri":"a"},"position":{"line":1,"character":3}}}`))
	f.Add(framed(`{"id":1,"method":"initialize","params":{}}`, open, `{"method":"textDocument/didChange","params":{"textDocument":{"uri":"a","version":2},"contentChanges":[{"range":{"start":{"line":-1,"character":9},"end":{"line":0,"character":-4}},"text":"😀"}]}}`, `{"id":[],"method":"textDocument/codeAction","params":{"textDocument":{"uri":"a"}}}`))
	f.Add(framed(`[]`, `null`, `{"id":null}`, `{"method":"exit"}`))
	f.Add([]byte("Content-Length: 2\n\n{}Content-Length:x"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		_ = newServer().Run(t.Context(), bytes.NewReader(in), &out) // an error is as good as an answer
		r := bufio.NewReader(&out)
		for {
			body, err := readFrame(r)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil || !json.Valid(body) {
				t.Fatalf("the answer %q is not framed JSON: %v", body, err)
			}
		}
	})
}

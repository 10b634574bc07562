// Package lsp is the language server for controls. An editor starts `gatehouse lsp` and speaks the
// Language Server Protocol (LSP 3.17) with it over standard input and output.
//
//	editor ──frames──► Run ──► handlers: documents, completion, hover, formatting, fixes
//	       ◄─frames───  │
//	                    └──► analyse: checks changed documents in a process that can be
//	                         killed (package worker), and publishes diagnostics
//
// It does not need a server, because it finds libraries in the editor's folders (libraries.go).
// With a server (Remote), it also uses the server's libraries, and completes the attributes of its
// resources. There are limits for the size of messages, the number and size of open documents, and
// the time of a check.
package lsp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// Limits on what an editor may send.
const (
	maxFrame     = 16 << 20 // bytes of a message; enough for an escaped document of 1 MiB
	maxHeader    = 8 << 10  // bytes of the header lines of a message
	maxDocuments = 500
	maxDocument  = 4 << 20 // bytes of a text that is kept
)

// errExit means that the editor sent exit without shutdown.
var errExit = errors.New("lsp: exit without shutdown")

// Server is the session of one editor. Set the exported fields, then call Run once.
type Server struct {
	// Validate checks and lints a source with the libraries that it may import, within a
	// time limit.
	Validate func(ctx context.Context, source string, libs ...lang.Library) (worker.Validation, error)
	// Templates are the shipped controls.
	Templates []assist.Template
	// Remote, if set, returns the knowledge of a server. It is called in the background, at the
	// start and after each save.
	Remote func(ctx context.Context) (assist.Knowledge, error)
	// Version is the build's version.
	Version string
	Log     *slog.Logger
	// RetryDelay is the delay before a failed check is retried. It doubles each time. 0 means 2 s.
	RetryDelay time.Duration

	out     sync.Mutex // held while w is written
	w       io.Writer
	ready   bool // initialize was received
	stopped bool // shutdown was received
	client  clientAbilities
	roots   []string // the editor's folders

	mu        sync.Mutex
	stored    []lang.Library // libraries below roots
	documents map[string]*document
	dirty     map[string]bool
	wake      chan struct{}
	knowledge assist.Knowledge
	asking    bool
	stale     bool // the editor's folders must be read again
	tasks     sync.WaitGroup
}

// Run serves until the editor sends exit, its stream ends, or ctx ends. It returns an error if the
// stream is not LSP, or if the editor sends exit without shutdown.
func (s *Server) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	s.w, s.documents, s.dirty, s.wake = out, map[string]*document{}, map[string]bool{}, make(chan struct{}, 1)
	s.knowledge.Templates = s.Templates
	s.tasks.Go(func() { s.analyse(ctx) })
	defer s.tasks.Wait()
	defer stop()
	frames := s.read(ctx, in)
	for {
		var f frame
		select {
		case <-ctx.Done():
			return nil // the goroutine of read may block until the process ends
		case f = <-frames:
		}
		big, oversized := errors.AsType[*oversizedError](f.err)
		switch {
		case errors.Is(f.err, io.EOF):
			return nil
		case oversized:
			s.fail(nil, codeInvalidRequest, big.Error())
			continue
		case f.err != nil:
			s.fail(nil, codeParseError, f.err.Error())
			return f.err
		}
		if done, err := s.handle(ctx, f.body); done {
			return err
		}
	}
}

type frame struct {
	body []byte
	err  error
}

// read returns a channel with the messages, up to an error that ends the stream.
func (s *Server) read(ctx context.Context, in io.Reader) <-chan frame {
	frames := make(chan frame)
	go func() {
		r := bufio.NewReaderSize(in, 64<<10)
		for {
			body, err := readFrame(r)
			select {
			case frames <- frame{body, err}:
			case <-ctx.Done():
				return
			}
			if _, ok := errors.AsType[*oversizedError](err); err != nil && !ok {
				return
			}
		}
	}()
	return frames
}

// handle answers one message. done means that the session has ended.
func (s *Server) handle(ctx context.Context, body []byte) (done bool, err error) {
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		s.fail(nil, codeParseError, "the message is not JSON")
		return false, nil
	}
	if m.Method == "exit" {
		if !s.stopped {
			return true, errExit
		}
		return true, nil
	}
	if m.Method == "" { // an answer, although this server sends no requests
		if len(m.Result) == 0 && len(m.Error) == 0 {
			s.fail(m.ID, codeInvalidRequest, "the message has no method")
		}
		return false, nil
	}
	result, failed := s.call(ctx, m)
	if len(m.ID) == 0 {
		return false, nil // a notification has no answer
	}
	if failed != nil {
		s.fail(m.ID, failed.Code, failed.Message)
		return false, nil
	}
	s.send(response{JSONRPC: "2.0", ID: m.ID, Result: result})
	return false, nil
}

// call runs the handler of a method. If the handler panics, it returns an internal error, and the
// session continues.
func (s *Server) call(ctx context.Context, m message) (result any, failed *rpcError) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("handler failed", "method", m.Method, "panic", fault.DescribePanic(p), "stack", string(debug.Stack()))
			result, failed = nil, &rpcError{codeInternal, "the handler failed"}
		}
	}()
	h := handlers[m.Method]
	switch {
	case m.Method == "initialize" && s.ready:
		return nil, &rpcError{codeInvalidRequest, "initialize was sent before"}
	case m.Method != "initialize" && !s.ready:
		return nil, &rpcError{codeNotInitialized, "initialize comes first"}
	case s.stopped:
		return nil, &rpcError{codeInvalidRequest, "the server was shut down"}
	case h == nil:
		return nil, &rpcError{codeNoMethod, "the method is not known"}
	}
	return h(s, ctx, m.Params)
}

// handlers has the handlers of the known methods. Those of notifications return nil.
var handlers = map[string]func(s *Server, ctx context.Context, params json.RawMessage) (any, *rpcError){
	"initialize":                       (*Server).initialize,
	"initialized":                      (*Server).nothing,
	"shutdown":                         (*Server).shutdown,
	"$/cancelRequest":                  (*Server).nothing, // every request is answered at once
	"$/setTrace":                       (*Server).nothing,
	"textDocument/didOpen":             (*Server).didOpen,
	"textDocument/didChange":           (*Server).didChange,
	"textDocument/didSave":             (*Server).didSave,
	"textDocument/didClose":            (*Server).didClose,
	"textDocument/completion":          (*Server).completion,
	"textDocument/hover":               (*Server).hover,
	"textDocument/formatting":          (*Server).formatting,
	"textDocument/codeAction":          (*Server).codeAction,
	"textDocument/definition":          (*Server).definition,
	"textDocument/references":          (*Server).references,
	"textDocument/documentSymbol":      (*Server).documentSymbols,
	"textDocument/prepareRename":       (*Server).prepareRename,
	"textDocument/rename":              (*Server).rename,
	"textDocument/signatureHelp":       (*Server).signatureHelp,
	"workspace/didChangeConfiguration": (*Server).nothing,
	"workspace/didChangeWatchedFiles":  (*Server).filesChanged,
}

func (s *Server) nothing(context.Context, json.RawMessage) (any, *rpcError) { return nil, nil }

func (s *Server) send(v any) {
	s.out.Lock()
	defer s.out.Unlock()
	if err := writeFrame(s.w, v); err != nil {
		s.Log.Debug("the editor's stream cannot be written", "error", err) // the editor has gone, so its input ends, too
	}
}

func (s *Server) fail(id json.RawMessage, code int, text string) {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	s.send(response{JSONRPC: "2.0", ID: id, Error: &rpcError{code, text}})
}

func (s *Server) notify(method string, params any) {
	s.send(notification{JSONRPC: "2.0", Method: method, Params: params})
}

package lsp

import (
	"context"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// document is an open file as the editor sent it.
type document struct {
	uri     string
	version int64
	text    string
	// large means that the text is too large to keep. text is then empty.
	large bool
	// issues are the issues of the version checked.
	issues  []lang.Issue
	checked int64
	// retries is how often the check of this text was retried.
	retries int
	// members are the members of the input that the last version that parsed reads.
	members []assist.Member
}

// offset returns the byte offset of an LSP position. For a position outside the text it returns the
// nearest offset inside.
func offset(text string, p position) int {
	i := 0
	for line := 0; line < p.Line; line++ {
		n := strings.IndexByte(text[i:], '\n')
		if n < 0 {
			return len(text)
		}
		i += n + 1
	}
	for units := 0; units < p.Character && i < len(text) && text[i] != '\n'; {
		if text[i] == '\r' && i+1 < len(text) && text[i+1] == '\n' {
			break
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		if units++; r > 0xffff {
			units++
		}
		i += n
	}
	return i
}

// place returns the LSP position of a byte offset.
func place(text string, offset int) position {
	offset = min(max(offset, 0), len(text))
	before := text[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	p := position{Line: strings.Count(before, "\n")}
	for _, r := range before[start:] {
		if p.Character++; r > 0xffff {
			p.Character++
		}
	}
	return p
}

func extentOf(text string, s assist.Span) extent {
	return extent{place(text, s.Start), place(text, s.End)}
}

func (s *Server) didOpen(_ context.Context, raw json.RawMessage) (any, *rpcError) {
	p, failed := params[struct {
		Document struct {
			identifier
			Text string `json:"text"`
		} `json:"textDocument"`
	}](raw)
	if failed != nil {
		return nil, failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.documents[p.Document.URI] == nil && len(s.documents) >= maxDocuments {
		return nil, &rpcError{codeInvalidParams, "too many documents are open"}
	}
	d := &document{uri: p.Document.URI, version: p.Document.Version}
	d.set(p.Document.Text)
	s.documents[d.uri] = d
	s.touched(d)
	return nil, nil
}

// set replaces the text. If it is longer than maxDocument, it sets large instead.
func (d *document) set(text string) {
	d.retries = 0
	d.large = len(text) > maxDocument
	if d.large {
		text = ""
	}
	d.text = text
}

func (s *Server) didChange(_ context.Context, raw json.RawMessage) (any, *rpcError) {
	p, failed := params[struct {
		Document identifier `json:"textDocument"`
		Changes  []struct {
			Range *extent `json:"range"`
			Text  string  `json:"text"`
		} `json:"contentChanges"`
	}](raw)
	if failed != nil {
		return nil, failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.documents[p.Document.URI]
	if d == nil {
		return nil, &rpcError{codeInvalidParams, "the document is not open"}
	}
	d.version = p.Document.Version
	for _, c := range p.Changes {
		if c.Range == nil {
			d.set(c.Text)
			continue
		}
		if d.large {
			continue // the old text was not kept; a change of the whole text is needed
		}
		from, to := offset(d.text, c.Range.Start), offset(d.text, c.Range.End)
		if to < from {
			from, to = to, from
		}
		d.set(d.text[:from] + c.Text + d.text[to:])
	}
	s.touched(d)
	return nil, nil
}

func (s *Server) didSave(ctx context.Context, _ json.RawMessage) (any, *rpcError) {
	s.learn(ctx)
	return s.filesChanged(ctx, nil)
}

func (s *Server) didClose(_ context.Context, raw json.RawMessage) (any, *rpcError) {
	p, failed := params[struct {
		Document identifier `json:"textDocument"`
	}](raw)
	if failed != nil {
		return nil, failed
	}
	s.mu.Lock()
	delete(s.documents, p.Document.URI)
	delete(s.dirty, p.Document.URI)
	s.mu.Unlock()
	// An empty list removes the file's diagnostics in the editor.
	s.notify("textDocument/publishDiagnostics", published{URI: p.Document.URI, Diagnostics: []diagnostic{}})
	return nil, nil
}

// touched queues a document with a new text. If it is a library, it queues all open documents,
// because they may import it. The caller holds s.mu.
func (s *Server) touched(d *document) {
	if (lang.Library{Source: d.text}).Package() != "" {
		s.recheck()
		return
	}
	s.changed(d)
}

// changed queues a document for a check. The caller holds s.mu.
func (s *Server) changed(d *document) {
	s.dirty[d.uri] = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// open returns a document and what is known about it. ok is false if it is not open.
func (s *Server) open(uri string) (d document, know assist.Knowledge, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.documents[uri]
	if held == nil {
		return document{}, assist.Knowledge{}, false
	}
	know = s.knowledge
	know.Members = append(append([]assist.Member{}, held.members...), know.Members...)
	return *held, know, true
}

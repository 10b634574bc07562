package lsp

import (
	"context"
	"encoding/json"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/assist"
)

// LSP's numbers for the kinds of symbols.
const (
	symbolFunction = 12
	symbolVariable = 13
)

type (
	location struct {
		URI   string `json:"uri"`
		Range extent `json:"range"`
	}
	documentSymbol struct {
		Name      string `json:"name"`
		Kind      int    `json:"kind"`
		Range     extent `json:"range"`
		Selection extent `json:"selectionRange"`
	}
	parameter struct {
		Label [2]int `json:"label"` // UTF-16 offsets into the signature
	}
	signature struct {
		Label      string      `json:"label"`
		Doc        *markup     `json:"documentation,omitempty"`
		Parameters []parameter `json:"parameters"`
	}
)

// definition handles textDocument/definition.
func (s *Server) definition(ctx context.Context, raw json.RawMessage) (any, *rpcError) {
	d, _, p, failed := s.locate(raw)
	if failed != nil {
		return nil, failed
	}
	files := s.workspace(ctx, d)
	return locations(files, assist.Definition(files, offset(d.text, p))), nil
}

// references handles textDocument/references.
func (s *Server) references(ctx context.Context, raw json.RawMessage) (any, *rpcError) {
	d, _, p, failed := s.locate(raw)
	if failed != nil {
		return nil, failed
	}
	q, failed := params[struct {
		Context struct {
			Declaration bool `json:"includeDeclaration"`
		} `json:"context"`
	}](raw)
	if failed != nil {
		return nil, failed
	}
	files := s.workspace(ctx, d)
	return locations(files, assist.References(files, offset(d.text, p), q.Context.Declaration)), nil
}

// documentSymbols handles textDocument/documentSymbol. It returns the outline of a document.
func (s *Server) documentSymbols(_ context.Context, raw json.RawMessage) (any, *rpcError) {
	d, _, _, failed := s.locate(raw)
	if failed != nil {
		return nil, failed
	}
	out := []documentSymbol{}
	for _, y := range assist.Symbols(d.text) {
		kind := symbolVariable
		if y.Function {
			kind = symbolFunction
		}
		out = append(out, documentSymbol{y.Name, kind, extentOf(d.text, y.Span), extentOf(d.text, y.Head)})
	}
	return out, nil
}

// prepareRename handles textDocument/prepareRename. It returns null if nothing can be renamed.
func (s *Server) prepareRename(_ context.Context, raw json.RawMessage) (any, *rpcError) {
	d, _, p, failed := s.locate(raw)
	if failed != nil {
		return nil, failed
	}
	span, ok := assist.Renamable([]assist.File{{Name: d.uri, Text: d.text}}, offset(d.text, p))
	if !ok {
		return nil, nil
	}
	return map[string]any{"range": extentOf(d.text, span), "placeholder": d.text[span.Start:span.End]}, nil
}

// rename handles textDocument/rename. It renames in all files of the editor's folders.
func (s *Server) rename(ctx context.Context, raw json.RawMessage) (any, *rpcError) {
	d, _, p, failed := s.locate(raw)
	if failed != nil {
		return nil, failed
	}
	q, failed := params[struct {
		NewName string `json:"newName"`
	}](raw)
	if failed != nil {
		return nil, failed
	}
	files := s.workspace(ctx, d)
	places, err := assist.Rename(files, offset(d.text, p), q.NewName)
	if err != nil {
		return nil, &rpcError{codeRequestFailed, err.Error()}
	}
	changes := map[string][]textEdit{}
	for _, l := range locations(files, places) {
		changes[l.URI] = append(changes[l.URI], textEdit{l.Range, q.NewName})
	}
	return map[string]any{"changes": changes}, nil
}

// signatureHelp handles textDocument/signatureHelp.
func (s *Server) signatureHelp(_ context.Context, raw json.RawMessage) (any, *rpcError) {
	d, know, p, failed := s.locate(raw)
	if failed != nil {
		return nil, failed
	}
	s.mu.Lock()
	know.Libraries = slices.Concat(s.openLibraries(), s.stored, know.Libraries)
	s.mu.Unlock()
	g, ok := assist.SignatureAt(d.text, offset(d.text, p), know)
	if !ok {
		return nil, nil
	}
	sig := signature{Label: g.Label, Parameters: []parameter{}}
	if g.Doc != "" {
		sig.Doc = &markup{"markdown", g.Doc}
	}
	for _, span := range g.Parameters {
		sig.Parameters = append(sig.Parameters, parameter{[2]int{place(g.Label, span.Start).Character, place(g.Label, span.End).Character}})
	}
	return map[string]any{"signatures": []signature{sig}, "activeSignature": 0, "activeParameter": g.Active}, nil
}

// workspace returns the document, then the other open documents, then the other files of the
// editor's folders.
func (s *Server) workspace(ctx context.Context, d document) []assist.File {
	files := []assist.File{{Name: d.uri, Text: d.text}}
	open := map[string]bool{}
	s.mu.Lock()
	for uri, other := range s.documents {
		if path, ok := filePath(uri); ok {
			open[path] = true
		}
		if uri != d.uri {
			files = append(files, assist.File{Name: uri, Text: other.text})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(files[1:], func(a, b assist.File) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range sources(ctx, s.roots) {
		if !open[f.Name] {
			files = append(files, assist.File{Name: fileURI(f.Name), Text: f.Text})
		}
	}
	return files
}

// fileURI returns the file: URI of a path. It is the reverse of filePath.
func fileURI(path string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String()
}

// locations converts byte offsets to LSP positions.
func locations(files []assist.File, places []assist.Location) []location {
	texts := map[string]string{}
	for _, f := range files {
		texts[f.Name] = f.Text
	}
	out := []location{}
	for _, l := range places {
		out = append(out, location{l.File, extentOf(texts[l.File], l.Span)})
	}
	return out
}

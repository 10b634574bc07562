package lsp

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// itemKinds are LSP's numbers for the kinds of completions.
var itemKinds = map[string]int{
	assist.KindInput: 10, assist.KindData: 10, assist.KindFunction: 3, assist.KindKeyword: 14, assist.KindRule: 6, assist.KindTemplate: 15,
}

type completionItem struct {
	Label         string   `json:"label"`
	Kind          int      `json:"kind,omitempty"`
	Detail        string   `json:"detail,omitempty"`
	Documentation *markup  `json:"documentation,omitempty"`
	SortText      string   `json:"sortText"`
	FilterText    string   `json:"filterText"`
	Format        int      `json:"insertTextFormat"`
	Edit          textEdit `json:"textEdit"`
}

func (s *Server) initialize(ctx context.Context, raw json.RawMessage) (any, *rpcError) {
	p, failed := params[struct {
		Folders      []folder `json:"workspaceFolders"`
		Root         string   `json:"rootUri"`
		Capabilities struct {
			TextDocument struct {
				Completion struct {
					Item struct {
						Snippets bool `json:"snippetSupport"`
					} `json:"completionItem"`
				} `json:"completion"`
				Rename struct {
					Prepare bool `json:"prepareSupport"`
				} `json:"rename"`
			} `json:"textDocument"`
		} `json:"capabilities"`
	}](raw)
	if failed != nil {
		return nil, failed
	}
	s.client.snippets = p.Capabilities.TextDocument.Completion.Item.Snippets
	s.ready = true
	var renames any = true
	if p.Capabilities.TextDocument.Rename.Prepare { // other editors expect a boolean
		renames = map[string]any{"prepareProvider": true}
	}
	s.roots, s.stale = rootsOf(p.Folders, p.Root), true
	s.learn(ctx)
	return map[string]any{
		"capabilities": map[string]any{
			"positionEncoding":           "utf-16",
			"textDocumentSync":           map[string]any{"openClose": true, "change": 2, "save": map[string]any{"includeText": false}},
			"completionProvider":         map[string]any{"triggerCharacters": []string{"."}},
			"hoverProvider":              true,
			"documentFormattingProvider": true,
			"codeActionProvider":         map[string]any{"codeActionKinds": []string{"quickfix"}},
			"definitionProvider":         true,
			"referencesProvider":         true,
			"documentSymbolProvider":     true,
			"renameProvider":             renames,
			"signatureHelpProvider":      map[string]any{"triggerCharacters": []string{"(", ","}},
		},
		"serverInfo": map[string]any{"name": "gatehouse", "version": s.Version},
	}, nil
}

func (s *Server) shutdown(context.Context, json.RawMessage) (any, *rpcError) {
	s.stopped = true
	return nil, nil
}

func (s *Server) completion(_ context.Context, raw json.RawMessage) (any, *rpcError) {
	d, know, p, failed := s.locate(raw)
	if failed != nil {
		return nil, failed
	}
	items := []completionItem{}
	for i, c := range assist.Complete(d.text, offset(d.text, p), know) {
		it := completionItem{
			Label: c.Label, Kind: itemKinds[c.Kind], Detail: c.Detail, SortText: fmt.Sprintf("%04d", i), FilterText: c.Label,
			Format: 1, Edit: textEdit{extentOf(d.text, c.Span), c.Insert},
		}
		if c.Snippet != "" && s.client.snippets {
			it.Format, it.Edit.NewText = 2, c.Snippet
		}
		if c.Doc != "" {
			it.Documentation = &markup{"markdown", c.Doc}
		}
		items = append(items, it)
	}
	return map[string]any{"isIncomplete": false, "items": items}, nil
}

func (s *Server) hover(_ context.Context, raw json.RawMessage) (any, *rpcError) {
	d, know, p, failed := s.locate(raw)
	if failed != nil {
		return nil, failed
	}
	text, span, ok := assist.Hover(d.text, offset(d.text, p), know)
	if !ok {
		return nil, nil
	}
	return map[string]any{"contents": markup{"markdown", text}, "range": extentOf(d.text, span)}, nil
}

func (s *Server) formatting(_ context.Context, raw json.RawMessage) (any, *rpcError) {
	d, _, _, failed := s.locate(raw)
	if failed != nil {
		return nil, failed
	}
	text, err := assist.Format(d.text)
	if err != nil || text == d.text {
		return []textEdit{}, nil // if the file does not parse, it has diagnostics
	}
	return []textEdit{{extentOf(d.text, assist.Span{Start: 0, End: len(d.text)}), text}}, nil
}

func (s *Server) codeAction(_ context.Context, raw json.RawMessage) (any, *rpcError) {
	d, _, _, failed := s.locate(raw)
	if failed != nil {
		return nil, failed
	}
	p, failed := params[struct {
		Range extent `json:"range"`
	}](raw)
	if failed != nil {
		return nil, failed
	}
	actions := []map[string]any{}
	if d.checked != d.version {
		return actions, nil // the issues are of an older text
	}
	for _, f := range assist.Fixes(d.text, d.issues) {
		where := diagnostics(d.text, []lang.Issue{f.Issue})
		if line := where[0].Range.Start.Line; line < p.Range.Start.Line || line > p.Range.End.Line {
			continue
		}
		actions = append(actions, map[string]any{
			"title": f.Title, "kind": "quickfix", "diagnostics": where,
			"edit": map[string]any{"changes": map[string]any{d.uri: []textEdit{{extentOf(d.text, f.Span), f.Text}}}},
		})
	}
	return actions, nil
}

// locate returns the document and the position that a request names, and what is known about the
// document.
func (s *Server) locate(raw json.RawMessage) (document, assist.Knowledge, position, *rpcError) {
	p, failed := params[at](raw)
	if failed != nil {
		return document{}, assist.Knowledge{}, position{}, failed
	}
	d, know, ok := s.open(p.Document.URI)
	if !ok {
		return document{}, assist.Knowledge{}, position{}, &rpcError{codeInvalidParams, "the document is not open"}
	}
	return d, know, p.Position, nil
}

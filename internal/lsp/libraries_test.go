package lsp

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// waitDiagnostic waits until a document has exactly one diagnostic whose message contains want, or none
// if want is "".
func (e *editor) waitDiagnostic(uri, want string) {
	e.t.Helper()
	for {
		p := e.published(1)
		if p.URI != uri || len(p.Diagnostics) > 1 {
			continue
		}
		if want == "" && len(p.Diagnostics) == 0 || want != "" && len(p.Diagnostics) == 1 && strings.Contains(p.Diagnostics[0].Message, want) {
			return
		}
	}
}

// Controls can import the libraries of the editor's folders, the open libraries with their current
// text, and those of the server.
func TestLibraries(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"lib/roles.rego":           "package lib.roles\n\nstaff(u) if u.role == \"staff\"\n",
		"node_modules/lib.rego":    "package lib.hidden\n\nx := 1\n",
		".git/lib.rego":            "package lib.hidden\n\nx := 1\n",
		"controls/no_library.rego": "package controls\n\nx := 1\n",
	})
	s := newServer()
	s.Remote = func(context.Context) (assist.Knowledge, error) {
		return assist.Knowledge{Libraries: []lang.Library{{ID: 7, Name: "networks", Version: 1, Source: "package lib.networks\n\ninside := true\n"}}}, nil
	}
	e := start(t, s)
	root := "file://" + filepath.ToSlash(dir)
	if err := e.ask("initialize", map[string]any{"capabilities": map[string]any{}, "workspaceFolders": []any{map[string]any{"uri": root, "name": "controls"}}}, nil); err != nil {
		t.Fatal(err)
	}
	open := func(name, text string) string {
		uri := root + "/" + name
		e.send("textDocument/didOpen", nil, map[string]any{"textDocument": map[string]any{"uri": uri, "languageId": "rego", "version": 1, "text": text}})
		return uri
	}
	a := open("a.rego", "package a\n\nimport data.lib.networks\nimport data.lib.roles\n\nallow if {\n\troles.staff(input.user)\n\tnetworks.inside\n}\n")
	e.waitDiagnostic(a, "")
	b := open("b.rego", "package b\n\nimport data.lib.hidden\n\nallow if hidden.x\n")
	e.waitDiagnostic(b, "lib.hidden")
	// The text of an open library has precedence over the file.
	open("lib/roles.rego", "package lib.roles\n\nstaff(u, _) if u.role == \"staff\"\n")
	e.waitDiagnostic(a, "staff")
	// A library that another program wrote is read after the editor reports the change.
	writeFiles(t, dir, map[string]string{"hidden.rego": "package lib.hidden\n\nx := true\n"})
	e.send("workspace/didChangeWatchedFiles", nil, map[string]any{"changes": []any{}})
	e.waitDiagnostic(b, "")
}

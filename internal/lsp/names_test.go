package lsp

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// writeFiles writes files to a folder.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// workspaceOf writes files to a folder and starts a session in it.
func workspaceOf(t *testing.T, files map[string]string) (e *editor, uriOf func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, files)
	e = start(t, newServer())
	uriOf = func(name string) string { return fileURI(filepath.Join(dir, name)) }
	err := e.ask("initialize", map[string]any{
		"workspaceFolders": []map[string]any{{"uri": fileURI(dir)}},
		"capabilities":     map[string]any{"textDocument": map[string]any{"rename": map[string]any{"prepareSupport": true}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e, uriOf
}

// A name is found and renamed in all files of the workspace, open or not.
func TestNamesOverTheWorkspace(t *testing.T) {
	control := "package pay\n\nimport data.lib.net\n\nallow if { \"é😀\" != limit; net.ok(input.ip, 1) }\n\nlimit := 2\n"
	e, uriOf := workspaceOf(t, map[string]string{
		"a b/pay.rego":      control,
		"a b/pay_test.rego": "package pay_test\n\nimport data.pay\n\ntest_limit if pay.limit == 2\n",
		"lib/net.rego":      "package lib.net\n\n# Whether an address is ours.\nok(address, strict) if address == strict\n",
	})
	open := uriOf("a b/pay.rego")
	e.send("textDocument/didOpen", nil, map[string]any{"textDocument": map[string]any{"uri": open, "version": 1, "text": control}})
	e.published(1)

	// "limit" begins at UTF-16 unit 21, because é is one unit and 😀 is two.
	onLimit := position{4, 22}
	var found []location
	if err := e.ask("textDocument/definition", at{identifier{URI: open}, onLimit}, &found); err != nil || !slices.Equal(found, []location{{open, extent{position{6, 0}, position{6, 5}}}}) {
		t.Errorf("the definition is %+v, %v, want the rule limit", found, err)
	}
	if err := e.ask("textDocument/definition", at{identifier{URI: open}, position{4, 33}}, &found); err != nil || len(found) != 1 || found[0].URI != uriOf("lib/net.rego") || found[0].Range.Start.Line != 3 {
		t.Errorf("the definition in a library that is not open: %+v, %v, want line 3 of lib/net.rego", found, err)
	}
	ask := map[string]any{"textDocument": map[string]any{"uri": open}, "position": onLimit, "context": map[string]any{"includeDeclaration": true}}
	if err := e.ask("textDocument/references", ask, &found); err != nil || len(found) != 3 || found[2].URI != uriOf("a b/pay_test.rego") {
		t.Errorf("the references are %+v, %v, want 3, the last in the test", found, err)
	}
	var outline []documentSymbol
	if err := e.ask("textDocument/documentSymbol", map[string]any{"textDocument": map[string]any{"uri": open}}, &outline); err != nil || len(outline) != 2 || outline[1].Name != "limit" {
		t.Errorf("the outline is %+v, %v, want 2 rules", outline, err)
	}
	var prepared struct{ Placeholder string }
	if err := e.ask("textDocument/prepareRename", at{identifier{URI: open}, onLimit}, &prepared); err != nil || prepared.Placeholder != "limit" {
		t.Errorf("prepareRename = %+v, %v, want limit", prepared, err)
	}
	var edit struct{ Changes map[string][]textEdit }
	renaming := map[string]any{"textDocument": map[string]any{"uri": open}, "position": onLimit, "newName": "ceiling"}
	if err := e.ask("textDocument/rename", renaming, &edit); err != nil || len(edit.Changes[open]) != 2 || len(edit.Changes[uriOf("a b/pay_test.rego")]) != 1 {
		t.Errorf("the rename is %+v, %v, want 2 edits here and 1 in the test", edit, err)
	}
	renaming["newName"] = "allow"
	if err := e.ask("textDocument/rename", renaming, nil); err == nil || err.Code != codeRequestFailed || !strings.Contains(err.Message, "allow") {
		t.Errorf("a rename to a name of the service: %+v, want it refused", err)
	}
	var help struct {
		Signatures      []signature
		ActiveParameter int
	}
	if err := e.ask("textDocument/signatureHelp", at{identifier{URI: open}, position{4, 45}}, &help); err != nil || len(help.Signatures) != 1 || help.Signatures[0].Label != "net.ok(address, strict)" || help.ActiveParameter != 1 {
		t.Errorf("the signature is %+v, %v, want the second argument of net.ok", help, err)
	}
}

// A check that timed out is retried up to three times, and diagnostics report the retries.
func TestCheckIsTriedAgain(t *testing.T) {
	var checks atomic.Int32
	s := newServer()
	s.RetryDelay = time.Millisecond
	s.Validate = func(ctx context.Context, source string, libs ...lang.Library) (worker.Validation, error) {
		if checks.Add(1) <= 2 || strings.Contains(source, "never") {
			return worker.Validation{}, fault.New(fault.Invalid, "evaluation_limit", "the evaluation did not end within 2s")
		}
		return check(ctx, source, libs...)
	}
	e := start(t, s)
	e.begin()
	e.send("textDocument/didOpen", nil, document1("package a\n\nallow if true\n"))
	for _, want := range []string{"trying again (1 of 3)", "trying again (2 of 3)", ""} {
		p := e.published(1)
		switch {
		case want == "" && len(p.Diagnostics) != 0:
			t.Fatalf("after the retries: %+v, want no diagnostics", p.Diagnostics)
		case want != "" && (len(p.Diagnostics) != 1 || !strings.Contains(p.Diagnostics[0].Message, want) || p.Diagnostics[0].Severity != severityWarning):
			t.Fatalf("the diagnostics are %+v, want %q", p.Diagnostics, want)
		}
	}
	e.send("textDocument/didChange", nil, map[string]any{
		"textDocument": map[string]any{"uri": uri, "version": 2}, "contentChanges": []any{map[string]any{"text": "package never\n"}},
	})
	for _, want := range []string{"(1 of 3)", "(2 of 3)", "(3 of 3)", "gave up after 4 tries"} {
		if p := e.published(2); len(p.Diagnostics) != 1 || !strings.Contains(p.Diagnostics[0].Message, want) {
			t.Fatalf("the diagnostics are %+v, want %q", p.Diagnostics, want)
		}
	}
	e.send("textDocument/didSave", nil, map[string]any{"textDocument": map[string]any{"uri": uri}})
	if p := e.published(2); !strings.Contains(p.Diagnostics[0].Message, "(1 of 3)") {
		t.Fatalf("after a save: %+v, want the first retry", p.Diagnostics)
	}
}

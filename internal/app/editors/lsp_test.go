package editors_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// lspClient is an editor with `gatehouse lsp`.
type lspClient struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out chan map[string]any
	id  int
}

func startLSP(t *testing.T, env ...string) *lspClient {
	t.Helper()
	c := &lspClient{t: t, cmd: exec.Command(apptest.Binary(t), "lsp"), out: make(chan map[string]any, 64)}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	errtest.Must(t, err)
	errtest.Must(t, c.cmd.Start())
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	go func() {
		defer close(c.out)
		r := textproto.NewReader(bufio.NewReader(out))
		for {
			h, err := r.ReadMIMEHeader()
			if err != nil {
				return
			}
			n, err := strconv.Atoi(h.Get("Content-Length"))
			if err != nil {
				return
			}
			body := make([]byte, n)
			if _, err := io.ReadFull(r.R, body); err != nil {
				return
			}
			var m map[string]any
			if json.Unmarshal(body, &m) != nil {
				return
			}
			c.out <- m
		}
	}()
	c.ask("initialize", apptest.Body{"processId": os.Getpid(), "capabilities": apptest.Body{"textDocument": apptest.Body{"completion": apptest.Body{"completionItem": apptest.Body{"snippetSupport": true}}}}})
	c.notify("initialized", apptest.Body{})
	return c
}

func (c *lspClient) write(body apptest.Body) {
	c.t.Helper()
	body["jsonrpc"] = "2.0"
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c.in, "Content-Length: %d\r\n\r\n%s", len(text), text); err != nil {
		c.t.Fatal(err)
	}
}

func (c *lspClient) notify(method string, params apptest.Body) {
	c.t.Helper()
	c.write(apptest.Body{"method": method, "params": params})
}

func (c *lspClient) next() map[string]any {
	c.t.Helper()
	select {
	case m, ok := <-c.out:
		if !ok {
			c.t.Fatal("the language server ended")
		}
		return m
	case <-time.After(30 * time.Second):
		c.t.Fatal("the language server has sent nothing for 30 s")
	}
	return nil
}

func (c *lspClient) ask(method string, params apptest.Body) any {
	c.t.Helper()
	c.id++
	c.write(apptest.Body{"id": c.id, "method": method, "params": params})
	for {
		if m := c.next(); m["method"] == nil && m["id"] == float64(c.id) {
			if m["error"] != nil {
				c.t.Fatalf("%s: %v", method, m["error"])
			}
			return m["result"]
		}
	}
}

// diagnostics waits for the diagnostics of a version of a document.
func (c *lspClient) diagnostics(version float64) []map[string]any {
	c.t.Helper()
	for {
		m := c.next()
		p, _ := m["params"].(map[string]any)
		if m["method"] != "textDocument/publishDiagnostics" || p["version"] != version {
			continue
		}
		var out []map[string]any
		list, _ := p["diagnostics"].([]any)
		for _, d := range list {
			out = append(out, d.(map[string]any))
		}
		return out
	}
}

func (c *lspClient) complete(uri string, line, character int) []string {
	c.t.Helper()
	list, _ := c.ask("textDocument/completion", apptest.Body{"textDocument": apptest.Body{"uri": uri}, "position": apptest.Body{"line": line, "character": character}}).(map[string]any)
	var labels []string
	items, _ := list["items"].([]any)
	for _, it := range items {
		label, _ := it.(map[string]any)["label"].(string)
		labels = append(labels, label)
	}
	return labels
}

// TestLanguageServer uses the program as an editor does, without a server.
func TestLanguageServer(t *testing.T) {
	c := startLSP(t)
	uri := "file://" + filepath.ToSlash(filepath.Join(t.TempDir(), "orders.rego"))
	c.notify("textDocument/didOpen", apptest.Body{"textDocument": apptest.Body{"uri": uri, "languageId": "rego", "version": 1, "text": "package orders\n\nallow { input.user.id == \"a\" }\n"}})
	found := c.diagnostics(1)
	if len(found) == 0 || found[0]["severity"] != 1.0 || found[0]["range"].(map[string]any)["start"].(map[string]any)["line"] != 2.0 {
		t.Fatalf("the diagnostics are %v, want an error in line 2", found)
	}
	c.notify("textDocument/didChange", apptest.Body{"textDocument": apptest.Body{"uri": uri, "version": 2}, "contentChanges": []any{apptest.Body{"text": "package orders\n\n#who may\nallow if input.user.id == \"a\"\n"}}})
	found = c.diagnostics(2)
	if len(found) != 1 || found[0]["severity"] != 2.0 || found[0]["code"] != "style/no-whitespace-comment" {
		t.Fatalf("the diagnostics are %v, want one warning of the linter", found)
	}
	wanted := []string{"act", "attributes", "department", "email", "id", "roles", "type", "username", "act.sub"}
	for i, member := range wanted {
		wanted[i] = "input.user." + member
	}
	if labels := c.complete(uri, 3, len("allow if input.user")); !slices.Equal(labels, wanted) {
		t.Errorf("the completion = %v, want the members of user", labels)
	}
	// The check of a hostile file runs in a process, which is killed.
	c.notify("textDocument/didOpen", apptest.Body{"textDocument": apptest.Body{"uri": uri + "x", "languageId": "rego", "version": 7, "text": "package p\n\nx := " + strings.Repeat("[", 100000)}})
	if found = c.diagnostics(7); len(found) == 0 {
		t.Error("a hostile file has no diagnostics")
	}
	c.ask("shutdown", nil)
	c.notify("exit", nil)
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the language server ended with %v, want no error", err)
	}
}

// TestLanguageServerKnowsResources checks that with a server, the completion has attributes of its
// resources.
func TestLanguageServerKnowsResources(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	s.Admin.Do(t, "POST", "/resources", apptest.Body{"name": "Orders", "type": "api", "path": "/orders/**", "methods": []string{"GET"}, "attributes": apptest.Body{"cost_centre": "c-17"}}).Want(201)
	s.Admin.Do(t, "POST", "/policies", apptest.Body{"name": "roles", "kind": "library", "status": "active", "rego_code": "package lib.roles\n\nstaff(u) if u.role == \"staff\"\n"}).Want(201)
	key := s.Key(t, s.Admin, "sandbox", "resources:read", "policies:read")
	c := startLSP(t, "GATEHOUSE_URL="+s.URL, "GATEHOUSE_API_KEY="+key.APIKey)
	c.notify("textDocument/didOpen", apptest.Body{"textDocument": apptest.Body{"uri": "file:///a.rego", "languageId": "rego", "version": 1, "text": "package a\n\nallow if input.resource.attributes.co"}})
	apptest.Eventually(t, 30*time.Second, func() error {
		if labels := c.complete("file:///a.rego", 2, 37); len(labels) != 1 || labels[0] != "input.resource.attributes.cost_centre" {
			return fmt.Errorf("the completion = %v, want the attribute of the resource", labels)
		}
		return nil
	})
	// A file can import the server's libraries.
	c.notify("textDocument/didOpen", apptest.Body{"textDocument": apptest.Body{"uri": "file:///b.rego", "languageId": "rego", "version": 5, "text": "package b\n\nimport data.lib.roles\n\nallow if roles.staff(input.user)\n"}})
	if found := c.diagnostics(5); len(found) != 0 {
		t.Errorf("the diagnostics with the server's library are %v, want none", found)
	}
}

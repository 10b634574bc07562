package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// editorSocket is an editor's WebSocket.
type editorSocket struct {
	t    *testing.T
	conn *websocket.Conn
}

func ownID(t *testing.T, c *apptest.Client) string {
	t.Helper()
	return fmt.Sprint(c.Do(t, "GET", "/auth/me", nil).Want(200).Get("id"))
}

// dial opens a socket; status is that of the answer where it is refused.
func dialSocket(t *testing.T, s *apptest.Server, c *apptest.Client, user string, header http.Header) (*editorSocket, int) {
	t.Helper()
	h := http.Header{}
	for name, v := range header {
		h[name] = v
	}
	if c.Bearer != "" {
		h.Set("Authorization", "Bearer "+c.Bearer)
	}
	if c.APIKey != "" {
		h.Set("X-API-Key", c.APIKey)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, strings.Replace(s.URL, "http://", "ws://", 1)+"/api/v1/ide-integration/ws/"+user, &websocket.DialOptions{HTTPHeader: h})
	if err != nil {
		if res == nil {
			t.Fatal(err)
		}
		return nil, res.StatusCode
	}
	conn.SetReadLimit(8 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &editorSocket{t, conn}, http.StatusSwitchingProtocols
}

func (k *editorSocket) send(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return k.conn.Write(ctx, websocket.MessageText, []byte(text))
}

func (k *editorSocket) next() (typ string, data map[string]any, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, body, err := k.conn.Read(ctx)
	if err != nil {
		return "", nil, err
	}
	var m struct {
		Type string         `json:"type"`
		Data map[string]any `json:"data"`
	}
	err = json.Unmarshal(body, &m)
	return m.Type, m.Data, err
}

func (k *editorSocket) ask(message any) (string, map[string]any) {
	k.t.Helper()
	text, err := json.Marshal(message)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.send(string(text)); err != nil {
		k.t.Fatal(err)
	}
	typ, data, err := k.next()
	if err != nil {
		k.t.Fatalf("after %s: %v", text, err)
	}
	return typ, data
}

// closedWith reads on until the server closes, and gives the code.
func (k *editorSocket) closedWith() websocket.StatusCode {
	k.t.Helper()
	for {
		if _, _, err := k.next(); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

func TestEditorSocket(t *testing.T) {
	fulltest.Only(t)
	s := apptest.StartServer(t, dbtest.SQLite)
	me := ownID(t, s.Admin)
	for name, c := range map[string]struct {
		client *apptest.Client
		user   string
		header http.Header
		want   int
	}{
		"no credential":      {s.Anonymous(), me, nil, 401},
		"another's path":     {s.Admin, "somebody-else", nil, 403},
		"a foreign page":     {s.Admin, me, http.Header{"Origin": {"https://evil.example"}}, 403},
		"a page of no host":  {s.Admin, me, http.Header{"Origin": {"null"}}, 403},
		"without permission": {s.Key(t, s.Admin, "sandbox", "policies:read"), me, nil, 403},
	} {
		if k, status := dialSocket(t, s, c.client, c.user, c.header); k != nil || status != c.want {
			t.Errorf("%s: %d, want %d", name, status, c.want)
		}
	}
	if r := s.Admin.Do(t, "GET", "/ide-integration/ws/"+me, nil); r.Status != 400 || r.Get("success") != false {
		t.Errorf("no upgrade: %d %s", r.Status, r.Body)
	}
	k, status := dialSocket(t, s, s.Admin, me, http.Header{"Origin": {s.URL}})
	if k == nil {
		t.Fatalf("own page: %d", status)
	}
	if typ, _ := k.ask(apptest.Body{"type": "ping", "data": apptest.Body{}}); typ != "pong" {
		t.Errorf("ping: %s", typ)
	}
	if typ, data := k.ask(apptest.Body{"type": "validate", "data": apptest.Body{"policy_content": "package a\n\nallow if foo(1)\n"}}); typ != "validation_result" || data["valid"] != false || len(data["errors"].([]any)) != 1 {
		t.Errorf("validate: %s %v", typ, data)
	}
	d := s.Admin.Do(t, "POST", "/ide-integration/editor-a", apptest.Body{"action": "deploy", "policy_content": "package a\n\nallow if input.user.id == \"ada\"\n"}).Want(200)
	if typ, data := k.ask(apptest.Body{"type": "deployment_status", "data": apptest.Body{"deployment_id": d.Get("deployment", "deployment_id")}}); typ != "deployment_status" || data["status"] != "completed" {
		t.Errorf("deployment_status: %s %v", typ, data)
	}
	for _, bad := range []any{apptest.Body{"type": "explode"}, apptest.Body{"type": "validate"}, apptest.Body{"type": "deployment_status", "data": apptest.Body{"deployment_id": "none"}}, []int{1}, "x"} {
		if typ, data := k.ask(bad); typ != "error" || data["message"] == "" {
			t.Errorf("%v: %s %v", bad, typ, data)
		}
	}
	if err := k.send(`{"type":"validate","data":{"policy_content":"` + strings.Repeat("x", 2<<20) + `"}}`); err != nil && !errors.Is(err, context.Canceled) {
		t.Log(err) // the server may have closed before all was written
	}
	if code := k.closedWith(); code != websocket.StatusMessageTooBig {
		t.Errorf("2 MiB: closed with %d", code)
	}
	if k, _ = dialSocket(t, s, s.Admin, me, nil); k == nil {
		t.Fatal("no second socket")
	}
	for range 1000 {
		if k.send(`{"type":"ping","data":{}}`) != nil {
			break
		}
	}
	if code := k.closedWith(); code != websocket.StatusPolicyViolation {
		t.Errorf("1000 messages at once: closed with %d", code)
	}
	var open []*editorSocket
	for range 11 {
		k, status := dialSocket(t, s, s.Admin, me, nil)
		if k != nil {
			open = append(open, k)
		} else if status != 429 {
			t.Errorf("a socket too many: %d", status)
		}
	}
	if len(open) != 10 {
		t.Errorf("%d sockets of one person, want 10", len(open))
	}
	for _, k := range open {
		_ = k.conn.CloseNow()
	}
	apptest.Eventually(t, 5*time.Second, func() error {
		if k, status := dialSocket(t, s, s.Admin, me, nil); k == nil {
			return fmt.Errorf("once the others are closed: %d", status)
		}
		return nil
	})
	if log := s.Log.String(); strings.Contains(log, s.Admin.Bearer) {
		t.Error("the token is in the log")
	}
}

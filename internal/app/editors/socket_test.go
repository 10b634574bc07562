package editors_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

func TestEditorSocket(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	me := apptest.AccountID(t, s.Admin)
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
		if k, status := apptest.DialEditor(t, s, c.client, c.user, c.header); k != nil || status != c.want {
			t.Errorf("%s: %d, want %d", name, status, c.want)
		}
	}
	if r := s.Admin.Do(t, "GET", "/ide-integration/ws/"+me, nil); r.Status != 400 || r.Get("success") != false {
		t.Errorf("no upgrade: %d %s", r.Status, r.Body)
	}
	k, status := apptest.DialEditor(t, s, s.Admin, me, http.Header{"Origin": {s.URL}})
	if k == nil {
		t.Fatalf("own page: %d", status)
	}
	if typ, _ := k.Ask(apptest.Body{"type": "ping", "data": apptest.Body{}}); typ != "pong" {
		t.Errorf("ping: %s", typ)
	}
	if typ, data := k.Ask(apptest.Body{"type": "validate", "data": apptest.Body{"policy_content": "package a\n\nallow if foo(1)\n"}}); typ != "validation_result" || data["valid"] != false || len(data["errors"].([]any)) != 1 {
		t.Errorf("validate: %s %v", typ, data)
	}
	d := s.Admin.Do(t, "POST", "/ide-integration/editor-a", apptest.Body{"action": "deploy", "policy_content": "package a\n\nallow if input.user.id == \"ada\"\n"}).Want(200)
	if typ, data := k.Ask(apptest.Body{"type": "deployment_status", "data": apptest.Body{"deployment_id": d.Get("deployment", "deployment_id")}}); typ != "deployment_status" || data["status"] != "completed" {
		t.Errorf("deployment_status: %s %v", typ, data)
	}
	for _, bad := range []any{apptest.Body{"type": "explode"}, apptest.Body{"type": "validate"}, apptest.Body{"type": "deployment_status", "data": apptest.Body{"deployment_id": "none"}}, []int{1}, "x"} {
		if typ, data := k.Ask(bad); typ != "error" || data["message"] == "" {
			t.Errorf("%v: %s %v", bad, typ, data)
		}
	}
	if err := k.Send(`{"type":"validate","data":{"policy_content":"` + strings.Repeat("x", 2<<20) + `"}}`); err != nil && !errors.Is(err, context.Canceled) {
		t.Log(err) // the server may have closed before all was written
	}
	if code := k.CloseCode(); code != websocket.StatusMessageTooBig {
		t.Errorf("2 MiB: closed with %d", code)
	}
	if k, _ = apptest.DialEditor(t, s, s.Admin, me, nil); k == nil {
		t.Fatal("no second socket")
	}
	for range 1000 {
		if k.Send(`{"type":"ping","data":{}}`) != nil {
			break
		}
	}
	if code := k.CloseCode(); code != websocket.StatusPolicyViolation {
		t.Errorf("1000 messages at once: closed with %d", code)
	}
	var open []*apptest.EditorSocket
	for range 11 {
		k, status := apptest.DialEditor(t, s, s.Admin, me, nil)
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
		_ = k.Conn.CloseNow()
	}
	apptest.Eventually(t, 5*time.Second, func() error {
		if k, status := apptest.DialEditor(t, s, s.Admin, me, nil); k == nil {
			return fmt.Errorf("once the others are closed: %d", status)
		}
		return nil
	})
	if log := s.Log.String(); strings.Contains(log, s.Admin.Bearer) {
		t.Error("the token is in the log")
	}
}

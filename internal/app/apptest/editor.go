package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// CheckEnd checks that the server closes the socket within the limit because its credential is no
// longer valid, and that it answers no message after that.
func (k *EditorSocket) CheckEnd(what string, limit time.Duration, silent bool) {
	k.T.Helper()
	began := time.Now()
	stop := make(chan struct{})
	defer close(stop)
	if !silent {
		go func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					if k.Send(`{"type":"ping","data":{}}`) != nil {
						return
					}
				}
			}
		}()
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), limit+5*time.Second)
		_, text, err := k.Conn.Read(ctx)
		cancel()
		took := time.Since(began)
		switch {
		case err == nil && took > limit:
			k.T.Errorf("%s: %s is answered after %s", what, text, took)
			return
		case err == nil:
			continue
		case websocket.CloseStatus(err) != websocket.StatusPolicyViolation || took > limit:
			k.T.Errorf("%s: %v after %s", what, err, took)
		}
		return
	}
}

// EditorSocket is the WebSocket of an editor.
type EditorSocket struct {
	T    *testing.T
	Conn *websocket.Conn
}

// AccountID returns the id of the client's own account.
func AccountID(t *testing.T, c *Client) string {
	t.Helper()
	return fmt.Sprint(c.Do(t, "GET", "/auth/me", nil).Want(200).Get("id"))
}

// DialEditor opens a socket. If the server refuses it, the socket is nil and status is that of the
// answer.
func DialEditor(t *testing.T, s *Server, c *Client, user string, header http.Header) (*EditorSocket, int) {
	t.Helper()
	h := http.Header{}
	maps.Copy(h, header)
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
	return &EditorSocket{t, conn}, http.StatusSwitchingProtocols
}

// Send sends one text message.
func (k *EditorSocket) Send(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return k.Conn.Write(ctx, websocket.MessageText, []byte(text))
}

// Next reads one message and returns its type and data.
func (k *EditorSocket) Next() (typ string, data map[string]any, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, body, err := k.Conn.Read(ctx)
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

// Ask sends a message and returns the answer.
func (k *EditorSocket) Ask(message any) (string, map[string]any) {
	k.T.Helper()
	text, err := json.Marshal(message)
	if err != nil {
		k.T.Fatal(err)
	}
	if err := k.Send(string(text)); err != nil {
		k.T.Fatal(err)
	}
	typ, data, err := k.Next()
	if err != nil {
		k.T.Fatalf("after %s: %v", text, err)
	}
	return typ, data
}

// CloseCode reads until the server closes the socket, and returns the status code (RFC 6455
// section 7.4).
func (k *EditorSocket) CloseCode() websocket.StatusCode {
	k.T.Helper()
	for {
		if _, _, err := k.Next(); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

package hardening_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestEditorSocketEnds checks that a socket ends with its credential: within a second on this
// replica, whether the editor sends messages or not, and within five seconds on another.
func TestEditorSocketEnds(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		r := newFixture(t, s)
		p := r.tenant(t, "Editors")
		servers := []*apptest.Server{s}
		if s.DatabaseURL() != "" {
			servers = append(servers, s.Replica(t))
		}
		wantClosed := func(what string, c *apptest.Client, own string, change func()) {
			t.Helper()
			var speaks, silent []*apptest.EditorSocket
			for _, server := range servers {
				for _, list := range []*[]*apptest.EditorSocket{&speaks, &silent} {
					k, status := apptest.DialEditor(t, server, c, own, nil)
					if k == nil {
						t.Fatalf("%s: opening a socket before = %d, want 101", what, status)
					}
					if typ, _ := k.Ask(apptest.Body{"type": "ping"}); typ != "pong" {
						t.Fatalf("%s: a ping before = %s, want pong", what, typ)
					}
					*list = append(*list, k)
				}
			}
			change()
			limit := 1500 * time.Millisecond // one second, and a busy machine
			for i := range servers {
				speaks[i].CheckEnd(what+", speaking", limit, false)
				silent[i].CheckEnd(what+", silent", limit, true)
				limit = 5500 * time.Millisecond
			}
		}
		id, person := r.newPerson(t, p, "policy_author")
		wantClosed("the role is taken", person, id, func() { p.admin.Do(t, "PUT", "/users/"+id+"/roles", body{"roles": []string{"viewer"}}).Want(200) })
		id, person = r.newPerson(t, p, "policy_author")
		wantClosed("signed out", person, id, func() { person.Do(t, "POST", "/auth/logout", nil).Want(200) })
		keyID, key := r.key(t, p, body{"name": "k", "scopes": []string{"editor:read"}})
		wantClosed("the key is revoked", key, keyID, func() { p.admin.Do(t, "DELETE", "/tenants/"+p.id+"/api-keys/"+keyID, nil).Want(200) })

		soon := time.Now().Add(2500 * time.Millisecond)
		keyID, key = r.key(t, p, body{"name": "k", "scopes": []string{"editor:read"}, "expires_at": soon.UTC().Format(time.RFC3339Nano)})
		token := s.WithToken(key.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Text("access_token"))
		wantClosed("the token expires with its key", token, keyID, func() {
			select {
			case <-time.After(time.Until(soon)):
			case <-t.Context().Done():
			}
		})
		id, person = r.newPerson(t, p, "policy_author")
		wantClosed("the tenant is suspended", person, id, func() { s.Admin.Do(t, "PUT", "/tenants/"+p.id, body{"status": "suspended"}).Want(200) })
		if k, status := apptest.DialEditor(t, s, person, id, nil); k != nil || status != 403 {
			t.Errorf("opening a socket in a suspended tenant = %d, want 403", status)
		}
	})
}

// TestEditorSocketShutdown checks that a server that stops says so to its sockets, and does not
// wait for clients that do not read.
func TestEditorSocketShutdown(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	me := apptest.AccountID(t, s.Admin)
	good, _ := apptest.DialEditor(t, s, s.Admin, me, nil)
	if good == nil {
		t.Fatal("the server refuses the socket")
	}
	if typ, _ := good.Ask(apptest.Body{"type": "ping"}); typ != "pong" {
		t.Errorf("ping = %s, want pong", typ)
	}
	silent := rawSocket(t, s, s.Admin, me) // does not read, and never confirms the end
	s.Interrupt()
	if code := good.CloseCode(); code != websocket.StatusGoingAway {
		t.Errorf("the stopping server closes the socket with %d, want %d", code, websocket.StatusGoingAway)
	}
	if code := s.Wait(8 * time.Second); code != 0 {
		t.Errorf("the server ended with %d, want 0\n%s", code, s.Log)
	}
	_ = silent.Close()
}

// rawSocket opens a socket and returns its bare connection.
func rawSocket(t *testing.T, s *apptest.Server, c *apptest.Client, user string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	errtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "GET /api/v1/ide-integration/ws/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", user, c.Bearer)
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, " 101 ") {
		t.Fatalf("opening a socket = %q, %v, want 101", line, err)
	}
	return conn
}

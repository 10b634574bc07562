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
)

// TestEditorSocketEnds: what ends a credential ends its sockets: within a second
// on this replica, whether they speak or not, and within five on another.
func TestEditorSocketEnds(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		r := newRig(t, s)
		p := r.tenant(t, "Editors")
		servers := []*apptest.Server{s}
		if s.DatabaseURL() != "" {
			servers = append(servers, s.Replica(t))
		}
		end := func(what string, c *apptest.Client, own string, change func()) {
			t.Helper()
			var speaks, silent []*apptest.EditorSocket
			for _, at := range servers {
				for _, list := range []*[]*apptest.EditorSocket{&speaks, &silent} {
					k, status := apptest.DialEditor(t, at, c, own, nil)
					if k == nil {
						t.Fatalf("%s: %d", what, status)
					}
					if typ, _ := k.Ask(apptest.Body{"type": "ping"}); typ != "pong" {
						t.Fatalf("%s: %s", what, typ)
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
		id, person := r.person(t, p, "policy_author")
		end("the role is taken", person, id, func() { p.admin.Do(t, "PUT", "/users/"+id+"/roles", body{"roles": []string{"viewer"}}).Want(200) })
		id, person = r.person(t, p, "policy_author")
		end("signed out", person, id, func() { person.Do(t, "POST", "/auth/logout", nil).Want(200) })
		keyID, key := r.key(t, p, body{"name": "k", "scopes": []string{"editor:read"}})
		end("the key is revoked", key, keyID, func() { p.admin.Do(t, "DELETE", "/tenants/"+p.id+"/api-keys/"+keyID, nil).Want(200) })

		soon := time.Now().Add(2500 * time.Millisecond)
		keyID, key = r.key(t, p, body{"name": "k", "scopes": []string{"editor:read"}, "expires_at": soon.UTC().Format(time.RFC3339Nano)})
		token := s.Anonymous()
		token.Bearer, _ = key.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Get("access_token").(string)
		end("the token expires with its key", token, keyID, func() {
			select {
			case <-time.After(time.Until(soon)):
			case <-t.Context().Done():
			}
		})
		id, person = r.person(t, p, "policy_author")
		end("the tenant is suspended", person, id, func() { s.Admin.Do(t, "PUT", "/tenants/"+p.id, body{"status": "suspended"}).Want(200) })
		if k, status := apptest.DialEditor(t, s, person, id, nil); k != nil || status != 403 {
			t.Errorf("a socket in a suspended tenant: %d", status)
		}
	})
}

// TestEditorSocketShutdown: a server that ends says so to its sockets, and does
// not wait for those that do not listen.
func TestEditorSocketShutdown(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	me := apptest.AccountID(t, s.Admin)
	good, _ := apptest.DialEditor(t, s, s.Admin, me, nil)
	if good == nil {
		t.Fatal("no socket")
	}
	if typ, _ := good.Ask(apptest.Body{"type": "ping"}); typ != "pong" {
		t.Errorf("ping: %s", typ)
	}
	deaf := rawSocket(t, s, s.Admin, me) // does not read, and never agrees to the end
	began := time.Now()
	s.Interrupt()
	if code := good.CloseCode(); code != websocket.StatusGoingAway {
		t.Errorf("the end of the server: closed with %d", code)
	}
	if code := s.Wait(10 * time.Second); code != 0 || time.Since(began) > 8*time.Second {
		t.Errorf("the server ended with %d after %s\n%s", code, time.Since(began), s.Log)
	}
	_ = deaf.Close()
}

// rawSocket opens a socket of which the test has the bare connection.
func rawSocket(t *testing.T, s *apptest.Server, c *apptest.Client, user string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "GET /api/v1/ide-integration/ws/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", user, c.Bearer)
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, " 101 ") {
		t.Fatalf("%q %v", line, err)
	}
	return conn
}

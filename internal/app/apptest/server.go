package apptest

import (
	"net/http"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// Server is a running control plane whose administrator is signed in.
type Server struct {
	*Process
	// Admin is the first administrator, in the tenant "default".
	Admin *Client
	// Dir is the data directory.
	Dir string
	// TLS is its TLS listener; nil for none.
	TLS *TLSListener
}

// StartServer starts a server on a new store of the backend. Settings in env take precedence over
// the defaults.
func StartServer(t testing.TB, backend string, env ...string) *Server {
	t.Helper()
	skipInInnerLoop(t)
	cfg := dbtest.Config(t, backend)
	dir := cfg.Dir
	if dir == "" {
		dir = t.TempDir()
	}
	return startServer(t, dir, cfg.URL, env...)
}

// Replica starts another server on the store of s.
func (s *Server) Replica(t testing.TB, env ...string) *Server {
	t.Helper()
	return startServer(t, t.TempDir(), s.DatabaseURL(), append(env, "NOTIFICATION_ENCRYPTION_KEY="+testKey)...)
}

// DatabaseURL returns the address of its PostgreSQL database; empty on SQLite.
func (s *Server) DatabaseURL() string {
	const name = "GATEHOUSE_DATABASE_URL="
	for _, e := range s.env {
		if len(e) > len(name) && e[:len(name)] == name {
			return e[len(name):]
		}
	}
	return ""
}

// testKey encrypts secrets in tests. Replicas must share it.
const testKey = "Z2F0ZWhvdXNlLXRlc3QtZW5jcnlwdGlvbi1rZXktMDE="

func startServer(t testing.TB, dir, databaseURL string, env ...string) *Server {
	t.Helper()
	s := launchServer(t, dir, databaseURL, freeport.Addr(t), env...)
	s.Admin = s.Login(t, "admin", Password)
	return s
}

// launchServer starts a server that listens on addr.
func launchServer(t testing.TB, dir, databaseURL, addr string, env ...string) *Server {
	t.Helper()
	all := append([]string{
		"GATEHOUSE_LISTEN=" + addr, "GATEHOUSE_DATA_DIR=" + dir, "GATEHOUSE_DATABASE_URL=" + databaseURL, smallReserve("GATEHOUSE_DISK_RESERVE"),
		"GATEHOUSE_ADMIN_PASSWORD=" + Password, "NOTIFICATION_ENCRYPTION_KEY=" + testKey, "GATEHOUSE_STOP_DELAY=0s", "GATEHOUSE_RATE_LIMIT=none", "GATEHOUSE_DECISION_RATE_LIMIT=none",
	}, env...)
	return &Server{Process: Launch(t, "http://"+addr, "/health/ready", all, "server"), Dir: dir}
}

// Anonymous returns a client without a credential.
func (s *Server) Anonymous() *Client {
	if s.TLS != nil {
		return s.At("localhost")
	}
	return &Client{Base: s.URL + "/api/v1"}
}

// Login signs a person in and returns their client.
func (s *Server) Login(t testing.TB, username, password string) *Client {
	t.Helper()
	c := s.Anonymous()
	var out struct {
		AccessToken string `json:"access_token"`
	}
	c.Do(t, http.MethodPost, "/auth/login", Body{"username": username, "password": password}).Want(200).Into(&out)
	c.Bearer = out.AccessToken
	return c
}

// Key creates an API key in the client's tenant with the scopes, and returns a client that uses it.
func (s *Server) Key(t testing.TB, by *Client, env string, scopes ...string) *Client {
	t.Helper()
	var out struct {
		Key string `json:"key"`
	}
	by.Do(t, http.MethodPost, "/developer-portal/api-keys/"+env+"/generate", Body{"name": "test", "scopes": scopes}).Want(200, 201).Into(&out)
	c := s.Anonymous()
	c.APIKey = out.Key
	return c
}

// StartServerIn starts a server on existing SQLite files.
func StartServerIn(t testing.TB, dir string, env ...string) *Server {
	t.Helper()
	return startServer(t, dir, "", env...)
}

// StartServerOn starts a server in a directory, on an existing database.
func StartServerOn(t testing.TB, dir, databaseURL string, env ...string) *Server {
	t.Helper()
	return startServer(t, dir, databaseURL, env...)
}

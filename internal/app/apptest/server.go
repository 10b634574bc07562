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

// WithKey returns a client with an API key.
func (s *Server) WithKey(key string) *Client {
	c := s.Anonymous()
	c.APIKey = key
	return c
}

// WithToken returns a client with a bearer token.
func (s *Server) WithToken(token string) *Client {
	c := s.Anonymous()
	c.Bearer = token
	return c
}

// Login signs a person of the tenant "default" in and returns their client.
func (s *Server) Login(t testing.TB, username, password string) *Client {
	t.Helper()
	return s.login(t, s.Anonymous(), username, password)
}

// LoginTo signs a person of a tenant in and returns their client.
func (s *Server) LoginTo(t testing.TB, tenant, username, password string) *Client {
	t.Helper()
	return s.login(t, s.Anonymous().With("X-Tenant-ID", tenant), username, password)
}

func (s *Server) login(t testing.TB, by *Client, username, password string) *Client {
	t.Helper()
	return s.WithToken(by.Do(t, http.MethodPost, "/auth/login", Body{"username": username, "password": password}).Want(200).Text("access_token"))
}

// Key creates an API key in the client's tenant with the scopes, and returns a client that uses it.
func (s *Server) Key(t testing.TB, by *Client, env string, scopes ...string) *Client {
	t.Helper()
	return s.WithKey(by.Do(t, http.MethodPost, "/developer-portal/api-keys/"+env+"/generate", Body{"name": "test", "scopes": scopes}).Want(200, 201).Text("key"))
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

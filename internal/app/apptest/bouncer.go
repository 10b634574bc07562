package apptest

import (
	"maps"
	"net/http"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// BouncerProcess is a running bouncer.
type BouncerProcess struct {
	*Process
	// ID and Token are those of its registration.
	ID    int64
	Token string
	// Dir is its data directory.
	Dir string
}

// Bouncer registers a bouncer and starts it in front of an upstream (host:port). It trusts identity
// headers from loopback.
func (s *Server) Bouncer(t testing.TB, by *Client, record Body, upstream string, env ...string) *BouncerProcess {
	t.Helper()
	b := s.Register(t, by, record, upstream)
	b.launch(t, s.URL, upstream, "/_bouncer/ready", env)
	return b
}

// StartDetached starts a registered bouncer that may not reach its server. It waits until the bouncer
// serves requests, not until it can decide.
func (b *BouncerProcess) StartDetached(t testing.TB, server, upstream string, env ...string) *BouncerProcess {
	t.Helper()
	b.launch(t, server, upstream, "/_bouncer/live", env)
	return b
}

func (b *BouncerProcess) launch(t testing.TB, server, upstream, wait string, env []string) {
	t.Helper()
	addr := freeport.Addr(t)
	if b.Dir == "" {
		b.Dir = t.TempDir()
	}
	all := append([]string{
		"GATEHOUSE_URL=" + server, "GATEHOUSE_BOUNCER_TOKEN=" + b.Token, "GATEHOUSE_BOUNCER_LISTEN=" + addr,
		"GATEHOUSE_BOUNCER_UPSTREAM=http://" + upstream, "GATEHOUSE_BOUNCER_DATA_DIR=" + b.Dir, "GATEHOUSE_BOUNCER_TRUSTED_PROXIES=127.0.0.0/8",
		"GATEHOUSE_STOP_DELAY=0s", smallReserve("GATEHOUSE_BOUNCER_DISK_RESERVE"),
	}, env...)
	b.Process = Launch(t, "http://"+addr, wait, all, "bouncer")
}

// Register registers a bouncer without starting it.
func (s *Server) Register(t testing.TB, by *Client, record Body, upstream string) *BouncerProcess {
	t.Helper()
	full := Body{"hostname": "127.0.0.1", "port": 8081, "target_app": upstream}
	maps.Copy(full, record)
	var made struct {
		ID    int64  `json:"id"`
		Token string `json:"token"`
	}
	by.Do(t, http.MethodPost, "/bouncers", full).Want(201).Into(&made)
	return &BouncerProcess{ID: made.ID, Token: made.Token}
}

// As returns a client of the protected application whose identity headers come from a trusted
// proxy.
func (b *BouncerProcess) As(user, groups string) *Client {
	return (&Client{Base: b.URL}).With("X-Auth-Request-User", user).With("X-Auth-Request-Groups", groups)
}

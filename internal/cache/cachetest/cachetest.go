// Package cachetest provides tests with a real Redis: a redis-server from PATH for each test, or
// that of GATEHOUSE_TEST_REDIS_URL. Without either, tests with Redis are skipped, but fail if
// CI=true or GATEHOUSE_TEST_REQUIRE=all.
package cachetest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// Each runs a test as subtests with a cache in the process and with Redis.
func Each(t *testing.T, test func(t *testing.T, c *cache.Cache)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { test(t, Open(t, cache.Config{})) })
	t.Run("redis", func(t *testing.T) { test(t, Open(t, cache.Config{URL: Start(t).URL()})) })
}

// Open opens a cache and closes it after the test.
func Open(t testing.TB, cfg cache.Config) *cache.Cache {
	t.Helper()
	c, err := cache.Open(context.Background(), cfg)
	if err != nil {
		t.Fatalf("open the cache: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// Server is a Redis server for one test.
type Server struct {
	t       testing.TB
	address string
	given   string
	cmd     *exec.Cmd
	log     bytes.Buffer
}

// Start starts a server and stops it after the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, given: os.Getenv("GATEHOUSE_TEST_REDIS_URL")}
	if s.given != "" {
		return s
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("GATEHOUSE_TEST_REQUIRE") == "all" {
			t.Fatalf("Redis is required: %v", err)
		}
		t.Skipf("not tested on Redis: %v", err)
	}
	s.address = freeport.Addr(t)
	t.Cleanup(s.Stop)
	s.Restart()
	return s
}

// URL returns the server's address.
func (s *Server) URL() string {
	if s.given != "" {
		return s.given
	}
	return "redis://" + s.address
}

// Stop kills the server. Restart starts an empty one at the same address.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // it was killed
		s.cmd = nil
	}
}

// Restart starts the server and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	if s.given != "" {
		s.t.Skip("the server of GATEHOUSE_TEST_REDIS_URL is not ours to restart")
	}
	s.Stop()
	_, port, _ := net.SplitHostPort(s.address)
	s.cmd = exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.t.TempDir())
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.answers(); err != nil {
		s.Stop()
		s.t.Fatalf("redis-server: %v\n%s", err, s.log.String())
	}
}

// Freeze stops the process without ending it. It keeps its connections and accepts new ones, but
// answers nothing until Thaw.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw continues a frozen process.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.given != "" {
		s.t.Skip("the server of GATEHOUSE_TEST_REDIS_URL is not ours to stop")
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	reply := make([]byte, 5)
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
		if err == nil {
			_, err = fmt.Fprintf(c, "PING\r\n")
			if err == nil {
				_, err = c.Read(reply)
			}
			_ = c.Close()
			if err == nil && string(reply) == "+PONG" {
				return nil
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no answer on %s: %s %w", s.address, strconv.Quote(string(reply)), err)
		}
	}
}

package apptest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

var buildOPA = builder("opa", "github.com/open-policy-agent/opa")

// builder returns a function that finds a program in bin, or builds it once from tools/go.mod.
func builder(name, pkg string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		root, err := Root()
		if err != nil {
			return "", err
		}
		out := filepath.Join(os.TempDir(), "gatehouse-test-"+name, name)
		for _, path := range []string{filepath.Join(root, "bin", name), out} {
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
		}
		cmd := exec.Command("go", "build", "-o", out, pkg)
		cmd.Dir = filepath.Join(root, "tools")
		_, err = cmd.CombinedOutput()
		return out, err
	})
}

// OPA returns the path of a stock OPA: GATEHOUSE_TEST_OPA, otherwise bin/opa, otherwise one that is
// built from tools/go.mod. If there is none, the test is skipped, or fails if everything is
// required.
func OPA(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("GATEHOUSE_TEST_OPA"); path != "" {
		return path
	}
	path, err := buildOPA()
	if err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("GATEHOUSE_TEST_REQUIRE") == "all" {
			t.Fatalf("no stock OPA: %v", err)
		}
		t.Skipf("no stock OPA: %v", err)
	}
	return path
}

// ConfiguredOPA starts a stock OPA with the configuration of GET /bouncers/{id}/opa-config, and the
// token in its environment, as that configuration says. edit may change the configuration.
func ConfiguredOPA(t *testing.T, s *Server, b *BouncerProcess, edit func(string) string) *StockOPA {
	t.Helper()
	config := string(s.Admin.Do(t, "GET", fmt.Sprintf("/bouncers/%d/opa-config", b.ID), nil).Want(200).Body)
	if edit != nil {
		config = edit(config)
	}
	o := &StockOPA{ID: b.ID}
	o.Run(t, config, "GATEHOUSE_BOUNCER_TOKEN="+b.Token)
	return o
}

// StockOPA is a running stock OPA that was registered as a bouncer.
type StockOPA struct {
	*Client
	// ID is that of its bouncer.
	ID  int64
	Log *Log
	Cmd *exec.Cmd
}

// StartOPA registers a bouncer and starts a stock OPA with the configuration from the answer.
func StartOPA(t *testing.T, s *Server, members Body) *StockOPA {
	t.Helper()
	var made struct {
		ID     int64  `json:"id"`
		Config string `json:"opa_config"`
	}
	full := Body{"hostname": "127.0.0.1", "port": 8181}
	maps.Copy(full, members)
	s.Admin.Do(t, "POST", "/bouncers", full).Want(201).Into(&made)
	o := &StockOPA{ID: made.ID}
	o.Run(t, made.Config)
	return o
}

// Run starts OPA with a configuration and additional settings in its environment.
func (o *StockOPA) Run(t *testing.T, config string, env ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gatehouse.yaml")
	errtest.Must(t, os.WriteFile(file, []byte(config), 0o600))
	addr := freeport.Addr(t)
	o.Client, o.Log = &Client{Base: "http://" + addr}, &Log{}
	ctx, cancel := context.WithCancel(context.Background())
	o.Cmd = exec.CommandContext(ctx, OPA(t), "run", "--server", "--disable-telemetry", "--addr", addr, "--config-file", file)
	o.Cmd.Env = append(os.Environ(), env...)
	o.Cmd.Stdout, o.Cmd.Stderr = o.Log, o.Log
	o.Cmd.Cancel = func() error { return o.Cmd.Process.Signal(os.Interrupt) }
	o.Cmd.WaitDelay = 5 * time.Second
	errtest.Must(t, o.Cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = o.Cmd.Wait()
	})
}

// WaitForDecision waits until OPA makes the wanted decision for the user, and returns how long that took.
func (o *StockOPA) WaitForDecision(t *testing.T, limit time.Duration, user, want string) time.Duration {
	t.Helper()
	began := time.Now()
	Eventually(t, limit, func() error {
		r, err := o.Try(http.MethodPost, "/v1/data/gatehouse/decision", Body{"input": Body{"user": Body{"id": user}, "action": Body{"name": "read"}, "resource": Body{"type": "api", "path": "/x"}}})
		if err != nil {
			return err
		}
		if !strings.Contains(string(r.Body), `"decision":"`+want+`"`) {
			return fmt.Errorf("%s, want %s\n%s", r.Body, want, o.Log)
		}
		return nil
	})
	return time.Since(began)
}

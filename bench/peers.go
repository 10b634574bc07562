package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// peer is a server that is measured, in a process of its own.
type peer struct {
	name string
	addr string
	cmd  *exec.Cmd
	log  bytes.Buffer
	// ready is the time from the start of the process until it was ready, to about 20 ms.
	ready time.Duration
}

// freePort returns a free address on this machine.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// start runs a program and waits until url answers 200.
func start(ctx context.Context, name, addr, url string, env []string, program string, args ...string) (*peer, error) {
	p := &peer{name: name, addr: addr, cmd: exec.CommandContext(ctx, program, args...)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := awaitOK(ctx, url); err != nil {
		p.stop()
		return nil, fmt.Errorf("%s did not start: %w\n%s", name, err, p.log.String())
	}
	p.ready = time.Since(began)
	return p, nil
}

// stop ends the process; a second call does nothing.
func (p *peer) stop() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(os.Interrupt)
	ended := make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-ended
	}
}

func awaitOK(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", url, errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// startOPA runs a stock OPA with the control and the data.
func startOPA(ctx context.Context, program, dir string, ids []int64) (*peer, error) {
	policy, data := filepath.Join(dir, "authz.rego"), filepath.Join(dir, "data.json")
	if err := os.WriteFile(policy, []byte(control), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(data, opaData(ids), 0o600); err != nil {
		return nil, err
	}
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	return start(ctx, "OPA", addr, "http://"+addr+"/health", nil, program, "run", "--server", "--addr", addr,
		"--log-level", "error", "--disable-telemetry", policy, data)
}

// gatehouse is our server, with an administrator's token and a key for decisions.
type gatehouse struct {
	*peer
	token, key string
}

const adminPassword = "bench-administrator-1"

func startGatehouse(ctx context.Context, program, dir string, env ...string) (*gatehouse, error) {
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	env = append([]string{
		"GATEHOUSE_LISTEN=" + addr, "GATEHOUSE_DATA_DIR=" + dir, "GATEHOUSE_ADMIN_PASSWORD=" + adminPassword,
		"GATEHOUSE_DEMO=true", "GATEHOUSE_RATE_LIMIT=none", "GATEHOUSE_DECISION_RATE_LIMIT=none", "GATEHOUSE_LOG_LEVEL=error",
	}, env...)
	p, err := start(ctx, "gatehouse", addr, "http://"+addr+"/health/ready", env, program, "server")
	if err != nil {
		return nil, err
	}
	g := &gatehouse{peer: p}
	var login struct {
		AccessToken string `json:"access_token"`
	}
	if err := g.call(ctx, "POST", "/auth/login", map[string]any{"username": "admin", "password": adminPassword}, &login); err != nil {
		p.stop()
		return nil, err
	}
	g.token = login.AccessToken
	return g, nil
}

// call sends a request to the API as the administrator. An answer over 299 is an error.
func (g *gatehouse) call(ctx context.Context, method, path string, body, out any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.addr+"/api/v1"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if g.token != "" {
		req.Header.Set("Authorization", "Bearer "+g.token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode > 299 {
		return fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, strings.TrimSpace(string(answer)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// seed registers the resources and activates the control, in production.
func (g *gatehouse) seed(ctx context.Context) ([]int64, error) {
	var ids []int64
	for i := range resourceCount {
		var made struct {
			ID int64 `json:"id"`
		}
		err := g.call(ctx, "POST", "/resources", map[string]any{
			"name": fmt.Sprintf("record %d", i), "type": "api", "path": fmt.Sprintf("/records/%d", i),
			"environment": "production", "attributes": resourceAttributes(i),
		}, &made)
		if err != nil {
			return nil, err
		}
		ids = append(ids, made.ID)
	}
	err := g.call(ctx, "POST", "/policies", map[string]any{
		"name": "bench", "rego_code": control, "environment": "production", "status": "active",
	}, nil)
	if err != nil {
		return nil, err
	}
	return ids, g.makeKey(ctx)
}

// makeKey creates the API key for decisions in production.
func (g *gatehouse) makeKey(ctx context.Context) error {
	var key struct {
		Key string `json:"key"`
	}
	err := g.call(ctx, "POST", "/developer-portal/api-keys/production/generate", map[string]any{
		"name": "bench", "scopes": []string{"decisions:read"},
	}, &key)
	g.key = key.Key
	return err
}

package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
)

// payrollControl is the example control. It shows all three outcomes in a few lines.
const payrollControl = `package payroll

# HR reads and changes everything. Staff may read, without salaries and social
# security numbers. Nobody else gets in.

default allow := false

allow if "hr" in input.user.roles

allow if {
	"staff" in input.user.roles
	input.action.method == "GET"
}

mask contains path if {
	not "hr" in input.user.roles
	some path in ["ssn", "salary", "*.ssn", "*.salary"]
}

reason := "only HR and staff may read payroll" if not allow
`

// object is a JSON object.
type object = map[string]any

func payrollTests() []object {
	test := func(name, role, method string, expected bool) object {
		return object{"name": name, "expected": expected, "input": object{
			"user":     object{"id": "someone", "roles": []string{role}},
			"resource": object{"type": "api", "path": "/employees/1"},
			"action":   object{"method": method},
		}}
	}
	return []object{
		test("HR may raise a salary", "hr", "POST", true),
		test("staff may read", "staff", "GET", true),
		test("staff may not change", "staff", "POST", false),
		test("a visitor may not read", "visitor", "GET", false),
	}
}

// devSeed creates the example through the API, as a user would, on the first start.
func devSeed(ctx context.Context, cfg Config, ports DevAddresses, password string) (devState, error) {
	path := filepath.Join(cfg.DataDir, devStateFile)
	state, seeded, err := readState(path)
	if err != nil || seeded {
		return state, err
	}
	c := seeder{url: cfg.url() + "/api/v1"}
	var login struct {
		AccessToken string `json:"access_token"`
	}
	c.post(ctx, "/auth/login", object{"username": "admin", "password": password}, &login)
	c.token = login.AccessToken
	c.send(ctx, http.MethodPut, "/environments/sandbox/enforcement", object{"mode": "enforce"}, nil)

	var resource, sandbox, production struct {
		ID    int64  `json:"id"`
		Token string `json:"token"`
	}
	c.post(ctx, "/resources", object{
		"name": "Payroll API", "type": "api", "path": "/employees/**", "methods": []string{"GET", "POST"},
		"description": "Salaries and personal data of employees", "environment": "sandbox",
		"attributes": object{"sensitivity": "high", "owner": "people team"},
	}, &resource)
	for _, at := range []struct {
		env, listen string
		into        any
	}{{"sandbox", ports.Sandbox, &sandbox}, {"production", ports.Production, &production}} {
		host, port, err := net.SplitHostPort(at.listen)
		if err != nil {
			return state, err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return state, fmt.Errorf("%s: %w", at.listen, err)
		}
		c.post(ctx, "/bouncers", object{
			"name": "payroll", "hostname": host, "port": number, "environment": at.env, "target_app": ports.Application,
			"configuration": object{"cache_enabled": true, "cache_ttl": "60s"},
		}, at.into)
	}
	c.post(ctx, "/policies", object{
		"name": "Payroll access", "description": "Who may read and change payroll", "rego_code": payrollControl,
		"environment": "sandbox", "status": "active", "resource_id": resource.ID, "bouncer_id": sandbox.ID, "test_cases": payrollTests(),
	}, nil)
	if c.err != nil {
		return state, fmt.Errorf("create the example: %w", c.err)
	}
	state = devState{SandboxToken: sandbox.Token, ProductionToken: production.Token}
	text, err := json.Marshal(state)
	if err != nil {
		return state, err
	}
	return state, os.WriteFile(path, text, 0o600)
}

// seeder calls the API and keeps the first error.
type seeder struct {
	url, token string
	err        error
}

func (c *seeder) post(ctx context.Context, path string, body, into any) {
	c.send(ctx, http.MethodPost, path, body, into)
}

func (c *seeder) send(ctx context.Context, method, path string, body, into any) {
	if c.err != nil {
		return
	}
	c.err = c.try(ctx, method, path, body, into)
}

func (c *seeder) try(ctx context.Context, method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return err
	}
	if res.StatusCode > 299 {
		return fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// proxyControl is the control that protects the application. It reads the identity, the method and
// the address.
const proxyControl = `package edge

import rego.v1

default allow := false

allow if {
	input.action.method in {"GET", "HEAD"}
	some role in input.user.roles
	role in {"staff", "admin"}
	net.cidr_contains("127.0.0.0/8", input.context.ip_address)
}

reason := "only staff may read" if not allow
`

// proxyTarget returns a proxy as a target: requests for different paths with header fields.
func proxyTarget(p *peer, head map[string]string) target {
	t := target{peer: p, name: p.name, requests: make([][]byte, 200), weight: 1}
	for i := range t.requests {
		t.requests[i] = get(p.addr, fmt.Sprintf("/items/%d", i), head)
	}
	return t
}

// cleanup stops what was started, in reverse order.
type cleanup []func()

func (c *cleanup) add(stop func()) { *c = append(*c, stop) }

func (c *cleanup) run() {
	for _, stop := range slices.Backward(*c) {
		stop()
	}
}

// staff is the identity that proxyControl permits.
var staff = map[string]string{"X-Auth-Request-User": "ada", "X-Auth-Request-Groups": "staff"}

// benchProxies measures our bouncer, with the control evaluated for each request and with its
// cache. It compares it with a bare reverse proxy and two gateways that ask for each request.
func benchProxies(ctx context.Context, o options, dir string) (string, error) {
	var stop cleanup
	defer stop.run()
	application, err := startOwn(ctx, "application", "")
	if err != nil {
		return "", err
	}
	stop.add(application.stop)
	bare, err := startOwn(ctx, "proxy", application.addr)
	if err != nil {
		return "", err
	}
	stop.add(bare.stop)
	bare.name = "bare httputil.ReverseProxy, decides nothing"
	bouncers, err := startBouncers(ctx, o, &stop, dir, application.addr)
	if err != nil {
		return "", err
	}
	gateways, err := startGateways(ctx, o, &stop, dir, application.addr)
	if err != nil {
		return "", err
	}
	rows, err := compareRates(ctx, o, slices.Concat([]target{proxyTarget(bare, staff)}, bouncers, gateways))
	var b strings.Builder
	b.WriteString("\n## In front of an application (1 KiB answer)\n\n| proxy | connections | requests/s | p50 ms | p99 ms | ratio to a bare ReverseProxy |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %.0f | %.2f | %.2f | %.2f |\n", r.name, r.conns, r.rps, ms(r.p50), ms(r.p99), r.ratio)
	}
	return b.String(), err
}

func answerKiB(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(kib)
}

var kib = []byte(`{"data":"` + strings.Repeat("x", 1012) + `"}`)

// ownServers are the servers that this program provides, by their role. upstream is the server that
// they call.
var ownServers = map[string]func(upstream string) http.Handler{
	"application": func(string) http.Handler { return http.HandlerFunc(answerKiB) },
	"proxy":       bareProxy,
	"adapter":     opaAdapter,
}

// startOwn runs one of ownServers in a process of its own, like all other servers. In the process of
// the load generator, the two would compete, and answers would not pass through the kernel.
func startOwn(ctx context.Context, role, upstream string) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	return startListening(ctx, role, addr, self, "-be", role, "-listen", addr, "-upstream", upstream)
}

// beServer is the process of one of ownServers.
func beServer(role, addr, upstream string) error {
	handler, ok := ownServers[role]
	if !ok {
		return fmt.Errorf("there is no server %q", role)
	}
	s := &http.Server{Addr: addr, Handler: handler(upstream), ReadHeaderTimeout: 10 * time.Second}
	return s.ListenAndServe()
}

func bareProxy(upstream string) http.Handler {
	target := &url.URL{Scheme: "http", Host: upstream}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	return &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
	}}
}

func serve(h http.Handler) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }()
	return l.Addr().String(), func() { _ = s.Close() }, nil
}

// startBouncers runs a server that enforces the control in production, and the bouncers in front of
// the application.
func startBouncers(ctx context.Context, o options, stop *cleanup, dir, upstream string) (targets []target, err error) {
	g, err := startGatehouse(ctx, o.gatehouse, filepath.Join(dir, "server"))
	if err != nil {
		return nil, err
	}
	stop.add(g.stop)
	for _, env := range []string{"sandbox", "production"} {
		if err := g.call(ctx, "PUT", "/environments/"+env+"/enforcement", map[string]any{"mode": "enforce"}, nil); err != nil {
			return nil, err
		}
	}
	if err := g.call(ctx, "POST", "/policies", map[string]any{
		"name": "edge", "rego_code": proxyControl, "environment": "production", "status": "active",
	}, nil); err != nil {
		return nil, err
	}
	for i, b := range bouncers {
		p, err := startBouncer(ctx, o, g, filepath.Join(dir, fmt.Sprintf("bouncer-%d", i)), upstream, b)
		if err != nil {
			return nil, err
		}
		stop.add(p.stop)
		head := staff
		if b.mode == "shadow" {
			head = map[string]string{"X-Auth-Request-User": "eve", "X-Auth-Request-Groups": "visitor"}
		}
		targets = append(targets, proxyTarget(p, head))
	}
	return targets, nil
}

// bouncer is the setup of one of our bouncers.
type bouncer struct {
	name  string
	cache bool
	mode  string
}

// bouncers are the bouncers that are measured. The requests to the one in shadow mode would be
// denied.
var bouncers = []bouncer{
	{"gatehouse bouncer, control evaluated each time", false, "enforce"},
	{"gatehouse bouncer, decision cache", true, "enforce"},
	{"gatehouse bouncer, shadow mode, would deny each time", false, "shadow"},
}

func startBouncer(ctx context.Context, o options, g *gatehouse, dir, upstream string, b bouncer) (*peer, error) {
	var made struct {
		Token string `json:"token"`
	}
	configuration := map[string]any{"cache_enabled": b.cache, "cache_ttl": "60s"}
	if b.mode == "shadow" {
		configuration["enforcement_mode"] = b.mode
	}
	if err := g.call(ctx, "POST", "/bouncers", map[string]any{
		"name": b.name, "hostname": "127.0.0.1", "port": 8081, "environment": "production", "target_app": upstream,
		"configuration": configuration,
	}, &made); err != nil {
		return nil, err
	}
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	env := []string{
		"GATEHOUSE_URL=http://" + g.addr, "GATEHOUSE_BOUNCER_TOKEN=" + made.Token, "GATEHOUSE_BOUNCER_LISTEN=" + addr,
		"GATEHOUSE_BOUNCER_UPSTREAM=http://" + upstream, "GATEHOUSE_BOUNCER_TRUSTED_PROXIES=127.0.0.0/8",
		"GATEHOUSE_BOUNCER_DATA_DIR=" + dir,
	}
	return start(ctx, b.name, addr, "http://"+addr+"/_bouncer/ready", env, o.gatehouse, "bouncer")
}

// startGateways runs nginx and Caddy, as far as they are installed. For each request, they ask a
// stock OPA, through the smallest possible adapter.
func startGateways(ctx context.Context, o options, stop *cleanup, dir, upstream string) (targets []target, err error) {
	policy := filepath.Join(dir, "edge.rego")
	if err := os.WriteFile(policy, []byte(proxyControl), 0o600); err != nil {
		return nil, err
	}
	opaAddr, err := freePort()
	if err != nil {
		return nil, err
	}
	opa, err := start(ctx, "OPA", opaAddr, "http://"+opaAddr+"/health", nil, o.opa, "run", "--server", "--addr", opaAddr, "--log-level", "error", "--disable-telemetry", policy)
	if err != nil {
		return nil, err
	}
	stop.add(opa.stop)
	adapter, err := startOwn(ctx, "adapter", opaAddr)
	if err != nil {
		return nil, err
	}
	stop.add(adapter.stop)
	for _, gw := range []struct {
		name, program string
		run           func(context.Context, string, string, string, string) (*peer, error)
	}{{"nginx, auth_request to a stock OPA", o.nginx, startNginx}, {"Caddy, forward_auth to a stock OPA", o.caddy, startCaddy}} {
		if !found(gw.program) {
			fmt.Println("not measured, the program is not installed:", gw.name)
			continue
		}
		p, err := gw.run(ctx, gw.program, dir, adapter.addr, upstream)
		if err != nil {
			return nil, err
		}
		stop.add(p.stop)
		p.name = gw.name
		targets = append(targets, proxyTarget(p, staff))
	}
	return targets, nil
}

// opaAdapter asks OPA for a gateway, because OPA answers 200 for both a permit and a denial.
func opaAdapter(opa string) http.Handler {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		input, _ := json.Marshal(map[string]any{"input": map[string]any{
			"user":    map[string]any{"id": r.Header.Get("X-Auth-Request-User"), "roles": strings.Split(r.Header.Get("X-Auth-Request-Groups"), ",")},
			"action":  map[string]any{"method": "GET"},
			"context": map[string]any{"ip_address": "127.0.0.1"},
		}})
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://"+opa+"/v1/data/edge/allow", strings.NewReader(string(input)))
		if err != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		res, err := client.Do(req)
		if err != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		defer res.Body.Close()
		var answer struct {
			Result bool `json:"result"`
		}
		if json.NewDecoder(res.Body).Decode(&answer) != nil || !answer.Result {
			w.WriteHeader(http.StatusForbidden)
		}
	})
}

func startNginx(ctx context.Context, program, dir, adapter, upstream string) (*peer, error) {
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; pid %[1]s/nginx.pid; error_log %[1]s/nginx.log; worker_processes 2;
events { worker_connections 1024; }
http {
  access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  upstream app { server %[2]s; keepalive 128; }
  upstream auth { server %[3]s; keepalive 128; }
  server {
    listen %[4]s; keepalive_requests 100000000;
    location / { auth_request /_auth; proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }
    location = /_auth { internal; proxy_pass http://auth; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_pass_request_body off; proxy_set_header Content-Length ""; }
  }
}`, dir, upstream, adapter, addr)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return startListening(ctx, "nginx", addr, program, "-c", conf, "-e", filepath.Join(dir, "nginx.log"))
}

func startCaddy(ctx context.Context, program, dir, adapter, upstream string) (*peer, error) {
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "Caddyfile")
	text := fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n\tlog {\n\t\tlevel ERROR\n\t}\n}\nhttp://%s {\n\tforward_auth %s {\n\t\turi /\n\t}\n\treverse_proxy %s\n}\n", addr, adapter, upstream)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return startListening(ctx, "Caddy", addr, program, "run", "--config", conf, "--adapter", "caddyfile")
}

// startListening starts a server and waits until it accepts connections. The measurement checks its
// answers.
func startListening(ctx context.Context, name, addr, program string, args ...string) (*peer, error) {
	front, stop, err := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_ = conn.Close()
	}))
	if err != nil {
		return nil, err
	}
	defer stop()
	return start(ctx, name, addr, "http://"+front, nil, program, args...)
}

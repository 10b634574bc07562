package gateways_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// asEnvoy returns a client of the library of Envoy's project.
func asEnvoy(t testing.TB, addr string) authv3.AuthorizationClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	errtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return authv3.NewAuthorizationClient(conn)
}

// holding returns a request for a check, in Envoy's form.
func holding(method, path, token string, extensions map[string]string) *authv3.CheckRequest {
	headers := map[string]string{":authority": "shop.example", ":method": method, ":path": path, ":scheme": "https"}
	if token != "" {
		headers["authorization"] = "Bearer " + token
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: "203.0.113.9", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 4711}},
		}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Id: "envoy-1", Method: method, Path: path, Host: "shop.example", Scheme: "https", Protocol: "HTTP/2", Headers: headers, Size: -1,
		}},
		ContextExtensions: extensions,
	}}
}

// TestExtAuthz sends Envoy's checks to a bouncer: the answers follow the controls, the log has the
// decisions, and changes of a control or of the mode apply. After a restart without its server the
// bouncer still decides.
func TestExtAuthz(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, is := s.Admin, apptest.NewIssuer(t)
	id := a.Do(t, "POST", "/resources", body{"name": "Pinned", "type": "api", "path": "/pinned", "environment": "sandbox"}).Want(201).ID()
	policy := apptest.Activate(t, a, "administrators", "sandbox", `package admin

default allow := false

allow if not startswith(input.resource.path, "/admin")

allow if "admin" in input.user.roles

reason := "administrators only" if not allow
`, nil)
	apptest.Activate(t, a, "pinned", "sandbox", "package closed\n\nallow := false\n\nreason := \"closed\"\n", body{"resource_id": id})
	addr := freeport.Addr(t)
	b := s.Bouncer(t, a, body{"name": "envoy", "environment": "sandbox", "resource_ids": []int64{id}, "configuration": body{"identity": is.Identity()}}, "127.0.0.1:9",
		"GATEHOUSE_BOUNCER_GRPC_LISTEN="+addr)
	envoy := asEnvoy(t, addr)
	check := func(req *authv3.CheckRequest) (status uint32, answer *authv3.CheckResponse, meta map[string]any) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		answer, err := envoy.Check(ctx, req)
		errtest.Must(t, err)
		if err := answer.ValidateAll(); err != nil {
			t.Errorf("the answer is not valid for Envoy: %v", err)
		}
		status = 200
		if answer.GetStatus().GetCode() != int32(codes.OK) {
			status = uint32(answer.GetDeniedResponse().GetStatus().GetCode())
		}
		return status, answer, answer.GetDynamicMetadata().AsMap()
	}
	if status, _, meta := check(holding("GET", "/admin", "", nil)); status != 200 || meta["decision"] != "SHADOW_WOULD_DENY" || meta["policy_id"] != float64(policy) {
		t.Errorf("the check in shadow mode = %d %v, want 200 with SHADOW_WOULD_DENY and the control", status, meta)
	}
	apptest.Enforce(t, a, "sandbox")
	apptest.Eventually(t, 10*time.Second, func() error {
		if status, _, meta := check(holding("GET", "/admin", "", nil)); status != 401 {
			return fmt.Errorf("the check still has the metadata %v, want it enforced", meta)
		}
		return nil
	})
	said := map[string]string{} // decisions, and what the log must say of them
	for _, c := range []struct {
		what, path, token string
		extensions        map[string]string
		status            uint32
		decision          string
	}{
		{"open", "/orders?x=1", "", nil, 200, "PERMIT"},
		{"denied", "/admin", "", nil, 401, "DENY"},
		{"an administrator", "/admin", is.Token(t, "ann", "admin"), nil, 200, "PERMIT"},
		{"no administrator", "/admin", is.Token(t, "ben", "staff"), nil, 403, "DENY"},
		{"a bad token", "/orders", "bad", nil, 401, "DENY"},
		{"the route's resource", "/orders", "", map[string]string{"resource": fmt.Sprint(id), "bouncer": "envoy"}, 403, "DENY"},
		{"this bouncer", "/orders", "", map[string]string{"bouncer": fmt.Sprint(b.ID)}, 200, "PERMIT"},
	} {
		status, answer, meta := check(holding("GET", c.path, c.token, c.extensions))
		if status != c.status || meta["decision"] != c.decision {
			t.Errorf("%s: the check = %d %v, want %d %v", c.what, status, meta, c.status, c.decision)
		}
		said[fmt.Sprint(meta["decision_id"])] = c.decision
		if c.status == 200 {
			continue
		}
		var no struct{ Error, Message string }
		if err := json.Unmarshal([]byte(answer.GetDeniedResponse().GetBody()), &no); err != nil || no.Error == "" || c.what == "denied" && no.Message != "administrators only" {
			t.Errorf("%s: the client gets %q, want the refusal", c.what, answer.GetDeniedResponse().GetBody())
		}
	}
	for path, code := range map[string]string{"/x/../admin": "bad_request", "/a%2fadmin": "bad_request"} {
		if status, _, meta := check(holding("GET", path, "", nil)); status != 400 || meta["status"] != code {
			t.Errorf("the check of %s = %d %v, want 400 %s", path, status, meta, code)
		}
	}
	if status, _, meta := check(holding("GET", "/orders", "", map[string]string{"bouncer": "another"})); status != 403 || meta["status"] != "wrong_bouncer" {
		t.Errorf("the check of another bouncer = %d %v, want 403 wrong_bouncer", status, meta)
	}
	apptest.Eventually(t, 10*time.Second, func() error {
		log := map[string]apptest.LogEntry{}
		for _, e := range apptest.DecisionLog(t, a, "sandbox") {
			log[e.ID] = e
		}
		for decision, word := range said {
			if e := log[decision]; e.BouncerID != b.ID || e.Decision != word {
				return fmt.Errorf("the decision log has %s as %+v, want %s of this bouncer", decision, e, word)
			}
		}
		return nil
	})
	flavour := &apptest.Client{Base: b.URL + "/_bouncer/ext_authz"}
	flavour.Do(t, "PUT", "/orders/7", nil).Want(200)
	flavour.With("Authorization", "Bearer "+is.Token(t, "ben", "staff")).Do(t, "DELETE", "/admin/7", nil).Want(403)
	(&apptest.Client{Base: fmt.Sprint(b.URL, "/_bouncer/ext_authz_for/", id)}).Do(t, "GET", "/orders", nil).Want(403)

	second := freeport.Addr(t)
	twin := &apptest.BouncerProcess{ID: b.ID, Token: b.Token}
	twin.StartDetached(t, s.URL, "127.0.0.1:9", "GATEHOUSE_BOUNCER_GRPC_LISTEN="+second)
	first := envoy
	envoy = asEnvoy(t, second)
	apptest.Eventually(t, 10*time.Second, func() error {
		if status, _, meta := check(holding("GET", "/orders", "", nil)); status != 200 {
			return fmt.Errorf("a replica with the same token has the metadata %v, want the decision", meta)
		}
		return nil
	})
	envoy = first

	s.Kill()
	b.Kill()
	b.Start()
	if status, _, meta := check(holding("GET", "/admin", "", nil)); status != 401 || meta["decision_id"] == "" {
		t.Errorf("the check after a restart without the server = %d %v, want 401 with a decision", status, meta)
	}
	if !strings.Contains(b.Log.String(), "ext_authz") {
		t.Errorf("the log does not name ext_authz: %s", b.Log)
	}
}

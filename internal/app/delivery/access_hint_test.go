package delivery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// TestRequestAccessInEachAnswer checks that each API for decisions shows how to request access if the
// control allows that, and not if it does not.
func TestRequestAccessInEachAnswer(t *testing.T) {
	apptest.Each(t, requestAccessInEachAnswer)
}

func requestAccessInEachAnswer(t *testing.T, s *apptest.Server) {
	resource := func(name, source string) int64 {
		id := s.Admin.Do(t, "POST", "/resources", body{"name": name, "type": "api", "path": "/" + name, "environment": "sandbox"}).Want(201).ID()
		apptest.Activate(t, s.Admin, name, "sandbox", source, body{"resource_id": id})
		return id
	}
	open := resource("vault", "# METADATA\n# custom:\n#   request_access: true\npackage vault\n\nallow if data.grants[input.user.id]\n")
	shut := resource("safe", "package safe\n\nallow if data.grants[input.user.id]\n")
	apptest.Enforce(t, s.Admin, "sandbox")
	stock := apptest.StartOPA(t, s, body{"name": "opa", "environment": "sandbox", "resource_ids": []int64{open, shut}})
	stock.WaitForDecision(t, 3*time.Minute, "ada", "DENY")
	key := s.Key(t, s.Admin, "sandbox", "decisions:read")
	app, _ := apptest.Application(t)
	grpcAddr := freeport.Addr(t)
	b := s.Bouncer(t, s.Admin, body{
		"name": "b", "environment": "sandbox", "resource_ids": []int64{open, shut}, "configuration": body{"identity": body{"forward_auth_headers": true}},
	}, app, "GATEHOUSE_BOUNCER_GRPC_LISTEN="+grpcAddr)
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	errtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	envoy := authv3.NewAuthorizationClient(conn)
	hints := func(name string, id int64) map[string]any {
		ask := body{"user": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": id}}
		az := body{"subject": body{"type": "user", "id": "ada"}, "action": body{"name": "read"}, "resource": body{"type": "api", "id": fmt.Sprint(id)}}
		forward := b.As("ada", "").With("X-Forwarded-Method", "GET").With("X-Forwarded-Host", "app.test").With("X-Forwarded-Uri", "/"+name)
		return map[string]any{
			"evaluate":     key.Do(t, "POST", "/decisions/evaluate?environment=sandbox", ask).Want(200).Get("request_access"),
			"bulk":         key.Do(t, "POST", "/decisions/evaluate/bulk?environment=sandbox", body{"decisions": []body{ask}}).Want(200).Get("results", "0", "request_access"),
			"AuthZEN":      root(key).Do(t, "POST", "/access/v1/evaluation?environment=sandbox", az).Want(200).Get("context", "request_access"),
			"evaluations":  root(key).Do(t, "POST", "/access/v1/evaluations?environment=sandbox", body{"evaluations": []body{az}}).Want(200).Get("evaluations", "0", "context", "request_access"),
			"OPA's API":    root(key).Do(t, "POST", "/v1/data/gatehouse/decision?environment=sandbox", body{"input": ask}).Want(200).Get("result", "request_access"),
			"a stock OPA":  stock.Do(t, "POST", "/v1/data/gatehouse/decision", body{"input": ask}).Want(200).Get("result", "request_access"),
			"bouncer":      b.As("ada", "").Do(t, "GET", "/"+name, nil).Want(403).Get("request_access"),
			"forward-auth": forward.Do(t, "GET", "/_bouncer/auth", nil).Want(403).Get("request_access"),
			"ext_authz":    envoyRefusal(t, envoy, "/"+name)["request_access"],
		}
	}
	apptest.WaitForStatus(t, b.As("ada", ""), "/vault", 403, 20*time.Second)
	apptest.WaitForStatus(t, b.As("ada", ""), "/safe", 403, 20*time.Second)
	want := fmt.Sprintf(`{"action":{"name":"read"},"resource":{"id":"%d"},"subject":{"id":"ada"}}`, open)
	for how, hint := range hints("vault", open) {
		if got, err := json.Marshal(hint); err != nil || string(got) != want {
			t.Errorf("%s: request_access = %s (%v), want %s", how, got, err, want)
		}
	}
	for how, hint := range hints("safe", shut) {
		if hint != nil {
			t.Errorf("%s: request_access = %v, want none", how, hint)
		}
	}
	ask := body{"subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": "safe"}, "reason": "x"}
	root(key).Do(t, "POST", requests+"?environment=sandbox", ask).WantError(403, "not_requestable")
	hint, _ := hints("vault", open)["bouncer"].(map[string]any)
	if hint["reason"] = "the audit of May"; len(hint) != 4 {
		t.Fatalf("the bouncer's request_access is %v, want 3 members", hint)
	}
	id := root(key).Do(t, "POST", requests+"?environment=sandbox", hint).Want(201).ID()
	root(s.Admin).Do(t, "POST", fmt.Sprintf("%s/%d/approve", requests, id), body{"duration_seconds": 3600}).Want(200)
	apptest.WaitForStatus(t, b.As("ada", ""), "/vault", 200, 20*time.Second)
	granted := key.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": open}})
	if granted.Want(200).Get("request_access") != nil || granted.Get("decision") != "PERMIT" {
		t.Errorf("the decision with a grant = %s, want PERMIT without request_access", granted.Body)
	}
}

// envoyRefusal returns the body of Envoy's refusal for ada.
func envoyRefusal(t *testing.T, envoy authv3.AuthorizationClient, path string) map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	answer, err := envoy.Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: "GET", Path: path, Host: "app.test", Scheme: "https", Headers: map[string]string{"x-auth-request-user": "ada"},
		}},
	}})
	errtest.Must(t, err)
	no := answer.GetDeniedResponse()
	var doc map[string]any
	if err := json.Unmarshal([]byte(no.GetBody()), &doc); err != nil || no.GetStatus().GetCode() != 403 {
		t.Errorf("the answer to Envoy = %v %q (%v), want 403 with JSON", no.GetStatus(), no.GetBody(), err)
	}
	return doc
}

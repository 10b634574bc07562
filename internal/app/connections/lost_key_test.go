package connections_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// startWithAnotherKey stops a server, and starts another one on its store with an encryption key that
// opens nothing. The keys that sign tokens are deleted, because no server starts without them.
func startWithAnotherKey(t *testing.T, s *apptest.Server) *apptest.Server {
	t.Helper()
	s.Stop()
	ctx := context.Background()
	stores, err := db.Open(ctx, db.Config{URL: s.DatabaseURL(), Dir: s.Dir})
	errtest.Must(t, err)
	err = stores.System().Write(ctx, func(tx *db.Tx) error { return errtest.Of(tx.Exec(ctx, `DELETE FROM signing_keys`)) })
	stores.Close()
	errtest.Must(t, err)
	return apptest.StartServerOn(t, s.Dir, s.DatabaseURL(), "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8", encryptionKey("C"))
}

// checkRotatedAlone rotates a webhook's secret that does not open. Only the new one signs.
func (r *rotation) checkRotatedAlone(t *testing.T, a *apptest.Client) {
	t.Helper()
	secret := a.Do(t, "POST", r.webhook+"/rotate-secret", body{}).Want(200).Text("secret")
	before := len(r.calls.received())
	a.Do(t, "POST", r.webhook+"/test", body{"event_type": "resource.created"}).Want(200)
	for _, c := range r.calls.received()[before:] {
		if signature := c.Header.Get("X-Service-Signature"); outbound.SignatureValid([]byte(secret), []byte(c.Raw), signature) {
			return
		}
	}
	t.Error("after the rotation of a secret that does not open, the new one signs nothing")
}

// TestLostEncryptionKey: if the encryption key is lost for good, every record with a secret can still be
// read and listed, and a PUT that brings the secret again repairs it. A PUT without it asks for it,
// unless the change does not touch it.
func TestLostEncryptionKey(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		r := newRotation(t, s)
		s = startWithAnotherKey(t, s)
		a := s.Admin
		r.checkRotatedAlone(t, a)
		tenant := "/tenants/" + string(scope.DefaultTenant)
		credentials := fmt.Sprintf("/bouncers/%d/credentials", r.bouncer)
		certificate, key := apptest.NewCA(t).Issue(t, 240*time.Hour, "shop.acme.test")
		for _, k := range []struct {
			name, path, list string
			without, with    body
			pointer          string // of the secret that a PUT without it asks for; "": the PUT needs none
		}{
			{"webhook", r.webhook, "/webhooks", body{"name": "every"}, body{"secret": r.webhookSecret}, ""},
			{"channel", r.channel, "/notifications/channels", body{"severity_threshold": "error"}, body{"credential": body{"bearer_token": "token-of-the-channel"}}, "/credential"},
			{"integration", r.siem, "/integrations", body{"name": "the siem"}, body{"credential": "token-of-the-siem"}, "/credential"},
			{"data source", r.source, "/pip/connections", body{"sync_enabled": false}, body{"credentials": newDirectory(t, nil).draft("x")["credentials"]}, "/credentials"},
			{"credentials of a bouncer", credentials, "/bouncers", body{"credentials": []body{{"header": "X-Api-Key"}}}, body{"credentials": []body{{"header": "X-Api-Key", "value": "key-of-the-application"}}}, "/credentials/0/value"},
			{"license server", "/telemetry/config", "/telemetry/config", body{"local_retention_days": 30}, body{"api_key": licenseKey}, ""},
			{"sign-on", tenant + "/sign-on", tenant + "/sign-on", body{"create_users": true}, body{"client_secret": "secret-of-the-client"}, ""},
			{"payment", tenant + "/billing", tenant + "/billing", body{"billing_address": nil}, body{"payment_method": "pm_token"}, ""},
			{"repository", r.repository, "/ide-integration/repositories", body{"branch": "main"}, body{"secret": repositorySecret, "access_token": "token-of-the-repository", "branch": nil}, ""},
			{"certificate", tenant + "/domains/shop.acme.test", tenant + "/domains", body{"hsts_max_age": 1}, body{"ssl_certificate": certificate, "ssl_private_key": key}, ""},
		} {
			t.Run(k.name, func(t *testing.T) {
				a.Do(t, "GET", k.path, nil).Want(200)
				a.Do(t, "GET", k.list, nil).Want(200)
				res := a.Do(t, "PUT", k.path, k.without)
				if k.pointer == "" {
					res.Want(200)
				} else if res.Want(422); res.Text("error") != "credential_required" || res.Text("details", "0", "pointer") != k.pointer {
					t.Errorf("a PUT without the secret = %s, want credential_required at %s", res.Body, k.pointer)
				}
				a.Do(t, "PUT", k.path, k.with).Want(200)
				a.Do(t, "PUT", k.path, k.without).Want(200)
				a.Do(t, "PUT", k.path, k.with).Want(200)
				a.Do(t, "GET", k.path, nil).Want(200)
			})
		}
		r.checkSent(t, s, "repaired")

		// An administrator resets second factors. What remains are the keys for bundles and masks.
		ann := a.Do(t, "GET", "/users?search=ann", nil).Want(200).Text("users", "0", "id")
		a.Do(t, "DELETE", "/users/"+ann+"/second-factor", nil).Want(200, 204)
		s.Login(t, "ann", apptest.Password)
		s.Stop()
		s = apptest.StartServerOn(t, s.Dir, s.DatabaseURL(), encryptionKey("C"))
		apptest.Eventually(t, time.Minute, func() error {
			if n := gauge(t, s, "gatehouse_secrets_unreadable"); n != "2" {
				return fmt.Errorf("%q secrets are unreadable, want 2\n%s", n, s.Log)
			}
			return nil
		})
	}, encryptionKey("A"))
}

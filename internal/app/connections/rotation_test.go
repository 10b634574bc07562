package connections_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/totptest"
)

// encryptionKey returns the setting with keys that are made of one letter each.
func encryptionKey(letters ...string) string {
	var keys []string
	for _, l := range letters {
		keys = append(keys, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(l, 32))))
	}
	return "NOTIFICATION_ENCRYPTION_KEY=" + strings.Join(keys, ",")
}

// gauge returns the value of a gauge on /metrics; "" if it is absent.
func gauge(t *testing.T, s *apptest.Server, name string) string {
	t.Helper()
	for line := range strings.Lines(string((&apptest.Client{Base: s.URL, Bearer: s.Admin.Bearer}).Do(t, "GET", "/metrics", nil).Want(200).Body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// waitForRotation waits until the server knows that no secret is under an old key, and that all can be
// read.
func waitForRotation(t *testing.T, s *apptest.Server) {
	t.Helper()
	apptest.Eventually(t, time.Minute, func() error {
		if old, unreadable := gauge(t, s, "gatehouse_secrets_under_old_keys"), gauge(t, s, "gatehouse_secrets_unreadable"); old != "0" || unreadable != "0" {
			return fmt.Errorf("%q secrets are under old keys and %q are unreadable, want none\n%s", old, unreadable, s.Log)
		}
		return nil
	})
}

// sealedColumns are the columns that TestEncryptionKeyRotation fills. The settings hold the sealed
// token of the payment method in JSON. Certificates and accounts of an ACME server are tested in
// package domain.
var sealedColumns = map[string][]string{
	"": {"signing_keys.sealed"},
	string(scope.DefaultTenant): {
		"webhooks.secret", "webhooks.previous_secret", "notification_channels.credential", "pip_connections.credentials", "integrations.credential", "telemetry.api_key",
		"sign_on.sealed_secret", "user_factors.sealed", "ide_repositories.secret", "ide_repositories.access_token", "domains.sealed_key", "bouncer_credentials.sealed",
		"bridge_keys.sealed", "mask_keys.sealed", "settings.value",
	},
}

// storedSecrets reads the sealed columns of a server that has stopped.
func storedSecrets(t *testing.T, s *apptest.Server) map[string][]byte {
	t.Helper()
	ctx := context.Background()
	stores, err := db.Open(ctx, db.Config{URL: s.DatabaseURL(), Dir: s.Dir})
	errtest.Must(t, err)
	defer stores.Close()
	out := map[string][]byte{}
	for tenant, columns := range sealedColumns {
		store := stores.System()
		if tenant != "" {
			if store, err = stores.Tenant(ctx, scope.TenantID(tenant)); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range columns {
			table, column, _ := strings.Cut(c, ".")
			query := "SELECT " + column + " FROM " + table
			if table == "settings" {
				query += " WHERE value LIKE '%\"payment\"%'"
			}
			err := store.Read(ctx, func(tx *db.Tx) error {
				for row, err := range db.Values(ctx, tx, query) {
					if err != nil {
						return err
					}
					value, _ := row[0].([]byte)
					if text, ok := row[0].(string); ok {
						value = []byte(text)
					}
					out[c] = append(out[c], value...)
				}
				return nil
			})
			if err != nil || len(out[c]) == 0 {
				t.Errorf("%s has %d bytes, error %v, want a secret", c, len(out[c]), err)
			}
		}
	}
	return out
}

// secretProvider is an identity provider that notes the client secrets that it gets, and accepts none.
type secretProvider struct {
	*httptest.Server
	secrets chan string
}

func newSecretProvider(t *testing.T) *secretProvider {
	p := &secretProvider{secrets: make(chan string, 10)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/token" {
			_, secret, _ := req.BasicAuth()
			p.secrets <- secret
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(body{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"response_types_supported": []string{"code"}, "id_token_signing_alg_values_supported": []string{"RS256"}, "subject_types_supported": []string{"public"},
			"code_challenge_methods_supported": []string{"S256"},
		})
	}))
	t.Cleanup(p.Close)
	return p
}

// signIn brings a browser to the provider and back. It returns the client secret that the provider
// got.
func (p *secretProvider) signIn(t *testing.T, s *apptest.Server) string {
	t.Helper()
	begun := s.Anonymous().Do(t, "GET", "/auth/sso/login?tenant_id="+string(scope.DefaultTenant)+"&return_to=/", nil).Want(302)
	cookies := apptest.Cookies{}
	cookies.Keep(begun.Header)
	at, err := url.Parse(begun.Header.Get("Location"))
	errtest.Must(t, err)
	back := url.Values{"code": {"any"}, "state": at.Query()["state"]}
	res := s.Anonymous().With("Cookie", cookies.String()).With("Sec-Fetch-Site", "cross-site").Do(t, "GET", "/auth/sso/callback?"+back.Encode(), nil)
	select {
	case secret := <-p.secrets:
		return secret
	default:
		t.Fatalf("the provider was not asked; the callback = %d %s", res.Status, res.Body)
		return ""
	}
}

// rotation is what TestEncryptionKeyRotation creates: one secret of each kind.
type rotation struct {
	calls                                   *receiver
	provider                                *secretProvider
	webhook, channel, source, siem, hook    string
	repository                              string
	webhookSecret, previousSecret           string
	bouncer                                 int64
	bouncerToken                            string
	user                                    *totptest.Next
	session                                 string
	bundleKey, maskKey, maskHash, verifyKey string
}

const repositorySecret = "a-secret-of-the-repository-4711"

func newRotation(t *testing.T, s *apptest.Server) *rotation {
	t.Helper()
	a, r := s.Admin, &rotation{calls: newReceiver(t), session: s.Admin.Bearer}
	made := a.Do(t, "POST", "/webhooks", body{"name": "all", "url": r.calls.URL + "/webhook", "events": []string{"resource.created"}}).Want(201)
	r.webhook, r.previousSecret = fmt.Sprint("/webhooks/", made.ID()), made.Text("secret")
	r.webhookSecret = a.Do(t, "POST", r.webhook+"/rotate-secret", body{}).Want(200).Text("secret")
	r.channel = fmt.Sprint("/notifications/channels/", a.Do(t, "POST", "/notifications/channels", body{
		"name": "on call", "type": "webhook", "endpoint": r.calls.URL + "/channel", "credential": body{"bearer_token": "token-of-the-channel"},
	}).Want(201).ID())
	d := newDirectory(t, map[string]int{"ada": 7})
	r.source = fmt.Sprint("/pip/connections/", a.Do(t, "POST", "/pip/connections", d.draft("hr")).Want(201).ID())
	r.siem = fmt.Sprint("/integrations/", a.Do(t, "POST", "/integrations", body{
		"name": "siem", "kind": "siem_forwarder", "endpoint": r.calls.URL + "/siem", "credential": "token-of-the-siem",
	}).Want(201).ID())
	a.Do(t, "PUT", "/telemetry/config", body{"business_admin_url": newLicenseServer(t).URL, "api_key": licenseKey, "enabled": false}).Want(200)
	r.provider = newSecretProvider(t)
	tenant := "/tenants/" + string(scope.DefaultTenant)
	a.Do(t, "PUT", tenant+"/sign-on", body{"issuer": r.provider.URL, "client_id": "client", "client_secret": "secret-of-the-client"}).Want(200)
	a.Do(t, "PUT", tenant+"/billing", body{"payment_method": "pm_token"}).Want(200)
	certificate, key := apptest.NewCA(t).Issue(t, 240*time.Hour, "shop.acme.test")
	a.Do(t, "POST", tenant+"/domains", body{"domain": "shop.acme.test", "ssl_certificate": certificate, "ssl_private_key": key}).Want(201)

	a.Do(t, "POST", "/users", body{"username": "ann", "email": "ann@acme.example", "password": apptest.Password, "roles": []string{"viewer"}}).Want(200, 201)
	ann := s.Login(t, "ann", apptest.Password)
	r.user = &totptest.Next{Secret: ann.Do(t, "POST", "/auth/second-factor", body{"password": apptest.Password}).Want(200).Text("secret"), Now: time.Now}
	ann.Do(t, "POST", "/auth/second-factor/confirm", body{"code": r.user.Code(t)}).Want(200)

	repository := a.Do(t, "POST", "/ide-integration/repositories", body{
		"name": "controls", "url": "https://git.example.com/controls.git", "secret": repositorySecret, "access_token": "token-of-the-repository",
	}).Want(201)
	r.repository = fmt.Sprint("/ide-integration/repositories/", repository.ID())
	_, query, _ := strings.Cut(repository.Text("webhook_url"), "?")
	r.hook = "/ide-integration/webhook?" + query

	edge := a.Do(t, "POST", "/bouncers", body{"name": "edge", "hostname": "edge.example", "port": 8443, "environment": "sandbox", "configuration": body{"signing": "signed"}}).Want(201)
	r.bouncer, r.bouncerToken, r.verifyKey = edge.ID(), edge.Text("token"), edge.Text("verify_key")
	a.Do(t, "PUT", fmt.Sprintf("/bouncers/%d/credentials", r.bouncer), body{"credentials": []body{{"header": "X-Api-Key", "value": "key-of-the-application"}}}).Want(200)
	r.bundleKey, r.maskKey, r.maskHash = r.bundle(t, s)
	return r
}

// bundle returns the name of the key that signs the bouncer's bundle, and the name of the key for
// masks with what it makes of a value.
func (r *rotation) bundle(t *testing.T, s *apptest.Server) (signer, mask, hash string) {
	t.Helper()
	text := apptest.Unpacked(t, s.WithToken(r.bouncerToken).Do(t, "GET", fmt.Sprint("/bridge/bundles/", r.bouncer), nil).Want(200).Body)
	var signatures struct {
		Signatures []string `json:"signatures"`
	}
	var manifest struct {
		Metadata struct {
			Bouncer json.RawMessage             `json:"bouncer"`
			MaskKey struct{ ID, Sealed string } `json:"mask_key"`
		} `json:"metadata"`
	}
	var header struct {
		Kid string `json:"kid"`
	}
	for name, into := range map[string]any{".signatures.json": &signatures, ".manifest": &manifest} {
		_, rest, found := strings.Cut(text, name+"\n")
		if !found {
			t.Fatalf("the bundle has no %s", name)
		}
		if err := json.NewDecoder(strings.NewReader(rest)).Decode(into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.SplitN(signatures.Signatures[0], ".", 2)[0])
	if err != nil || json.Unmarshal(raw, &header) != nil || header.Kid == "" {
		t.Fatalf("the signature has the header %s", raw)
	}
	m := manifest.Metadata.MaskKey
	key, err := masking.OpenHashKey(m.Sealed, r.bouncerToken, masking.KeyPlace(string(scope.DefaultTenant), m.ID))
	if err != nil {
		t.Fatalf("the mask key %+v does not open: %v", m, err)
	}
	return header.Kid, m.ID, key.Hash([]byte("alice"))
}

// check uses each secret once.
func (r *rotation) check(t *testing.T, s *apptest.Server, step string) {
	t.Helper()
	old := s.WithToken(r.session) // signed by the key that is stored since the start
	old.Do(t, "GET", "/auth/me", nil).Want(200)
	if step != "a" { // a fourth code within the same minute would have to wait
		s.Anonymous().Do(t, "POST", "/auth/login", body{"username": "ann", "password": apptest.Password, "code": r.user.Code(t)}).Want(200)
	}
	r.checkSent(t, s, step)
	signer, mask, hash := r.bundle(t, s)
	if signer != r.bundleKey || mask != r.maskKey || hash != r.maskHash {
		t.Errorf("%s: the bundle is signed by %s, masks hash with %s to %s, want %s, %s and %s", step, signer, mask, hash, r.bundleKey, r.maskKey, r.maskHash)
	}
}

// checkSent uses the secrets that people have entered: those for other systems, and those of deliveries.
func (r *rotation) checkSent(t *testing.T, s *apptest.Server, step string) {
	t.Helper()
	a := s.Admin
	a.Do(t, "POST", "/resources", body{"name": "resource " + step, "type": "api", "path": "/" + step}).Want(201)
	apptest.Eventually(t, time.Minute, func() error {
		for _, c := range r.calls.received() {
			if c.Path == "/webhook" && c.Data["resource_name"] == "resource "+step {
				if !outbound.SignatureValid([]byte(r.webhookSecret), []byte(c.Raw), c.Header.Get("X-Service-Signature")) {
					t.Fatalf("%s: the webhook has the signature %q", step, c.Header.Get("X-Service-Signature"))
				}
				return nil
			}
		}
		return fmt.Errorf("%s: the webhook was not called", step)
	})
	for path, header := range map[string]string{r.channel: "Bearer token-of-the-channel", r.siem: "Bearer token-of-the-siem"} {
		before := len(r.calls.received())
		a.Do(t, "POST", path+"/test", nil).Want(200)
		found := false
		for _, c := range r.calls.received()[before:] {
			found = found || c.Header.Get("Authorization") == header
		}
		if !found {
			t.Errorf("%s: the test of %s did not send %q", step, path, header)
		}
	}
	var id int64
	errtest.Must(t, errtest.Of(fmt.Sscanf(r.source, "/pip/connections/%d", &id)))
	syncAndWait(t, a, id, "completed")
	if res := a.Do(t, "POST", "/telemetry/test-connection", nil).Want(200); res.Get("status") != "success" {
		t.Errorf("%s: the license server answers %s", step, res.Body)
	}
	if got := r.provider.signIn(t, s); got != "secret-of-the-client" {
		t.Errorf("%s: the provider gets the client secret %q", step, got)
	}
	ping := []byte(`{"repository_url":"https://git.example.com/controls.git","branch":"none","commit_hash":"0123456789abcdef0123456789abcdef01234567","event_type":"push"}`)
	hook := func(secret string) *apptest.Response {
		return s.Anonymous().With("X-Service-Signature", outbound.Signature([]byte(secret), ping)).Do(t, "POST", r.hook, ping)
	}
	hook("another-secret").Want(401)
	hook(repositorySecret).Want(400) // the delivery is genuine, but no repository answers

	if got := s.WithToken(r.bouncerToken).Do(t, "GET", "/bridge/credentials", nil).Want(200); got.Text("sealed") == "" {
		t.Errorf("%s: the bouncer's credentials = %s", step, got.Body)
	}
}

// TestEncryptionKeyRotation: after a rotation of the encryption key, every stored secret is encrypted
// with the new key, so that the old one can be dropped. Each kind still works.
func TestEncryptionKeyRotation(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		r := newRotation(t, s)
		r.check(t, s, "a")
		restart := func(letters ...string) map[string][]byte {
			t.Helper()
			s.Stop()
			stored := storedSecrets(t, s)
			s = apptest.StartServerOn(t, s.Dir, s.DatabaseURL(), "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8", encryptionKey(letters...))
			return stored
		}
		before := restart("B", "A")
		waitForRotation(t, s)
		r.check(t, s, "b")
		after := restart("B")
		waitForRotation(t, s)
		r.check(t, s, "c")
		for column, value := range before {
			if bytes.Equal(value, after[column]) {
				t.Errorf("%s is as it was under the old key", column)
			}
		}
	}, encryptionKey("A"))
}

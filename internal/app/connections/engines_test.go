package connections_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/blob/s3test"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

// depot is a registry that accepts pushes of one user, and a bucket.
type depot struct {
	*httptest.Server
	mu     sync.Mutex
	pushes int
	oci    http.Handler
	s3     *s3test.Server
}

const registryPassword = "password-of-the-registry-9c2"

func newDepot(t *testing.T) *depot {
	t.Helper()
	d := &depot{oci: registry.New(registry.Logger(log.New(io.Discard, "", 0))), s3: s3test.New("policies")}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	inRegistry := strings.HasPrefix(r.URL.Path, "/v2/")
	if _, password, _ := r.BasicAuth(); inRegistry && password != registryPassword && (r.Method != http.MethodGet && r.Method != http.MethodHead || r.URL.Path == "/v2/") {
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`)
		return
	}
	if r.Method == http.MethodPut && (strings.Contains(r.URL.Path, "/manifests/") || strings.HasSuffix(r.URL.Path, ".tar.gz")) {
		d.mu.Lock()
		d.pushes++
		d.mu.Unlock()
	}
	if inRegistry {
		d.oci.ServeHTTP(w, r)
		return
	}
	d.s3.ServeHTTP(w, r)
}

// got returns the number of stored bundles.
func (d *depot) got() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pushes
}

// layer returns the bundle at a tag.
func (d *depot) layer(t *testing.T, repository, tag string) []byte {
	t.Helper()
	get := func(path string) []byte {
		res, err := http.Get(d.URL + "/v2/" + repository + path)
		errtest.Must(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("GET %s of the registry = %d %v, want the bundle", path, res.StatusCode, err)
		}
		return body
	}
	var manifest struct{ Layers []struct{ Digest string } }
	if err := json.Unmarshal(get("/manifests/"+tag), &manifest); err != nil || len(manifest.Layers) != 1 {
		t.Fatal(manifest, err)
	}
	return get("/blobs/" + manifest.Layers[0].Digest)
}

// files returns the files of a bundle. The manifest has no key of the masks, which only the bouncer
// gets.
func files(t *testing.T, packed []byte) map[string]any {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	errtest.Must(t, err)
	out := map[string]any{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		errtest.Must(t, err)
		content, err := io.ReadAll(r)
		errtest.Must(t, err)
		name := strings.TrimPrefix(h.Name, "/")
		if name != ".manifest" {
			out[name] = string(content)
			continue
		}
		var manifest map[string]any
		errtest.Must(t, json.Unmarshal(content, &manifest))
		metadata, _ := manifest["metadata"].(map[string]any)
		delete(metadata, masking.KeyMember)
		out[name] = manifest
	}
}

func allow(user string) string {
	return "package only\n\nallow if input.user.id == \"" + user + "\"\n"
}

// ociConfig is the configuration of an OPA that knows only the registry.
func ociConfig(host string) string {
	return fmt.Sprintf(`services:
  depot: {url: "http://%s", type: oci}
bundles:
  authz: {service: depot, resource: "%s/org/policies:edge", polling: {min_delay_seconds: 1, max_delay_seconds: 1}}
`, host, host)
}

// s3Config is the configuration of an OPA that knows only the bucket.
func s3Config(t *testing.T, host string) string {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "credentials")
	text := "[default]\naws_access_key_id = " + s3test.AccessKey + "\naws_secret_access_key = " + s3test.SecretKey + "\n"
	errtest.Must(t, os.WriteFile(keys, []byte(text), 0o600))
	return fmt.Sprintf(`services:
  depot: {url: "http://%s/policies", credentials: {s3_signing: {profile_credentials: {path: %q, profile: default, aws_region: us-east-1}}}}
bundles:
  authz: {service: depot, resource: edge/bundle.tar.gz, polling: {min_delay_seconds: 1, max_delay_seconds: 1}}
`, host, keys)
}

// TestPolicyEngines checks that stock OPAs that know only a registry and a bucket decide as we do
// and follow each change. They get the bundle that the bouncer gets.
func TestPolicyEngines(t *testing.T) {
	apptest.OPA(t)
	each(t, func(t *testing.T, s *apptest.Server) {
		a, d := s.Admin, newDepot(t)
		host := strings.TrimPrefix(d.URL, "http://")
		policy := a.Do(t, "POST", "/policies", body{"name": "only", "rego_code": allow("alice"), "environment": "production", "status": "active"}).Want(201).ID()
		b := a.Do(t, "POST", "/bouncers", body{"name": "edge", "hostname": "127.0.0.1", "port": 8181, "environment": "production"}).Want(201)
		registered := a.Do(t, "POST", "/integrations", body{
			"name": "registry", "kind": "policy_engine", "endpoint": "oci+http://" + host + "/org/policies:edge", "settings": body{"bouncer_id": fmt.Sprint(b.ID())},
			"credential": body{"username": "pusher", "password": registryPassword},
		}).Want(201)
		if registered.Get("environment") != "production" || registered.Get("pushed") != nil {
			t.Errorf("POST /integrations = %s, want it in production and not pushed yet", registered.Body)
		}
		bucket := a.Do(t, "POST", "/integrations", body{
			"name": "bucket", "kind": "policy_engine", "endpoint": "s3+http://" + host + "/policies/edge/bundle.tar.gz", "settings": body{"bouncer_id": fmt.Sprint(b.ID())},
			"credential": body{"access_key_id": s3test.AccessKey, "secret_access_key": s3test.SecretKey},
		}).Want(201)
		paths := []string{fmt.Sprintf("/integrations/%d", registered.ID()), fmt.Sprintf("/integrations/%d", bucket.ID())}
		pushed := func(revision float64) {
			t.Helper()
			apptest.Eventually(t, time.Minute, func() error {
				for _, path := range paths {
					it := a.Do(t, "GET", path, nil).Want(200)
					if p, _ := it.Get("pushed").(map[string]any); p["revision"] != revision || it.Get("last_error") != "" {
						return fmt.Errorf("the integration = %s, want the revision %v pushed", it.Body, revision)
					}
				}
				return nil
			})
		}
		pushed(1)
		engines := []*apptest.StockOPA{{}, {}}
		for i, config := range []string{ociConfig(host), s3Config(t, host)} {
			engines[i].Run(t, config)
		}
		agree := func(user, want string) {
			t.Helper()
			for _, e := range engines {
				e.WaitForDecision(t, 30*time.Second, user, want)
			}
			res := a.Do(t, "POST", "/decisions/evaluate?environment=production", body{"user": body{"id": user}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/x"}}).Want(200)
			if res.Get("decision") != want {
				t.Errorf("our decision for %s = %s, want %s", user, res.Body, want)
			}
		}
		agree("alice", "PERMIT")
		agree("bob", "DENY")
		bouncer := s.Anonymous().With("Authorization", "Bearer "+fmt.Sprint(b.Get("token")))
		own := files(t, bouncer.Do(t, "GET", fmt.Sprintf("/bridge/bundles/%d", b.ID()), nil).Want(200).Body)
		for name, got := range map[string][]byte{"registry": d.layer(t, "org/policies", "edge"), "bucket": d.s3.Object("edge/bundle.tar.gz")} {
			if pushed := files(t, got); !reflect.DeepEqual(pushed, own) || len(own) < 2 {
				t.Errorf("the bundle in the %s = %v, want %v as for the bouncer", name, pushed, own)
			}
		}

		a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": allow("bob")}).Want(200)
		agree("bob", "PERMIT")
		pushed(2)
		s.Kill()
		s.Start()
		a = s.Login(t, "admin", apptest.Password)
		a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": allow("carol")}).Want(200)
		agree("carol", "PERMIT")
		pushed(3)
		if d.got() != 6 {
			t.Errorf("the stores have got %d pushes, want 6: three revisions in two stores", d.got())
		}

		// A test shows the real answer and pushes nothing.
		for _, path := range paths {
			if res := a.Do(t, "POST", path+"/test", nil).Want(200); res.Get("delivered") != true {
				t.Errorf("the test of the integration = %s, want success", res.Body)
			}
		}
		a.Do(t, "PUT", paths[0], body{"credential": body{"username": "pusher", "password": "wrong"}}).Want(200)
		if res := a.Do(t, "POST", paths[0]+"/test", nil).Want(200); res.Get("delivered") != false || res.Get("response_code") != 401.0 || !strings.Contains(fmt.Sprint(res.Get("error")), "401") {
			t.Errorf("the test with a wrong password = %s, want a failure with 401", res.Body)
		}
		if res := a.Do(t, "POST", "/integrations", body{"name": "x", "kind": "policy_engine", "endpoint": "oci://ghcr.io/x", "settings": body{"bouncer_id": "4711"}}).Want(422); !strings.Contains(string(res.Body), "/settings/bouncer_id") {
			t.Errorf("POST /integrations with an unknown bouncer = %s, want the pointer /settings/bouncer_id", res.Body)
		}
		if d.got() != 6 {
			t.Errorf("the stores have got %d pushes, want still 6", d.got())
		}

		// Another tenant sees nothing of it, and its own bouncers alone can be named.
		a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201)
		other := a.With("X-Tenant-ID", "other")
		other.Do(t, "GET", paths[0], nil).Want(404)
		other.Do(t, "POST", paths[0]+"/test", nil).Want(404)
		other.Do(t, "POST", "/integrations", body{
			"name": "theft", "kind": "policy_engine", "endpoint": "oci+http://" + host + "/org/theft", "settings": body{"bouncer_id": fmt.Sprint(b.ID())},
		}).Want(422)

		log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		if !strings.Contains(log, "INTEGRATION_BUNDLE_PUSHED") {
			t.Error("the audit lacks INTEGRATION_BUNDLE_PUSHED")
		}
		for _, clear := range []string{registryPassword, `"` + s3test.SecretKey + `"`} {
			if strings.Contains(log, clear) || strings.Contains(s.Log.String(), clear) {
				t.Error("the audit or the log has a credential")
			}
		}
		for _, path := range paths {
			a.Do(t, "DELETE", path, nil).Want(200)
		}
	})
}

// TestEngineWithoutBouncer checks that an integration without its bouncer can be renamed, switched
// off and get another bouncer, but cannot be switched on.
func TestEngineWithoutBouncer(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	bouncer := func(name, environment string) string {
		return fmt.Sprint(a.Do(t, "POST", "/bouncers", body{"name": name, "hostname": "127.0.0.1", "port": 8181, "environment": environment}).Want(201).ID())
	}
	removed, next, sandbox := bouncer("removed", "production"), bouncer("next", "production"), bouncer("sandbox", "sandbox")
	it := a.Do(t, "POST", "/integrations", body{"name": "x", "kind": "policy_engine", "endpoint": "oci://registry.example/x:y", "settings": body{"bouncer_id": removed}}).Want(201)
	path := fmt.Sprintf("/integrations/%d", it.ID())
	a.Do(t, "DELETE", "/bouncers/"+removed, nil).Want(200)
	a.Do(t, "PUT", path, body{"name": "y", "enabled": false}).Want(200)
	a.Do(t, "PUT", path, body{"enabled": true}).Want(422)
	a.Do(t, "PUT", path, body{"settings": body{"bouncer_id": sandbox}}).Want(422)
	a.Do(t, "PUT", path, body{"settings": body{"bouncer_id": next}, "enabled": true}).Want(200)
}

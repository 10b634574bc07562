package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/gatehouse-dev/gatehouse/internal/blob/s3test"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

func pointsAt(err error, pointer string) bool {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return false
	}
	for _, d := range f.Details {
		if d.Pointer == pointer {
			return true
		}
	}
	return false
}

// shelf provides the bundle of bouncer 7 of production, at a revision that tests set.
type shelf struct {
	*bench
	mu       sync.Mutex
	revision int64
	gone     bool
}

func (s *shelf) set(revision int64) {
	s.Helper()
	s.mu.Lock()
	s.revision = revision
	s.mu.Unlock()
	s.touch()
}

// touch changes the store, but not the bundle.
func (s *shelf) touch() {
	s.Helper()
	err := s.Stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
		_, err := tx.Bump(ctx, resource.Revision(scope.Production))
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

func bundleOf(revision int64) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	fmt.Fprintf(z, "bundle %d", revision)
	_ = z.Close()
	return b.Bytes()
}

// Bundle implements Bundles.
func (s *shelf) Bundle(ctx context.Context, tenant scope.TenantID, id int64) (Bundle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != 7 || s.gone {
		return Bundle{}, fault.NotFoundf("no such bouncer")
	}
	var at storeRevisions
	err := s.Stores.Read(ctx, tenant, func(tx *db.Tx) (err error) {
		at, err = readRevisions(ctx, tx, scope.Production)
		return err
	})
	return Bundle{Revision: s.revision, Data: bundleOf(s.revision), Controls: at.Controls, Bouncers: at.Bouncers}, err
}

// Environment implements Bundles.
func (s *shelf) Environment(_ context.Context, _ *db.Tx, id int64) (scope.Env, error) {
	if id != 7 {
		return "", fault.NotFoundf("no such bouncer")
	}
	return scope.Production, nil
}

// depot is a registry and a bucket that record what they get.
type depot struct {
	mu     sync.Mutex
	down   bool
	pushes int
	s3     *s3test.Server
	oci    http.Handler
}

func newDepot(t *testing.T) (*depot, string) {
	t.Helper()
	d := &depot{s3: s3test.New("policies"), oci: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	return d, strings.TrimPrefix(server.URL, "http://")
}

func (d *depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	down := d.down
	if r.Method == http.MethodPut && (strings.Contains(r.URL.Path, "/manifests/") || strings.HasPrefix(r.URL.Path, "/policies/")) && !down {
		d.pushes++
	}
	d.mu.Unlock()
	switch {
	case down:
		w.WriteHeader(http.StatusServiceUnavailable)
	case strings.HasPrefix(r.URL.Path, "/v2/"):
		d.oci.ServeHTTP(w, r)
	default:
		d.s3.ServeHTTP(w, r)
	}
}

func (d *depot) set(down bool) {
	d.mu.Lock()
	d.down = down
	d.mu.Unlock()
}

// got returns how often something was stored.
func (d *depot) got() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pushes
}

// TestPolicyEngine checks that a store gets each revision of a bundle once, with any number of
// replicas and restarts, again after an outage, and nothing if nothing changed.
func TestPolicyEngine(t *testing.T) {
	for _, to := range []string{"oci+http://%s/org/policies:edge", "s3+http://%s/policies/edge/bundle.tar.gz"} {
		t.Run(to[:2], func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
				b := newBench(t, c)
				s := &shelf{bench: b, revision: 3}
				b.Bundles = s
				d, host := newDepot(t)
				draft := Draft{Name: "edge", Kind: PolicyEngine, Endpoint: fmt.Sprintf(to, host), Settings: map[string]any{"bouncer_id": "7"}}
				if to[:2] == "s3" {
					draft.Credential = map[string]any{"access_key_id": s3test.AccessKey, "secret_access_key": s3test.SecretKey}
				}
				it := b.create(draft)
				if it.Environment != scope.Production || it.Pushed != nil {
					t.Errorf("%+v", it)
				}
				replica := 0
				turns := func(pushes int, revision int64) Integration {
					t.Helper()
					for range 3 {
						replica++
						b.turn(fmt.Sprint("replica ", replica%2), it.ID)
						b.clock.Move(2 * lookEvery)
					}
					got, err := b.Get(ctx, admin, it.ID)
					if err != nil || d.got() != pushes || got.Pushed == nil || got.Pushed.Revision != revision {
						t.Fatalf("%d pushes, want %d: %+v, pushed %+v, error %v", d.got(), pushes, got, got.Pushed, err)
					}
					return got
				}
				first := turns(1, 3)
				if !strings.HasPrefix(first.Pushed.Digest, "sha256:") || first.Pushed.Bytes != int64(len(bundleOf(3))) || first.LastSuccessAt == nil || first.Pushed.At.IsZero() {
					t.Errorf("%+v", first.Pushed)
				}
				s.touch() // another bouncer's controls
				turns(1, 3)
				s.set(4)
				turns(2, 4)

				d.set(true)
				s.set(5)
				failed := turns(2, 4)
				if failed.Failures == 0 || failed.NextAttemptAt == nil || !strings.Contains(failed.LastError, "answered 503") {
					t.Errorf("%+v", failed)
				}
				s.set(6) // revision 5 is never pushed
				d.set(false)
				b.clock.Move(longestWait)
				if now := turns(3, 6); now.Failures != 0 || now.LastError != "" {
					t.Errorf("%+v", now)
				}

				// A new address gets the bundle again; a new name does not.
				if _, err := b.Update(ctx, admin, it.ID, Change{Name: new("renamed")}, 0); err != nil {
					t.Fatal(err)
				}
				turns(3, 6)
				moved, err := b.Update(ctx, admin, it.ID, Change{Endpoint: new(fmt.Sprintf(to, host) + "2")}, 0)
				if err != nil || moved.Pushed != nil {
					t.Errorf("%+v, error %v", moved, err)
				}
				turns(4, 6)

				// A test only asks the store; it pushes nothing.
				if res, err := b.Test(ctx, admin, it.ID); err != nil || !res.Delivered || res.Error != "" {
					t.Errorf("%+v, error %v", res, err)
				}
				d.set(true)
				if res, err := b.Test(ctx, admin, it.ID); err != nil || res.Delivered || res.ResponseCode != 503 {
					t.Errorf("%+v, error %v", res, err)
				}
				d.set(false)
				s.mu.Lock()
				s.gone = true
				s.mu.Unlock()
				s.touch()
				b.turn("replica 1", it.ID)
				if got, err := b.Get(ctx, admin, it.ID); err != nil || got.LastError != noSuchBouncer {
					t.Errorf("%+v, error %v", got, err)
				}
				if res, err := b.Test(ctx, admin, it.ID); err != nil || res.Delivered || res.Error != noSuchBouncer {
					t.Errorf("%+v, error %v", res, err)
				}
			})
		})
	}
}

// TestPolicyEngineChangedMeanwhile checks that a push to a store that is replaced meanwhile does
// not count for the new store.
func TestPolicyEngineChangedMeanwhile(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		b.Bundles = &shelf{bench: b, revision: 3}
		d, host := newDepot(t)
		var it Integration
		busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
				if _, err := b.Update(ctx, admin, it.ID, Change{Endpoint: new("oci+http://" + host + "/org/new")}, 0); err != nil {
					t.Error(err)
				}
			}
			d.ServeHTTP(w, r)
		}))
		t.Cleanup(busy.Close)
		it = b.create(Draft{Name: "edge", Kind: PolicyEngine, Endpoint: strings.Replace(busy.URL, "http", "oci+http", 1) + "/org/old", Settings: map[string]any{"bouncer_id": "7"}})
		f := &Forwarder{Service: b.Service, Holder: "r", Logger: slog.New(slog.DiscardHandler)}
		if _, err := f.runLane(ctx, job.LaneKey{Tenant: scope.DefaultTenant, Lane: it.ID}, func() {}); !errors.Is(err, errLost) {
			t.Errorf("the turn ends with %v", err)
		}
		if got, err := b.Get(ctx, admin, it.ID); err != nil || got.Pushed != nil {
			t.Errorf("%+v, error %v", got.Pushed, err)
		}
		b.turn("r", it.ID)
		if got, err := b.Get(ctx, admin, it.ID); err != nil || got.Pushed == nil || d.got() != 2 {
			t.Errorf("%+v, %d pushes, error %v", got.Pushed, d.got(), err)
		}
	})
}

// TestPolicyEngineIsChecked checks that invalid values are refused with the right pointer and a
// helpful message.
func TestPolicyEngineIsChecked(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	b.Bundles = &shelf{bench: b, revision: 3}
	good := map[string]any{"bouncer_id": "7"}
	keys := map[string]any{"access_key_id": "a", "secret_access_key": "b"}
	for _, c := range []struct {
		endpoint   string
		settings   map[string]any
		credential any
		env        scope.Env
		want       string
	}{
		{"oci://ghcr.io/org/policies", nil, nil, "", "/settings/bouncer_id"},
		{"oci://ghcr.io/org/policies", map[string]any{"bouncer_id": "seven"}, nil, "", "/settings/bouncer_id"},
		{"oci://ghcr.io/org/policies", map[string]any{"bouncer_id": "8"}, nil, "", "/settings/bouncer_id"},
		{"oci://ghcr.io/org/policies", good, nil, scope.Sandbox, "/settings/bouncer_id"},
		{"oci://ghcr.io/org/policies", map[string]any{"bouncer_id": "7", "region": "x"}, nil, "", "/settings/region"},
		{"oci://ghcr.io/org/policies", good, keys, "", "/credential"},
		{"s3://s3.example.com/policies/x", good, nil, "", "/credential"},
		{"s3://s3.example.com/policies/x", good, "token", "", "/credential"},
		{"s3://s3.example.com/policies/x", good, map[string]any{"access_key_id": "a", "session_token": "c"}, "", "/credential"},
		{"oci://ghcr.io/org/policies", good, map[string]any{"access_key_id": "a", "secret_access_key": "b", "session_token": "c"}, "", "/credential"},
		{"s3://s3.example.com/policies", good, keys, "", "/endpoint"},
		{"https://ghcr.io/org/policies", good, nil, "", "/endpoint"},
		{"oci://10.0.0.8/org/policies", good, nil, "", "/endpoint"},
		{"oci://169.254.169.254/org/policies", good, nil, "", "/endpoint"},
		{"oci+http://8.8.8.8/org/policies", good, nil, "", "/endpoint"}, // plain HTTP to an address that is not allowed
		{"s3://10.0.0.8:9000/policies/x", good, keys, "", "/endpoint"},
	} {
		_, err := b.Create(ctx, admin, Draft{Name: "e", Kind: PolicyEngine, Endpoint: c.endpoint, Environment: c.env, Settings: c.settings, Credential: c.credential})
		if err == nil || !pointsAt(err, c.want) {
			t.Errorf("%s %v %v: %v, want %s", c.endpoint, c.settings, c.credential, err, c.want)
		}
	}
	it := b.create(Draft{Name: "edge", Kind: PolicyEngine, Endpoint: "oci://ghcr.io/org/policies", Settings: good, Credential: map[string]any{"username": "ada", "password": "secret"}})
	if _, err := b.Update(ctx, admin, it.ID, Change{Endpoint: new("oci://ghcr.io/org/others")}, 0); err != nil {
		t.Errorf("the same registry: %v", err)
	}
	if _, err := b.Update(ctx, admin, it.ID, Change{Endpoint: new("oci://quay.io/org/policies")}, 0); err == nil || !pointsAt(err, "/credential") {
		t.Errorf("another registry gets the credential: %v", err)
	}
}

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
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/gatehouse-dev/gatehouse/internal/blob/s3test"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// pointsAt reports whether an error has an offence at a pointer.
func pointsAt(err error, pointer string) bool {
	return slices.ContainsFunc(fault.Offences(err), func(d fault.Detail) bool { return d.Pointer == pointer })
}

// shelf provides the bundle of bouncer 7 of production, at a revision that tests set.
type shelf struct {
	*bench
	mu       sync.Mutex
	revision int64
	gone     bool
}

// newShelf returns a bench whose bundle is at a revision.
func newShelf(t testing.TB, c *db.Cluster, revision int64) (*bench, *shelf) {
	t.Helper()
	b := newBench(t, c)
	s := &shelf{bench: b, revision: revision}
	b.Bundles = s
	return b, s
}

// set changes the bundle.
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

// bundleOf returns the bundle of a revision.
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
	host   string
}

func newDepot(t *testing.T) *depot {
	t.Helper()
	d := &depot{s3: s3test.New("policies"), oci: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	d.host = strings.TrimPrefix(server.URL, "http://")
	return d
}

func (d *depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	down := d.down
	if storesBundle(r) && !down {
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

// set sets whether the stores are down.
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
	eachStore(t, func(t *testing.T, b *bench, s *shelf, d *depot, to string) {
		it := b.engine(fmt.Sprintf(to, d.host))
		if it.Environment != scope.Production || it.Pushed != nil {
			t.Errorf("Create = %+v, want production and no push", it)
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
				t.Fatalf("the store has %d pushes of revision %+v, want %d of %d: %+v, error %v", d.got(), got.Pushed, pushes, revision, got, err)
			}
			return got
		}
		first := turns(1, 3)
		if !strings.HasPrefix(first.Pushed.Digest, "sha256:") || first.Pushed.Bytes != int64(len(bundleOf(3))) || first.LastSuccessAt == nil || first.Pushed.At.IsZero() {
			t.Errorf("the first push is %+v, want its digest, size and time", first.Pushed)
		}
		s.touch() // another bouncer's controls
		turns(1, 3)
		s.set(4)
		turns(2, 4)

		d.set(true)
		s.set(5)
		failed := turns(2, 4)
		if failed.Failures == 0 || failed.NextAttemptAt == nil || !strings.Contains(failed.LastError, "answered 503") {
			t.Errorf("after an outage: %+v, want a failure with 503 and a next attempt", failed)
		}
		s.set(6) // revision 5 is never pushed
		d.set(false)
		b.clock.Move(longestWait)
		if now := turns(3, 6); now.Failures != 0 || now.LastError != "" {
			t.Errorf("after the outage: %+v, want no failure", now)
		}

		// A new address gets the bundle again; a new name does not.
		errtest.Must(t, errtest.Of(b.Update(ctx, admin, it.ID, Change{Name: new("renamed")}, 0)))
		turns(3, 6)
		moved, err := b.Update(ctx, admin, it.ID, Change{Endpoint: new(fmt.Sprintf(to, d.host) + "2")}, 0)
		if err != nil || moved.Pushed != nil {
			t.Errorf("Update of the address = %+v, error %v, want nothing pushed", moved, err)
		}
		turns(4, 6)

		// A test only asks the store; it pushes nothing.
		if res, err := b.Test(ctx, admin, it.ID); err != nil || !res.Delivered || res.Error != "" {
			t.Errorf("Test = %+v, error %v, want delivered", res, err)
		}
		d.set(true)
		if res, err := b.Test(ctx, admin, it.ID); err != nil || res.Delivered || res.ResponseCode != 503 {
			t.Errorf("Test of a store that is down = %+v, error %v, want 503", res, err)
		}
		d.set(false)
		s.mu.Lock()
		s.gone = true
		s.mu.Unlock()
		s.touch()
		b.turn("replica 1", it.ID)
		if got, err := b.Get(ctx, admin, it.ID); err != nil || got.LastError != noSuchBouncer {
			t.Errorf("without the bouncer: %+v, error %v, want the error %q", got, err, noSuchBouncer)
		}
		if res, err := b.Test(ctx, admin, it.ID); err != nil || res.Delivered || res.Error != noSuchBouncer {
			t.Errorf("Test without the bouncer = %+v, error %v, want the error %q", res, err, noSuchBouncer)
		}
	})
}

// TestPolicyEngineChangedMeanwhile checks that a push to a store that is replaced meanwhile does
// not count for the new store.
func TestPolicyEngineChangedMeanwhile(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, _ := newShelf(t, c, 3)
		d := newDepot(t)
		var it Integration
		busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
				if _, err := b.Update(ctx, admin, it.ID, Change{Endpoint: new("oci+http://" + d.host + "/org/new")}, 0); err != nil {
					t.Error(err)
				}
			}
			d.ServeHTTP(w, r)
		}))
		t.Cleanup(busy.Close)
		it = b.create(Draft{Name: "edge", Kind: PolicyEngine, Endpoint: strings.Replace(busy.URL, "http", "oci+http", 1) + "/org/old", Settings: map[string]any{"bouncer_id": "7"}})
		f := &Forwarder{Service: b.Service, Holder: "r", Logger: slog.New(slog.DiscardHandler)}
		if _, err := f.runLane(ctx, job.LaneKey{Tenant: scope.DefaultTenant, Lane: it.ID}, func() {}); !errors.Is(err, errLost) {
			t.Errorf("runLane = %v, want errLost", err)
		}
		if got, err := b.Get(ctx, admin, it.ID); err != nil || got.Pushed != nil {
			t.Errorf("after the change: pushed %+v, error %v, want nothing", got.Pushed, err)
		}
		b.turn("r", it.ID)
		if got, err := b.Get(ctx, admin, it.ID); err != nil || got.Pushed == nil || d.got() != 2 {
			t.Errorf("after another turn: pushed %+v, %d pushes, error %v, want the second push", got.Pushed, d.got(), err)
		}
	})
}

// TestPolicyEngineIsChecked checks that invalid values are refused with the right pointer and a
// helpful message.
func TestPolicyEngineIsChecked(t *testing.T) {
	b, _ := newShelf(t, dbtest.Open(t, dbtest.SQLite), 3)
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
			t.Errorf("Create with %s %v %v = %v, want an offence at %s", c.endpoint, c.settings, c.credential, err, c.want)
		}
	}
	it := b.create(Draft{Name: "edge", Kind: PolicyEngine, Endpoint: "oci://ghcr.io/org/policies", Settings: good, Credential: map[string]any{"username": "ada", "password": "secret"}})
	if _, err := b.Update(ctx, admin, it.ID, Change{Endpoint: new("oci://ghcr.io/org/others")}, 0); err != nil {
		t.Errorf("Update to the same registry: %v", err)
	}
	if _, err := b.Update(ctx, admin, it.ID, Change{Endpoint: new("oci://quay.io/org/policies")}, 0); err == nil || !pointsAt(err, "/credential") {
		t.Errorf("Update to another registry = %v, want an offence at /credential", err)
	}
}

package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/blob/s3test"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// stores lists the endpoint forms of the two kinds of stores of policy engines.
var stores = []string{"oci+http://%s/org/policies:edge", "s3+http://%s/policies/edge/bundle.tar.gz"}

// eachStore runs a test for each kind of store, with a bundle at revision 3.
func eachStore(t *testing.T, test func(t *testing.T, b *bench, s *shelf, d *depot, to string)) {
	for _, to := range stores {
		t.Run(to[:2], func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
				b, s := newShelf(t, c, 3)
				test(t, b, s, newDepot(t), to)
			})
		})
	}
}

// storesBundle reports whether a request stores a bundle where engines read it.
func storesBundle(r *http.Request) bool {
	return r.Method == http.MethodPut && (strings.Contains(r.URL.Path, "/manifests/") || strings.HasPrefix(r.URL.Path, "/policies/"))
}

// engine creates an integration that pushes the bundle to an address.
func (b *bench) engine(address string) Integration {
	b.Helper()
	draft := Draft{Name: "edge", Kind: PolicyEngine, Endpoint: address, Settings: map[string]any{"bouncer_id": "7"}}
	if strings.HasPrefix(address, "s3") {
		draft.Credential = map[string]any{"access_key_id": s3test.AccessKey, "secret_access_key": s3test.SecretKey}
	}
	return b.create(draft)
}

// offers reports whether engines would get a revision of the bundle.
func (d *depot) offers(t *testing.T, address string, revision int64) bool {
	t.Helper()
	if strings.HasPrefix(address, "s3") {
		return string(d.s3.Object("edge/bundle.tar.gz")) == string(bundleOf(revision))
	}
	res, err := http.Get("http://" + d.host + "/v2/org/policies/manifests/edge")
	errtest.Must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	errtest.Must(t, err)
	return strings.Contains(string(text), fmt.Sprintf(`"%s":"%d"`, revisionName, revision))
}

// TestPolicyEngineAfterAFreeze checks that an older bundle does not stay in a store, if a replica
// was suspended during its push and resumes after another one has pushed a newer bundle.
func TestPolicyEngineAfterAFreeze(t *testing.T) {
	eachStore(t, func(t *testing.T, b *bench, s *shelf, d *depot, to string) {
		arrived, wake := make(chan struct{}), make(chan struct{})
		var frozen atomic.Bool
		slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if storesBundle(r) {
				if frozen.CompareAndSwap(false, true) {
					close(arrived)
					<-wake
				}
			}
			d.ServeHTTP(w, r)
		}))
		t.Cleanup(slow.Close)
		address := fmt.Sprintf(to, strings.TrimPrefix(slow.URL, "http://"))
		it := b.engine(address)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f := &Forwarder{Service: b.Service, Holder: "frozen", Logger: slog.New(slog.DiscardHandler)}
			_, _ = f.runLane(ctx, job.LaneKey{Tenant: scope.DefaultTenant, Lane: it.ID}, func() {})
		}()
		<-arrived
		b.clock.Move(2 * job.LaneTime)
		s.set(4)
		b.turn("awake", it.ID)
		if !d.offers(t, to, 4) {
			t.Fatal("the engines do not get revision 4 of the other replica")
		}
		close(wake)
		<-ended
		if !d.offers(t, to, 3) {
			t.Fatal("the frozen replica did not push, want its older bundle in the store")
		}
		for range 3 {
			b.clock.Move(2 * time.Second)
			b.turn("awake", it.ID)
		}
		got, err := b.Get(ctx, admin, it.ID)
		if err != nil || !d.offers(t, to, 4) || got.Pushed == nil || got.Pushed.Revision != 4 {
			t.Errorf("the pushed bundle is %+v, error %v, want revision 4, also at the engines", got.Pushed, err)
		}
	})
}

// TestPolicyEngineAfterALatePush checks that an older bundle does not stay in a store that carries out a
// push after it was given up, and after a newer one. Without a difference nothing is pushed again.
func TestPolicyEngineAfterALatePush(t *testing.T) {
	eachStore(t, func(t *testing.T, b *bench, s *shelf, d *depot, to string) {
		var late atomic.Pointer[http.Request]
		hangs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if storesBundle(r) && late.Load() == nil {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				kept := r.Clone(context.Background())
				kept.Body = io.NopCloser(bytes.NewReader(body))
				late.Store(kept)
				w.WriteHeader(http.StatusGatewayTimeout) // as a proxy in front of the store answers
				return
			}
			d.ServeHTTP(w, r)
		}))
		t.Cleanup(hangs.Close)
		it := b.engine(fmt.Sprintf(to, strings.TrimPrefix(hangs.URL, "http://")))
		turns := func(pushes int, after time.Duration) {
			t.Helper()
			b.clock.Move(after)
			for range 3 {
				b.turn("one", it.ID)
				b.clock.Move(2 * lookEvery)
			}
			if got, err := b.Get(ctx, admin, it.ID); err != nil || d.got() != pushes {
				t.Fatalf("the store has %d pushes, want %d: %+v, error %v", d.got(), pushes, got, err)
			}
		}
		b.turn("one", it.ID)
		if late.Load() == nil || d.got() != 0 {
			t.Fatalf("the store has %d pushes, want the first one held back", d.got())
		}
		s.set(4)
		turns(1, longestWait)
		turns(1, askEvery) // the store still has it
		d.ServeHTTP(httptest.NewRecorder(), late.Load())
		if !d.offers(t, to, 3) {
			t.Fatal("the late push did not arrive, want its older bundle in the store")
		}
		turns(3, askEvery)
		if !d.offers(t, to, 4) {
			t.Error("the engines do not get revision 4 after the late push")
		}
		turns(3, askEvery)
		d.set(true)
		turns(3, askEvery) // a store that does not say what it has
		got, err := b.Get(ctx, admin, it.ID)
		if err != nil || got.Failures != 0 || got.Pushed.Revision != 4 {
			t.Errorf("the integration is %+v, error %v, want revision 4 and no failure", got, err)
		}
	})
}

// TestPolicyEngineBehindAPortal checks that a server that answers 200 with a page to everything,
// like a portal or a proxy, is not taken for a store.
func TestPolicyEngineBehindAPortal(t *testing.T) {
	for _, to := range stores {
		t.Run(to[:2], func(t *testing.T) {
			b, _ := newShelf(t, dbtest.Open(t, dbtest.SQLite), 3)
			portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/html")
				_, _ = io.WriteString(w, "<html>Please sign in</html>")
			}))
			t.Cleanup(portal.Close)
			it := b.engine(fmt.Sprintf(to, strings.TrimPrefix(portal.URL, "http://")))
			b.turn("r", it.ID)
			if got, err := b.Get(ctx, admin, it.ID); err != nil || got.Pushed != nil || got.Failures != 1 || got.LastError == "" {
				t.Errorf("pushed %+v, %d failures, %q, error %v, want no push and one failure", got.Pushed, got.Failures, got.LastError, err)
			}
		})
	}
}

// TestPolicyEngineWithATemporaryKey checks that each call carries the session token of a temporary
// key.
func TestPolicyEngineWithATemporaryKey(t *testing.T) {
	b, _ := newShelf(t, dbtest.Open(t, dbtest.SQLite), 3)
	d := newDepot(t)
	var token atomic.Value
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token.Store(r.Header.Get("X-Amz-Security-Token"))
		d.ServeHTTP(w, r)
	}))
	t.Cleanup(bucket.Close)
	it := b.create(Draft{
		Name: "edge", Kind: PolicyEngine, Endpoint: strings.Replace(bucket.URL, "http", "s3+http", 1) + "/policies/edge/bundle.tar.gz", Settings: map[string]any{"bouncer_id": "7"},
		Credential: map[string]any{"access_key_id": s3test.AccessKey, "secret_access_key": s3test.SecretKey, "session_token": "temporary"},
	})
	b.turn("r", it.ID)
	if got, err := b.Get(ctx, admin, it.ID); err != nil || got.Pushed == nil || token.Load() != "temporary" {
		t.Errorf("%q, pushed %+v with the token %v, error %v, want a push with temporary", got.LastError, got.Pushed, token.Load(), err)
	}
}

// TestPolicyEngineIsAskedToWait checks that a store that answers 429 with Retry-After is not called
// before that time.
func TestPolicyEngineIsAskedToWait(t *testing.T) {
	for _, to := range stores {
		t.Run(to[:2], func(t *testing.T) {
			b, _ := newShelf(t, dbtest.Open(t, dbtest.SQLite), 3)
			busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Retry-After", "900")
				w.WriteHeader(http.StatusTooManyRequests)
			}))
			t.Cleanup(busy.Close)
			it := b.engine(fmt.Sprintf(to, strings.TrimPrefix(busy.URL, "http://")))
			b.turn("r", it.ID)
			want := b.clock.Now().Add(15 * time.Minute)
			if got, err := b.Get(ctx, admin, it.ID); err != nil || got.NextAttemptAt == nil || got.NextAttemptAt.Before(want) || !strings.Contains(got.LastError, "429") {
				t.Errorf("the next attempt is at %v after %q, error %v, want %v or later after 429", got.NextAttemptAt, got.LastError, err, want)
			}
		})
	}
}

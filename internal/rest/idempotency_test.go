package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// seal is a test cipher: with it, a test finds out whether anything is stored in clear.
func seal(plain []byte, aad string) ([]byte, error) {
	out := []byte(aad + "\x00")
	for _, b := range plain {
		out = append(out, b^0x55)
	}
	return out, nil
}

func unseal(sealed []byte, aad string) ([]byte, error) {
	rest, ok := bytes.CutPrefix(sealed, []byte(aad+"\x00"))
	if !ok {
		return nil, fault.New(fault.Internal, "sealed", "sealed for another place")
	}
	out := make([]byte, 0, len(rest))
	for _, b := range rest {
		out = append(out, b^0x55)
	}
	return out, nil
}

// stand is a rig on a store, with a clock that can be moved and an operation that waits.
type stand struct {
	*rig
	cluster *db.Cluster
	ahead   atomic.Int64 // of the clock, in nanoseconds
	hold    chan struct{}
	entered chan struct{}
	outcome atomic.Value // string: the id of the object in the audit
}

func newStand(t *testing.T, c *db.Cluster) *stand {
	t.Helper()
	st := &stand{cluster: c, hold: make(chan struct{}), entered: make(chan struct{}, 64)}
	st.rig = newRig(t, func(s *Config) {
		s.Now = func() time.Time { return time.Now().Add(time.Duration(st.ahead.Load())) }
		s.Idempotency = Idempotency{Cluster: c, Seal: seal, Open: unseal, Outcome: func(context.Context, scope.Scope, string, time.Time) (string, bool, error) {
			id, _ := st.outcome.Load().(string)
			return id, id != "", nil
		}}
		authenticate := s.Authenticate
		s.Authenticate = func(ctx context.Context, cr Credential) (scope.Scope, Principal, error) {
			sc, who, err := authenticate(ctx, cr)
			if sc.Tenant == "t1" {
				sc.Tenant = "default"
			}
			return sc, who, err
		}
	}, func(g *rig) {
		Register(g.Router, Op{ID: "create-slow", Method: "POST", Path: "/slow", Tags: []string{"Widgets"}, Status: 201, Creates: true},
			func(_ context.Context, _ scope.Scope, in *createIn) (*widgetOut, error) {
				st.entered <- struct{}{}
				<-st.hold
				return &widgetOut{ETag: ETag(1), Body: widget{ID: g.created.Add(1), Name: in.Body.Name}}, nil
			})
		type in struct {
			ID int64 `path:"id"`
		}
		Register(g.Router, Op{ID: "get-slow", Method: "GET", Path: "/slow/{id}", Tags: []string{"Widgets"}},
			func(_ context.Context, _ scope.Scope, i *in) (*widgetOut, error) {
				return &widgetOut{ETag: ETag(1), Body: widget{ID: i.ID, Name: "slow"}}, nil
			})
		Register(g.Router, Op{ID: "create-refused", Method: "POST", Path: "/refused", Tags: []string{"Widgets"}, Status: 201, Creates: true},
			func(_ context.Context, _ scope.Scope, in *createIn) (*widgetOut, error) {
				if g.created.Add(1) == 1 {
					return nil, fault.New(fault.Conflict, "already_exists", "there is one already")
				}
				if in.Body.Name == "panic" {
					panic("boom")
				}
				return &widgetOut{Body: widget{ID: 1}}, nil
			})
	})
	return st
}

// create is a request with an Idempotency-Key.
func create(path, key, body string) resttest.Call {
	return resttest.Call{Method: "POST", Path: path, Key: "full", Body: body, Headers: []string{"Idempotency-Key", key}}
}

// TestIdempotency: a repeated request with the same key gets the first answer, and changes nothing
// again.
func TestIdempotency(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		t.Run("replay", func(t *testing.T) { checkReplay(t, newStand(t, c)) })
		t.Run("lost answer", func(t *testing.T) { checkLostAnswer(t, newStand(t, c)) })
		t.Run("concurrent", func(t *testing.T) { checkConcurrent(t, newStand(t, c)) })
		t.Run("a refusal is not stored", func(t *testing.T) { checkRefusals(t, newStand(t, c)) })
		t.Run("crash", func(t *testing.T) { checkCrash(t, newStand(t, c)) })
	})
}

// checkReplay: the answer to a key is the same, also on another replica, for its caller and body, for a
// day. The store does not contain it in clear.
func checkReplay(t *testing.T, st *stand) {
	first := st.Do(t, create("/v1/widgets", "k-1", `{"name":"secretname"}`).Request())
	if first.Code != 201 || st.created.Load() != 1 {
		t.Fatalf("POST /v1/widgets = %d %s, want 201", first.Code, first.Body)
	}
	for _, path := range []string{"/v1/widgets", "/api/v1/widgets", "/api/widgets"} { // aliases are the same operation
		again := st.Do(t, create(path, "k-1", `{"name":"secretname"}`).Request())
		if again.Code != 201 || !bytes.Equal(again.Body.Bytes(), first.Body.Bytes()) || again.Header().Get("ETag") != first.Header().Get("ETag") || again.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("POST %s again = %d %s %v, want the first answer", path, again.Code, again.Body, again.Header())
		}
	}
	other := newStand(t, st.cluster) // another process on the same store
	if again := other.Do(t, create("/v1/widgets", "k-1", `{"name":"secretname"}`).Request()); !bytes.Equal(again.Body.Bytes(), first.Body.Bytes()) {
		t.Errorf("POST after a restart = %d %s, want the first answer", again.Code, again.Body)
	}
	if w := st.Do(t, create("/v1/widgets", "k-1", `{"name":"other"}`).Request()); w.Code != 422 || !strings.Contains(w.Body.String(), "idempotency_key_reused") {
		t.Errorf("POST of another body with the key = %d %s, want 422 idempotency_key_reused", w.Code, w.Body)
	}
	person := create("/v1/widgets", "k-1", `{"name":"secretname"}`)
	person.Key = "platform"
	if w := st.Do(t, person.Request()); w.Code != 201 || bytes.Equal(w.Body.Bytes(), first.Body.Bytes()) {
		t.Errorf("POST of another caller with the key = %d %s, want 201 with a new answer", w.Code, w.Body)
	}
	for _, key := range []string{"", "a b", strings.Repeat("x", 256), "ü"} {
		if w := st.Do(t, create("/v1/widgets", key, `{"name":"x"}`).Request()); w.Code != 400 {
			t.Errorf("POST with the key %q = %d, want 400", key, w.Code)
		}
	}
	wantSealed(t, st, "secretname")
	st.ahead.Store(int64(25 * time.Hour))
	if w := st.Do(t, create("/v1/widgets", "k-1", `{"name":"other"}`).Request()); w.Code != 201 {
		t.Errorf("POST with the key a day later = %d %s, want 201", w.Code, w.Body)
	}
	st.ahead.Store(int64(50 * time.Hour))
	errtest.Must(t, st.PurgeIdempotency(t.Context()))
	if n := rows(t, st); n != 0 {
		t.Errorf("%d rows remain after PurgeIdempotency, want none", n)
	}
}

// rows returns the number of stored answers.
func rows(t *testing.T, st *stand) (n int64) {
	t.Helper()
	errtest.Must(t, st.cluster.Read(t.Context(), "default", func(tx *db.Tx) (err error) {
		n, err = db.One[int64](t.Context(), tx, `SELECT count(*) FROM idempotency`)
		return err
	}))
	return n
}

// wantSealed fails if the stored answers contain a text in clear.
func wantSealed(t *testing.T, st *stand, text string) {
	t.Helper()
	errtest.Must(t, st.cluster.Read(t.Context(), "default", func(tx *db.Tx) error {
		all, err := db.All[entry](t.Context(), tx, `SELECT key, request, request_id, status, headers, body, created_at, lease_until FROM idempotency`)
		for _, row := range all {
			if strings.Contains(fmt.Sprint(row)+string(row.Body), text) {
				t.Errorf("the stored answer %+v contains %q in clear", row, text)
			}
		}
		return err
	}))
}

// checkConcurrent: concurrent requests with one key make one object, and all get its answer.
func checkConcurrent(t *testing.T, st *stand) {
	const n = 8
	before := st.created.Load()
	answers := make([]*httptest.ResponseRecorder, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { answers[i] = st.Do(t, create("/v1/slow", "k-2", `{"name":"slow"}`).Request()) })
	}
	<-st.entered
	close(st.hold)
	wg.Wait()
	if made := st.created.Load() - before; made != 1 {
		t.Errorf("%d concurrent requests make %d objects, want 1", n, made)
	}
	for _, w := range answers {
		if w.Code != 201 || !bytes.Equal(w.Body.Bytes(), answers[0].Body.Bytes()) {
			t.Errorf("concurrent POST = %d %s, want 201 %s", w.Code, w.Body, answers[0].Body)
		}
	}
}

// checkRefusals: a request that was refused runs again with the same key.
func checkRefusals(t *testing.T, st *stand) {
	for _, want := range []int{409, 201} {
		if w := st.Do(t, create("/v1/refused", "k-3", `{"name":"x"}`).Request()); w.Code != want {
			t.Errorf("POST /v1/refused = %d %s, want %d", w.Code, w.Body, want)
		}
	}
	if w := st.Do(t, create("/v1/refused", "k-4", `{"nme":"x"}`).Request()); w.Code != 422 {
		t.Errorf("POST of a wrong body = %d %s, want 422", w.Code, w.Body)
	}
	if w := st.Do(t, create("/v1/refused", "k-4", `{"name":"x"}`).Request()); w.Code != 201 {
		t.Errorf("POST of the corrected body = %d %s, want 201", w.Code, w.Body)
	}
	for range 2 {
		if w := st.Do(t, create("/v1/refused", "k-5", `{"name":"panic"}`).Request()); w.Code != 500 {
			t.Errorf("POST that panics = %d %s, want 500", w.Code, w.Body)
		}
	}
}

// checkCrash: after a crash, a request runs again if nothing was committed, and gets the answer of the
// object that was committed otherwise.
func checkCrash(t *testing.T, st *stand) {
	claimAndDie := func(key string, age time.Duration) {
		t.Helper()
		now := st.config.Now().Add(-age).UTC().Truncate(time.Microsecond)
		body := `{"name":"slow"}`
		errtest.Must(t, st.cluster.Write(t.Context(), "default", func(tx *db.Tx) error {
			_, _, err := claim(t.Context(), tx, entry{
				Key: digest("api_key", "1", "create-slow", Root+"/slow", key), Request: digest(http.MethodPost, "", "", body),
				RequestID: "dead", Headers: map[string]string{}, Body: []byte{}, CreatedAt: now, LeaseUntil: now.Add(leaseTime),
			}, now.Add(-keepAnswers), "")
			return err
		}))
	}
	close(st.hold)
	claimAndDie("k-6", time.Minute)
	if w := st.Do(t, create("/v1/slow", "k-6", `{"name":"slow"}`).Request()); w.Code != 201 || w.Header().Get("Idempotent-Replayed") != "" {
		t.Errorf("POST after a crash before the commit = %d %s, want a new 201", w.Code, w.Body)
	}
	claimAndDie("k-8", -365*24*time.Hour)
	if w := st.Do(t, create("/v1/slow", "k-8", `{"name":"slow"}`).Request()); w.Code != 201 {
		t.Errorf("POST after a crash with a clock that was ahead = %d %s, want 201", w.Code, w.Body)
	}
	before := st.created.Load()
	st.outcome.Store("41") // committed, but the answer was lost
	claimAndDie("k-7", time.Minute)
	w := st.Do(t, create("/v1/slow", "k-7", `{"name":"slow"}`).Request())
	var got widget
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 201 || got.ID != 41 || w.Header().Get("ETag") != ETag(1) {
		t.Errorf("POST after a crash after the commit = %d %s, %v, want 201 with object 41", w.Code, w.Body, err)
	}
	if st.created.Load() != before {
		t.Error("the committed object is made again")
	}
}

// checkLostAnswer: if a stored answer cannot be decrypted, a repetition gets the object as it is now, or
// else the fact that it was created. Nothing is created again.
func checkLostAnswer(t *testing.T, st *stand) {
	close(st.hold)
	send := func() *httptest.ResponseRecorder {
		return st.Do(t, create("/v1/slow", "k-lost", `{"name":"slow"}`).Request())
	}
	if w := send(); w.Code != 201 {
		t.Fatalf("POST = %d %s, want 201", w.Code, w.Body)
	}
	errtest.Must(t, st.cluster.Write(t.Context(), scope.DefaultTenant, func(tx *db.Tx) error {
		return errtest.Of(tx.Exec(t.Context(), `UPDATE idempotency SET body = $1`, []byte("under a lost key")))
	}))
	if w := send(); w.Code != 409 || !strings.Contains(w.Body.String(), `"already_created"`) {
		t.Errorf("a repetition without an audit entry = %d %s, want 409 already_created", w.Code, w.Body)
	}
	st.outcome.Store("41")
	var got widget
	if w := send(); json.Unmarshal(w.Body.Bytes(), &got) != nil || w.Code != 201 || got.ID != 41 || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("a repetition = %d %s, want 201 with object 41", w.Code, w.Body)
	}
	if n := st.created.Load(); n != 1 {
		t.Errorf("%d objects were created, want 1", n)
	}
}

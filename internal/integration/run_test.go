package integration

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const engineKey = "key-of-the-engine"

// startedRun is the message that starts a run, as a system receives it.
type startedRun struct {
	Type string `json:"event_type"`
	Data struct {
		Run      int64 `json:"run_id"`
		Callback callback
		N        string
		Test     bool
	}
}

// engine is a workflow engine that checks signatures.
type engine struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []startedRun
	// during is called before it answers the request that starts a run.
	during func(r startedRun)
}

// newEngine starts an engine that accepts everything.
func newEngine(t testing.TB) *engine {
	e := &engine{status: 202}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var raw json.RawMessage
		var r startedRun
		if err := errors.Join(json.NewDecoder(req.Body).Decode(&raw), json.Unmarshal(raw, &r)); err != nil {
			t.Error(err)
		}
		if !outbound.SignatureValid([]byte(engineKey), raw, req.Header.Get("X-Service-Signature")) {
			t.Errorf("the signature %q is not valid for %s", req.Header.Get("X-Service-Signature"), raw)
		}
		e.mu.Lock()
		e.got = append(e.got, r)
		status, during := e.status, e.during
		e.mu.Unlock()
		if during != nil {
			during(r)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(e.Close)
	return e
}

// set sets the status of later answers.
func (e *engine) set(status int) {
	e.mu.Lock()
	e.status = status
	e.mu.Unlock()
}

// last returns the newest request.
func (e *engine) last(t *testing.T) startedRun {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.got) == 0 {
		t.Fatal("the engine got no request, want one")
	}
	return e.got[len(e.got)-1]
}

// queue queues a message of an action in sandbox.
func (b *bench) queue(id int64, event string) {
	b.Helper()
	b.queueIn(scope.Sandbox, id, event)
}

// queueIn queues a message of an action.
func (b *bench) queueIn(env scope.Env, id int64, event string) {
	b.Helper()
	err := b.Stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
		return Queue(ctx, tx, id, env, Message{EventID: event, At: b.clock.Now(), Data: []byte(`{"n":"` + event + `"}`), Cause: Cause{PolicyID: 7, PolicyName: "p", Summary: "why"}})
	})
	errtest.Must(b, err)
}

// run returns the newest run of an integration.
func (b *bench) run(id int64) Run {
	b.Helper()
	page, err := b.Runs(ctx, admin, id, "", 0, 1)
	if err != nil || len(page.Runs) == 0 {
		b.Fatalf("Runs = %+v, error %v, want at least one", page, err)
	}
	return page.Runs[0]
}

// wantCode checks the code of an error.
func (b *bench) wantCode(err error, code string) {
	b.Helper()
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != code {
		b.Errorf("the error is %v, want %s", err, code)
	}
}

// wantAudited checks how many audit entries of a type there are.
func (b *bench) wantAudited(kind string, want int64) {
	b.Helper()
	page, err := b.log.Events(ctx, admin, audit.EventFilter{Type: kind})
	if err != nil || page.Filtered != want {
		b.Errorf("the audit has %d of %s, error %v, want %d", page.Filtered, kind, err, want)
	}
}

// answerOf is the answer of an engine to a run.
func answerOf(r startedRun, status string) Answer {
	return Answer{Token: r.Data.Callback.Token, Status: status, Message: "done", AnsweredBy: "ops"}
}

// TestRunIsAnswered checks that a message starts a run with one token for all attempts, that one of
// several answers counts, and that nobody without the token can answer.
func TestRunIsAnswered(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, e := newBench(t, c), newEngine(t)
		it := b.create(Draft{Name: "flow", Kind: Workflow, Endpoint: e.URL, Credential: engineKey})
		b.queue(it.ID, "one")
		if r := b.run(it.ID); r.Status != RunPending || r.Cause.PolicyID != 7 {
			t.Errorf("the queued run is %+v, want pending, of the control 7", r)
		}
		e.set(500)
		b.turn("a", it.ID)
		first := e.last(t)
		b.clock.Move(longestWait)
		e.set(202)
		b.turn("b", it.ID)
		got := e.last(t)
		if got.Data.Callback.Token == "" || got.Data.Callback.Token != first.Data.Callback.Token || got.Data.N != "one" {
			t.Fatalf("the second attempt is %+v after %+v, want the same token", got, first)
		}
		if want := "https://gatehouse.example.com/api/v1/integrations/1/runs/"; !strings.HasPrefix(got.Data.Callback.URL, want) {
			t.Errorf("the callback is %s, want it below %s", got.Data.Callback.URL, want)
		}
		r := b.run(it.ID)
		if r.Status != RunRunning || r.ID != got.Data.Run || len(r.TokenSealed) != 0 || strings.Contains(r.TokenHash, got.Data.Callback.Token) {
			t.Errorf("the accepted run is %+v, want running, without its token", r)
		}

		other := answerOf(got, RunSucceeded)
		other.Token = other.Token[:len(other.Token)-1]
		_, err := b.Answer(ctx, scope.Scope{Tenant: scope.DefaultTenant}, it.ID, r.ID, other)
		b.wantCode(err, "invalid_callback")
		_, err = b.Answer(ctx, scope.Scope{Tenant: scope.DefaultTenant}, it.ID, r.ID+1, answerOf(got, RunSucceeded))
		b.wantCode(err, "invalid_callback")
		_, err = b.Answer(ctx, scope.Scope{Tenant: "nobody"}, it.ID, r.ID, answerOf(got, RunSucceeded))
		b.wantCode(err, "invalid_callback")

		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = b.Answer(ctx, scope.Scope{Tenant: scope.DefaultTenant}, it.ID, r.ID, answerOf(got, RunSucceeded))
			})
		}
		wg.Wait()
		accepted := 0
		for _, err := range errs {
			if err == nil {
				accepted++
				continue
			}
			b.wantCode(err, "already_answered")
		}
		if r = b.run(it.ID); accepted != 1 || r.Status != RunSucceeded || r.Message != "done" || r.AnsweredBy != "ops" || r.EndedAt == nil {
			t.Errorf("%d of 6 answers are accepted and the run is %+v, want one and succeeded", accepted, r)
		}
		b.wantAudited("INTEGRATION_RUN_STARTED", 1)
		b.wantAudited("INTEGRATION_RUN_ENDED", 1)
	})
}

// TestAnswerBeforeAcceptance checks that an engine may answer while it is being called, and even
// let that call fail.
func TestAnswerBeforeAcceptance(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, e := newBench(t, c), newEngine(t)
		it := b.create(Draft{Name: "flow", Kind: Workflow, Endpoint: e.URL, Credential: engineKey})
		e.during = func(r startedRun) {
			if _, err := b.Answer(ctx, scope.Scope{Tenant: scope.DefaultTenant}, it.ID, r.Data.Run, answerOf(r, RunFailed)); err != nil {
				t.Error(err)
			}
		}
		for _, status := range []int{200, 500} {
			e.set(status)
			b.queue(it.ID, "one")
			b.turn("a", it.ID)
			b.clock.Move(longestWait)
			b.turn("a", it.ID)
			if r := b.run(it.ID); r.Status != RunFailed || r.Message != "done" {
				t.Errorf("status %d: the run is %+v, want failed with the answer's message", status, r)
			}
		}
		if len(e.got) != 2 {
			t.Errorf("the engine got %d calls, want 2", len(e.got))
		}
	})
}

// TestEndedRunIsNotSent checks that the message of a run that has ended is dropped, and says nothing
// about the system: a system that is down stays down, and a run that was not sent has not started.
func TestEndedRunIsNotSent(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, e := newBench(t, c), newEngine(t)
		it := b.create(Draft{Name: "flow", Kind: Workflow, Endpoint: e.URL, Credential: engineKey})
		e.set(500)
		b.queue(it.ID, "one")
		for range outage {
			b.turn("a", it.ID)
			b.clock.Move(longestWait)
		}
		b.wantAudited("INTEGRATION_FAILING", 1)
		last := e.last(t)
		errtest.Must(t, errtest.Of(b.Answer(ctx, scope.Scope{Tenant: scope.DefaultTenant}, it.ID, last.Data.Run, answerOf(last, RunFailed))))
		b.turn("a", it.ID)
		if len(e.got) != outage {
			t.Errorf("the engine got %d calls, want %d", len(e.got), outage)
		}
		b.wantAudited("INTEGRATION_RUN_STARTED", 0)
		b.wantAudited("INTEGRATION_RECOVERED", 0)
		if got, err := b.Get(ctx, admin, it.ID); err != nil || got.LastSuccessAt != nil || got.Failures != outage {
			t.Errorf("the integration is %+v, error %v, want %d failures and no success", got, err, outage)
		}
		e.set(202)
		b.queue(it.ID, "two")
		b.turn("a", it.ID)
		b.wantAudited("INTEGRATION_RUN_STARTED", 1)
		b.wantAudited("INTEGRATION_RECOVERED", 1)
	})
}

// TestRunsWithoutAnswer checks that runs end if nobody answers, the message is not accepted, or the
// integration gets another host.
func TestRunsWithoutAnswer(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, e := newBench(t, c), newEngine(t)
		it := b.create(Draft{Name: "flow", Kind: Workflow, Endpoint: e.URL, Credential: engineKey, Settings: map[string]any{"answer_within": "1h"}})
		wantAnswerRefused := func(code string) {
			t.Helper()
			got := e.last(t)
			_, err := b.Answer(ctx, scope.Scope{Tenant: scope.DefaultTenant}, it.ID, got.Data.Run, answerOf(got, RunSucceeded))
			b.wantCode(err, code)
		}
		wantStatus := func(want string) {
			t.Helper()
			if r := b.run(it.ID); r.Status != want {
				t.Errorf("the run is %+v, want %s", r, want)
			}
		}
		b.queue(it.ID, "late")
		b.turn("a", it.ID)
		b.clock.Move(time.Hour)
		wantAnswerRefused("callback_expired")
		wantStatus(RunExpired)
		errtest.Must(t, b.TidyRuns(ctx, scope.DefaultTenant))
		wantAnswerRefused("callback_expired")
		wantStatus(RunExpired)
		b.wantAudited("INTEGRATION_RUN_ENDED", 1)

		b.queue(it.ID, "disabled")
		b.turn("a", it.ID)
		off, on := false, true
		errtest.Must(t, errtest.Of(b.Update(ctx, admin, it.ID, Change{Enabled: &off}, 0)))
		wantAnswerRefused("integration_disabled")
		wantStatus(RunRunning)
		moved := newEngine(t).URL
		errtest.Must(t, errtest.Of(b.Update(ctx, admin, it.ID, Change{Enabled: &on, Endpoint: &moved, Credential: engineKey}, 0)))
		wantAnswerRefused("invalid_callback")
		wantStatus(RunFailed)
		errtest.Must(t, errtest.Of(b.Update(ctx, admin, it.ID, Change{Endpoint: &e.URL, Credential: engineKey}, 0)))

		e.set(500)
		b.queue(it.ID, "refused")
		for range maxAttempts {
			b.turn("a", it.ID)
			b.clock.Move(longestWait)
		}
		wantStatus(RunFailed)
		wantAnswerRefused("invalid_callback")

		b.clock.Move(keptRuns + time.Hour)
		errtest.Must(t, b.TidyRuns(ctx, scope.DefaultTenant))
		if page, err := b.Runs(ctx, admin, it.ID, "", 0, 10); err != nil || page.Total != 0 {
			t.Errorf("Runs after their time = %+v, error %v, want none", page, err)
		}
	})
}

// TestTestStartsARun checks that a test sends the system a callback that works.
func TestTestStartsARun(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, e := newBench(t, c), newEngine(t)
		it := b.create(Draft{Name: "flow", Kind: Workflow, Endpoint: e.URL, Credential: engineKey})
		if res, err := b.Test(ctx, admin, it.ID); err != nil || !res.Delivered {
			t.Fatalf("Test = %+v, error %v, want delivered", res, err)
		}
		got := e.last(t)
		if _, err := b.Answer(ctx, scope.Scope{Tenant: scope.DefaultTenant}, it.ID, got.Data.Run, answerOf(got, RunSucceeded)); err != nil || !got.Data.Test {
			t.Errorf("the answer to the test %+v: %v, want it accepted", got, err)
		}
		e.set(404)
		if res, err := b.Test(ctx, admin, it.ID); err != nil || res.Delivered {
			t.Errorf("Test with 404 = %+v, error %v, want not delivered", res, err)
		}
		for status, want := range map[string]int64{RunSucceeded: 1, RunFailed: 1, RunRunning: 0, "": 2} {
			if page, err := b.Runs(ctx, admin, it.ID, status, 0, 10); err != nil || page.Total != want || int64(len(page.Runs)) != want {
				t.Errorf("Runs(%q) = %+v, error %v, want %d", status, page, err, want)
			}
		}
	})
}

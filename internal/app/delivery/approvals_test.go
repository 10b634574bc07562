package delivery_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// approvals is a tenant's approval system.
type approvals struct {
	*httptest.Server
	mu  sync.Mutex
	got []item
}

// item is a message to the approval system.
type item struct {
	Type string `json:"event_type"`
	Data struct {
		Callback struct{ URL, Token string }
		Request  int64  `json:"access_request_id"`
		Subject  string `json:"subject_id"`
		Action   string
		Resource struct{ Name string }
		Reason   string
		Duration *int64 `json:"duration_seconds"`
	}
}

// newApprovals starts an approval system.
func newApprovals(t *testing.T) *approvals {
	a := &approvals{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var it item
		if err := json.NewDecoder(r.Body).Decode(&it); err != nil {
			t.Error(err)
		}
		a.mu.Lock()
		a.got = append(a.got, it)
		a.mu.Unlock()
	}))
	t.Cleanup(a.Close)
	return a
}

// waitFor waits for the message of a type about a request.
func (a *approvals) waitFor(t *testing.T, kind string, request int64) (found item) {
	t.Helper()
	apptest.Eventually(t, time.Minute, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, it := range a.got {
			if it.Type == kind && it.Data.Request == request {
				found = it
				return nil
			}
		}
		return fmt.Errorf("the system has got %d messages, none is %s about the request %d", len(a.got), kind, request)
	})
	return found
}

// answer answers a message through its callback, without a credential.
func (i item) answer(t *testing.T, s *apptest.Server, doc body) *apptest.Response {
	t.Helper()
	u, err := url.Parse(i.Data.Callback.URL)
	errtest.Must(t, err)
	doc["token"] = i.Data.Callback.Token
	return s.Anonymous().Do(t, "POST", strings.TrimPrefix(u.Path, "/api/v1")+"?"+u.RawQuery, doc)
}

// TestApprovalQueue checks that an approval system decides on requests for access with callbacks, once
// for each request, and grants no more than was requested.
func TestApprovalQueue(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w, queue := newAccessFixture(t, s), newApprovals(t)
			made := s.Admin.Do(t, "POST", "/integrations", body{
				"name": "approvals", "kind": "approval_queue", "endpoint": queue.URL, "credential": "key-of-the-queue", "environment": "sandbox", "settings": body{"longest_grant": "1h"},
			}).Want(201)
			s.Admin.Do(t, "POST", "/integrations", body{
				"name": "elsewhere", "kind": "approval_queue", "endpoint": queue.URL + "/other", "credential": "key-of-the-queue", "environment": "production",
			}).Want(201)
			file := func(user string, seconds any) item {
				t.Helper()
				ask := body{"subject": body{"id": user}, "action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "the audit of May"}
				if seconds != nil {
					ask["duration_seconds"] = seconds
				}
				return queue.waitFor(t, "access.requested", root(w.app).Do(t, "POST", requests+"?environment=sandbox", ask).Want(201).ID())
			}
			state := func(i item) *apptest.Response { return w.request(t, i.Data.Request) }

			ada := file("ada", 1800)
			if ada.Type != "access.requested" || ada.Data.Subject != "ada" || ada.Data.Action != "read" || ada.Data.Resource.Name != "payroll" || ada.Data.Duration == nil || *ada.Data.Duration != 1800 {
				t.Errorf("the system got %+v, want the request of ada to read payroll for 1800 s", ada)
			}
			ada.answer(t, s, body{"status": "succeeded"}).WantError(422, "validation_failed")
			ada.answer(t, s, body{"status": "approved", "duration_seconds": 1801}).WantError(422, "validation_failed")
			ada.answer(t, s, body{"status": "approved", "answered_by": "ADA"}).WantError(403, "own_request")
			if got := state(ada); got.Get("status") != "pending" {
				t.Errorf("the request after refused answers is %s, want pending", got.Body)
			}
			approve := func() (*apptest.Response, error) {
				u, _ := url.Parse(ada.Data.Callback.URL)
				return s.Anonymous().Try("POST", strings.TrimPrefix(u.Path, "/api/v1")+"?"+u.RawQuery, body{"token": ada.Data.Callback.Token, "status": "approved", "answered_by": "carol", "message": "for the audit"})
			}
			if got := inParallel(t, approve, approve, approve, approve); got[200] != 1 || got[409] != 3 {
				t.Errorf("the statuses of four equal answers = %v, want 200 once and 409", got)
			}
			got := state(ada)
			for member, want := range map[string]any{"status": "approved", "decided_by": "approvals: carol", "decision_reason": "for the audit"} {
				if got.Get(member) != want {
					t.Errorf("the request's %s is %v, want %v", member, got.Get(member), want)
				}
			}
			begin, err := time.Parse(time.RFC3339, fmt.Sprint(got.Get("starts_at")))
			end, err2 := time.Parse(time.RFC3339, fmt.Sprint(got.Get("expires_at")))
			if err != nil || err2 != nil || end.Sub(begin) != 30*time.Minute {
				t.Errorf("the grant is %s, want 30 minutes", got.Body)
			}
			w.wantDecision(t, "ada", "PERMIT")
			ada.answer(t, s, body{"status": "denied"}).WantError(409, "already_answered")

			// Without a duration, the integration's limit applies.
			bob := file("bob", nil)
			bob.answer(t, s, body{"status": "approved", "duration_seconds": 3601}).WantError(422, "validation_failed")
			bob.answer(t, s, body{"status": "denied", "message": "use the report"}).Want(200)
			if got := state(bob); got.Get("status") != "denied" || got.Get("decided_by") != "approvals" || got.Get("decision_reason") != "use the report" {
				t.Errorf("the request is %s, want denied by the queue", got.Body)
			}
			w.wantDecision(t, "bob", "DENY")

			// The first decision counts.
			eve := file("eve", nil)
			w.act(t, w.approver, eve.Data.Request, "deny", body{"reason": "no"}).Want(200)
			eve.answer(t, s, body{"status": "approved"}).WantError(409, "already_decided")
			w.wantDecision(t, "eve", "DENY")

			runs := s.Admin.Do(t, "GET", fmt.Sprintf("/integrations/%d/runs", made.ID()), nil).Want(200)
			log := string(s.Admin.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
			if runs.Get("total") != 3.0 || !strings.Contains(string(runs.Body), `"status":"approved"`) || !strings.Contains(log, fmt.Sprintf(`"integration:%d"`, made.ID())) {
				t.Errorf("the runs are %s, want 3 with an approved one, and the integration in the audit", runs.Body)
			}
			for _, i := range []item{ada, bob, eve} {
				if strings.Contains(log+string(runs.Body)+s.Log.String(), i.Data.Callback.Token) {
					t.Error("the audit, the runs or the log show a callback's token")
				}
			}

			// With access_requests set to ignore, the queue gets no requests.
			s.Admin.Do(t, "PUT", fmt.Sprintf("/integrations/%d", made.ID()), body{"settings": body{"access_requests": "ignore"}}).Want(200)
			w.fileRequest(t, "dan")
			if runs := s.Admin.Do(t, "GET", fmt.Sprintf("/integrations/%d/runs", made.ID()), nil).Want(200); runs.Get("total") != 3.0 {
				t.Errorf("the runs after an ignored request are %s, want 3", runs.Body)
			}
		})
	}
}

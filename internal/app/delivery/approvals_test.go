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
)

// approvals is a tenant's approval system.
type approvals struct {
	*httptest.Server
	mu  sync.Mutex
	got []item
}

// item is what it got of a request for access.
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

// await waits for the item of a request.
func (a *approvals) await(t *testing.T, request int64) (found item) {
	t.Helper()
	apptest.Eventually(t, time.Minute, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, it := range a.got {
			if it.Data.Request == request {
				found = it
				return nil
			}
		}
		return fmt.Errorf("request %d is not among %d items", request, len(a.got))
	})
	return found
}

// answer answers an item by its callback, without a credential.
func (i item) answer(t *testing.T, s *apptest.Server, doc body) *apptest.Response {
	t.Helper()
	u, err := url.Parse(i.Data.Callback.URL)
	if err != nil {
		t.Fatal(err)
	}
	doc["token"] = i.Data.Callback.Token
	return s.Anonymous().Do(t, "POST", strings.TrimPrefix(u.Path, "/api/v1")+"?"+u.RawQuery, doc)
}

// TestApprovalQueue: an approval system decides requests for access by its callback. It grants
// what was requested, once, and no more.
func TestApprovalQueue(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w, queue := newAccessWorld(t, s), newApprovals(t)
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
				return queue.await(t, root(w.app).Do(t, "POST", requests+"?environment=sandbox", ask).Want(201).ID())
			}
			state := func(i item) *apptest.Response {
				t.Helper()
				return root(w.approver).Do(t, "GET", fmt.Sprintf("%s/%d", requests, i.Data.Request), nil).Want(200)
			}

			ada := file("ada", 1800)
			if ada.Type != "access.requested" || ada.Data.Subject != "ada" || ada.Data.Action != "read" || ada.Data.Resource.Name != "payroll" || ada.Data.Duration == nil || *ada.Data.Duration != 1800 {
				t.Errorf("the system got %+v", ada)
			}
			answer(t, ada.answer(t, s, body{"status": "succeeded"}), 422, "validation_failed")
			answer(t, ada.answer(t, s, body{"status": "approved", "duration_seconds": 1801}), 422, "validation_failed")
			answer(t, ada.answer(t, s, body{"status": "approved", "answered_by": "ADA"}), 403, "own_request")
			if got := state(ada); got.Get("status") != "pending" {
				t.Errorf("a refused answer decided: %s", got.Body)
			}
			approve := func() (*apptest.Response, error) {
				u, _ := url.Parse(ada.Data.Callback.URL)
				return s.Anonymous().Try("POST", strings.TrimPrefix(u.Path, "/api/v1")+"?"+u.RawQuery, body{"token": ada.Data.Callback.Token, "status": "approved", "answered_by": "carol", "message": "for the audit"})
			}
			if got := atOnce(t, approve, approve, approve, approve); got[200] != 1 || got[409] != 3 {
				t.Errorf("equal answers: %v", got)
			}
			got := state(ada)
			for member, want := range map[string]any{"status": "approved", "decided_by": "approvals: carol", "decision_reason": "for the audit"} {
				if got.Get(member) != want {
					t.Errorf("%s is %v, want %v", member, got.Get(member), want)
				}
			}
			begin, err := time.Parse(time.RFC3339, fmt.Sprint(got.Get("starts_at")))
			end, err2 := time.Parse(time.RFC3339, fmt.Sprint(got.Get("expires_at")))
			if err != nil || err2 != nil || end.Sub(begin) != 30*time.Minute {
				t.Errorf("the grant is %s", got.Body)
			}
			w.says(t, "ada", "PERMIT")
			answer(t, ada.answer(t, s, body{"status": "denied"}), 409, "already_answered")

			// Without a duration, the integration's limit holds.
			bob := file("bob", nil)
			answer(t, bob.answer(t, s, body{"status": "approved", "duration_seconds": 3601}), 422, "validation_failed")
			answer(t, bob.answer(t, s, body{"status": "denied", "message": "use the report"}), 200, "")
			if got := state(bob); got.Get("status") != "denied" || got.Get("decided_by") != "approvals" || got.Get("decision_reason") != "use the report" {
				t.Errorf("denied: %s", got.Body)
			}
			w.says(t, "bob", "DENY")

			// Whoever decides first decides.
			eve := file("eve", nil)
			w.act(t, w.approver, eve.Data.Request, "deny", body{"reason": "no"}).Want(200)
			answer(t, eve.answer(t, s, body{"status": "approved"}), 409, "already_decided")
			w.says(t, "eve", "DENY")

			runs := s.Admin.Do(t, "GET", fmt.Sprintf("/integrations/%d/runs", made.ID()), nil).Want(200)
			log := string(s.Admin.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
			if runs.Get("total") != 3.0 || !strings.Contains(string(runs.Body), `"status":"approved"`) || !strings.Contains(log, fmt.Sprintf(`"integration:%d"`, made.ID())) {
				t.Errorf("the runs are %s", runs.Body)
			}
			for _, i := range []item{ada, bob, eve} {
				if strings.Contains(log+string(runs.Body)+s.Log.String(), i.Data.Callback.Token) {
					t.Error("a token is shown")
				}
			}

			// A queue that ignores requests for access gets none.
			s.Admin.Do(t, "PUT", fmt.Sprintf("/integrations/%d", made.ID()), body{"settings": body{"access_requests": "ignore"}}).Want(200)
			w.file(t, "dan")
			if runs := s.Admin.Do(t, "GET", fmt.Sprintf("/integrations/%d/runs", made.ID()), nil).Want(200); runs.Get("total") != 3.0 {
				t.Errorf("the runs are %s", runs.Body)
			}
		})
	}
}

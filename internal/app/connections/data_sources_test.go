package connections_test

import (
	"cmp"
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
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// directory is a data source with people and their grades.
type directory struct {
	*httptest.Server
	mu     sync.Mutex
	people map[string]int
	status int           // 0: it works
	calls  int           // that have come
	hold   chan struct{} // not nil: calls wait for it
}

func newDirectory(t *testing.T, people map[string]int) *directory {
	d := &directory{people: people}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.calls++
		status, hold := d.status, d.hold
		var list []body
		for id, grade := range d.people {
			list = append(list, body{"id": id, "private": "not mapped", "job": body{"grade": grade}})
		}
		d.mu.Unlock()
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
				return
			}
		}
		switch {
		case r.Header.Get("Authorization") != "Bearer directory-token-4711":
			w.WriteHeader(http.StatusUnauthorized)
		case status != 0:
			w.WriteHeader(status)
			fmt.Fprint(w, "inner-words-of-the-source")
		default:
			_ = json.NewEncoder(w).Encode(body{"people": list})
		}
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *directory) set(edit func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	edit()
}

// draft returns a connection to the directory.
func (d *directory) draft(name string) body {
	return body{
		"name": name, "provider": "http_json", "connection_type": "identity", "sync_frequency": "manual",
		"configuration": body{"url": d.URL + "/people", "records": "$.people", "key": "id", "fields": body{"grade": "$.job.grade"}},
		"credentials":   body{"token": "directory-token-4711"},
	}
}

// syncAndWait triggers a sync and waits for its end.
func syncAndWait(t *testing.T, a *apptest.Client, id int64, want string) *apptest.Response {
	t.Helper()
	started := a.Do(t, "POST", fmt.Sprintf("/pip/connections/%d/trigger-sync", id), nil).Want(202)
	if started.Get("connection_id") != float64(id) || started.Get("message") == "" || started.Get("status") == nil {
		t.Errorf("POST trigger-sync = %s, want a job", started.Body)
	}
	path := fmt.Sprintf("/pip/connections/%d/syncs/%.0f", id, started.Get("sync_job_id"))
	var res *apptest.Response
	apptest.Eventually(t, time.Minute, func() error {
		res = a.Do(t, "GET", path, nil).Want(200)
		if status := res.Get("status"); status == "pending" || status == "in_progress" {
			return fmt.Errorf("the sync is %s, want it ended", status)
		}
		return nil
	})
	if res.Get("status") != want {
		t.Fatalf("the sync = %s, want it %s", res.Body, want)
	}
	return res
}

// TestDataSourceAge checks that operators and alert rules see the age of a source's data.
func TestDataSourceAge(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, d := s.Admin, newDirectory(t, map[string]int{"ada": 7})
		id := a.Do(t, "POST", "/pip/connections", d.draft("hr")).Want(201).ID()
		syncAndWait(t, a, id, "completed")
		gauge := fmt.Sprintf(`gatehouse_data_source_age_seconds{connection="%d",tenant="default"}`, id)
		host := *a
		host.Base = s.URL
		apptest.Eventually(t, 2*time.Minute, func() error {
			if text := string(host.Do(t, "GET", "/metrics", nil).Want(200).Body); !strings.Contains(text, gauge) {
				return fmt.Errorf("the metrics lack %s", gauge)
			}
			return nil
		})
		rule := func(of any) body {
			return body{"name": fmt.Sprint("age of ", of), "environment": "production", "trigger": body{"metric": "data_source_age", "operator": ">=", "threshold": 0, "filter": body{"connection_id": of}}}
		}
		a.Do(t, "POST", "/notifications/alert-rules", rule(id+1)).Want(422)
		wrong := rule(id)
		wrong["trigger"].(body)["filter"] = body{"connection_id": id, "subject_id": "ada"}
		a.Do(t, "POST", "/notifications/alert-rules", wrong).Want(422)
		if p := a.Do(t, "POST", "/notifications/alert-rules/preview", rule(id)).Want(200); p.Get("would_have_resolved") != 0.0 {
			t.Errorf("the preview of the rule = %s, want none resolved", p.Body)
		}
		path := fmt.Sprintf("/notifications/alert-rules/%d", a.Do(t, "POST", "/notifications/alert-rules", rule(id)).Want(201).ID())
		apptest.Eventually(t, 2*time.Minute, func() error {
			if r := a.Do(t, "GET", path, nil).Want(200); r.Get("firing") != true || r.Get("last_value") == nil {
				return fmt.Errorf("the rule = %s, want it firing", r.Body)
			}
			return nil
		})
		a.Do(t, "DELETE", fmt.Sprintf("/pip/connections/%d", id), nil).Want(200)
		if r := a.Do(t, "GET", path, nil).Want(200); r.Get("problem") != fmt.Sprintf("the data source %d does not exist", id) {
			t.Errorf("the rule without its source = %s, want the problem", r.Body)
		}
	})
}

// TestDataSources goes through the life of a data source, as its owner, controls, others of the
// tenant and another tenant see it.
func TestDataSources(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, d := s.Admin, newDirectory(t, map[string]int{"ada": 7, "bob": 3})
		apptest.Activate(t, a, "by grade", "production", `package by_grade

allow if data.pip["HR people"][input.user.id].grade >= 7

deny contains "the grades are old" if data.pip._meta["HR people"].stale
`, nil)
		decide := func(user, want string) {
			t.Helper()
			res := a.With("X-Environment", "production").Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": user}, "resource": body{"type": "api", "path": "/x"}, "action": body{"name": "read"}}).Want(200)
			if res.Get("decision") != want {
				t.Errorf("the decision for %s = %s, want %s", user, res.Body, want)
			}
		}
		decide("ada", "DENY")

		// Trying it shows what controls would see, and stores nothing.
		tried := a.Do(t, "POST", "/pip/connections/test", d.draft("HR people")).Want(200)
		if tried.Get("success") != true || tried.Get("response_time") == nil || !strings.Contains(string(tried.Body), `"fields":[{"name":"grade","type":"number"}]`) ||
			!strings.Contains(string(tried.Body), `{"grade":`) || strings.Contains(string(tried.Body), "not mapped") {
			t.Errorf("the test of the source = %s, want a sample", tried.Body)
		}
		wrong := d.draft("HR people")
		wrong["credentials"] = body{"token": "another"}
		if tried = a.Do(t, "POST", "/pip/connections/test", wrong).Want(200); tried.Get("success") != false || tried.Get("response_code") != 401.0 {
			t.Errorf("the test with a wrong token = %s, want a failure with 401", tried.Body)
		}
		if res := a.Do(t, "GET", "/pip/connections", nil).Want(200); res.Get("total") != 0.0 {
			t.Errorf("the connections after a test = %s, want none", res.Body)
		}

		made := a.Do(t, "POST", "/pip/connections", d.draft("HR people")).Want(201)
		path := fmt.Sprintf("/pip/connections/%d", made.ID())
		if made.Get("credentials_set") != true || made.Get("status") != "pending" || made.Get("health_status") != "unknown" || made.Get("next_sync") != nil {
			t.Errorf("POST /pip/connections = %s, want the connection without its credential", made.Body)
		}
		a.Do(t, "POST", "/pip/connections", d.draft("hr PEOPLE")).Want(409)

		// Controls of both environments see its data from the next decision on.
		if y := syncAndWait(t, a, made.ID(), "completed"); y.Get("records_synced") != 2.0 || y.Get("changed") != true || y.Get("reason") != "manual" {
			t.Errorf("the sync = %s, want 2 changed records", y.Body)
		}
		decide("ada", "PERMIT")
		decide("bob", "DENY")
		d.set(func() { d.people["bob"] = 8; delete(d.people, "ada") })
		syncAndWait(t, a, made.ID(), "completed")
		decide("ada", "DENY")
		decide("bob", "PERMIT")
		if y := syncAndWait(t, a, made.ID(), "completed"); y.Get("changed") != false {
			t.Errorf("the sync of unchanged data = %s, want no change", y.Body)
		}

		// A source that fails keeps its last good data, and everybody can tell.
		d.set(func() { d.status = 503 })
		if y := syncAndWait(t, a, made.ID(), "failed"); y.Get("response_code") != 503.0 || y.Get("records_synced") != 1.0 {
			t.Errorf("the failed sync = %s, want 503 and 1 record", y.Body)
		}
		got := a.Do(t, "GET", path, nil).Want(200)
		if got.Get("health_status") != "stale" || got.Get("status") != "error" || got.Get("records_synced") != 1.0 || got.Get("last_sync") == nil ||
			got.Get("data_age_seconds") == nil || !strings.Contains(fmt.Sprint(got.Get("last_error")), "503") {
			t.Errorf("the connection after a failure = %s, want it stale with the old record and the error", got.Body)
		}
		decide("bob", "DENY") // because the control refuses old grades
		d.set(func() { d.status = 0 })
		syncAndWait(t, a, made.ID(), "completed")
		decide("bob", "PERMIT")

		// Credentials stay with the host that they were given for, and are never shown.
		elsewhere := newDirectory(t, nil)
		moved := elsewhere.draft("x")["configuration"]
		a.Do(t, "PUT", path, body{"configuration": moved}).ExpectError("another host", 422, "credential_required")
		a.Do(t, "PUT", path, body{"configuration": body{"url": d.URL, "oauth": body{"token_url": elsewhere.URL}}}).ExpectError("another token endpoint", 422, "credential_required")

		// A change is tested with the stored credentials, but not at another host.
		trial := d.draft("HR people")
		delete(trial, "credentials")
		trial["connection_id"] = made.ID()
		if res := a.Do(t, "POST", "/pip/connections/test", trial).Want(200); res.Get("success") != true {
			t.Errorf("the test with the stored credential = %s, want success", res.Body)
		}
		trial["configuration"] = moved
		a.Do(t, "POST", "/pip/connections/test", trial).ExpectError("a test of another host", 422, "credential_required")
		trial["connection_id"] = 999_999
		a.Do(t, "POST", "/pip/connections/test", trial).Want(404)
		a.With("If-Match", `"1"`).Do(t, "PUT", path, body{"connection_type": "people"}).Want(200)
		a.With("If-Match", `"1"`).Do(t, "PUT", path, body{"connection_type": "late"}).Want(412)
		a.With("If-Match", `"1"`).Do(t, "DELETE", path, nil).Want(412)

		// A new name is a new name for controls.
		a.Do(t, "PUT", path, body{"name": "staff"}).Want(200)
		decide("bob", "DENY")
		a.Do(t, "PUT", path, body{"name": "HR people"}).Want(200)
		decide("bob", "PERMIT")

		list := a.Do(t, "GET", path+"/syncs?limit=2", nil).Want(200)
		if list.Get("total") != 5.0 || strings.Count(string(list.Body), `"sync_job`)+strings.Count(string(list.Body), `"reason"`) != 2 {
			t.Errorf("the list of syncs = %s, want 2 of 5", list.Body)
		}
		for query, want := range map[string]float64{"": 1, "?connection_type=people": 1, "?connection_type=x": 0, "?health_status=healthy": 1, "?health_status=stale": 0, "?provider=http_json": 1, "?skip=1": 1} {
			if res := a.Do(t, "GET", "/pip/connections"+query, nil).Want(200); res.Get("total") != want {
				t.Errorf("GET /pip/connections%s = %s, want %v", query, res.Body, want)
			}
		}
		checkStrangers(t, s, d, made.ID())

		a.Do(t, "DELETE", path, nil).Want(200)
		a.Do(t, "GET", path, nil).Want(404)
		decide("bob", "DENY")
		log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		for _, kind := range []string{"PIP_CONNECTION_CREATED", "PIP_CONNECTION_UPDATED", "PIP_CONNECTION_DELETED", "PIP_SYNC_REQUESTED", "PIP_SYNC_COMPLETED", "PIP_SYNC_FAILED", "PIP_SYNC_RECOVERED"} {
			if !strings.Contains(log, kind) {
				t.Errorf("the audit lacks %s", kind)
			}
		}
		for what, text := range map[string]string{"audit": log, "log": s.Log.String(), "connection": string(got.Body), "list": string(list.Body)} {
			if strings.Contains(text, "directory-token-4711") || strings.Contains(text, "inner-words-of-the-source") {
				t.Errorf("the %s has a secret or a text of the source", what)
			}
		}
	})
}

// checkStrangers checks what another tenant, and people without permission, get of a connection.
func checkStrangers(t *testing.T, s *apptest.Server, d *directory, id int64) {
	a := s.Admin
	a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201)
	other := a.With("X-Tenant-ID", "other")
	for _, op := range []string{"GET ", "PUT ", "DELETE ", "POST /trigger-sync", "GET /syncs", "GET /syncs/1"} {
		method, rest, _ := strings.Cut(op, " ")
		foreign := other.Do(t, method, fmt.Sprintf("/pip/connections/%d%s", id, rest), body{}).Want(404)
		never := other.Do(t, method, "/pip/connections/987654"+rest, body{}).Want(404)
		if foreign.Get("message") != never.Get("message") {
			t.Errorf("%s of another tenant's connection = %s, want %s as for an unknown one", op, foreign.Body, never.Body)
		}
	}
	reader := s.WithKey(a.Do(t, "POST", "/tenants/default/api-keys", body{"name": "reader", "scopes": []string{"pip:read"}}).Want(201).Text("key"))
	reader.Do(t, "GET", "/pip/connections", nil).Want(200)
	reader.Do(t, "POST", "/pip/connections/test", d.draft("x")).Want(403)
	reader.Do(t, "POST", fmt.Sprintf("/pip/connections/%d/trigger-sync", id), nil).Want(403)
	s.Key(t, a, "production", "pip:read", "policies:read").Do(t, "GET", "/pip/connections", nil).Want(403)

	// What is wrong is said, at its place; what leads inside is refused.
	for _, c := range []struct {
		pointer string
		edit    func(draft, configuration body)
	}{
		{"/name", func(d, _ body) { d["name"] = "_meta" }},
		{"/name", func(d, _ body) { d["name"] = "a\u0007b" }},
		{"/name", func(d, _ body) { d["name"] = "right\u202eleft" }},
		{"/name", func(d, _ body) { d["name"] = " " }},
		{"/provider", func(d, _ body) { d["provider"] = "imagined" }},
		{"/configuration/url", func(_, c body) { c["url"] = "http://10.0.0.8/" }},
		{"/configuration/url", func(_, c body) { c["url"] = "http://169.254.169.254/latest/meta-data" }},
		{"/configuration/url", func(_, c body) { c["url"] = "https://user:pass@example.com/" }},
		{"/configuration/url", func(_, c body) { c["url"] = "file:///etc/passwd" }},
		{"/configuration/oauth/token_url", func(_, c body) { c["oauth"] = body{"token_url": "http://192.168.0.1/"} }},
		{"/configuration/key", func(_, c body) { c["key"] = "$..id" }},
		{"/configuration/unknown", func(_, c body) { c["unknown"] = 1 }},
		{"/credentials/token", func(d, _ body) { d["credentials"] = body{"token": "a\nb"} }},
		{"/credentials", func(d, _ body) { d["credentials"] = body{"token": "a", "username": "b"} }},
	} {
		draft := d.draft("another")
		c.edit(draft, draft["configuration"].(body))
		for _, path := range []string{"/pip/connections", "/pip/connections/test"} {
			if res := a.Do(t, "POST", path, draft).Want(422); !strings.Contains(string(res.Body), `"`+c.pointer+`"`) {
				t.Errorf("%s with a wrong member lacks the pointer %s: %s", path, c.pointer, res.Body)
			}
		}
	}
}

// TestDataSourceSchedule checks that a connection with a schedule is synced automatically, and that
// a change during a sync applies the new configuration.
func TestDataSourceSchedule(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, d := s.Admin, newDirectory(t, map[string]int{"ada": 7})
		hold := make(chan struct{})
		d.set(func() { d.hold = hold })
		draft := d.draft("hr")
		draft["sync_frequency"] = "daily"
		made := a.Do(t, "POST", "/pip/connections", draft).Want(201)
		path := fmt.Sprintf("/pip/connections/%d", made.ID())
		apptest.Eventually(t, time.Minute, func() error {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.calls == 0 {
				return fmt.Errorf("the source has got no request")
			}
			return nil
		})
		running := a.Do(t, "POST", path+"/trigger-sync", nil).Want(202)
		if running.Get("status") != "in_progress" {
			t.Errorf("POST trigger-sync during a sync = %s, want in_progress", running.Body)
		}
		a.Do(t, "PUT", path, body{"configuration": body{"url": d.URL, "records": "$.people", "key": "id", "fields": body{"level": "$.job.grade"}}}).Want(200)
		d.set(func() { d.hold = nil })
		close(hold)
		apptest.Eventually(t, time.Minute, func() error {
			res := a.Do(t, "GET", path, nil).Want(200)
			if res.Get("status") != "active" || res.Get("next_sync") == nil {
				return fmt.Errorf("the connection = %s, want it active with the next sync", res.Body)
			}
			return nil
		})
		apptest.Activate(t, a, "by level", "sandbox", "package by_level\n\nallow if data.pip.hr[input.user.id].level == 7\n", nil)
		res := a.With("X-Environment", "sandbox").Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ada"}, "resource": body{"type": "api", "path": "/x"}, "action": body{"name": "read"}}).Want(200)
		if res.Get("decision") != "PERMIT" {
			t.Errorf("the decision after the change = %s, want PERMIT by the new configuration's data", res.Body)
		}
	})
}

// TestDataSourceBundles checks that a bouncer gets the data that its controls read, and not even
// the names of other sources. New data creates a new revision only for that bouncer.
func TestDataSourceBundles(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, d := s.Admin, newDirectory(t, map[string]int{"ada": 7})
		made := a.Do(t, "POST", "/pip/connections", d.draft("hr")).Want(201)
		other := a.Do(t, "POST", "/pip/connections", d.draft("payroll-canary")).Want(201)
		syncAndWait(t, a, made.ID(), "completed")
		syncAndWait(t, a, other.ID(), "completed")
		type edge struct {
			*apptest.BouncerProcess
			client *apptest.Client
		}
		edges := map[string]edge{}
		for name, rule := range map[string]string{
			"reads":   "allow if data.pip.hr[input.user.id].grade >= 7\n\ndeny contains \"old\" if data.pip._meta.hr.stale",
			"without": "allow := true",
		} {
			resource := a.Do(t, "POST", "/resources", body{"name": name, "type": "api", "path": "/" + name, "environment": "sandbox"}).Want(201).ID()
			apptest.Activate(t, a, name, "sandbox", "package "+name+"\n\n"+rule+"\n", body{"resource_id": resource})
			b := s.Register(t, a, body{"name": name, "environment": "sandbox", "resource_ids": []int64{resource}}, "127.0.0.1:1")
			c := s.WithToken(b.Token)
			edges[name] = edge{b, c}
		}
		get := func(name string) (text, tag string) {
			t.Helper()
			res := edges[name].client.Do(t, "GET", fmt.Sprint("/bridge/bundles/", edges[name].ID), nil).Want(200)
			return apptest.Unpacked(t, res.Body), res.Header.Get("ETag")
		}
		awaits := func(name, want string) (text, tag string) {
			t.Helper()
			apptest.Eventually(t, time.Minute, func() error {
				if text, tag = get(name); !strings.Contains(text, want) {
					return fmt.Errorf("the bundle of %s lacks %s", name, want)
				}
				return nil
			})
			return text, tag
		}
		text, tag := awaits("reads", `"ada":{"grade":7}`)
		if strings.Contains(text, "payroll-canary") || !strings.Contains(text, `"_meta":{"hr":{`) {
			t.Errorf("the bundle has another source, or lacks its own: %s", text)
		}
		text, plain := awaits("without", "package without")
		if strings.Contains(text, "grade") || strings.Contains(text, "payroll-canary") || strings.Contains(text, "_meta") {
			t.Errorf("the bundle of a bouncer whose controls read no data = %s, want no source", text)
		}
		d.set(func() { d.people["ada"] = 9 })
		syncAndWait(t, a, other.ID(), "completed")
		syncAndWait(t, a, made.ID(), "completed")
		if _, next := awaits("reads", `"ada":{"grade":9}`); next == tag {
			t.Error("the bundle with new data has the old revision")
		}
		if _, next := get("without"); next != plain {
			t.Errorf("the bouncer whose controls read no data has the revision %s after %s, want the same", next, plain)
		}
	})
}

// TestDataSourceSurvivesKill checks that after a kill during a sync the last good data stays, and
// the next server repeats the sync.
func TestDataSourceSurvivesKill(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		d := newDirectory(t, map[string]int{"ada": 7})
		made := s.Admin.Do(t, "POST", "/pip/connections", d.draft("hr")).Want(201)
		syncAndWait(t, s.Admin, made.ID(), "completed")
		apptest.Activate(t, s.Admin, "by grade", "production", "package by_grade\n\nallow if data.pip.hr[input.user.id].grade >= 7\n", nil)
		hold := make(chan struct{})
		calls := 0
		d.set(func() { d.hold, d.people["ada"], calls = hold, 2, d.calls })
		started := s.Admin.Do(t, "POST", fmt.Sprintf("/pip/connections/%d/trigger-sync", made.ID()), nil).Want(202)
		apptest.Eventually(t, time.Minute, func() error {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.calls == calls {
				return fmt.Errorf("the source has got no request")
			}
			return nil
		})
		s.Kill()
		d.set(func() { d.hold = nil })
		close(hold)
		s = apptest.StartServerOn(t, s.Dir, s.DatabaseURL(), "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
		ask := func() any {
			return s.Admin.With("X-Environment", "production").Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ada"}, "resource": body{"type": "api", "path": "/x"}, "action": body{"name": "read"}}).Want(200).Get("decision")
		}
		path := fmt.Sprintf("/pip/connections/%d/syncs/%.0f", made.ID(), started.Get("sync_job_id"))
		if before := s.Admin.Do(t, "GET", path, nil).Want(200); before.Get("status") == "in_progress" && ask() != "PERMIT" {
			if s.Admin.Do(t, "GET", path, nil).Want(200).Get("status") == "in_progress" {
				t.Error("the decision no longer uses the last good data")
			}
		}
		apptest.Eventually(t, 4*time.Minute, func() error { // the lane of the killed server ends within a minute
			if res := s.Admin.Do(t, "GET", path, nil).Want(200); res.Get("status") != "completed" {
				return fmt.Errorf("the sync = %s, want it done", res.Body)
			}
			return nil
		})
		if got := ask(); got != "DENY" {
			t.Errorf("the decision with the new data = %v, want DENY", got)
		}
	})
}

// TestDatabaseSource checks that a control reads rows of a database, and that no answer and no
// other host gets its credentials.
func TestDatabaseSource(t *testing.T) {
	if fulltest.Inner() {
		t.Skip("needs PostgreSQL: a full run has it")
	}
	u, err := url.Parse(dbtest.Server(t))
	errtest.Must(t, err)
	password, _ := u.User.Password()
	each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		apptest.Activate(t, a, "by level", "production", `package by_level

allow if data.pip.levels[input.user.id].level >= 7
`, nil)
		draft := func(host, query string) body {
			return body{
				"name": "levels", "provider": "sql", "sync_frequency": "manual",
				"configuration": body{"url": "postgres://" + host + u.Path + "?sslmode=disable", "key": "id", "sql": body{"query": query}},
				"credentials":   body{"username": u.User.Username(), "password": cmp.Or(password, "a-secret-4712")},
			}
		}
		const query = "SELECT * FROM (VALUES ('ada', 7), ('bob', 3)) AS people (id, level)"
		if tried := a.Do(t, "POST", "/pip/connections/test", draft(u.Host, query)).Want(200); tried.Get("success") != true || !strings.Contains(string(tried.Body), `{"name":"level","type":"number"}`) {
			t.Errorf("the test of the database = %s, want rows", tried.Body)
		}
		if tried := a.Do(t, "POST", "/pip/connections/test", draft(u.Host, "SELECT nothing")).Want(200); tried.Get("success") != false || !strings.Contains(string(tried.Body), "42703") {
			t.Errorf("the test of a wrong query = %s, want a failure with 42703", tried.Body)
		}
		for _, host := range []string{"10.0.0.1", "169.254.169.254", "[::1]:5432", "0x7f.1:5432"} {
			a.Do(t, "POST", "/pip/connections", draft(host, query)).ExpectError(host, 422, "target_refused")
		}
		made := a.Do(t, "POST", "/pip/connections", draft(u.Host, query)).Want(201)
		if strings.Contains(string(made.Body), "a-secret") {
			t.Errorf("POST /pip/connections = %s, want the connection without its credential", made.Body)
		}
		syncAndWait(t, a, made.ID(), "completed")
		for user, want := range map[string]string{"ada": "PERMIT", "bob": "DENY"} {
			res := a.With("X-Environment", "production").Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": user}, "resource": body{"type": "api", "path": "/x"}, "action": body{"name": "read"}}).Want(200)
			if res.Get("decision") != want {
				t.Errorf("the decision for %s = %s, want %s", user, res.Body, want)
			}
		}
		moved := draft("127.0.0.9:5432", query)["configuration"]
		a.Do(t, "PUT", fmt.Sprintf("/pip/connections/%d", made.ID()), body{"configuration": moved}).ExpectError("another host", 422, "credential_required")
		if res := a.Do(t, "GET", "/pip/connections?provider=sql", nil).Want(200); res.Get("total") != 1.0 {
			t.Errorf("the list by provider = %s, want the database", res.Body)
		}
	})
}

package editors_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestDataSourceInRepository checks that a file of a repository can be a data source: YAML, CSV and
// JSON, of a branch, with a credential. A known commit is not fetched again.
func TestDataSourceInRepository(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			g := newGitHost(t)
			var packs, credentials atomic.Int64
			front := func(w http.ResponseWriter, r *http.Request) bool {
				name, password, _ := r.BasicAuth()
				if name != "reader" || password != "secret-of-the-reader" {
					w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
					w.WriteHeader(http.StatusUnauthorized)
					return true
				}
				credentials.Add(1)
				if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
					packs.Add(1)
				}
				return false
			}
			g.front.Store(&front)
			g.commit(map[string]string{
				"data/people.yaml": "people:\n  - {id: ada, grade: 7}\n  - id: bob\n    grade: 3\n",
				"data/owners.csv":  "id,team\npayroll,finance\n", "data/plain.json": `{"level": 3}`,
				"data/bomb.yaml":  "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
				"data/large.json": `"` + strings.Repeat("x", 9<<20) + `"`, "data/big.json": `["` + strings.Repeat("y", 2<<20) + `"]`,
			})
			s := apptest.StartServer(t, backend, g.env()...)
			a := s.Admin
			apptest.Activate(t, a, "by grade", "sandbox", "package by_grade\n\nallow if data.pip.people[input.user.id].grade >= 7\n", nil)
			draft := func(name, path string, more apptest.Body) apptest.Body {
				c := apptest.Body{"url": g.url, "git": apptest.Body{"path": path}}
				maps.Copy(c, more)
				return apptest.Body{
					"name": name, "provider": "git", "sync_frequency": "manual", "configuration": c,
					"credentials": apptest.Body{"username": "reader", "password": "secret-of-the-reader"},
				}
			}
			people := draft("people", "data/people.yaml", apptest.Body{"records": "$.people", "key": "id"})
			try := func(d apptest.Body) *apptest.Response {
				t.Helper()
				return a.Do(t, "POST", "/pip/connections/test", d).Want(200)
			}
			if r := try(people); r.Get("success") != true || !strings.Contains(string(r.Body), `"grade"`) {
				t.Errorf("the test of YAML = %s, want the fields", r.Body)
			}
			if r := try(draft("owners", "data/owners.csv", apptest.Body{"key": "id"})); r.Get("success") != true || !strings.Contains(string(r.Body), `"finance"`) {
				t.Errorf("the test of CSV = %s, want the rows", r.Body)
			}
			if r := try(draft("big", "data/big.json", nil)); r.Get("success") != true {
				t.Errorf("the test of a file of two MiB = %s, want success", r.Body)
			}
			unreadable := func(what string, d apptest.Body, why string) {
				t.Helper()
				if r := try(d); r.Get("success") != false || !strings.Contains(fmt.Sprint(r.Get("message")), why) || strings.Contains(string(r.Body), "secret-of") {
					t.Errorf("the test of %s = %s, want a failure without the credential", what, r.Body)
				}
			}
			unreadable("no such file", draft("x", "data/none.json", nil), "no file")
			unreadable("a bomb", draft("x", "data/bomb.yaml", nil), "YAML")
			unreadable("a large file", draft("x", "data/large.json", nil), "larger than")
			branch := draft("x", "data/plain.json", nil)
			branch["configuration"].(apptest.Body)["git"].(apptest.Body)["branch"] = "none"
			unreadable("no such branch", branch, "no such branch")
			stranger := draft("x", "data/plain.json", nil)
			stranger["credentials"] = apptest.Body{"token": "wrong"}
			unreadable("a wrong token", stranger, "does not accept")
			for _, wrong := range []apptest.Body{
				draft("x", "../etc/passwd", nil), draft("x", "/data/plain.json", nil), draft("x", "data//plain.json", nil), draft("x", "data/plain.json", apptest.Body{"pagination": apptest.Body{"type": "page"}}),
				{"name": "x", "provider": "git", "configuration": apptest.Body{"url": g.url}},
				{"name": "x", "provider": "http_json", "configuration": apptest.Body{"url": g.url, "format": "yaml"}},
				{"name": "x", "provider": "git", "configuration": apptest.Body{"url": "https://10.0.0.1/r.git", "git": apptest.Body{"path": "a.json"}}},
			} {
				a.Do(t, "POST", "/pip/connections/test", wrong).Want(422)
			}
			plain := draft("x", "data/plain.json", apptest.Body{"url": strings.Replace(g.url, "https://", "http://", 1)})
			if refused := a.Do(t, "POST", "/pip/connections", plain).Want(422); !strings.Contains(string(refused.Body), "over TLS alone") {
				t.Errorf("POST of a repository without TLS = %s, want a refusal", refused.Body)
			}

			made := a.Do(t, "POST", "/pip/connections", people).Want(201)
			if made.Get("credentials_set") != true || strings.Contains(string(made.Body), "secret-of") {
				t.Errorf("POST of the source = %s, want its credential set and not shown", made.Body)
			}
			sync := func(records float64, changed bool) {
				t.Helper()
				path := fmt.Sprintf("/pip/connections/%d", made.ID())
				job := a.Do(t, "POST", path+"/trigger-sync", nil).Want(202).Get("sync_job_id")
				var r *apptest.Response
				apptest.Eventually(t, time.Minute, func() error {
					if r = a.Do(t, "GET", fmt.Sprintf("%s/syncs/%.0f", path, job), nil).Want(200); r.Get("finished_at") == nil {
						return fmt.Errorf("the sync is %s, want it finished", r.Get("status"))
					}
					return nil
				})
				if r.Get("status") != "completed" || r.Get("records_synced") != records || r.Get("changed") != changed {
					t.Errorf("the sync = %s, want it completed", r.Body)
				}
			}
			decides := func(user, want string) {
				t.Helper()
				apptest.Eventually(t, 20*time.Second, func() error {
					r := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", apptest.Body{"user": apptest.Body{"id": user}, "resource": apptest.Body{"type": "api", "path": "/x"}, "action": apptest.Body{"name": "read"}}).Want(200)
					if r.Get("decision") != want {
						return fmt.Errorf("the decision for %s = %s, want %s", user, r.Body, want)
					}
					return nil
				})
			}
			sync(2, true)
			decides("ada", "PERMIT")
			decides("bob", "DENY")
			known := packs.Load()
			sync(2, false)
			if got := packs.Load(); got != known || credentials.Load() == 0 {
				t.Errorf("the host sent %d packs and then %d for a known commit, want no more", known, got)
			}
			g.commit(map[string]string{"data/people.yaml": "people:\n- {id: bob, grade: 9}\n"})
			sync(1, true)
			decides("bob", "PERMIT")
			decides("ada", "DENY")
			if kept := s.Log.String() + s.StoredText(t); strings.Contains(kept, "secret-of-the-reader") || strings.Contains(kept, base64.StdEncoding.EncodeToString([]byte("reader:secret-of-the-reader"))) {
				t.Error("the store or the log has the credential in clear")
			}
		})
	}
}

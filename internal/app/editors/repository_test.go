package editors_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

const hookSecret = "a-secret-of-the-repository"

// gitHost is a real repository behind `git http-backend` over TLS.
type gitHost struct {
	t    *testing.T
	root string // where the repositories lie
	work string // a work tree whose origin is the repository
	url  string
	cert string // PEM file of the server's authority
	hits atomic.Int64
	// gate, if set, holds every request until it is closed.
	gate atomic.Pointer[chan struct{}]
	// front, if set, answers in the repository's place where it says true.
	front atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func newGitHost(t *testing.T) *gitHost {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		apptest.SkipMissing(t, "git is not installed")
	}
	backend := filepath.Join(strings.TrimSpace(string(path)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		apptest.SkipMissing(t, "git http-backend is not installed")
	}
	root := t.TempDir()
	g := &gitHost{t: t, root: root, work: t.TempDir()}
	g.git("", "init", "-q", "--bare", "-b", "main", filepath.Join(root, "controls.git"))
	g.git("", "init", "-q", "-b", "main", g.work)
	g.git(g.work, "remote", "add", "origin", filepath.Join(root, "controls.git"))
	h := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.hits.Add(1)
		if gate := g.gate.Load(); gate != nil {
			<-*gate
		}
		if front := g.front.Load(); front == nil || !(*front)(w, r) {
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	g.url = srv.URL + "/controls.git"
	g.cert = filepath.Join(t.TempDir(), "ca.pem")
	errtest.Must(t, os.WriteFile(g.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	return g
}

func (g *gitHost) git(dir string, args ...string) string {
	g.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit writes files, commits and pushes them, and returns the commit's id.
func (g *gitHost) commit(files map[string]string) string {
	g.t.Helper()
	for name, text := range files {
		full := filepath.Join(g.work, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			g.t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			g.t.Fatal(err)
		}
	}
	g.git(g.work, "add", "-A")
	g.git(g.work, "commit", "-q", "-m", "controls")
	g.git(g.work, "push", "-q", "origin", "HEAD")
	return g.git(g.work, "rev-parse", "HEAD")
}

func (g *gitHost) env() []string {
	return []string{"SSL_CERT_FILE=" + g.cert, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8"}
}

// sign returns the signature of GitHub and of our own webhooks.
func sign(secret string, body []byte) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write(body)
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}

// hook registers a repository and returns the path of its webhook.
func hook(t *testing.T, s *apptest.Server, c *apptest.Client, draft apptest.Body) (path string) {
	t.Helper()
	r := c.Do(t, "POST", "/ide-integration/repositories", draft).Want(201)
	_, query, ok := strings.Cut(fmt.Sprint(r.Get("webhook_url")), "?")
	if !ok || r.Get("secret") != nil || strings.Contains(string(r.Body), hookSecret) {
		t.Fatalf("the registration = %s, want a path and no secret", r.Body)
	}
	return "/ide-integration/webhook?" + query
}

func deliver(t *testing.T, s *apptest.Server, path string, headers map[string]string, body any) *apptest.Response {
	t.Helper()
	text, ok := body.([]byte)
	if !ok {
		var err error
		if text, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	c := s.Anonymous()
	for name, value := range headers {
		if value == "sign" {
			value = sign(hookSecret, text)
		}
		c = c.With(name, value)
	}
	return c.Do(t, "POST", path, text)
}

func policyNames(t *testing.T, s *apptest.Server) map[string]string {
	t.Helper()
	var page struct {
		Policies []struct {
			Name        string `json:"name"`
			RegoCode    string `json:"rego_code"`
			Environment string `json:"environment"`
		} `json:"policies"`
	}
	s.Admin.Do(t, "GET", "/policies", nil).Want(200).Into(&page)
	out := map[string]string{}
	for _, p := range page.Policies {
		if p.Environment != "sandbox" {
			t.Errorf("the control %s is in %s, want sandbox", p.Name, p.Environment)
		}
		out[p.Name] = p.RegoCode
	}
	return out
}

// TestRepositoryWebhook checks that what a real repository pushes is deployed to sandbox, from each
// kind of sender.
func TestRepositoryWebhook(t *testing.T) {
	g := newGitHost(t)
	s := apptest.StartServer(t, dbtest.SQLite, g.env()...)
	first := g.commit(map[string]string{
		"controls/orders.rego":      "package orders\n\nallow if input.user.id == \"ada\"\n",
		"controls/orders_test.rego": "package orders_test\n\nimport data.orders\n\ntest_ada if orders.allow with input as {\"user\": {\"id\": \"ada\"}}\n",
		"elsewhere/other.rego":      "package other\n\nallow if\n",
		"controls/readme.md":        "not a control",
	})
	path := hook(t, s, s.Admin, apptest.Body{"name": "controls", "url": g.url, "secret": hookSecret, "branch": "main", "path": "controls"})

	push := apptest.Body{"ref": "refs/heads/main", "after": first, "repository": apptest.Body{"clone_url": g.url}, "head_commit": apptest.Body{"id": first}}
	github := map[string]string{"X-GitHub-Event": "push", "X-GitHub-Delivery": "d-1", "X-Hub-Signature-256": "sign"}
	r := deliver(t, s, path, github, push).Want(200)
	if r.Get("status") != "completed" {
		t.Fatalf("the delivery = %s, want it completed", r.Body)
	}
	names := policyNames(t, s)
	if len(names) != 1 || !strings.Contains(names["controls/orders"], `"ada"`) {
		t.Fatalf("the controls after the push are %v, want orders for ada", names)
	}
	id := fmt.Sprint(r.Get("deployment_id"))
	if d := s.Admin.Do(t, "GET", "/ide-integration/deployments/"+id, nil).Want(200); d.Get("status") != "completed" || d.Get("commit_hash") != first || d.Get("source") != "github" {
		t.Errorf("the deployment = %s, want it completed with the commit", d.Body)
	}

	// The same delivery again, and its body under another name, are not done again.
	hits := g.hits.Load()
	again := map[string]string{"X-GitHub-Event": "push", "X-GitHub-Delivery": "d-2", "X-Hub-Signature-256": "sign"}
	for _, headers := range []map[string]string{github, again} {
		if r := deliver(t, s, path, headers, push).Want(200); r.Get("replayed") != true || r.Get("deployment_id") != id {
			t.Errorf("the repeated delivery = %s, want the first deployment", r.Body)
		}
	}
	if g.hits.Load() != hits {
		t.Error("the server fetched the repository for a repeated delivery")
	}

	// A pull request is validated and changes nothing; a branch that is not followed is left.
	g.git(g.work, "checkout", "-q", "-b", "change")
	broken := g.commit(map[string]string{"controls/orders.rego": "package orders\n\nallow if undefined_function(1)\n"})
	mr := apptest.Body{"object_kind": "merge_request", "project": apptest.Body{"git_http_url": g.url}, "object_attributes": apptest.Body{"action": "open", "source_branch": "change", "target_branch": "main", "last_commit": apptest.Body{"id": broken}}}
	gitlab := map[string]string{"X-Gitlab-Event": "Merge Request Hook", "X-Gitlab-Token": hookSecret, "X-Gitlab-Event-UUID": "e-1"}
	r = deliver(t, s, path, gitlab, mr).Want(400)
	if errs, _ := r.Get("errors").([]any); r.Get("success") != false || len(errs) == 0 || errs[0].(map[string]any)["line"] != 3.0 || errs[0].(map[string]any)["pointer"] != "controls/orders.rego" {
		t.Errorf("the pull request with an error = %s, want the file and the line", r.Body)
	}
	gitlab["X-Gitlab-Event"], gitlab["X-Gitlab-Event-UUID"] = "Push Hook", "e-2"
	r = deliver(t, s, path, gitlab, apptest.Body{"ref": "refs/heads/change", "after": broken, "checkout_sha": broken, "project": apptest.Body{"git_http_url": g.url}}).Want(200)
	if r.Get("status") != "ignored" {
		t.Errorf("the push of another branch = %s, want it ignored", r.Body)
	}
	if names := policyNames(t, s); len(names) != 1 || !strings.Contains(names["controls/orders"], `"ada"`) {
		t.Errorf("the controls after the pull request are %v, want them unchanged", names)
	}

	// A tag deploys from the tag; our own form, fetched by path.
	g.git(g.work, "checkout", "-q", "main")
	tagged := g.commit(map[string]string{"controls/orders.rego": "package orders\n\nallow if input.user.id in {\"ada\", \"bob\"}\n", "controls/orders_test.rego": "package orders_test\n\nimport data.orders\n\ntest_bob if orders.allow with input as {\"user\": {\"id\": \"bob\"}}\n"})
	g.git(g.work, "tag", "-a", "-m", "v1", "v1")
	g.git(g.work, "push", "-q", "origin", "v1")
	own := apptest.Body{"repository_url": g.url, "branch": "v1", "commit_hash": tagged, "event_type": "tag", "policy_files": []any{"controls/orders.rego", "controls/orders_test.rego"}}
	r = deliver(t, s, path, map[string]string{"X-Service-Signature": "sign"}, own).Want(200)
	if r.Get("status") != "completed" || !strings.Contains(policyNames(t, s)["controls/orders"], `"bob"`) {
		t.Errorf("the push of the tag = %s, want it deployed", r.Body)
	}
	// A commit of the past, which no ref points to, is found too.
	own["commit_hash"], own["event_type"], own["branch"] = first, "push", "main"
	deliver(t, s, path, map[string]string{"X-Service-Signature": "sign"}, own).Want(200)
	if !strings.Contains(policyNames(t, s)["controls/orders"], `== "ada"`) {
		t.Error("the earlier commit was not deployed")
	}
	own["commit_hash"] = strings.Repeat("1", 40)
	if r := deliver(t, s, path, map[string]string{"X-Service-Signature": "sign"}, own).Want(400); r.Get("success") != false {
		t.Errorf("the push of an unknown commit = %s, want a failure", r.Body)
	}
}

// TestDeploymentInProgress watches a deployment until it ends.
func TestDeploymentInProgress(t *testing.T) {
	g := newGitHost(t)
	s := apptest.StartServer(t, dbtest.SQLite, g.env()...)
	first := g.commit(map[string]string{"orders.rego": "package orders\n\nallow if input.user.id == \"ada\"\n"})
	path := hook(t, s, s.Admin, apptest.Body{"name": "controls", "url": g.url, "secret": hookSecret})
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open) // before the host is closed, which waits for its requests
	g.gate.Store(&gate)
	answered := make(chan *apptest.Response, 1)
	body := []byte(`{"repository_url":"` + g.url + `","branch":"main","commit_hash":"` + first + `","event_type":"push"}`)
	signed := s.Anonymous().With("X-Service-Signature", sign(hookSecret, body))
	go func() {
		r, err := signed.Try("POST", path, body)
		if err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	var id string
	apptest.Eventually(t, 30*time.Second, func() error {
		var page struct {
			Deployments []struct {
				ID     string `json:"deployment_id"`
				Status string `json:"status"`
			} `json:"deployments"`
		}
		s.Admin.Do(t, "GET", "/ide-integration/deployments", nil).Want(200).Into(&page)
		if len(page.Deployments) != 1 || page.Deployments[0].Status != "in_progress" {
			return fmt.Errorf("the deployments are %+v, want one in progress", page.Deployments)
		}
		id = page.Deployments[0].ID
		return nil
	})
	k, status := apptest.DialEditor(t, s, s.Admin, apptest.AccountID(t, s.Admin), nil)
	if k == nil {
		t.Fatalf("opening a socket = %d, want 101", status)
	}
	if typ, data := k.Ask(apptest.Body{"type": "deployment_status", "data": apptest.Body{"deployment_id": id}}); typ != "deployment_status" || data["status"] != "in_progress" {
		t.Fatalf("the socket answers %s %v, want the deployment in progress", typ, data)
	}
	open()
	if typ, data, err := k.Next(); err != nil || typ != "deployment_status" || data["status"] != "completed" {
		t.Errorf("the socket sends %s %v %v, want the end of the deployment", typ, data, err)
	}
	if r := <-answered; r != nil && r.Status != 200 && r.Status != 202 { // 202 where all of this took over five seconds
		t.Errorf("the delivery = %d %s, want 200 or 202", r.Status, r.Body)
	}
}

// TestWebhookSignatures checks that a delivery without a valid signature is refused with one
// answer, and that nothing is deployed.
func TestWebhookSignatures(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		path := hook(t, s, s.Admin, apptest.Body{"name": "inline", "url": "https://git.example.com/controls.git", "secret": hookSecret})
		body := []byte(`{"repository_url":"https://git.example.com/controls","event_type":"push","policy_files":[{"path":"a.rego","content":"package a\n\nallow if true\n"}]}`)
		good := sign(hookSecret, body)
		for name, headers := range map[string]map[string]string{
			"none":             {},
			"wrong":            {"X-Service-Signature": sign("another secret altogether", body)},
			"short":            {"X-Service-Signature": good[:40]},
			"upper case":       {"X-Service-Signature": "sha256=" + strings.ToUpper(good[7:])},
			"GitHub's wrong":   {"X-GitHub-Event": "push", "X-Hub-Signature-256": good[:len(good)-1] + "0x"},
			"GitHub's, absent": {"X-GitHub-Event": "push", "X-Service-Signature": good},
			"GitLab's wrong":   {"X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": hookSecret + "x"},
		} {
			if r := deliver(t, s, path, headers, body); r.Status != 401 || r.Get("success") != false {
				t.Errorf("the delivery with %s = %d %s, want 401", name, r.Status, r.Body)
			}
		}
		for _, other := range []string{"/ide-integration/webhook", "/ide-integration/webhook?repository=999", strings.Replace(path, "tenant_id=default", "tenant_id=nobody", 1)} {
			if r := deliver(t, s, other, map[string]string{"X-Service-Signature": good}, body); r.Status != 401 {
				t.Errorf("the delivery to %s = %d %s, want 401", other, r.Status, r.Body)
			}
		}
		if r := deliver(t, s, path, map[string]string{"X-Service-Signature": good, "X-Hub-Signature-256": good}, body); r.Status != 400 {
			t.Errorf("the delivery with two signatures = %d %s, want 400", r.Status, r.Body)
		}
		if names := policyNames(t, s); len(names) != 0 {
			t.Fatalf("refused deliveries deployed %v, want nothing", names)
		}
		r := deliver(t, s, path, map[string]string{"X-Service-Signature": good}, body)
		if r.Status != 202 && r.Want(200).Get("status") != "completed" { // 202 where it took over five seconds
			t.Errorf("the signed delivery = %s, want it completed", r.Body)
		}
		apptest.Eventually(t, time.Minute, func() error {
			if policyNames(t, s)["a"] == "" {
				return fmt.Errorf("the signed delivery is not deployed: %s", r.Body)
			}
			return nil
		})
		if r := deliver(t, s, path, map[string]string{"X-Service-Signature": good}, body).Want(200); r.Get("replayed") != true {
			t.Errorf("the repeated delivery = %s, want it replayed", r.Body)
		}
		// By credential: only who may deploy.
		editor := s.Key(t, s.Admin, "sandbox", "editor:write")
		editor.Do(t, "POST", "/ide-integration/webhook", body).Want(403)
		editor.Do(t, "POST", "/ide-integration/repositories", apptest.Body{"name": "b", "url": "https://git.example.com/b.git", "secret": hookSecret}).Want(403)
		deployer := s.Key(t, s.Admin, "sandbox", "editor:write", "policies:write")
		deployer.Do(t, "POST", "/ide-integration/webhook", []byte(`{"repository_url":"https://git.example.com/x","event_type":"push","policy_files":[{"path":"b.rego","content":"package b\n\nallow if http.send({})\n"}]}`)).Want(400)
		deployer.Do(t, "POST", "/ide-integration/webhook", []byte(`{"repository_url":"https://git.example.com/x","event_type":"push","policy_file":[]}`)).Want(400)
	})
}

// TestWebhookCallsNobodyInside checks that an address that may not be called is refused without a
// connection, when it is stored and when it is used.
func TestWebhookCallsNobodyInside(t *testing.T) {
	var hits atomic.Int64
	canary := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	canary.Config.ConnState = func(_ net.Conn, _ http.ConnState) { hits.Add(1) }
	canary.StartTLS()
	defer canary.Close()
	s := apptest.StartServer(t, dbtest.SQLite)
	key := s.Key(t, s.Admin, "sandbox", "editor:write", "policies:write")
	port := canary.URL[strings.LastIndex(canary.URL, ":"):]
	for _, host := range []string{"https://127.0.0.1", "https://localhost", "https://[::ffff:127.0.0.1]", "http://127.0.0.1", "https://2130706433", "https://user@127.0.0.1", "ssh://127.0.0.1", "file://"} {
		target := host + port + "/controls.git"
		r := s.Admin.Do(t, "POST", "/ide-integration/repositories", apptest.Body{"name": host, "url": target, "secret": hookSecret})
		r.Expect(fmt.Sprintf("%s is registered", target), 400)
		r = key.Do(t, "POST", "/ide-integration/webhook", apptest.Body{"repository_url": target, "commit_hash": strings.Repeat("a", 40), "event_type": "push"})
		r.Expect(fmt.Sprintf("%s is fetched", target), 400)
	}
	if hits.Load() != 0 {
		t.Errorf("the server opened %d connections to refused addresses, want none", hits.Load())
	}
}

// TestEditorEndpoints checks the answers of each editor's endpoint.
func TestEditorEndpoints(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		good, bad := "package orders\n\n# Who may.\nallow if input.user.id == \"ada\"\n", "package orders\n\nallow { startwith(\"a\", 1) }\n"
		a := func(body apptest.Body) *apptest.Response {
			return s.Admin.Do(t, "POST", "/ide-integration/editor-a", body)
		}
		if r := a(apptest.Body{"action": "validate", "policy_content": good}).Want(200); r.Get("valid") != true || r.Get("success") != true {
			t.Errorf("validate of a good control = %s, want it valid", r.Body)
		}
		if r := a(apptest.Body{"action": "validate", "policy_content": bad}).Want(200); r.Get("valid") != false {
			t.Errorf("validate of a bad control = %s, want it not valid", r.Body)
		}
		r := a(apptest.Body{"action": "test", "policy_content": good, "policy_path": "orders.rego", "files": []any{apptest.Body{"path": "orders_test.rego", "content": "package orders_test\n\nimport data.orders\n\ntest_ada if orders.allow with input.user.id as \"ada\"\n"}}}).Want(200)
		if r.Get("results", "passed") != true || r.Get("results", "coverage") == nil {
			t.Errorf("test = %s, want passed tests and coverage", r.Body)
		}
		r = a(apptest.Body{"action": "deploy", "policy_content": good, "policy_path": "orders.rego"}).Want(200)
		if r.Get("deployment", "status") != "completed" || policyNames(t, s)["orders"] != good {
			t.Errorf("deploy = %s, want it completed", r.Body)
		}
		r = a(apptest.Body{"action": "deploy", "policy_content": bad, "policy_path": "orders.rego"}).Want(400)
		if r.Get("success") != false || policyNames(t, s)["orders"] != good {
			t.Errorf("deploy of a bad control = %s, want a failure", r.Body)
		}
		if d := s.Admin.Do(t, "GET", "/ide-integration/deployments/"+fmt.Sprint(r.Get("deployment_id")), nil).Want(200); d.Get("status") != "failed" {
			t.Errorf("the failed deployment = %s, want it failed", d.Body)
		}
		if r := a(apptest.Body{"action": "get_templates"}).Want(200); len(r.Get("templates").([]any)) < 5 {
			t.Errorf("get_templates = %s, want at least 5", r.Body)
		}
		a(apptest.Body{"action": "explode"}).Want(400)
		a(apptest.Body{"action": "validate"}).Want(400)

		b := s.Admin.Do(t, "POST", "/ide-integration/editor-b", apptest.Body{"action": "get_suggestions", "policy_content": bad, "position": apptest.Body{"line": 3, "column": 11}}).Want(200)
		var got struct {
			Fixes []struct {
				Range   struct{ Start, End struct{ Line, Column int } } `json:"range"`
				NewText string                                          `json:"new_text"`
			} `json:"fixes"`
			Completions []struct {
				Label string `json:"label"`
			} `json:"completions"`
		}
		b.Into(&got)
		if len(got.Fixes) == 0 || got.Fixes[0].NewText != " if " || got.Fixes[0].Range.Start.Line != 3 || len(got.Completions) == 0 || !strings.HasPrefix(got.Completions[0].Label, "st") {
			t.Errorf("editor-b = %s, want fixes and completions", b.Body)
		}

		layout := func(source string) any {
			return s.Admin.Do(t, "POST", "/ide-integration/editor-b", apptest.Body{"action": "format", "policy_content": source}).Want(200).Get("formatted")
		}
		if got := layout("package p\nallow if {   input.a==1 }\n"); got != "package p\n\nallow if input.a == 1\n" {
			t.Errorf("the formatted control is %q", got)
		}
		if got := layout("package p\nallow if {"); got != nil {
			t.Errorf("the format of a wrong control is %q, want none", got)
		}

		session := func(c *apptest.Client, body apptest.Body) *apptest.Response {
			return c.Do(t, "POST", "/ide-integration/editor-a-server", body)
		}
		kept := session(s.Admin, apptest.Body{"action": "sync", "policy_content": good}).Want(200)
		id := kept.Get("session_id")
		if r := session(s.Admin, apptest.Body{"action": "get_context", "session_id": id}).Want(200); r.Get("policy_content") != good || r.Get("package") != "orders" || r.Get("version") != 1.0 {
			t.Errorf("the context of the session = %s, want the control at version 1", r.Body)
		}
		other := s.Key(t, s.Admin, "sandbox", "editor:write")
		session(other, apptest.Body{"action": "get_context", "session_id": id}).Want(404)
		session(s.Admin, apptest.Body{"action": "get_context"}).Want(400)

		settings := s.Admin.Do(t, "POST", "/ide-integration/editor-a/settings", apptest.Body{"settings": apptest.Body{"lint": false, "theme": "dark"}}).Want(200)
		if settings.Get("settings", "lint") != false || settings.Get("settings", "validate_on_save") != true {
			t.Errorf("the settings = %s, want the changed ones", settings.Body)
		}
		if r := s.Admin.Do(t, "GET", "/ide-integration/editor-a/settings", nil).Want(200); r.Get("settings", "theme") != "dark" {
			t.Errorf("the settings of editor-a = %s, want the theme dark", r.Body)
		}
		if r := s.Admin.Do(t, "GET", "/ide-integration/editor-b/settings", nil).Want(200); r.Get("settings", "lint") != true {
			t.Errorf("the settings of editor-b = %s, want the defaults", r.Body)
		}
		if r := s.Admin.Do(t, "GET", "/ide-integration/status", nil).Want(200); r.Get("status", "webhook", "supported_events") == nil || r.Get("status", "editor-a", "available") != true {
			t.Errorf("the status = %s, want the webhook's events and the editor", r.Body)
		}
	})
}

// TestRepositoryRegistration checks that stored secrets are never shown, and that a token is not
// sent to another host.
func TestRepositoryRegistration(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		draft := apptest.Body{"name": "controls", "url": "https://git.example.com/a.git", "secret": hookSecret, "access_token": "token-canary-1"}
		made := s.Admin.Do(t, "POST", "/ide-integration/repositories", draft).Want(201)
		at := fmt.Sprintf("/ide-integration/repositories/%d", made.ID())
		for _, r := range []*apptest.Response{made, s.Admin.Do(t, "GET", at, nil).Want(200), s.Admin.Do(t, "GET", "/ide-integration/repositories", nil).Want(200)} {
			if strings.Contains(string(r.Body), "canary") || strings.Contains(string(r.Body), hookSecret) {
				t.Errorf("the answer shows a secret: %s", r.Body)
			}
		}
		s.Admin.Do(t, "POST", "/ide-integration/repositories", draft).Want(409)
		s.Admin.Do(t, "PUT", at, apptest.Body{"url": "https://git.example.org/a.git"}).Want(400)
		if r := s.Admin.Do(t, "PUT", at, apptest.Body{"url": "https://git.example.org/a.git", "access_token": nil}).Want(200); r.Get("access_token_set") != false {
			t.Errorf("PUT of another host = %s, want no token", r.Body)
		}
		s.Admin.With("If-Match", made.Header.Get("ETag")).Do(t, "PUT", at, apptest.Body{"branch": "main"}).Want(412)
		s.Admin.Do(t, "POST", "/ide-integration/repositories", apptest.Body{"name": "x", "url": "https://git.example.com/x.git", "secret": hookSecret, "resource_id": 999}).Want(400)
		s.Admin.Do(t, "DELETE", at, nil).Want(200)
		s.Admin.Do(t, "GET", at, nil).Want(404)
		apptest.Eventually(t, 30*time.Second, func() error {
			return filepath.WalkDir(s.Dir, func(p string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return nil
				}
				text, err := os.ReadFile(p)
				if err == nil && (strings.Contains(string(text), "token-canary-1") || strings.Contains(string(text), hookSecret)) {
					return fmt.Errorf("the file %s has a secret", p)
				}
				return nil
			})
		})
	})
}

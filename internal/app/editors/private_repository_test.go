package editors_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// private puts the repository behind HTTP Basic. Its refusals show the credential, as careless or
// hostile hosts may do.
func (g *gitHost) private(name, token string) (sent *atomic.Int64) {
	sent = &atomic.Int64{}
	front := func(w http.ResponseWriter, r *http.Request) bool {
		user, password, ok := r.BasicAuth()
		if ok {
			sent.Add(1)
		}
		if ok && password == token && (name == "" || user == name) {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="`+password+`"`)
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, "no: %s %s %s %s", user, password, r.Header.Get("Authorization"), strings.Repeat("x", 1<<20))
		return true
	}
	g.front.Store(&front)
	return sent
}

// push delivers a push of a commit.
func (g *gitHost) push(s *apptest.Server, path, url, commit string) *apptest.Response {
	g.t.Helper()
	return deliver(g.t, s, path, map[string]string{"X-Service-Signature": "sign"}, body{"repository_url": url, "branch": "main", "commit_hash": commit, "event_type": "push"})
}

// TestRepositoryPrivate checks that a private repository is fetched with its access token, which
// only its host gets, and that a host's refusal is reported clearly.
func TestRepositoryPrivate(t *testing.T) {
	t.Parallel()
	const right, wrong = "right-token-canary-7f", "wrong-token-canary-9d"
	g := newGitHost(t)
	s := apptest.StartServer(t, dbtest.SQLite, g.env()...)
	commit := g.commit(map[string]string{"orders.rego": "package orders\n\nallow if input.user.id == \"ada\"\n"})
	sent := g.private("", right)
	made := s.Admin.Do(t, "POST", "/ide-integration/repositories", body{"name": "private", "url": g.url, "secret": hookSecret}).Want(201)
	at := fmt.Sprintf("/ide-integration/repositories/%d", made.ID())
	_, query, _ := strings.Cut(fmt.Sprint(made.Get("webhook_url")), "?")
	path := "/ide-integration/webhook?" + query

	answers := []*apptest.Response{made}
	try := func(status int, want string) {
		t.Helper()
		r := g.push(s, path, g.url, commit).Want(status)
		if !strings.Contains(string(r.Body), want) {
			t.Errorf("the delivery = %s, want %q", r.Body, want)
		}
		answers = append(answers, r, s.Admin.Do(t, "GET", "/ide-integration/deployments/"+fmt.Sprint(r.Get("deployment_id")), nil).Want(200))
	}
	token := func(v any) {
		t.Helper()
		answers = append(answers, s.Admin.Do(t, "PUT", at, body{"access_token": v}).Want(200))
	}
	try(400, "asks for a credential: store an access token")
	token(wrong)
	try(400, "does not accept the stored access token")
	if names := policyNames(t, s); len(names) != 0 || sent.Load() != 1 {
		t.Fatalf("the failed deliveries left %v with %d credentials sent, want none and 1", names, sent.Load())
	}
	// The same delivery succeeds when the token is right.
	token(right)
	try(200, `"completed"`)
	if names := policyNames(t, s); !strings.Contains(names["orders"], "ada") {
		t.Fatalf("the controls after the push are %v, want orders for ada", names)
	}
	// A host that goes by the name too.
	g.private("deploy-1", right)
	commit = g.commit(map[string]string{"orders.rego": "package orders\n\nallow if input.user.id == \"bob\"\n"})
	try(400, "needs its user name before it")
	token("deploy-1:" + right)
	try(200, `"completed"`)
	for status, want := range map[int]string{403: "forbids", 404: "has no such repository", 503: "answered 503"} {
		front := func(w http.ResponseWriter, r *http.Request) bool {
			http.Error(w, r.Header.Get("Authorization")+right, status)
			return true
		}
		g.front.Store(&front)
		commit = g.commit(map[string]string{"note": want})
		try(400, want)
	}
	// The host sends no answer of git, but the credential.
	front := func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		line := r.Header.Get("Authorization") + " " + right
		fmt.Fprintf(w, "%04x%s", len(line)+4, line)
		return true
	}
	g.front.Store(&front)
	commit = g.commit(map[string]string{"note": "bytes"})
	try(400, "could not be fetched")

	answers = append(answers, s.Admin.Do(t, "GET", at, nil), s.Admin.Do(t, "GET", "/audit/events?limit=1000", nil), s.Admin.Do(t, "GET", "/ide-integration/deployments", nil))
	for _, r := range answers {
		wantNoToken(t, "an answer", string(r.Body))
	}
	wantNoToken(t, "the log", s.Log.String())
	if err := filepath.WalkDir(s.Dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(p)
		if err == nil {
			wantNoToken(t, p, string(text))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// wantNoToken checks that a text has no token of TestRepositoryPrivate, in any form.
func wantNoToken(t *testing.T, what, text string) {
	t.Helper()
	for _, user := range []string{"git", "deploy-1"} {
		for _, token := range []string{"right-token-canary-7f", "wrong-token-canary-9d"} {
			// The middle of the encoding, which no other end changes.
			code := base64.StdEncoding.EncodeToString([]byte(user + ":" + token))
			for _, form := range []string{token, code, code[12:24]} {
				if i := strings.Index(text, form); i >= 0 {
					t.Errorf("%s shows the token: …%.200s", what, text[max(0, i-100):])
					return
				}
			}
		}
	}
}

// TestRepositoryRedirect checks that a redirect to another host is not followed, with or without
// the token, in either step of a fetch.
func TestRepositoryRedirect(t *testing.T) {
	t.Parallel()
	g, other := newGitHost(t), newGitHost(t)
	s := apptest.StartServer(t, dbtest.SQLite, g.env()...)
	for i, step := range []string{"/info/refs", "/git-upload-pack"} {
		commit := g.commit(map[string]string{"orders.rego": fmt.Sprintf("package orders\n\nallow if input.user.id == \"ada%d\"\n", i)})
		front := func(w http.ResponseWriter, r *http.Request) bool {
			if _, password, _ := r.BasicAuth(); password != "a-token" || !strings.HasSuffix(r.URL.Path, step) {
				return false
			}
			http.Redirect(w, r, strings.TrimSuffix(other.url, "/controls.git")+r.URL.RequestURI(), http.StatusTemporaryRedirect)
			return true
		}
		g.front.Store(&front)
		path := hook(t, s, s.Admin, body{"name": fmt.Sprint("moved", i), "url": g.url, "secret": hookSecret, "access_token": "a-token"})
		if r := g.push(s, path, g.url, commit).Want(400); !strings.Contains(string(r.Body), "answered with a redirect, which gatehouse does not follow") {
			t.Errorf("the delivery with a redirect at %s = %s, want a refusal", step, r.Body)
		}
	}
	if n := other.hits.Load(); n != 0 {
		t.Errorf("the other host got %d requests, want none", n)
	}
}

// TestRepositorySHA256 checks that a repository that names its objects by SHA-256 is refused with
// this reason, for the commit's id and for the host's answer.
func TestRepositorySHA256(t *testing.T) {
	t.Parallel()
	g := newGitHost(t)
	s := apptest.StartServer(t, dbtest.SQLite, g.env()...)
	bare, work := filepath.Join(g.root, "long.git"), filepath.Join(t.TempDir(), "long")
	g.git("", "init", "-q", "--bare", "-b", "main", "--object-format=sha256", bare)
	g.git("", "init", "-q", "-b", "main", "--object-format=sha256", work)
	apptest.WriteFiles(t, work, "a.rego", "package a\n\nallow if input.user.id == \"ada\"\n")
	g.git(work, "add", "-A")
	g.git(work, "commit", "-q", "-m", "controls")
	g.git(work, "push", "-q", bare, "HEAD")
	url := strings.Replace(g.url, "controls.git", "long.git", 1)
	path := hook(t, s, s.Admin, body{"name": "long", "url": url, "secret": hookSecret})
	for _, commit := range []string{g.git(work, "rev-parse", "HEAD"), strings.Repeat("a", 40)} {
		if r := g.push(s, path, url, commit).Want(400); !strings.Contains(string(r.Body), "names its objects by SHA-256, which is not supported") {
			t.Errorf("the delivery of %s = %s, want the reason", commit, r.Body)
		}
	}
}

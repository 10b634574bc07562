package e2e

import (
	"encoding/pem"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gitHost serves one Git repository over HTTPS on this machine.
type gitHost struct {
	t    *testing.T
	work string
	url  string
	cert string
}

func newGitHost(t *testing.T) *gitHost {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatalf("finding git: %v", err)
	}
	root := t.TempDir()
	g := &gitHost{t: t, work: t.TempDir(), cert: filepath.Join(t.TempDir(), "ca.pem")}
	g.git("", "init", "-q", "--bare", "-b", "main", filepath.Join(root, "controls.git"))
	g.git("", "init", "-q", "-b", "main", g.work)
	g.git(g.work, "remote", "add", "origin", filepath.Join(root, "controls.git"))
	server := httptest.NewTLSServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
	})
	t.Cleanup(server.Close)
	g.url = server.URL + "/controls.git"
	if err := os.WriteFile(g.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *gitHost) git(dir string, args ...string) {
	g.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		g.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// push commits one file and pushes it.
func (g *gitHost) push(name, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.work, name), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
	g.git(g.work, "add", "-A")
	g.git(g.work, "commit", "-q", "-m", "controls")
	g.git(g.work, "push", "-q", "origin", "HEAD")
}

// env is the environment of a server that may call the repository at its private address.
func (g *gitHost) env() []string {
	return []string{"SSL_CERT_FILE=" + g.cert, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8"}
}

// repositorySynced connects a repository, deploys it by hand, and sees the file and line of an
// error.
func repositorySynced(p *tab, d deployment) {
	p.visit("/repositories")
	p.shows("No repositories yet")
	p.button("Connect a repository")
	p.fill("repository-name", "controls")
	p.fill("repository-url", d.git.url)
	p.dialog("the form of a repository")
	p.press("[role=dialog] button[type=submit]")
	p.shows("controls is connected")
	p.wait("the webhook and its secret", `[...document.querySelectorAll(".gh-command pre")].some(e => /^[0-9a-f]{48}$/.test(e.innerText.trim()))`)
	p.accessible("a new repository")
	p.button("I have stored it")

	// The form does not overwrite what a colleague stores while it is open.
	p.button("Edit")
	p.wait("the form", `document.querySelector("[name=repository-branch]")`)
	p.request("PUT", "/api/v1/ide-integration/repositories/1", `{"branch": "main"}`)
	p.press("[role=dialog] button[type=submit]")
	p.wait("the refusal", `document.querySelector("[role=dialog] [role=alert]")`)
	p.accessible("a form that is behind")
	p.press("[role=dialog] button[aria-label=Close]")
	p.wait("the end of the form", `!document.querySelector("[role=dialog]")`)
	p.wait("what the colleague stored", `[...document.querySelectorAll("dd")].some(e => e.textContent === "main")`)
	p.button("Edit")
	p.wait("what the colleague stored", `document.querySelector("[name=repository-branch]")?.value === "main"`)
	p.press("[role=dialog] button[type=submit]")
	p.wait("the end of the form", `!document.querySelector("[role=dialog]")`)

	d.git.push("orders.rego", "package orders\n\nallow if input.user.id == \"ada\"\n")
	p.button("Sync now")
	p.wait("the control that was deployed", `[...document.querySelectorAll("[role=region] tr, section tr")].some(r => /orders\.rego/.test(r.innerText) && /Created/.test(r.innerText))`)
	p.accessible("a deployment")
	at := p.read("location.href")

	d.git.push("orders.rego", "package orders\n\nallow if input.user.id = = \"bob\"\n")
	p.button("Sync now")
	p.wait("the error with its file and line", `[...document.querySelectorAll(".gh-findings li")].some(l => /orders\.rego/.test(l.innerText) && /line 3/.test(l.innerText))`)
	p.accessible("a deployment that failed")

	// The address of a deployment shows the deployment again.
	p.visit(strings.TrimPrefix(at, p.origin))
	p.wait("the first deployment again", `[...document.querySelectorAll("section tr")].some(r => /orders\.rego/.test(r.innerText) && /Created/.test(r.innerText))`)

	p.button("Remove")
	p.dialog("the question before a repository is removed")
	p.button("Remove")
	p.shows("No repositories yet")
}

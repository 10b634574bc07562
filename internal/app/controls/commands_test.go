package controls_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// TestToolsInTheWrongDirectory checks that operators' tools in a wrong directory fail with a message and
// write nothing.
func TestToolsInTheWrongDirectory(t *testing.T) {
	for _, command := range []string{"audit verify", "admin reset-password", "admin rotate-mask-key", "migrate", "backup copy"} {
		t.Run(command, func(t *testing.T) {
			dir := t.TempDir()
			out, code := apptest.Shell(t, dir, "unset GATEHOUSE_DATA_DIR GATEHOUSE_DATABASE_URL\nexport GATEHOUSE_DEMO=true\ngatehouse "+command+"\n")
			if code == 0 || !strings.Contains(out, "there is no gatehouse data in "+dir) {
				t.Errorf("the tool ended with %d: %s, want an error that names the directory", code, out)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("the tool left %v (%v), want no files", left, err)
			}
		})
	}
}

// TestDevAfterPasswordReset checks that the demo's next start after `admin reset-password` shows the new
// password.
func TestDevAfterPasswordReset(t *testing.T) {
	dir, listen := t.TempDir(), freeport.Addr(t)
	env := []string{
		"GATEHOUSE_DATA_DIR=" + dir, "GATEHOUSE_LISTEN=" + listen, "GATEHOUSE_DEV_SANDBOX=" + freeport.Addr(t),
		"GATEHOUSE_DEV_PRODUCTION=" + freeport.Addr(t), "GATEHOUSE_DEV_APPLICATION=" + freeport.Addr(t),
	}
	p := apptest.Launch(t, "http://"+listen, "", env, "dev")
	waitForWelcome(t, p, 1)
	openLink(t, p, "http://"+listen, dir)
	p.Stop()
	reset := exec.Command(apptest.Binary(t), "admin", "reset-password")
	reset.Env = append(os.Environ(), env...)
	out, err := reset.CombinedOutput()
	if err != nil {
		t.Fatalf("reset-password: %v: %s", err, out)
	}
	made := regexp.MustCompile(`The password is (\S+) `).FindStringSubmatch(string(out))
	if made == nil {
		t.Fatalf("reset-password prints no password: %s", out)
	}
	p.Start()
	waitForWelcome(t, p, 2)
	if !strings.Contains(p.Log.String(), "admin / "+made[1]) {
		t.Errorf("the second start does not print the new password:\n%s", p.Log)
	}
	kept, err := os.ReadFile(filepath.Join(dir, "admin-password"))
	if err != nil || string(kept) != made[1] {
		t.Errorf("the file has the password %q (%v), want the new one", kept, err)
	}
	login := apptest.Body{"username": "admin", "password": made[1]}
	(&apptest.Client{Base: "http://" + listen + "/api/v1"}).Do(t, "POST", "/auth/login", login).Want(200)
}

// openLink opens the link of the demo as a browser does: the page, and then the sign-in, which is valid
// once. No log has the text after #.
func openLink(t *testing.T, p *apptest.Process, base, dir string) {
	t.Helper()
	link := regexp.MustCompile(`(\S+/login)#link=(\S+)`).FindStringSubmatch(p.Log.String())
	if link == nil {
		t.Fatalf("the demo prints no link:\n%s", p.Log)
	}
	ask := func(method, url, body, cookie string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		errtest.Must(t, err)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		req.Header.Set("Content-Type", "application/json")
		if cookie != "" {
			req.Header.Set("Cookie", cookie)
		}
		res, err := http.DefaultClient.Do(req)
		errtest.Must(t, err)
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	page := ask("GET", link[1], "", "")
	if policy := page.Header.Get("Content-Security-Policy"); page.StatusCode != 200 || !strings.Contains(policy, "'nonce-") || page.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("GET of the page = %d, %v, want 200 with a nonce and no cache", page.StatusCode, page.Header)
	}
	const redeem = "/api/v1/auth/sessions/redeem"
	in := ask("POST", base+redeem, `{"link":"`+link[2]+`"}`, "")
	cookies := in.Cookies()
	if in.StatusCode != 200 || len(cookies) != 1 {
		t.Fatalf("the sign-in = %d, %v, want 200 with a cookie", in.StatusCode, cookies)
	}
	cookie := cookies[0].Name + "=" + cookies[0].Value
	for _, path := range []string{"/auth/me", "/dashboard/stats", "/policies", "/pis/test-history"} {
		if res := ask("GET", base+"/api/v1"+path, "", cookie); res.StatusCode != 200 {
			t.Errorf("GET %s with the cookie = %d, want 200", path, res.StatusCode)
		}
	}
	if again := ask("POST", base+redeem, `{"link":"`+link[2]+`"}`, ""); again.StatusCode != 401 {
		t.Errorf("the second sign-in = %d, want 401", again.StatusCode)
	}
	log, err := os.ReadFile(filepath.Join(dir, "dev.log"))
	if err != nil || strings.Contains(string(log), link[2]) || strings.Contains(string(log), cookies[0].Value) {
		t.Errorf("the log has a secret, or is not readable: %v", err)
	}
}

// waitForWelcome waits until the demo has written n times that it runs.
func waitForWelcome(t *testing.T, p *apptest.Process, n int) {
	t.Helper()
	apptest.Eventually(t, 30*time.Second, func() error {
		if code, waitForEnd := p.Exited(); waitForEnd {
			t.Fatalf("the demo ended with %d\n%s", code, p.Log)
		}
		if strings.Count(p.Log.String(), "is running") < n {
			return os.ErrNotExist
		}
		return nil
	})
}

// TestLoginOnTheCommandLine checks that after one sign-in, commands need no key.
func TestLoginOnTheCommandLine(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	dir := t.TempDir()
	session := filepath.Join(dir, "private", "session.json")
	apptest.WriteFiles(t, dir, "controls/owners.rego", ownersRego, "controls/gatehouse.yaml", "name: owners\nresource: null\n")
	run := func(script string) (string, int) {
		return apptest.Shell(t, dir, "unset GATEHOUSE_URL GATEHOUSE_API_KEY\nexport GATEHOUSE_SESSION="+session+"\n"+script)
	}
	if out, code := run("gatehouse policy diff controls"); code != 2 || !strings.Contains(out, "gatehouse login") {
		t.Errorf("the command without a session = %d %s, want 2 and the advice to sign in", code, out)
	}
	if out, code := run("echo wrong-password | gatehouse login --url " + s.URL + " --password-stdin"); code != 3 || !strings.Contains(out, "401") {
		t.Errorf("gatehouse login with a wrong password = %d %s, want 3 with 401", code, out)
	}
	out, code := run("echo '" + apptest.Password + "' | gatehouse login --url " + s.URL + " --password-stdin\ngatehouse policy deploy controls")
	if code != 0 || !strings.Contains(out, "Signed in to") || !strings.Contains(out, "1 created") || !strings.Contains(out, "it applies to every request") {
		t.Errorf("gatehouse login and a deployment = %d %s, want both to succeed", code, out)
	}
	info, err := os.Stat(session)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the session's file has %v (%v), want the mode 0600", info, err)
	}
	// A session is valid only for its server.
	if out, code := run("gatehouse policy diff controls --url http://127.0.0.1:9"); code != 2 || strings.Contains(out, "refused") {
		t.Errorf("the command for another server = %d %s, want 2", code, out)
	}
	token, err := os.ReadFile(session)
	errtest.Must(t, err)
	if out, code := run("gatehouse logout\ngatehouse policy diff controls"); code != 2 {
		t.Errorf("the command after gatehouse logout = %d %s, want 2", code, out)
	}
	errtest.Must(t, os.WriteFile(session, token, 0o600))
	if out, code := run("gatehouse policy diff controls"); code != 3 || !strings.Contains(out, "401") {
		t.Errorf("the command with an ended session = %d %s, want 3 with 401", code, out)
	}
}

// TestCompletion checks that the completion of bash offers commands and flags in their places.
func TestCompletion(t *testing.T) {
	script := `source <(gatehouse completion bash)
words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _gatehouse; echo "${COMPREPLY[@]}"; }
words gatehouse po
words gatehouse policy d
words gatehouse policy diff --na
words gatehouse policy diff controls --na
gatehouse completion zsh | bash -n
gatehouse completion fish | head -n 1
gatehouse --version
`
	out, code := apptest.Shell(t, t.TempDir(), script)
	lines := strings.Split(out, "\n")
	want := []string{"policy", "deploy diff", "--name-only", "--name-only"}
	for i, w := range want {
		if code != 0 || i >= len(lines) || lines[i] != w {
			t.Fatalf("the line %d is not %q; the shell ended with %d:\n%s", i, w, code, out)
		}
	}
	if !strings.Contains(out, "complete -c gatehouse") || !strings.Contains(out, "gatehouse dev") && !strings.Contains(out, "gatehouse v") {
		t.Errorf("the completion for fish = %s, want commands", out)
	}
}

// TestBouncerWithAnUnknownToken checks that a bouncer with an unknown token says so, and does not say that
// it serves.
func TestBouncerWithAnUnknownToken(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	b := s.Register(t, s.Admin, apptest.Body{"name": "edge", "hostname": "edge.example", "port": 80}, "127.0.0.1:9")
	env := []string{
		"GATEHOUSE_URL=" + s.URL, "GATEHOUSE_BOUNCER_TOKEN=" + b.Token, "GATEHOUSE_BOUNCER_DATA_DIR=" + t.TempDir(),
		"GATEHOUSE_BOUNCER_LISTEN=" + freeport.Addr(t), "GATEHOUSE_BOUNCER_UPSTREAM=http://127.0.0.1:9",
	}
	known := apptest.Launch(t, "", "", env, "bouncer")
	awaitText(t, known, "serves on")
	env[1] += "x"
	env[2], env[3] = "GATEHOUSE_BOUNCER_DATA_DIR="+t.TempDir(), "GATEHOUSE_BOUNCER_LISTEN="+freeport.Addr(t)
	unknown := apptest.Launch(t, "", "", env, "bouncer")
	awaitText(t, unknown, "it does not know this token")
	if strings.Contains(unknown.Log.String(), "serves on") {
		t.Errorf("the bouncer says that it serves:\n%s", unknown.Log)
	}
}

func awaitText(t *testing.T, p *apptest.Process, text string) {
	t.Helper()
	apptest.Eventually(t, 30*time.Second, func() error {
		if !strings.Contains(p.Log.String(), text) {
			return os.ErrNotExist
		}
		return nil
	})
}

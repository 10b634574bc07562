package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// step is an expression: the first steps show a step as done.
func step(title string) string {
	return `[...document.querySelectorAll(".gh-steps > li[data-done=true] h3")].some(h => h.textContent.startsWith("` + title + `"))`
}

// TestFirstMinutes takes an empty tenant from the sign-in to an application that refuses a visitor,
// by keyboard only. The dashboard shows each step as done without a reload.
func TestFirstMinutes(t *testing.T) {
	t.Parallel()
	chromium(t)
	dir := t.TempDir()
	ports := freePorts(t, 2)
	console, bouncer := "127.0.0.1:"+strconv.Itoa(ports[0]), "http://127.0.0.1:"+strconv.Itoa(ports[1])
	binary := build(t)
	launch(t, exec.Command(binary, "server"), dir, []string{
		"GATEHOUSE_DEMO=true", "GATEHOUSE_ADMIN_PASSWORD=" + password, "GATEHOUSE_LISTEN=" + console,
		"GATEHOUSE_DATA_DIR=" + filepath.Join(dir, "data"),
	})
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the application")
	}))
	t.Cleanup(application.Close)
	d := deployment{console: "http://" + console}
	eventually(t, "the server answers", answers(d.console+"/health"))
	p := open(t, d)
	p.expect("/api/v1/auth/me") // the browser reports the refusal before the sign-in
	p.size(1440, 900)
	p.signIn("/")

	// Protect something.
	p.shows("First steps")
	for _, title := range []string{"Protect something", "Pick a control", "See it work"} {
		if p.read(step(title)) == "true" {
			t.Errorf("the step %q of an empty tenant is shown as done", title)
		}
	}
	p.accessible("the path of an empty tenant")
	p.typeInto("target", application.Listener.Addr().String())
	p.typeInto("port", strconv.Itoa(ports[1]))
	p.enterOn("Register a bouncer")
	command := `document.querySelector(".gh-steps .gh-command pre")`
	p.wait("the command", command)
	p.accessible("the command that starts a bouncer")
	text := p.read(command + ".textContent")
	launch(t, exec.Command("sh", "-c", text), t.TempDir(), []string{"PATH=" + filepath.Dir(binary) + ":/usr/bin:/bin"})
	p.wait("that the bouncer is noticed", step("Protect something"))

	// Pick a control.
	p.tabTo("the next step", `e.matches(".gh-steps a[href^='/policies/new']")`)
	p.keys(kb.Enter)
	p.wait("the page of a new control", `location.pathname === "/policies/new" && `+settled)
	name := `[...document.querySelectorAll("label")].find(l => l.textContent.startsWith("Name"))`
	p.wait("the form", name)
	p.tabTo("its name", `e === document.getElementById(`+name+`.htmlFor)`)
	p.keys("Staff alone")
	p.tabTo("the role", `e.matches(".gh-condition-row input[aria-label='Value']")`)
	p.keys("staff")
	p.enterOn("Create and activate")
	p.wait("the workbench", `/^\/policies\/\d+$/.test(location.pathname) && `+settled)
	p.tabTo("the way to the dashboard", `e.matches("nav a[href^='/?'], .gh-brand")`)
	p.keys(kb.Enter)
	p.wait("the step", step("Pick a control"))

	// See it work: in shadow mode the visitor passes, and the log has the decision.
	visit := func() int {
		status, _ := d.visit(bouncer, "/", "eve", "visitor")
		return status
	}
	eventually(t, "the application answers through the bouncer", func() bool { return visit() == http.StatusOK })
	p.wait("that the decision is noticed", step("See it work"))

	// Enforce.
	p.enterOn("Enforce in Sandbox")
	p.dialog("the question before it is enforced")
	p.enterOn("Enforce in Sandbox")
	p.wait("the end of the path", `!document.querySelector(".gh-steps")`)
	eventually(t, "the visitor is refused", func() bool { return visit() == http.StatusForbidden })
	p.visit("/decisions?decision=DENY")
	p.wait("the refusal in the log", `document.querySelector("tbody td a[href^='/decisions/']")`)
}

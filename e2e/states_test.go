package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
)

// addresses has each screen of the console once.
var addresses = []string{
	"/", "/policies", "/policies/new", "/policies/1", "/policies/1?tab=tests", "/policies/1?tab=versions", "/policies/1?tab=usage", "/policies/1?tab=promote",
	"/libraries", "/repositories", "/simulator?policy=1", "/simulator?policy=1&tab=history",
	"/decisions", "/decisions/00000000-0000-4000-8000-000000000000", "/replays", "/resources", "/resources/1", "/inventory", "/coverage",
	"/bouncers", "/bouncers/1", "/revisions", "/users", "/users/admin", "/settings/sign-on", "/settings/security", "/api-keys", "/audit",
	"/tenant", "/tenant/domains", "/tenant/regions", "/tenant/billing", "/tenant/usage", "/webhooks", "/webhooks/1", "/data-sources", "/data-sources/1",
	"/notifications", "/notifications/deliveries", "/notifications/alert-rules", "/integrations", "/telemetry", "/agents", "/requests", "/tenants", "/vendors", "/settings",
}

// forms are the forms in which a screen is checked.
var forms = []form{{"light", "light", 1440, 900}, {"dark", "dark", 1440, 900}, {"narrow", "light", 390, 844}}

// inTurn is the form of the i-th screen without its data. Such screens consist of the same few
// parts, so each is checked in one form. GATEHOUSE_E2E_FORMS=all checks each in every form.
func inTurn(i int) []form {
	if os.Getenv("GATEHOUSE_E2E_FORMS") == "all" {
		return forms
	}
	return forms[i%len(forms) : i%len(forms)+1]
}

// TestStates checks every screen of an empty tenant, while its data loads, and after the requests
// for its data have failed.
func TestStates(t *testing.T) {
	t.Parallel()
	chromium(t)
	dir := t.TempDir()
	port := strconv.Itoa(freePorts(t, 1)[0])
	d := deployment{console: "http://127.0.0.1:" + port}
	launch(t, exec.Command(build(t), "server"), dir, []string{
		"GATEHOUSE_DEMO=true", "GATEHOUSE_ADMIN_PASSWORD=" + password, "GATEHOUSE_LISTEN=127.0.0.1:" + port,
		"GATEHOUSE_DATA_DIR=" + filepath.Join(dir, "data"), "GATEHOUSE_RATE_LIMIT=none",
	})
	eventually(t, "the server answers", answers(d.console+"/health"))
	p := open(t, d)
	p.size(1440, 900)
	p.expectRefusals()
	p.expect("status of 404") // an empty tenant has nothing with the id 1
	p.expect("status of 500") // the answers of the last part
	p.loginForm()
	p.signIn("/")

	t.Run("empty", func(t *testing.T) {
		p := p.in(t)
		for _, path := range addresses {
			p.visit(path)
			p.inForms(path+", empty", forms)
		}
	})
	answer := p.held()
	for _, state := range []struct {
		name, shown string
		fail        bool
	}{
		{"loading", `document.querySelector("main h1, main [aria-busy=true]")`, false},
		{"with an error", settled, true},
	} {
		t.Run(state.name, func(t *testing.T) {
			p := p.in(t)
			answer.Store(state.fail)
			for i, path := range addresses {
				p.do("opening "+path, chromedp.Navigate(p.origin+path))
				where := path + ", " + state.name
				p.wait(where, state.shown)
				p.inForms(where, inTurn(i))
			}
		})
	}
}

// loginForm checks the form of the sign-in, with and without a refusal.
func (p *tab) loginForm() {
	p.t.Helper()
	p.visit("/login")
	p.inForms("/login", forms)
	p.fill("username", "admin")
	p.fill("password", "not the password")
	p.press("form button[type=submit]")
	p.shows("The user name or the password is wrong.")
	p.inForms("/login with a refusal", forms)
}

// held stops the requests for the data of screens, so that they stay unanswered. Once the flag is
// set, they fail with 500.
func (p *tab) held() *atomic.Bool {
	p.t.Helper()
	fail := new(atomic.Bool)
	paused := chromedp.Events(p.ctx, fetch.RequestPaused)
	if _, err := chromedp.Call(p.ctx, fetch.Enable, fetch.EnableParams{Patterns: []*fetch.RequestPattern{{URLPattern: "*/api/v1/*"}}}); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		for r, err := range paused {
			switch {
			case err != nil:
				return
			case strings.HasSuffix(r.Request.URL, "/auth/me"): // every screen needs it
				_, _ = chromedp.Call(p.ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: r.RequestID})
			case fail.Load():
				_, _ = chromedp.Call(p.ctx, fetch.FulfillRequest, fetch.FulfillRequestParams{
					RequestID: r.RequestID, ResponseCode: 500, ResponseHeaders: []*fetch.HeaderEntry{{Name: "Content-Type", Value: "application/json"}},
					Body: []byte(`{"error":{"code":"internal","message":"The server failed.","request_id":"0123456789abcdef"}}`),
				})
			}
		}
	}()
	return fail
}

// inForms checks what is shown in each of the forms: axe finds nothing, there is one
// heading, and nothing is wider than the window.
func (p *tab) inForms(where string, forms []form) {
	p.t.Helper()
	for _, form := range forms {
		p.scheme(form.scheme)
		p.size(form.width, form.height)
		p.wait("the form of the window", `innerWidth === `+strconv.FormatInt(form.width, 10)+` && document.documentElement.dataset.mantineColorScheme === "`+form.scheme+`"`)
		shown := where + ", " + form.name
		if n := p.read(`document.querySelectorAll("h1").length`); n != "1" {
			p.t.Errorf("%s has %s h1, want 1", shown, n)
		}
		p.fits(shown)
		if form.scheme == "dark" { // only the colours differ from the light form
			p.accessibleBy(shown, `runOnly: ["color-contrast", "link-in-text-block"], `)
		} else {
			p.accessible(shown)
		}
	}
}

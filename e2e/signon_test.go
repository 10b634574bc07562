package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestSignOn goes to the tenant's identity provider from the sign-in page, comes back to
// the screen that was asked for, and signs out at both.
func TestSignOn(t *testing.T) {
	t.Parallel()
	chromium(t)
	dir := t.TempDir()
	ports := freePorts(t, 2)
	d := deployment{console: "http://127.0.0.1:" + strconv.Itoa(ports[0])}
	issuer := startProvider(t, ports[1], d.console+"/api/v1/auth/sso/callback")
	launch(t, exec.Command(build(t), "server"), dir, []string{
		"GATEHOUSE_DEMO=true", "GATEHOUSE_ADMIN_PASSWORD=" + password, "GATEHOUSE_LISTEN=127.0.0.1:" + strconv.Itoa(ports[0]),
		"GATEHOUSE_DATA_DIR=" + filepath.Join(dir, "data"), "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8,::1/128",
	})
	eventually(t, "the server answers", answers(d.console+"/health"))
	p := open(t, d)
	p.expect("/api/v1/auth/me") // the browser reports the refusal before the sign-in
	p.expect(issuer)            // its pages are elsewhere
	p.size(1440, 900)
	p.expect("/api/v1/tenants/default/sign-on")       // there is none at first
	p.expect("/api/v1/tenants/default/sign-on/check") // of a provider that is not there
	p.signIn("/settings/sign-on")
	providerConnected(p, issuer)
	token := p.ask("POST", "/auth/login", `JSON.stringify({username: "admin", password: "`+password+`"})`, "access_token")
	p.signOut()

	signInFailed(p)
	button := `[...document.querySelectorAll("main a")].some(a => a.textContent.trim() === "Sign in with Acme ID")`
	p.visit("/login?next=%2Fsettings")
	p.wait("the button of the provider", button+` && document.querySelector("[name=password]")`)
	p.accessible("a sign-in page with a provider and passwords")
	passwordsOff(t, d, token)
	p.visit("/login?next=%2Fsettings")
	p.wait("the button alone", button+` && !document.querySelector("[name=password]")`)
	p.accessible("a sign-in page with a provider alone")
	p.press(`main a[href^="/api/v1/auth/sso/login"]`)
	p.wait("the provider's page", `document.querySelector("[name=username]") && location.origin !== `+strconv.Quote(d.console))
	p.fill("username", "ann")
	p.fill("password", "verysecure")
	p.press("button[type=submit]")
	p.wait("the screen that was asked for", `location.pathname === "/settings" && `+settled)
	p.shows("ann@acme.example")

	p.press(".gh-top button[aria-haspopup=menu]")
	find := `[...document.querySelectorAll("[role=menuitem]")].find(e => e.textContent.trim() === "Sign out")`
	p.wait("the menu", find)
	p.do("signing out", chromedp.Evaluate[chromedp.Void]("("+find+").click()"))
	p.wait("the provider's end of the session", `location.origin !== `+strconv.Quote(d.console))
}

// providerConnected connects the tenant's identity provider by the form.
func providerConnected(p *tab, issuer string) {
	p.shows("Connect the provider")
	p.accessible("the sign-on of a tenant without a provider")
	p.fill("issuer", issuer+"elsewhere")
	p.button("Check the provider")
	wrong := `document.querySelector("[name=issuer]").getAttribute("aria-invalid") === "true"`
	p.wait("the error at the field", wrong)
	p.accessible("a provider that is not there")
	p.fill("issuer", issuer)
	p.button("Check the provider")
	p.shows("The provider answers and can be used.")
	p.wait("what to register", `document.querySelector("pre[aria-label='Redirect URI']")?.textContent === location.origin + "/api/v1/auth/sso/callback" &&
		document.querySelector("pre[aria-label='Back-channel logout URI']")?.textContent.includes("/backchannel-logout?tenant_id=default")`)
	p.fill("client-id", "web")
	p.fill("client-secret", "secret")
	p.fill("provider-name", "Acme ID")
	p.toggle("Add unknown people at their first sign-in")
	p.pick("Roles of everybody", "Viewer")
	p.accessible("the form of a provider")
	p.button("Connect the provider")
	p.wait("that it is connected", `document.querySelector(".gh-head .gh-status")?.innerText === "Enabled" && document.querySelector("[name=client-secret]").value === ""`)
	p.shows("A secret is stored. Leave this empty to keep it.")
	if p.read(`document.documentElement.outerHTML.includes("verysecure") || [...document.querySelectorAll("input")].some(e => e.value === "secret")`) == "true" {
		p.t.Error("the page contains the client's secret or the password of the person")
	}
	p.looked("/settings/sign-on")
	p.scheme("dark")
	p.visit("/settings/sign-on")
	p.accessible("the sign-on in dark")
	p.scheme("light")
	// An error of the API is shown at its field.
	p.fill("role-claim", strings.Repeat("x", 10))
	p.addTag("Allowed e-mail domains", "@acme.example")
	p.button("Save")
	p.wait("the error at the field", `document.querySelector("[role=alert]")?.innerText.includes("Nothing was stored") && document.body.innerText.includes("allowed_email_domains") === false`)
	p.accessible("a setting that was refused")
	p.visit("/")
}

// signInFailed comes back from a provider without a sign-in: the page says so in the
// person's language, and shows nothing of what the address contains.
func signInFailed(p *tab) {
	for _, failed := range []struct{ address, language, says string }{
		{"/api/v1/auth/sso/callback?state=made-up&code=x&error_description=%3Cimg%20src%3Dx%3E", "en", "This sign-in was not started in this browser"},
		{"/api/v1/auth/sso/login?tenant_id=nobody-here", "es", "no inician sesión en un proveedor de identidad"},
		{"/login?error=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "fr", "La connexion n'a pas abouti"},
	} {
		p.speak(failed.language)
		p.do("opening "+failed.address, chromedp.Navigate(p.origin+failed.address))
		p.wait("the sign-in page", `location.pathname === "/login" && document.querySelector("[name=password]")`)
		p.shows(failed.says)
		if p.read(`document.querySelectorAll("img[src=x]").length + Number(location.search.includes("made-up"))`) != "0" {
			p.t.Errorf("%s: text of the address became markup, or stayed in the address: %s", failed.address, p.read("location.search"))
		}
		p.accessible("a sign-in that failed, in " + failed.language)
	}
	p.speak("en")
}

// passwordsOff has the default tenant's people sign in at the provider alone.
func passwordsOff(t *testing.T, d deployment, token string) {
	t.Helper()
	if status := send(t, http.MethodPut, d.console+"/api/v1/tenants/default/sign-on", "Authorization", "Bearer "+token, `{"password_login": false}`); status != http.StatusOK {
		t.Fatalf("switching passwords off: got %d, want 200", status)
	}
}

// startProvider starts the identity provider that `make bin/idp` builds, with one person.
func startProvider(t *testing.T, port int, redirect string) (issuer string) {
	t.Helper()
	program, err := filepath.Abs("../bin/idp")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		if os.Getenv("GATEHOUSE_TEST_REQUIRE") != "" {
			t.Fatalf("no identity provider, run make bin/idp: %v", err)
		}
		t.Skip("there is no identity provider: make bin/idp")
	}
	people, err := json.Marshal(map[string]map[string]any{"id1": {
		"ID": "id1", "Username": "ann", "Password": "verysecure", "Email": "ann@acme.example", "EmailVerified": true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "users.json")
	if err := os.WriteFile(file, people, 0o600); err != nil {
		t.Fatal(err)
	}
	launch(t, exec.Command(program), dir, []string{"PORT=" + strconv.Itoa(port), "REDIRECT_URI=" + redirect, "USERS_FILE=" + file})
	issuer = "http://localhost:" + strconv.Itoa(port) + "/"
	eventually(t, "the provider answers", answers(issuer+".well-known/openid-configuration"))
	return issuer
}

// answers returns a function that reports whether an address answers 200.
func answers(address string) func() bool {
	return func() bool {
		res, err := http.Get(address)
		if err == nil {
			res.Body.Close()
		}
		return err == nil && res.StatusCode == http.StatusOK
	}
}

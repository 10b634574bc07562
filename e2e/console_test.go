package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// screens are the addresses of the console at which the demo has data.
var screens = []string{
	"/", "/policies", "/policies/new", "/policies/1", "/policies/1?tab=tests", "/policies/1?tab=versions",
	"/policies/1?tab=usage", "/libraries", "/repositories", "/libraries?environment=production", "/simulator", "/simulator?policy=1", "/simulator?policy=1&tab=history", "/simulator?tab=compare",
	"/decisions", "/replays", "/resources", "/resources/1", "/inventory", "/coverage", "/coverage?gaps=true",
	"/bouncers", "/bouncers/1", "/revisions", "/users", "/users/dora", "/users/nobody-here", "/settings/sign-on", "/api-keys", "/audit", "/tenant", "/tenant/domains", "/tenant/regions", "/tenant/billing", "/tenant/usage", "/webhooks", "/webhooks/2", "/data-sources", "/data-sources/2", "/notifications", "/notifications?channel=1", "/notifications/deliveries", "/notifications/deliveries?status=dlq", "/notifications/deliveries?status=digested", "/notifications/alert-rules", "/notifications/alert-rules?rule=1", "/telemetry", "/agents", "/requests", "/requests?request=2", "/tenants", "/tenants?tenant=default", "/vendors", "/settings",
	"/nowhere", "/policies/999999", "/bouncers/999999", "/?environment=production", "/policies?environment=production",
}

// TestConsole goes through the main stories one after another in one browser. Then it opens every
// screen in every form and language, in parallel browsers, all against one server.
func TestConsole(t *testing.T) {
	t.Parallel()
	chromium(t)
	d := start(t)
	p := open(t, d)
	p.size(1440, 900)
	p.expectRefusals()

	t.Run("the printed link signs in once", func(t *testing.T) { linkSignsInOnce(p.in(t), d) })
	t.Run("sign in", func(t *testing.T) { signsIn(p.in(t)) })
	t.Run("the first loads", func(t *testing.T) { firstLoads(p.in(t)) })
	t.Run("changes are followed", func(t *testing.T) { changesFollowed(p.in(t)) })
	t.Run("a denial is found and explained", func(t *testing.T) { denialExplained(p.in(t), d) })
	t.Run("the editor names an error", func(t *testing.T) { editorHelps(p.in(t)) })
	t.Run("the editor is readable", func(t *testing.T) { editorReadable(p.in(t)) })
	t.Run("a control is broken and mended", func(t *testing.T) { controlMended(p.in(t)) })
	t.Run("unsaved work is kept", func(t *testing.T) { unsavedKept(p.in(t)) })
	t.Run("a colleague is added", func(t *testing.T) { colleagueAdded(p.in(t)) })
	t.Run("a session is ended", func(t *testing.T) { sessionEnded(p.in(t), d) })
	t.Run("a bouncer is rolled back", func(t *testing.T) { bouncerRolledBack(p.in(t), d) })
	t.Run("a key is made and works", func(t *testing.T) { keyMade(p.in(t), d) })
	t.Run("a control is tried", func(t *testing.T) { controlTried(p.in(t)) })
	t.Run("a library is written", func(t *testing.T) { libraryWritten(p.in(t)) })
	t.Run("a repository is synchronised", func(t *testing.T) { repositorySynced(p.in(t), d) })
	t.Run("the tenant is set", func(t *testing.T) { tenantChanged(p.in(t)) })
	t.Run("a tenant is kept", func(t *testing.T) { tenantKept(p.in(t)) })
	t.Run("everything is classified", func(t *testing.T) { allClassified(p.in(t)) })
	t.Run("a webhook is kept", func(t *testing.T) { webhookKept(p.in(t)) })
	t.Run("a mail channel is tested", func(t *testing.T) { channelTested(p.in(t), d) })
	t.Run("a directory is connected", func(t *testing.T) { directoryConnected(p.in(t), d) })
	t.Run("a vendor is kept", func(t *testing.T) { vendorKept(p.in(t), d) })
	t.Run("a data source is kept", func(t *testing.T) { sourceKept(p.in(t)) })
	t.Run("an integration is kept", func(t *testing.T) { integrationKept(p.in(t)) })
	t.Run("telemetry is set", func(t *testing.T) { telemetrySet(p.in(t)) })
	t.Run("an agent is kept", func(t *testing.T) { agentKept(p.in(t)) })
	t.Run("an alert rule is kept", func(t *testing.T) { ruleKept(p.in(t)) })
	t.Run("a domain is verified", func(t *testing.T) { domainVerified(p.in(t), d) })
	t.Run("a move is planned and stopped", func(t *testing.T) { moveStopped(p.in(t)) })
	t.Run("the bill is changed", func(t *testing.T) { billChanged(p.in(t)) })
	t.Run("access is decided", func(t *testing.T) { accessDecided(p.in(t), d) })
	t.Run("everything is followed", func(t *testing.T) { everythingFollowed(p.in(t)) })
	t.Run("a denial by keys alone", func(t *testing.T) { denialByKeys(p.in(t), d) })
	t.Run("a promotion by keys alone", func(t *testing.T) { promotedByKeys(p.in(t)) })
	t.Run("the screens", func(t *testing.T) {
		for _, form := range []form{{"light", "light", 1440, 900}, {"dark", "dark", 1440, 900}, {"narrow", "light", 390, 844}} {
			t.Run(form.name, func(t *testing.T) {
				t.Parallel()
				everyScreen(signedIn(t, d), form)
			})
		}
		t.Run("every language", func(t *testing.T) {
			t.Parallel()
			everyLanguage(signedIn(t, d))
		})
	})
	t.Run("a field is masked", func(t *testing.T) { fieldMasked(p.in(t), d) })
	t.Run("a replay shows what would flip", func(t *testing.T) { replaySeen(p.in(t)) })
	t.Run("a control is promoted", func(t *testing.T) { controlPromoted(p.in(t), d) })
}

// in is the tab as part of another test.
func (p *tab) in(t *testing.T) *tab {
	t.Helper()
	q := &tab{t: t, ctx: p.ctx, origin: p.origin}
	t.Cleanup(func() {
		if t.Failed() {
			q.picture("failed")
		}
	})
	return q
}

func linkSignsInOnce(p *tab, d deployment) {
	p.do("opening the link", chromedp.Navigate(d.link))
	p.wait("the dashboard", `location.pathname === "/" && `+settled)
	if at := p.read("location.href"); strings.Contains(at, "link=") {
		p.t.Errorf("the address after a sign-in by a link still has the link: %s", at)
	}
	p.signOut()
	p.do("leaving the page", chromedp.Navigate("about:blank"))
	p.do("opening the link again", chromedp.Navigate(d.link))
	p.shows("This link has been used")
	if at := p.read("location.pathname"); at != "/login" {
		p.t.Errorf("a used link leads to %s, want /login", at)
	}
}

// signOut uses the menu of the account.
func (p *tab) signOut() {
	p.t.Helper()
	p.press(".gh-top button[aria-haspopup=menu]")
	find := `[...document.querySelectorAll("[role=menuitem]")].find(e => e.textContent.trim() === "Sign out")`
	p.wait("the menu of the account", find)
	p.do("signing out", chromedp.Evaluate[chromedp.Void]("("+find+`).click()`))
	p.wait("the end of the session", `location.pathname === "/login" && !location.search && !document.querySelector(".gh-login form button[type=submit]").disabled`)
	if status := p.await("asking who is signed in", `fetch("/api/v1/auth/me").then(r => String(r.status))`); status != "401" {
		p.t.Errorf("/auth/me after the sign-out: got %s, want 401", status)
	}
}

func signsIn(p *tab) {
	p.visit("/bouncers")
	p.wait("the sign-in form", `location.pathname === "/login"`)
	p.fill("username", "admin")
	p.fill("password", "not the password")
	p.press("form button[type=submit]")
	p.shows("The user name or the password is wrong.")
	if at := p.read("location.pathname"); at != "/login" {
		p.t.Errorf("a wrong password leads to %s, want /login", at)
	}
	p.signIn("/bouncers")
	if held := p.read("document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)"); strings.Contains(held, "eyJ") || strings.Contains(held, "session") {
		p.t.Errorf("scripts can read the session: %s", held)
	}
}

func denialExplained(p *tab, d deployment) {
	if status, _ := d.visit(d.sandbox, "/employees/1", "mallory", "visitor"); status != http.StatusForbidden {
		p.t.Fatalf("a visitor reads payroll: got %d, want 403", status)
	}
	d.visit(d.sandbox, "/employees/2", "mallory", "visitor")
	p.visit("/decisions?decision=DENY&user_id=mallory")
	p.wait("the denial in the log", `[...document.querySelectorAll("tbody tr")].some(r => r.innerText.includes("mallory"))`)
	p.wait("the timeline of the visitor", `document.querySelectorAll(".gh-lane-mark[data-denied=true]").length > 1`)
	p.accessible("the decisions of one person")
	p.press("tbody tr td a")
	p.wait("the decision", `location.pathname.startsWith("/decisions/") && `+settled)
	p.shows("mallory")
	p.explained()
	p.accessible("a decision")
	yesterdayExplained(p, d)
}

// explained checks that a decision shows why it denied, the rule that came closest to allowing,
// and the condition of it that was false.
func (p *tab) explained() {
	p.t.Helper()
	p.shows("only HR and staff may read payroll")
	p.wait("the rule that would have allowed", `[...document.querySelectorAll(".gh-conditions li[data-holds=false] code")].some(c => /roles/.test(c.innerText))`)
}

// yesterdayExplained finds what was denied to one person yesterday, among what was denied
// today, and reads why.
func yesterdayExplained(p *tab, d deployment) {
	yesterday := time.Now().UTC().AddDate(0, 0, -1)
	token := p.ask("POST", "/bouncers?environment=sandbox", `JSON.stringify({name: "the one of yesterday", hostname: "127.0.0.1", port: 9})`, "token")
	body := fmt.Sprintf(`[{"decision_id": "of-yesterday", "timestamp": %q, "path": "gatehouse/decision",
		"input": {"user": {"id": "mallory", "roles": ["visitor"]}, "action": {"name": "read", "method": "GET"}, "resource": {"id": "1", "path": "/employees/9", "type": "api"}},
		"result": {"decision": "DENY", "allow": false, "effect": "DENY", "reason": "only HR and staff may read payroll", "policy_id": 1, "policy_name": "Payroll access", "policy_version": 1}, "custom": {"audit_level": "detailed"}}]`,
		yesterday.Format(time.RFC3339Nano))
	if status := send(p.t, http.MethodPost, d.console+"/api/v1/bridge/logs", "Authorization", "Bearer "+token, body); status != http.StatusOK {
		p.t.Fatalf("sending the log of yesterday: got %d, want 200", status)
	}
	day := yesterday.Format(time.DateOnly)
	rows := `[...document.querySelectorAll("tbody tr")]`
	p.visit("/decisions?decision=DENY&user_id=mallory&start_date=" + day + "&end_date=" + day)
	p.wait("the denial of yesterday alone", rows+`.length === 1 && `+rows+`[0].innerText.includes("/employees/9")`)
	p.press("tbody tr td a")
	p.wait("the decision", `location.pathname === "/decisions/of-yesterday" && `+settled)
	p.explained()
}

func editorHelps(p *tab) {
	p.visit("/policies/1")
	p.append("\nallow if input.user.role == admin\n")
	p.wait("the finding", `[...document.querySelectorAll(".gh-findings li")].some(l => /admin/.test(l.innerText))`)
	p.accessible("the workbench with an error")
}

// controlMended breaks a control, goes to the finding of the editor, repairs the control, runs it
// and stores it, by keyboard only.
func controlMended(p *tab) {
	id := p.ask("POST", "/policies?environment=sandbox", `JSON.stringify({name: "Broken and mended", rego_code: "package example\n\nimport rego.v1\n\nallow if input.user.id == \"ada\"\n"})`, "id")
	p.visit("/policies/" + id)
	p.toEndOfControl()
	p.keys(kb.Enter + "allow if input.user.ro")
	p.completes("role")
	p.accessible("the editor with completions")
	p.keys(kb.Escape)
	p.keys("le == admin")
	p.keys(kb.Escape)
	finding := `[...document.querySelectorAll(".gh-findings li")].some(l => /admin/.test(l.innerText))`
	p.wait("the finding", finding)
	p.tabTo("the finding", `e.matches(".gh-findings button") && /admin/.test(e.innerText)`)
	p.keys(kb.Enter)
	p.wait("the cursor in the line of the finding", `document.activeElement.matches(".cm-content") && document.querySelector(".cm-activeLine")?.innerText.includes("admin")`)
	p.keys(kb.End)
	p.keys(strings.Repeat(kb.Backspace, len("admin")))
	p.keys(`"admin"`)
	p.keys(kb.Escape)
	p.wait("the end of the finding", "!"+finding)
	p.keys(kb.Enter, control())
	p.wait("what it decides", `document.querySelector(".gh-verdict")`)
	p.keys("s", control())
	p.shows("version 2")
	p.accessible("a control that was mended")
}

// replaySeen replays recorded requests after a control has changed and sees which decisions would
// flip, by keyboard only.
func replaySeen(p *tab) {
	p.visit("/replays")
	p.enterOn("Start a replay")
	p.dialog("the form of a replay")
	p.tabTo("the controls", "e === "+labelled("Controls"))
	p.keys("Payroll access")
	p.wait("the control", `[...document.querySelectorAll("[role=option]")].filter(o => o.getClientRects().length > 0).length === 1`)
	p.keys(kb.ArrowDown)
	p.take()
	p.wait("that it is chosen", `document.querySelector("[role=dialog] .mantine-Pill-label")?.innerText === "Payroll access"`)
	p.tabTo("the start", `e.matches("[role=dialog] button[type=submit]")`)
	p.keys(kb.Enter)
	p.wait("what would flip", `!document.querySelector("[role=dialog]") && /\b[1-9]\d* of the last [\d,]+ decisions would flip/.test(document.body.innerText)`)
	p.accessible("a replay")
}

// unsavedKept goes back several pages at once from a control with unsaved changes: the console
// asks first, and Cancel keeps the changes.
func unsavedKept(p *tab) {
	p.visit("/")
	p.press("nav a[href^='/resources']")
	p.wait("the resources", `location.pathname === "/resources" && `+settled)
	p.press("nav a[href^='/policies']")
	p.wait("the controls", `location.pathname === "/policies" && `+settled)
	p.press("tbody td a[href^='/policies/1?']")
	p.wait("the workbench", `location.pathname === "/policies/1" && document.querySelector(".cm-content")`)
	// The skip link makes an entry of the history that the router did not make.
	p.do("skipping to the content", chromedp.Evaluate[chromedp.Void](`document.querySelector(".gh-skip").click()`))
	p.wait("the fragment", `location.hash === "#main"`)
	p.append("\n# not stored yet\n")
	p.shows("Not saved")
	for _, presses := range []string{"history.go(-2)", "history.go(-2); history.back()", "history.back(); history.back(); history.back()"} {
		p.do("going back by "+presses, chromedp.Evaluate[chromedp.Void](presses))
		p.dialog("the question before unsaved work is left")
		p.wait("the address of the workbench again", `location.pathname === "/policies/1"`)
		p.button("Cancel")
		p.wait("the end of the question", `!document.querySelector("[role=dialog]")`)
		p.shows("not stored yet")
	}
	p.press("nav a[href^='/resources']")
	p.wait("the question", `document.querySelector("[role=dialog]")`)
	p.button("Leave and discard")
	p.wait("the resources", `location.pathname === "/resources" && `+settled)
}

// append types at the end of the control in the editor.
func (p *tab) append(text string) {
	p.t.Helper()
	p.press(".cm-content")
	p.do("going to the end", chromedp.Evaluate[chromedp.Void](`(() => { const c = document.querySelector(".cm-content"); c.focus(); getSelection().selectAllChildren(c); getSelection().collapseToEnd(); })()`))
	if _, err := chromedp.Call(p.ctx, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
		p.t.Fatal(err)
	}
}

func fieldMasked(p *tab, d deployment) {
	staff := func() string {
		_, body := d.visit(d.sandbox, "/employees/1", "ben", "staff")
		return body
	}
	if body := staff(); !strings.Contains(body, `"name":`) || strings.Contains(body, `"name":"[redacted]"`) {
		p.t.Fatalf("before the mask, staff read %s, want the name", body)
	}
	p.visit("/policies/1")
	p.toEndOfControl()
	if _, err := chromedp.Call(p.ctx, input.InsertText, input.InsertTextParams{Text: "\nmask contains \"name\" if \"staff\" in input.user.roles\n"}); err != nil {
		p.t.Fatal(err)
	}
	p.keys("s", control())
	p.shows("version 2")
	eventually(p.t, "staff read the name redacted", func() bool { return strings.Contains(staff(), `"name":"[redacted]"`) })
}

func controlPromoted(p *tab, d deployment) {
	p.visit("/policies/1?tab=promote")
	p.shows("Production has no active control of this name")
	p.accessible("the page of a promotion")
	p.button("Promote to production")
	confirm := chromedp.CSS("[role=dialog] input")
	p.do("typing the name", chromedp.WaitVisible(confirm), chromedp.SendKeys(confirm, "Payroll access"))
	p.dialog("the question before a promotion")
	p.button("Promote to production")
	p.wait("the control in production", `location.search.includes("environment=production") && `+settled)
	p.shows("Payroll access")
	eventually(p.t, "production's log says what it would have done", func() bool {
		if status, body := d.visit(d.production, "/employees/1", "mallory", "visitor"); status != http.StatusOK {
			p.t.Fatalf("a bouncer in shadow mode: got %d %s, want 200", status, body)
		}
		p.visit("/decisions?environment=production")
		return p.read(`document.body.innerText.includes("Shadow: would deny")`) == "true"
	})
}

func colleagueAdded(p *tab) {
	p.visit("/users")
	p.enterOn("Add a person")
	p.dialog("the form of a new person")
	p.typeInto("new-username", "carla")
	p.typeInto("email", "carla@example.com")
	p.typeInto("new-password", "a long enough secret")
	p.keys(kb.Enter)
	p.wait("the colleague in the list", `[...document.querySelectorAll("tbody tr")].some(r => r.innerText.includes("carla@example.com"))`)
}

func bouncerRolledBack(p *tab, d deployment) {
	passes := func() bool {
		status, _ := d.visit(d.sandbox, "/employees/1", "eve", "visitor")
		return status == http.StatusOK
	}
	p.visit("/bouncers/1")
	p.enterOn("Roll back to shadow")
	p.dialog("the question before a roll back")
	p.enterOn("Roll back to shadow")
	p.wait("the end of the question", `!document.querySelector("[role=dialog]")`)
	eventually(p.t, "the visitor passes in shadow mode", passes)
	p.enterOn("Follow the environment")
	p.wait("the question", `document.querySelector("[role=dialog]")`)
	p.enterOn("Follow the environment")
	eventually(p.t, "the visitor is refused again", func() bool { return !passes() })
}

func keyMade(p *tab, d deployment) {
	p.visit("/api-keys")
	p.button("Create a key")
	p.fill("name", "pipeline")
	p.press("[role=dialog] button[type=submit]")
	p.wait("the key", `document.querySelector(".gh-command pre")?.innerText.startsWith("gh_")`)
	key := p.read(`document.querySelector(".gh-command pre").innerText.trim()`)
	if status := send(p.t, http.MethodGet, d.console+"/api/v1/auth/me", "X-API-Key", key, ""); status != http.StatusOK {
		p.t.Errorf("a request with the key that the page shows: got %d, want 200", status)
	}
	p.accessible("a new key")
}

// form is a colour scheme and a size of the window.
type form struct {
	name, scheme  string
	width, height int64
}

// everyScreen checks the layout, title and accessibility of every screen in one form.
func everyScreen(p *tab, form form) {
	p.scheme(form.scheme)
	p.size(form.width, form.height)
	titles := map[string]string{}
	for _, path := range screens {
		p.visit(path)
		where := path + ", " + form.name
		p.headed(where)
		p.fits(where)
		p.accessible(where)
		p.picture(where)
		if form.name == "light" {
			p.comesBack(path)
			titles[strings.SplitN(path, "?", 2)[0]] = p.read("document.title")
		}
	}
	p.distinct(titles)
}

// comesBack leaves a screen by a link, and finds it again as it was by the browser's way back.
func (p *tab) comesBack(path string) {
	p.t.Helper()
	shown := `JSON.stringify([location.pathname, location.search, document.title, document.querySelector("h1").innerText])`
	before, link, there := p.read(shown), ".gh-brand", "/"
	if strings.SplitN(path, "?", 2)[0] == there {
		link, there = "nav a[href^='/settings?'], nav a[href='/settings']", "/settings"
	}
	p.within(link)
	p.wait(there, `location.pathname === "`+there+`" && `+settled)
	p.do("going back", chromedp.Evaluate[chromedp.Void]("history.back()"))
	p.wait("the way back to "+path, settled+" && "+shown+" === "+strconv.Quote(before))
}

// distinct checks that no two addresses have the same title.
func (p *tab) distinct(titles map[string]string) {
	p.t.Helper()
	found := map[string]string{}
	for path, title := range titles {
		if slices.ContainsFunc(hostile, func(name string) bool { return strings.HasPrefix(title, name) }) {
			continue // the stories gave the same name to things of several kinds
		}
		if strings.HasSuffix(path, "999999") || strings.Contains(path, "nowhere") || strings.Contains(path, "nobody") {
			continue // what is not there has one title for all
		}
		if other, twice := found[title]; twice {
			p.t.Errorf("%s and %s have the same title %q", path, other, title)
		}
		found[title] = path
	}
}

// signedIn is a browser of its own, with a session of its own.
func signedIn(t *testing.T, d deployment) *tab {
	t.Helper()
	p := open(t, d)
	p.size(1440, 900)
	p.expectRefusals()
	p.signIn("/")
	return p
}

// expectRefusals ignores the refusals that the stories cause: the browser reports each in its
// console.
func (p *tab) expectRefusals() {
	for _, refused := range []string{
		"/api/v1/auth/me", "/api/v1/auth/sessions", "/policies/999999", "/bouncers/999999", "/ide-integration/repositories/1", "/domains/access.example.com/verify",
		"/users/nobody-here", "/tenants/default/sign-on", "/telemetry/config", "/telemetry/send-now", "/notifications/channels/999999", "/notifications/alert-rules/999999", "/vendors/nobody",
		"/access/v1/requests?environment=sandbox)", "/access/v1/requests/999999", "/access/v1/requests/2/approve", "/api/v1/integrations)", "/integrations/999999",
	} {
		p.expect(refused)
	}
}

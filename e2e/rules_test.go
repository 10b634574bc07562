package e2e

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// rowOf is an expression: a table has a row with both texts.
func rowOf(first, second string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].some(r => r.innerText.includes(%q) && r.innerText.includes(%q))`, first, second)
}

// ruleKept writes an alert rule that reads as a sentence, sees how often it would have
// fired, changes it and deletes it.
func ruleKept(p *tab) {
	sentence := func(text string) string {
		return fmt.Sprintf(`document.querySelector("[data-rule-sentence]")?.innerText.replaceAll("\u00a0", " ").includes(%q)`, text)
	}
	p.visit("/notifications/alert-rules")
	p.shows("No alert rules yet")
	p.accessible("no alert rules")
	p.button("New rule")
	p.fill("rule-name", "many denials")
	p.fill("resource", "payments")
	p.pick("Channels", "on call")
	p.wait("the rule as a sentence", sentence("When the share of denials on resource payments is more than 20 % within 5 minutes, tell on call (Warning). While that lasts, again after 1 hour, at most 10 times a day."))
	p.button("Preview")
	p.shows("It would not have fired in the last 7 days.")
	p.dialog("the form of an alert rule")
	p.fill("threshold", "0")
	p.wait("that the preview of another threshold is gone", `!document.querySelector("[role=dialog] [role=status]")`)
	// The preview counts the minutes in which there were decisions.
	p.fill("resource", kb.Backspace)
	p.option("Metric", "the number of decisions")
	p.wait("the sentence of the other metric", sentence("When the number of decisions is more than 0 within 5 minutes"))
	p.eventually("that it would have fired", `/It would have fired \d+ times? in the last 7 days/.test(document.querySelector("[role=dialog] [role=status]")?.innerText)`,
		`[...document.querySelectorAll("[role=dialog] button")].find(b => b.textContent.trim() === "Preview" && !b.dataset.loading)?.click()`)
	p.accessible("a preview that found something")
	p.button("Create rule")
	p.wait("the rule", `location.search.includes("rule=1") && document.querySelector("section[aria-label='many denials']") && !document.querySelector("[role=dialog]")`)
	p.wait("the sentence of the rule", sentence("tell on call (Warning)"))
	p.accessible("an alert rule")

	p.button("Edit")
	p.wait("the form with what it is", `document.querySelector("[name=rule-name]")?.value === "many denials" && document.querySelector("[name=threshold]")?.value === "0"`)
	p.fill("threshold", "100000")
	p.button("Save")
	p.wait("the change", `!document.querySelector("[role=dialog]") && `+sentence("is more than 100,000 within"))
	p.button("Disable")
	p.wait("that it is off", rowOf("many denials", "Disabled"))
	p.button("Enable")
	p.wait("that it is on", rowOf("many denials", "Enabled"))
	for _, name := range hostile {
		p.post("/api/v1/notifications/alert-rules", fmt.Sprintf(`{"name": %q, "description": %q, "trigger": {"metric": "denial_rate", "operator": ">", "threshold": 50, "filter": {"resource_id": %q}}}`, name, name, name))
	}
	p.looked("/notifications/alert-rules", "/notifications/alert-rules?rule=1", "/notifications/alert-rules?rule=2", "/notifications/alert-rules?rule=4", "/notifications/alert-rules?rule=999999")
	p.visit("/notifications/alert-rules?rule=2")
	p.button("Delete")
	p.dialog("the question before an alert rule is deleted")
	p.button("Delete")
	p.wait("its end", `!document.querySelector("[role=dialog]") && !location.search.includes("rule=") && ![...document.querySelectorAll("tbody button")].some(e => e.textContent.includes("onerror"))`)
}

// directoryConnected makes a token for a directory, which reads people with it until it is
// revoked.
func directoryConnected(p *tab, d deployment) {
	p.visit("/settings/sign-on")
	p.shows("No directory is connected")
	directoryGrants(p)
	p.button("Create a token")
	p.fill("token-name", "Okta")
	p.dialog("the form of a token")
	p.press("[role=dialog] button[type=submit]")
	shown := `document.querySelector("pre[aria-label=Token]")`
	p.wait("the token", shown+`?.innerText.trim().length > 20`)
	token := p.read(shown + ".innerText.trim()")
	people := func() int {
		return send(p.t, http.MethodGet, p.read(`document.querySelector("pre[aria-label='Address for the directory']").innerText.trim()`)+"/Users", "Authorization", "Bearer "+token, "")
	}
	if status := people(); status != http.StatusOK {
		p.t.Errorf("the token that the page shows: got %d, want 200", status)
	}
	p.accessible("a new token")
	p.button("I have stored it")
	p.wait("the token in the list", `!`+shown+` && `+rowOf("Okta", token[:6]))
	p.hides("the token", token)
	p.within("button[aria-label='Replace Okta']")
	p.dialog("the question before a token is replaced")
	p.inDialog("Replace")
	p.wait("the new token", shown+` && `+shown+`.innerText.trim() !== "`+token+`"`)
	p.button("I have stored it")
	p.wait("that the new token is put away", "!"+shown)
	p.within("button[aria-label='Revoke Okta']")
	p.dialog("the question before a token is revoked")
	p.inDialog("Revoke")
	p.shows("No directory is connected")
	if status := people(); status != http.StatusUnauthorized {
		p.t.Errorf("a revoked token: got %d, want 401", status)
	}
}

// directoryGrants sets by the form which roles a group gives, and removes them again.
func directoryGrants(p *tab) {
	p.within("button[aria-label='Add a row: Roles by group']")
	group := "input[aria-label='Name of the group']"
	p.press(group)
	p.do("naming the group", chromedp.KeyEvent("Security"))
	p.choose("Roles for Security", "Auditor")
	p.do("leaving the roles", chromedp.Evaluate[chromedp.Void]("document.activeElement.blur()"))
	p.within("button[aria-label='Add a row: Roles by group']")
	p.accessible("what a directory grants")
	p.button("Save what it grants")
	// The row without a name is left out.
	kept := `document.querySelectorAll("` + group + `").length === 1 && document.querySelector("` + group + `").value === "Security" &&
		[...document.querySelectorAll(".gh-pair")].some(e => e.innerText.includes("Auditor"))`
	p.wait("that it is saved", kept)
	p.visit("/settings/sign-on")
	p.wait("that it is kept", kept)
	p.within("button[aria-label='Remove Security']")
	p.within("button[aria-label='Add a row: Roles by group']")
	p.button("Save what it grants")
	p.wait("that the row without a name goes", `!document.querySelector("`+group+`")`)
	p.visit("/settings/sign-on")
	p.wait("that it is taken back", `[...document.querySelectorAll("button")].some(b => b.textContent.trim() === "Save what it grants") && !document.querySelector("`+group+`")`)
}

// vendorKept registers a vendor, whose key works on the OEM API, until the vendor is removed.
func vendorKept(p *tab, d deployment) {
	p.visit("/vendors")
	p.shows("No vendors yet")
	p.accessible("no vendors")
	p.button("Register a vendor")
	p.fill("vendor-name", "Widgets Ltd")
	p.fill("max-tenants", "5")
	p.dialog("the form of a vendor")
	p.press("[role=dialog] button[type=submit]")
	shown := `document.querySelector("pre[aria-label='Key of the vendor']")`
	p.wait("the key", shown+`?.innerText.trim().length > 20`)
	key := p.read(shown + ".innerText.trim()")
	usage := func(key string) int {
		return send(p.t, http.MethodGet, d.console+"/api/v2/oem/usage", "X-API-Key", key, "")
	}
	if status := usage(key); status != http.StatusOK {
		p.t.Errorf("the key that the page shows: got %d, want 200", status)
	}
	p.wait("the vendor", `document.querySelector("section[aria-label='Widgets Ltd']")`)
	p.accessible("a new vendor")
	p.button("I have stored it")
	p.wait("the vendor in the list", rowOf("Widgets Ltd", "0 of 5"))
	p.button("Edit")
	p.fill("max-tenants", "7")
	p.dialog("the form of a vendor that changes")
	p.button("Save")
	p.wait("the change", `!document.querySelector("[role=dialog]") && `+rowOf("Widgets Ltd", "0 of 7"))
	p.button("Replace")
	p.dialog("the question before a key is replaced")
	p.inDialog("Replace")
	p.wait("the new key", shown+` && `+shown+`.innerText.trim() !== "`+key+`"`)
	if status := usage(p.read(shown + ".innerText.trim()")); status != http.StatusOK {
		p.t.Errorf("the new key: got %d, want 200", status)
	}
	p.button("I have stored it")
	for _, name := range hostile {
		p.post("/api/v1/vendors", fmt.Sprintf(`{"name": %q}`, name[:min(len(name), 128)]))
	}
	at := strings.TrimPrefix(p.read("location.href"), p.origin)
	p.looked("/vendors", at, "/vendors?vendor=nobody")
	p.visit(at)
	p.button("Remove")
	p.dialog("the question before a vendor is removed")
	typed := chromedp.CSS("[role=dialog] input")
	p.do("typing the name", chromedp.WaitVisible(typed), chromedp.SendKeys(typed, "Widgets Ltd"))
	p.inDialog("Remove")
	p.wait("its end", `!document.querySelector("[role=dialog]") && !`+rowOf("Widgets Ltd", ""))
	if status := usage(key); status != http.StatusUnauthorized {
		p.t.Errorf("the key of a removed vendor: got %d, want 401", status)
	}
}

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	"github.com/chromedp/chromedp"
)

// hostile are names with markup, scripts, right-to-left text or great width. A screen must show
// them as plain text.
var hostile = []string{
	`<img src=x onerror=alert(1)><script>alert(2)</script>`,
	"\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 123",
	strings.Repeat("W", 200),
	`{{constructor.constructor("alert(1)")()}} ${alert(1)} javascript:alert(1)`,
}

// looked checks the width and accessibility of screens in a narrow and a wide window.
func (p *tab) looked(paths ...string) {
	p.t.Helper()
	for _, width := range []int64{390, 1440} {
		p.size(width, 900)
		for _, path := range paths {
			p.visit(path)
			where := fmt.Sprintf("%s, %d wide", path, width)
			p.fits(where)
			p.accessible(where)
		}
	}
}

// webhookKept makes a webhook, sees a test event arrive, sees one fail, and sends it again.
func webhookKept(p *tab) {
	var answer atomic.Int64
	answer.Store(http.StatusInternalServerError)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(answer.Load())) }))
	p.t.Cleanup(receiver.Close)
	p.visit("/webhooks")
	p.shows("No webhooks yet")
	p.button("New webhook")
	p.fill("webhook-name", "receiver")
	p.fill("webhook-url", receiver.URL)
	event := `[...document.querySelectorAll("[role=dialog] label")].find(l => l.textContent.trim() === "policy.updated")`
	p.wait("the events", event)
	p.do("choosing an event", chromedp.Evaluate[chromedp.Void]("("+event+`).click()`))
	p.dialog("the form of a webhook")
	p.button("Create webhook")
	p.wait("the secret", `[...document.querySelectorAll(".gh-command pre")].some(e => e.innerText.startsWith("whsec_"))`)
	p.accessible("the secret of a new webhook")
	p.button("I have stored it")
	p.press("tbody td a[href^='/webhooks/']")
	p.wait("the webhook", `/^\/webhooks\/\d+$/.test(location.pathname) && `+settled)

	p.button("Send test event")
	p.shows("The test event did not arrive")
	answer.Store(http.StatusNoContent)
	p.button("Send test event")
	p.shows("The test event arrived: status 204")
	p.accessible("a webhook with deliveries")
	p.press("tbody .gh-link")
	p.dialog("a delivery")
	p.press("[role=dialog] button[aria-label=Close]")
	p.wait("the end of the dialog", `!document.querySelector("[role=dialog]")`)
	p.wait("a delivery to send again", `document.querySelector("tbody button[aria-label^='Send again']")`)
	before := p.read(`document.querySelectorAll("tbody button.gh-link").length`)
	p.press("tbody button[aria-label^='Send again']")
	p.wait("one more delivery", `document.querySelectorAll("tbody button.gh-link").length > `+before)

	p.button("Disable")
	p.shows("Disabled")
	for _, name := range hostile {
		p.post("/api/v1/webhooks", fmt.Sprintf(`{"name": %q, "url": %q, "events": ["policy.updated"], "enabled": false}`, name, receiver.URL))
	}
	p.looked("/webhooks", "/webhooks/1", "/webhooks/2", "/webhooks/3", "/webhooks/4")
	p.visit("/webhooks/1")
	p.button("Delete")
	p.dialog("the question before a webhook is deleted")
	typed := chromedp.CSS("[role=dialog] input")
	if p.read(`!!document.querySelector("[role=dialog] input")`) == "true" {
		p.do("typing the name", chromedp.SendKeys(typed, "receiver"))
	}
	p.button("Delete")
	p.wait("the list", `location.pathname === "/webhooks" && `+settled)
}

// agentKept makes an agent, changes it and deletes it.
func agentKept(p *tab) {
	p.visit("/agents")
	p.shows("No agents yet")
	p.button("New agent")
	p.fill("agent-name", "helpdesk")
	p.fill("agent-provider", "local")
	p.dialog("the form of an agent")
	p.button("Create agent")
	p.wait("the agent", `[...document.querySelectorAll("tbody tr")].some(r => /helpdesk/.test(r.innerText) && /agent:1/.test(r.innerText))`)
	p.press("tbody .gh-link")
	p.wait("the agent's form", `document.querySelector("[name=agent-name]")?.value === "helpdesk"`)
	p.fill("agent-model", "small-1")
	p.addTag("OAuth clients", "helpdesk-cli")
	p.button("Save")
	p.wait("the model", `!document.querySelector("[role=dialog]") && [...document.querySelectorAll("tbody tr")].some(r => /small-1/.test(r.innerText))`)
	if ids := p.await("the agent's clients", `fetch("/api/v1/ai-agents/1").then(r => r.json()).then(a => a.oauth_client_ids.join())`); ids != "helpdesk-cli" {
		p.problem("the agent's clients are " + ids)
	}
	for _, name := range hostile {
		p.post("/api/v1/ai-agents", fmt.Sprintf(`{"name": %q, "type": "rag", "provider": %q}`, name, name))
	}
	p.post("/api/v1/ai-agents", `{"name": "attributes", "type": "rag", "attributes": {"\u202egnp.exe": "`+"\\u202e</textarea><script>alert(1)</script>"+strings.Repeat("W", 10000)+`"}}`)
	p.looked("/agents", "/agents?agent=2", "/agents?agent=6", "/agents?agent_type=rag", "/agents?agent_type=chatbot")
	p.visit("/agents?agent=1")
	p.button("Create a key")
	p.shows("This is the only time that the key is shown.")
	p.button("I have stored it")
	p.button("Revoke all keys")
	p.button("Revoke")
	p.shows("The agent has no key")
	p.visit("/agents?agent=1")
	p.button("Delete")
	p.dialog("the question before an agent is deleted")
	p.button("Delete")
	p.wait("its end", `!document.querySelector("[role=dialog]") && [...document.querySelectorAll("tbody tr")].every(r => !/helpdesk/.test(r.innerText))`)
}

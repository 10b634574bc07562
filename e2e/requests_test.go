package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
)

// accessDecided asks for access, sees who asked and why, approves, revokes and denies, and comes from a
// notification to the request.
func accessDecided(p *tab, d deployment) {
	p.visit("/requests")
	p.shows("No requests for access")
	p.accessible("no requests for access")
	p.post("/api/v1/resources?environment=sandbox", `{"name": "ledger", "type": "api", "path": "/ledger", "environment": "sandbox", "attributes": {"request_access": true}}`)
	p.post("/api/v1/notifications/channels?environment=sandbox", `{"name": "approvers", "type": "webhook", "endpoint": "http://127.0.0.1:9/", "credential": {"hmac_secret": "a-long-random-key"}}`)
	p.button("Request access")
	p.fill("request-resource", "no such thing")
	p.fill("request-action", "read")
	p.fill("request-reason", "my own audit")
	p.button("Send request")
	p.shows("no such resource")
	p.dialog("the form of a request for access")
	p.fill("request-resource", "ledger")
	p.button("Send request")
	row := func(subject, status string) string {
		return `[...document.querySelectorAll("tbody tr")].some(r => r.innerText.includes(` + quoteScript(subject) + `) && r.innerText.includes("` + status + `"))`
	}
	p.wait("the own request", `!document.querySelector("[role=dialog]") && `+row("ledger", "Pending"))
	p.press("tbody .gh-link")
	p.shows("This is your own request. Somebody else decides it.")
	p.dialog("an own request")

	key := p.ask("POST", "/developer-portal/api-keys/sandbox/generate", `JSON.stringify({name: "shop", scopes: ["decisions:read"]})`, "key")
	for _, subject := range append([]string{"ada", "bob"}, hostile...) {
		p.fileFor(d, key, subject, strings.Repeat(subject+"\n", 2))
	}
	at := p.ask("GET", "/notifications/deliveries?alert=access_requested&environment=sandbox&limit=100", "undefined", `deliveries.find(d => d.payload.title.startsWith("ada ")).payload.link`)
	_, path, _ := strings.Cut(strings.TrimPrefix(at, "http://"), "/")
	if !strings.HasPrefix(path, "requests?") {
		p.t.Fatalf("the notification of a request links to %s, want the screen of requests", at)
	}
	p.visit("/" + path)
	p.wait("the request of ada", `document.querySelector("[role=dialog] .gh-facts")?.innerText.includes("ada")`)
	p.dialog("a request that waits")
	p.fill("request-comment", "for the audit")
	p.fill("request-duration", "31")
	p.option("Unit", "Days")
	p.button("Approve")
	p.wait("that 31 days are refused", `document.querySelector("[name=request-duration]").getAttribute("aria-invalid") === "true"`)
	p.dialog("a duration that is refused")
	p.fill("request-duration", "4")
	p.option("Unit", "Hours")
	p.button("Approve")
	p.wait("the grant", `/Approved/.test(document.querySelector("[role=dialog] .gh-facts").innerText) && /for the audit/.test(document.querySelector("[role=dialog] .gh-facts").innerText) && /in 3 hours/.test(document.querySelector("[role=dialog] .gh-facts").innerText)`)
	p.dialog("a grant")
	p.fill("request-comment", "done early")
	p.button("Revoke access")
	p.wait("its end", `/Revoked/.test(document.querySelector("[role=dialog] .gh-facts").innerText) && /done early/.test(document.querySelector("[role=dialog] .gh-facts").innerText)`)
	p.press("[role=dialog] button[aria-label=Close]")
	p.wait("the list", `!document.querySelector("[role=dialog]") && `+row("ada", "Revoked"))
	p.press(`tbody .gh-link[title="bob"]`)
	p.wait("the request of bob", `document.querySelector("[role=dialog] .gh-facts")?.innerText.includes("bob")`)
	p.fill("request-comment", "use the report")
	p.button("Deny")
	p.wait("the denial", `/Denied/.test(document.querySelector("[role=dialog] .gh-facts").innerText)`)
	p.visit("/requests?status=denied")
	p.wait("what was denied", `document.querySelectorAll("tbody tr").length === 1 && `+row("bob", "Denied"))
	p.visit("/requests?mine=true")
	p.wait("what is mine", `document.querySelectorAll("tbody tr").length === 1 && `+row("my own audit", "Pending"))
	p.looked("/requests", "/requests?request=4", "/requests?request=5", "/requests?request=6", "/requests?request=7", "/requests?request=999999", "/requests?status=approved")
}

// fileFor requests access for a user of an application, with the key of the application.
func (p *tab) fileFor(d deployment, key, subject, reason string) {
	p.t.Helper()
	doc, err := json.Marshal(map[string]any{"subject": map[string]string{"id": subject}, "action": map[string]string{"name": "read"}, "resource": map[string]string{"id": "ledger"}, "reason": reason})
	if err != nil {
		p.t.Fatal(err)
	}
	if status := send(p.t, http.MethodPost, d.console+"/access/v1/requests", "X-API-Key", key, string(doc)); status != http.StatusCreated {
		p.t.Fatalf("requesting access for %s: got %d, want 201", subject, status)
	}
}

package e2e

import (
	"strconv"

	"github.com/chromedp/chromedp"
)

// ask calls the API from the page, with its session, and returns a member of the answer. The body
// is a JavaScript expression.
func (p *tab) ask(method, path, body, member string) string {
	p.t.Helper()
	return p.await(method+" "+path, `fetch("/api/v1`+path+`", {method: "`+method+`", headers: {"Content-Type": "application/json"}, body: `+body+`})
		.then(async r => { const b = await r.json(); if (!r.ok) throw new Error(JSON.stringify(b)); return String(b.`+member+`); })`)
}

// changesFollowed: the list shows what others change without a reload, a deleted control can be
// restored, and the editor formats a control.
func changesFollowed(p *tab) {
	row := `[...document.querySelectorAll("tbody tr")].some(r => r.innerText.includes("Followed"))`
	p.visit("/policies")
	id := p.ask("POST", "/policies?environment=sandbox", `JSON.stringify({name: "Followed", rego_code: "package followed\n\nallow := false\n"})`, "id")
	p.wait("the new control in the list", row)
	p.ask("DELETE", "/policies/"+id, "undefined", "id")
	p.wait("the list without it", "!"+row)
	deleted := `[...document.querySelectorAll("label")].find(l => l.innerText === "Show deleted")`
	p.do("showing what is deleted", chromedp.Evaluate[chromedp.Void](deleted+`.click()`))
	p.wait("the control among the deleted", `location.search.includes("deleted=true") && `+row+` && `+settled)
	p.accessible("the deleted controls")
	p.button("Restore")
	p.wait("the deleted without it", `location.search.includes("deleted=true") && !`+row+` && `+settled)
	p.visit("/policies/" + id)
	p.append("\n\n\nallow   if {input.user.id==" + strconv.Quote("ada") + "}\n")
	p.button("Format")
	p.wait("the control laid out", `document.querySelector(".cm-content").innerText.includes('allow if input.user.id == "ada"')`)
}

// everythingFollowed: the other lists show what others change without a reload, too.
func everythingFollowed(p *tab) {
	for _, follow := range []struct{ screen, path, body, shown string }{
		{"/webhooks", "/webhooks", `{name: "followed hook", url: "http://127.0.0.1:9/", events: ["policy.updated"], enabled: false}`, "followed hook"},
		{"/agents", "/ai-agents", `{name: "followed agent", type: "rag"}`, "followed agent"},
		{"/notifications/alert-rules", "/notifications/alert-rules", `{name: "followed rule", trigger: {metric: "denial_rate", operator: ">", threshold: 99}}`, "followed rule"},
		{"/vendors", "/vendors", `{name: "followed vendor"}`, "followed vendor"},
		{"/tenant/domains", "/tenants/default/domains", `{domain: "followed.example.com"}`, "followed.example.com"},
	} {
		p.visit(follow.screen)
		id := p.ask("POST", follow.path, `JSON.stringify(`+follow.body+`)`, map[bool]string{true: "domain", false: "id"}[follow.screen == "/tenant/domains"])
		row := `[...document.querySelectorAll("tbody tr")].some(r => r.innerText.includes("` + follow.shown + `"))`
		p.wait(follow.shown+" in the list", row)
		p.ask("DELETE", follow.path+"/"+id, "undefined", "message")
		p.wait("the list without "+follow.shown, "!"+row)
	}
}

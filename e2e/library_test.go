package e2e

import (
	"strconv"
)

// libraryWritten makes a library, writes it with the editor's help, and sees the control that uses it.
func libraryWritten(p *tab) {
	p.visit("/libraries")
	p.shows("No libraries yet")
	p.button("New library")
	p.fill("library-name", "Roles")
	p.fill("library-package", "roles")
	p.dialog("the form of a library")
	p.press("[role=dialog] button[type=submit]")
	p.wait("the editor", `location.pathname.startsWith("/policies/") && document.querySelector(".cm-content") && `+settled)
	p.shows("No policy uses this library.")
	p.accessible("the workbench of a library")
	at := p.read("location.pathname")

	p.append("\nis_hr(user) if user.role == hr\n")
	p.wait("the finding", `[...document.querySelectorAll(".gh-findings li")].some(l => /hr/.test(l.innerText))`)
	p.visit(at)
	p.append("\nis_hr(user) if has_role(user, \"hr\")\n")
	p.button("Save")
	p.shows("version 2")
	p.button("Activate")
	p.dialog("the question before a library is activated")
	p.button("Activate")
	p.shows("version 3")

	p.post("/api/v1/policies", `{"name": "Imports roles", "rego_code": "package example\n\nimport rego.v1\nimport data.lib.roles\n\nallow if roles.is_hr(input.user)\n"}`)
	p.visit(at)
	p.shows("1 policy uses it.")
	p.visit("/libraries?name=rol")
	p.wait("the library with its user", `[...document.querySelectorAll("tbody tr")].some(r => /lib\.roles/.test(r.innerText) && r.querySelector("a[title='Imports roles']"))`)
	p.visit("/libraries?name=nothing-of-this-name")
	p.shows("Nothing matches")
}

// post sends a POST request in the session of the tab.
func (p *tab) post(path, body string) {
	p.t.Helper()
	p.request("POST", path, body)
}

// request sends a request in the session of the tab, as another tab of the same person would.
func (p *tab) request(method, path, body string) {
	p.t.Helper()
	send := `fetch(` + strconv.Quote(path) + `, {method: "` + method + `", headers: {"Content-Type": "application/json"}, body: ` + strconv.Quote(body) + `})
		.then(async r => r.ok ? "" : r.status + " " + await r.text())`
	if refused := p.await(method+" "+path, send); refused != "" {
		p.t.Fatalf("%s %s: got %s, want success", method, path, refused)
	}
}

package e2e

import "github.com/chromedp/chromedp"

// tenantChanged changes a setting of one's own tenant and reads it back.
func tenantChanged(p *tab) {
	p.visit("/tenant")
	p.shows("Usage against limits")
	p.wait("the settings", `document.querySelector("input[aria-label='Four eyes']")`)
	p.do("turning four eyes on", chromedp.Evaluate[chromedp.Void](`document.querySelector("input[aria-label='Four eyes']").click()`))
	p.button("Save")
	p.wait("that it is stored", `[...document.querySelectorAll("button")].some(b => b.textContent.trim() === "Save" && b.disabled && !b.dataset.loading)`)
	p.visit("/tenant")
	p.wait("the setting as it was stored", `document.querySelector("input[aria-label='Four eyes']").checked`)
	p.do("turning four eyes off", chromedp.Evaluate[chromedp.Void](`document.querySelector("input[aria-label='Four eyes']").click()`))
	p.button("Save")
	p.wait("that it is stored", `[...document.querySelectorAll("button")].some(b => b.textContent.trim() === "Save" && b.disabled && !b.dataset.loading)`)
}

// tenantKept creates a tenant, suspends and activates it, and deletes it.
func tenantKept(p *tab) {
	p.visit("/tenants")
	p.button("New tenant")
	p.fill("tenant-name", "Acme Corp")
	p.dialog("the form of a tenant")
	p.press("[role=dialog] button[type=submit]")
	p.wait("the tenant", `location.search.includes("tenant=acme-corp") && document.querySelector("section[aria-label='Acme Corp']")`)
	p.accessible("a tenant")
	p.button("Suspend")
	p.dialog("the question before a tenant is suspended")
	p.button("Suspend")
	p.wait("its suspension", `[...document.querySelectorAll("tbody tr")].some(r => /acme-corp/.test(r.innerText) && /Suspended/.test(r.innerText))`)
	p.button("Activate")
	p.dialog("the question before a tenant is activated")
	p.button("Activate")
	p.wait("its activation", `[...document.querySelectorAll("tbody tr")].some(r => /acme-corp/.test(r.innerText) && /Active/.test(r.innerText))`)
	p.button("Delete")
	p.dialog("the question before a tenant is deleted")
	p.wait("that the name is asked for", `[...document.querySelectorAll("[role=dialog] button")].some(b => b.textContent.trim() === "Delete" && b.disabled)`)
	name := chromedp.CSS("[role=dialog] input[type=text], [role=dialog] input:not([type])")
	p.do("typing the name", chromedp.WaitVisible(name), chromedp.SendKeys(name, "Acme Corp"))
	p.button("Delete")
	p.wait("its end", `!document.querySelector("[role=dialog]") && [...document.querySelectorAll("tbody tr")].every(r => !/acme-corp/.test(r.innerText) || /Deleted/.test(r.innerText))`)
	p.visit("/tenants?name=nothing-of-this-name")
	p.shows("Nothing matches")
}

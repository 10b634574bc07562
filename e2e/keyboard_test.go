package e2e

import (
	"fmt"
	"strconv"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// keys presses keys, wherever the focus is.
func (p *tab) keys(text string, options ...chromedp.KeyOption) {
	p.t.Helper()
	p.do("pressing "+strconv.Quote(text), chromedp.KeyEvent(text, options...))
}

// tabTo presses Tab until an expression about the focused element e is true. The editor handles
// Tab itself until Escape.
func (p *tab) tabTo(what, expression string) {
	p.t.Helper()
	for range 120 {
		if p.read(`document.activeElement.closest(".cm-editor") !== null`) == "true" {
			p.keys(kb.Escape)
		}
		p.keys(kb.Tab)
		if p.read(`(e => !!(`+expression+`))(document.activeElement)`) == "true" {
			return
		}
	}
	p.t.Fatalf("120 presses of Tab do not reach %s; the focus is on %s", what, p.read("document.activeElement.outerHTML.slice(0, 300)"))
}

// control is the Ctrl key, held down.
func control() chromedp.KeyOption { return chromedp.KeyModifiers(chromedp.ModifierCtrl) }

// enterOn presses the button with a text by keyboard. While there is a dialog, it is the button in it.
func (p *tab) enterOn(text string) {
	p.t.Helper()
	p.tabTo("the button "+text, fmt.Sprintf(`e.matches("button") && e.textContent.trim() === %q && (!document.querySelector("[role=dialog]") || e.closest("[role=dialog]"))`, text))
	p.keys(kb.Enter)
}

// typeInto replaces the text of the field with a name by keyboard.
func (p *tab) typeInto(name, text string) {
	p.t.Helper()
	p.tabTo("the field "+name, fmt.Sprintf(`e.name === %q`, name))
	p.keys("a", control())
	p.keys(text)
}

// toEndOfControl puts the cursor at the end of the control in the editor, by keyboard.
func (p *tab) toEndOfControl() {
	p.t.Helper()
	p.tabTo("the editor", `e.matches(".cm-content[contenteditable=true]")`)
	p.keys(kb.End, control())
}

// completes waits for a completion with a text. The editor loads completions after itself. Text
// typed before that opens no list, so completes asks for it with Ctrl+Space.
func (p *tab) completes(text string) {
	p.t.Helper()
	shown := fmt.Sprintf(`[...document.querySelectorAll(".cm-tooltip-autocomplete [role=option]")].some(o => o.innerText.includes(%q))`, text)
	for range 20 {
		found, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](`new Promise(done => {
			const end = performance.now() + 3000;
			const look = () => `+shown+` ? done(true) : performance.now() > end ? done(false) : setTimeout(look, 50);
			look();
		})`, chromedp.EvalAwaitPromise))
		if err != nil {
			p.t.Fatal(err)
		}
		if found {
			return
		}
		p.keys(" ", control())
	}
	p.t.Fatalf("the editor does not offer the completion %q", text)
}

// denialByKeys finds a denial and its reason, by keyboard only.
func denialByKeys(p *tab, d deployment) {
	d.visit(d.sandbox, "/employees/1", "trudy", "visitor")
	p.visit("/")
	p.keys("g")
	p.keys("e")
	p.wait("the decisions", `location.pathname === "/decisions" && `+settled)
	p.tabTo("the filter by user", `e.getAttribute("aria-label") === "User id"`)
	p.keys("trudy")
	p.wait("the denial alone", `location.search.includes("user_id=trudy") && [...document.querySelectorAll("tbody tr")].some(r => r.innerText.includes("trudy"))`)
	p.tabTo("the decision", `e.matches("tbody td a[href*='/decisions/']")`)
	p.keys(kb.Enter)
	p.wait("the decision", `location.pathname.startsWith("/decisions/") && `+settled)
	p.shows("only HR and staff may read payroll")
	p.tabTo("the control that decided", `e.matches("main a[href*='/policies/']")`)
	p.keys(kb.Enter)
	p.wait("the workbench", `location.pathname.startsWith("/policies/") && `+settled)
	p.keys("?")
	p.wait("the list of the keys", `document.querySelector("[role=dialog]")?.innerText.includes("Keyboard shortcuts")`)
	p.dialog("the list of the keys")
	p.keys(kb.Escape)
	p.wait("its end", `!document.querySelector("[role=dialog]")`)
}

// promotedByKeys finds a control by its name and promotes it, by keyboard only.
func promotedByKeys(p *tab) {
	const name = "Reached by keys"
	p.post("/api/v1/policies", `{"name": "`+name+`", "rego_code": "package example\n\nimport rego.v1\n\nallow if input.user.id == \"ada\"\n"}`)
	p.visit("/")
	p.keys("k", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	p.wait("the search", `document.activeElement.matches("[role=dialog] input")`)
	p.keys("reached by")
	p.wait("the control", `document.querySelector("[role=option][data-combobox-selected]")?.innerText.includes("`+name+`")`)
	p.accessible("the search with what it found")
	p.keys(kb.Enter)
	p.wait("the workbench", `location.pathname.startsWith("/policies/") && `+settled)
	p.tabTo("the tabs", `e.matches("[role=tab]")`)
	p.keys(kb.End + kb.Enter)
	p.wait("the page of the promotion", `location.search.includes("tab=promote") && [...document.querySelectorAll("button")].some(b => b.innerText.trim() === "Promote to production") && `+settled)
	p.tabTo("the promotion", `e.innerText?.trim() === "Promote to production"`)
	p.keys(kb.Enter)
	p.wait("the question", `document.querySelector("[role=dialog][aria-labelledby]")`)
	p.tabTo("the name that is typed", `e.matches("[role=dialog] input[type=text], [role=dialog] input:not([type])")`)
	p.keys(name)
	p.tabTo("the promotion", `e.matches("[role=dialog] button") && e.innerText.trim() === "Promote to production"`)
	p.keys(kb.Enter)
	p.wait("the control in production", `location.search.includes("environment=production") && `+settled)
	p.shows(name)
}

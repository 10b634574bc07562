package e2e

import "github.com/chromedp/chromedp"

// moveStopped plans a move of the tenant to another region, and stops it before it begins.
func moveStopped(p *tab) {
	p.visit("/tenant/regions")
	p.button("Move tenant")
	p.dialog("the form of a move")
	p.do("choosing when", chromedp.Evaluate[chromedp.Void](`(() => {
		const field = document.querySelector("[role=dialog] input[type=datetime-local]");
		Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, "2099-01-02T03:04");
		field.dispatchEvent(new Event("input", {bubbles: true}));
	})()`))
	p.press("[role=dialog] button[type=submit]")
	p.wait("the move", `!document.querySelector("[role=dialog]") && document.querySelector("tbody progress") && document.body.innerText.includes("→ us-west-2")`)
	p.accessible("a move that waits")
	p.button("Stop")
	p.dialog("the question before a move is stopped")
	p.button("Stop")
	p.shows("stopped by admin")
}

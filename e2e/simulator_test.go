package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
)

// controlTried goes through the simulator: a run from the form, the address of the run, a scenario,
// the comparison of two runs, the history and the files.
func controlTried(p *tab) {
	p.visit("/simulator")
	p.shows("Choose a control above")
	p.choose("Choose a control", "Payroll access")
	p.wait("the form of what the control reads", `document.querySelector("[name='action.method']")`)
	p.fill("action.method", "GET")
	p.addTag("user.roles", "visitor")
	p.button("Run")
	p.wait("a denial", `document.querySelector(".gh-verdict[data-effect=DENY]")`)
	p.shows("Lines of the control")
	p.accessible("a denial in the simulator")
	denied := p.read("location.href")

	p.addTag("user.roles", "hr")
	p.button("Run")
	p.wait("an allowance", `document.querySelector(".gh-verdict[data-effect=ALLOW]")`)

	p.button("Save as a scenario")
	p.fill("scenario-name", "A person of HR reads")
	p.dialog("the form of a scenario")
	p.press("[role=dialog] button[type=submit]")
	p.wait("the scenario", `location.search.includes("scenario=") && !document.querySelector("[role=dialog]")`)

	p.button("Compare with the run before")
	p.shows("The two runs decide differently.")
	p.shows("user.roles")
	p.accessible("two runs beside each other")

	// The address of a run shows the run again.
	p.visit(strings.TrimPrefix(denied, p.origin))
	p.wait("the denial again", `document.querySelector(".gh-verdict[data-effect=DENY]")`)
	p.wait("its input", `document.querySelector("[name='action.method']").value === "GET"`)

	p.visit("/simulator?policy=1&tab=history")
	p.wait("both runs", `document.querySelectorAll("tbody tr").length >= 2`)
	p.accessible("the history of the simulator")
	p.visit("/simulator?policy=1&tab=history&end_date=2001-01-01")
	p.shows("Nothing matches")
	p.button("Clear filters")
	p.wait("the runs without the filter", `document.querySelectorAll("tbody tr").length >= 2`)

	dir := p.t.TempDir()
	_, err := chromedp.Call(p.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for format, start := range map[string]string{"JSON": "{", "CSV": "", "PDF": "%PDF-"} {
		p.button(format)
		eventually(p.t, "the "+format+" file", func() bool {
			files, _ := filepath.Glob(filepath.Join(dir, "*."+strings.ToLower(format)))
			if len(files) != 1 {
				return false
			}
			text, err := os.ReadFile(files[0])
			return err == nil && len(text) > 100 && strings.HasPrefix(string(text), start)
		})
	}
}

// classify starts a classification of everything in production.
func (p *tab) classify() {
	p.t.Helper()
	p.visit("/inventory?environment=production")
	p.button("Classify by rules")
	p.dialog("the question before everything is classified")
	confirm := chromedp.CSS("[role=dialog] input")
	p.do("typing the name", chromedp.WaitVisible(confirm), chromedp.SendKeys(confirm, "Production"))
	p.button("Classify by rules")
}

// classifyCancelled cancels a classification while its second request is under way. That
// request still ends, and no third one is sent.
func classifyCancelled(p *tab) {
	const path = "/api/v1/resources/auto-classify-bulk"
	paused := chromedp.Events(p.ctx, fetch.RequestPaused)
	if _, err := chromedp.Call(p.ctx, fetch.Enable, fetch.EnableParams{Patterns: []*fetch.RequestPattern{{URLPattern: "*" + path + "*"}}}); err != nil {
		p.t.Fatal(err)
	}
	var sent atomic.Int64
	held, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for r, err := range paused {
			if err != nil {
				return
			}
			if sent.Add(1) == 2 {
				close(held)
				<-release
			}
			if _, err := chromedp.Call(p.ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: r.RequestID}); err != nil || sent.Load() == 2 {
				return
			}
		}
	}()
	p.classify()
	eventually(p.t, "the second request is under way", func() bool {
		select {
		case <-held:
			return true
		default:
			return false
		}
	})
	p.wait("the bar", `/100 examined, 15\d to go/.test(document.querySelector("[role=dialog]")?.innerText)`)
	p.button("Cancel")
	close(release)
	<-done
	p.shows("Stopped. What is classified stays classified.")
	p.wait("what was done and what is left", `/200 examined, 5\d to go/.test(document.querySelector("[role=dialog]")?.innerText)`)
	p.accessible("a classification that was cancelled")
	if n := p.read(`performance.getEntriesByType("resource").filter(r => r.name.includes("` + path + `")).length`); n != "2" {
		p.t.Errorf("%s requests were sent, want 2", n)
	}
	if _, err := chromedp.Call(p.ctx, fetch.Disable, cdp.Empty{}); err != nil {
		p.t.Fatal(err)
	}
	p.button("Cancel")
	p.wait("the end of the dialog", `!document.querySelector("[role=dialog]")`)
}

// allClassified classifies more resources than fit one request, and looks at their coverage.
func allClassified(p *tab) {
	p.visit("/resources")
	p.addResources(250)
	classifyCancelled(p)
	p.classify()
	p.wait("the end of the bar", `/25\d examined, 0 to go/.test(document.querySelector("[role=dialog]")?.innerText)`)
	p.accessible("what was classified")
	p.visit("/coverage?environment=production")
	p.shows("The table shows everything")
	p.accessible("the coverage of many resources")
	p.button("Show as table")
	p.wait("the table", `document.querySelector("tbody td a[href^='/resources/']")`)
	p.accessible("the coverage as a table")
}

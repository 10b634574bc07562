package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestPictures takes the pictures of README.md and docs/. `make pictures` runs
// it; otherwise it is skipped.
func TestPictures(t *testing.T) {
	dir := os.Getenv("GATEHOUSE_E2E_DOCS")
	if dir == "" {
		t.Skip("GATEHOUSE_E2E_DOCS is not set to the folder of the pictures")
	}
	d := start(t)
	for _, group := range []string{"hr", "hr", "staff", "staff", "staff", "visitor"} {
		for _, user := range []string{"ada", "ben", "eve", "kim"} {
			d.visit(d.sandbox, "/employees/1", user, group)
		}
	}
	p := open(t, d)
	p.expect("/api/v1/auth/me")
	p.size(1440, 900)
	p.signIn("/policies/1")
	p.button("Run")
	p.wait("the trace", `document.querySelectorAll(".gh-bench-side li, .gh-bench-side tr").length > 3`)
	p.wait("the end of what moves", `!document.querySelector("[data-loading]") && !document.body.innerText.includes("Checking") && document.getAnimations().length === 0`)
	keep(p, filepath.Join(dir, "workbench.png"))
	p.visit("/decisions?decision=DENY")
	p.press("tbody tr td a")
	// The address changes before the screen does.
	p.wait("the decision", `document.querySelector("h1")?.innerText.endsWith("/employees/1") && `+settled)
	keep(p, filepath.Join(dir, "decision.png"))
}

// keep writes a screenshot to a file.
func keep(p *tab, file string) {
	p.t.Helper()
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, png, 0o644); err != nil { //nolint:gosec // a picture of the documentation
		p.t.Fatal(err)
	}
}

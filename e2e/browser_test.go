package e2e

import (
	"context"
	_ "embed"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// axe is axe-core 4.14.1 (MPL-2.0), which finds barriers for people with disabilities. The
// DevTools protocol injects it, so the page keeps its content security policy.
//
//go:embed axe.min.js
var axe string

// tab is one tab of the browser. Errors in its console, violations of the content
// security policy and requests to other origins fail the test.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string

	mu       sync.Mutex
	expected []string // parts of problems that the test causes on purpose
	problems []string // see check
}

// open starts a browser with a fresh profile and one tab.
func open(t *testing.T, d deployment) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("force-prefers-reduced-motion", true), chromedp.WSURLReadTimeout(time.Minute))
	allocator, endAll := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator)
	p := &tab{t: t, ctx: ctx, origin: d.console}
	t.Cleanup(func() {
		if t.Failed() {
			p.picture("failed")
		}
		_ = chromedp.Cancel(ctx)
		end()
		endAll()
		p.check()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("starting the browser: %v", err)
	}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleException || m.Type == chromedp.ConsoleWarning {
				p.problem(fmt.Sprintf("console %s: %s (%s)", m.Type, m.Text, m.URL))
			}
		}
	}()
	requests := chromedp.Events(ctx, network.RequestWillBeSent)
	go func() {
		for r, err := range requests {
			if err != nil {
				return
			}
			if u := r.Request.URL; !strings.HasPrefix(strings.TrimPrefix(u, "blob:"), d.console) && !strings.HasPrefix(u, "data:") && u != "about:blank" {
				p.problem("a request to another origin: " + u)
			}
		}
	}()
	// The browser asks before a page with unsaved work is left. The answer is yes.
	dialogs := chromedp.Events(ctx, page.JavascriptDialogOpening)
	go func() {
		for _, err := range dialogs {
			if err != nil {
				return
			}
			_, _ = chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}
	}()
	return p
}

// problem records what check reports.
func (p *tab) problem(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, what)
}

// expect makes check ignore problems that contain a text, such as the refusal of a wrong password.
func (p *tab) expect(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = append(p.expected, part)
}

// check fails the test for each problem so far that is not expected.
func (p *tab) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
next:
	for _, problem := range p.problems {
		for _, part := range p.expected {
			if strings.Contains(problem, part) {
				continue next
			}
		}
		p.t.Error(problem)
	}
	p.problems = nil
}

// do runs actions, for a minute at most. The message of a failure begins with what they do.
func (p *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// wait waits until a JavaScript expression is true. A page that is just being replaced is an
// error, after which it evaluates the expression again.
func (p *tab) wait(what, expression string) {
	p.t.Helper()
	p.eventually(what, expression, "")
}

// eventually is wait with a script that it runs as long as the expression is not true. It is for
// what the server does once a minute.
func (p *tab) eventually(what, expression, script string) {
	p.t.Helper()
	patience := time.Minute
	if script != "" {
		patience = 4 * time.Minute
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && holds {
			return
		}
		if err == nil && script != "" {
			_ = chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](script)) // fails if the page is being replaced
		}
		select {
		case <-ctx.Done():
			short, end := context.WithTimeout(p.ctx, 5*time.Second)
			defer end()
			text, _ := chromedp.Run(short, chromedp.Evaluate[string]("document.body.innerText.slice(0, 1500)"))
			p.t.Fatalf("waiting for %s: %v\nthe page says:\n%s", what, err, text)
		case <-tick.C:
		}
	}
}

// read returns the value of a JavaScript expression as a string.
func (p *tab) read(expression string) string {
	p.t.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return text
}

// await evaluates a JavaScript promise and returns its text.
func (p *tab) await(what, promise string) string {
	p.t.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](promise, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	return text
}

// size sets the width and height of the window.
func (p *tab) size(width, height int64) {
	p.t.Helper()
	p.do("sizing the window", chromedp.EmulateViewport(width, height))
}

// settled is true when a screen has loaded its data.
const settled = `document.querySelector("h1") && !document.querySelector("[aria-busy=true], .gh-skeleton") && document.fonts.status === "loaded"`

// visit opens an address of the console, and waits until it shows its data.
func (p *tab) visit(path string) {
	p.t.Helper()
	p.do("opening "+path, chromedp.Navigate(p.origin+path))
	p.wait(path+" with its data", settled)
}

// signIn signs in as the administrator by the form, and waits for the screen next.
func (p *tab) signIn(next string) {
	p.t.Helper()
	p.visit("/login?next=" + url.QueryEscape(next))
	p.fill("username", "admin")
	p.fill("password", password)
	p.press("form button[type=submit]")
	p.wait("the screen after the sign-in", `location.pathname === `+strconv.Quote(strings.SplitN(next, "?", 2)[0])+` && `+settled)
}

// fill replaces the text of the field with a name by typing.
func (p *tab) fill(name, text string) {
	p.t.Helper()
	css := fmt.Sprintf("[name=%q]", name)
	field := chromedp.CSS(css)
	p.do("typing into "+name, chromedp.WaitVisible(field), chromedp.Focus(field),
		chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).select()", css)), chromedp.KeyEvent(text))
}

// press clicks the first element of a CSS selector.
func (p *tab) press(selector string) {
	p.t.Helper()
	p.do("pressing "+selector, chromedp.WaitVisible(chromedp.CSS(selector)), chromedp.Click(chromedp.CSS(selector)))
}

// button clicks the last enabled button with a text: a dialog comes after the page. It waits
// for a button that is still loading.
func (p *tab) button(text string) {
	p.t.Helper()
	find := fmt.Sprintf(`document.querySelector(".gh-veil") ? undefined : [...document.querySelectorAll("button")].filter(b => b.textContent.trim() === %q && !b.disabled).pop()`, text)
	p.wait("the button "+text, find)
	p.do("pressing "+text, chromedp.Evaluate[chromedp.Void]("("+find+`).click()`))
}

// choose opens the list with a label or placeholder, and clicks an option by its text.
func (p *tab) choose(label, option string) {
	p.t.Helper()
	p.press(fmt.Sprintf("input[aria-label=%q], input[placeholder=%q]", label, label))
	find := fmt.Sprintf(`document.querySelector(".gh-veil") ? undefined : [...document.querySelectorAll("[role=option]")].find(o => o.checkVisibility() && o.innerText.trim() === %q)`, option)
	p.wait("the option "+option, find)
	p.do("choosing "+option, chromedp.Evaluate[chromedp.Void]("("+find+`).click()`))
}

// addTag adds an entry to the field with a label that takes several.
func (p *tab) addTag(label, text string) {
	p.t.Helper()
	field := labelled(label)
	p.wait("the field "+label, field)
	p.do("adding to "+label, chromedp.Evaluate[chromedp.Void](field+`.focus()`), chromedp.KeyEvent(text))
	p.take()
}

// take presses Enter in a field that takes several entries.
func (p *tab) take() {
	p.t.Helper()
	// Enter is one event with its character, as a keyboard sends it. As two events, the
	// character would submit the form although the field took the key.
	enter := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r", WindowsVirtualKeyCode: 13}
	release := enter
	release.Type, release.Text = input.DispatchKeyEventTypeKeyUp, ""
	for _, event := range []input.DispatchKeyEventParams{enter, release} {
		if _, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, event); err != nil {
			p.t.Fatal(err)
		}
	}
}

// labelled is an expression for the field of a label. The label may contain a description, too.
func labelled(label string) string {
	return fmt.Sprintf(`document.getElementById([...document.querySelectorAll("label")].find(l => l.innerText.replace(" *", "").split("\n").some(line => line.trim() === %q))?.htmlFor)`, label)
}

// toggle clicks the switch of a label.
func (p *tab) toggle(label string) {
	p.t.Helper()
	p.wait("the switch "+label, labelled(label))
	p.do("turning "+label, chromedp.Evaluate[chromedp.Void](labelled(label)+".click()"))
}

// pick adds an option to the field of a label that takes several.
func (p *tab) pick(label, option string) {
	p.t.Helper()
	p.option(label, option)
	p.do("leaving "+label, chromedp.Evaluate[chromedp.Void]("document.activeElement.blur()"))
}

// option picks an option of the field of a label that takes one.
func (p *tab) option(label, option string) {
	p.t.Helper()
	p.wait("the field "+label, labelled(label))
	p.do("opening "+label, chromedp.Evaluate[chromedp.Void](labelled(label)+".click()"))
	find := fmt.Sprintf(`[...document.querySelectorAll("[role=option]")].find(o => o.innerText.trim() === %q && o.getClientRects().length > 0)`, option)
	p.wait("the option "+option, find)
	p.do("choosing "+option, chromedp.Evaluate[chromedp.Void]("("+find+").click()"))
}

// inDialog clicks the button of the dialog with a text.
func (p *tab) inDialog(text string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll("[role=dialog] button")].find(b => b.textContent.trim() === %q && !b.disabled)`, text)
	p.wait("the button "+text+" of the dialog", find)
	p.do("pressing "+text, chromedp.Evaluate[chromedp.Void]("("+find+").click()"))
}

// shows waits until the page has a text.
func (p *tab) shows(text string) {
	p.t.Helper()
	p.wait(strconv.Quote(text), fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
}

// scheme makes the system prefer dark or light.
func (p *tab) scheme(name string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	if err != nil {
		p.t.Fatal(err)
	}
}

// dialog waits for a dialog that has a name, and checks its accessibility.
func (p *tab) dialog(where string) {
	p.t.Helper()
	p.wait("the dialog of "+where, `document.querySelector("[role=dialog][aria-labelledby]")`)
	p.accessible(where)
}

// accessible fails for each rule of WCAG 2.2 AA and of good practice that the page breaks.
func (p *tab) accessible(where string) {
	p.t.Helper()
	p.accessibleBy(where, "")
}

// accessibleBy is accessible with options for axe, such as the rules to apply.
func (p *tab) accessibleBy(where, options string) {
	p.t.Helper()
	p.do("injecting axe", chromedp.Evaluate[chromedp.Void](`if (!window.axe) { `+axe+` }`))
	found, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]string](
		`axe.run(document, {`+options+`preload: false, resultTypes: ["violations"]}).then(r => r.violations.map(v =>
			v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map(n => n.target.join(" ")).join(", ")))`,
		chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("axe at %s: %v", where, err)
	}
	for _, f := range found {
		p.t.Errorf("%s: %s", where, f)
	}
}

// headed checks that the page has one main heading and the product's name in its title.
func (p *tab) headed(where string) {
	p.t.Helper()
	if n := p.read(`document.querySelectorAll("h1").length`); n != "1" {
		p.t.Errorf("%s has %s h1, want 1", where, n)
	}
	if title := p.read("document.title"); !strings.HasSuffix(title, "· gatehouse") {
		p.t.Errorf("%s has the title %q, want one that ends in %q", where, title, "· gatehouse")
	}
}

// fits checks that the page does not scroll sideways.
func (p *tab) fits(where string) {
	p.t.Helper()
	if wide := p.read(`document.documentElement.scrollWidth > innerWidth`); wide == "true" {
		p.t.Errorf("%s is wider than the window", where)
	}
}

// hides checks that a secret is nowhere in the page.
func (p *tab) hides(what, secret string) {
	p.t.Helper()
	if p.read(fmt.Sprintf(`document.documentElement.outerHTML.includes(%q)`, secret)) == "true" {
		p.t.Errorf("the page contains %s", what)
	}
}

// picture writes a screenshot to the folder GATEHOUSE_E2E_PICTURES, if it is set. CI sets it.
func (p *tab) picture(name string) {
	dir := os.Getenv("GATEHOUSE_E2E_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Logf("taking a picture of %s: %v", name, err)
		return
	}
	file := filepath.Join(dir, strings.NewReplacer("/", "_", " ", "_").Replace(p.t.Name()+"_"+name)+".png")
	if err := os.WriteFile(file, png, 0o600); err != nil {
		p.t.Logf("taking a picture of %s: %v", name, err)
	}
}

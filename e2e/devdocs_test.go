package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// portalReady is true when the script of a page of the portal has run.
const portalReady = `document.documentElement.dataset.ready === ""`

// TestDevdocs walks the developer portal as a reader who has no session of the console.
func TestDevdocs(t *testing.T) {
	t.Parallel()
	chromium(t)
	d := start(t)
	p := open(t, d)
	p.size(1440, 900)
	p.expect("/api/v1/auth/me") // asked without a credential
	t.Run("the filter", func(t *testing.T) { portalFilter(p.in(t)) })
	t.Run("a key is made and tries operations", func(t *testing.T) { portalTries(p.in(t), d) })
	t.Run("signatures", func(t *testing.T) { portalSignatures(p.in(t)) })
	t.Run("languages and colours", func(t *testing.T) { portalLanguages(p.in(t)) })
	t.Run("every kind of page", func(t *testing.T) { portalPages(p.in(t)) })
}

// portal opens a page of the portal, and waits for its script.
func (p *tab) portal(path string) {
	p.t.Helper()
	p.do("opening "+path, chromedp.Navigate(p.origin+path))
	p.wait(path, portalReady)
}

// within clicks the first element of a selector and sees to it that it is in view.
func (p *tab) within(selector string) {
	p.t.Helper()
	p.wait(selector, fmt.Sprintf(`document.querySelector(%q)`, selector))
	p.do("pressing "+selector, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector(%q).click()`, selector)))
}

// enter puts a value into a field as typing does.
func (p *tab) enter(selector, value string) {
	p.t.Helper()
	p.do("filling "+selector, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.value = %s;
		e.dispatchEvent(new Event("input", {bubbles: true})); e.dispatchEvent(new Event("change", {bubbles: true})); })()`, selector, quoteScript(value))))
}

func quoteScript(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func portalFilter(p *tab) {
	p.portal("/devdocs?lang=en")
	p.do("pressing /", chromedp.KeyEvent("/"))
	p.wait("the filter has the focus", `document.activeElement.id === "filter"`)
	p.do("typing", chromedp.KeyEvent("promote a policy"))
	p.wait("one operation", `document.getElementById("found").textContent.startsWith("1 of ")`)
	if shown := p.read(`[...document.querySelectorAll("main tr[data-op]:not([hidden])")].map(r => r.innerText).join()`); !strings.Contains(shown, "/policies/{policy_id}/promote") {
		p.t.Errorf("the filter leaves %s, want the promotion", shown)
	}
	p.accessible("the filtered overview")
	p.enter("#filter", "nothing-has-this")
	p.shows("Nothing fits. Clear the filter.")
	p.enter("#filter", "promote policy")
	p.within(`nav.contents li[data-op]:not([hidden]) a`)
	p.wait("the operation", `location.pathname === "/devdocs/reference/policies" && location.hash === "#promote-policy" && `+portalReady)
	p.wait("the choice of samples", `document.querySelectorAll("#promote-policy .choices button").length === 4`)
	p.within(`#promote-policy .choices button[value=go]`)
	if shown := p.read(`[...document.querySelectorAll("#promote-policy [data-sample]:not([hidden])")].map(s => s.dataset.sample).join()`); shown != "go" {
		p.t.Errorf("the samples of promote-policy are in %s, want go alone", shown)
	}
	if kept := p.read(`[...document.querySelectorAll("#create-policy [data-sample]:not([hidden])")].map(s => s.dataset.sample).join()`); kept != "go" {
		p.t.Errorf("the samples of create-policy are in %s, want go alone", kept)
	}
}

func portalTries(p *tab, d deployment) {
	p.portal("/devdocs/credentials?lang=en")
	p.accessible("credentials")
	p.enter(`form[data-step=login] [name=username]`, "admin")
	p.enter(`form[data-step=login] [name=password]`, password)
	p.within(`form[data-step=login] button[type=submit]`)
	p.shows("Signed in. The token is in use in this tab for an hour.")
	p.within(`form[data-step=key] [value="policies:write"]`)
	p.within(`form[data-step=key] button[type=submit]`)
	p.wait("the key", `/^gh_sandbox_/.test(document.querySelector("form[data-step=key] .issued code")?.textContent)`)
	key := p.read(`document.querySelector("form[data-step=key] .issued code").textContent`)
	p.accessible("a key that was just made")
	if at := p.read("location.href + document.cookie + JSON.stringify(localStorage)"); strings.Contains(at, key) {
		p.t.Errorf("the address, the cookies or the local storage contain the key: %s", at)
	}
	p.within(`.who-ask`)
	p.wait("whose key it is", `document.querySelector(".who-answer").textContent.includes("in the tenant default")`)

	p.portal("/devdocs/reference/policies?lang=en#list-policies")
	p.within(`#list-policies .try summary`)
	p.enter(`#list-policies [name=limit]`, "1")
	p.within(`#list-policies .try button[type=submit]`)
	p.wait("the answer", `/^200/.test(document.querySelector("#list-policies .outcome-line").textContent) && document.querySelector("#list-policies .outcome pre code").textContent.includes('"total"')`)
	if listed := p.read(`document.querySelector("#list-policies .outcome").innerText`); !strings.Contains(listed, "x-ratelimit-limit") && !strings.Contains(listed, "x-request-id") {
		p.t.Errorf("the answer shows neither x-ratelimit-limit nor x-request-id: %s", listed)
	}
	p.accessible("an answer")

	// The portal asks before it sends a DELETE, and does not send it if the reader declines.
	p.within(`#delete-policy .try summary`)
	p.enter(`#delete-policy [name=policy_id]`, "1")
	p.within(`#delete-policy .try button[type=submit]`)
	p.wait("the question", `document.querySelector("dialog[open]")?.innerText.includes("DELETE /api/v1/policies/1")`)
	p.accessible("the question before a DELETE")
	p.button("Do not send")
	p.wait("no dialog", `!document.querySelector("dialog")`)
	if there := send(p.t, http.MethodGet, d.console+"/api/v1/policies/1", "X-API-Key", key, ""); there != http.StatusOK {
		p.t.Errorf("the policy after a DELETE that was not sent: got %d, want 200", there)
	}

	// A body that is not JSON is refused before a request is sent. A JSON body reaches the API.
	p.within(`#validate-policy .try summary`)
	p.enter(`#validate-policy [name=body]`, `{"rego_code": `)
	p.within(`#validate-policy .try button[type=submit]`)
	p.wait("the fault", `document.querySelector("#validate-policy .outcome-line").textContent.startsWith("The body is not JSON")`)
	p.enter(`#validate-policy [name=body]`, `{"rego_code": "package x\n\nallow if input.user.role == admin"}`)
	p.within(`#validate-policy .try button[type=submit]`)
	p.wait("the finding", `document.querySelector("#validate-policy .outcome pre code").textContent.includes('"valid": false')`)

	p.within(`.who-forget`)
	if held := p.read("JSON.stringify(sessionStorage)"); strings.Contains(held, key) {
		p.t.Errorf("the session storage still has the key: %s", held)
	}
}

func portalSignatures(p *tab) {
	p.portal("/devdocs/guides/webhooks?lang=en")
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="
	unsigned := `{"event_id":"e1","data":{"name":"señal ☃","n":1.0,"signature":"inner"}}`
	mac := func(key []byte, text string) []byte {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	member := "sha256=" + hex.EncodeToString(mac([]byte(secret), unsigned))
	body := strings.TrimSuffix(unsigned, "}") + `,"signature":"` + member + `"}`
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		p.t.Fatal(err)
	}
	standard := "v1," + base64.StdEncoding.EncodeToString(mac(key, "e1.1700000000."+body))
	p.enter(`.checker [name=secret]`, secret)
	for _, tc := range []struct{ scheme, body, signature, want string }{
		{"header", body, "sha256=" + hex.EncodeToString(mac([]byte(secret), body)), "The signature is right."},
		{"header", body + " ", "sha256=" + hex.EncodeToString(mac([]byte(secret), body)), "The signature is wrong."},
		{"member", body, "", "The signature is right."},
		{"member", strings.Replace(body, "1.0", "1", 1), "", "The signature is wrong."},
		{"member", unsigned, "", "The body has no member signature."},
		{"standard", body, "v1,bm90IHRoaXM= " + standard, "The signature is right."},
		{"standard", body, "v1,bm90IHRoaXM=", "The signature is wrong."},
	} {
		p.within(`.checker [value=` + tc.scheme + `]`)
		p.enter(`.checker [name=id]`, "e1")
		p.enter(`.checker [name=timestamp]`, "1700000000")
		p.enter(`.checker [name=body]`, tc.body)
		p.enter(`.checker [name=signature]`, tc.signature)
		p.do("forgetting the last verdict", chromedp.Evaluate[chromedp.Void](`document.querySelector(".verdict").textContent = ""`))
		p.within(`.checker button[type=submit]`)
		p.wait("a verdict on "+tc.scheme, `document.querySelector(".verdict").textContent !== ""`)
		if got := p.read(`document.querySelector(".verdict").textContent`); got != tc.want {
			p.t.Errorf("%s of %s: the verdict is %q, want %q", tc.scheme, tc.body, got, tc.want)
		}
		p.accessible("the signature of " + tc.scheme)
	}
}

func portalLanguages(p *tab) {
	p.portal("/devdocs/reference/policies?lang=en#create-policy")
	p.within(`.tools a[hreflang=es]`)
	p.wait("the page in Spanish", `document.documentElement.lang === "es" && location.pathname === "/devdocs/reference/policies" && `+portalReady)
	p.shows("Respuestas")
	p.within(`nav.contents .plain a[href*="/guides/"]`)
	p.wait("a guide in Spanish", `location.pathname === "/devdocs/guides/first-control" && document.documentElement.lang === "es" && `+portalReady)
	p.scheme("light")
	light := p.read(`getComputedStyle(document.body).backgroundColor`)
	p.within(`button.scheme`)
	p.wait("dark colours", `getComputedStyle(document.body).backgroundColor !== `+strconv.Quote(light))
	p.portal("/devdocs?lang=fr")
	if still := p.read(`getComputedStyle(document.body).backgroundColor`); still == light {
		p.t.Error("the next page is light, want the dark that was chosen")
	}
	p.do("forgetting the colours", chromedp.Evaluate[chromedp.Void](`localStorage.clear()`))
}

func portalPages(p *tab) {
	pages := []string{
		"/devdocs?lang=en", "/devdocs/reference?lang=es", "/devdocs/reference/policies?lang=fr", "/devdocs/reference/editor-integration?lang=en", "/devdocs/credentials?lang=es",
		"/devdocs/guides?lang=fr", "/devdocs/guides/first-control?lang=en", "/devdocs/guides/webhooks?lang=fr", "/devdocs/errors?lang=es", "/devdocs/changes?lang=en",
		"/devdocs/manual?lang=fr", "/devdocs/manual/integrations/nginx?lang=es",
	}
	for _, form := range []struct {
		name, scheme  string
		width, height int64
	}{{"light", "light", 1440, 900}, {"dark", "dark", 1440, 900}, {"narrow", "light", 390, 844}} {
		p.scheme(form.scheme)
		p.size(form.width, form.height)
		for _, path := range pages {
			where := path + ", " + form.name
			p.portal(path)
			p.picture(where)
			if strings.Contains(path, "/reference/") { // what is folded away is held to the same rules
				p.do("opening the operations", chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("main .operation")].slice(0, 3).flatMap(o => [...o.querySelectorAll("details")]).forEach(d => d.open = true)`))
			}
			p.headed(where)
			p.fits(where)
			p.accessible(where)
			p.picture(where + " open")
		}
	}
	p.within(`button.menu`)
	p.wait("the contents", `document.querySelector("button.menu").getAttribute("aria-expanded") === "true" && document.getElementById("contents").offsetHeight > 0`)
	p.accessible("the open menu, narrow")
}

package e2e

import (
	"net/http"
	"net/http/cookiejar"
	"strings"

	"github.com/chromedp/chromedp"
)

// sessionEnded ends the session of somebody else, and links the person to an identity provider.
func sessionEnded(p *tab, d deployment) {
	p.post("/api/v1/users", `{"id": "dora", "username": "dora", "email": "dora@example.com", "password": "a long enough secret", "roles": ["viewer"]}`)
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	call := func(method, path, body string) int {
		req, err := http.NewRequestWithContext(p.t.Context(), method, d.console+path, strings.NewReader(body))
		if err != nil {
			p.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		req.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
		res, err := browser.Do(req)
		if err != nil {
			p.t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if status := call(http.MethodPost, "/api/v1/auth/sessions", `{"username": "dora", "password": "a long enough secret"}`); status != http.StatusOK {
		p.t.Fatalf("the sign-in of dora: got %d, want 200", status)
	}
	p.visit("/users")
	p.press(`tbody a[href^="/users/dora"]`)
	p.wait("the person with a session", `location.pathname === "/users/dora" && document.querySelector("button[aria-label^='End the session on']") && `+settled)
	p.accessible("a person with a session")
	p.press("button[aria-label^='End the session on']")
	p.dialog("the question before a session is ended")
	p.do("ending it", chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("[role=dialog] button")].find(b => b.textContent.trim() === "End").click()`))
	p.shows("Nowhere signed in")
	if status := call(http.MethodGet, "/api/v1/auth/me", ""); status != http.StatusUnauthorized {
		p.t.Errorf("/auth/me after the end of the session: got %d, want 401", status)
	}
	p.button("Link an identity")
	p.fill("issuer", "https://login.example.com/")
	p.fill("subject", hostile[0])
	p.dialog("the form of an identity")
	p.press("[role=dialog] button[type=submit]")
	p.wait("the identity", `!document.querySelector("[role=dialog]") && [...document.querySelectorAll("td code, th code")].some(e => e.textContent.includes("onerror"))`)
	p.accessible("a person with an identity")
	p.button("Unlink")
	p.dialog("the question before an identity is unlinked")
	p.button("Unlink")
	p.shows("Not linked to an identity provider")
}

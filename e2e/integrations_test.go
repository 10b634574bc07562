package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
)

// integrationKept adds a SIEM, sees a test refused and one accepted, and changes and deletes it.
func integrationKept(p *tab) {
	var full atomic.Bool
	siem := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case full.Load():
			w.WriteHeader(http.StatusInsufficientStorage)
		case r.Header.Get("Authorization") != "Splunk a-secret-token":
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	p.t.Cleanup(siem.Close)
	p.visit("/integrations")
	p.shows("No integrations yet")
	p.accessible("no integrations")
	p.button("New integration")
	p.option("Kind", "Webhook of actions")
	p.wait("its secret", `document.querySelector("[name=secret-hmac_secret]")`)
	p.dialog("the form of a webhook of actions")
	p.option("Kind", "SIEM")
	p.fill("integration-name", "siem")
	p.fill("endpoint", siem.URL+"/ingest")
	p.fill("setting-ca_certificates", "no certificate")
	p.button("Create integration")
	p.wait("that the certificate is refused", `document.querySelector("[name=setting-ca_certificates]").getAttribute("aria-invalid") === "true"`)
	p.dialog("the form of a SIEM, with an error")
	p.fill("setting-ca_certificates", "\b")
	p.fill("setting-auth_scheme", "Splunk")
	p.option("Credential", "Bearer token")
	p.fill("secret-bearer_token", "another-token")
	p.button("Create integration")
	p.wait("the integration", `location.search.includes("integration=1") && document.querySelector("section[aria-label=siem]") && !document.querySelector("[role=dialog]")`)
	p.button("Send test")
	p.shows("The system did not accept the test.")
	p.shows("401")
	p.wait("the failures of its entries", `/failures? in a row/.test(document.querySelector("section[aria-label=siem] .gh-facts").innerText)`)
	p.accessible("an integration that fails")

	p.button("Edit")
	p.wait("the form with what it is", `document.querySelector("[name=setting-auth_scheme]")?.value === "Splunk"`)
	p.option("Credential", "Bearer token")
	p.fill("secret-bearer_token", "a-secret-token")
	p.button("Save")
	p.wait("that it takes its entries", `!document.querySelector("[role=dialog]") && /Enabled/.test(document.querySelector("section[aria-label=siem] .gh-facts").innerText)`)
	p.button("Send test")
	p.shows("The system accepted the test.")
	p.button("Disable")
	p.wait("that it is off", `[...document.querySelectorAll("tbody tr")].some(r => /siem/.test(r.innerText) && /Disabled/.test(r.innerText))`)
	full.Store(true)
	p.button("Send test")
	p.shows("507")

	for _, name := range hostile {
		p.post("/api/v1/integrations", fmt.Sprintf(`{"name": %q, "kind": "webhook", "endpoint": %q, "environment": "sandbox", "credential": {"hmac_secret": "a-long-random-key"}}`, name, "http://127.0.0.1:9/"+strings.Repeat("W", 300)))
	}
	p.looked("/integrations", "/integrations?integration=2", "/integrations?kind=webhook", "/integrations?integration=999999")
	p.visit("/integrations?integration=2")
	p.button("Delete")
	p.dialog("the question before an integration is deleted")
	p.button("Delete")
	p.wait("its end", `!document.querySelector("[role=dialog]") && !location.search.includes("integration=") && ![...document.querySelectorAll("tbody button")].some(e => e.textContent.includes("onerror"))`)
	p.visit("/integrations?integration=1")
	p.button("Delete")
	p.button("Delete")
	p.wait("the end of the first", `!document.querySelector("[role=dialog]") && !location.search.includes("integration=")`)
}

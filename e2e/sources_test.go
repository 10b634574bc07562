package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/chromedp/chromedp"
)

// sourceKept makes a data source after a test has shown its data, sees it synced, sees it
// fail and keep its data, changes it with its stored credentials, and deletes it.
func sourceKept(p *tab) {
	var down atomic.Bool
	people := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case down.Load():
			w.WriteHeader(http.StatusBadGateway)
		case r.Header.Get("Authorization") != "Bearer a-secret-token":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			_, _ = w.Write([]byte(`{"people":[{"id":"ada","job":{"grade":7}},{"id":"grace","job":{"grade":9}}]}`))
		}
	}))
	p.t.Cleanup(people.Close)
	p.visit("/data-sources")
	p.shows("No data sources yet")
	p.button("New data source")
	for provider, member := range map[string]string{"PostgreSQL query": "query", "LDAP search": "base_dn", "S3 file": "region"} {
		p.option("Kind of source", provider)
		p.wait("what "+provider+" needs", fmt.Sprintf(`document.querySelector("[name=source-more]").value.includes(%q)`, member))
	}
	p.dialog("the form of another kind of data source")
	p.option("Kind of source", "JSON over HTTP")
	p.wait("an empty form", `document.querySelector("[name=source-more]").value === ""`)
	p.fill("source-name", "hr")
	p.fill("source-url", people.URL+"/people")
	p.fill("source-records", "$.people")
	p.fill("source-key", "id")
	p.fill("source-fields", "grade = $.job.grade")
	p.button("Test source")
	p.shows("The source could not be read")
	p.option("Credentials", "Bearer token")
	p.fill("secret-token", "a-secret-token")
	p.button("Test source")
	p.shows("The source was read")
	p.wait("the sample", `/"grade": 9/.test(document.querySelector("[role=dialog] .gh-json")?.innerText)`)
	p.dialog("the form of a data source, with its sample")
	p.button("Create data source")
	p.wait("the data source, synced", `/^\/data-sources\/\d+$/.test(location.pathname) && /Current/.test(document.querySelector("main").innerText)`)
	p.accessible("a data source")

	down.Store(true)
	p.button("Sync now")
	p.shows("controls use the data of an earlier one")
	p.accessible("a data source whose last sync failed")
	down.Store(false)
	p.button("Edit")
	p.fill("source-type", "identity")
	p.button("Test source")
	p.shows("The source was read")
	p.button("Save")
	p.wait("the change", `!document.querySelector("[role=dialog]") && /identity/.test(document.querySelector(".gh-facts").innerText)`)
	p.button("Sync now")
	p.wait("current data", `/Current/.test(document.querySelector("main").innerText) && !/earlier one/.test(document.querySelector("main").innerText)`)
	for _, name := range []string{hostile[0], hostile[1], hostile[3]} {
		p.post("/api/v1/pip/connections", fmt.Sprintf(`{"name": %q, "connection_type": %q, "provider": "http_json", "sync_enabled": false, "configuration": {"url": %q}}`, name, name, people.URL))
	}
	p.looked("/data-sources", "/data-sources/1", "/data-sources/2", "/data-sources/3", "/data-sources/4", "/data-sources?health_status=stale")
	p.visit("/data-sources/1")
	p.button("Delete")
	p.dialog("the question before a data source is deleted")
	if p.read(`!!document.querySelector("[role=dialog] input")`) == "true" {
		p.do("typing the name", chromedp.SendKeys(chromedp.CSS("[role=dialog] input"), "hr"))
	}
	p.button("Delete")
	p.wait("the list", `location.pathname === "/data-sources" && `+settled)
}

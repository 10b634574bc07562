package e2e

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/chromedp/chromedp"
)

// spoken are screens that are read in each language.
var spoken = []string{
	"/tenant/domains", "/tenant/regions", "/tenant/billing", "/tenant/usage", "/tenant/usage?granularity=hour", "/webhooks", "/webhooks/2", "/data-sources", "/data-sources/2", "/agents", "/agents?agent=2", "/requests", "/requests?request=2", "/requests?request=4",
	"/coverage", "/coverage?gaps=true", "/decisions?user_id=mallory",
	"/settings/sign-on", "/users/dora", "/notifications", "/notifications?channel=1", "/notifications/deliveries", "/notifications/alert-rules", "/notifications/alert-rules?rule=1", "/vendors", "/telemetry",
}

// data are names that the stories gave, which no language changes.
var data = []string{"dora", "on call", "many denials"}

// cognates are words of the console that another language spells as English does.
var cognates = map[string][]string{
	"es": {"Error", "Total", "Sandbox", "Bouncers", "Webhooks", "Panel", "Plan", "Control", "Roles", "Sandbox"},
	"fr": {"Description", "Sandbox", "Bouncers", "Webhooks", "Service", "Type", "Permissions", "Actions", "Total", "Agents", "Configuration", "Documentation", "Production", "Active", "Action", "Notifications", "Message"},
}

// ownWords are the texts of headings, labels and buttons: those of the console itself, not of its data.
const ownWords = `JSON.stringify([...new Set([...document.querySelectorAll("h1, h2, th, dt, legend, label, button:not(.gh-link), nav a, .gh-status")]
	.map(e => e.innerText.trim()).filter(text => /\p{L}{3}/u.test(text)))])`

// speak sets the language of the console, from the next page on.
func (p *tab) speak(language string) {
	p.t.Helper()
	p.do("choosing "+language, chromedp.Evaluate[chromedp.Void](`localStorage.setItem("gatehouse-language", "`+language+`")`))
}

// everyLanguage reads screens in Spanish and French, which are longer than English, in a
// narrow window: nothing overflows, and no word of the console stays English.
func everyLanguage(p *tab) {
	p.size(390, 844)
	words := func() (all []string) {
		if err := json.Unmarshal([]byte(p.read(ownWords)), &all); err != nil {
			p.t.Fatal(err)
		}
		return all
	}
	english := map[string][]string{}
	for _, path := range spoken {
		p.visit(path)
		english[path] = words()
	}
	for _, language := range []string{"es", "fr"} {
		p.speak(language)
		for _, path := range spoken {
			p.visit(path)
			where := path + " in " + language
			if lang := p.read("document.documentElement.lang"); lang != language {
				p.t.Errorf("%s: the lang of the document is %q, want %q", where, lang, language)
			}
			p.fits(where)
			for _, text := range words() {
				if slices.Contains(english[path], text) && !slices.Contains(cognates[language], text) && !slices.Contains(data, text) && !slices.Contains(hostile, text) {
					p.t.Errorf("%s: the text %q is not translated", where, text)
				}
			}
			p.accessible(where)
			p.picture(strings.ReplaceAll(where, " ", "_"))
		}
	}
}

package e2e

import (
	"os"
	"strconv"
	"testing"
)

// TestLongList prints how a list of 10,000 resources scrolls and filters, at full
// speed and with a processor a quarter as fast:
//
//	cd e2e && GATEHOUSE_E2E_ROWS=10000 go test -run '^TestLongList$' -v .
//
// The times depend on the machine, so the test only prints them. It checks that the list reaches
// every row and has few of them in the document at a time.
func TestLongList(t *testing.T) {
	rows, _ := strconv.Atoi(os.Getenv("GATEHOUSE_E2E_ROWS"))
	if rows <= 0 {
		t.Skip("a measure: set GATEHOUSE_E2E_ROWS to the number of rows")
	}
	d := start(t)
	p := open(t, d)
	p.expect("/api/v1/auth/me")
	p.size(1440, 900)
	p.signIn("/")
	p.addResources(rows)
	for _, times := range []float64{1, 4} {
		speed := "processor at 1/" + strconv.FormatFloat(times, 'f', 0, 64)
		p.slowed(times)
		p.visit("/resources?environment=production")
		p.wait("the list", `document.querySelectorAll(".gh-table-box tbody tr").length > 10`)
		figures := p.await("scrolling", `(async () => {
			const box = document.querySelector(".gh-table-box");
			let worst = 0, frames = 0, most = 0, last = performance.now();
			const began = last, total = `+strconv.Itoa(rows)+`;
			for (;;) {
				box.scrollTop += 1500;
				const now = await new Promise(requestAnimationFrame);
				worst = Math.max(worst, now - last);
				last = now;
				frames++;
				most = Math.max(most, box.querySelectorAll("tbody tr").length);
				const end = Number([...box.querySelectorAll("tbody tr[aria-rowindex]")].pop()?.getAttribute("aria-rowindex"));
				if (end > total) break;
			}
			return JSON.stringify({frames, longest_frame_ms: Math.round(worst), seconds: Math.round((last - began) / 100) / 10, rows_in_document: most});
		})()`)
		measured(t, "scrolling "+strconv.Itoa(rows)+" rows, "+speed+": "+figures)
		if most := p.read("JSON.parse(" + strconv.Quote(figures) + ").rows_in_document"); len(most) > 3 {
			t.Errorf("%s rows are in the document at once, want less than 1000", most)
		}
		took := p.await("filtering", `new Promise(done => {
			const field = document.querySelector("search input");
			Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, "row `+strconv.Itoa(rows-1)+`");
			const began = performance.now();
			field.dispatchEvent(new Event("input", {bubbles: true}));
			const look = () => document.querySelectorAll(".gh-table-box tbody tr").length === 1
				? done(Math.round(performance.now() - began) + " ms after the key") : requestAnimationFrame(look);
			look();
		})`)
		measured(t, "filtering them, "+speed+": "+took)
	}
}

// addResources registers resources in production, several at a time.
func (p *tab) addResources(n int) {
	p.t.Helper()
	refused := p.await("adding resources", `(async () => {
		let next = 0, refused = "";
		const one = async () => {
			while (next < `+strconv.Itoa(n)+` && !refused) {
				const i = next++;
				const r = await fetch("/api/v1/resources", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({name: "row " + i, type: "api", path: "/row/" + i, environment: "production"})});
				if (!r.ok) refused = r.status + " " + await r.text();
			}
		};
		await Promise.all(Array.from({length: 5}, one));
		return refused;
	})()`)
	if refused != "" {
		p.t.Fatalf("adding a resource: got %s, want success", refused)
	}
}

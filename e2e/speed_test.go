package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// firstLoads prints how long screens take to show their data and take input, with a
// warm server and a warm cache, and how much script they request. It checks
// nothing: the times depend on the machine, and TestFirstLoad limits the sizes.
func firstLoads(p *tab) {
	for _, path := range []string{"/", "/policies/1", "/decisions"} {
		for _, visit := range []string{"first visit", "second visit", "with a processor a quarter as fast"} {
			p.slowed(map[bool]float64{true: 4, false: 1}[strings.HasPrefix(visit, "with")])
			p.do("opening "+path, chromedp.Navigate(p.origin+path))
			took := p.await("measuring "+path, `new Promise(done => {
				const look = () => {
					if (!(`+settled+`)) return setTimeout(look, 5);
					const at = Math.round(performance.now());
					const scripts = performance.getEntriesByType("resource").filter(r => r.name.endsWith(".js"));
					done(at + " ms, " + scripts.reduce((n, r) => n + r.encodedBodySize, 0) + " bytes of script in " + scripts.length + " files");
				};
				look();
			})`)
			measured(p.t, fmt.Sprintf("%s, %s: %s", path, visit, took))
		}
	}
	p.slowed(1)
}

// slowed makes the browser's processor so many times slower.
func (p *tab) slowed(times float64) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, emulation.SetCPUThrottlingRate, emulation.SetCPUThrottlingRateParams{Rate: times}); err != nil {
		p.t.Fatal(err)
	}
}

// measured prints a figure, whether the test fails or not.
func measured(t *testing.T, text string) {
	t.Helper()
	t.Log(text)
	fmt.Println("measured: " + text)
}

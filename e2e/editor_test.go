package e2e

import (
	"encoding/json"

	"github.com/chromedp/chromedp/kb"
)

// contrasts finds the texts of the editor with too little contrast, and counts the colours of text
// and of background. It blends transparent backgrounds on a canvas; axe does not judge them.
const contrasts = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	canvas.canvas.width = canvas.canvas.height = 1;
	const paint = colour => { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
	const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
	const poor = [], colours = new Set(), grounds = new Set();
	const texts = document.createTreeWalker(document.querySelector(".cm-scroller"), NodeFilter.SHOW_TEXT);
	for (let text = texts.nextNode(); text; text = texts.nextNode()) {
		const e = text.parentElement;
		if (!text.data.trim() || e.getClientRects().length === 0 || getComputedStyle(e).visibility === "hidden") continue;
		const parents = [];
		for (let up = e; up; up = up.parentElement) parents.unshift(up);
		let ground = paint("white");
		for (const up of parents) ground = paint(getComputedStyle(up).backgroundColor);
		const ink = paint(getComputedStyle(e).color);
		const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
		colours.add(String(ink));
		grounds.add(String(ground));
		if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(text.data + " " + ink + " on " + ground);
	}
	return JSON.stringify({poor, colours: colours.size, grounds: grounds.size});
})()`

// editorReadable: each colour of the editor has a contrast of 4.5:1, on plain lines, on the line of
// the cursor and on the lines that a run has tinted.
func editorReadable(p *tab) {
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		p.visit("/policies/1")
		p.toEndOfControl()
		p.keys(kb.Enter, control())
		p.wait("the tinted lines", `document.documentElement.dataset.mantineColorScheme === "`+scheme+`" && document.querySelector(".cm-content .cm-tint-held, .cm-content .cm-tint-failed, .cm-content .cm-tint-decided")`)
		var found struct {
			Poor             []string
			Colours, Grounds int
		}
		if err := json.Unmarshal([]byte(p.read(contrasts)), &found); err != nil {
			p.t.Fatal(err)
		}
		for _, text := range found.Poor {
			p.t.Errorf("%s: too little contrast: %s", scheme, text)
		}
		if found.Colours < 5 || found.Grounds < 3 {
			p.t.Errorf("%s: compared %d colours on %d backgrounds, want at least 5 on 3", scheme, found.Colours, found.Grounds)
		}
	}
	p.scheme("light")
}

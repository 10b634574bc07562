package pii

import (
	"fmt"
	"strings"
	"testing"
)

// marked shows what is found in a text: [kind:text].
func marked(set Set, text string) string {
	spans, _ := set.Scan(nil, []byte(text), 0, true)
	var out strings.Builder
	at := 0
	for _, s := range spans {
		fmt.Fprintf(&out, "%s[%s]", text[at:s.Start], text[s.Start:s.End])
		at = s.End
	}
	return out.String() + text[at:]
}

func TestScan(t *testing.T) {
	for kind, lines := range map[Kind]string{
		Emails: `
write to [bea@example.com].
<[john.smith+tag@mail.example.co.uk]>, ok
"email":"[a@b.de]"
at [x@example.com.]5
mailto:[bea@example.com]?subject=x
https://h/?m=[bea%40example.com]&n=1
请联系[bea@example.com]吧
—[josé@example.com]—
a@b, @home, me@localhost, 5@5.5
user@host.c
[o'brien@example.org] [A_B-c.d@x-y.example]
`,
		Cards: `
[4111111111111111]
[4111 1111 1111 1111], [4111-1111-1111-1111]
[378282246310005] [3782 822463 10005]
[5555555555554444]. card [2223003122003222] ok
4111111111111112 is none, 1234567812345678 neither
no[4111111111111111]
12 [4111 1111 1111 1111] 12/26
deadbeef4111111111111111cafe
0.4111111111111111
[4111 1111 1111 1111]
4111111111111111111111111
[4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1]
[4111	1111	1111	1111]
0000000000000000
`,
		SSN: `
[123-45-6789] and [123 45 6789]
[123	45	6789] [123_45_6789] [123 - 45 - 6789] [123- 45- 6789] [123/45/6789]
123 - 45 . 6789, 123  45  6789
000-12-3456 666-12-3456 900-12-3456 123-00-4567 123-45-0000
SSN: [123456789]
123456789 alone
1123-45-6789, 123-45-67890
`,
		Phones: `
call [(415) 555-2671] or [415-555-2671] or [+1 415 555 2671]
[+44 20 7946 0958], [+4930123456]
[030 12345678] [01 23 45 67 89] [0171/1234567]
call [555-2671]
on 2024-01-02, 01-02-2024, 10.0.0.1, version 1.2.3.4, 192.168.100.200
555-2671
order 4155552671
tel. [4155552671]
`,
		Addresses: `
at [123 Main Street], ok
[221B Baker Street, London NW1 6XE] is
[5 Apple Way, Springfield, IL 62704]
[1600 Pennsylvania Avenue NW, Washington, DC 20500]
[123 main street] now
[P.O. Box 123]
[Hauptstraße 5, 10115 Berlin]
[12 rue de Rivoli, 75001 Paris]
2 people walk down the street
in 5 minutes way
[742 Evergreen Terrace, Apt 3]
`,
		Health: `
she has [diabetes] and takes [metformin]
[Type 2 diabetes], [COVID-19]
diagnosis [E11.9] given
MRN: [12345678]
E11 vitamin, B12
a [heart attack]. A heart.
`,
		Names: `
[Ann Smith] called
[Dr. Jane Doe] and [Mr O'Neill]
Grace will mark it
[Grace Hopper] did
My name is [Zorblax Quux]
on Main Street
[Maria van der Berg] and [Bea Stone]
`,
	} {
		for want := range strings.Lines(strings.TrimSpace(lines)) {
			want = strings.TrimSpace(want)
			text := strings.NewReplacer("[", "", "]", "").Replace(want)
			if want == "at [x@example.com.]5" {
				want = "at [x@example.com].5"
				text = "at x@example.com.5"
			}
			if got := marked(Set(0).With(kind), text); got != want {
				t.Errorf("%s: %s\n  want %s", kind, got, want)
			}
		}
	}
}

// TestScanOverLines: text that continues after the end of a line is found as one, wherever it is
// cut. Separate lines are separate.
func TestScanOverLines(t *testing.T) {
	for text, want := range map[string]bool{
		"see 123-45-\n6789 there": true, "see 123-\r\n45-6789 there": true, "mail bea@\nexample.com there": true, "mail bea@\r\nexample.com there": true,
		"pay 4111-1111-\n1111-1111 there": true, "123\n45\n6789": false, "123.\n45.\n6789": false, "bea@\n\nexample.com": false, "at home@\nand there": false,
	} {
		set := Set(0).With(Emails).With(SSN).With(Cards)
		spans, _ := set.Scan(nil, []byte(text), 0, true)
		if (len(spans) == 1) != want {
			t.Errorf("%q: %v", text, spans)
		}
		for cut := range text {
			if part, scanned := set.Scan(nil, []byte(text[:cut]), 0, false); want && len(spans) == 1 && cut < spans[0].End && (len(part) > 0 || scanned > spans[0].Start) {
				t.Errorf("%q: after %d bytes %v, settled %d", text, cut, part, scanned)
			}
		}
	}
}

// TestScanOverMarkup: invisible markup does not interrupt numbers and addresses; cells of a table
// do.
func TestScanOverMarkup(t *testing.T) {
	for text, want := range map[string]string{
		"pay 4111<b>1111</b>1111 1111.":                 "4111<b>1111</b>1111 1111",
		"pay 4111<br>1111<br/>1111<wbr>1111.":           "4111<br>1111<br/>1111<wbr>1111",
		"4111 <em>1111</em> <EM>1111</EM> 1111":         "4111 <em>1111</em> <EM>1111</EM> 1111",
		"4111<!-- x -->1111<!---->1111<![CDATA[1111]]>": "4111<!-- x -->1111<!---->1111<![CDATA[1111",
		"2<br>4111111111111111<br>3":                    "4111111111111111",
		"it is 123-<i>45</i>-6789 there":                "123-<i>45</i>-6789",
		"<td>123</td><td>45</td><td>6789</td>":          "",
		"<p>4111</p><p>1111</p><p>1111</p><p>1111</p>":  "",
		"mail ann<b>@</b>example<wbr>.<wbr>com there":   "ann<b>@</b>example<wbr>.<wbr>com",
		"mail ann@<wbr>example.com</p>":                 "ann@<wbr>example.com",
		"4111<span title=1>1111</span>1111 1111":        "",
		"4111<!-- 4222222222222 -->1111 1111 1111":      "4222222222222",
	} {
		set := Set(0).With(Emails).With(SSN).With(Cards)
		spans, _ := set.Scan(nil, []byte(text), 0, true)
		got := ""
		for _, sp := range spans {
			got += text[sp.Start:sp.End]
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		for cut := range text {
			part, scanned := set.Scan(nil, []byte(text[:cut]), 0, false)
			if want != "" && cut < spans[0].End && (len(part) > 0 || scanned > spans[0].Start) {
				t.Errorf("%q: after %d bytes %v, settled %d", text, cut, part, scanned)
			}
		}
	}
}

package mask

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/pii"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

// testKey is the key for hashes.
var testKey = masking.HashKey("a key of 32 bytes for tests only")

// rules returns the masks of paths; "path=strategy", or "path" for redact.
func rules(t testing.TB, list ...string) *Rules {
	t.Helper()
	var masks []masking.MaskRule
	for _, s := range list {
		path, strategy, ok := strings.Cut(s, "=")
		if !ok {
			strategy = masking.Redact
		}
		masks = append(masks, masking.MaskRule{Path: path, Strategy: strategy})
	}
	r, err := New(masks, testKey)
	errtest.Must(t, err)
	return r
}

var everything = []string{"pii:names", "pii:emails", "pii:ssn", "pii:card_numbers", "pii:health_records", "pii:addresses", "pii:phones"}

// secrets are one text of each category, with what must not remain of it.
var secrets = map[pii.Kind][]string{
	pii.Names:     {"ask Maria van der Berg about it", "Dr. Jane Doe, please", "José Ángel García signed"},
	pii.Emails:    {"write to bea.stone@mail.example.com now", "bea@example.com", "mail=bea%40example.com&x=1", "<josé@example.com>"},
	pii.SSN:       {"it is 123-45-6789 for all", "SSN: 123456789.", "123 45 6789"},
	pii.Cards:     {"pay 4111 1111 1111 1111 today", "4111111111111111", "with 3782-822463-10005, yes"},
	pii.Health:    {"she has type 2 diabetes now", "takes metformin daily", "diagnosis E11.9 given", "MRN: 12345678 it is"},
	pii.Addresses: {"at 221B Baker Street, London NW1 6XE today", "P.O. Box 1234 it is", "in der Hauptstraße 5, 10115 Berlin wohnt"},
	pii.Phones:    {"call (415) 555-2671 now", "+44 20 7946 0958", "tel. 4155552671, thanks"},
}

// TestTextInPieces checks that the result is the same for any pieces, and no byte outside a mask
// changes.
func TestTextInPieces(t *testing.T) {
	for kind, texts := range secrets {
		for _, text := range texts {
			r := rules(t, everything...)
			want := string(r.Text([]byte(text)))
			if want == text || !strings.Contains(want, "[redacted]") {
				t.Errorf("%s: %q became %q, want it masked", kind, text, want)
			}
			for size := 1; size <= len(text); size++ {
				for first := 0; first <= len(text); first++ {
					var got []byte
					s := r.TextTo(func(p []byte) error { got = append(got, p...); return nil })
					for at := 0; at < len(text); {
						next := at + size
						if at == 0 && first > 0 {
							next = first
						}
						next = min(next, len(text))
						_, _ = s.Write([]byte(text[at:next]))
						if held := len(s.text) - s.from; held > 600 {
							t.Fatalf("%s: %d bytes wait, want at most 600", kind, held)
						}
						at = next
					}
					_ = s.Close()
					if string(got) != want {
						t.Fatalf("%s in pieces of %d, the first of %d: %q, want %q", kind, size, first, got, want)
					}
				}
			}
		}
	}
}

// The same holds for texts that are put together at random.
func TestResultIsIndependentOfPieces(t *testing.T) {
	words := []string{
		"4111", "1111", " ", "-", "@", ".", "com", "bea", "example", "Ann", "Smith", "Street", "12", "123", "45", "6789", "SSN", ": ", "+", "(", ")", "0", "55", "\n", ",", "diabetes",
		"type", "2", "é", "漢", "–", "\u00a0", "Dr.", "van", "Hauptstraße", "P.O.", "Box", "NW1", "6XE", "IL", "62704", "MRN", "E11.9", "%40", "&#52;", "\u200b", "４", "e\u0301", "\\u0034", "call", "415", "_",
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 25).Draw(t, "words"), "")
		masks, _ := New([]masking.MaskRule{
			{Path: "pii:names", Strategy: "redact"},
			{Path: "pii:emails", Strategy: "last4"},
			{Path: "pii:ssn", Strategy: "redact"},
			{Path: "pii:card_numbers", Strategy: "last4"},
			{Path: "pii:health_records", Strategy: "redact"},
			{Path: "pii:addresses", Strategy: "hash"},
			{Path: "pii:phones", Strategy: "remove"},
		}, testKey)
		want := string(masks.Text([]byte(text)))
		var got []byte
		s := masks.TextTo(func(p []byte) error { got = append(got, p...); return nil })
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			_, _ = s.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		_ = s.Close()
		if string(got) != want {
			t.Fatalf("%q: %q in pieces, %q whole", text, got, want)
		}
	})
}

// A mask in JSON keeps the document valid, and its other bytes. A document that cannot be read is an
// error.
func TestJSON(t *testing.T) {
	for _, tc := range []struct{ masks, doc, want string }{
		{"pii:emails", `{"a": "x bea@example.com y", "b": [1, "bea@example.com"]}`, `{"a": "x [redacted] y", "b": [1, "[redacted]"]}`},
		{"pii:emails", `{"a":"x\u0020bea\u0040example\u002ecom\n\"y"}`, `{"a":"x\u0020[redacted]\n\"y"}`},
		{"pii:emails", `{"args":"{\"to\":\"bea@example.com\"}"}`, `{"args":"{\"to\":\"[redacted]\"}"}`},
		{"pii:emails", `{"bea@example.com":1}`, `{"[redacted]":1}`},
		{"pii:card_numbers=last4", `{"n":4111111111111111,"f":4111.111111111111,"m":-4111111111111111,"s":"4111 1111 1111 1111"}`, `{"n":"****1111","f":4111.111111111111,"m":"****1111","s":"****1111"}`},
		{"pii:ssn", `{"ssn":"123456789","id":"123456789","SSN":123456789,"n":123456789}`, `{"ssn":"[redacted]","id":"123456789","SSN":"[redacted]","n":123456789}`},
		{"pii:names", `{"lastName":"Quux","name":"Quux","last_name":["Foo","Bar"],"x":"Foo"}`, `{"lastName":"[redacted]","name":"Quux","last_name":["[redacted]","[redacted]"],"x":"Foo"}`},
		{"pii:health_records", `{"diagnosis":"odd","name":"odd","medications":["a","b"],"x":["a"]}`, `{"diagnosis":"[redacted]","name":"odd","medications":["[redacted]","[redacted]"],"x":["a"]}`},
		{"pii:phones=remove", `{"note":"call (415) 555-2671.","phone":"555 2671 9"}`, `{"note":"call .","phone":""}`},
		{"pii:emails=hash", `["bea@example.com"]`, `["sha256:267f115a378480545058d6c35ea2164fb4caad0fc293caeb601cfa6e3131d9c5"]`},
		{"secret;pii:emails", `{"secret":"x","y":"bea@example.com"}`, `{"secret":"[redacted]","y":"[redacted]"}`},
		{"pii:emails", ``, ``},
		{"pii:emails", ` "bea@example.com" `, ` "[redacted]" `},
	} {
		r := rules(t, strings.Split(tc.masks, ";")...)
		got, err := r.JSON([]byte(tc.doc))
		if strings.Contains(tc.masks, "hash") {
			if len(got) != len(tc.want) || !strings.HasPrefix(string(got), `["sha256:`) {
				t.Errorf("%s on %s: %s, want a hash", tc.masks, tc.doc, got)
			}
			continue
		}
		if err != nil || string(got) != tc.want {
			t.Errorf("%s on %s:\n%s %v, want\n%s", tc.masks, tc.doc, got, err, tc.want)
		}
		if r.NeedsJSON() || tc.doc == "" {
			continue
		}
		for size := 1; size < len(tc.doc); size++ {
			var out []byte
			s := r.JSONTo(func(p []byte) error { out = append(out, p...); return nil })
			for at := 0; at < len(tc.doc); at += size {
				errtest.Must(t, errtest.Of(s.Write([]byte(tc.doc[at:min(at+size, len(tc.doc))]))))
			}
			if err := s.Close(); err != nil || string(out) != tc.want {
				t.Errorf("%s in pieces of %d: %s %v, want %s", tc.doc, size, out, err, tc.want)
			}
		}
	}
	for _, bad := range []string{`{`, `bea@example.com`, `{"a":bea}`, `"a`, `[1,]`, `{"a":1} {"b":2}`, "\xff", `{'a':1}`} {
		if out, err := rules(t, "pii:emails").JSON([]byte(bad)); err == nil {
			t.Errorf("JSON(%q) = %q, want an error", bad, out)
		}
	}
	for _, bad := range []string{`bea@example.com`, `{"a":bea}`, `"a`, "\xff", `{'a':1}`, `"` + strings.Repeat("a", MaxHeld+1)} {
		s := rules(t, "pii:emails").JSONTo(func(p []byte) error {
			if strings.Contains(string(p), "bea") {
				t.Errorf("%q passes, want nothing of bea", p)
			}
			return nil
		})
		_, err := s.Write([]byte(bad))
		if cerr := s.Close(); err == nil && cerr == nil {
			t.Errorf("%.40q in pieces: no error", bad)
		}
	}
	if _, err := New([]masking.MaskRule{{Path: "pii:shoe_size", Strategy: "redact"}}, nil); err == nil {
		t.Error("an unknown category: no error")
	}
}

func chatEvent(choice int, text string) string {
	return fmt.Sprintf("data: {\"id\":\"chatcmpl-9\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":%d,\"delta\":{\"content\":%s},\"finish_reason\":null}]}\n\n", choice, quote(text))
}

func quote(s string) string { b, _ := json.Marshal(s); return string(b) }

// stream masks a stream that arrives in pieces of a size.
func stream(t testing.TB, r *Rules, in string, size int) string {
	t.Helper()
	var out []byte
	s := r.EventsTo(func(p []byte) error { out = append(out, p...); return nil })
	for at := 0; at < len(in); at += size {
		errtest.Must(t, errtest.Of(s.Write([]byte(in[at:min(at+size, len(in))]))))
	}
	errtest.Must(t, s.Close())
	return string(out)
}

// textOf returns the text of a stream's deltas.
func textOf(t testing.TB, events string) (text string) {
	t.Helper()
	for line := range strings.Lines(events) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		if data[0] == '"' {
			var s string
			if err := json.Unmarshal([]byte(data), &s); err != nil {
				t.Fatalf("%q: %v", data, err)
			}
			text += s
			continue
		}
		var e struct {
			Type    string
			Delta   any
			Choices []struct {
				Delta struct{ Content string }
			}
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		for _, c := range e.Choices {
			text += c.Delta.Content
		}
		switch d := e.Delta.(type) {
		case string:
			text += d
		case map[string]any:
			if m, ok := d["message"].(map[string]any); ok {
				d, _ = m["content"].(map[string]any)
			}
			s, _ := d["text"].(string)
			text += s
		}
	}
	return text
}

var shapes = map[string]struct {
	delta func(string) string
	end   string
}{
	"openai": {func(s string) string { return chatEvent(0, s) }, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"},
	"anthropic": {func(s string) string {
		return "event: content_block_delta\r\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":" + quote(s) + "}}\r\n\r\n"
	}, "event: content_block_stop\r\ndata: {\"type\":\"content_block_stop\",\"index\":0}\r\n\r\nevent: message_stop\r\ndata: {\"type\":\"message_stop\"}\r\n\r\n"},
	"responses": {func(s string) string {
		return "data: {\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\"output_index\":0,\"content_index\":0,\"delta\":" + quote(s) + "}\n\n"
	}, "data: {\"type\":\"response.completed\",\"response\":{}}\n\n"},
	"cohere": {func(s string) string {
		return "event: content-delta\ndata: {\"type\":\"content-delta\",\"index\":0,\"delta\":{\"message\":{\"content\":{\"text\":" + quote(s) + "}}}}\n\n"
	}, "data: {\"type\":\"content-end\",\"index\":0}\n\ndata: {\"type\":\"message-end\"}\n\n"},
	"strings": {func(s string) string { return "data: " + quote(s) + "\n\n" }, ""},
	"unknown": {func(s string) string { return "data: {\"delta\":" + quote(s) + "}\n\n" }, ""},
}

// TestEventsInPieces checks, for each kind of personal data and each format of streams, that nothing
// passes and everything outside a mask stays as it was, with deltas and bytes split at every position.
func TestEventsInPieces(t *testing.T) {
	for name, sh := range shapes {
		for kind, texts := range secrets {
			for _, text := range texts {
				r := rules(t, everything...)
				want := string(r.Text([]byte(text)))
				build := func(parts ...string) (in string) {
					for _, p := range parts {
						in += sh.delta(p)
					}
					return in + sh.end
				}
				var letters []string
				for _, c := range text {
					letters = append(letters, string(c))
				}
				all := build(letters...)
				if got := stream(t, r, all, len(all)); textOf(t, got) != want {
					t.Errorf("%s %s letter by letter: %q, want %q", name, kind, textOf(t, got), want)
				}
				for cut := 1; cut < len(text); cut++ {
					if !utf8.RuneStart(text[cut]) {
						continue
					}
					in := build(text[:cut], text[cut:])
					got := stream(t, r, in, len(in))
					if textOf(t, got) != want {
						t.Errorf("%s %s parted at %d: %q, want %q", name, kind, cut, textOf(t, got), want)
					}
					if cut%5 != 0 {
						continue
					}
					for _, size := range []int{1, 2, 3, 7, 64, 200} {
						if again := stream(t, r, in, size); again != got {
							t.Fatalf("%s %s in pieces of %d:\n%q, whole\n%q", name, kind, size, again, got)
						}
					}
				}
			}
		}
	}
}

// An event without personal data keeps its bytes.
func TestEventsKeepTheirBytes(t *testing.T) {
	in := ": hello\n\nid: 7\nevent: x\nretry: 10\ndata: {\"choices\" : [ {\"index\":0,\"delta\":{\"content\":\"Hi \\u00e9 \"}} ]}\n\n" +
		"data: one\ndata: two\n\ndata: [DONE]\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{\"text\":\"word\"}}\r\n\r\n"
	for size := 1; size <= len(in); size++ {
		if got := stream(t, rules(t, everything...), in, size); got != in {
			t.Fatalf("in pieces of %d: %q, want it unchanged", size, got)
		}
	}
	// Two concurrent answers are two texts.
	in = chatEvent(0, "bea@exa") + chatEvent(1, "4111 1111") + chatEvent(0, "mple.com ") + chatEvent(1, " 1111 1111.")
	if got := textOf(t, stream(t, rules(t, everything...), in, len(in))); got != "[redacted][redacted] ." {
		t.Errorf("two concurrent answers: %q, want [redacted][redacted] .", got)
	}
	// By the names of members, paths and numbers.
	in = "data: {\"ssn\":\"123456789\",\"n\":4111111111111111,\"secret\":{\"a\":1},\"x\":\"y\"}\n\n"
	if got, want := stream(t, rules(t, append(everything, "secret")...), in, 5), "data: {\"ssn\":\"[redacted]\",\"n\":\"[redacted]\",\"secret\":\"[redacted]\",\"x\":\"y\"}\n\n"; got != want {
		t.Errorf("members: %q, want %q", got, want)
	}
	s := rules(t, "secret").EventsTo(func([]byte) error { return nil })
	if _, err := s.Write([]byte("data: secret text\n\n")); err == nil {
		t.Error("a path in an event without JSON: no error")
	}
}

// TestEventsPassAtOnce checks that what cannot be personal data passes at once, and so does an
// answer's first word.
func TestEventsPassAtOnce(t *testing.T) {
	for text, now := range map[string]bool{
		"Hello": true, " The": true, "Sure": true, "Done. ": true, "Hi!": true, "": true,
		"Bea": false, "4111": false, "zorblax": false,
	} {
		var out string
		s := rules(t, everything...).EventsTo(func(p []byte) error { out += string(p); return nil })
		_, _ = s.Write([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"))
		if !strings.Contains(out, "assistant") {
			t.Error("the role of the answer waits, want it at once")
		}
		out = ""
		_, _ = s.Write([]byte(chatEvent(0, text)))
		if (out != "") != now {
			t.Errorf("%q passes at once: %v, want %v", text, out != "", now)
		}
		_, _ = s.Write([]byte(chatEvent(0, "odore@example.com is")))
		_, _ = s.Write([]byte(chatEvent(0, " what")))
		if now && text != "" && !strings.Contains(text, " ") && textOf(t, out) != text+"[redacted] is" && text != "Hi!" {
			t.Errorf("%q: %q, want the address redacted", text, textOf(t, out))
		}
		if !strings.Contains(textOf(t, out), " is") || strings.Contains(textOf(t, out), "odore") {
			t.Errorf("%q: after more words %q passed, want \" is\" and no address", text, out)
		}
	}
}

func BenchmarkJSON20k(b *testing.B) {
	var list []string
	for i := range 60 {
		list = append(list, fmt.Sprintf(`{"id":%d,"name":"Order %d","email":"user%d@example.com","note":"Delivered to the front desk on Monday; the customer asked us to call (415) 555-%04d and pays with 4111 1111 1111 1111 next time, as agreed with the team in writing.","total":12.5,"tags":["a","b"],"created_at":"2026-05-01T12:00:00Z"}`, i, i, i, i))
	}
	doc := []byte("[" + strings.Join(list, ",") + "]")
	r := rules(b, everything...)
	b.SetBytes(int64(len(doc)))
	b.ReportMetric(float64(len(doc)), "doc-bytes")
	for b.Loop() {
		errtest.Must(b, errtest.Of(r.JSON(doc)))
	}
}

package enforce

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// decodeLeniently decodes what strict decoders do not: overlong UTF-8, UTF-16 escapes of IIS
// (%u002f), and bytes of Latin-1.
func decodeLeniently(s string) string {
	for _, pair := range [][2]string{
		{"%c0%af", "/"}, {"%e0%80%af", "/"}, {"%f0%80%80%af", "/"}, {"%c1%9c", `\`}, {"%c0%ae", "."}, {"%c1%af", "o"}, {"%c1%8f", "O"}, {"%c0%bb", ";"}, {"%c0%80", "\x00"},
	} {
		s = replaceFold(s, pair[0], pair[1])
	}
	for {
		at := strings.Index(strings.ToLower(s), "%u")
		if at < 0 || at+6 > len(s) {
			return s
		}
		n, err := strconv.ParseUint(s[at+2:at+6], 16, 32)
		if err != nil {
			return s
		}
		s = s[:at] + string(rune(n)) + s[at+6:]
	}
}

// replaceFold replaces old, in any letter case.
func replaceFold(s, old, to string) string {
	for {
		at := strings.Index(strings.ToLower(s), old)
		if at < 0 {
			return s
		}
		s = s[:at] + to + s[at+len(old):]
	}
}

// endsAt cuts a path at a text where a server's string would end.
func endsAt(at string) reading {
	return func(s string) string { before, _, _ := strings.Cut(s, at); return before }
}

// trimSpace trims white space around each segment.
func trimSpace(s string) string { return eachSegment(s, strings.TrimSpace) }

// furtherReadings are more servers, in addition to readings.
var furtherReadings = map[string][]reading{
	"overlong UTF-8":           {decodeLeniently, decode, slashes, clean},
	"IIS with %u":              {decodeLeniently, decode, slashes, clean, trimEnds, strings.ToLower, clean},
	"C strings, once":          {decode, endsAt("\x00"), clean},
	"lines":                    {decode, endsAt("\n"), endsAt("\r"), clean},
	"white space":              {decode, trimSpace, clean},
	"a fragment":               {endsAt("#"), decode, clean},
	"a fragment, decoded":      {decode, endsAt("#"), endsAt("?"), clean},
	"upper case":               {decode, strings.ToUpper, strings.ToLower, clean},
	"parameters before dots":   {dropParameters, clean, decode, clean},
	"backslashes, then dots":   {decode, slashes, dropParameters, clean},
	"host in the request line": {func(s string) string { return strings.TrimPrefix(strings.TrimPrefix(s, "http://a"), "https://a") }, decode, clean},
}

// TestFurtherSpellings tries spellings of /orders/17 against all servers that read paths differently,
// in the proxy and by forward-auth with both of its headers.
func TestFurtherSpellings(t *testing.T) {
	t.Parallel()
	app := newApplication(t, func(http.ResponseWriter, *http.Request) {})
	p := newPlane(t)
	guardOrders(t, p, "")
	b := start(t, p, app.URL, nil).at(t, 1)
	serves := func(raw string) string { return cmp.Or(servedAs(raw, readings), servedAs(raw, furtherReadings)) }
	meant := 0
	for _, target := range []string{
		"/orders", "/orders/", "//orders", "///orders//17", "/./orders/17", "/.//orders/17", "/orders/.", "/orders/./17", "/x/../orders/17", "/x/..//orders/17", "/..;/orders/17", "/x/..;/orders/17", "/x/..;a=b/orders/17",
		"/x;y/../orders/17", "/;/orders/17", "/;x/orders/17", "/.;/orders/17", "/%2e/orders/17", "/%2e%2e/orders/17", "/x/%2e%2e/orders/17", "/x/%2e./orders/17", "/x/.%2e/orders/17", "/x/%252e%252e/orders/17", "/x/%2e%2e;/orders/17",
		"/x/..%2forders/17", "/x/..%5corders/17", "/x%2f..%2forders/17", "/x%5c..%5corders/17", "/%2forders/17", "/%5corders/17", "/%5c%5corders/17", "/orders%2f17", "/orders%5c17", "/orders%252f17", "/orders%255c17", "/orders\\17", "/x\\..\\orders\\17",
		"/orders%00", "/orders%00/17", "/orders/17%00", "/orders%00.json", "/orders%2500/17", "/orders%09", "/orders%09/17", "/%09orders/17", "/orders%0a/17", "/orders%0d%0a/17", "/orders%0b", "/orders%0c/17", "/orders%20", "/%20orders/17", "/orders%a0/17", "/orders%c2%a0/17",
		"/orders%e2%80%8b/17", "/orders%ef%bb%bf/17", "/%ef%bb%bforders/17", "/or%c2%adders/17", "/orders+", "/+orders/17", "/orders/+17",
		"/orders%c0%af17", "/orders%e0%80%af17", "/orders%f0%80%80%af17", "/%c1%afrders/17", "/%c1%8frders/17", "/x/%c0%ae%c0%ae/orders/17", "/x/%c0%ae%c0%ae%c0%aforders/17", "/orders%c1%9c17", "/orders%c0%bb/17", "/orders%c0%80/17",
		"/orders%u002f17", "/%u006frders/17", "/orders%u005c17", "/%u004frders/17", "/%uff4frders/17", "/orders%U002f17",
		"/ORDERS/17", "/Orders", "/oRDERS/17", "/%4frders/17", "/%4FRDERS/17", "/%254frders/17", "/order%73/17", "/order%53/17", "/order%2573/17", "/%6f%72%64%65%72%73/17", "/%25%36%66rders/17", "/%2525%36frders/17",
		"/%ef%bd%8f%ef%bd%92%ef%bd%84%ef%bd%85%ef%bd%92%ef%bd%93/17", "/%ef%bc%afrders/17", "/order%c5%bf/17", "/order%c5%bf%2f17", "/ord%e2%84%afrs/17", "/%e2%93%9erders/17", "/%f0%9d%90%a8rders/17", "/%c2%barders/17", "/orders%ef%bc%8f17", "/orders%ef%bc%bc17", "/x/%ef%bc%8e%ef%bc%8e/orders/17",
		"/x/%e2%80%a5/orders/17", "/orders%ef%bc%9bx/17", "/o%cc%81rders/17", "/%c3%b3rders/17", "/order%cc%b8s/17", "/o%cd%8frders/17",
		"/orders.", "/orders./17", "/orders../17", "/orders.../17", "/orders%2e/17", "/orders.%20/17", "/orders%20./17", "/orders::$DATA", "/orders:$i30:$INDEX_ALLOCATION/17", "/orders.json", "/orders.xml", "/orders.JSON", "/orders.json/", "/orders.json.gz", "/orders/17.json", "/orders.;x", "/orders.json;x", "/orders.html/17",
		"/orders;", "/orders;/17", "/orders;jsessionid=1", "/orders;a/17;b", "/orders%3b", "/orders%3ba/17", "/orders%253ba/17", "/orders%3B%3B/17", "/orders;%2f17", "/orders;%00/17", "/orders;a=..%2f/17", "/orders;/../orders/17", "/orders,x/17", "/orders%23", "/orders%23x/17", "/orders%3f", "/orders%3fx=1", "/orders#/17", "/orders?x", "/orders/17?/../../x", "/orders/17?x=/../..",
		"/orders/17/../17", "/orders/17/..%2f17", "/orders/%2e%2e/orders", "/orders/..;/", "/orders/..;/orders", "/x/../x/../orders", "/x/..%00/orders/17", "/x/..%20/orders/17", "/x/.../orders/17", "/x/..../orders/17", "/x/. ./orders/17", "/x/.%00./orders/17",
		"http://a/orders/17", "http://a//orders/17", "http://a/ORDERS/17", "https://a/orders/17", "http://a:80/orders/17", "HTTP://A/orders/17", "/http://a/orders/17", "/orders/http://a/17",
		"/%", "/orders%", "/orders%2", "/orders%zz/17", "/orders%%32%66", "/orders%25", "/orders%2%35", "/%%6frders/17", "/%%36%66rders/17",
	} {
		if serves(target) != "" {
			meant++
		}
		app.take()
		got := sendRaw(t, b.url, "GET "+target+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		for _, r := range app.take() {
			if by := serves(strings.SplitN(r.RequestURI, "?", 2)[0]); by != "" {
				t.Errorf("%q was forwarded as %q, which a server serves as an order: %s", target, r.RequestURI, by)
			}
		}
		if serves(target) != "" && rawStatus(got) != 403 && rawStatus(got) != 400 {
			t.Errorf("GET %q = %.40q, want 403 or 400", target, got)
		}
		if strings.Contains(target, " ") || !strings.HasPrefix(target, "/") {
			continue
		}
		for name, headers := range map[string]string{
			"X-Forwarded-Uri":   "X-Forwarded-Method: GET\r\nX-Forwarded-Host: a\r\nX-Forwarded-Uri: " + target + "\r\n",
			"X-Original-URI":    "X-Original-Method: GET\r\nX-Forwarded-Host: a\r\nX-Original-URI: " + target + "\r\n",
			"X-Original-URL":    "X-Original-Method: GET\r\nX-Original-URL: http://a" + target + "\r\n",
			"both, that differ": "X-Forwarded-Method: GET\r\nX-Forwarded-Host: a\r\nX-Forwarded-Uri: /health\r\nX-Original-URI: " + target + "\r\nX-Original-URL: http://a" + target + "\r\n",
		} {
			if name == "both, that differ" && serves(target) == "" {
				continue
			}
			got := sendRaw(t, b.url, "GET /_bouncer/auth HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+headers+"\r\n")
			if by := serves(strings.SplitN(target, "?", 2)[0]); by != "" && rawStatus(got) == 200 {
				t.Errorf("forward-auth (%s) permits %q, which a server serves as an order: %s", name, target, by)
			}
		}
	}
	if meant < 100 {
		t.Errorf("%d spellings mean an order to some server, want at least 100", meant)
	}
}

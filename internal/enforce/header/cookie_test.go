package header

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestConsoleSessionIsRemoved checks that no application receives or sets the console's session
// cookie. All other cookies pass unchanged.
func TestConsoleSessionIsRemoved(t *testing.T) {
	secret := strings.Repeat("s-_9", 11)[:43]
	ours, host := "gatehouse=acme."+secret, "__Host-gatehouse=default."+secret
	for line, want := range map[string]string{
		"":                           "",
		"a=1":                        "a=1",
		"a=1;b=2;  c":                "a=1;b=2;  c",
		ours:                         "",
		host:                         "",
		" " + ours + " ":             "",
		"a=1; " + ours:               "a=1",
		ours + "; a=1":               "a=1",
		"a=1;" + ours + ";b=2":       "a=1;b=2",
		"a=1; " + host + "; " + ours: "a=1",
		ours + ";" + ours:            "",
		`gatehouse="acme.` + secret + `"; a="x y"`: `a="x y"`,
		"gatehouse = acme." + secret:               "",
		"gatehouse=dark-theme":                     "gatehouse=dark-theme",
		"gatehouse=acme." + secret[1:]:             "gatehouse=acme." + secret[1:],
		"mygatehouse=acme." + secret:               "mygatehouse=acme." + secret,
		"x=" + ours[10:]:                           "x=" + ours[10:],
	} {
		o := Outgoing{Names: DefaultNames(), Client: http.Header{"Cookie": {line}}}
		if got := strings.Join(o.Map()["Cookie"], "|"); got != want {
			t.Errorf("Cookie %q is forwarded as %q, want %q", line, got, want)
		}
		c := Changes{Drop: []string{"X-A"}}.KeepSession([]string{line, "z=1"})
		if all := strings.TrimPrefix(want+"; z=1", "; "); (want != line) != slices.Equal(c.Set, []Field{{"Cookie", all}}) || len(c.Drop) != 1 {
			t.Errorf("Cookie %q: a gateway sets %v and drops %v, want %q", line, c.Set, c.Drop, all)
		}
	}
	// A bouncer that drops all cookies does not set the rest of them again.
	if c := (Changes{Drop: []string{"Cookie"}}).KeepSession([]string{ours + "; z=1"}); len(c.Set) != 0 || !slices.Equal(c.Drop, []string{"Cookie"}) {
		t.Errorf("if cookies are dropped, a gateway sets %v and drops %v, want only the drop", c.Set, c.Drop)
	}
	o := Outgoing{Names: DefaultNames(), Client: http.Header{"Cookie": {ours, "a=1", host + "; b=2"}}}
	if got := o.Map()["Cookie"]; !slices.Equal(got, []string{"a=1", "b=2"}) {
		t.Errorf("several lines are forwarded as %q, want a=1 and b=2", got)
	}
	answer, set := http.Header{}, []string{"a=1; Path=/", ours + "; Path=/; Domain=example.com", host + "; Secure; Path=/", "gatehouse=; Max-Age=0", "b=gatehouse"}
	CopyAnswer(answer, http.Header{"Set-Cookie": set})
	if got := answer["Set-Cookie"]; !slices.Equal(got, []string{"a=1; Path=/", "gatehouse=; Max-Age=0", "b=gatehouse"}) || len(set) != 5 || set[1][0] != 'g' {
		t.Errorf("the client gets %q, want only cookies of the application", got)
	}
	answer = http.Header{}
	CopyAnswer(answer, http.Header{"Set-Cookie": {ours}})
	if _, there := answer["Set-Cookie"]; there {
		t.Errorf("the client gets %v, want no cookie", answer)
	}
}

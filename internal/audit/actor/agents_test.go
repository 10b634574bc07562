package actor_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// TestRefuse checks which users are refused: the agents 1, 3 and 5 to 7 are stopped, 2 and 4 are active,
// and 8 never existed. The OAuth client cli is agent 3, and web is agent 2.
func TestRefuse(t *testing.T) {
	set := actor.NewAgents([]int64{4, 2, 4, 9, 0, -1}, 7, map[string]int64{"cli": 3, "web": 2, "ann": 0, "gone": 99})
	chain := func(n int, last string) string {
		return `{"id":"ann","act":` + strings.Repeat(`{"sub":"a","act":`, n-1) + `{"sub":"` + last + `"}` + strings.Repeat("}", n-1) + `}`
	}
	for user, want := range map[string]string{
		`{"id":"agent:3"}`: "agent:3", `{"id":"agent:1"}`: "agent:1", `{"id":"agent:6"}`: "agent:6", `{"id":"agent:7"}`: "agent:7",
		`{"id":"agent:2"}`: "", `{"id":"agent:4"}`: "", `{"id":"agent:8"}`: "", `{"id":"agent:987654"}`: "", // active, or unknown
		`{"id":"agent:007"}`: "agent:7", `{"id":"AGENT:3"}`: "agent:3", `{"id":" agent:3 "}`: "agent:3", `{"id":"agent: 3"}`: "agent:3", `{"id":"agent:+3"}`: "agent:3", `{"id":"agent:3\n"}`: "agent:3",
		`{"id":"agent:"}`: "", `{"id":"agent:0"}`: "", `{"id":"agent:-3"}`: "", `{"id":"agent:1_0"}`: "", `{"id":"agent:0x_"}`: "",
		// other spellings of the same number
		`{"id":"agent:3.0"}`: "agent:3", `{"id":"agent:3."}`: "agent:3", `{"id":"agent:+3.00"}`: "agent:3", `{"id":"agent:3e0"}`: "agent:3", `{"id":"agent:30E-1"}`: "agent:3", `{"id":"agent:.3e1"}`: "agent:3", `{"id":"agent:0x3"}`: "agent:3", `{"id":"agent:0b11"}`: "agent:3", `{"id":"agent:0_3"}`: "agent:3", `{"id":"agent:0x1.8p1"}`: "agent:3",
		`{"id":"agent:３"}`: "agent:3", `{"id":"ａｇｅｎｔ：３"}`: "agent:3", `{"id":"Agent:٣"}`: "agent:3", `{"id":"agent:३.０"}`: "agent:3", `{"id":"agent:³"}`: "agent:3", `{"id":"agent:③"}`: "agent:3", `{"id":"agent:𝟛"}`: "agent:3", `{"id":"\u200bagent\u00ad:\u20603"}`: "agent:3", `{"id":"\u00a0agent:\u30003\ufeff"}`: "agent:3", `{"id":"agent:3\ufe0f"}`: "agent:3", `{"id":"agent\u034f:\u115f3"}`: "agent:3",
		`{"id":"agent:２"}`: "", `{"id":"agent:2.0"}`: "", `{"id":"agent:3.5"}`: "", `{"id":"agent:-3.0"}`: "", `{"id":"agent:3three"}`: "", `{"id":"agent:three"}`: "", `{"id":"agent:inf"}`: "", `{"id":"agent:1e999"}`: "", `{"id":"agent:550e8400-e29b"}`: "", `{"id":"аgent:3"}`: "", `{"id":"ágent:3"}`: "",
		`{"id":"agent:18446744073709551619"}`: "", `{"id":"agent:9223372036854775808"}`: "", // larger than an id; the first is 3 modulo 2^64
		`{"id":"agent3"}`: "", `{"id":"3"}`: "", `{"id":3}`: "", `{"id":null}`: "", `{"id":["agent:3"]}`: "", `{}`: "", `[]`: "", `null`: "", `"agent:3"`: "",
		`{"id":"ann"}`: "", `{"id":"ann","act":null}`: "", `{"id":"ann","act":"agent:3"}`: "", `{"id":"ann","act":{"sub":3}}`: "", `{"id":"ann","sub":"agent:3"}`: "",
		`{"id":"ann","act":{"sub":"agent:3"}}`: "agent:3", `{"id":"ann","act":{"sub":"agent:2"}}`: "", `{"id":"ann","act":{"sub":"agent:003"}}`: "agent:3",
		`{"id":"ann","act":{"sub":"agent:2","act":{"sub":"agent:5"}}}`: "agent:5", `{"id":"ann","act":{"sub":"x","act":"agent:5"}}`: "",
		`{"id":"agent:1","act":{"sub":"agent:3"}}`: "agent:1", // the subject is named first
		`{"id":"cli"}`: "", `{"id":"cli","attributes":{"client_id":"cli"}}`: "agent:3", `{"id":"bot","attributes":{"sub":"agent:3"}}`: "agent:3", `{"id":"bot","attributes":{"sub":"agent:2"}}`: "", `{"id":"bot","attributes":{"sub":"cli"}}`: "", `{"id":"ann","act":{"sub":"cli"}}`: "agent:3", `{"id":"ann","act":{"sub":"web","act":{"sub":"cli"}}}`: "agent:3",
		`{"id":"ann","attributes":{"client_id":"cli"}}`: "agent:3", `{"id":"ann","attributes":{"azp":"cli"}}`: "agent:3", `{"id":"ann","attributes":{"client_id":"web","azp":"cli"}}`: "agent:3",
		`{"id":"ann","attributes":{"client_id":"agent:3"}}`: "agent:3",
		`{"id":"web"}`: "", `{"id":"ann","attributes":{"client_id":"web"}}`: "", `{"id":"CLI"}`: "", `{"id":" cli"}`: "", `{"id":"ann","client_id":"cli"}`: "", `{"id":"gone"}`: "", // the id of a client is compared exactly
		// a list names no single client, and each of its elements counts
		`{"id":"ann","attributes":{"client_id":["cli"],"aud":"cli"}}`: "agent:3", `{"id":"ann","attributes":{"client_id":["web","portal","cli"]}}`: "agent:3", `{"id":"ann","attributes":{"client_id":"web","azp":["cli"]}}`: "agent:3", `{"id":"bot","attributes":{"sub":["ann","agent:3.0"]}}`: "agent:3",
		`{"id":"ann","attributes":{"client_id":["web"],"aud":"cli"}}`: "", `{"id":"ann","attributes":{"client_id":[]}}`: "", `{"id":"ann","attributes":{"client_id":[["cli"],{"cli":"cli"}],"azp":{"cli":"cli"}}}`: "", `{"id":"bot","attributes":{"sub":["cli"]}}`: "",
		`{"id":"ann","act":{"sub":"ａgent:3"}}`: "agent:3", `{"id":"ann","act":{"sub":["web","agent:3"]}}`: "agent:3", `{"id":"ann","attributes":"cli"}`: "",
		chain(actor.Max, "agent:3"): "agent:3", chain(50, "agent:3"): "agent:3", chain(actor.Max, "agent:2"): "",
	} {
		if want != "" {
			want = "The AI agent " + want + " is not active"
		}
		if got := set.Refuse(valuetest.Decode(t, user)); got != want {
			t.Errorf("Refuse(%s) = %q, want %q", user, got, want)
		}
	}
	if got := set.Refuse(value.Value{}); got != "" {
		t.Errorf("Refuse of no user = %q, want nothing", got)
	}
	for _, claims := range []string{`{"client_id":"agent:3"}`, `{"azp":["agent:3.0"]}`} { // no agent has an OAuth client
		if got := actor.NewAgents(nil, 3, nil).Refuse(valuetest.Decode(t, `{"id":"ann","attributes":`+claims+`}`)); got != "The AI agent agent:3 is not active" {
			t.Errorf("Refuse of the claims %s = %q, want agent:3 refused", claims, got)
		}
	}
	if got := (actor.Agents{}).Refuse(valuetest.Decode(t, `{"id":"agent:3"}`)); got != "" {
		t.Errorf("Refuse of an empty set = %q, want nothing", got)
	}
}

// TestAgentsValue checks the ranges of stopped agents, their form in a bundle, and that only that form
// is read.
func TestAgentsValue(t *testing.T) {
	for name, c := range map[string]struct {
		active  []int64
		last    int64
		clients map[string]int64
		want    string
	}{
		"no agents": {nil, 0, nil, `[]`}, "all are active": {[]int64{1, 2, 3}, 3, map[string]int64{}, `[]`}, "none is active": {nil, 3, nil, `[[1,3]]`},
		"the first": {[]int64{2, 3}, 3, nil, `[[1,1]]`}, "the last": {[]int64{1, 2}, 3, nil, `[[3,3]]`}, "between": {[]int64{5, 1}, 5, nil, `[[2,4]]`},
		"several":                  {[]int64{2, 4, 5, 9}, 11, nil, `[[1,1],[3,3],[6,8],[10,11]]`},
		"clients":                  {[]int64{1}, 2, map[string]int64{"z": 1, "a\"b": 2}, `[[2,2]],"clients":{"a\"b":2,"z":1}`},
		"clients of active agents": {[]int64{1}, 1, map[string]int64{"z": 1}, `[],"clients":{"z":1}`},
	} {
		c.want = `{"stopped":` + c.want + `}`
		set := actor.NewAgents(c.active, c.last, c.clients)
		text := string(set.Value().AppendJSON(nil))
		if text != c.want || set.IsEmpty() != (c.want == `{"stopped":[]}`) {
			t.Errorf("%s: the value is %s, empty: %v, want %s", name, text, set.IsEmpty(), c.want)
		}
		read, err := actor.ReadAgents(valuetest.Decode(t, text))
		if err != nil || string(read.Value().AppendJSON(nil)) != text {
			t.Errorf("%s: ReadAgents = %s, %v, want %s", name, read.Value().AppendJSON(nil), err, text)
		}
		active := map[int64]bool{}
		for _, id := range c.active {
			active[id] = true
		}
		for id := int64(-1); id < 14; id++ {
			if want := id >= 1 && id <= c.last && !active[id]; read.Stops(id) != want {
				t.Errorf("%s: Stops(%d) = %v, want %v", name, id, read.Stops(id), want)
			}
		}
	}
	for _, text := range []string{`null`, `[]`, `"1"`, `{}`, `{"clients":{"a":1}}`} {
		if _, err := actor.ReadAgents(valuetest.Decode(t, text)); err == nil {
			t.Errorf("ReadAgents(%s): no error", text)
		}
	}
	for _, list := range []string{`null`, `{}`, `"1"`, `1`, `[1]`, `[[1]]`, `[[1,2,3]]`, `[["1","2"]]`, `[[2,1]]`, `[[0,1]]`, `[[-1,1]]`, `[[1,2],[2,3]]`, `[[3,4],[1,2]]`, `[[1,1.5]]`, `[{"0":1,"1":2}]`} {
		if set, err := actor.ReadAgents(valuetest.Decode(t, `{"stopped":`+list+`}`)); err == nil || !set.IsEmpty() {
			t.Errorf("ReadAgents with the list %s = %v, %v, want an error", list, set, err)
		}
	}
	for _, clients := range []string{`null`, `[]`, `"a"`, `{"a":"1"}`, `{"a":0}`, `{"a":1,"b":-1}`, `{"a":1.5}`} {
		if set, err := actor.ReadAgents(valuetest.Decode(t, `{"stopped":[[1,1]],"clients":`+clients+`}`)); err == nil || !set.IsEmpty() {
			t.Errorf("ReadAgents with the clients %s = %v, %v, want an error", clients, set, err)
		}
	}
}

// TestActing checks which agent asks: the actor counts before the user, and the user before the OAuth
// client of its token.
func TestActing(t *testing.T) {
	agents := actor.NewAgents(nil, 9, map[string]int64{"cli": 3, "web": 2})
	for user, want := range map[string]string{
		`{"id":"ann"}`: "", `{}`: "", `{"id":"ann","attributes":{"client_id":"portal","azp":"portal"}}`: "",
		`{"id":"ann","act":{"sub":"portal"}}`: "portal", `{"id":"ann","act":{"sub":"cli"}}`: "agent:3", `{"id":"ann","act":{"sub":"agent:7"},"attributes":{"client_id":"cli"}}`: "agent:7",
		`{"id":"agent:8","attributes":{"client_id":"cli"}}`: "agent:8", `{"id":"cli"}`: "", `{"id":"cli","attributes":{"client_id":"web"}}`: "agent:2", `{"id":"bot","attributes":{"sub":"agent:8","azp":"cli"}}`: "agent:8",
		`{"id":"ann","attributes":{"client_id":"web","azp":"cli"}}`: "agent:2", `{"id":"ann","attributes":{"azp":"cli"}}`: "agent:3", `{"id":"ann","attributes":{"client_id":7,"azp":"cli"}}`: "agent:3",
		`{"id":"ann","attributes":{"client_id":["cli"]}}`: "", `{"id":"ann","attributes":{"client_id":["cli"],"azp":"web"}}`: "agent:2", // a list names no single client
	} {
		if got := agents.Acting(valuetest.Decode(t, user)); got != want {
			t.Errorf("Acting(%s) = %q, want %q", user, got, want)
		}
	}
}

// TestRefuseAllocates checks that a request without an agent costs no memory, however many agents
// are stopped.
func TestRefuseAllocates(t *testing.T) {
	active := make([]int64, 5000)
	for i := range active {
		active[i] = int64(2*i + 2)
	}
	set := actor.NewAgents(active, 10_000, map[string]int64{"cli": 1})
	for _, user := range []string{`{"id":"ann","roles":["a"],"attributes":{"client_id":"portal"}}`, `{"id":"ann","act":{"sub":"client"}}`, `{"id":"agent:2"}`, `{"id":"agnès.müller"}`, `{"id":"ann","act":{"sub":"agent:portal"}}`, `{"id":"ann","attributes":{"client_id":["portal"]}}`, `{}`} {
		v := valuetest.Decode(t, user)
		if n := testing.AllocsPerRun(100, func() {
			if set.Refuse(v) != "" {
				t.Errorf("Refuse(%s) refuses", user)
			}
			_ = set.Acting(v)
		}); n != 0 {
			t.Errorf("Refuse and Acting of %s allocate %v times", user, n)
		}
	}
}

func BenchmarkRefuse(b *testing.B) {
	set := actor.NewAgents([]int64{2, 4, 6}, 10_000, map[string]int64{"cli": 4})
	for name, text := range map[string]string{"person": `{"id":"ann","email":"a@b.c","roles":["a"],"groups":[],"attributes":{}}`, "agent": `{"id":"ann","act":{"sub":"agent:4"}}`} {
		v := valuetest.Decode(b, text)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				set.Refuse(v)
			}
		})
	}
}

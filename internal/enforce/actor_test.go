package enforce

import (
	"net/http"
	"testing"
)

// delegated permits agent 7 to act for ann, and an agent to read /own by itself. It refuses all
// other actors.
const delegated = `package delegated

allow if {
	input.user.id == "ann"
	input.user.act.sub == "agent:7"
}

allow if {
	input.resource.path == "/own"
	not input.user.act
	input.user.type == "agent"
}
`

// chainOf returns a claim act of n actors, the current one first.
func chainOf(n int) map[string]any {
	var act map[string]any
	for ; n > 0; n-- {
		next := map[string]any{"sub": "agent:7"}
		if act != nil {
			next["act"] = act
		}
		act = next
	}
	return act
}

// TestActor checks that a control sees who acts for the user, only by the claim act (RFC 8693) of a
// verified token. A claim that names no actor is refused, not ignored.
func TestActor(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", config: map[string]any{"identity": is.config()}, controls: []control{{id: 1, source: delegated}}}, func(c *Config) { c.TrustedProxies = []string{"127.0.0.0/8"} })
	for name, tc := range map[string]struct {
		path string
		act  any
		sub  string
		want int
	}{
		"the agent for ann":         {"/x", map[string]any{"sub": "agent:7"}, "ann", 200},
		"with its client":           {"/x", map[string]any{"sub": "agent:7", "client_id": "bot"}, "ann", 200},
		"after another":             {"/x", map[string]any{"sub": "agent:7", "act": map[string]any{"sub": "agent:8"}}, "ann", 200},
		"before another":            {"/x", map[string]any{"sub": "agent:8", "act": map[string]any{"sub": "agent:7"}}, "ann", 403},
		"for somebody else":         {"/x", map[string]any{"sub": "agent:7"}, "bob", 403},
		"ann herself":               {"/x", nil, "ann", 403},
		"another agent":             {"/x", map[string]any{"sub": "agent:8"}, "ann", 403},
		"the longest chain":         {"/x", chainOf(8), "ann", 200},
		"a chain that is too long":  {"/x", chainOf(9), "ann", 401},
		"no actor":                  {"/x", map[string]any{}, "ann", 401},
		"an empty actor":            {"/x", map[string]any{"sub": ""}, "ann", 401},
		"a number":                  {"/x", map[string]any{"sub": 7}, "ann", 401},
		"a text":                    {"/x", "agent:7", "ann", 401},
		"a list":                    {"/x", []any{map[string]any{"sub": "agent:7"}}, "ann", 401},
		"a nested text":             {"/x", map[string]any{"sub": "agent:7", "act": "x"}, "ann", 401},
		"an actor with line breaks": {"/x", map[string]any{"sub": "agent:7\r\nX-Evil: 1"}, "ann", 401},
		"an agent for nobody":       {"/own", nil, "agent:7", 200},
		"a person":                  {"/own", nil, "ann", 403},
	} {
		change := map[string]any{"sub": tc.sub, "act": tc.act}
		got := fetch(t, "GET", b.url+tc.path, func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+is.token(t, "rsa", change))
			r.Header.Set("X-Auth-Request-Act", `{"sub":"agent:7"}`)
		})
		wantAnswer(t, name, got, tc.want)
	}
	// No header names an actor, not even one of a trusted proxy.
	for _, edit := range []func(h http.Header){
		func(h http.Header) { h.Set("X-Auth-Request-User", "ann") },
		func(h http.Header) {
			h.Set("X-Auth-Request-User", "ann")
			h.Set("X-Auth-Request-Act", `{"sub":"agent:7"}`)
		},
		func(h http.Header) {
			h.Set("X-Auth-Request-User", "ann")
			h.Set("Act", "agent:7")
			h.Set("X-Actor", "agent:7")
		},
	} {
		wantAnswer(t, "an actor in a header", fetch(t, "GET", b.url+"/x", func(r *http.Request) { edit(r.Header) }), 403)
	}
}

package gateways_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/template"
)

// wired is an exchange of a template, sent through a bouncer.
type wired struct {
	name, host string
	x          template.Exchange
	id         string // its X-Request-Id begins so
	user       string // instead of the exchange's, with requests of its own before it
	token      string // proves the caller's attributes; empty: headers of a trusted proxy
	before     []int  // tokens that requests before it cost
}

// roadshow is the example traffic of all templates, and the bouncer for it.
type roadshow struct {
	*testing.T
	s         *apptest.Server
	is        *apptest.Issuer
	cases     []wired
	asked     []wired // what no bouncer makes of a request: put to the decision API
	resources []int64
	ids       map[string]int64        // resource by host
	plain     *apptest.BouncerProcess // believes a proxy's headers
	tokens    *apptest.BouncerProcess // verifies tokens
}

// TestTemplateTraffic sends the example traffic of every template through a bouncer: in shadow mode
// the answers are the application's and the log has the effects, in enforce mode they apply.
func TestTemplateTraffic(t *testing.T) {
	t.Parallel()
	r := &roadshow{T: t, s: apptest.StartServer(t, dbtest.SQLite), is: apptest.NewIssuer(t), ids: map[string]int64{}}
	app := apptest.NewBackend(t, func(w http.ResponseWriter, req *http.Request) { r.answer(w, req) })
	catalogue, err := template.Load()
	errtest.Must(t, err)
	total := 0
	for _, id := range catalogue.IDs() {
		tpl, _ := catalogue.Get(id)
		total += len(tpl.Traffic().Exchanges)
		r.register(&tpl)
	}
	if len(r.cases)+len(r.asked) != total || len(r.asked) > 1 || total < 60 {
		t.Fatalf("the test has %d exchanges for a bouncer and %d for the decision API, want %d in all", len(r.cases), len(r.asked), total)
	}
	r.plain = r.s.Bouncer(t, r.s.Admin, body{"name": "plain", "environment": "sandbox", "resource_ids": r.resources}, app.Addr)
	r.tokens = r.s.Bouncer(t, r.s.Admin, body{"name": "tokens", "environment": "sandbox", "resource_ids": r.resources, "configuration": body{"identity": r.is.Identity()}}, app.Addr)
	r.watch()
	apptest.Enforce(t, r.s.Admin, "sandbox")
	first := 0
	for r.cases[first].x.Want.Effect != "DENY" {
		first++
	}
	for _, b := range []*apptest.BouncerProcess{r.plain, r.tokens} {
		apptest.Eventually(t, 30*time.Second, func() error {
			if status, got := r.cases[first].send(t, b.URL, strconv.Itoa(first), "wait"); status == 403 || strings.Contains(got, "-32001") {
				return nil
			}
			return errors.New("the bouncer does not enforce yet")
		})
	}
	for n := range r.cases {
		status, got := r.play(n, "enforce")
		r.cases[n].judge(t, status, got)
	}
	r.decide()
}

// register creates a template's resource and control, and adds its exchanges.
func (r *roadshow) register(tpl *template.Template) {
	r.Helper()
	host := strings.ReplaceAll(strings.ToLower(tpl.ID), "_", "-") + ".example"
	record := body{"original_host": host, "audit_level": "detailed"}
	maps.Copy(record, tpl.Traffic().Resource)
	id := r.s.Admin.Do(r.T, "POST", "/resources", record).Want(201).ID()
	apptest.Activate(r.T, r.s.Admin, tpl.ID, "sandbox", tpl.Source(), body{"resource_id": id})
	r.resources, r.ids[host] = append(r.resources, id), id
	for _, x := range tpl.Traffic().Exchanges {
		c := wired{name: tpl.ID + ": " + x.Name, host: host, x: x, id: fmt.Sprintf("case-%d", len(r.cases))}
		if context := object(x.Input["context"]); len(context) > 2 { // beside the address and the request's id
			r.asked = append(r.asked, c)
			continue
		}
		if c.x.Answer == nil {
			c.x.Answer = &template.Message{Status: 200, Headers: map[string]string{"Content-Type": "application/json"}, Body: json.RawMessage(`{"ok":true}`)}
		}
		c.addToken(r.T, r.is)
		c.precede()
		r.cases = append(r.cases, c)
	}
}

// addToken gives a caller with attributes a token with them.
func (c *wired) addToken(t *testing.T, is *apptest.Issuer) {
	user := object(c.x.Input["user"])
	attributes := object(user["attributes"])
	if len(attributes) == 0 {
		return
	}
	claims := maps.Clone(attributes)
	claims["roles"] = user["roles"]
	c.token = is.With(t, user["id"].(string), claims)
}

// precede sends the requests before this one that use what it says, and a prompt as large as it
// says. The examples assume 40 tokens for a short prompt, the bouncer estimates about ten.
func (c *wired) precede() {
	used := object(object(c.x.Input["usage"]))
	requests, _ := object(used["requests"])["minute"].(float64)
	tokens, _ := object(used["tokens"])["minute"].(float64)
	for range int(requests) {
		c.before = append(c.before, int(tokens/requests)+30/int(requests))
	}
	if large, _ := object(c.x.Input["llm"])["estimated_tokens"].(float64); large >= 5000 {
		text := strings.Replace(string(c.x.Request.Body), "...", strings.Repeat("word ", int(large)*4/5), 1)
		sent := *c.x.Request
		sent.Body = json.RawMessage(text)
		c.x.Request = &sent
	}
}

// answer is the application: it sends the exchange's answer, or one with so many tokens.
func (r *roadshow) answer(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	if cost, is := strings.CutPrefix(req.Header.Get("X-Case"), "cost-"); is {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[],"usage":{"prompt_tokens":%s,"completion_tokens":0}}`, cost)
		return
	}
	n, err := strconv.Atoi(req.Header.Get("X-Case"))
	if err != nil || n >= len(r.cases) {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	a := r.cases[n].x.Answer
	for k, v := range a.Headers {
		w.Header().Set(k, v)
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(content(a.Body))
}

// play sends a case and what comes before it.
func (r *roadshow) play(n int, run string) (int, string) {
	r.Helper()
	c := &r.cases[n]
	url := r.plain.URL
	if c.token != "" {
		url = r.tokens.URL
	}
	if len(c.before) > 0 {
		c.user = c.id + run // what others used is not this one's
		// The windows are the clock's: all of it within one minute.
		apptest.Eventually(r.T, 15*time.Second, func() error {
			if left := 60 - time.Now().Second(); left < 10 {
				return fmt.Errorf("the minute ends in %d s", left)
			}
			return nil
		})
	}
	for i, cost := range c.before {
		if status, got := c.send(r.T, url, fmt.Sprint("cost-", cost), fmt.Sprint(run, "-before-", i)); status != 200 {
			r.Errorf("%s: request %d before it: %d %s", c.name, i, status, got)
		}
	}
	return c.send(r.T, url, strconv.Itoa(n), run)
}

// watch plays all cases in shadow mode.
func (r *roadshow) watch() {
	r.Helper()
	for n := range r.cases {
		c := &r.cases[n]
		status, got := r.play(n, "shadow")
		if want := string(content(c.x.Answer.Body)); status != c.x.Answer.Status || got != want {
			r.Errorf("%s in shadow: %d %q, want %d %q", c.name, status, got, c.x.Answer.Status, want)
		}
	}
	effects := map[string]string{"ALLOW": "ALLOW", "DENY": "SHADOW_WOULD_DENY", "MASK": "SHADOW_WOULD_MASK"}
	apptest.Eventually(r.T, 20*time.Second, func() error {
		log := apptest.ByRequest(apptest.DecisionLog(r.T, r.s.Admin, "sandbox"))
		for _, c := range r.cases {
			e := log[c.id+"-shadow"]
			if len(e) != 1 {
				return fmt.Errorf("the decision log has %s %d times, want once", c.name, len(e))
			}
			if e[0].Effect != effects[c.x.Want.Effect] {
				r.Errorf("%s is in the log as %s (%s), want %s", c.name, e[0].Effect, e[0].Reason, c.x.Want.Effect)
			}
		}
		return nil
	})
}

// decide sends to the decision API what only its callers can say.
func (r *roadshow) decide() {
	r.Helper()
	for _, c := range r.asked {
		resource := object(c.x.Input["resource"])
		resource["id"] = r.ids[c.host]
		got := r.s.Admin.Do(r.T, "POST", "/decisions/evaluate?environment=sandbox",
			body{"user": c.x.Input["user"], "action": c.x.Input["action"], "resource": resource, "context": c.x.Input["context"]}).Want(200)
		if want := map[string]string{"ALLOW": "PERMIT", "MASK": "PERMIT", "DENY": "DENY"}[c.x.Want.Effect]; got.Get("decision") != want || !strings.Contains(fmt.Sprint(got.Get("reason")), c.x.Want.Reason) {
			r.Errorf("%s: %s", c.name, got.Body)
		}
	}
}

// content returns a message's body: a JSON string is a text.
func content(raw json.RawMessage) []byte {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []byte(text)
	}
	return raw
}

func (c *wired) send(t *testing.T, url, which, run string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(c.x.Request.Method, url+c.x.Request.Path, strings.NewReader(string(content(c.x.Request.Body))))
	errtest.Must(t, err)
	r.Host = c.host
	for k, v := range c.x.Request.Headers {
		if c.token == "" || !strings.HasPrefix(k, "X-Auth-Request-") {
			r.Header.Set(k, v)
		}
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.user != "" {
		r.Header.Set("X-Auth-Request-User", c.user)
	}
	r.Header.Set("X-Case", which)
	r.Header.Set("X-Request-Id", c.id+"-"+run)
	r.Header.Set("Accept-Encoding", "identity")
	res, err := http.DefaultTransport.RoundTrip(r)
	errtest.Must(t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%s: %v", c.name, err)
	}
	return res.StatusCode, string(got)
}

func (c *wired) judge(t *testing.T, status int, got string) {
	t.Helper()
	answer := string(content(c.x.Answer.Body))
	switch c.x.Want.Effect {
	case "DENY":
		if refused := status == 403 || status == 429 || status == 200 && strings.Contains(got, `"code":-32001`); !refused || got == answer {
			t.Errorf("%s = %d %s, want the refusal", c.name, status, got)
		}
		var said struct{ Message string }
		var rpc struct{ Error struct{ Message string } }
		_ = json.Unmarshal([]byte(got), &said)
		_ = json.Unmarshal([]byte(got), &rpc)
		if !strings.Contains(said.Message+rpc.Error.Message, c.x.Want.Reason) {
			t.Errorf("%s = %s, want the reason %q", c.name, got, c.x.Want.Reason)
		}
	case "ALLOW":
		if status != c.x.Answer.Status || got != answer {
			t.Errorf("%s = %d %q, want %d %q", c.name, status, got, c.x.Answer.Status, answer)
		}
	case "MASK":
		if status != c.x.Answer.Status {
			t.Errorf("%s = %d %s, want %d", c.name, status, got, c.x.Answer.Status)
		}
		for path, clear := range map[string]string{"pii:emails": "@example.com", "pii:card_numbers": "4111 1111 1111", "pii:ssn": "078-05-1120"} {
			if c.x.Want.Mask[path] != "" && strings.Contains(got, clear) {
				t.Errorf("%s shows in clear: %s", c.name, got)
			}
		}
	}
}

package format

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// hostile is text that tenants, or their callers, could put into a name.
const hostile = "<!channel> <@U0123ABCD> <https://evil.example|click> *b* _i_ [x](https://evil.example) <at>all</at> <b onclick=x> [code]<img src=x>[/CODE] {{DATE(2020-01-01)}} ${x} \"q\" \\ & \u202e \x00 \u2028"

// shown is a message with all members.
var shown = Message{
	ID: "evt_1", Alert: "bouncer_offline", Severity: Error, Status: Firing, Title: "The bouncer edge is offline", Text: "Its last report came at noon.\nNobody knows why.",
	Facts: []Fact{{"bouncer", "edge"}}, Tenant: "default", Environment: "production", Fault: "bouncer_disconnected:4", Link: "https://gatehouse.example.com/bouncers/4", At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
}

// messages returns messages of every form.
func messages() map[string]Message {
	out := map[string]Message{"plain": shown}
	m := shown
	m.Text, m.Facts, m.Link, m.Environment = "", nil, "", ""
	out["bare"] = m
	m = shown
	m.Title, m.Text, m.Link = hostile, hostile+"\n\n"+hostile, "https://gatehouse.example.com/x?a=<b>|c&d"
	m.Facts = []Fact{{hostile, hostile}, {"", ""}, {"empty", ""}}
	out["hostile"] = m.Clean()
	for name, unit := range map[string]string{"long": "x", "long and wide": "\U0001F525", "long and quoted": `"`} {
		m = shown
		m.Title, m.Text = strings.Repeat(unit, 5000), strings.Repeat(unit, 50_000)
		m.Facts = nil
		for i := range 60 {
			m.Facts = append(m.Facts, Fact{fmt.Sprint(i, strings.Repeat(unit, 900)), strings.Repeat(unit, 9000)})
		}
		out[name] = m.Clean()
	}
	return out
}

// channels returns every way to use each type, with the schema of the requests.
func channels() map[string]struct {
	kind, schema string
	Channel
} {
	type way = struct {
		kind, schema string
		Channel
	}
	basic := map[string]string{Username: "robot", Password: "passw0rd"}
	return map[string]way{
		"slack by webhook": {Slack, "slack", Channel{Endpoint: "https://hooks.slack.com", Credential: map[string]string{WebhookURL: "https://hooks.slack.com/services/T/B/x"}}},
		"slack by bot":     {Slack, "slack", Channel{Endpoint: "https://slack.com/api", Credential: map[string]string{BotToken: "xoxb-1"}, Settings: map[string]any{"channel": "C1"}}},
		"teams by webhook": {Teams, "teams", Channel{Endpoint: "https://x.logic.azure.com", Credential: map[string]string{WebhookURL: "https://x.logic.azure.com/workflows/1?sig=s"}}},
		"teams by bot":     {Teams, "teams-bot", Channel{Endpoint: "https://smba.trafficmanager.net/teams", Token: "t0ken", Credential: map[string]string{ClientID: "i", ClientSecret: "s3cret"}, Settings: map[string]any{"channel": "19:a@thread.tacv2", "token_url": "https://login.example.com"}}},
		"pagerduty":        {PagerDuty, "pagerduty", Channel{Endpoint: "https://events.pagerduty.com", Credential: map[string]string{RoutingKey: "R0UTING"}}},
		"servicenow":       {ServiceNow, "servicenow", Channel{Endpoint: "https://x.service-now.com", Credential: basic}},
		"jira":             {Jira, "jira", Channel{Endpoint: "https://x.atlassian.net", Credential: basic, Settings: map[string]any{"project": "OPS"}}},
	}
}

// schema reads the schema of the requests to a receiver.
func schema(t testing.TB, name string) *jsonschema.Resolved {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".schema.json")
	errtest.Must(t, err)
	var s jsonschema.Schema
	errtest.Must(t, json.Unmarshal(text, &s))
	r, err := s.Resolve(nil)
	errtest.Must(t, err)
	return r
}

// vendor replaces the receivers: it answers like them, and keeps tickets.
type vendor struct {
	t       testing.TB
	schema  *jsonschema.Resolved
	calls   []outbound.Request
	tickets map[string]string // the open tickets, by the key that searches use
	gone    map[string]bool   // the removed tickets
	next    int
}

func (v *vendor) call(r outbound.Request) (outbound.Response, error) {
	v.calls = append(v.calls, r)
	if len(r.Body) > 0 && v.schema != nil {
		var body any
		if err := json.Unmarshal(r.Body, &body); err != nil {
			v.t.Fatal(err)
		}
		if err := v.schema.Validate(body); err != nil {
			v.t.Errorf("the body of %s %s does not fit its schema: %v\n%s", r.Method, r.URL, err, r.Body)
		}
	}
	if v.tickets == nil {
		v.tickets, v.gone = map[string]string{}, map[string]bool{}
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		v.t.Fatal(err)
	}
	reply := func(status int, body string) (outbound.Response, error) {
		return outbound.Response{Status: status, Body: []byte(body)}, nil
	}
	part := func(after, before string) string {
		_, rest, _ := strings.Cut(r.URL, after)
		s, _, _ := strings.Cut(rest, before)
		return s
	}
	switch {
	case u.Host == "hooks.slack.com":
		return reply(200, "ok")
	case u.Host == "slack.com":
		return reply(200, `{"ok":true,"channel":"C1","ts":"1.2"}`)
	case u.Host == "x.logic.azure.com":
		return reply(202, "")
	case u.Host == "smba.trafficmanager.net":
		return reply(201, `{"id":"19:a@thread.tacv2;messageid=1","activityId":"1"}`)
	case u.Host == "events.pagerduty.com":
		return reply(202, `{"status":"success","message":"Event processed","dedup_key":"x"}`)
	case u.Host == "x.service-now.com" && r.Method == "GET":
		_, key, _ := strings.Cut(u.Query().Get("sysparm_query"), "correlation_id=")
		if id := v.tickets[key]; id != "" {
			return reply(200, `{"result":[{"sys_id":"`+id+`"}]}`)
		}
		return reply(200, `{"result":[]}`)
	case u.Host == "x.service-now.com" && r.Method == "POST":
		var in map[string]string
		_ = json.Unmarshal(r.Body, &in)
		v.next++
		v.tickets[in["correlation_id"]] = fmt.Sprint("sys", v.next)
		return reply(201, fmt.Sprintf(`{"result":{"sys_id":"sys%d","number":"INC001"}}`, v.next))
	case u.Host == "x.service-now.com":
		id := part("/incident/", "/")
		if v.gone[id] {
			return reply(404, `{"error":{"message":"No Record found","detail":"Record doesn't exist"},"status":"failure"}`)
		}
		if strings.Contains(string(r.Body), `"state":"6"`) {
			v.close(id)
		}
		return reply(200, `{"result":{"sys_id":"`+id+`"}}`)
	case strings.HasSuffix(u.Path, "/search/jql"):
		for key, id := range v.tickets {
			if strings.Contains(string(r.Body), key) {
				return reply(200, `{"issues":[{"id":"1","key":"`+id+`"}],"isLast":true}`)
			}
		}
		return reply(200, `{"issues":[],"isLast":true}`)
	case strings.HasSuffix(u.Path, "/issue"):
		var in struct {
			Fields struct{ Labels []string }
		}
		_ = json.Unmarshal(r.Body, &in)
		v.next++
		v.tickets[in.Fields.Labels[1]] = fmt.Sprint("OPS-", v.next)
		return reply(201, fmt.Sprintf(`{"id":"10000","key":"OPS-%d","self":"https://x.atlassian.net/rest/api/3/issue/10000"}`, v.next))
	}
	id := part("/issue/", "/")
	switch {
	case v.gone[id]:
		return reply(404, `{"errorMessages":["Issue does not exist or you do not have permission to see it."],"errors":{}}`)
	case r.Method == "GET":
		return reply(200, `{"transitions":[{"id":"11","name":"Start","to":{"statusCategory":{"key":"indeterminate"}}},{"id":"31","name":"Done","to":{"statusCategory":{"key":"done"}}}]}`)
	case strings.HasSuffix(u.Path, "/comment"):
		return reply(201, `{"id":"1"}`)
	case strings.HasSuffix(u.Path, "/transitions"):
		v.close(id)
		return reply(204, "")
	}
	v.t.Fatalf("the call %s %s is unknown", r.Method, r.URL)
	return outbound.Response{}, nil
}

func (v *vendor) close(id string) {
	for key, other := range v.tickets {
		if other == id {
			delete(v.tickets, key)
		}
	}
}

// TestFormats checks that requests have the form and the limits that the receiver documents, for
// any message.
func TestFormats(t *testing.T) {
	for name, c := range channels() {
		for shape, m := range messages() {
			t.Run(name+"/"+shape, func(t *testing.T) {
				kind, _ := Find(c.kind)
				if wrong := kind.Check(c.Channel); len(wrong) > 0 {
					t.Fatalf("Check = %v, want no offence", wrong)
				}
				v := &vendor{t: t, schema: schema(t, c.schema)}
				ticket := ""
				for _, status := range []string{Firing, Firing, Resolved} {
					m.Status = status
					c.Ticket = ticket
					out := kind.Send(v.call, c.Channel, m)
					if out.Error != "" {
						t.Fatalf("Send of a %s message = %+v, want no error", status, out)
					}
					ticket = out.Ticket
				}
				for _, r := range v.calls {
					if strings.Contains(string(r.Body), "\u202e") || strings.Contains(string(r.Body), `\u0000`) {
						t.Errorf("the body is %s, want no control characters", r.Body)
					}
					if c.kind == Teams && len(r.Body) > 28<<10 {
						t.Errorf("the body has %d bytes, want at most 28 KiB", len(r.Body))
					}
					if c.kind == ServiceNow && strings.Contains(strings.ToLower(string(r.Body)), "code]") {
						t.Errorf("the body is %s, want no marker of HTML", r.Body)
					}
				}
			})
		}
	}
}

// TestOneTicketAFault checks that the first message opens a ticket, later ones are comments, and
// the end resolves it. A forgotten ticket is found, a deleted one is replaced, and other faults and
// installations have their own.
func TestOneTicketAFault(t *testing.T) {
	for _, name := range []string{"servicenow", "jira"} {
		t.Run(name, func(t *testing.T) {
			c := channels()[name]
			kind, _ := Find(c.kind)
			v := &vendor{t: t}
			send := func(ticket string, m Message) Outcome {
				t.Helper()
				c.Ticket = ticket
				out := kind.Send(v.call, c.Channel, m)
				if out.Error != "" {
					t.Fatalf("Send = %+v, want no error", out)
				}
				return out
			}
			first := send("", shown).Ticket
			if first == "" || len(v.tickets) != 1 {
				t.Fatalf("the first message: ticket %q, %d tickets, want one", first, len(v.tickets))
			}
			if again := send(first, shown).Ticket; again != first || v.next != 1 {
				t.Errorf("the second message: ticket %q, %d tickets, want %q alone", again, v.next, first)
			}
			if again := send("", shown).Ticket; again != first || v.next != 1 {
				t.Errorf("a forgotten ticket: ticket %q, %d tickets, want %q alone", again, v.next, first)
			}
			other := shown
			other.Fault = "another"
			if got := send("", other).Ticket; got == first {
				t.Errorf("another fault: ticket %q, want one of its own", got)
			}
			c.Source = "https://elsewhere.example.com"
			if got := send("", shown).Ticket; got == first {
				t.Errorf("another installation: ticket %q, want one of its own", got)
			}
			c.Source = ""
			end := shown
			end.Status = Resolved
			if got := send(first, end); got.Ticket != "" || len(v.tickets) != 2 {
				t.Errorf("the end: %+v, %d tickets open, want none for the fault, and 2", got, len(v.tickets))
			}
			opened := v.next
			if got := send("", end); got.Ticket != "" || v.next != opened {
				t.Errorf("an end without a beginning: %+v, %d tickets, want no ticket and %d", got, v.next, opened)
			}
			fresh := send("", shown).Ticket
			if fresh == first {
				t.Errorf("the fault again: ticket %q, want a new one", fresh)
			}
			v.gone[fresh] = true
			if got := send(fresh, shown).Ticket; got == fresh || got == "" {
				t.Errorf("a message after the removal of %q: ticket %q, want a new one", fresh, got)
			}
			if got := send(fresh, end); got.Ticket != "" {
				t.Errorf("the end after the removal: %+v, want no ticket", got)
			}
			c.Settings = map[string]any{"project": "OPS", "on_resolve": OnResolveComment}
			last := send("", shown).Ticket
			if got := send(last, end).Ticket; got != last {
				t.Errorf("the end as a comment: ticket %q, want %q", got, last)
			}
		})
	}
}

// TestAnswers checks that the status and the body of an answer decide whether a message was
// accepted.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		way    string
		status int
		body   string
		ok     bool
		words  string
	}{
		{"slack by bot", 200, `{"ok":true}`, true, ""},
		{"slack by bot", 200, `{"ok":false,"error":"channel_not_found"}`, false, "channel_not_found"},
		{"slack by bot", 200, `<html>`, false, ""},
		{"slack by bot", 429, `{"ok":false,"error":"ratelimited"}`, false, "ratelimited"},
		{"slack by webhook", 200, `ok`, true, "ok"},
		{"slack by webhook", 403, `action_prohibited`, false, "action_prohibited"},
		{"slack by webhook", 404, `<p>a page of somebody's</p>`, false, ""},
		{"slack by webhook", 200, `{"ok":false,"error":"no_service"}`, false, "no_service"},
		{"teams by webhook", 202, ``, true, ""},
		{"teams by webhook", 200, `1`, true, ""},
		{"teams by webhook", 200, `Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429 with ContextId x`, false, "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429 with ContextId x"},
		{"teams by webhook", 400, `{"error":{"code":"TriggerInputSchemaMismatch","message":"The input body is not valid"}}`, false, "TriggerInputSchemaMismatch: The input body is not valid"},
		{"teams by bot", 201, `{"id":"1"}`, true, ""},
		{"teams by bot", 403, `{"error":{"code":"BotNotInConversationRoster","message":"The bot is not part of the conversation roster."}}`, false, "BotNotInConversationRoster: The bot is not part of the conversation roster."},
		{"pagerduty", 202, `{"status":"success","message":"Event processed"}`, true, "Event processed"},
		{"pagerduty", 202, `{"status":"throttle exceeded","message":"Requests are too frequent"}`, false, "Requests are too frequent"},
		{"pagerduty", 400, `{"status":"invalid event","message":"Event object is invalid","errors":["Length of 'routing_key' is incorrect"]}`, false, "Event object is invalid: Length of 'routing_key' is incorrect"},
		{"servicenow", 401, `{"error":{"message":"User Not Authenticated","detail":"Required to provide Auth information"},"status":"failure"}`, false, "User Not Authenticated: Required to provide Auth information"},
		{"servicenow", 200, `<html>hibernating</html>`, false, ""},
		{"jira", 400, `{"errorMessages":["No project"],"errors":{"issuetype":"is required","fixVersions":"?"}}`, false, "No project; fixVersions: ?; issuetype: is required"},
		{"jira", 200, `no JSON`, false, ""},
	} {
		t.Run(fmt.Sprint(c.way, " ", c.status, " ", c.ok), func(t *testing.T) {
			ch := channels()[c.way]
			kind, _ := Find(ch.kind)
			out := kind.Send(func(outbound.Request) (outbound.Response, error) {
				return outbound.Response{Status: c.status, Body: []byte(c.body)}, nil
			}, ch.Channel, shown)
			if (out.Error == "") != c.ok || out.Response != c.words || out.Status != c.status {
				t.Errorf("Send = %+v, want accepted: %v, and the words %q", out, c.ok, c.words)
			}
		})
	}
}

// TestAddresses checks that each type calls the address that its receiver documents, with the
// credential in the right place.
func TestAddresses(t *testing.T) {
	for name, want := range map[string]string{
		"slack by webhook": "POST https://hooks.slack.com/services/T/B/x ",
		"slack by bot":     "POST https://slack.com/api/chat.postMessage Bearer xoxb-1",
		"teams by webhook": "POST https://x.logic.azure.com/workflows/1?sig=s ",
		"teams by bot":     "POST https://smba.trafficmanager.net/teams/v3/conversations Bearer t0ken",
		"pagerduty":        "POST https://events.pagerduty.com/v2/enqueue ",
		"jira":             "POST https://x.atlassian.net/rest/api/3/search/jql Basic cm9ib3Q6cGFzc3cwcmQ=",
	} {
		c := channels()[name]
		kind, _ := Find(c.kind)
		v := &vendor{t: t}
		kind.Send(v.call, c.Channel, shown)
		r := v.calls[0]
		if got := r.Method + " " + r.URL + " " + r.Header.Get("Authorization"); got != want {
			t.Errorf("%s calls %q, want %q", name, got, want)
		}
	}
	ch := Channel{Endpoint: "https://events.eu.pagerduty.com/v2/enqueue/"}
	if got := ch.address(pagerEvents); got != "https://events.eu.pagerduty.com/v2/enqueue" {
		t.Errorf("address(%s) = %s, want it unchanged", ch.Endpoint, got)
	}
}

// TestConceal checks that the URL of an incoming webhook is treated as a secret, in whichever
// member it is sent.
func TestConceal(t *testing.T) {
	const hook = "https://hooks.slack.com/services/T/B/x"
	slack, _ := Find(Slack)
	for name, c := range map[string]struct {
		endpoint     string
		secrets      map[string]string
		wantEndpoint string
		wantHook     string
	}{
		"as endpoint":               {hook, map[string]string{}, "https://hooks.slack.com", hook},
		"as credential":             {"", map[string]string{WebhookURL: hook}, "https://hooks.slack.com", hook},
		"read and sent back":        {"https://hooks.slack.com", map[string]string{WebhookURL: hook}, "https://hooks.slack.com", hook},
		"another one":               {hook + "2", map[string]string{WebhookURL: hook}, "https://hooks.slack.com", hook + "2"},
		"another host without path": {"https://elsewhere.example.com", map[string]string{WebhookURL: hook}, "https://elsewhere.example.com", hook},
		"a bot's API":               {"https://slack.com/api", map[string]string{BotToken: "xoxb"}, "https://slack.com/api", ""},
		"no URL":                    {"nonsense", map[string]string{}, "nonsense", ""},
	} {
		got, _ := slack.Conceal(c.endpoint, c.secrets)
		if got != c.wantEndpoint || c.secrets[WebhookURL] != c.wantHook {
			t.Errorf("%s: endpoint %q, hook %q, want %q and %q", name, got, c.secrets[WebhookURL], c.wantEndpoint, c.wantHook)
		}
	}
	hooked, _ := Find(Webhook)
	if got, moved := hooked.Conceal(hook, map[string]string{}); moved || got != hook {
		t.Errorf("Conceal for a generic webhook = %q, %v, want the endpoint unchanged", got, moved)
	}
}

// TestChecks checks that Check requires what Describe says.
func TestChecks(t *testing.T) {
	for _, kind := range Types() {
		d := kind.Describe()
		for _, set := range d.Credentials {
			c := Channel{Endpoint: "smtps://mail.example.com", Settings: map[string]any{}, Credential: map[string]string{}}
			for _, member := range set {
				c.Credential[member] = "x"
			}
			for _, s := range d.Settings {
				c.Settings[s.Name] = map[string]any{kindText: "OPS", kindList: "a@example.com", kindChoice: ""}[s.Kind]
				if s.Kind == kindChoice {
					c.Settings[s.Name] = s.Values[0]
				}
			}
			if kind.Name == Email {
				c.Settings["from"], c.Settings["tls"] = "a@example.com", ImplicitTLS
				if len(set) > 0 && set[len(set)-1] != Password {
					c.Settings["auth"] = AuthXOAUTH2
				}
			}
			if wrong := kind.Check(c); len(wrong) > 0 {
				t.Errorf("%s with %v: Check = %v, want no offence", kind.Name, set, wrong)
			}
			for _, s := range d.Settings {
				kept := c.Settings[s.Name]
				delete(c.Settings, s.Name)
				if needed := s.Required || s.With != "" && c.Credential[s.With] != ""; needed && len(kind.Check(c)) == 0 {
					t.Errorf("%s with %v, without %s: no offence", kind.Name, set, s.Name)
				}
				c.Settings[s.Name] = 7.0
				if len(kind.Check(c)) == 0 {
					t.Errorf("%s with a number as %s: no offence", kind.Name, s.Name)
				}
				for _, odd := range []string{"OPS\r\nBcc: eve@example.com", "OPS\x00"} {
					if c.Settings[s.Name] = odd; len(kind.Check(c)) == 0 {
						t.Errorf("%s with %q as %s: no offence", kind.Name, odd, s.Name)
					}
				}
				c.Settings[s.Name] = kept
			}
			c.Credential["other"] = "x"
			if len(kind.Check(c)) == 0 {
				t.Errorf("%s with %v and another member: no offence", kind.Name, set)
			}
		}
	}
}

// FuzzFormats checks that no text leads to a message that a receiver would refuse.
func FuzzFormats(f *testing.F) {
	f.Add("title", "text\n\n", "name", hostile)
	f.Add("", "", "", "")
	f.Add("\U0001F525\xff", "\u2028", "a\r\nb", "[CoDe]")
	f.Fuzz(func(t *testing.T, title, text, name, value string) {
		m := shown
		m.Title, m.Text, m.Facts = title, text, []Fact{{name, value}}
		m = m.Clean()
		for _, c := range channels() {
			kind, _ := Find(c.kind)
			v := &vendor{t: t, schema: schema(t, c.schema)}
			for _, status := range []string{Firing, Resolved} {
				m.Status = status
				if out := kind.Send(v.call, c.Channel, m); out.Error != "" {
					t.Fatalf("Send of %+v = %+v, want no error", m, out)
				}
			}
		}
	})
}

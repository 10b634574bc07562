package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// The types of channels.
const (
	Email      = "email"
	Slack      = "slack"
	Teams      = "teams"
	PagerDuty  = "pagerduty"
	ServiceNow = "servicenow"
	Jira       = "jira"
	Webhook    = "webhook"
)

// The members of credentials.
const (
	Username     = "username"
	Password     = "password"
	AccessToken  = "access_token"
	ClientID     = "client_id"
	ClientSecret = "client_secret"
	HMACSecret   = "hmac_secret"
	BearerToken  = "bearer_token"
	WebhookURL   = "webhook_url"
	BotToken     = "bot_token"
	RoutingKey   = "routing_key"
)

// Channel is what a Type has to know of a channel.
type Channel struct {
	Endpoint   string
	Settings   map[string]any
	Credential map[string]string
	// Token is the access token that was obtained for the credential, if it is an OAuth
	// client.
	Token string
	// Source is the URL of this installation's console. It keeps the faults of two
	// installations apart that send to one receiver.
	Source string
	// Ticket is the ticket that the channel has for the fault of the message; "": none is
	// known.
	Ticket string
}

// Call sends one request to a receiver.
type Call func(r outbound.Request) (outbound.Response, error)

// Outcome is how a receiver took a message.
type Outcome struct {
	// Status is that of its last answer; 0: there was none.
	Status int
	// Response is what the receiver said in the members that its API has for that.
	Response string
	// Error says why the message was not accepted; "": it was.
	Error string
	// Ticket is the ticket that is open for the fault from now on; "": none.
	Ticket string
}

// Setting is one member of the settings of a type.
type Setting struct {
	Name     string   `json:"name" doc:"Member of the channel's settings."`
	Kind     string   `json:"kind" enum:"text,list,choice" doc:"text; list: one text or several; choice: one of values."`
	Values   []string `json:"values,omitempty" doc:"Values of the setting. The first is the default."`
	Required bool     `json:"required" doc:"Whether the member is required."`
	// With is a member of the credential.
	With string `json:"credential,omitempty" doc:"Member of the credential with which it is required."`
}

// The kinds of settings.
const (
	kindText   = "text"
	kindList   = "list"
	kindChoice = "choice"
)

// Description is what a form for channels of one type needs to know.
type Description struct {
	Type        string     `json:"type" enum:"email,slack,teams,pagerduty,servicenow,jira,webhook" doc:"Type of receiver."`
	Endpoint    string     `json:"endpoint" enum:"required,optional" doc:"Whether a channel must name its endpoint. An optional one has a default."`
	Settings    []Setting  `json:"settings" doc:"Settings."`
	Credentials [][]string `json:"credentials" doc:"The sets of members that a credential may have. An empty set: it may be absent."`
	Digests     bool       `json:"digests" doc:"Whether held messages become a digest. A type that keeps an incident or a ticket for each fault has none."`
}

// Describe describes the type.
func (t Type) Describe() Description {
	d := Description{Type: t.Name, Endpoint: "required", Settings: t.Settings, Credentials: t.Credentials, Digests: !t.Lasting}
	if t.Endpoint != "" {
		d.Endpoint = "optional"
	}
	if d.Settings == nil {
		d.Settings = []Setting{}
	}
	return d
}

// Type is one type of channel.
type Type struct {
	Name string
	// Endpoint is the address of channels that name none; "": they must name one.
	Endpoint string
	// Settings and Credentials are what Check takes.
	Settings    []Setting
	Credentials [][]string
	// Scope is what an OAuth client asks for without the setting scope.
	Scope string
	// Secrets are the members that a credential may have. The first is the one that a
	// credential given as text stands for.
	Secrets []string
	// Lasting is set where a message opens something that stays until its end is told: an
	// incident or a ticket.
	Lasting bool
	// more checks what Settings and Credentials do not say; nil: nothing.
	more func(c *checks)
	// Send sends a message, with as many calls as it takes. It is nil for mail.
	Send func(call Call, c Channel, m Message) Outcome
}

// Types lists the types of channels.
func Types() []Type {
	return []Type{emailType(), slackType(), teamsType(), pagerDutyType(), serviceNowType(), jiraType(), webhookType()}
}

// Find is the type of a name.
func Find(name string) (Type, bool) {
	all := Types()
	i := slices.IndexFunc(all, func(t Type) bool { return t.Name == name })
	if i < 0 {
		return Type{}, false
	}
	return all[i], true
}

// Check lists what is wrong with a channel.
func (t Type) Check(ch Channel) []fault.Detail {
	c := &checks{Channel: ch}
	c.secrets(t.Credentials...)
	for _, s := range t.Settings {
		c.setting(s)
	}
	if t.more != nil {
		t.more(c)
	}
	return c.found
}

// Conceal moves an endpoint that is a secret itself, such as the URL of a chat's incoming
// webhook, into the credential, and leaves its origin. It reports whether it moved one.
func (t Type) Conceal(endpoint string, secrets map[string]string) (string, bool) {
	url := secrets[WebhookURL]
	if !slices.Contains(t.Secrets, WebhookURL) || len(secrets) > 1 || len(secrets) == 1 && url == "" {
		return endpoint, false
	}
	origin := outbound.Origin(endpoint)
	switch {
	case endpoint == "" && url != "":
		return outbound.Origin(url), true
	case origin == "" || url != "" && endpoint == origin:
		return endpoint, false
	}
	secrets[WebhookURL] = endpoint
	return origin, true
}

// MainSecret is the member that a credential given as text stands for.
func (t Type) MainSecret(text string) string {
	if slices.Contains(t.Secrets, WebhookURL) && outbound.Origin(text) != "" {
		return WebhookURL
	}
	return t.Secrets[0]
}

// address is where a channel with an incoming webhook sends, or what follows its endpoint.
func (c Channel) address(path string) string {
	if hook := c.Credential[WebhookURL]; hook != "" {
		return hook
	}
	return strings.TrimSuffix(strings.TrimRight(c.Endpoint, "/"), path) + path
}

// key identifies a fault to a receiver that has to recognise it: the same in each message
// about it, and another one for each installation and tenant.
func (c Channel) key(m Message) string {
	sum := sha256.Sum256([]byte(c.Source + "\x00" + m.Tenant + "\x00" + m.Fault))
	return "gatehouse-" + hex.EncodeToString(sum[:16])
}

// URL is the endpoint as a URL: a mail server may be written without smtp://.
func (c Channel) URL() string {
	if strings.Contains(c.Endpoint, "://") {
		return c.Endpoint
	}
	return "smtp://" + c.Endpoint
}

// SameHosts reports whether two channels send their credential to the same hosts.
func (c Channel) SameHosts(other Channel) bool {
	return slices.EqualFunc(c.receivers(), other.receivers(), outbound.SameOrigin)
}

// receivers are the URLs that a channel sends its credential to.
func (c Channel) receivers() []string {
	out := []string{c.URL()}
	if t := c.text("token_url"); t != "" {
		out = append(out, t)
	}
	return out
}

// text is a setting that is text; "" where it is absent.
func (c Channel) text(name string) string {
	s, _ := c.Settings[name].(string)
	return s
}

// list is a setting that is one text or several.
func (c Channel) list(name string) ([]string, bool) {
	switch v := c.Settings[name].(type) {
	case nil:
		return nil, true
	case string:
		return []string{v}, true
	case []any:
		var out []string
		for _, item := range v {
			s, ok := item.(string)
			if !ok {
				return nil, false
			}
			out = append(out, s)
		}
		return out, true
	}
	return nil, false
}

// checks gathers what is wrong with a channel.
type checks struct {
	Channel
	found []fault.Detail
}

func (c *checks) add(pointer, message string) {
	c.found = append(c.found, fault.Detail{Pointer: pointer, Message: message})
}

// setting checks one setting.
func (c *checks) setting(s Setting) {
	pointer := "/settings/" + s.Name
	sent, present := c.Settings[s.Name]
	if !present {
		if s.Required || s.With != "" && c.Credential[s.With] != "" {
			c.add(pointer, "is required for this type of channel")
		}
		return
	}
	if s.Kind == kindList {
		if list, ok := c.list(s.Name); !ok || s.Required && len(list) == 0 {
			c.add(pointer, "must be a string or a list of strings")
		}
		return
	}
	value, ok := sent.(string)
	switch {
	case !ok:
		c.add(pointer, "must be a string")
	case len(value) > 2000:
		c.add(pointer, "must not be longer than 2000 characters")
	case strings.ContainsFunc(value, unicode.IsControl): // it may end up in a header field
		c.add(pointer, "must not have control characters")
	case s.Kind == kindChoice && !slices.Contains(s.Values, value):
		c.add(pointer, "must be one of "+strings.Join(s.Values, ", "))
	case strings.TrimSpace(value) == "" && (s.Required || s.With != "" && c.Credential[s.With] != ""):
		c.add(pointer, "must not be empty")
	}
}

// secrets says that a credential has one of several sets of members, and nothing else.
func (c *checks) secrets(sets ...[]string) {
	var names []string
	for _, set := range sets {
		names = append(names, strings.Join(set, " and "))
		if len(set) != len(c.Credential) {
			continue
		}
		if !slices.ContainsFunc(set, func(n string) bool { return c.Credential[n] == "" }) {
			return
		}
	}
	for i, n := range names {
		if n == "" {
			names[i] = "nothing"
		}
	}
	c.add("/credential", "must have "+strings.Join(names, ", or "))
}

// jsonRequest is a request with a value as JSON; nil: without a body. Signs such as < stay
// as they are, because the limits of receivers count bytes.
func jsonRequest(method, url string, value any) (outbound.Request, error) {
	r := outbound.Request{Method: method, URL: url, Header: map[string][]string{
		"Accept": {"application/json"}, "User-Agent": {"gatehouse-notifications"},
	}}
	if value == nil {
		return r, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return r, err
	}
	r.Body = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	r.Header["Content-Type"] = []string{"application/json; charset=utf-8"}
	return r, nil
}

// exchange is one conversation with a receiver.
type exchange struct {
	Channel
	call Call
}

// do sends a value as JSON with the credential of the channel, and gives the answer. The
// outcome has an Error where there was no answer, or one that is not 2xx; words reads what
// such an answer says.
func (x exchange) do(method, url string, value any, words func(body []byte) string) (outbound.Response, Outcome) {
	r, err := jsonRequest(method, url, value)
	if err != nil {
		return outbound.Response{}, Outcome{Error: "the message cannot be written"}
	}
	x.authorize(r)
	return x.send(r, words)
}

// send sends a request that is ready.
func (x exchange) send(r outbound.Request, words func(body []byte) string) (outbound.Response, Outcome) {
	res, err := x.call(r)
	if err != nil {
		return res, Outcome{Error: fault.Message(err)}
	}
	out := Outcome{Status: res.Status}
	if words != nil {
		out.Response = Line(x.Redact(words(res.Body)))
	}
	if !res.OK() {
		out.Error = "the receiver answered " + strconv.Itoa(res.Status)
	}
	return res, out
}

// refuse makes an outcome a failure.
func (o Outcome) refuse(why string) Outcome {
	o.Error = why
	return o
}

// authorize adds the credential of a channel to a request: a token that was obtained
// for it, a token, or name and password.
func (c Channel) authorize(r outbound.Request) {
	token := c.Token
	for _, name := range []string{AccessToken, BearerToken, BotToken} {
		if token == "" {
			token = c.Credential[name]
		}
	}
	switch {
	case token != "":
		r.Header["Authorization"] = []string{"Bearer " + token}
	case c.Credential[Username] != "":
		r.Header["Authorization"] = []string{"Basic " + basic(c.Credential[Username], c.Credential[Password])}
	}
}

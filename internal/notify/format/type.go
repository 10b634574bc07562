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

// Channel is what a Type needs to know about a channel.
type Channel struct {
	Endpoint   string
	Settings   map[string]any
	Credential map[string]string
	// Token is the access token of an OAuth client; "": none was obtained.
	Token string
	// Source is the URL of this installation's console. It separates the faults of two
	// installations that send to the same receiver.
	Source string
	// Ticket is the stored ticket for the fault of the message; "": none is known.
	Ticket string
}

// Call sends one request to a receiver.
type Call func(r outbound.Request) (outbound.Response, error)

// Outcome is the receiver's reaction to a message.
type Outcome struct {
	// Status is the HTTP status of the last answer; 0: there was none.
	Status int
	// Response is the text in the receiver's last answer, from the members that its API has for
	// that.
	Response string
	// Error says why the message was not accepted; "": it was.
	Error string
	// Ticket is the ticket that is open for the fault after this message; "": there is none.
	Ticket string
}

// Setting is one member of the settings of a type.
type Setting struct {
	Name     string   `json:"name" doc:"Member of the channel's settings."`
	Kind     string   `json:"kind" enum:"text,list,choice" doc:"text; list: one text or several; choice: one of values."`
	Values   []string `json:"values,omitempty" doc:"Values of the setting. The first is the default."`
	Required bool     `json:"required" doc:"Whether the member is required."`
	// With names a member of the credential. The setting is required if the credential has that
	// member.
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
	// Endpoint is the default address of channels; "": a channel must name one.
	Endpoint string
	// Settings and Credentials are the settings and the sets of credential members that Check
	// accepts.
	Settings    []Setting
	Credentials [][]string
	// Scope is the default OAuth scope, used without the setting scope.
	Scope string
	// Secrets are the members that a credential may have. A credential that is a string sets the
	// first one, see MainSecret.
	Secrets []string
	// Lasting is set if a message opens something that stays open until the fault ends: an incident
	// or a ticket.
	Lasting bool
	// more does checks that Settings and Credentials cannot express; nil: none.
	more func(c *checks)
	// Send sends a message, with as many calls as needed. It is nil for mail.
	Send func(call Call, c Channel, m Message) Outcome
}

// Types lists the types of channels.
func Types() []Type {
	return []Type{emailType(), slackType(), teamsType(), pagerDutyType(), serviceNowType(), jiraType(), webhookType()}
}

// Find returns the type with a name.
func Find(name string) (Type, bool) {
	all := Types()
	i := slices.IndexFunc(all, func(t Type) bool { return t.Name == name })
	if i < 0 {
		return Type{}, false
	}
	return all[i], true
}

// Check returns the errors in a channel.
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

// Conceal moves an endpoint that is itself a secret, such as the URL of a chat's incoming webhook,
// into the credential. It returns the endpoint to show, which is then only scheme and host, and
// whether it moved one.
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

// MainSecret returns the credential member that a credential given as a string sets.
func (t Type) MainSecret(text string) string {
	if slices.Contains(t.Secrets, WebhookURL) && outbound.Origin(text) != "" {
		return WebhookURL
	}
	return t.Secrets[0]
}

// address returns the URL to call: the incoming webhook if the channel has one, otherwise the
// endpoint followed by path.
func (c Channel) address(path string) string {
	if hook := c.Credential[WebhookURL]; hook != "" {
		return hook
	}
	return strings.TrimSuffix(strings.TrimRight(c.Endpoint, "/"), path) + path
}

// key identifies a fault to a receiver. It is the same in each message about the fault, and
// different for each installation and tenant.
func (c Channel) key(m Message) string {
	sum := sha256.Sum256([]byte(c.Source + "\x00" + m.Tenant + "\x00" + m.Fault))
	return "gatehouse-" + hex.EncodeToString(sum[:16])
}

// URL returns the endpoint as a URL. The endpoint of a mail server may omit smtp://.
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

// receivers returns the URLs to which a channel sends its credential.
func (c Channel) receivers() []string {
	out := []string{c.URL()}
	if t := c.text("token_url"); t != "" {
		out = append(out, t)
	}
	return out
}

// text returns a text setting; "" if it is absent.
func (c Channel) text(name string) string {
	s, _ := c.Settings[name].(string)
	return s
}

// list returns a setting that is one string or a list of strings. It returns false for other types.
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

// checks collects the errors in a channel.
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
	case strings.ContainsFunc(value, unicode.IsControl): // the value may be used in a header field
		c.add(pointer, "must not have control characters")
	case s.Kind == kindChoice && !slices.Contains(s.Values, value):
		c.add(pointer, "must be one of "+strings.Join(s.Values, ", "))
	case strings.TrimSpace(value) == "" && (s.Required || s.With != "" && c.Credential[s.With] != ""):
		c.add(pointer, "must not be empty")
	}
}

// secrets checks that the credential has exactly the members of one of the sets.
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

// jsonRequest returns a request with value as its JSON body; nil: no body. It does not escape
// characters such as <, because receivers limit the number of bytes.
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

// do sends a value as JSON with the credential of the channel, and returns the answer. The outcome
// has an Error if there was no answer, or if its status is not 2xx. words extracts the text of an
// answer.
func (x exchange) do(method, url string, value any, errorText func(body []byte) string) (outbound.Response, Outcome) {
	r, err := jsonRequest(method, url, value)
	if err != nil {
		return outbound.Response{}, Outcome{Error: "the message cannot be written"}
	}
	x.authorize(r)
	return x.send(r, errorText)
}

// send sends a complete request. words may be nil.
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

// refuse returns the outcome as a failure.
func (o Outcome) refuse(why string) Outcome {
	o.Error = why
	return o
}

// authorize adds the Authorization header to a request: an access token that was obtained, a stored
// token, or user name and password.
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

package format

import (
	"cmp"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
)

// The longest fields of an incident, in characters.
const (
	nowShort       = 160
	nowDescription = 4000
)

// serviceNowType keeps one incident for each fault (Table API).
func serviceNowType() Type {
	return ticketType(ServiceNow, []Setting{
		{Name: "assignment_group", Kind: kindText},
		{Name: "caller_id", Kind: kindText},
		{Name: "category", Kind: kindText},
		{Name: "close_code", Kind: kindText},
		{Name: "resolved_state", Kind: kindText},
	}, func(x exchange) ticketSystem { return nowTickets{x} })
}

type nowTickets struct{ exchange }

// nowRecord is an incident in an answer.
type nowRecord struct {
	ID string `json:"sys_id"`
}

func (d nowTickets) table() string {
	return strings.TrimRight(d.Endpoint, "/") + "/api/now/table/incident"
}

func (d nowTickets) find(m Message) (string, Outcome) {
	query := url.Values{"sysparm_query": {"active=true^stateNOT IN6,7,8^correlation_id=" + d.key(m)}, "sysparm_fields": {"sys_id"}, "sysparm_limit": {"1"}}
	res, out := d.do("GET", d.table()+"?"+query.Encode(), nil, nowErrorText)
	if out.Error != "" {
		return "", out
	}
	var answer struct {
		Result []nowRecord `json:"result"`
	}
	if json.Unmarshal(res.Body, &answer) != nil {
		return "", out.refuse("ServiceNow returned an answer that cannot be used")
	}
	if len(answer.Result) == 0 {
		return "", out
	}
	return answer.Result[0].ID, out
}

func (d nowTickets) create(m Message) (string, Outcome) {
	urgency := map[string]string{Critical: "1", Error: "2"}[m.Severity]
	urgency = cmp.Or(urgency, "3")
	fields := map[string]string{
		"short_description": nowText(m.head(), nowShort), "description": nowText(m.plain(), nowDescription), "urgency": urgency, "impact": urgency,
		"correlation_id": d.key(m), "correlation_display": "gatehouse",
	}
	for _, name := range []string{"assignment_group", "caller_id", "category"} {
		if s := d.text(name); s != "" {
			fields[name] = s
		}
	}
	res, out := d.do("POST", d.table(), fields, nowErrorText)
	if out.Error != "" {
		return "", out
	}
	var answer struct {
		Result nowRecord `json:"result"`
	}
	if json.Unmarshal(res.Body, &answer) != nil || answer.Result.ID == "" {
		return "", out.refuse("ServiceNow did not open an incident")
	}
	return answer.Result.ID, out
}

func (d nowTickets) comment(ticket string, m Message) Outcome {
	return d.update(ticket, map[string]string{"work_notes": nowJournal(m)})
}

func (d nowTickets) resolve(ticket string, m Message) Outcome {
	state, code := d.text("resolved_state"), d.text("close_code")
	state = cmp.Or(state, "6")
	code = cmp.Or(code, "Solution provided")
	return d.update(ticket, map[string]string{
		"state": state, "close_code": code, "close_notes": nowText(m.head(), nowDescription), "work_notes": nowJournal(m),
	})
}

func (d nowTickets) update(ticket string, fields map[string]string) Outcome {
	_, out := d.do("PATCH", d.table()+"/"+url.PathEscape(ticket), fields, nowErrorText)
	return out
}

// nowCode matches the marks around text that a journal field would interpret as HTML.
var nowCode = regexp.MustCompile(`(?i)\[(/?)code\]`)

// nowText returns text for a field of at most n characters.
func nowText(s string, n int) string {
	return truncateUTF16(nowCode.ReplaceAllString(s, "($1 code)"), n)
}

// nowJournal returns a message for a journal field.
func nowJournal(m Message) string { return nowText(m.head()+"\n\n"+m.plain(), nowDescription) }

// nowErrorText returns the error in an answer.
func nowErrorText(body []byte) string {
	var answer struct {
		Error struct {
			Message string `json:"message"`
			Detail  string `json:"detail"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	return strings.Trim(answer.Error.Message+": "+answer.Error.Detail, ": ")
}

package format

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// jiraSummary is the longest summary of an issue, in characters.
const jiraSummary = 255

// jiraProject matches the key of a project. It is strict because the key goes into a query.
var jiraProject = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,254}$`)

// jiraType is the channel type for Jira: one issue for each fault (Jira Cloud REST API v3).
func jiraType() Type {
	t := ticketType(Jira, []Setting{
		{Name: "project", Kind: kindText, Required: true}, {Name: "issue_type", Kind: kindText}, {Name: "resolve_transition", Kind: kindText},
	}, func(x exchange) ticketSystem { return jiraTickets{x} })
	t.more = func(c *checks) {
		if s := c.text("project"); s != "" && !jiraProject.MatchString(s) {
			c.add("/settings/project", "must be the key of a project, such as OPS")
		}
	}
	return t
}

type jiraTickets struct{ exchange }

func (d jiraTickets) api(path string) string {
	return strings.TrimRight(d.Endpoint, "/") + "/rest/api/3" + path
}

func (d jiraTickets) issue(key, path string) string {
	return d.api("/issue/" + url.PathEscape(key) + path)
}

func (d jiraTickets) find(m Message) (string, Outcome) {
	res, out := d.do("POST", d.api("/search/jql"), map[string]any{
		"jql": `project = "` + d.text("project") + `" AND labels = "` + d.key(m) + `" AND statusCategory != Done ORDER BY created DESC`, "maxResults": 1, "fields": []string{"status"},
	}, jiraErrorText)
	if out.Error != "" {
		return "", out
	}
	var answer struct {
		Issues []struct {
			Key string `json:"key"`
		} `json:"issues"`
	}
	if json.Unmarshal(res.Body, &answer) != nil {
		return "", out.refuse("Jira returned an answer that cannot be used")
	}
	if len(answer.Issues) == 0 {
		return "", out
	}
	return answer.Issues[0].Key, out
}

func (d jiraTickets) create(m Message) (string, Outcome) {
	kind := cmp.Or(d.text("issue_type"), "Task")
	res, out := d.do("POST", d.api("/issue"), map[string]any{"fields": map[string]any{
		"project": map[string]string{"key": d.text("project")}, "issuetype": map[string]string{"name": kind},
		"summary": truncateUTF16(m.head(), jiraSummary), "description": adf(m), "labels": []string{"gatehouse", d.key(m)},
	}}, jiraErrorText)
	if out.Error != "" {
		return "", out
	}
	var answer struct {
		Key string `json:"key"`
	}
	if json.Unmarshal(res.Body, &answer) != nil || answer.Key == "" {
		return "", out.refuse("Jira did not open an issue")
	}
	return answer.Key, out
}

func (d jiraTickets) comment(ticket string, m Message) Outcome {
	_, out := d.do("POST", d.issue(ticket, "/comment"), map[string]any{"body": adf(m)}, jiraErrorText)
	return out
}

// resolve adds a comment and moves the issue to a status of the category done. It uses the
// transition that the channel names, or the first one that leads there. If there is none, the issue
// gets only the comment.
func (d jiraTickets) resolve(ticket string, m Message) Outcome {
	res, out := d.do("GET", d.issue(ticket, "/transitions"), nil, jiraErrorText)
	if out.Error != "" {
		return out
	}
	var answer struct {
		Transitions []struct {
			ID   string `json:"id"`
			Name string `json:"name"`
			To   struct {
				Category struct {
					Key string `json:"key"`
				} `json:"statusCategory"`
			} `json:"to"`
		} `json:"transitions"`
	}
	if json.Unmarshal(res.Body, &answer) != nil {
		return out.refuse("Jira returned an answer that cannot be used")
	}
	id, wanted := "", d.text("resolve_transition")
	for _, t := range answer.Transitions {
		if id == "" && (wanted == "" && t.To.Category.Key == "done" || wanted != "" && strings.EqualFold(t.Name, wanted)) {
			id = t.ID
		}
	}
	if out = d.comment(ticket, m); out.Error != "" || id == "" {
		if out.Error == "" {
			out.Response = "the issue has no transition that resolves it now, so it got a comment"
		}
		return out
	}
	_, out = d.do("POST", d.issue(ticket, "/transitions"), map[string]any{"transition": map[string]string{"id": id}}, jiraErrorText)
	return out
}

// adf returns a message in the Atlassian Document Format. Jira does not interpret its texts.
func adf(m Message) map[string]any {
	var content []any
	paragraph := func(nodes ...any) {
		content = append(content, map[string]any{"type": "paragraph", "content": nodes})
	}
	node := func(s string, marks ...any) map[string]any {
		n := map[string]any{"type": "text", "text": s}
		if len(marks) > 0 {
			n["marks"] = marks
		}
		return n
	}
	strong := map[string]any{"type": "strong"}
	paragraph(node(m.head(), strong))
	for line := range strings.SplitSeq(m.Text, "\n") {
		if strings.TrimSpace(line) != "" { // Jira refuses empty texts
			paragraph(node(line))
		}
	}
	var items []any
	for _, f := range m.facts() {
		items = append(items, map[string]any{"type": "listItem", "content": []any{
			map[string]any{"type": "paragraph", "content": []any{node(f.Name+": ", strong), node(f.Value + " ")}},
		}})
	}
	content = append(content, map[string]any{"type": "bulletList", "content": items})
	if m.Link != "" {
		paragraph(node("Open in gatehouse", map[string]any{"type": "link", "attrs": map[string]any{"href": m.Link}}))
	}
	return map[string]any{"type": "doc", "version": 1, "content": content}
}

// jiraErrorText returns the errors in an answer, the general ones and those of each field.
func jiraErrorText(body []byte) string {
	var answer struct {
		Messages []string          `json:"errorMessages"`
		Errors   map[string]string `json:"errors"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	said := answer.Messages
	for _, field := range slices.Sorted(maps.Keys(answer.Errors)) {
		said = append(said, field+": "+answer.Errors[field])
	}
	return strings.Join(said, "; ")
}

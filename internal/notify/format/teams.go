package format

import (
	"encoding/json"
	"maps"
	"strings"
)

// teamsLimit is the largest message to Teams, in bytes. Teams accepts 28 KB.
const teamsLimit = 27_000

// teamsConversations is the path at which a bot starts a thread in a channel.
const teamsConversations = "/v3/conversations"

// teamsType sends an Adaptive Card to a Teams channel, either to the URL of a workflow or as a bot.
func teamsType() Type {
	return Type{
		Name: Teams, Endpoint: "https://smba.trafficmanager.net/teams", Scope: "https://api.botframework.com/.default",
		Secrets: []string{BotToken, WebhookURL, ClientID, ClientSecret},
		Settings: []Setting{
			{Name: "channel", Kind: kindText, With: BotToken},
			{Name: "token_url", Kind: kindText, With: ClientID},
			{Name: "scope", Kind: kindText},
			{Name: "client_auth", Kind: kindChoice, Values: clientAuth()},
		},
		Credentials: [][]string{{WebhookURL}, {BotToken}, {ClientID, ClientSecret}},
		more: func(c *checks) {
			if c.Credential[ClientID] != "" && c.text("channel") == "" {
				c.add("/settings/channel", "is required for a bot")
			}
		},
		Send: func(call Call, c Channel, m Message) Outcome {
			x := exchange{c, call}
			if c.Credential[WebhookURL] == "" {
				_, out := x.do("POST", c.address(teamsConversations), fitMessage(m, teamsLimit, func(m Message) any {
					return map[string]any{
						"isGroup": true, "channelData": map[string]any{"channel": map[string]any{"id": c.text("channel")}}, "activity": teamsMessage(m),
					}
				}), teamsErrorText)
				return out
			}
			res, out := x.do("POST", c.address(""), fitMessage(m, teamsLimit, func(m Message) any { return teamsMessage(m) }), teamsErrorText)
			// Old connectors answer 200 even if the channel did not accept the card.
			if out.Error == "" && strings.Contains(string(res.Body), "endpoint returned HTTP error") {
				return out.refuse("Teams refused the message")
			}
			return out
		},
	}
}

// teamsErrorText returns the error in an answer.
func teamsErrorText(body []byte) string {
	var answer struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &answer) == nil {
		return strings.Trim(answer.Error.Code+": "+answer.Error.Message, ": ")
	}
	if s := string(body); strings.Contains(s, "endpoint returned HTTP error") {
		return s
	}
	return ""
}

// teamsRun returns a TextRun. Unlike in a TextBlock, Teams does not interpret its text.
func teamsRun(s string, more map[string]any) map[string]any {
	if s == "" {
		s = " "
	}
	run := map[string]any{"type": "TextRun", "text": s}
	maps.Copy(run, more)
	return run
}

func teamsBlock(runs ...any) map[string]any {
	return map[string]any{"type": "RichTextBlock", "inlines": runs}
}

// teamsMessage returns a message as an Adaptive Card.
func teamsMessage(m Message) map[string]any {
	bold := map[string]any{"weight": "Bolder"}
	colour := map[string]string{Info: "Accent", Warning: "Warning", Error: "Attention", Critical: "Attention"}[m.Severity]
	if m.Status == Resolved {
		colour = "Good"
	}
	body := []any{teamsBlock(teamsRun(m.head(), map[string]any{"weight": "Bolder", "size": "Medium", "color": colour}))}
	for paragraph := range strings.SplitSeq(m.Text, "\n") {
		if strings.TrimSpace(paragraph) != "" {
			body = append(body, teamsBlock(teamsRun(paragraph, nil)))
		}
	}
	for _, f := range m.facts() {
		body = append(body, teamsBlock(teamsRun(f.Name+": ", bold), teamsRun(f.Value, nil)))
	}
	card := map[string]any{
		"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
		"body": body, "msteams": map[string]any{"width": "Full"},
	}
	if m.Link != "" {
		card["actions"] = []any{map[string]any{"type": "Action.OpenUrl", "title": "Open in gatehouse", "url": m.Link}}
	}
	return map[string]any{
		"type": "message", "summary": m.head(),
		"attachments": []any{map[string]any{"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil, "content": card}},
	}
}

package format

import (
	"encoding/json"
	"regexp"
	"strings"
)

// Slack's limits: characters of a header and of a text, number of fields in a section, and
// characters of a message.
const (
	slackHeader  = 150
	slackText    = 3000
	slackFields  = 10
	slackMessage = 4000
)

// slackPost is the API method that posts a message with a bot token.
const slackPost = "/chat.postMessage"

// slackType sends to a Slack channel, through its incoming webhook or with a bot token.
func slackType() Type {
	return Type{
		Name: Slack, Endpoint: "https://slack.com/api", Secrets: []string{BotToken, WebhookURL},
		Settings:    []Setting{{Name: "channel", Kind: kindText, With: BotToken}},
		Credentials: [][]string{{WebhookURL}, {BotToken}},
		Send: func(call Call, c Channel, m Message) Outcome {
			body := slackBody(m)
			bot := c.Credential[BotToken] != ""
			if bot {
				body["channel"] = c.text("channel")
				body["unfurl_links"], body["unfurl_media"] = false, false
			}
			res, out := exchange{c, call}.do("POST", c.address(slackPost), body, slackErrorText)
			if out.Error != "" {
				return out
			}
			// The Web API answers 200 even if it refuses a message. An incoming webhook accepts
			// with "ok".
			var answer struct {
				OK *bool `json:"ok"`
			}
			known := json.Unmarshal(res.Body, &answer) == nil && answer.OK != nil
			if bot && !known || known && !*answer.OK {
				return out.refuse("Slack refused the message")
			}
			return out
		},
	}
}

// slackCode matches an error code of Slack, such as channel_not_found.
var slackCode = regexp.MustCompile(`^[a-z_]{1,60}$`)

// slackErrorText returns the error in an answer. The Web API sends it as JSON, a webhook as the whole
// text.
func slackErrorText(body []byte) string {
	var answer struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &answer) == nil {
		return answer.Error
	}
	if s := strings.TrimSpace(string(body)); slackCode.MatchString(s) {
		return s
	}
	return ""
}

type slackBlock map[string]any

// slackPlain returns text that Slack does not interpret, shortened to a number of characters.
func slackPlain(s string, most int) map[string]any {
	return map[string]any{"type": "plain_text", "text": truncateUTF16(s, most), "emoji": false}
}

// slackEscape escapes text where Slack interprets it, so that it contains no mentions and no links.
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// slackLink escapes a URL for use within <url|text>.
var slackLink = strings.NewReplacer("&", "&amp;", "<", "%3C", ">", "%3E", "|", "%7C")

// slackBody returns the body of a message. Its member text is what device notifications show.
func slackBody(m Message) map[string]any {
	blocks := []slackBlock{{"type": "header", "text": slackPlain(m.head(), slackHeader)}}
	if m.Text != "" {
		blocks = append(blocks, slackBlock{"type": "section", "text": slackPlain(m.Text, slackText)})
	}
	var fields []map[string]any
	for _, f := range m.facts() {
		fields = append(fields, slackPlain(f.Name+": "+f.Value, 2000))
		if len(fields) == slackFields {
			blocks, fields = append(blocks, slackBlock{"type": "section", "fields": fields}), nil
		}
	}
	if len(fields) > 0 {
		blocks = append(blocks, slackBlock{"type": "section", "fields": fields})
	}
	if m.Link != "" {
		blocks = append(blocks, slackBlock{"type": "section", "text": map[string]any{
			"type": "mrkdwn", "text": "<" + slackLink.Replace(m.Link) + "|Open in gatehouse>",
		}})
	}
	return map[string]any{"text": truncateUTF16(slackEscape.Replace(m.head()), slackMessage), "blocks": blocks}
}

package resource

import (
	"context"
	"encoding/json"

	"github.com/gatehouse-dev/gatehouse/internal/classify"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// Chat is an Assistant behind an OpenAI-compatible chat endpoint.
type Chat struct {
	// Client makes the calls. It has the address guard, the timeout and the limit on
	// replies.
	Client *outbound.Client
	// URL is the endpoint, such as https://llm.example.com/v1/chat/completions.
	URL string
	// Model is the model to ask. Key is the bearer token; empty sends none.
	Model, Key string
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type chatRequest struct {
	Model          string            `json:"model"`
	Messages       []chatMessage     `json:"messages"`
	Temperature    float64           `json:"temperature"`
	MaxTokens      int               `json:"max_tokens"`
	ResponseFormat map[string]string `json:"response_format"`
}

type chatReply struct {
	Choices []struct {
		Message chatMessage `json:"message"`
	} `json:"choices"`
}

// Answer asks for one completion and returns its text. The fault for an answer that cannot
// be used, BadGateway assist_failed, says nothing about the endpoint but its status.
func (c *Chat) Answer(ctx context.Context, p classify.Prompt) ([]byte, error) {
	body, err := json.Marshal(chatRequest{
		Model: c.Model, Messages: []chatMessage{{"system", p.System}, {"user", p.User}}, MaxTokens: 500,
		ResponseFormat: map[string]string{"type": "json_object"},
	})
	if err != nil {
		return nil, fault.Wrap(err, "assist: writing the prompt")
	}
	header := map[string][]string{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if c.Key != "" {
		header["Authorization"] = []string{"Bearer " + c.Key}
	}
	res, err := c.Client.Do(ctx, outbound.Request{Method: "POST", URL: c.URL, Header: header, Body: body})
	if err != nil {
		return nil, err
	}
	var reply chatReply
	if !res.OK() || res.Truncated || json.Unmarshal(res.Body, &reply) != nil || len(reply.Choices) == 0 {
		return nil, fault.Newf(fault.BadGateway, "assist_failed", "the assistant gave no usable answer (status %d)", res.Status)
	}
	return []byte(reply.Choices[0].Message.Content), nil
}

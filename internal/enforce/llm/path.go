package llm

import (
	"net/url"
	"strings"
)

// pathModel is the model that the path names, as Gemini, Vertex and Bedrock have
// it (/models/{model}:method, /model/{model}/converse), or Azure's deployment.
// decides: the provider takes the path's, whatever the body says.
func (s Source) pathModel() (model string, decides bool) {
	segments := strings.Split(s.Path, "/")
	for i := 0; i+1 < len(segments); i++ {
		next := segments[i+1]
		switch segments[i] {
		case "models", "tunedModels":
			if colon := strings.LastIndexByte(next, ':'); colon > 0 {
				model, decides = next[:colon], true
			}
		case "model":
			if i+2 < len(segments) {
				model, decides = next, true
			}
		case "deployments":
			if i+2 < len(segments) {
				model, decides = next, false
			}
		}
	}
	if plain, err := url.PathUnescape(model); err == nil {
		model = plain
	}
	if !isModelName(model) {
		return "", false
	}
	return model, decides
}

// modelOf is the one model that a request names: in the body, where count different
// ones are named and body is the last, or in the path. Empty: none, or several.
func (s Source) modelOf(body string, count int) string {
	path, decides := s.pathModel()
	switch {
	case count > 1:
		return ""
	case count == 0:
		return path
	case decides && path != body:
		return "" // who knows which one is served
	}
	return body
}

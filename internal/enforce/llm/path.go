package llm

import (
	"net/url"
	"strings"
)

// pathModel returns the model in the path, for the paths of Gemini, Vertex and Bedrock
// (/models/{model}:method, /model/{model}/converse) and Azure's deployments. decides means that the
// provider uses the path's model, whatever the body says.
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

// modelOf returns the one model that a request names, in the path or in the body. count is the
// number of different models in the body, and body the last one. It returns "" if there are none or
// several.
func (s Source) modelOf(body string, count int) string {
	path, decides := s.pathModel()
	switch {
	case count > 1:
		return ""
	case count == 0:
		return path
	case decides && path != body:
		return "" // it is unknown which one the provider serves
	}
	return body
}

package lsp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/hint"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// learn asks the server in the background what it knows; one question at a time.
func (s *Server) learn(ctx context.Context) {
	if s.Remote == nil {
		return
	}
	s.mu.Lock()
	busy := s.asking
	s.asking = true
	s.mu.Unlock()
	if busy {
		return
	}
	s.tasks.Go(func() {
		know, err := s.Remote(ctx)
		s.mu.Lock()
		s.asking = false
		if err == nil {
			know.Templates = s.Templates
			s.knowledge = know
		}
		s.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("ask the server", "error", err)
			s.notify("window/logMessage", map[string]any{"type": 2, "message": "gatehouse: the server could not be asked for its resources"})
		}
	})
}

// Remote asks a server for the attributes of its resources. base is its URL,
// key an API key with resources:read.
func Remote(client *outbound.Client, base, key string) func(ctx context.Context) (hint.Knowledge, error) {
	return func(ctx context.Context) (hint.Knowledge, error) {
		target, err := url.JoinPath(base, "api/v1/resources")
		if err != nil {
			return hint.Knowledge{}, err
		}
		res, err := client.Do(ctx, outbound.Request{URL: target + "?limit=1000", Header: map[string][]string{"X-API-Key": {key}}})
		if err != nil {
			return hint.Knowledge{}, err
		}
		if !res.OK() || res.Truncated {
			return hint.Knowledge{}, fmt.Errorf("the server answers %d", res.Status)
		}
		var page struct {
			Resources []struct {
				ID         int64          `json:"id"`
				Name       string         `json:"name"`
				Type       string         `json:"type"`
				Attributes map[string]any `json:"attributes"`
			} `json:"resources"`
		}
		if err := json.Unmarshal(res.Body, &page); err != nil {
			return hint.Knowledge{}, err
		}
		var know hint.Knowledge
		found := map[string]hint.Member{}
		for _, r := range page.Resources {
			know.Data = append(know.Data, hint.Member{Path: "data.resources[" + strconv.Quote(strconv.FormatInt(r.ID, 10)) + "]", Type: "object", Doc: clean(r.Name + " (" + r.Type + ")")})
			for name, v := range r.Attributes {
				if !plain.MatchString(name) {
					continue
				}
				path := "input.resource.attributes." + name
				m, known := found[path]
				if !known {
					m = hint.Member{Path: path, Type: jsonType(v), Doc: "Attribute of " + clean(r.Name)}
				} else if strings.Count(m.Doc, ",") < 5 {
					m.Doc += ", " + clean(r.Name)
				}
				found[path] = m
			}
		}
		for _, m := range found {
			know.Members = append(know.Members, m)
		}
		slices.SortFunc(know.Members, func(a, b hint.Member) int { return strings.Compare(a.Path, b.Path) })
		return know, nil
	}
}

// plain is a name that can stand behind a dot.
var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,100}$`)

// clean keeps a stored name from being read as Markdown or as a second line.
func clean(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune("`*_[]<>\\|#!", r) {
			return ' '
		}
		return r
	}, name)
}

func jsonType(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case []any:
		return "array"
	default:
		return "object"
	}
}

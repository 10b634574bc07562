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

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// learn gets the knowledge of the server in the background. It does nothing if a request is
// running.
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
			s.recheck()
		}
		s.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("ask the server", "error", err)
			s.notify("window/logMessage", map[string]any{"type": 2, "message": "gatehouse: the server could not be asked for its resources"})
		}
	})
}

// Remote returns a function that gets the attributes of a server's resources and, if the key allows
// it, the libraries. base is the server's URL. key is an API key with resources:read and
// policies:read.
func Remote(client *outbound.Client, base, key string) func(ctx context.Context) (assist.Knowledge, error) {
	get := func(ctx context.Context, path, query string, page any) (int, error) {
		target, err := url.JoinPath(base, path)
		if err != nil {
			return 0, err
		}
		res, err := client.Do(ctx, outbound.Request{URL: target + query, Header: map[string][]string{"X-API-Key": {key}}})
		if err != nil {
			return 0, err
		}
		if !res.OK() || res.Truncated {
			return res.Status, fmt.Errorf("the server answered %d", res.Status)
		}
		return res.Status, json.Unmarshal(res.Body, page)
	}
	return func(ctx context.Context) (assist.Knowledge, error) {
		var resources resourcePage
		if _, err := get(ctx, "api/v1/resources", "?limit=1000", &resources); err != nil {
			return assist.Knowledge{}, err
		}
		know := resources.knowledge()
		var shared libraryPage
		if status, err := get(ctx, "api/v1/policies", "?kind=library&status=active&limit=1000", &shared); err != nil && status != forbidden {
			return assist.Knowledge{}, err
		}
		for _, p := range shared.Policies {
			know.Libraries = append(know.Libraries, lang.Library{ID: p.ID, Name: p.Name, Version: p.Version, Source: p.RegoCode})
		}
		return know, nil
	}
}

// forbidden is the HTTP status for a request that the key does not allow.
const forbidden = 403

type resourcePage struct {
	Resources []struct {
		ID         int64          `json:"id"`
		Name       string         `json:"name"`
		Type       string         `json:"type"`
		Attributes map[string]any `json:"attributes"`
	} `json:"resources"`
}

type libraryPage struct {
	Policies []struct {
		ID       int64  `json:"id"`
		Name     string `json:"name"`
		Version  int64  `json:"version"`
		RegoCode string `json:"rego_code"`
	} `json:"policies"`
}

// knowledge returns the members of the input and of data that the resources have.
func (page resourcePage) knowledge() assist.Knowledge {
	var know assist.Knowledge
	found := map[string]assist.Member{}
	for _, r := range page.Resources {
		know.Data = append(know.Data, assist.Member{Path: "data.resources[" + strconv.Quote(strconv.FormatInt(r.ID, 10)) + "]", Type: "object", Doc: clean(r.Name + " (" + r.Type + ")")})
		for name, v := range r.Attributes {
			if !plain.MatchString(name) {
				continue
			}
			path := "input.resource.attributes." + name
			m, known := found[path]
			if !known {
				m = assist.Member{Path: path, Type: jsonType(v), Doc: "Attribute of " + clean(r.Name)}
			} else if strings.Count(m.Doc, ",") < 5 {
				m.Doc += ", " + clean(r.Name)
			}
			found[path] = m
		}
	}
	for _, m := range found {
		know.Members = append(know.Members, m)
	}
	slices.SortFunc(know.Members, func(a, b assist.Member) int { return strings.Compare(a.Path, b.Path) })
	return know
}

// plain matches names that may follow a dot.
var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,100}$`)

// clean replaces Markdown and control characters in a stored name with spaces.
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

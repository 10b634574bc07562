package authzen

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// What is searched for.
const (
	Subjects  = "subject"
	Resources = "resource"
	Actions   = "action"
)

// Found is the answer to a search: the candidates that are permitted, sorted.
type Found struct {
	Results []Result  `json:"results" nullable:"false" doc:"The results that are permitted"`
	Page    *PageDone `json:"page,omitempty" doc:"Present when the request has page, and when more results follow"`
}

// Result is one subject or resource (type and id), or one action (name).
type Result struct {
	Type string `json:"type,omitempty" doc:"Type of the subject or resource"`
	ID   string `json:"id,omitempty" doc:"Its id: a user name, or the name of a resource"`
	Name string `json:"name,omitempty" doc:"Name of the action"`
}

// PageDone says where the next page begins.
type PageDone struct {
	NextToken string `json:"next_token" doc:"Send it as page.token with the same request; empty: this is the last page"`
	Count     int    `json:"count" doc:"Results on this page"`
}

// maxResults is the largest number of results on a page, and the default.
const maxResults = 1000

// Search evaluates each candidate, and returns those that are permitted. what is Subjects,
// Resources or Actions. It records no decisions, because nobody acts on a candidate. Fault:
// BadRequest, which lists all errors in the request.
func (s *Service) Search(ctx context.Context, sc scope.Scope, what string, body value.Value) (Found, error) {
	if body.Kind() != value.ObjectKind {
		return Found{}, fault.New(fault.BadRequest, "invalid_request", "the body must be an object")
	}
	p := partsOf(body)
	if what == Actions {
		p.action = value.Value{}
	}
	if err := p.check(requiredMembers{what != Subjects, what != Resources, what != Actions}); err != nil {
		return Found{}, err
	}
	at, limit, paged, err := pageOf(body, sum(what, p))
	if err != nil {
		return Found{}, err
	}
	set, err := s.Decisions.Snapshot(ctx, sc)
	if err != nil {
		return Found{}, err
	}
	names, err := s.candidates(ctx, sc, set, what, p)
	if err != nil {
		return Found{}, err
	}
	out := Found{Results: []Result{}}
	next, err := s.try(ctx, sc, set, what, p, names, at, limit, &out)
	if err != nil {
		return Found{}, err
	}
	if paged || next < len(names) {
		out.Page = &PageDone{Count: len(out.Results)}
		if next < len(names) {
			out.Page.NextToken = tokenOf(names[next-1], sum(what, p))
		}
	}
	return out, nil
}

// try evaluates the candidates after at, until limit are permitted. It returns the index of the
// first candidate that it did not evaluate.
func (s *Service) try(ctx context.Context, sc scope.Scope, set *rego.Set, what string, p parts, names []string, at string, limit int, out *Found) (int, error) {
	i := 0
	for i < len(names) && at != "" && names[i] <= at {
		i++
	}
	var failed error
	err := s.Decisions.DecideUnrecorded(ctx, sc, set, s.Subject, func() *rego.Request {
		if i == len(names) || len(out.Results) == limit {
			return nil
		}
		req, err := request(set, p.with(what, names[i]))
		failed = err
		return req // nil after an error, which ends the search
	}, func(d *rego.Decision) {
		if d.Permit {
			out.Results = append(out.Results, p.result(what, names[i]))
		}
		i++
	})
	if err == nil {
		err = failed
	}
	return i, err
}

// candidates returns the names to evaluate, sorted.
func (s *Service) candidates(ctx context.Context, sc scope.Scope, set *rego.Set, what string, p parts) ([]string, error) {
	switch what {
	case Subjects:
		if kind, _ := p.subject.Get("type").Str(); kind != userType {
			return nil, nil
		}
		return s.Subjects(ctx, sc)
	case Resources:
		kind, _ := p.resource.Get("type").Str()
		return set.ResourceNames(kind), nil
	default:
		return s.actions(ctx, sc, set)
	}
}

// maxActions is the largest number of actions that a search evaluates.
const maxActions = 1000

// actions returns the names that controls compare the action with, and the methods of
// resources, sorted. It parses controls that were not parsed before. Thousands of them take
// seconds, so the work counts against the tenant's share of the processors.
func (s *Service) actions(ctx context.Context, sc scope.Scope, set *rego.Set) ([]string, error) {
	found := map[string]bool{}
	add := func(name string) {
		if len(found) < maxActions {
			found[name] = true
		}
	}
	controls := set.Controls()
	err := s.Decisions.Work(ctx, sc, len(controls), func(i int) {
		for _, name := range controls[i].ActionNames() {
			add(name)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, r := range set.Resources() {
		for _, m := range r.Methods {
			if m != "*" {
				add(m)
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// with returns the request with a candidate as the entity that is searched for. The properties
// of a subject or resource stay, because they narrow the search.
func (p parts) with(what, name string) parts {
	switch id := value.String(name); what {
	case Subjects:
		p.subject = p.subject.With("id", id)
	case Resources:
		p.resource = p.resource.With("id", id)
	default:
		p.action = value.Object(value.Member{Key: "name", Value: id})
	}
	return p
}

func (p parts) result(what, name string) Result {
	switch what {
	case Subjects:
		return Result{Type: userType, ID: name}
	case Resources:
		kind, _ := p.resource.Get("type").Str()
		return Result{Type: kind, ID: name}
	default:
		return Result{Name: name}
	}
}

// pageOf reads the page of a request: the name after which it begins, and its limit. A token is
// only valid for the same request.
func pageOf(body value.Value, sum string) (at string, limit int, paged bool, err error) {
	page := body.Get("page")
	if !page.Defined() || page.IsNull() {
		return "", maxResults, false, nil
	}
	wrong := func(message string) (string, int, bool, error) {
		return "", 0, true, fault.New(fault.BadRequest, "invalid_request", message)
	}
	if page.Kind() != value.ObjectKind {
		return wrong("/page must be an object")
	}
	limit = maxResults
	if v := page.Get("limit"); v.Defined() && !v.IsNull() {
		n, ok := v.Int64()
		if !ok || n < 1 {
			return wrong("/page/limit must be an integer of at least 1")
		}
		limit = int(min(n, maxResults))
	}
	token, ok := page.Get("token").Str()
	if v := page.Get("token"); v.Defined() && !v.IsNull() && !ok {
		return wrong("/page/token must be a string")
	}
	if token == "" {
		return "", limit, true, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	given, at, found := strings.Cut(string(text), " ")
	if err != nil || !found || given != sum {
		return wrong("/page/token belongs to another request")
	}
	return at, limit, true, nil
}

// tokenOf returns the token of the page that begins after the candidate at.
func tokenOf(at, sum string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(sum + " " + at))
}

// sum returns a hash that identifies a request without its page.
func sum(what string, p parts) string {
	h := sha256.New()
	h.Write([]byte(what))
	for _, v := range []value.Value{p.subject, p.action, p.resource, p.context} {
		h.Write([]byte{0})
		if v.Defined() {
			h.Write(v.AppendJSON(nil))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// Package authzen answers the OpenID AuthZEN Authorization API 1.0: evaluation,
// evaluations, and searches for subjects, resources and actions. It makes the same
// decisions as the rest of the service, with the same controls.
//
// The subject of an AuthZEN request becomes input.user, the action input.action, the
// resource input.resource and the context input.context. Properties become attributes.
// The request as it was sent is in input.authzen.
package authzen

import (
	"context"
	"strconv"
	"strings"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Service answers AuthZEN requests. Its fields are its dependencies.
type Service struct {
	Decisions *decision.Service
	// Subject returns the stored members of the user with an id, user name or e-mail
	// address, or undefined for an unknown one. Subjects returns all user names, sorted.
	Subject  decision.Lookup
	Subjects func(ctx context.Context, sc scope.Scope) ([]string, error)
}

// The subject types of stored users and AI agents. An agent's id is its number, with or
// without agent: before it. Any other text is used as it is.
const (
	userType  = "user"
	agentType = "agent"
)

// parts is an AuthZEN request, member by member. Members that were not sent are undefined.
type parts struct{ subject, action, resource, context value.Value }

// partsOf returns the members of an evaluation, unchecked.
func partsOf(v value.Value) parts {
	return parts{v.Get("subject"), v.Get("action"), v.Get("resource"), v.Get("context")}
}

// or returns p, with the members that p does not have from defaults. Members are not merged.
func (p parts) or(defaults parts) parts {
	pick := func(own, other value.Value) value.Value {
		if own.Defined() {
			return own
		}
		return other
	}
	return parts{pick(p.subject, defaults.subject), pick(p.action, defaults.action), pick(p.resource, defaults.resource), pick(p.context, defaults.context)}
}

// requiredMembers says which members of an entity a request must have.
type requiredMembers struct{ subjectID, resourceID, action bool }

var forEvaluation = requiredMembers{true, true, true}

// check returns one fault with all errors in a request, or nil.
func (p parts) check(w requiredMembers) error {
	var bad []fault.Detail
	wrong := func(pointer, message string) { bad = append(bad, fault.Detail{Pointer: pointer, Message: message}) }
	entity := func(name string, v value.Value, members ...string) {
		if v.Kind() != value.ObjectKind {
			wrong("/"+name, "must be an object")
			return
		}
		for _, m := range members {
			if s, ok := v.Get(m).Str(); !ok || s == "" {
				wrong("/"+name+"/"+m, "must be a non-empty string")
			}
		}
		if props := v.Get("properties"); props.Defined() && !props.IsNull() && props.Kind() != value.ObjectKind {
			wrong("/"+name+"/properties", "must be an object")
		}
	}
	members := func(id bool) []string {
		if id {
			return []string{"type", "id"}
		}
		return []string{"type"}
	}
	entity("subject", p.subject, members(w.subjectID)...)
	if w.action {
		entity("action", p.action, "name")
	}
	entity("resource", p.resource, members(w.resourceID)...)
	if p.context.Defined() && !p.context.IsNull() && p.context.Kind() != value.ObjectKind {
		wrong("/context", "must be an object")
	}
	return refusal(bad)
}

// refusal returns the fault for offences, or nil if there are none. An error of AuthZEN is one
// text, so the message lists all offences.
func refusal(offences []fault.Detail) error {
	if len(offences) == 0 {
		return nil
	}
	texts := make([]string, len(offences))
	for i, o := range offences {
		texts[i] = o.Pointer + " " + o.Message
	}
	return fault.New(fault.BadRequest, "invalid_request", strings.Join(texts, "; "))
}

// request returns the decision request for checked parts.
func request(set *rego.Set, p parts) (*rego.Request, error) {
	resource, id, found := findResource(set, p.resource)
	raw := value.Object(value.Member{Key: "subject", Value: p.subject}, value.Member{Key: "resource", Value: p.resource})
	if p.action.Defined() {
		raw = raw.With("action", p.action)
	}
	if p.context.Kind() == value.ObjectKind {
		raw = raw.With("context", p.context)
	}
	input := value.Object(
		value.Member{Key: "user", Value: user(p.subject)}, value.Member{Key: "action", Value: action(p.action)},
		value.Member{Key: "resource", Value: resource}, value.Member{Key: "authzen", Value: raw},
	)
	if p.context.Kind() == value.ObjectKind {
		input = input.With("context", p.context)
	}
	req, offences := rego.ParseOpen(input)
	if err := refusal(offences); err != nil {
		return nil, err
	}
	kind, _ := p.subject.Get("type").Str()
	req.NotStored = kind != userType && kind != agentType
	if found {
		req.ByID, req.ResourceID = true, id
	}
	return &req, nil
}

// user returns input.user for a subject. Its properties are the attributes; email, department,
// roles and act are also members of their own.
func user(subject value.Value) value.Value {
	id := subject.Get("id")
	if kind, _ := subject.Get("type").Str(); kind == agentType {
		if text, ok := id.Str(); ok && text != "" && strings.Trim(text, "0123456789") == "" {
			id = value.String(agentType + ":" + text)
		}
	}
	out := value.Object(value.Member{Key: "id", Value: id}, value.Member{Key: "type", Value: subject.Get("type")})
	props := subject.Get("properties")
	if props.Kind() != value.ObjectKind {
		return out
	}
	out = out.With("attributes", props)
	for _, name := range []string{"email", "department"} {
		if _, ok := props.Get(name).Str(); ok {
			out = out.With(name, props.Get(name))
		}
	}
	if act := props.Get("act"); act.Defined() {
		out = out.With("act", act)
	}
	if texts(props.Get("roles")) {
		out = out.With("roles", props.Get("roles"))
	}
	return out
}

// texts reports whether v is an array of strings.
func texts(v value.Value) bool {
	if v.Kind() != value.ArrayKind {
		return false
	}
	for _, e := range v.Elems() {
		if _, ok := e.Str(); !ok {
			return false
		}
	}
	return true
}

// action returns input.action. Its method is the property method, or the name if the name is an
// HTTP method.
func action(a value.Value) value.Value {
	name, _ := a.Get("name").Str()
	out := value.Object(value.Member{Key: "name", Value: value.String(name)})
	props := a.Get("properties")
	if props.Kind() == value.ObjectKind {
		out = out.With("properties", props)
	}
	if method, ok := props.Get("method").Str(); ok {
		return out.With("method", value.String(method))
	}
	if isMethod(name) {
		return out.With("method", value.String(name))
	}
	return out
}

// isMethod reports whether a name is an HTTP method, in upper case.
func isMethod(name string) bool {
	switch name {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT":
		return true
	}
	return false
}

// findResource returns input.resource, and the id of the registered resource with this type and
// name, or else with this type and integer id. found is false if there is none. Then the path
// selects the resource: the property path, or an id that is a path.
func findResource(set *rego.Set, r value.Value) (out value.Value, id int64, found bool) {
	kind, _ := r.Get("type").Str()
	name, _ := r.Get("id").Str()
	out = value.Object(value.Member{Key: "id", Value: r.Get("id")}, value.Member{Key: "type", Value: r.Get("type")})
	props := r.Get("properties")
	if props.Kind() == value.ObjectKind {
		out = out.With("attributes", props)
	}
	if path, ok := props.Get("path").Str(); ok {
		out = out.With("path", value.String(path))
	} else if strings.HasPrefix(name, "/") && !strings.ContainsFunc(name, unicode.IsControl) {
		out = out.With("path", value.String(name))
	}
	if host, ok := props.Get("hostname").Str(); ok {
		out = out.With("host", value.String(host))
	}
	if known := set.ResourceNamed(kind, name); known != nil {
		return out, known.ID, true
	}
	if n, err := strconv.ParseInt(name, 10, 64); err == nil {
		if known := set.Resource(n); known != nil && known.Type == kind {
			return out, n, true
		}
	}
	return out, 0, false
}

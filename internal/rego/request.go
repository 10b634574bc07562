package rego

import (
	"slices"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The members of a decision request: its parts, the parts that only a bouncer sends, and the
// members about the call.
var (
	requestParts = []string{"user", "resource", "action", "context"}
	extraParts   = []string{"request", "mcp", "llm", "usage"}
	callMembers  = []string{"decision_id", "environment"}
)

// maxOffences limits how many errors of one request are reported, because its lists may be long.
const maxOffences = 100

// ParseRequest reads a decision request. Its parts may have any members, but those that this
// service knows must have the right type. Unknown members of the request itself are errors. Every
// error has a JSON pointer (RFC 6901); there are at most 100.
func ParseRequest(body value.Value) (Request, []fault.Detail) {
	var r Request
	var bad []fault.Detail
	wrong := func(pointer, message string) {
		if len(bad) == maxOffences {
			return
		}
		bad = append(bad, fault.Detail{Pointer: pointer, Message: message})
	}
	if body.Kind() != value.ObjectKind {
		wrong("", "must be an object")
		return r, bad
	}
	var extra []value.Member
	body.Each(func(key string, v value.Value) bool {
		isPart := slices.Contains(requestParts, key)
		isExtra := slices.Contains(extraParts, key)
		switch {
		case !isPart && !isExtra:
			if !slices.Contains(callMembers, key) {
				wrong("/"+key, "unknown member")
			}
			return true
		case v.IsNull():
			return true // null is absent
		case v.Kind() != value.ObjectKind:
			wrong("/"+key, "must be an object")
			return true
		}
		switch key {
		case "user":
			r.User = v
		case "resource":
			r.Resource = v
		case "action":
			r.Action = v
		case "context":
			r.Context = v
		default:
			extra = append(extra, value.Member{Key: key, Value: v})
		}
		return true
	})
	if len(extra) > 0 {
		r.Extra = value.Object(extra...)
	}
	text := func(v value.Value, pointer string) string {
		s, ok := v.Str()
		if !ok && v.Defined() && !v.IsNull() {
			wrong(pointer, "must be a string")
		}
		return s
	}
	r.Type = text(r.Resource.Get("type"), "/resource/type")
	r.Path = text(r.Resource.Get("path"), "/resource/path")
	r.Host = text(r.Resource.Get("host"), "/resource/host")
	r.Method = text(r.Action.Get("method"), "/action/method")
	text(r.Action.Get("name"), "/action/name")
	text(r.User.Get("email"), "/user/email")
	text(r.User.Get("department"), "/user/department")
	checkRoles(r.User.Get("roles"), wrong)
	checkSubject("user", r.User, wrong)
	if problem := actor.Check(r.User.Get("act")); problem != "" {
		wrong("/user/act", problem)
	}
	checkSubject("resource", r.Resource, wrong)
	// An id is a string or a number; a number names a registered resource.
	if id := r.Resource.Get("id"); id.Kind() == value.NumberKind {
		r.ByID = true
		r.ResourceID, _ = id.Int64()
	}
	return r, bad
}

// checkSubject checks the members that user and resource have in common: their id and their
// attributes.
func checkSubject(name string, v value.Value, wrong func(pointer, message string)) {
	if a := v.Get("attributes"); a.Defined() && !a.IsNull() && a.Kind() != value.ObjectKind {
		wrong("/"+name+"/attributes", "must be an object")
	}
	switch v.Get("id").Kind() {
	case value.UndefinedKind, value.NullKind, value.StringKind, value.NumberKind:
	default:
		wrong("/"+name+"/id", "must be a string or a number")
	}
}

func checkRoles(roles value.Value, wrong func(pointer, message string)) {
	if !roles.Defined() || roles.IsNull() {
		return
	}
	if roles.Kind() != value.ArrayKind {
		wrong("/user/roles", "must be an array")
		return
	}
	for i, e := range roles.Elems() {
		if _, ok := e.Str(); !ok {
			wrong("/user/roles/"+strconv.Itoa(i), "must be a string")
		}
	}
}

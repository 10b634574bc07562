package simulator

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/simulator/record"
)

// filled is an input as the control will see it, the resource and person that completed it, and
// notes on how a live decision would differ.
type filled struct {
	input    value.Value
	resource *target.Resource
	notes    []string
}

// fill adds what a live decision would add: the fields of the control's resource to input.resource,
// and those of the stored user to input.user. It does not replace what was sent, so that an author
// can try other values. A note says where a live decision would use the registered value.
func (s *Service) fill(ctx context.Context, sc scope.Scope, p policy.Policy, set *rego.Set, sent value.Value) (filled, error) {
	f := filled{input: sent}
	req, offences := rego.ParseRequest(parts(sent))
	for _, o := range offences {
		f.note("A live decision would refuse this input: %s %s.", o.Pointer, o.Message)
	}
	if p.Status != policy.Active {
		f.note("The control is %s: live decisions do not use it.", p.Status)
	}
	f.match(p, set, &req)
	if err := f.path(set, req); err != nil {
		f.note("A live decision on this path is DENY, whatever the control says: %s.", err)
	}
	if f.resource != nil && !readsResources(sc) {
		f.resource = f.resource.WithoutAttributes()
		f.note("Without the permission resources:read, the attributes of resources are left out; a live decision has them.")
	}
	f.fromResource()
	err := s.fromPerson(ctx, sc, &f, req.User)
	return f, err
}

// readsResources reports whether the caller may see the attributes of resources. This matters
// because a trial can show what its control reads.
func readsResources(sc scope.Scope) bool { return sc.Require("resources:read") == nil }

func (f *filled) note(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// parts returns the members of an input that a decision request has.
func parts(input value.Value) value.Value {
	var members []value.Member
	input.Each(func(key string, v value.Value) bool {
		switch key {
		case "user", "resource", "action", "context":
			members = append(members, value.Member{Key: key, Value: v})
		}
		return true
	})
	return value.Object(members...)
}

// match finds the resource: the one that the control is linked to, else the one that the input
// names.
func (f *filled) match(p policy.Policy, set *rego.Set, req *rego.Request) {
	matched := set.Match(req)
	if p.ResourceID == nil {
		f.resource = matched
		return
	}
	f.resource = set.Match(&rego.Request{ResourceID: *p.ResourceID})
	switch {
	case f.resource == nil:
		f.note("The control's resource does not exist any more: no live request reaches the control.")
	case matched != nil && matched.ID == f.resource.ID:
	case matched != nil:
		f.note("The control is for the resource %q; a live decision would not use it, because this request is about %q.", f.resource.Name, matched.Name)
	case req.ByID:
		f.note("The control is for the resource %q; a live decision would not use it, because no resource of this environment has the id that the request gives.", f.resource.Name)
	case req.ResourceID == 0 && req.Type == "" && req.Host == "" && req.Path == "":
		f.note("The input names no resource, so the control's resource %q is assumed. A live request must match it.", f.resource.Name)
	default:
		f.note("The control is for the resource %q; a live decision would not use it, because this request matches no registered resource.", f.resource.Name)
	}
}

// path writes input.resource.path as live decisions see it.
func (f *filled) path(set *rego.Set, req rego.Request) error {
	if !strings.HasPrefix(req.Path, "/") {
		return nil
	}
	place := set.Find(&req)
	_, seen, err := place.Locate()
	if err == nil && seen != req.Path {
		f.input = f.input.With("resource", f.input.Get("resource").With("path", value.String(seen)))
	}
	return err
}

// fromResource adds the members of the resource's document that input.resource does not have.
func (f *filled) fromResource() {
	if f.resource == nil || f.resource.Doc.Kind() != value.ObjectKind {
		return
	}
	sent := f.input.Get("resource")
	if sent.Defined() && sent.Kind() != value.ObjectKind {
		return
	}
	merged := sent
	if !merged.Defined() {
		merged = value.Object()
	}
	f.resource.Doc.Each(func(key string, registered value.Value) bool {
		own := sent.Get(key)
		switch {
		case !own.Defined():
			merged = merged.With(key, registered)
		case key == "attributes" && own.Kind() == value.ObjectKind && registered.Kind() == value.ObjectKind:
			merged = merged.With(key, f.mergeRegistered(own, registered, "resource.attributes."))
		case key != "id" && key != "path" && !value.Equal(own, registered):
			f.noteContested("resource."+key, registered)
		}
		return true
	})
	f.input = f.input.With("resource", merged)
}

// mergeRegistered returns own, completed by the members that only registered has.
func (f *filled) mergeRegistered(own, registered value.Value, prefix string) value.Value {
	merged := own
	registered.Each(func(key string, v value.Value) bool {
		if has := own.Get(key); !has.Defined() {
			merged = merged.With(key, v)
		} else if !value.Equal(has, v) {
			f.noteContested(prefix+key, v)
		}
		return true
	})
	return merged
}

func (f *filled) noteContested(path string, registered value.Value) {
	text := string(registered.AppendJSON(nil))
	if len(text) > 80 {
		text = "another value"
	}
	f.note("input.%s was used as sent; a live decision uses the registered resource, with %s.", path, text)
}

// fromPerson adds the members of the stored user with the same id that input.user does not have, if
// the caller may read users.
func (s *Service) fromPerson(ctx context.Context, sc scope.Scope, f *filled, user value.Value) error {
	id, ok := user.Get("id").Str()
	if !ok || id == "" {
		return nil
	}
	stored, err := s.Person(ctx, sc.Tenant, id)
	if err != nil || !stored.Defined() {
		return err
	}
	if sc.Require("users:read") != nil {
		f.note(`A live decision would fill in input.user from the stored user of this id; this credential does not hold "users:read".`)
		return nil
	}
	stored.Each(func(member string, v value.Value) bool {
		if !user.Get(member).Defined() {
			user = user.With(member, v)
		}
		return true
	})
	f.input = f.input.With("user", user)
	return nil
}

// summaryRunes limits the summary of an input, in characters.
const summaryRunes = 240

// summary returns an input on one line: its leaves in order, cut to summaryRunes.
func summary(input value.Value) string {
	var b strings.Builder
	record.Object{Value: input}.Ordered().Leaves(func(path, text string) bool {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(path + "=" + text)
		return b.Len() <= utf8.UTFMax*summaryRunes // collect more than fits, so that the cut is visible
	})
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, b.String())
	n := 0
	for i := range text {
		if n++; n > summaryRunes {
			return text[:i] + "…"
		}
	}
	return text
}

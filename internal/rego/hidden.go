package rego

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// readPath is a path below input that a control reads. hidden has the places of values that a log
// must not show.
type readPath struct {
	inputPath
	hidden bool
}

func readPaths(paths [][]string) []readPath {
	out := make([]readPath, len(paths))
	for i, path := range paths {
		out[i] = readPath{newInputPath(path), slices.ContainsFunc(path, redact.Hides)}
	}
	return out
}

// Hidden returns the values that the decision's reason shows, or may show, and a log must not
// contain: the values of members with names of secrets, of the request and of the resource, if
// the control that decided reads them; and the resource's owner_email. It costs almost nothing if
// the reason is constant, and otherwise one lookup for each path that the control reads.
func (d *Decision) Hidden(r *Request) redact.Found {
	var found redact.Found
	if c := d.Decider(); c != nil && (d.Err != nil || !c.code.FixedReason) {
		for i := range c.reads {
			found = c.reads[i].gather(found, r, d.Resource)
		}
	}
	if d.Resource == nil {
		return found
	}
	if mail := d.Resource.mail; mail != "" && (d.Err != nil || strings.Contains(d.Reason, mail)) {
		found = found.With(value.String(mail), true)
	}
	return found
}

// HiddenInput returns all values of such members, for a log that keeps the values that controls
// saw.
func (d *Decision) HiddenInput(r *Request) redact.Found {
	found := redact.In(r.User, r.Action, r.Resource, r.Context, r.Extra)
	if d.Resource != nil {
		found = found.With(d.Resource.Doc, false)
	}
	return found
}

// Decider returns the control that decided; nil for none.
func (d *Decision) Decider() *Control {
	for i := len(d.Ran) - 1; i >= 0; i-- { // a DENY is the last
		if c := d.Ran[i]; c.meta.ID == d.PolicyID {
			return c
		}
	}
	return nil
}

func (p *readPath) gather(found redact.Found, r *Request, res *Resource) redact.Found {
	switch p.part {
	case partAll:
		found = found.With(r.User, false).With(r.Action, false).With(r.Resource, false).With(r.Context, false).With(r.Extra, false)
	case partUser:
		found = found.With(r.User.At(p.rest...), p.hidden)
	case partAction:
		found = found.With(r.Action.At(p.rest...), p.hidden)
	case partResource:
		found = found.With(r.Resource.At(p.rest...), p.hidden)
	case partContext:
		found = found.With(r.Context.At(p.rest...), p.hidden)
	case partExtra:
		found = found.With(r.Extra.At(p.rest...), p.hidden)
	}
	if res != nil && (p.part == partAll || p.part == partResource) {
		found = found.With(res.Doc.At(p.rest...), p.hidden)
	}
	return found
}

package rego

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// readPath is a path below input that a control reads. hidden is set if a name on the path is
// that of a secret, so that a log must not show the value.
type readPath struct {
	inputPath
	secret bool
}

func readPaths(paths [][]string) []readPath {
	out := make([]readPath, len(paths))
	for i, path := range paths {
		out[i] = readPath{newInputPath(path), slices.ContainsFunc(path, redact.IsHidden)}
	}
	return out
}

// ReasonSecrets returns the values that the decision's reason may show and that a log must not contain.
// These are the members of the request and of the resource that are named like secrets and that
// the deciding control reads, and the resource's owner_email. It costs almost nothing if the
// reason is constant, and otherwise one lookup for each path that the control reads.
func (d *Decision) ReasonSecrets(r *Request) redact.Secrets {
	var found redact.Secrets
	if c := d.Decider(); c != nil && (d.Err != nil || !c.code.FixedReason) {
		for i := range c.reads {
			found = c.reads[i].gather(found, r, d.Resource)
		}
	}
	if d.Resource == nil {
		return found
	}
	if mail := d.Resource.OwnerEmail; mail != "" && (d.Err != nil || strings.Contains(d.Reason, mail)) {
		found = found.With(value.String(mail), true)
	}
	return found
}

// InputSecrets returns the values of all members that are named like secrets, for a log that keeps
// the input of controls.
func (d *Decision) InputSecrets(r *Request) redact.Secrets {
	found := redact.FindSecrets(r.User, r.Action, r.Resource, r.Context, r.Extra)
	if d.Resource != nil {
		found = found.With(d.Resource.Doc, false)
	}
	return found
}

// Decider returns the control that decided; nil if none did.
func (d *Decision) Decider() *Control {
	for _, c := range slices.Backward(d.Ran) { // a DENY is the last
		if c.meta.ID == d.PolicyID {
			return c
		}
	}
	return nil
}

// gather adds the values to hide at one path of the request, and of the resource, to found.
func (p *readPath) gather(found redact.Secrets, r *Request, res *target.Resource) redact.Secrets {
	switch p.part {
	case partAll:
		found = found.With(r.User, false).With(r.Action, false).With(r.Resource, false).With(r.Context, false).With(r.Extra, false)
	case partUser:
		found = found.With(r.User.At(p.rest...), p.secret)
	case partAction:
		found = found.With(r.Action.At(p.rest...), p.secret)
	case partResource:
		found = found.With(r.Resource.At(p.rest...), p.secret)
	case partContext:
		found = found.With(r.Context.At(p.rest...), p.secret)
	case partExtra:
		found = found.With(r.Extra.At(p.rest...), p.secret)
	}
	if res != nil && (p.part == partAll || p.part == partResource) {
		found = found.With(res.Doc.At(p.rest...), p.secret)
	}
	return found
}

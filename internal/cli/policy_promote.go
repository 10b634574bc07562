package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/client"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
)

// promotion is the server's answer to one promotion or reinstatement, and the control's name.
type promotion struct {
	Name        string              `json:"name,omitempty"`
	Message     string              `json:"message"`
	PolicyID    int64               `json:"policy_id"`
	Environment string              `json:"environment"`
	PromotedAt  *time.Time          `json:"promoted_at,omitempty"`
	Replaced    []policy.Superseded `json:"replaced,omitempty"`
	Warnings    []policy.Warning    `json:"warnings,omitempty"`
	Impact      *policy.Impact      `json:"impact,omitempty"`

	SandboxCopyID int64 `json:"sandbox_copy_id,omitempty"`
}

// Promote promotes controls to production. Each is named by its name or id. It promotes them in the
// given order, and stops at the first error.
func Promote(ctx context.Context, o Options, controls []string, how policy.Promotion) error {
	if err := o.requirePlainFormat("promote"); err != nil {
		return err
	}
	done := []promotion{}
	for _, control := range controls {
		found, err := o.findInSandbox(ctx, control)
		var p promotion
		if err == nil {
			err = o.post(ctx, fmt.Sprintf("/policies/%d/promote", found.ID), "policy-promote-"+o.NewID(), how, &p)
		}
		if err != nil {
			return errors.Join(o.writePromoted(done), err)
		}
		p.Name = found.Name
		done = append(done, p)
	}
	return o.writePromoted(done)
}

// Reinstate activates a control in production again that a promotion replaced.
func Reinstate(ctx context.Context, o Options, id int64, how policy.Reinstatement) error {
	if err := o.requirePlainFormat("reinstate"); err != nil {
		return err
	}
	var p promotion
	if err := o.post(ctx, fmt.Sprintf("/policies/%d/reinstate", id), "policy-reinstate-"+o.NewID(), how, &p); err != nil {
		return err
	}
	return o.writePromoted([]promotion{p})
}

// requirePlainFormat returns an error for the formats that are for findings in files.
func (o Options) requirePlainFormat(command string) error {
	if o.Format != FormatText && o.Format != FormatJSON {
		return usage("%s supports text and json output", command)
	}
	return nil
}

// writePromoted writes the promotions that were done, if there are any.
func (o Options) writePromoted(done []promotion) error {
	if len(done) == 0 {
		return nil
	}
	return o.write("promote", Report{Value: done, Text: func(p *printer) { p.promoted(done) }})
}

// findInSandbox finds a policy in sandbox by its name. If control is a number, it is the id, and is
// not checked.
func (o Options) findInSandbox(ctx context.Context, control string) (policy.Policy, error) {
	if id, err := strconv.ParseInt(control, 10, 64); err == nil {
		return policy.Policy{ID: id}, nil
	}
	var found []policy.Policy
	for skip := 0; ; {
		var page policy.Page
		query := url.Values{"environment": {"sandbox"}, "name": {control}, "limit": {"1000"}, "skip": {strconv.Itoa(skip)}}
		if err := o.ask(ctx, http.MethodGet, "/policies?"+query.Encode(), "", nil, &page); err != nil {
			return policy.Policy{}, err
		}
		for _, p := range page.Policies {
			if p.Name == control {
				found = append(found, p)
			}
		}
		if skip += len(page.Policies); len(page.Policies) == 0 || int64(skip) >= page.Total {
			break
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return policy.Policy{}, &Failure{ExitFindings, fmt.Errorf("sandbox has no control %q", control)}
	default:
		return policy.Policy{}, &Failure{ExitFindings, fmt.Errorf("sandbox has %d controls named %q: choose one by its id", len(found), control)}
	}
}

// post sends a change to the server. If the server answers 404 or 409, the exit code is
// ExitFindings, too.
func (o Options) post(ctx context.Context, path, key string, in, out any) error {
	err := o.ask(ctx, http.MethodPost, path, key, in, out)
	if refused, ok := errors.AsType[*client.Error](err); ok && (refused.Status == http.StatusConflict || refused.Status == http.StatusNotFound) {
		return &Failure{ExitFindings, err}
	}
	return err
}

func (p *printer) promoted(done []promotion) {
	for _, d := range done {
		name := fmt.Sprintf("policy %d", d.PolicyID)
		if d.Name != "" {
			name = clean(d.Name) + " (" + name + ")"
		}
		p.line("%s %s: %s", p.in(green, "done"), name, clean(d.Message))
		for _, r := range d.Replaced {
			p.line("    replaces policy %d, inactive since its version %d; undo with: gatehouse policy reinstate %d", r.PolicyID, r.Version, r.PolicyID)
		}
		if d.SandboxCopyID != 0 {
			p.line("    a copy stays in sandbox as policy %d", d.SandboxCopyID)
		}
		if i := d.Impact; i != nil {
			p.line("    %d of %d recorded decisions flip, %d newly blocked", i.Changed, i.Evaluated, i.NewlyBlocked)
		}
		for _, w := range d.Warnings {
			p.line("    %s %s", p.in(yellow, "warning:"), clean(w.Message))
		}
	}
}

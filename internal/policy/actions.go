package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// checkActions returns what is wrong with the actions of a control in an environment.
func (l *Links) checkActions(ctx context.Context, tx *db.Tx, env scope.Env, list []actions.Action) ([]fault.Detail, error) {
	var offences []fault.Detail
	for i, a := range list {
		at := fmt.Sprintf("/actions/%d", i)
		if why := a.Payload.Offence(); why != "" {
			offences = append(offences, fault.Detail{Pointer: at + "/payload/message", Message: why})
		}
		why := a.Offence()
		if why == "" {
			ok, err := l.DestinationExists(ctx, tx, env, a)
			if err != nil {
				return nil, err
			}
			if !ok {
				why = fmt.Sprintf("no %s in %s", a.DestinationRef, env)
			}
		}
		if why != "" {
			offences = append(offences, fault.Detail{Pointer: at + "/destination_ref", Message: why})
		}
	}
	return offences, nil
}

// dropActions removes from p the actions whose targets its environment does not have, and returns
// a warning about them. A promotion calls it, because a channel belongs to one environment.
func (l *Links) dropActions(ctx context.Context, tx *db.Tx, p *Policy) ([]Warning, error) {
	var kept []actions.Action
	var left []string
	for _, a := range p.Actions {
		ok, err := l.DestinationExists(ctx, tx, p.Environment, a)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, a)
		} else {
			left = append(left, a.DestinationRef)
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	p.Actions = kept
	return []Warning{p.warning(warnActions, fmt.Sprintf("policy %d was copied without its actions for %s, which %s does not have", p.ID, strings.Join(left, ", "), p.Environment))}, nil
}

// Targets returns the targets of the control's actions, each once, sorted and separated by spaces.
func (c Control) Targets() string {
	var refs []string
	for _, a := range c.Actions {
		refs = append(refs, a.DestinationRef)
	}
	slices.Sort(refs)
	return strings.Join(slices.Compact(refs), " ")
}

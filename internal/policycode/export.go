package policycode

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxExport bounds an export: what one deployment can take back.
const maxExport = 10 << 20

// Export is controls as files.
type Export struct {
	Environment scope.Env          `json:"environment" enum:"sandbox,production" doc:"Environment of the controls"`
	Files       []controlfile.File `json:"files" doc:"Modules and manifests, by path"`
}

// Export gives the controls of an environment as files that a deployment would
// answer `unchanged` to. name narrows them to those whose names hold it.
func (s *Service) Export(ctx context.Context, sc scope.Scope, env scope.Env, name string) (Export, error) {
	env, err := sc.CreateIn(env)
	if err != nil {
		return Export{}, err
	}
	there, err := s.controls(ctx, sc, env, name)
	if err != nil {
		return Export{}, err
	}
	size := 0
	for _, p := range there {
		size += len(p.RegoCode)
	}
	if size > maxExport {
		return Export{}, fault.Invalidf("query.name", "the controls have more than %d bytes together: filter them by name", maxExport)
	}
	written := make([]controlfile.Written, len(there))
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		from, err := origins(ctx, tx)
		if err != nil {
			return err
		}
		for i, p := range there {
			if written[i], err = describeControl(ctx, tx, p, from[p.ID].Path); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Export{}, err
	}
	files, err := controlfile.Write(written)
	return Export{Environment: env, Files: files}, err
}

// describeControl is a control with its links by name.
func describeControl(ctx context.Context, tx *db.Tx, p policy.Policy, path string) (controlfile.Written, error) {
	w := controlfile.Written{Path: path, Name: p.Name, Description: p.Description, Status: p.Status, Source: p.RegoCode}
	for _, c := range p.TestCases {
		if c.InputHidden {
			continue // a deployment by who may not see it leaves it where it is
		}
		w.Cases = append(w.Cases, controlfile.WrittenCase{Name: c.Name, Input: c.Input, Data: c.Data.Members(), Expected: c.Expected})
	}
	if p.ResourceID != nil {
		name, typ, path, err := resource.NameOf(ctx, tx, *p.ResourceID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return w, err
		}
		w.Resource = controlfile.ResourceName{Name: name, Type: typ, Path: path}
	}
	if p.BouncerID != nil {
		b, err := bouncer.ByID(ctx, tx, *p.BouncerID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return w, err
		}
		w.Bouncer = b.Name
	}
	return w, nil
}

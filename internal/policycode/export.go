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

// maxExport limits the Rego of an export, in bytes, so that one deployment can contain it.
const maxExport = 10 << 20

// Export has the controls of an environment as files.
type Export struct {
	Environment scope.Env          `json:"environment" enum:"sandbox,production" doc:"Environment of the controls"`
	Files       []controlfile.File `json:"files" doc:"Modules and manifests, by path"`
}

// Export returns the controls of an environment as files. A deployment of these files would report
// `unchanged`. If name is not empty, it exports only the controls whose names contain it.
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

// describeControl converts a control for controlfile.Write, with the names of its links.
func describeControl(ctx context.Context, tx *db.Tx, p policy.Policy, path string) (controlfile.Written, error) {
	w := controlfile.Written{Path: path, Name: p.Name, Description: p.Description, Status: p.Status, Source: p.RegoCode}
	for _, c := range p.TestCases {
		if c.InputHidden {
			w.HiddenCases++ // the manifest says so, and a deployment keeps the case
			continue
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

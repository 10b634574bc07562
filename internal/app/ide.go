package app

import (
	"context"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/gitpack"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/template"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// setUpEditors sets up the services for editors and repositories. work runs their deployments.
func (p *parts) setUpEditors(context.Context) error {
	allow, err := p.cfg.targets()
	if err != nil {
		return err
	}
	box, err := p.box.For("repositories")
	if err != nil {
		return err
	}
	templates, err := Templates()
	if err != nil {
		return err
	}
	target := outbound.New(outbound.Config{AllowCIDRs: allow})
	p.closers.add("repositories", time.Second, func(context.Context) error { target.Close(); return nil })
	p.ide = &ide.Service{
		Stores: p.stores, Now: p.now, NewID: newID, Log: p.log, Panics: p.panics, Box: box, Target: target, Large: ide.NewLarge(),
		Unpack: func(ctx context.Context, t scope.TenantID, r gitpack.Request) ([]gitpack.File, error) {
			return p.workers.Unpack(ctx, t, r)
		},
		Check: p.policies.Validate, Code: p.policyCode, Templates: templates,
		As: p.asRepository, LinksExist: p.linksExist, PublicURL: p.cfg.url(),
	}
	watch(p, "watching deployments", p.ide.OnChange)
	return nil
}

// Templates returns the shipped controls in the form that editors offer.
func Templates() ([]assist.Template, error) {
	catalogue, err := template.Load()
	if err != nil {
		return nil, err
	}
	var out []assist.Template
	for _, id := range catalogue.IDs() {
		t, _ := catalogue.Get(id)
		out = append(out, assist.Template{ID: t.ID, Title: t.Title, Doc: strings.TrimSpace(t.Description), Source: t.Source()})
	}
	return out, nil
}

// asRepository returns the scope for the work of a repository, if its tenant is active.
func (p *parts) asRepository(ctx context.Context, t scope.TenantID, name, requestID string) (scope.Scope, error) {
	facts, err := p.tenants.Facts(ctx, t)
	if err != nil {
		return scope.Scope{}, err
	}
	if facts.Status != tenant.Active {
		return scope.Scope{}, fault.New(fault.Forbidden, "tenant_access_denied", "the tenant is not active")
	}
	sc := auth.SystemScope(t, name, requestID)
	// Whoever pushes to the repository is unknown, and may be nobody who may read the audit.
	sc.Permissions, sc.Platform = user.Permissions(t, []string{user.RolePolicyAuthor})
	sc.Env = scope.Sandbox
	return sc, nil
}

// linksExist returns an error if a resource or bouncer does not exist in sandbox.
func (p *parts) linksExist(ctx context.Context, sc scope.Scope, resource, bouncer *int64) error {
	sc.Env = scope.Sandbox
	if resource != nil {
		if _, err := p.resources.Get(ctx, sc, *resource); err != nil {
			return missing(err, "/resource_id", "resource")
		}
	}
	if bouncer != nil {
		if _, err := p.bouncers.Get(ctx, sc, *bouncer); err != nil {
			return missing(err, "/bouncer_id", "bouncer")
		}
	}
	return nil
}

func missing(err error, pointer, what string) error {
	if fault.Is(err, fault.NotFound) {
		return fault.Invalidf(pointer, "there is no such %s in sandbox", what)
	}
	return err
}

package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/counterfile"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/domain"
	"github.com/gatehouse-dev/gatehouse/internal/metering"
	"github.com/gatehouse-dev/gatehouse/internal/region"
	"github.com/gatehouse-dev/gatehouse/internal/rest/site"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/vendor"
)

// startDomains sets up tenants' domains: the proof of ownership, and a daily check that their DNS
// records are still correct.
func startDomains(ctx context.Context, p *parts) error {
	box, err := p.box.For("domains")
	if err != nil {
		return err
	}
	routes, err := domain.LoadRoutes(ctx, p.stores, p.now, p.log)
	if err != nil {
		return err
	}
	p.routes = routes
	p.domains = &domain.Service{
		Stores: p.stores, Tenants: p.tenants, DNS: domain.Resolver{Server: p.cfg.DNSServer}, Box: box, Random: rand.Reader, Now: p.now,
		BaseDomain: p.cfg.BaseDomain, Host: p.cfg.host(), ACME: p.cfg.ACMEDirectory != "",
	}
	p.tenants.OnCreate = append(p.tenants.OnCreate, p.domains.Claim)
	p.tenants.OnPurge = append(p.tenants.OnPurge, p.domains.Forget)
	watch(p, "loading the routes of domains", routes.OnChange)
	p.task("loading the routes of domains", routes.Run)
	lead(p, "checking domains", time.Minute, newID(), func(ctx context.Context) {
		repeat(ctx, p.cfg.DomainInterval, func() {
			if err := p.domains.Check(ctx); err != nil && ctx.Err() == nil {
				p.log.Warn("the check of domains failed", "error", err)
			}
		})
	})
	return startEdge(p)
}

// startDeployments sets up moves of tenants between regions.
func startDeployments(p *parts) error {
	p.deployments = &region.Service{Stores: p.stores, Tenants: p.tenants, Now: p.now, Ticks: ticks, NewID: newID, Host: hostOf(p.cfg.url()), Keep: p.cfg.DeployKeep, Logger: p.log}
	p.tenants.OnPurge = append(p.tenants.OnPurge, p.deployments.Forget)
	p.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gatehouse_deployments_unsettled", Help: "Moves of tenants whose end the system store cannot record. Writes of such a tenant may be refused.",
	}, func() float64 { return float64(p.deployments.Unsettled()) }))
	holder := newID()
	if p.cfg.DatabaseURL == "" {
		holder = "server" // there is one server only: after a crash, it must not wait for its own lease
	}
	lead(p, "deployments of tenants", 15*time.Second, holder, p.deployments.Run)
	return nil
}

// hostOf returns the host of a URL.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// hosts returns the host names that identify tenants.
func hosts(cfg Config, routes *domain.Routes) site.Hosts {
	return site.Hosts{BaseDomain: cfg.BaseDomain, Find: func(host string) (site.Site, bool) {
		rt, ok := routes.Find(host)
		return site.Site{Tenant: rt.Tenant, HSTS: rt.HSTS, Certificate: rt.Fingerprint() != ""}, ok
	}}
}

// startVendors sets up embedding vendors. It comes after the metering.
func startVendors(p *parts) error {
	box, err := p.box.For("provisionings")
	if err != nil {
		return err
	}
	p.vendors = &vendor.Service{
		Stores: p.stores, Tenants: p.tenants, Users: p.users, Auth: p.auth, Bouncers: p.bouncers, Metering: p.metering,
		Box: box, Now: p.now, NewID: newID, Random: rand.Reader,
	}
	p.tenants.Readmit = p.vendors.Readmit
	p.tenants.OnPurge = append(p.tenants.OnPurge, p.vendors.Forget)
	every(p, "unfinished tenants of vendors", time.Minute, func(ctx context.Context) {
		if n, err := p.vendors.Recover(ctx); err != nil && ctx.Err() == nil || n > 0 {
			p.log.Warn("unfinished tenants of vendors were found", "removed", n, "error", err)
		}
	})
	return nil
}

// startMetering sets up the metering of tenants. It comes after the decision log, which
// ensures that no other process uses the data directory.
func startMetering(p *parts) error {
	dir := filepath.Join(p.cfg.DataDir, "usage")
	book, err := counterfile.Open(dir, p.log)
	if err != nil {
		return fmt.Errorf("open the counters of API calls in %s: %w", dir, err)
	}
	p.closers.add("counters of API calls", time.Second, func(context.Context) error { return book.Close() })
	box, err := p.box.For("billing")
	if err != nil {
		return err
	}
	prices, err := metering.LoadPrices(p.cfg.Prices)
	if err != nil {
		return fmt.Errorf("GATEHOUSE_PRICES: %w", err)
	}
	calls := metering.NewCalls(p.stores, book, p.now, p.log)
	p.metering = &metering.Service{Stores: p.stores, Tenants: p.tenants, Calls: calls, Box: box, Prices: prices, Now: p.now}
	p.task("counts of API calls", calls.Run)
	lead(p, "old counts of API calls", time.Minute, newID(), func(ctx context.Context) {
		repeat(ctx, 24*time.Hour, func() {
			if err := calls.Fold(ctx); err != nil && ctx.Err() == nil {
				p.log.Warn("the removal of old counts of API calls failed", "error", err)
			}
		})
	})
	return nil
}

// watchPurges removes this replica's files of purged tenants: at once when another replica
// announces a purge, and at the start for purges that it missed.
func watchPurges(p *parts) {
	changed := make(chan struct{}, 1)
	watch(p, "purges of other replicas", func(t scope.TenantID, name string) {
		if t != "" || name != db.TenantsRevision && name != "" {
			return
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	p.task("purges of other replicas", func(ctx context.Context) error {
		known := map[scope.TenantID]bool{}
		var since time.Time
		tick := time.NewTicker(time.Minute) // retry after a failure
		defer tick.Stop()
		for {
			began := p.now()
			if err := p.tenants.ForgetPurged(ctx, since, known); err == nil {
				since = began.Add(-time.Hour) // a margin, because purges take time and clocks differ
			} else if ctx.Err() == nil {
				p.log.Warn("the removal of files of purged tenants failed", "error", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			case <-tick.C:
			}
		}
	})
}

package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/access"
	"github.com/gatehouse-dev/gatehouse/internal/action"
	"github.com/gatehouse-dev/gatehouse/internal/agent"
	"github.com/gatehouse-dev/gatehouse/internal/alert"
	"github.com/gatehouse-dev/gatehouse/internal/anomaly"
	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/authzen"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/bridge"
	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/dashboard"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/domain"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/integration"
	"github.com/gatehouse-dev/gatehouse/internal/live"
	"github.com/gatehouse-dev/gatehouse/internal/metering"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/pip"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/region"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scim"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
	"github.com/gatehouse-dev/gatehouse/internal/servertls"
	"github.com/gatehouse-dev/gatehouse/internal/signon"
	"github.com/gatehouse-dev/gatehouse/internal/simulator"
	"github.com/gatehouse-dev/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/tracing"
	"github.com/gatehouse-dev/gatehouse/internal/user"
	"github.com/gatehouse-dev/gatehouse/internal/vendor"
	"github.com/gatehouse-dev/gatehouse/internal/webhook"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// decisionCacheBytes bounds the decision cache of a process.
const decisionCacheBytes = 64 << 20

// parts is the assembled control plane, with the dependencies of every service filled in.
// tasks run in the background. closers release what was opened, in reverse order.
type parts struct {
	cfg     Config
	log     *slog.Logger
	now     func() time.Time
	closers closers
	tracing *tracing.Exporter
	tasks   []task

	stores     *db.Cluster
	cache      *cache.Cache
	box        *secret.Box
	tenants    *tenant.Service
	users      *user.Service
	auth       *auth.Service
	resources  *resource.Service
	policies   *policy.Service
	bouncers   *bouncer.Service
	policyCode *policycode.Service
	ide        *ide.Service
	decisions  *decision.Service
	snapshots  *decision.Snapshots
	warmed     atomic.Bool // see warm
	metrics    *policy.Metrics
	bridge     *bridge.Service
	simulator  *simulator.Service
	audit      *audit.DecisionLog
	keeper     *logMonitor
	workers    *worker.Pool
	registry   *prometheus.Registry
	panics     *fault.Panics

	replays      *replay.Service
	authzen      *authzen.Service
	dashboard    *dashboard.Service
	anomalies    *anomaly.Service
	live         *live.Service
	metering     *metering.Service
	domains      *domain.Service
	vendors      *vendor.Service
	deployments  *region.Service
	routes       *domain.Routes
	terminator   *servertls.Terminator // nil: there is no TLS listener
	signOn       *signon.Service
	scim         *scim.Service
	actions      *action.Service
	integrations *integration.Service
	access       *access.Service
	agents       *agent.Service
	alerts       *alert.Service
	webhooks     *webhook.Service
	telemetry    *telemetry.Service
	channels     *notify.Service

	dataSources *pip.Service
	// sinks receive events.
	sinks []event.Sink
}

// clock returns the wall-clock time in UTC. It has no monotonic reading, because UTC strips it.
func clock() time.Time { return time.Now().UTC() }

// ticks returns the time for deadlines. It keeps the monotonic reading, so that a change of the
// wall clock does not expire anything.
func ticks() time.Time { return time.Now() }

// newID returns a new id. Ids sort by time. They are names, not secrets, so a pool of randomness is
// sufficient.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// assemble builds the control plane. If it fails, it closes what it opened.
func assemble(ctx context.Context, cfg Config, version string, log *slog.Logger) (_ *parts, err error) {
	uuid.EnableRandPool()
	p := &parts{cfg: cfg, log: log, now: clock, registry: prometheus.NewRegistry()}
	p.panics = newPanics(p.registry, log)
	p.closers.log = log
	defer func() {
		if err != nil {
			_ = p.closers.close()
		}
	}()
	p.tracing, err = openTracing(ctx, tracing.Config{Endpoint: cfg.OTLPEndpoint, Service: "gatehouse", Version: version, Metrics: p.registry, Log: log})
	if err != nil {
		return nil, err
	}
	p.closers.add("tracing", tracingGrace, p.tracing.Close)
	domains := func(ctx context.Context) error { return startDomains(ctx, p) }
	usage := func(context.Context) error { return startMetering(p) }
	vendors := func(context.Context) error { return startVendors(p) }
	deployments := func(context.Context) error { return startDeployments(p) }
	connections := func(context.Context) error { return setUpIntegrations(p) }
	for _, step := range []func(context.Context) error{p.openStores, p.setUpPeople, domains, p.setUpObjects, p.setUpEditors, p.decide, usage, vendors, deployments, p.setUpBridge, p.startReplay, connections, p.setUpJobs, p.setUpDashboard, p.setUpBackground} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	startReseal(p)
	return p, nil
}

// openStores opens the stores, and what all other parts need.
func (p *parts) openStores(ctx context.Context) error {
	if err := os.MkdirAll(p.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	where, err := p.cfg.stores()
	if err != nil {
		return err
	}
	where.Logger = p.log
	stores, err := db.Open(ctx, where)
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	p.stores = stores
	p.closers.add("store", 5*time.Second, func(context.Context) error { return stores.Close() })

	p.cache, err = cache.Open(ctx, cache.Config{URL: p.cfg.RedisURL, Now: p.now, Logger: p.log})
	if err != nil {
		return fmt.Errorf("open the cache: %w", err)
	}
	p.closers.add("cache", 2*time.Second, func(context.Context) error { p.cache.Close(); return nil })

	p.box, err = p.openBox()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, for its workers: %w", err)
	}
	pool := worker.Defaults(self, "worker")
	pool.Panics = p.panics
	pool.SimulateDeadline = p.cfg.SimulationDeadline
	p.workers = worker.NewPool(pool)
	p.closers.add("workers", 5*time.Second, func(context.Context) error { return p.workers.Close() })
	return nil
}

// openBox returns the encryption of secrets with the configured keys. In demo mode it creates a key
// once and keeps it beside the data.
func (p *parts) openBox() (*secret.Box, error) {
	keys, err := p.cfg.keys()
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		key, err := secret.LoadOrCreateKeyFile(filepath.Join(p.cfg.DataDir, "encryption.key"))
		if err != nil {
			return nil, fmt.Errorf("encryption key: %w", err)
		}
		keys = append(keys, key)
	}
	return secret.New(keys...)
}

// setUpPeople sets up tenants, users and credentials.
func (p *parts) setUpPeople(ctx context.Context) error {
	// Anybody can cause hashing, so it gets at most half of the cores.
	hasher, err := user.NewHasher(user.DefaultCost(), max(1, runtime.GOMAXPROCS(0)/2), rand.Reader)
	if err != nil {
		return err
	}
	p.tenants = &tenant.Service{
		Stores: p.stores, Now: p.now, BaseDomain: p.cfg.BaseDomain,
		Counters:    map[string]func(context.Context, *db.Tx) (int64, error){tenant.Users: user.Count, tenant.Policies: policy.Count, tenant.Bouncers: bouncer.Count},
		RevokeHooks: []func(context.Context, *db.Tx) error{auth.RevokeAll, bouncer.RevokeTokens, ide.DisableWebhooks, signon.Disable, scim.DropTokens},
	}
	p.tenants.OnPurge = append(p.tenants.OnPurge, func(ctx context.Context, id scope.TenantID) error { return p.cache.Drop(ctx, string(id)) })
	if err := p.tenants.EnsureDefault(ctx); err != nil {
		return err
	}
	if n, err := p.tenants.Recover(ctx, p.now()); err != nil || n > 0 {
		p.log.Warn("an earlier process left changes to tenants unfinished", "repaired", n, "error", err)
	}
	p.users = &user.Service{
		Stores: p.stores, Hasher: hasher, Now: p.now, NewID: newID,
		CheckLimit: p.tenants.CheckLimit, Released: p.tenants.UpdateUsageAlerts,
		Revoke:      auth.RevokeUser,
		ForgetHooks: []func(context.Context, *db.Tx, scope.Actor) error{rest.ForgetAnswers, ide.Forget, simulator.RemoveActor, scim.Forget},
	}
	p.auth, err = auth.New(ctx, auth.Config{
		Stores: p.stores, Tenants: p.tenants, Users: p.users, Hasher: hasher, Box: p.box, Now: p.now, Logger: p.log, NewID: newID, Random: rand.Reader,
		SessionIdle: p.cfg.SessionIdle, SessionLife: p.cfg.SessionLife,
		Issuer: "gatehouse", Blind: blindTime(p.cfg.CredentialGrace), Bouncer: p.bouncerByToken, BouncerTimes: p.bouncerTimes,
		Holders:      auth.Holders{scope.Vendor: vendor.Holder, scope.Directory: scim.Holder, scope.Agent: agent.Holder},
		PasswordsOff: signon.PasswordsDisabled, PasswordsOn: signon.EnablePasswords,
	})
	if err != nil {
		return err
	}
	p.closers.add("credentials", 2*time.Second, func(context.Context) error { p.auth.Close(); return nil })
	p.task("credentials", func(ctx context.Context) error {
		p.auth.Run(ctx, func(err error) { p.log.Warn("background work on credentials failed", "error", err) })
		return nil
	})
	return nil
}

// blindTime converts the setting to the form of package auth, where 0 is off.
func blindTime(grace time.Duration) time.Duration {
	if grace == 0 {
		return -1
	}
	return grace
}

// bouncerByToken finds the bouncer of a token's digest, for package auth.
func (p *parts) bouncerByToken(ctx context.Context, tx *db.Tx, digest string) (auth.BouncerIdentity, error) {
	b, err := bouncer.ByToken(ctx, tx, digest)
	return auth.BouncerIdentity{ID: strconv.FormatInt(b.ID, 10), Name: b.Name, Env: b.Environment}, err
}

// bouncerTimes returns when a bouncer was created and last changed, for package auth.
func (p *parts) bouncerTimes(ctx context.Context, tx *db.Tx, id string) (made, changed time.Time, err error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return made, changed, err
	}
	b, err := bouncer.ByID(ctx, tx, n)
	return b.CreatedAt, b.UpdatedAt, err
}

// setUpObjects sets up resources, bouncers and policies.
func (p *parts) setUpObjects(context.Context) error {
	credentials, err := p.box.For("bouncer credentials")
	if err != nil {
		return err
	}
	p.bouncers = &bouncer.Service{
		Stores: p.stores, Now: p.now, Random: rand.Reader, Tenants: p.tenants, Box: credentials, Root: p.cfg.url() + "/api/v1", LinksOf: policy.LinksOfBouncer,
		VerifyKey: func(ctx context.Context, t scope.TenantID) (bouncer.VerifyKey, error) {
			return p.bridge.VerifyKey(ctx, t)
		},
	}
	assistant, err := p.assistant()
	if err != nil {
		return err
	}
	p.resources = &resource.Service{
		Stores: p.stores, Now: p.now, Assist: assistant, AssistOn: assistOn, PoliciesOf: policy.ByResource, BouncersOf: bouncer.LinkedTo,
		AddToBouncer: p.bouncers.AddResources, RemoveFromBouncers: p.bouncers.RemoveResource,
	}
	p.policies = &policy.Service{
		Stores: p.stores, Now: p.now, Tenants: p.tenants, Compiler: policy.Compiler{Evaluator: p.workers},
		Links: policy.Links{
			Resources: p.resources, BouncerEnv: bouncer.EnvironmentOf, BouncerTwin: bouncer.FindTwin,
			DestinationExists: action.TargetExists,
		},
		Data: p.dataOf, Person: p.users.ByName, SyncErrors: p.syncErrors, RecordCopy: policycode.RecordCopy,
		Impact: func(ctx context.Context, sc scope.Scope, next policy.Policy, replaced []policy.Policy) (*policy.Impact, error) {
			return p.replays.Gate(ctx, sc, next, replaced)
		},
	}
	p.policyCode = &policycode.Service{
		Stores: p.stores, Now: p.now, NewID: newID, Evaluator: p.workers, Policies: p.policies,
	}
	return nil
}

// decide sets up live decisions and their audit log.
func (p *parts) decide(context.Context) error {
	if err := p.openLog(); err != nil {
		return err
	}
	p.metrics = policy.NewMetrics(p.stores, 2*time.Second)
	p.registry.MustRegister(evaluations{p.metrics})
	people := &decision.People{Find: p.findPerson, Revision: p.peopleRevision, Now: p.now}
	p.snapshots = &decision.Snapshots{Load: p.loadSnapshot, Changes: p.loadChanges, Revision: p.envRevision, Log: p.log, Idle: 10 * time.Minute, Now: p.now}
	var cached *rego.Cache // nil: no cache
	if p.cfg.DecisionCache == "on" {
		cached = rego.NewCache(decisionCacheBytes)
	}
	p.decisions = &decision.Service{
		Snapshots: p.snapshots, Person: people.Person, Record: p.audit.Record, RecordAll: p.audit.RecordAll, Now: p.now, NewID: newID,
		Tally:    p.metrics.Tally,
		Deadline: p.cfg.DecisionDeadline, BulkDeadline: p.cfg.BulkDeadline, Share: decision.NewProcessorShare(runtime.GOMAXPROCS(0), p.now),
		KeepsInput: p.audit.TakeInputQuota, Panics: p.panics, Cache: cached, Traced: p.tracing.Decided(),
	}
	p.decisions.Share.Weight = p.shareOf
	subjects := &decision.People{Find: p.findSubject, Revision: p.peopleRevision, Now: p.now}
	p.authzen = &authzen.Service{Decisions: p.decisions, Subject: subjects.Person, Subjects: p.users.Usernames}
	p.setUpSimulator(people)
	watch(p, "watch", func(t scope.TenantID, name string) {
		p.snapshots.OnChange(t, name)
		if name == user.Revision || name == "" {
			people.OnChange(t)
			subjects.OnChange(t)
		}
	})
	p.task("audit shipper", p.audit.Run)
	p.task("audit keeper", p.keeper.run)
	p.task("audit retention", func(ctx context.Context) error { return p.audit.RunRetention(ctx, time.Hour) })
	p.task("metrics of controls", p.metrics.Run)
	p.task("collector", p.collect)
	p.task("first snapshots and worker", func(ctx context.Context) error {
		p.warm(ctx)
		p.workers.Warm(ctx) // last: its start takes processor time that readiness would wait for
		return nil
	})
	p.task("snapshots", func(ctx context.Context) error { return p.snapshots.Run(ctx, 2*time.Second) })
	return nil
}

// setUpBridge sets up the bridge, which sends bundles to bouncers and receives their reports.
func (p *parts) setUpBridge(context.Context) error {
	p.bridge = bridge.New(bridge.Config{
		Stores: p.stores, Bouncers: p.bouncers, Snapshots: p.snapshots, Links: policy.BouncerLinks, Facts: p.tenants.Facts,
		Discover: p.resources.Discover, Audit: p.audit, Observe: p.metrics.Add, Box: p.box, Random: rand.Reader, Now: p.now, Log: p.log,
	})
	p.task("bridge", p.bridge.Run)
	return nil
}

// setUpBackground sets up background work.
func (p *parts) setUpBackground(context.Context) error {
	events := &event.Dispatcher{Cluster: p.stores, Sinks: p.sinks, Now: p.now, Logger: p.log}
	p.task("events", events.Run)
	every(p, "purge of deleted tenants", time.Hour, func(ctx context.Context) {
		if _, err := p.tenants.PurgeExpired(ctx); err != nil {
			p.log.Warn("the purge of deleted tenants failed", "error", err)
		}
	})
	watchPurges(p)
	every(p, "unfinished changes to tenants", time.Minute, func(ctx context.Context) {
		// Changes of the last minute may still be in progress.
		if n, err := p.tenants.Recover(ctx, p.now().Add(-time.Minute)); err != nil || n > 0 {
			p.log.Warn("changes to tenants were left unfinished", "repaired", n, "error", err)
		}
	})
	return nil
}

// startReseal seals the stored secrets of all packages again after a rotation of the encryption
// key: at the start, and then every hour. /metrics shows when the old key can go.
func startReseal(p *parts) {
	sealer := &reseal.Sealer{Stores: p.stores, Logger: p.log, Columns: slices.Concat(
		p.auth.Secrets(), p.auth.Factors.Secrets(), p.signOn.Secrets(), p.bouncers.Secrets(), p.bridge.Secrets(), p.domains.Secrets(), p.metering.Secrets(), telemetry.Secrets(p.telemetry),
		p.webhooks.Secrets(), p.channels.Secrets(), p.dataSources.Secrets(), p.integrations.Secrets(), p.ide.Secrets(),
	)}
	p.registry.MustRegister(sealedSecrets{sealer})
	every(p, "secrets under old keys", time.Hour, func(ctx context.Context) {
		if err := sealer.Run(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("some secrets could not be encrypted with the current key", "error", err)
		}
	})
}

// sealedSecrets exports what the last run left under old keys to /metrics. It exports nothing as
// long as that is not known.
type sealedSecrets struct{ of *reseal.Sealer }

var (
	secretsUnderOldKeys = prometheus.NewDesc("gatehouse_secrets_under_old_keys",
		"Stored secrets that are encrypted with a key that is not the first of NOTIFICATION_ENCRYPTION_KEY. At 0 on every server, the old keys can go.", nil, nil)
	secretsUnreadable = prometheus.NewDesc("gatehouse_secrets_unreadable",
		"Stored secrets that none of the keys in NOTIFICATION_ENCRYPTION_KEY opens. The log names them.", nil, nil)
)

// Describe implements prometheus.Collector.
func (sealedSecrets) Describe(out chan<- *prometheus.Desc) {
	out <- secretsUnderOldKeys
	out <- secretsUnreadable
}

// Collect implements prometheus.Collector.
func (s sealedSecrets) Collect(out chan<- prometheus.Metric) {
	if n, known := s.of.Counts(); known {
		out <- prometheus.MustNewConstMetric(secretsUnderOldKeys, prometheus.GaugeValue, float64(n.Old))
		out <- prometheus.MustNewConstMetric(secretsUnreadable, prometheus.GaugeValue, float64(n.Unreadable))
	}
}

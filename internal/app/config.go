package app

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/metering"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Config is the configuration of the server. Each field is a flag, an environment variable, and a
// member of the configuration file, in this order of precedence. docs/configuration.md is generated
// from it.
type Config struct {
	Listen       string        `env:"GATEHOUSE_LISTEN" default:"127.0.0.1:8080" help:"Address that the API and the console are served on."`
	DataDir      string        `env:"GATEHOUSE_DATA_DIR" default:"./.gatehouse" help:"Directory for SQLite files, the audit spool and generated keys."`
	DatabaseURL  string        `env:"GATEHOUSE_DATABASE_URL" help:"postgres:// URL; absent: SQLite in the data directory."`
	Regions      string        `env:"GATEHOUSE_REGIONS" help:"Stores of the regions that tenants live in, as JSON or as the name of a file with it: region → postgres:// URL or directory (docs/operations/regions.md); absent: all tenants are in the deployment's own store."`
	DeployKeep   time.Duration `env:"GATEHOUSE_DEPLOY_KEEP" default:"72h" help:"How long the data of a tenant that moved to another region is kept, read-only, in the old one (docs/operations/regions.md)."`
	RedisURL     string        `env:"GATEHOUSE_REDIS_URL" help:"redis:// URL for counters and notifications that replicas share; absent: each process has its own."`
	BaseDomain   string        `env:"GATEHOUSE_BASE_DOMAIN" help:"Domain whose subdomains name tenants, such as gatehouse.example.com."`
	OTLPEndpoint string        `name:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"Base URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://collector:4318; absent: no traces and metrics are sent."`
	PublicURL    string        `env:"GATEHOUSE_PUBLIC_URL" help:"URL at which bouncers and people reach this server; absent: the listen address, with https:// where TLS is on."`

	TLSListen string `env:"GATEHOUSE_TLS_LISTEN" help:"Address that the API and the console are served on over TLS; the listen address then sends its clients there. Absent: no TLS (docs/operations/tls.md)."`
	TLSCert   string `env:"GATEHOUSE_TLS_CERT" help:"File with the deployment's own certificate chain, in PEM. It is read again when it changes."`
	TLSKey    string `env:"GATEHOUSE_TLS_KEY" help:"File with the key of that certificate, in PEM."`

	ACMEDirectory    string   `env:"GATEHOUSE_ACME_DIRECTORY" help:"https:// URL of the ACME directory that certificates of tenants' verified domains are ordered from, such as https://acme-v02.api.letsencrypt.org/directory; absent: none are ordered."`
	ACMEAgreeTerms   bool     `env:"GATEHOUSE_ACME_AGREE_TERMS" help:"You agree to the terms of service of the ACME directory. Nothing is ordered without it."`
	ACMECAFile       string   `env:"GATEHOUSE_ACME_CA_FILE" help:"File with the certificate authorities, in PEM, that the ACME directory itself is verified with; absent: the system's."`
	ACMEEmail        string   `env:"GATEHOUSE_ACME_EMAIL" help:"Address that the ACME account is registered with; absent: none."`
	ACMEChallenges   []string `env:"GATEHOUSE_ACME_CHALLENGES" default:"tls-alpn-01,http-01" help:"Types of ACME challenges to use, the preferred one first. After a failure, the next one is used."`
	ACMETenantOrders int64    `env:"GATEHOUSE_ACME_TENANT_ORDERS" default:"20" help:"How many certificates one tenant may order in 24 hours, renewals and failures included."`

	DNSServer      string        `env:"GATEHOUSE_DNS_SERVER" help:"Resolver, as host:port, that the records of tenants' domains are looked up with; absent: the system's."`
	DomainInterval time.Duration `env:"GATEHOUSE_DOMAIN_INTERVAL" default:"24h" help:"How often verified domains are checked: whether they still lead here, and how long their certificates last."`

	TrustedProxies []string `env:"GATEHOUSE_TRUSTED_PROXIES" help:"Addresses or CIDRs of the load balancers in front of this server; their X-Forwarded-For and X-Forwarded-Host are trusted. Without it, all clients behind a load balancer share its address, in the audit and for the lock on failed sign-ins."`

	AdminPassword string   `env:"GATEHOUSE_ADMIN_PASSWORD" help:"Password of the first administrator, used at the first start; absent: random, printed once. A weak password is accepted with a warning."`
	EncryptionKey string   `env:"NOTIFICATION_ENCRYPTION_KEY" help:"Key of 32 bytes in base64 that encrypts secrets at rest. To rotate, list several, separated by commas; the first one encrypts."`
	Demo          bool     `env:"GATEHOUSE_DEMO" help:"Generate an encryption key and store it in the data directory. Only to try gatehouse out, not for production."`
	AllowTargets  []string `env:"GATEHOUSE_ALLOW_TARGETS" help:"CIDRs of private addresses that outbound calls may reach; http:// is permitted to these only."`

	AssistURL   string `env:"GATEHOUSE_ASSIST_URL" help:"OpenAI-compatible chat endpoint that classification may use, such as https://llm.example.com/v1/chat/completions. Tenants turn it on with the setting flags.resources.assist_classification. Absent: none."`
	AssistModel string `env:"GATEHOUSE_ASSIST_MODEL" default:"gpt-4o-mini" help:"Model to use there."`
	AssistKey   string `env:"GATEHOUSE_ASSIST_KEY" help:"Bearer token sent there; absent: none."`

	DecisionCache      string        `env:"GATEHOUSE_DECISION_CACHE" default:"on" enum:"on,off" help:"Cache of decisions: on or off."`
	DecisionDeadline   time.Duration `env:"GATEHOUSE_DECISION_DEADLINE" default:"250ms" help:"Longest live evaluation; after that the decision is DENY, evaluation_limit."`
	BulkDeadline       time.Duration `env:"GATEHOUSE_BULK_DEADLINE" default:"10s" help:"Deadline of a whole bulk call; items that it leaves no time for are DENY, evaluation_limit."`
	AnomalyInterval    time.Duration `env:"GATEHOUSE_ANOMALY_INTERVAL" default:"1m" help:"How often the anomaly detectors check each tenant that has decisions."`
	SimulationDeadline time.Duration `env:"GATEHOUSE_SIMULATION_DEADLINE" default:"30s" help:"Longest evaluation of the simulator, at most 30s; after that the run is cancelled and the answer is 400."`
	CredentialGrace    time.Duration `env:"GATEHOUSE_CREDENTIAL_GRACE" default:"10m" help:"How long credentials that a server has already seen stay valid while the store is down; none can be revoked in that time. 0: not at all."`
	SessionIdle        time.Duration `env:"GATEHOUSE_SESSION_IDLE" default:"1h" help:"How long a browser's session lasts without a request."`
	SessionLife        time.Duration `env:"GATEHOUSE_SESSION_LIFE" default:"12h" help:"How long a browser's session lasts at most."`
	AuditSync          string        `env:"GATEHOUSE_AUDIT_SYNC" default:"interval" enum:"never,interval,always" help:"When the audit spool is flushed to disk. In every mode, each record survives a crash of the process; with 'always' it also survives a power cut."`
	Audit              string        `env:"GATEHOUSE_AUDIT" default:"required" enum:"required,best_effort" help:"While the decision log cannot be written: required refuses decisions with 503 and is not ready; best_effort continues, raises an alert at once, and later logs how many are missing."`
	SpoolBytes         int64         `env:"GATEHOUSE_SPOOL_BYTES" default:"8589934592" help:"Largest size of the audit spool, which holds the decisions that are not in the store yet, in bytes. Over 80 % there is an alert; the last 10 % is for permits only."`
	DiskReserve        int64         `env:"GATEHOUSE_DISK_RESERVE" default:"67108864" help:"Bytes to reserve on the disk of the data directory, so that decisions and sign-in continue when it is full; 0: none."`
	RateLimit          string        `env:"GATEHOUSE_RATE_LIMIT" default:"plan" help:"Requests per hour and API key: 'plan' (1000, 5000, 10000 by plan), a number, or 'none'."`
	DecisionLimit      string        `env:"GATEHOUSE_DECISION_RATE_LIMIT" default:"plan" help:"The same for /decisions only: 'plan', a number, or 'none'."`
	Prices             string        `env:"GATEHOUSE_PRICES" help:"Prices of the plans, as JSON or as the name of a file with it (docs/operations/billing.md); absent: bills are 0."`
	OpenMetrics        bool          `env:"GATEHOUSE_OPEN_METRICS" help:"Answer /metrics without a credential."`
	StopDelay          time.Duration `env:"GATEHOUSE_STOP_DELAY" default:"3s" help:"At a stop: how long the process still accepts requests. It is no longer ready and answers with Connection: close, so that load balancers turn away first. 0: not at all."`
	LogLevel           string        `env:"GATEHOUSE_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"Least severe level that is logged."`
	MemoryLimit        int64         `env:"GATEHOUSE_MEMORY_LIMIT" default:"1073741824" help:"Soft memory limit of the process in bytes; near it, the garbage collector runs more often."`
}

// checkRegions checks the settings of regions.
func (c *Config) checkRegions() error {
	if _, err := tenant.LoadRegions(c.Regions); err != nil {
		return fmt.Errorf("GATEHOUSE_REGIONS: %w", err)
	}
	if c.DeployKeep < 0 {
		return fmt.Errorf("GATEHOUSE_DEPLOY_KEEP: %s is negative", c.DeployKeep)
	}
	return nil
}

// minSpoolBytes is the smallest limit of a spool: one record must fit.
const minSpoolBytes = 16 << 20

// check returns an error for the first invalid setting. The text begins with its name.
func (c *Config) check() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("GATEHOUSE_LISTEN: %q is not host:port", c.Listen)
	}
	if err := c.checkTLS(); err != nil {
		return err
	}
	if c.DNSServer != "" {
		if host, port, err := net.SplitHostPort(c.DNSServer); err != nil || host == "" || port == "" {
			return fmt.Errorf("GATEHOUSE_DNS_SERVER: %q is not host:port", c.DNSServer)
		}
	}
	if c.DomainInterval <= 0 {
		return fmt.Errorf("GATEHOUSE_DOMAIN_INTERVAL: %s must be more than 0", c.DomainInterval)
	}
	if c.DataDir == "" {
		return fmt.Errorf("GATEHOUSE_DATA_DIR: a directory is needed")
	}
	if c.SimulationDeadline <= 0 || c.SimulationDeadline > 30*time.Second {
		return fmt.Errorf("GATEHOUSE_SIMULATION_DEADLINE: %s is not between 0 and 30s", c.SimulationDeadline)
	}
	if c.StopDelay < 0 {
		return fmt.Errorf("GATEHOUSE_STOP_DELAY: %s is negative", c.StopDelay)
	}
	if c.SpoolBytes < minSpoolBytes {
		return fmt.Errorf("GATEHOUSE_SPOOL_BYTES: %d is less than %d", c.SpoolBytes, minSpoolBytes)
	}
	if c.DiskReserve < 0 {
		return fmt.Errorf("GATEHOUSE_DISK_RESERVE: %d is negative", c.DiskReserve)
	}
	if c.CredentialGrace < 0 {
		return fmt.Errorf("GATEHOUSE_CREDENTIAL_GRACE: %s is negative", c.CredentialGrace)
	}
	if c.SessionIdle < time.Minute || c.SessionLife < c.SessionIdle {
		return fmt.Errorf("GATEHOUSE_SESSION_IDLE, GATEHOUSE_SESSION_LIFE: %s and %s; the first must be a minute or more, the second no less than the first", c.SessionIdle, c.SessionLife)
	}
	if err := checkURL("GATEHOUSE_DATABASE_URL", c.DatabaseURL, "postgres", "postgresql"); err != nil {
		return err
	}
	if err := c.checkRegions(); err != nil {
		return err
	}
	if err := checkURL("GATEHOUSE_REDIS_URL", c.RedisURL, "redis", "rediss"); err != nil {
		return err
	}
	if err := checkURL("GATEHOUSE_PUBLIC_URL", c.PublicURL, "http", "https"); err != nil {
		return err
	}
	if err := checkURL("GATEHOUSE_ASSIST_URL", c.AssistURL, "http", "https"); err != nil {
		return err
	}
	if _, err := c.targets(); err != nil {
		return err
	}
	if _, err := c.proxies(); err != nil {
		return err
	}
	for name, text := range map[string]string{"GATEHOUSE_RATE_LIMIT": c.RateLimit, "GATEHOUSE_DECISION_RATE_LIMIT": c.DecisionLimit} {
		if _, err := parseLimit(name, text); err != nil {
			return err
		}
	}
	if _, err := metering.LoadPrices(c.Prices); err != nil {
		return fmt.Errorf("GATEHOUSE_PRICES: %w", err)
	}
	keys, err := c.keys()
	if err != nil {
		return err
	}
	if len(keys) == 0 && !c.Demo {
		return fmt.Errorf("NOTIFICATION_ENCRYPTION_KEY: missing; the server does not start without a key for secrets at rest (create one with: openssl rand -base64 32), or set GATEHOUSE_DEMO=true to try it out")
	}
	return nil
}

// checkURL checks a URL. Its error omits the value, because a database URL contains a password.
func checkURL(name, text string, schemes ...string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%s: not a URL", name)
	}
	if slices.Contains(schemes, u.Scheme) {
		return nil
	}
	return fmt.Errorf("%s: the scheme must be one of %s", name, strings.Join(schemes, ", "))
}

// stores returns the configuration of the stores.
func (c *Config) stores() (db.Config, error) {
	regions, err := tenant.LoadRegions(c.Regions)
	if err != nil {
		return db.Config{}, fmt.Errorf("GATEHOUSE_REGIONS: %w", err)
	}
	return db.Config{URL: c.DatabaseURL, Dir: c.DataDir, Now: clock, Regions: regions}, nil
}

// targets returns the private address ranges that outbound calls may reach.
func (c *Config) targets() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range c.AllowTargets {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("GATEHOUSE_ALLOW_TARGETS: %q is not a CIDR", text)
		}
		out = append(out, p)
	}
	return out, nil
}

// proxies returns the addresses of trusted proxies, whose forwarding headers are used.
func (c *Config) proxies() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range c.TrustedProxies {
		text = strings.TrimSpace(text)
		p, err := netip.ParsePrefix(text)
		if a, single := netip.ParseAddr(text); err != nil && single == nil {
			a = a.Unmap()
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("GATEHOUSE_TRUSTED_PROXIES: %q is neither an address nor a CIDR", text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// keys returns the encryption keys. The first one encrypts; all of them decrypt.
func (c *Config) keys() ([][32]byte, error) {
	var out [][32]byte
	for text := range strings.SplitSeq(c.EncryptionKey, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("NOTIFICATION_ENCRYPTION_KEY: each key is 32 bytes in base64")
		}
		out = append(out, [32]byte(raw))
	}
	return out, nil
}

// url returns the address at which clients reach this server.
func (c *Config) url() string {
	if c.PublicURL != "" {
		return strings.TrimRight(c.PublicURL, "/")
	}
	if c.TLSListen != "" {
		return "https://" + c.TLSListen
	}
	return "http://" + c.Listen
}

// host returns the host name of this server; localhost if its URL has an IP address.
func (c *Config) host() string {
	u, err := url.Parse(c.url())
	if err != nil || u.Hostname() == "" {
		return "localhost"
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return "localhost"
	}
	return strings.ToLower(u.Hostname())
}

// parseLimit parses "plan", "none" or a number. It returns -1 for plan and 0 for none.
func parseLimit(name, text string) (int64, error) {
	switch text {
	case "", "plan":
		return -1, nil
	case "none":
		return 0, nil
	}
	var n int64
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil || n < 1 || fmt.Sprint(n) != text {
		return 0, fmt.Errorf("%s: %q is neither plan, none nor a number", name, text)
	}
	return n, nil
}

// passwordWeakness returns why the first administrator's password would be refused for other
// people; "" if it would not, or if it is generated. The server accepts it nevertheless: a
// deployment that has used it for years must still start after an upgrade.
func (c *Config) passwordWeakness() string {
	if c.AdminPassword == "" {
		return ""
	}
	if err := user.CheckPassword("", c.AdminPassword, "admin"); err != nil {
		return fault.Message(err)
	}
	return ""
}

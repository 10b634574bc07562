package telemetry

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Report is everything that is sent about a period.
type Report struct {
	CustomerID          string `json:"customer_id" doc:"Id that the license server gave to this tenant, else the id of the tenant; with anonymization, a random alias." example:"acme"`
	CurrentPeriod       string `json:"current_period" doc:"The period as an ISO 8601 interval of dates in UTC; the second date is not part of it." example:"2026-11-15/2026-12-01"`
	PolicyDecisionCount int64  `json:"policy_decision_count" doc:"Number of decisions in the period."`
	ActiveBouncerCount  int64  `json:"active_bouncer_count" doc:"Bouncers that are connected or degraded now."`
	TotalEvents         int64  `json:"total_events" doc:"Sum of sandbox_events and production_events."`
	SuccessfulDecisions int64  `json:"successful_decisions" doc:"Decisions in which no control failed or reached a limit."`
	SandboxEvents       int64  `json:"sandbox_events" doc:"Decisions in sandbox."`
	ProductionEvents    int64  `json:"production_events" doc:"Decisions in production."`
	HealthStatus        string `json:"health_status" enum:"healthy,degraded,unhealthy" doc:"State of this service, as in GET /health."`
	DeploymentVersion   string `json:"deployment_version" doc:"Version of this service."`
	Tier                string `json:"tier" doc:"Tier of the license; community without one." example:"enterprise"`
}

// Preview returns the report of the current period, exactly as it would be sent now.
func (s *Service) Preview(ctx context.Context, sc scope.Scope) (Report, error) {
	st, err := s.load(ctx, sc.Tenant)
	if err != nil {
		return Report{}, err
	}
	r, err := s.measure(ctx, sc.Tenant, st, st.currentPeriod(s.Now()))
	return r.withCustomer(sc.Tenant, st), err
}

// measure makes the report of a period, without the customer id.
func (s *Service) measure(ctx context.Context, t scope.TenantID, st state, p period) (Report, error) {
	r := Report{
		CurrentPeriod: p.String(), HealthStatus: s.Health(ctx), DeploymentVersion: s.Version, Tier: st.License.tier(),
	}
	sc := auth.SystemScope(t, "telemetry", "")
	last := p.until.Add(-time.Nanosecond)
	for env, count := range map[scope.Env]*int64{scope.Sandbox: &r.SandboxEvents, scope.Production: &r.ProductionEvents} {
		sc.Env = env
		sum, err := s.Totals(ctx, sc, p.from, last)
		if err != nil {
			return r, err
		}
		*count = sum.Total()
		r.TotalEvents += sum.Total()
		r.SuccessfulDecisions += sum.Total() - sum.Errors
	}
	r.PolicyDecisionCount = r.TotalEvents
	b, err := db.Read(ctx, s.Stores, t, func(tx *db.Tx) (bouncer.Tally, error) { return bouncer.LoadTally(ctx, tx, scope.AnyEnv) })
	r.ActiveBouncerCount = b.Connected + b.Degraded
	return r, err
}

// withCustomer returns the report with the customer id, or with the alias if st has anonymisation.
func (r Report) withCustomer(t scope.TenantID, st state) Report {
	r.CustomerID = st.customer(t)
	if st.Anonymization {
		r.CustomerID = st.Alias
	}
	return r
}

// customer returns the customer id of the tenant: the one that the license server named, or else
// the tenant's own id.
func (st state) customer(t scope.TenantID) string {
	if st.License.CustomerID != "" {
		return st.License.CustomerID
	}
	return string(t)
}

// encode returns a report as JSON in the same bytes as the API, so that the preview is exact.
func (r Report) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(r)
	return b.Bytes(), fault.Wrap(err, "encode a report")
}

// sealInfo is the HPKE info that binds a sealed report to its purpose (RFC 9180 section 5.1).
const sealInfo = "gatehouse telemetry v1"

// sealed is the body of an encrypted report.
type sealed struct {
	Encryption string `json:"encryption"`
	KEM        string `json:"kem"`
	KDF        string `json:"kdf"`
	AEAD       string `json:"aead"`
	Ciphertext string `json:"ciphertext"`
}

// encrypt encrypts a report to the license server's key, an X25519 public key in base64. The
// ciphertext begins with the encapsulated key of 32 bytes.
func encrypt(report []byte, serverKey string) ([]byte, error) {
	key, err := publicKey(serverKey)
	if err != nil {
		return nil, err
	}
	box, err := hpke.Seal(key, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(sealInfo), report)
	if err != nil {
		return nil, fault.Wrap(err, "encrypt a report")
	}
	body, err := json.Marshal(sealed{"hpke", "DHKEM(X25519, HKDF-SHA256)", "HKDF-SHA256", "AES-256-GCM", base64.StdEncoding.EncodeToString(box)})
	return body, fault.Wrap(err, "encode a sealed report")
}

// publicKey parses the key that a license server publishes.
func publicKey(text string) (hpke.PublicKey, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fault.Wrap(err, "the encryption key of the license server")
	}
	key, err := ecdh.X25519().NewPublicKey(raw)
	if err != nil {
		return nil, fault.Wrap(err, "the encryption key of the license server")
	}
	public, err := hpke.NewDHKEMPublicKey(key)
	return public, fault.Wrap(err, "the encryption key of the license server")
}

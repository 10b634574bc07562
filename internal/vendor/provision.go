package vendor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

const (
	// keepAnswers is how long the answer to an Idempotency-Key is stored here. Package rest
	// stores it a little longer, so a key that rest has forgotten finds nothing here.
	keepAnswers = 24*time.Hour - time.Minute
	// provisionTime is the longest time that a provisioning takes. abandonedAfter is when
	// it counts as abandoned.
	provisionTime  = 45 * time.Second
	abandonedAfter = 2 * time.Minute
	// fewestKept is how many deleted tenants each vendor may have, whatever its limit is.
	fewestKept = 20
)

// Administrator is the first person of a new tenant.
type Administrator struct {
	ID       string `json:"id,omitempty" minLength:"1" maxLength:"128" pattern:"^[A-Za-z0-9._@:+-]+$" doc:"Id of the person in your own directory; absent: a random one."`
	Email    string `json:"email" format:"email" minLength:"3" maxLength:"254" doc:"E-mail address."`
	Username string `json:"username,omitempty" minLength:"1" maxLength:"128" doc:"Name to sign in with; admin by default."`
	Password string `json:"password,omitempty" minLength:"8" maxLength:"1024" writeOnly:"true" doc:"Absent: a random one, which the answer contains."`
}

func (a Administrator) draft() user.Draft {
	if a.Username == "" {
		a.Username = "admin"
	}
	return user.Draft{ID: a.ID, Email: a.Email, Username: a.Username, Password: a.Password, Roles: []string{user.RoleAdmin}}
}

// Request is the input for a new tenant: the tenant, its administrator, API keys and bouncer.
type Request struct {
	Name          string          `json:"name" minLength:"1" maxLength:"128" doc:"Display name; the id is derived from it."`
	PlanType      string          `json:"plan_type,omitempty" enum:"standard,pro,enterprise" doc:"standard by default."`
	Region        string          `json:"region,omitempty" enum:"us-east-1,us-west-2,ca-central-1,eu-west-1,eu-central-1,eu-north-1,ap-southeast-1,ap-northeast-1,ap-south-1" doc:"us-east-1 by default. If the deployment has regions, it must be one of them."`
	Domain        string          `json:"domain,omitempty" maxLength:"253" doc:"The tenant's domain; absent: its subdomain of the base domain."`
	CustomDomain  string          `json:"custom_domain,omitempty" maxLength:"253" doc:"A domain of the tenant's own. Requests to it reach the tenant once it is verified."`
	Settings      tenant.Settings `json:"settings,omitempty" doc:"Limits and features; an absent limit means none. Members that begin with x- are free for your own use; any other unknown member is a 422 that names the closest known one."`
	Administrator Administrator   `json:"administrator" doc:"The first person, with the role admin."`
	APIKeys       []auth.KeyDraft `json:"api_keys,omitempty" maxItems:"10" nullable:"false" doc:"API keys of the tenant. Absent: one for both environments that manages policies, resources and bouncers, and requests decisions."`
	Bouncer       *bouncer.Draft  `json:"bouncer,omitempty" doc:"The first bouncer; absent: none."`
}

func (r Request) draft() tenant.Draft {
	return tenant.Draft{Name: r.Name, Domain: r.Domain, CustomDomain: r.CustomDomain, PlanType: r.PlanType, Region: r.Region, Settings: r.Settings}
}

// keys returns the API keys to create. Without any in the request, there is one default key.
func (r Request) keys() []auth.KeyDraft {
	if r.APIKeys != nil {
		return r.APIKeys
	}
	return []auth.KeyDraft{{Name: "first key", Scopes: []string{"policies:write", "resources:write", "bouncers:write", "decisions:read"}}}
}

// Offences returns the errors in a request that its schema cannot express.
func (r Request) Offences() []fault.Detail {
	out := append(r.draft().Offences(), below("/administrator", r.Administrator.draft().Offences())...)
	for i, k := range r.APIKeys {
		out = append(out, below(keyPointer(i), k.Offences())...)
	}
	return out
}

// Provisioned is a new tenant with its credentials, which are shown only once.
type Provisioned struct {
	Tenant        tenant.Tenant   `json:"tenant" doc:"The tenant."`
	Administrator FirstPerson     `json:"administrator" doc:"The first person, with the role admin."`
	APIKeys       []auth.Key      `json:"api_keys" nullable:"false" doc:"The API keys, in the order of the request. Only this answer contains them."`
	Bouncer       *bouncer.Issued `json:"bouncer" doc:"The first bouncer with its token; null if none was asked for. Only this answer contains the token."`
}

// FirstPerson is the administrator of a new tenant.
type FirstPerson struct {
	ID       string `json:"id" doc:"Id of the person."`
	Username string `json:"username" doc:"Name to sign in with."`
	Email    string `json:"email" doc:"E-mail address."`
	Password string `json:"password,omitempty" doc:"The generated password; absent if the request had one."`
}

// Provision creates a tenant with its administrator, API keys and bouncer, all or nothing. The
// steps write to several stores. The tenant is hidden until the last step, which also stores
// the answer. If a server is killed in between, Recover removes the unfinished tenant, and so
// does the next call with the same key. key is the Idempotency-Key, which the caller has
// claimed; empty for none. Faults: Forbidden limit_exceeded; those of each part, with the
// part's pointer; Conflict if another request with the key has taken over.
func (s *Service) Provision(ctx context.Context, sc scope.Scope, key string, req Request) (Provisioned, error) {
	p := provisioning{Attempt: s.NewID(), Vendor: sc.Actor.ID, CreatedAt: db.Stamp(s.Now())}
	if key != "" {
		sum := sha256.Sum256([]byte(key))
		p.Request = hex.EncodeToString(sum[:])
		if out, done, err := s.resume(ctx, p); done || err != nil {
			return out, err
		}
	}
	p.Until = p.CreatedAt.Add(abandonedAfter)
	bounded, cancel := context.WithTimeout(ctx, provisionTime)
	defer cancel()
	out, err := s.provision(bounded, sc, &p, req)
	if err == nil {
		return out, nil
	}
	if p.Tenant == "" {
		return Provisioned{}, err
	}
	err = s.reason(ctx, p, err)
	clean, stop := context.WithTimeout(context.WithoutCancel(ctx), provisionTime)
	defer stop()
	return Provisioned{}, errors.Join(err, s.discard(clean, p))
}

// reason returns why an attempt failed. An attempt that another request has taken over can fail
// with any error, because its tenant is gone. Then the caller is only told to try again. An attempt
// whose first transaction did not commit was not taken over.
func (s *Service) reason(ctx context.Context, p provisioning, err error) error {
	if !p.begun {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), provisionTime)
	defer cancel()
	// The store may have ended several connections of a replica that was frozen, and only a call
	// notices that. So the first answers may be errors.
	for range askedTimes {
		held, failed := s.Tenants.IsAttemptOf(ctx, p.Tenant, p.Attempt)
		if failed != nil {
			continue
		}
		if !held {
			return tenant.TakenOver().Because(err)
		}
		return err
	}
	return err
}

// askedTimes is how often a failed attempt asks the store whether it was taken over.
const askedTimes = 3

// checkOwner checks, before a step in the new tenant's store, that no other request has taken over.
// The tenant of that request may have the same id, and would get our credentials.
func (s *Service) checkOwner(ctx context.Context, p *provisioning) error {
	held, err := s.Tenants.IsAttemptOf(ctx, p.Tenant, p.Attempt)
	if err == nil && !held {
		err = tenant.TakenOver()
	}
	return err
}

// resume looks for earlier calls with the same key. It returns the answer of a complete one, and
// removes the tenants of unfinished ones.
func (s *Service) resume(ctx context.Context, p provisioning) (Provisioned, bool, error) {
	earlier, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) ([]provisioning, error) {
		return selectRequest(ctx, tx, p.Vendor, p.Request, p.CreatedAt.Add(-keepAnswers))
	})
	if err != nil {
		return Provisioned{}, false, err
	}
	for _, old := range earlier {
		if len(old.Answer) == 0 {
			if err := s.discard(ctx, old); err != nil {
				return Provisioned{}, false, err
			}
			continue
		}
		var out Provisioned
		plain, err := s.Box.Open(old.Answer, sealedFor(old))
		if err == nil {
			err = json.Unmarshal(plain, &out)
		}
		return out, true, err
	}
	return Provisioned{}, false, nil
}

// provision runs the steps. It sets the tenant of p as soon as there is something to undo.
func (s *Service) provision(ctx context.Context, sc scope.Scope, p *provisioning, req Request) (Provisioned, error) {
	v, err := s.vendorOf(ctx, p.Vendor)
	if err != nil {
		return Provisioned{}, err
	}
	var out Provisioned
	t, err := s.Tenants.Begin(ctx, within(sc, scope.DefaultTenant), req.draft(), p.Vendor, p.Attempt, func(ctx context.Context, tx *db.Tx, t tenant.Tenant) error {
		if err := admit(ctx, tx, v); err != nil {
			return err
		}
		if err := checkKept(ctx, tx, v); err != nil {
			return err
		}
		begun := *p
		begun.Tenant = t.ID
		p.Tenant = t.ID
		return insertProvisioning(ctx, tx, begun)
	})
	p.begun = t.ID != ""
	if err != nil {
		return Provisioned{}, err
	}
	s.pause("tenant")
	out.Tenant, out.APIKeys = t, []auth.Key{}
	inside := within(sc, t.ID)
	if err := s.checkOwner(ctx, p); err != nil {
		return Provisioned{}, err
	}
	if out.Administrator, err = s.administrator(ctx, inside, req.Administrator); err != nil {
		return Provisioned{}, at("/administrator", err)
	}
	s.pause("administrator")
	for i, d := range req.keys() {
		if err := s.checkOwner(ctx, p); err != nil {
			return Provisioned{}, err
		}
		k, err := s.Auth.CreateKey(ctx, inside, d)
		if err != nil {
			return Provisioned{}, at(keyPointer(i), err)
		}
		out.APIKeys = append(out.APIKeys, k)
	}
	s.pause("keys")
	if req.Bouncer != nil {
		if err := s.checkOwner(ctx, p); err != nil {
			return Provisioned{}, err
		}
		b, err := s.Bouncers.Create(ctx, inside, *req.Bouncer)
		if err != nil {
			return Provisioned{}, at("/bouncer", err)
		}
		out.Bouncer = &b
	}
	s.pause("bouncer")
	out.Tenant.Limits = &tenant.Usage{UsersUsed: 1}
	if out.Bouncer != nil {
		out.Tenant.Limits.BouncersUsed = 1
	}
	answer, err := json.Marshal(out)
	if err != nil {
		return Provisioned{}, err
	}
	sealed, err := s.Box.Seal(answer, sealedFor(*p))
	if err != nil {
		return Provisioned{}, err
	}
	err = s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		if err := tenant.Complete(ctx, tx, t.ID, p.Attempt); err != nil {
			return err
		}
		if p.Request == "" {
			return deleteProvisioning(ctx, tx, p.Attempt)
		}
		return putAnswer(ctx, tx, p.Attempt, sealed)
	})
	if err == nil {
		s.pause("complete")
	}
	return out, err
}

// administrator creates the first person. Without a password in the request, it generates one.
func (s *Service) administrator(ctx context.Context, sc scope.Scope, a Administrator) (FirstPerson, error) {
	d, made := a.draft(), ""
	if d.Password == "" {
		var err error
		if made, err = auth.RandomPassword(s.Random); err != nil {
			return FirstPerson{}, err
		}
		d.Password = made
	}
	u, err := s.Users.Create(ctx, sc, d)
	return FirstPerson{ID: u.ID, Username: u.Username, Email: u.Email, Password: made}, err
}

// vendorOf reads a vendor.
func (s *Service) vendorOf(ctx context.Context, id string) (Vendor, error) {
	return db.Read(ctx, s.Stores, scope.DefaultTenant, func(tx *db.Tx) (Vendor, error) { return selectVendor(ctx, tx, id) })
}

// admit checks that a vendor may have one more tenant, within a transaction of the system
// store that holds the lock for new tenants. Fault: Forbidden limit_exceeded.
func admit(ctx context.Context, tx *db.Tx, v Vendor) error {
	used, err := tenant.CountOfVendor(ctx, tx, v.ID)
	if err != nil || used < v.MaxTenants {
		return err
	}
	return fault.Newf(fault.Forbidden, "limit_exceeded", "the vendor may have %d tenants and has %d", v.MaxTenants, used).
		With("limit", v.MaxTenants).With("used", used)
}

// checkKept limits the deleted tenants of a vendor whose data is kept for 30 days, so that
// their stores do not fill the disk. The limit is that of its tenants, at least fewestKept.
// Fault: Forbidden limit_exceeded.
func checkKept(ctx context.Context, tx *db.Tx, v Vendor) error {
	kept, err := tenant.CountDeletedOfVendor(ctx, tx, v.ID)
	most := max(v.MaxTenants, fewestKept)
	if err != nil || kept < most {
		return err
	}
	return fault.Newf(fault.Forbidden, "limit_exceeded", "the vendor has %d deleted tenants whose data is kept, the most that it may have: purge one with hard_delete=true", kept).
		With("limit", most).With("used", kept)
}

// Readmit is used as tenant.Service.Readmit. A deleted tenant counts against the vendor's limit
// again when it becomes active. There is no limit if the vendor no longer exists.
func (s *Service) Readmit(ctx context.Context, vendor string) (func(ctx context.Context, tx *db.Tx) error, error) {
	v, err := s.vendorOf(ctx, vendor)
	if fault.Is(err, fault.NotFound) {
		return func(context.Context, *db.Tx) error { return nil }, nil
	}
	return func(ctx context.Context, tx *db.Tx) error { return admit(ctx, tx, v) }, err
}

// Recover removes the unfinished tenants of killed servers, and deletes answers older than
// keepAnswers. It returns how many provisionings it removed.
func (s *Service) Recover(ctx context.Context) (int, error) {
	var abandoned []provisioning
	err := s.Stores.System().Write(ctx, func(tx *db.Tx) (err error) {
		if err := deleteAnswersBefore(ctx, tx, s.Now().Add(-keepAnswers)); err != nil {
			return err
		}
		abandoned, err = selectAbandoned(ctx, tx, s.Now())
		return err
	})
	if err != nil {
		return 0, err
	}
	for n, p := range abandoned {
		if err := s.discard(ctx, p); err != nil {
			return n, err
		}
	}
	return len(abandoned), nil
}

// Forget deletes the stored answer that holds a tenant's first credentials. It is one of
// tenant.Service.OnPurge.
func (s *Service) Forget(ctx context.Context, id scope.TenantID) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error { return deleteProvisioningsOf(ctx, tx, id) })
}

// discard removes an unfinished provisioning and its tenant.
func (s *Service) discard(ctx context.Context, p provisioning) error {
	if err := s.Tenants.Discard(ctx, p.Tenant, p.Attempt); err != nil {
		return err
	}
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error { return deleteProvisioning(ctx, tx, p.Attempt) })
}

// within returns the scope of a vendor in one of its tenants, where it may do what a platform
// administrator may.
func within(sc scope.Scope, id scope.TenantID) scope.Scope {
	return scope.Scope{Tenant: id, Actor: sc.Actor, Permissions: scope.Permissions{All: true}, Platform: true, RequestID: sc.RequestID}
}

// sealedFor returns the associated data that binds a sealed answer to its attempt.
func sealedFor(p provisioning) string { return "provisioning/" + p.Vendor + "/" + p.Attempt }

func (s *Service) pause(step string) {
	if s.between != nil {
		s.between(step)
	}
}

// Package vendor lets vendors who embed the product create and run tenants without a console.
// Platform administrators register vendors. A vendor's key may read, change and delete the
// tenants that the vendor created.
package vendor

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/metering"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// The default limits of a vendor.
const (
	usualTenants  = 100
	usualRequests = 5000
)

// Service holds the use cases. All fields are needed.
type Service struct {
	Stores   *db.Cluster
	Tenants  *tenant.Service
	Users    *user.Service
	Auth     *auth.Service
	Bouncers *bouncer.Service
	Metering *metering.Service
	// Box seals the answers that hold secrets.
	Box   *secret.Box
	Now   func() time.Time
	NewID func() string
	// Random is the source of generated passwords.
	Random io.Reader

	// between is called between two steps of a provisioning; for tests.
	between func(step string)
}

// Vendor is an embedding vendor.
type Vendor struct {
	ID              string              `json:"id" db:"id" doc:"Identifies the vendor."`
	Name            string              `json:"name" db:"name" doc:"Name of the vendor."`
	MaxTenants      int64               `json:"max_tenants" db:"max_tenants" doc:"How many tenants the vendor may have; deleted ones do not count."`
	RequestsPerHour int64               `json:"requests_per_hour" db:"requests_per_hour" doc:"How many requests the vendor may make in an hour, with all its keys."`
	TenantsUsed     int64               `json:"tenants_used" db:"-" doc:"How many tenants the vendor has."`
	Keys            []auth.DedicatedKey `json:"keys" db:"-" nullable:"false" doc:"The vendor's keys, newest first. After a replacement there may be two until the old one ends."`
	CreatedBy       string              `json:"created_by" db:"created_by" doc:"Who registered the vendor."`
	CreatedAt       time.Time           `json:"created_at" db:"created_at" doc:"When the vendor was registered."`
	UpdatedAt       time.Time           `json:"updated_at" db:"updated_at" doc:"When the vendor was last changed."`
	// Version is the ETag.
	Version int64 `json:"-" db:"version"`
}

// Issued is a vendor with a new key, which is shown only once.
type Issued struct {
	Vendor
	Key string `json:"key" doc:"The vendor's new key; shown once, stored as a hash."`
}

// Draft is the input for a new vendor.
type Draft struct {
	Name            string `json:"name" minLength:"1" maxLength:"128" doc:"Name of the vendor."`
	MaxTenants      *int64 `json:"max_tenants,omitempty" minimum:"0" maximum:"1000000" doc:"How many tenants the vendor may have; 100 by default."`
	RequestsPerHour *int64 `json:"requests_per_hour,omitempty" minimum:"1" maximum:"1000000" doc:"How many requests the vendor may make in an hour, with all its keys; 5000 by default."`
}

// Offences returns the errors in a draft that its schema cannot express.
func (d Draft) Offences() []fault.Detail { return fault.Offences(checkName(d.Name)) }

// Change is a change of a vendor; absent members stay.
type Change struct {
	Name            patch.Field[string] `json:"name,omitzero" minLength:"1" maxLength:"128" doc:"Name of the vendor."`
	MaxTenants      patch.Field[int64]  `json:"max_tenants,omitzero" minimum:"0" maximum:"1000000" doc:"How many tenants the vendor may have. Tenants above a lower limit stay."`
	RequestsPerHour patch.Field[int64]  `json:"requests_per_hour,omitzero" minimum:"1" maximum:"1000000" doc:"How many requests the vendor may make in an hour, with all its keys."`
}

// Page is one page of vendors.
type Page struct {
	Vendors []Vendor `json:"vendors" nullable:"false" doc:"The vendors by id."`
	Total   int64    `json:"total" doc:"Total number."`
}

func checkName(name string) error {
	if strings.TrimSpace(name) == "" {
		return fault.Invalidf("/name", "must not be empty")
	}
	return nil
}

// Holder returns a vendor for package auth, within a transaction of the default tenant's store.
// Fault: NotFound.
func Holder(ctx context.Context, tx *db.Tx, id string) (auth.Holder, error) {
	v, err := selectVendor(ctx, tx, id)
	return auth.Holder{Name: v.Name, Limit: v.RequestsPerHour}, err
}

// requirePlatform returns the scope in the default tenant, where vendors are stored. It refuses
// everybody but platform administrators.
func requirePlatform(sc scope.Scope) (scope.Scope, error) {
	if !sc.Platform {
		return sc, fault.New(fault.Forbidden, "permission_denied", "only a platform administrator can manage vendors")
	}
	sc.Tenant = scope.DefaultTenant
	return sc, nil
}

// Create registers a vendor and creates its first key.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Issued, error) {
	sc, err := requirePlatform(sc)
	if err != nil {
		return Issued{}, err
	}
	if err := checkName(d.Name); err != nil {
		return Issued{}, err
	}
	now := db.Stamp(s.Now())
	v := Vendor{
		ID: s.NewID(), Name: strings.TrimSpace(d.Name), MaxTenants: usualTenants, RequestsPerHour: usualRequests,
		CreatedBy: sc.Actor.Name, CreatedAt: now, UpdatedAt: now, Version: 1,
	}
	patch.Assign(&v.MaxTenants, d.MaxTenants)
	patch.Assign(&v.RequestsPerHour, d.RequestsPerHour)
	key, err := s.Auth.Dedicated.Issue(ctx, sc, scope.Vendor, v.ID, v.Name, 0, func(tx *db.Tx) error {
		if err := insertVendor(ctx, tx, v); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, v, "VENDOR_CREATED", map[string]any{"max_tenants": v.MaxTenants, "requests_per_hour": v.RequestsPerHour})
	})
	if err != nil {
		return Issued{}, err
	}
	return issued(v, key), nil
}

// issued returns a vendor with its new key. The answer has the key only once.
func issued(v Vendor, key auth.DedicatedKey) Issued {
	text := key.Key
	key.Key = ""
	if len(v.Keys) == 0 {
		v.Keys = []auth.DedicatedKey{key}
	}
	return Issued{v, text}
}

// List returns a page of the vendors, by id.
func (s *Service) List(ctx context.Context, sc scope.Scope, skip, limit int) (Page, error) {
	sc, err := requirePlatform(sc)
	if err != nil {
		return Page{}, err
	}
	var p Page
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if p, err = selectVendors(ctx, tx, skip, limit); err != nil {
			return err
		}
		for i := range p.Vendors {
			if p.Vendors[i].Keys, err = auth.DedicatedKeys(ctx, tx, scope.Vendor, p.Vendors[i].ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Page{}, err
	}
	for i := range p.Vendors {
		if p.Vendors[i].TenantsUsed, err = s.used(ctx, p.Vendors[i].ID); err != nil {
			return Page{}, err
		}
	}
	return p, nil
}

// Get returns a vendor. Fault: NotFound.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id string) (Vendor, error) {
	sc, err := requirePlatform(sc)
	if err != nil {
		return Vendor{}, err
	}
	var v Vendor
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if v, err = selectVendor(ctx, tx, id); err != nil {
			return err
		}
		v.Keys, err = auth.DedicatedKeys(ctx, tx, scope.Vendor, id)
		return err
	})
	if err != nil {
		return Vendor{}, err
	}
	v.TenantsUsed, err = s.used(ctx, id)
	return v, err
}

// used counts a vendor's tenants.
func (s *Service) used(ctx context.Context, id string) (int64, error) {
	return db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (int64, error) { return tenant.CountOfVendor(ctx, tx, id) })
}

// Update changes the members that were sent. If ifVersion is not 0 and not the current version,
// the fault is Precondition.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id string, ch Change, ifVersion int64) (Vendor, error) {
	sc, err := requirePlatform(sc)
	if err != nil {
		return Vendor{}, err
	}
	err = s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		old, err := lockVendor(ctx, tx, id)
		if old, err = fault.Current(old, err, "vendor", old.Version, ifVersion); err != nil {
			return err
		}
		v := old
		ch.Name.Apply(&v.Name)
		ch.MaxTenants.Apply(&v.MaxTenants)
		ch.RequestsPerHour.Apply(&v.RequestsPerHour)
		if err := checkName(v.Name); err != nil {
			return err
		}
		v.Name, v.UpdatedAt, v.Version = strings.TrimSpace(v.Name), db.Stamp(s.Now()), old.Version+1
		if err := updateVendor(ctx, tx, v); err != nil {
			return err
		}
		if _, err := tx.Bump(ctx, user.Revision); err != nil { // its rate limit is cached
			return err
		}
		return s.record(ctx, tx, sc, v, "VENDOR_UPDATED", changesOf(old, v))
	})
	if err != nil {
		return Vendor{}, err
	}
	return s.Get(ctx, sc, id)
}

// Rotate creates a new key of a vendor. Its earlier keys end after grace.
func (s *Service) Rotate(ctx context.Context, sc scope.Scope, id string, grace time.Duration) (Issued, error) {
	v, err := s.Get(ctx, sc, id)
	if err != nil {
		return Issued{}, err
	}
	if sc, err = requirePlatform(sc); err != nil {
		return Issued{}, err
	}
	key, err := s.Auth.Dedicated.Issue(ctx, sc, scope.Vendor, id, v.Name, grace, func(tx *db.Tx) error {
		_, err := lockVendor(ctx, tx, id) // it may have been deleted meanwhile
		return err
	})
	if err != nil {
		return Issued{}, err
	}
	// The caller must get the key, even if the vendor cannot be read again.
	if fresh, err := s.Get(ctx, sc, id); err == nil {
		v = fresh
	}
	return issued(v, key), nil
}

// Delete deletes a vendor and ends all its keys at once. Its tenants stay, and platform
// administrators run them from then on.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id string, ifVersion int64) (Vendor, error) {
	sc, err := requirePlatform(sc)
	if err != nil {
		return Vendor{}, err
	}
	var v Vendor
	err = s.Auth.Dedicated.Revoke(ctx, sc, scope.Vendor, id, func(tx *db.Tx) (err error) {
		v, err = lockVendor(ctx, tx, id)
		if v, err = fault.Current(v, err, "vendor", v.Version, ifVersion); err != nil {
			return err
		}
		if err := deleteVendor(ctx, tx, id); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, v, "VENDOR_DELETED", map[string]any{})
	})
	return v, err
}

package metering

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// Billing is the bill of the current period up to now.
type Billing struct {
	SubscriptionID     string    `json:"subscription_id" doc:"Identifies the tenant's subscription."`
	Status             string    `json:"status" enum:"active,suspended,canceled" doc:"Follows the status of the tenant; canceled: the tenant is deleted."`
	Plan               string    `json:"plan" enum:"standard,pro,enterprise" doc:"The tenant's current plan; the whole period is billed by it."`
	CurrentPeriodStart time.Time `json:"current_period_start" doc:"Periods are months. They begin at midnight UTC on the day of the month on which the tenant was created, or on the last day of shorter months."`
	CurrentPeriodEnd   time.Time `json:"current_period_end" doc:"Start of the next period."`
	Usage              BillUsage `json:"usage" doc:"Usage."`
	Billing            Bill      `json:"billing" doc:"Cost, by the operator's prices."`
	PaymentMethodSet   bool      `json:"payment_method_set" doc:"Whether a payment method is stored. Its token is never returned."`
	BillingAddress     *Address  `json:"billing_address" doc:"Address for bills; null until it is set."`
}

// BillUsage is what a tenant uses.
type BillUsage struct {
	Policies  int64   `json:"policies" doc:"Current number of controls and libraries."`
	Users     int64   `json:"users" doc:"Current number of people."`
	Bouncers  int64   `json:"bouncers" doc:"Current number of bouncers."`
	APICalls  int64   `json:"api_calls" doc:"API calls in the period, as GET metrics counts them."`
	StorageGB float64 `json:"storage_gb" doc:"Current size of the tenant's data in the store, in units of 1,000,000,000 bytes."`
}

// Bill is the cost of usage.
type Bill struct {
	BaseCost  float64 `json:"base_cost" doc:"Cost of the plan."`
	UsageCost float64 `json:"usage_cost" doc:"Cost of usage beyond what the plan includes: the sum of the lines."`
	TotalCost float64 `json:"total_cost" doc:"Sum of both."`
	Currency  string  `json:"currency" doc:"ISO 4217 code."`
	Lines     []Line  `json:"lines" nullable:"false" doc:"Meters for which the plan has a price."`
}

// Line is one meter of a bill.
type Line struct {
	Meter    string  `json:"meter" enum:"policies,users,bouncers,api_calls,storage_gb" doc:"The member of usage that it applies to."`
	Used     float64 `json:"used" doc:"Usage."`
	Included float64 `json:"included" doc:"Amount that the plan includes."`
	Per      float64 `json:"per" doc:"Number of units for this price."`
	Price    float64 `json:"price" doc:"Price of that many units; a part costs its share."`
	Cost     float64 `json:"cost" doc:"Cost, rounded to cents."`
}

// Address is the postal address for bills.
type Address struct {
	Line1      string `json:"line1" doc:"Street and number."`
	City       string `json:"city" doc:"City."`
	State      string `json:"state" doc:"State or province."`
	PostalCode string `json:"postal_code" doc:"Postal code."`
	Country    string `json:"country" doc:"Country."`
}

// AddressChange is a change of an address: members that are sent change, the others stay.
type AddressChange struct {
	Line1      patch.Field[string] `json:"line1,omitzero" maxLength:"256" doc:"Street and number."`
	City       patch.Field[string] `json:"city,omitzero" maxLength:"128" doc:"City."`
	State      patch.Field[string] `json:"state,omitzero" maxLength:"128" doc:"State or province."`
	PostalCode patch.Field[string] `json:"postal_code,omitzero" maxLength:"32" doc:"Postal code."`
	Country    patch.Field[string] `json:"country,omitzero" maxLength:"64" doc:"Country."`
}

// Change is a change of a tenant's billing: members that are sent change, the others stay.
type Change struct {
	PaymentMethod  patch.Field[string]        `json:"payment_method,omitzero" minLength:"1" maxLength:"256" writeOnly:"true" doc:"A token of your payment provider; null removes it. Never the number of a card (422)."`
	BillingAddress patch.Field[AddressChange] `json:"billing_address,omitzero" doc:"Only the members that are sent change; null removes the address."`
}

// Offences returns the errors that the JSON schema cannot express.
func (ch Change) Offences() []fault.Detail { return fault.Offences(ch.check()) }

func (ch Change) check() error {
	if looksLikeCard(ch.PaymentMethod.Value) {
		return fault.Invalidf("/payment_method", "looks like a card number: send a token of your payment provider")
	}
	return nil
}

// account is what is stored about a tenant's billing.
type account struct {
	// Payment is the token of the payment method, sealed, in base64; empty: none.
	Payment string   `json:"payment,omitempty"`
	Address *Address `json:"address,omitempty"`
}

// Billing returns the bill of a tenant's current period.
func (s *Service) Billing(ctx context.Context, sc scope.Scope, id scope.TenantID) (Billing, error) {
	t, err := s.Tenants.Get(ctx, sc, id)
	if err != nil {
		return Billing{}, err
	}
	_ = s.Calls.CopyTenant(ctx, id) // ignore the error: a store that cannot be written can still be read
	from, to := period(t.CreatedAt, s.Now())
	out := Billing{
		SubscriptionID: subscriptionID(t), Plan: t.PlanType, CurrentPeriodStart: from, CurrentPeriodEnd: to,
		Status: map[string]string{tenant.Active: "active", tenant.Suspended: "suspended"}[t.Status],
		Usage:  BillUsage{Policies: t.Limits.PoliciesUsed, Users: t.Limits.UsersUsed, Bouncers: t.Limits.BouncersUsed},
	}
	if out.Status == "" {
		out.Status = "canceled"
	}
	var a account
	err = s.Stores.Read(ctx, id, func(tx *db.Tx) (err error) {
		if out.Usage.APICalls, err = sumCalls(ctx, tx, from, to); err != nil {
			return err
		}
		a, err = selectAccount(ctx, tx)
		return err
	})
	if err != nil {
		return Billing{}, err
	}
	size, err := s.Stores.Size(ctx, id)
	if err != nil {
		return Billing{}, err
	}
	out.PaymentMethodSet, out.BillingAddress = a.Payment != "", a.Address
	out.Usage.StorageGB = float64(size) / 1e9
	out.Billing = s.Prices.bill(t.PlanType, out.Usage, size)
	return out, nil
}

// paymentPlace names the tenant that the sealed token of a payment method is bound to.
func paymentPlace(id scope.TenantID) string { return "payment " + string(id) }

// Update changes the payment method and the address, and returns the bill.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id scope.TenantID, ch Change) (Billing, error) {
	if _, err := s.Tenants.Get(ctx, sc, id); err != nil {
		return Billing{}, err
	}
	if err := ch.check(); err != nil {
		return Billing{}, err
	}
	sealed := ""
	if token := ch.PaymentMethod.Value; token != "" {
		raw, err := s.Box.Seal([]byte(token), paymentPlace(id))
		if err != nil {
			return Billing{}, fault.Wrap(err, "seal the means of payment")
		}
		sealed = base64.StdEncoding.EncodeToString(raw)
	}
	err := s.Stores.WriteUnder(ctx, id, "tenant", func(tx *db.Tx) error {
		a, err := selectAccount(ctx, tx)
		if err != nil {
			return err
		}
		changes := map[string]any{} // names only: an address is personal data
		if ch.PaymentMethod.Sent {
			a.Payment = sealed
			changes["payment_method"] = map[string]any{"set": sealed != ""}
		}
		if ch.BillingAddress.Sent {
			a.Address = applyAddress(ch.BillingAddress, a.Address)
			changes["billing_address"] = map[string]any{"set": a.Address != nil}
		}
		if err := putAccount(ctx, tx, a); err != nil {
			return err
		}
		home := sc
		home.Tenant = id
		return audit.Append(ctx, tx, home, s.Now(), audit.Entry{Type: "BILLING_UPDATED", Object: "billing", ObjectID: string(id), Changes: changes})
	})
	if err != nil {
		return Billing{}, err
	}
	return s.Billing(ctx, sc, id)
}

// applyAddress returns the address after a change; nil: there is none.
func applyAddress(ch patch.Field[AddressChange], to *Address) *Address {
	if ch.Null {
		return nil
	}
	var a Address
	if to != nil {
		a = *to
	}
	v := ch.Value
	v.Line1.Apply(&a.Line1)
	v.City.Apply(&a.City)
	v.State.Apply(&a.State)
	v.PostalCode.Apply(&a.PostalCode)
	v.Country.Apply(&a.Country)
	return &a
}

// subscriptionID returns the id of a tenant's subscription. It is computed from the tenant's id and
// the time of its creation, so it never changes and need not be stored.
func subscriptionID(t tenant.Tenant) string {
	sum := sha256.Sum256([]byte("subscription " + string(t.ID) + " " + t.CreatedAt.UTC().Format(time.RFC3339Nano)))
	return "sub_" + hex.EncodeToString(sum[:12])
}

// period returns the month that contains now, of a subscription that began at a time.
func period(began, now time.Time) (from, to time.Time) {
	began, now = began.UTC().Truncate(24*time.Hour), now.UTC()
	months := (now.Year()-began.Year())*12 + int(now.Month()) - int(began.Month())
	if monthsAfter(began, months).After(now) {
		months--
	}
	return monthsAfter(began, months), monthsAfter(began, months+1)
}

// monthsAfter returns the same day some months later, or the last day of a shorter month.
func monthsAfter(day time.Time, months int) time.Time {
	first := time.Date(day.Year(), day.Month()+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(day.Day(), last)-1)
}

// bill returns the cost of usage under a plan. size is the storage in bytes.
func (p Prices) bill(plan string, u BillUsage, size int64) Bill {
	out := Bill{Currency: p.Currency, Lines: []Line{}}
	prices, ok := p.plans[plan]
	if !ok {
		return out
	}
	used := map[string]*big.Rat{
		meterPolicies: big.NewRat(u.Policies, 1), meterUsers: big.NewRat(u.Users, 1), meterBouncers: big.NewRat(u.Bouncers, 1),
		meterCalls: big.NewRat(u.APICalls, 1), meterStorage: big.NewRat(size, 1e9),
	}
	base, usage := cents(prices.base), new(big.Int)
	for _, name := range meters() {
		m, ok := prices.meters[name]
		if !ok {
			continue
		}
		cost := m.cost(used[name])
		usage.Add(usage, cost)
		out.Lines = append(out.Lines, Line{
			Meter: name, Used: decimal(used[name]), Included: decimal(m.included), Per: decimal(m.per), Price: decimal(m.price), Cost: money(cost),
		})
	}
	out.BaseCost, out.UsageCost, out.TotalCost = money(base), money(usage), money(base.Add(base, usage))
	return out
}

func decimal(r *big.Rat) float64 { f, _ := r.Float64(); return f }

// looksLikeCard reports whether a text may be or contain a card number: 12 to 19 digits and nothing
// else but separators, or 13 to 19 digits with a valid check digit among other characters. The
// digits may be of any script.
func looksLikeCard(text string) bool {
	var digits []byte
	other := false
	for _, r := range norm.NFKC.String(text) {
		switch d, ok := digit(r); {
		case ok:
			digits = append(digits, d)
		case unicode.IsSpace(r), unicode.IsPunct(r), unicode.Is(unicode.Cf, r):
		default:
			if holdsCard(digits) {
				return true
			}
			digits, other = digits[:0], true
		}
	}
	return holdsCard(digits) || !other && len(digits) >= 12 && len(digits) <= 19
}

// digit returns the value of a decimal digit of any script; false: r is not a digit.
func digit(r rune) (byte, bool) {
	if !unicode.Is(unicode.Nd, r) {
		return 0, false
	}
	// The digits of a script are ten consecutive characters from 0 to 9.
	n := byte(0)
	for n < 9 && unicode.Is(unicode.Nd, r-1) {
		r, n = r-1, n+1
	}
	return n, true
}

// holdsCard reports whether there are 13 to 19 digits with a valid check digit (Luhn).
func holdsCard(digits []byte) bool {
	return len(digits) >= 13 && len(digits) <= 19 && luhn(slices.Clone(digits))
}

func luhn(digits []byte) bool {
	slices.Reverse(digits)
	sum := 0
	for i, d := range digits {
		n := int(d)
		if i%2 == 1 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0 && strings.Trim(string(digits), "\x00") != ""
}

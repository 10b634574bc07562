package metering

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strings"
)

// The meters of a bill.
const (
	meterPolicies = "policies"
	meterUsers    = "users"
	meterBouncers = "bouncers"
	meterCalls    = "api_calls"
	meterStorage  = "storage_gb"
)

// meters returns all meters, in the order of a bill.
func meters() []string {
	return []string{meterPolicies, meterUsers, meterBouncers, meterCalls, meterStorage}
}

// defaultCurrency is the currency of bills if the configuration names none.
const defaultCurrency = "USD"

// Prices are the prices of the plans. With the zero value, nothing costs anything.
type Prices struct {
	Currency string
	plans    map[string]planPrices
}

// planPrices is the price of one plan for a period, and the prices of its meters.
type planPrices struct {
	base   *big.Rat
	meters map[string]meterPrice
}

// meterPrice is the price of usage beyond what the plan includes: price for each per units.
type meterPrice struct{ included, per, price *big.Rat }

// amount is a decimal number, not negative, that is written as a JSON number or string.
type amount struct{ *big.Rat }

// UnmarshalJSON implements json.Unmarshaler.
func (a *amount) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if !regexp.MustCompile(`^\d{1,18}(\.\d{1,9})?$`).MatchString(text) {
		return fmt.Errorf("%s is not an amount: a decimal number that is not negative, with up to 9 decimals", data)
	}
	a.Rat, _ = new(big.Rat).SetString(text) // cannot fail: the text matches the pattern
	return nil
}

// or returns the amount, or n if there is none.
func (a amount) or(n int64) *big.Rat {
	if a.Rat == nil {
		return big.NewRat(n, 1)
	}
	return a.Rat
}

// planText is a plan in the configuration.
type planText struct {
	Base     amount     `json:"base"`
	Policies *meterText `json:"policies"`
	Users    *meterText `json:"users"`
	Bouncers *meterText `json:"bouncers"`
	Calls    *meterText `json:"api_calls"`
	Storage  *meterText `json:"storage_gb"`
}

// meterText is a meter in the configuration.
type meterText struct {
	Included amount `json:"included"`
	Per      amount `json:"per"`
	Price    amount `json:"price"`
}

// LoadPrices parses prices from JSON text, or from the file that the text names. Without a text,
// nothing costs anything.
func LoadPrices(text string) (Prices, error) {
	p := Prices{Currency: defaultCurrency, plans: map[string]planPrices{}}
	if text == "" {
		return p, nil
	}
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		raw, err := os.ReadFile(text)
		if err != nil {
			return p, err
		}
		text = string(raw)
	}
	var in struct {
		Currency string              `json:"currency"`
		Plans    map[string]planText `json:"plans"`
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return p, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return p, fmt.Errorf("there is text after the object")
	}
	if in.Currency != "" {
		p.Currency = in.Currency
	}
	if !regexp.MustCompile(`^[A-Z]{3}$`).MatchString(p.Currency) {
		return p, fmt.Errorf("currency: %q is not a code of ISO 4217 such as EUR", p.Currency)
	}
	for name, plan := range in.Plans {
		if !slices.Contains([]string{"standard", "pro", "enterprise"}, name) {
			return p, fmt.Errorf("plans: %q is not standard, pro or enterprise", name)
		}
		prices, err := plan.prices()
		if err != nil {
			return p, fmt.Errorf("plans: %s: %w", name, err)
		}
		p.plans[name] = prices
	}
	return p, nil
}

func (t planText) prices() (planPrices, error) {
	out := planPrices{base: t.Base.or(0), meters: map[string]meterPrice{}}
	for name, m := range map[string]*meterText{
		meterPolicies: t.Policies, meterUsers: t.Users, meterBouncers: t.Bouncers, meterCalls: t.Calls, meterStorage: t.Storage,
	} {
		if m == nil {
			continue
		}
		price := meterPrice{included: m.Included.or(0), per: m.Per.or(1), price: m.Price.or(0)}
		if price.per.Sign() == 0 {
			return out, fmt.Errorf("%s: per must be more than 0", name)
		}
		out.meters[name] = price
	}
	return out, nil
}

// cost returns the cost of used units, in whole cents, rounded half up.
func (m meterPrice) cost(used *big.Rat) *big.Int {
	over := new(big.Rat).Sub(used, m.included)
	if over.Sign() <= 0 {
		return new(big.Int)
	}
	return cents(over.Mul(over, m.price).Quo(over, m.per))
}

// cents returns an amount that is not negative in whole cents, rounded half up. It is a big.Int,
// because a price times usage can exceed an int64.
func cents(amount *big.Rat) *big.Int {
	n := new(big.Rat).Mul(amount, big.NewRat(100, 1))
	n.Add(n, big.NewRat(1, 2))
	return new(big.Int).Quo(n.Num(), n.Denom())
}

// money converts cents to units of the currency.
func money(cents *big.Int) float64 { return decimal(new(big.Rat).SetFrac(cents, big.NewInt(100))) }

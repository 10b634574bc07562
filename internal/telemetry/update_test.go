package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// push returns a signed update, as a license server sends it.
func push(key string, members map[string]any, edit ...func(map[string]any)) []byte {
	body, _ := json.Marshal(members) // members sorted, no spaces
	signed := maps.Clone(members)
	signed["webhook_signature"] = outbound.Signature([]byte(key), body)
	for _, f := range edit {
		f(signed)
	}
	out, _ := json.MarshalIndent(signed, "", "  ")
	return out
}

// TestLicenseUpdates: only the license server can send an update, and each is applied once.
func TestLicenseUpdates(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		ctx := context.Background()
		send := func(body []byte) (Updated, error) { return b.ApplyUpdate(ctx, scope.DefaultTenant, "r1", body) }
		good := map[string]any{
			"customer_id": "default", "subscription_tier": "pro", "trial_end_date": nil, "subscription_status": "active", "effective_date": "2026-11-01T00:00:00Z",
		}
		with := func(changes map[string]any) map[string]any {
			out := maps.Clone(good)
			maps.Copy(out, changes)
			return out
		}
		if _, err := send(push("", good)); !fault.Is(err, fault.NotFound) {
			t.Errorf("update without a configuration: got %v, want not found", err)
		}
		for _, body := range []string{`[]`, `null`, `"x"`, `{"seats":5}`} {
			if _, err := send([]byte(body)); !fault.Is(err, fault.BadRequest) && !fault.Is(err, fault.Invalid) {
				t.Errorf("update %s: got %v, want a bad request or invalid", body, err)
			}
		}
		b.update(Change{URL: new(b.server.URL + "/base")})
		if _, err := send(push("", good)); !fault.Is(err, fault.NotFound) {
			t.Errorf("update without a key: got %v, want not found", err)
		}
		b.server.set(200, "{}")
		b.configure()
		sign := func(f func(string) any) func(map[string]any) {
			return func(m map[string]any) { m["webhook_signature"] = f(m["webhook_signature"].(string)) }
		}
		for name, body := range map[string][]byte{
			"no signature":        push(apiKey, good, func(m map[string]any) { delete(m, "webhook_signature") }),
			"an empty one":        push(apiKey, good, sign(func(string) any { return "" })),
			"a number":            push(apiKey, good, sign(func(string) any { return 7 })),
			"of another key":      push("other", good),
			"of an empty key":     push("", good),
			"cut short":           push(apiKey, good, sign(func(s string) any { return s[:len(s)-2] })),
			"in capitals":         push(apiKey, good, sign(func(s string) any { return "sha256=" + strings.ToUpper(s[7:]) })),
			"without a prefix":    push(apiKey, good, sign(func(s string) any { return s[7:] })),
			"with a space":        push(apiKey, good, sign(func(s string) any { return s + " " })),
			"an altered member":   push(apiKey, good, func(m map[string]any) { m["subscription_tier"] = "enterprise" }),
			"a member less":       push(apiKey, good, func(m map[string]any) { delete(m, "trial_end_date") }),
			"another customer":    push(apiKey, with(map[string]any{"customer_id": "somebody"})),
			"of a signature once": push(apiKey, good, sign(func(s string) any { return []string{s} })),
		} {
			if _, err := send(body); !fault.Is(err, fault.Unauthenticated) {
				t.Errorf("update with a wrong signature (%s): got %v, want unauthenticated", name, err)
			}
		}
		for name, changes := range map[string]map[string]any{
			"no date":        {"effective_date": ""},
			"a bad date":     {"effective_date": "soon"},
			"a bad trial":    {"trial_end_date": "never"},
			"no customer":    {"customer_id": ""},
			"no tier":        {"subscription_tier": ""},
			"a signed extra": {"seats": "5"},
			"a number":       {"subscription_status": 1},
		} {
			if _, err := send(push(apiKey, with(changes))); !fault.Is(err, fault.Invalid) {
				t.Errorf("update with %s: got %v, want invalid", name, err)
			}
		}
		if st := b.status(); st.CanPromote {
			t.Fatalf("status after refused updates = %+v, want no license", st)
		}
		first, err := send(push(apiKey, good))
		if err != nil || first.Status != "success" || first.Tier != "pro" || !b.status().CanPromote {
			t.Fatalf("update = %+v, %v, want success", first, err)
		}
		for range 20 {
			b.clock.move(time.Minute)
			if again, err := send(push(apiKey, good)); err != nil || again != first {
				t.Fatalf("update again = %+v, %v, want %+v", again, err, first)
			}
		}
		// Another update with the same date follows. The first cannot be replayed after it, in any
		// spelling.
		ended := with(map[string]any{"subscription_status": "canceled"})
		if got, err := send(push(apiKey, ended)); err != nil || got.Status != "success" || b.status().CanPromote {
			t.Fatalf("update to canceled = %+v, %v, want success", got, err)
		}
		respelled := strings.Replace(string(push(apiKey, good)), `"pro"`, `"\u0070ro"`, 1)
		for _, body := range []string{string(push(apiKey, good)), respelled} {
			if got, err := send([]byte(body)); err != nil || got != first || b.status().CanPromote {
				t.Errorf("replayed update = %+v, %v, want its first answer without effect", got, err)
			}
		}
		older := push(apiKey, with(map[string]any{"effective_date": "2026-10-31"}))
		if got, err := send(older); err != nil || got.Status != "ignored" || got.UpdatedUsers != 0 || b.status().CanPromote {
			t.Errorf("older update = %+v, %v, want it ignored", got, err)
		}
		newer := with(map[string]any{"effective_date": "2026-12-01", "subscription_tier": "trial", "trial_end_date": "2026-11-01"})
		if got, err := send(push(apiKey, newer)); err != nil || got.Status != "success" {
			t.Errorf("newer update = %+v, %v, want success", got, err)
		}
		check, err := b.CheckPromotion(ctx, admin)
		if err != nil || check.Allowed || check.Reason != reasonTrialExpired || check.TrialEndDate == nil {
			t.Errorf("CheckPromotion = %+v, %v, want an expired trial", check, err)
		}
		if got, err := send(push(apiKey, good)); err != nil || got.Status != "ignored" {
			t.Errorf("replayed update after a newer one = %+v, %v, want it ignored", got, err)
		}
	})
}

// TestSignatureSpellings: signatures are valid however the sender escapes the JSON that it signs.
func TestSignatureSpellings(t *testing.T) {
	key := []byte(apiKey)
	for _, sent := range []struct{ signed, body string }{
		{`{"customer_id":"caf\u00e9","trial_end_date":null}`, `{"trial_end_date": null, "customer_id": "caf\u00e9", "webhook_signature": "%s"}`}, // as Python does
		{`{"customer_id":"café","trial_end_date":null}`, `{"customer_id":"café","trial_end_date":null,"webhook_signature":"%s"}`},
		{`{"customer_id":"café","trial_end_date":null}`, `{"customer_id":"caf\u00e9","trial_end_date":null,"webhook_signature":"%s"}`}, // signed unescaped, sent escaped
		{`{"customer_id":"\u003c&>","trial_end_date":1.50}`, `{"customer_id":"\u003c&>","trial_end_date":1.50,"webhook_signature":"%s"}`},
	} {
		members, err := readMembers(fmt.Appendf(nil, sent.body, outbound.Signature(key, []byte(sent.signed))))
		errtest.Must(t, err)
		content, err := verifySignature(key, members)
		if err != nil || strings.Contains(string(content), "webhook_signature") {
			t.Errorf("verifySignature of %s = %s, %v, want it valid", sent.body, content, err)
		}
	}
}

func FuzzVerifySignature(f *testing.F) {
	f.Add([]byte(`{"a":1,"webhook_signature":"sha256=00"}`))
	f.Add(push(apiKey, map[string]any{"customer_id": "x"}))
	f.Fuzz(func(t *testing.T, body []byte) {
		members, err := readMembers(body)
		if err != nil {
			return
		}
		content, err := verifySignature([]byte("an unknown key"), members)
		if err == nil {
			t.Fatalf("verifySignature of %s = %s, want an error", body, content)
		}
	})
}

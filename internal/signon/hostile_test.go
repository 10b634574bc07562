package signon

import (
	"fmt"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// newService returns a service whose clock shows the time that now points to.
func newService(t *testing.T, now *time.Time) *Service {
	t.Helper()
	return &Service{Target: outboundtest.Local(t), Now: func() time.Time { return *now }}
}

// TestWithdrawnKeys: within minutes, a key that the provider withdrew is refused, and a new key with
// the id of an old one is accepted.
func TestWithdrawnKeys(t *testing.T) {
	for _, kid := range []string{"two", "one", ""} {
		idp, now := newIssuer(t), time.Now()
		s, f := newService(t, &now), flow{Issuer: idp.URL, ClientID: "client", Nonce: "n"}
		check := func(token string) error {
			p, err := s.provider(t.Context(), idp.URL)
			if err == nil {
				_, err = s.idClaims(t.Context(), p, token, f)
			}
			return err
		}
		errtest.Must(t, check(idp.token(t, now)))
		withdrawn := idp.key // stolen
		idp.rotate(t, kid)
		now = now.Add(6 * time.Minute)
		forged := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
			"iss": idp.URL, "aud": "client", "sub": "ann", "nonce": "n", "iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
		})
		forged.Header["kid"] = "one"
		text, err := forged.SignedString(withdrawn)
		errtest.Must(t, err)
		if err := check(text); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("token of the withdrawn key, after key %q: got %v, want unauthenticated", kid, err)
		}
		if err := check(idp.token(t, now)); err != nil {
			t.Errorf("token of the new key %q: %v", kid, err)
		}
	}
}

// TestSilentProvider: while a provider does not answer, only one sign-in or sign-out in metadataRetry
// waits for it.
func TestSilentProvider(t *testing.T) {
	idp, now := newIssuer(t), time.Now()
	s := newService(t, &now)
	ask := func() {
		t.Helper()
		errtest.Must(t, errtest.Of(s.provider(t.Context(), idp.URL)))
	}
	ask()
	idp.mu.Lock()
	idp.down, idp.calls = true, 0
	idp.mu.Unlock()
	now = now.Add(2 * time.Hour)
	for range 20 {
		ask()
	}
	if idp.calls != 1 {
		t.Errorf("%d calls of a provider that is down, want 1", idp.calls)
	}
	now = now.Add(2 * time.Minute)
	ask()
	if idp.calls != 2 {
		t.Errorf("%d calls of it two minutes later, want 2", idp.calls)
	}
	now = now.Add(metadataMaxAge)
	if _, err := s.provider(t.Context(), idp.URL); !fault.Is(err, fault.BadGateway) {
		t.Errorf("provider after a day: got %v, want a bad gateway", err)
	}
}

// TestClaimsByName: the names of claims are case-sensitive. Claims such as Aud or ISS, whose names
// the users of a provider may be able to choose, have no effect.
func TestClaimsByName(t *testing.T) {
	idp, now := newIssuer(t), time.Now()
	s, f := newService(t, &now), flow{Issuer: idp.URL, ClientID: "client", Nonce: "n"}
	p, err := s.provider(t.Context(), idp.URL)
	errtest.Must(t, err)
	hour := now.Add(time.Hour).Unix()
	for name, claims := range map[string]map[string]any{
		"Aud":             {"aud": "other", "Aud": "client"},
		"aud, then zzAUD": {"aud": "other", "zzAUD": 1, "aUD": "client"},
		"no aud":          {"aud": nil, "AUD": "client"},
		"ISS":             {"iss": "https://other.test", "iSS": idp.URL},
		"iſs":             {"iss": "https://other.test", "iſs": idp.URL},
		"Exp":             {"exp": now.Add(-time.Hour).Unix(), "exP": hour},
		"Iat":             {"iat": now.Add(-time.Hour).Unix(), "iaT": now.Unix()},
		"Nbf":             {"nbf": hour, "nbF": now.Unix()},
		"Nonce":           {"nonce": "other", "noncE": "n"},
		"exp as text":     {"exp": fmt.Sprint(hour)},
		"iat as text":     {"iat": fmt.Sprint(now.Unix())},
		"exp as a list":   {"exp": []int64{hour}},
		"exp of 1e300":    {"exp": 1e300, "iat": 1e300},
		"aud of numbers":  {"aud": []any{"client", 1}, "azp": "client"},
		"aud of lists":    {"aud": []any{[]string{"client"}}},
		"aud as a member": {"aud": map[string]any{"client": true}},
		"azp as a list":   {"azp": []string{"client"}},
		"sub as a number": {"sub": 7},
	} {
		all := jwt.MapClaims{"iss": idp.URL, "aud": "client", "sub": "ann", "nonce": "n", "iat": now.Unix(), "exp": hour}
		for k, v := range claims {
			if all[k] = v; v == nil {
				delete(all, k)
			}
		}
		token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, all)
		token.Header["kid"] = idp.kid
		text, err := token.SignedString(idp.key)
		errtest.Must(t, err)
		if _, err := s.idClaims(t.Context(), p, text, f); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("token with %s: got %v, want unauthenticated", name, err)
		}
	}
}

// TestVerifiedEmail: email_verified counts only for the address in the same document.
func TestVerifiedEmail(t *testing.T) {
	for _, c := range []struct{ token, info, want string }{
		{`{"email":"a@x.test","email_verified":true}`, `{}`, "a@x.test"},
		{`{}`, `{"email":"a@x.test","email_verified":"true"}`, "a@x.test"},
		{`{"email":"a@x.test"}`, `{"email":"a@x.test","email_verified":true}`, "a@x.test"},
		{`{"email":"boss@x.test"}`, `{"email":"a@x.test","email_verified":true}`, "a@x.test"},
		{`{"email":"boss@x.test"}`, `{"email_verified":true}`, ""},
		{`{"email_verified":true}`, `{"email":"boss@x.test"}`, ""},
		{`{"email":"boss@x.test","email_verified":false}`, `{"email":"a@x.test","email_verified":true}`, ""},
		{`{"email":"boss@x.test","email_verified":1}`, `{"email_verified":true}`, ""},
		{`{"email":"boss@x.test","email_verified":"True"}`, `{}`, ""},
		{`{"email":"boss@x.test"}`, `{}`, ""},
	} {
		var f facts
		var errs [2]error
		f.token, errs[0] = value.Decode([]byte(c.token), value.Limits{})
		f.info, errs[1] = value.Decode([]byte(c.info), value.Limits{})
		if errs[0] != nil || errs[1] != nil {
			t.Fatal(errs)
		}
		if got, err := f.verifiedEmail(); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("verified address of %s and %s = %q, %v, want %q", c.token, c.info, got, err, c.want)
		}
	}
}

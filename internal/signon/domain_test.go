package signon

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// TestAllowedDomains: only ASCII letters are compared ignoring case. By the rules of Unicode, the
// Kelvin sign would equal k, and another domain would be allowed.
func TestAllowedDomains(t *testing.T) {
	s := Settings{EmailDomains: []string{" Kiosk.example "}}.normal()
	for email, allowed := range map[string]bool{
		"ann@kiosk.example": true, "ann@KIOSK.Example": true, `"a@b"@kiosk.example`: true,
		"ann@\u212aiosk.example": false, "ann@kio\u017fk.example": false, "kiosk.example": false,
		"ann@sub.kiosk.example": false, "ann@kiosk.example.": false, "ann@kiosk.example@evil.example": false,
	} {
		claims, err := value.FromAny(map[string]any{"email": email, "email_verified": true})
		errtest.Must(t, err)
		if err := (facts{settings: s, token: claims}).checkDomain(); (err == nil) != allowed {
			t.Errorf("checkDomain of %q = %v, want allowed: %v", email, err, allowed)
		}
	}
}

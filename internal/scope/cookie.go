package scope

import "strings"

// The names of the console's session cookie. Browsers take one with the prefix
// __Host- from the host itself alone, and over TLS alone: no other subdomain can
// set it.
const (
	SessionCookie       = "gatehouse"
	SecureSessionCookie = "__Host-gatehouse"
)

// The names of the cookie that keeps a sign-in at an identity provider together, from its
// start until the browser comes back.
const (
	SignOnCookie       = "gatehouse-sign-on"
	SecureSignOnCookie = "__Host-gatehouse-sign-on"
)

// sessionSecret is the length of the secret in a session cookie: 256 bits in
// base64url without padding.
const sessionSecret = 43

// SessionTenant returns the tenant of a session cookie's value, if it has the form
// <tenant>.<secret>. It does not check the secret.
func SessionTenant(value string) (TenantID, bool) {
	t, secret, ok := strings.Cut(value, ".")
	if !ok || t == "" || len(t) > 63 || len(secret) != sessionSecret {
		return "", false
	}
	for _, c := range []byte(t) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return "", false
		}
	}
	return TenantID(t), true
}

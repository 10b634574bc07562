// Package factor keeps the second factor of people who sign in with a password: time-based
// one-time codes of an authenticator app (RFC 6238), and recovery codes for people who have lost
// the app.
//
//	Begin ─▶ secret, sealed at rest; shown once as text, otpauth:// address and QR code
//	Confirm ─▶ the first code proves that the app has the secret: sign-ins now need a code
//	Verify ─▶ a code of this step or one next to it, each step once; or a recovery code, once
//
// All of it runs in the transactions of package auth, which checks the password,
// counts wrong codes as failed sign-ins, and starts and ends sessions.
package factor

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // RFC 6238's default, and the only one that all apps know; HMAC does not need collision resistance
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// The parameters of RFC 6238 that all authenticator apps know.
const (
	period = 30 * time.Second
	digits = 6
	// drift is how many steps the clock of an app may be ahead or behind.
	drift = 1
	// secretBytes is the length of a secret in bytes: the recommended 160 bits (RFC 4226 section 4).
	secretBytes = 20
)

// issuer is what apps show as the name of the service.
const issuer = "gatehouse"

// stepAt returns the number of the time step that contains a time.
func stepAt(now time.Time) int64 { return now.Unix() / int64(period/time.Second) }

// codeOf returns the code of a step (RFC 4226 section 5.3).
func codeOf(secret []byte, step int64) string {
	var counter [8]byte
	binary.BigEndian.PutUint64(counter[:], uint64(step)) //nolint:gosec // the RFC's counter; a step before 1970 is nobody's
	mac := hmac.New(sha1.New, secret)
	mac.Write(counter[:])
	sum := mac.Sum(nil)
	at := sum[len(sum)-1] & 0x0f
	n := binary.BigEndian.Uint32(sum[at:]) & 0x7fffffff
	return fmt.Sprintf("%0*d", digits, n%1_000_000)
}

// matches returns the steps around now that have a code. Its time does not depend on the code.
func matches(secret []byte, code string, now time.Time) []int64 {
	var found []int64
	for d := int64(-drift); d <= drift; d++ {
		step := stepAt(now) + d
		if subtle.ConstantTimeCompare([]byte(codeOf(secret, step)), []byte(code)) == 1 {
			found = append(found, step)
		}
	}
	return found
}

// encoding is the text form of secrets and recovery codes.
var encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// address returns the otpauth:// address that apps read. Its label names the account and the tenant,
// so that a person with accounts in several tenants can tell them apart.
func address(secret, tenant, username string) string {
	label := url.PathEscape(issuer+":"+username) + url.PathEscape(" ("+tenant+")")
	q := url.Values{"secret": {secret}, "issuer": {issuer}, "algorithm": {"SHA1"}, "digits": {"6"}, "period": {"30"}}
	return "otpauth://totp/" + label + "?" + strings.ReplaceAll(q.Encode(), "+", "%20")
}

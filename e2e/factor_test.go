package e2e

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the algorithm of RFC 6238
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSecondFactor enrols an authenticator app, signs in with its code and with a recovery
// code, and enrols when the tenant requires it.
func TestSecondFactor(t *testing.T) {
	t.Parallel()
	chromium(t)
	dir := t.TempDir()
	port := strconv.Itoa(freePorts(t, 1)[0])
	d := deployment{console: "http://127.0.0.1:" + port}
	launch(t, exec.Command(build(t), "server"), dir, []string{
		"GATEHOUSE_DEMO=true", "GATEHOUSE_ADMIN_PASSWORD=" + password, "GATEHOUSE_LISTEN=127.0.0.1:" + port, "GATEHOUSE_DATA_DIR=" + filepath.Join(dir, "data"),
	})
	eventually(t, "the server answers", answers(d.console+"/health"))
	p := open(t, d)
	p.expect("/api/v1/auth/") // refusals before the sign-in, and of passwords without a code
	p.size(1440, 900)
	p.signIn("/settings/security")

	p.wait("the form", `document.querySelector(".gh-top") && document.querySelector("main h1") && document.querySelector("main [name=password]")`)
	p.accessible("security without a second factor")
	p.fill("password", password)
	p.press("main form button[type=submit]")
	p.wait("the QR code", `document.querySelector("main img[src^='data:image/svg']")?.naturalWidth > 0`)
	p.accessible("a QR code")
	secret := p.read(`document.querySelector("main .gh-command pre").textContent.trim()`)
	step := time.Now().Unix() / 30
	p.fill("code", codeOf(t, secret, step))
	p.press("main form button[type=submit]")
	p.wait("the recovery codes", `document.querySelector("main [role=status] pre")`)
	p.accessible("recovery codes")
	codes := strings.Fields(p.read(`document.querySelector("main [role=status] pre").textContent`))
	if len(codes) != 10 {
		t.Fatalf("got %d recovery codes, want 10", len(codes))
	}
	p.press("main [role=status] button:not([aria-label])")
	p.shows("Recovery codes left")
	p.accessible("security with a second factor")

	for what, code := range map[string]func() string{
		"a code":          func() string { return codeOf(t, secret, max(step+1, time.Now().Unix()/30)) },
		"a recovery code": func() string { return codes[0] },
	} {
		p.signOut()
		p.fill("username", "admin")
		p.fill("password", password)
		p.press("main form button[type=submit]")
		p.wait("the second step", `document.querySelector("[name=code]")`)
		p.accessible("the second step of the sign-in")
		p.fill("code", "000000x")
		p.press("main form button[type=submit]")
		p.shows("The code is wrong")
		p.fill("code", code())
		p.press("main form button[type=submit]")
		p.wait("signed in with "+what, `location.pathname !== "/login" && document.querySelector(".gh-top")`)
	}
	p.check()
}

// codeOf is the code of a secret at a step of time (RFC 6238).
func codeOf(t *testing.T, secret string, step int64) string {
	t.Helper()
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	var counter [8]byte
	binary.BigEndian.PutUint64(counter[:], uint64(step)) //nolint:gosec // a step of today
	mac := hmac.New(sha1.New, key)
	mac.Write(counter[:])
	sum := mac.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[19]&15:][:4])&0x7fffffff%1000000)
}

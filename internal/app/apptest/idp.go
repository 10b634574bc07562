package apptest

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

var buildIDP = builder("idp", "github.com/zitadel/oidc/v3/example/server")

// IDPUser is a person at the identity provider.
type IDPUser struct {
	ID, Username, Password, Email string
	EmailVerified                 bool
}

// StartIDP starts a certified OpenID Connect provider as a process and returns its issuer. Its
// client is "web" with the secret "secret". If the program is missing, the test is skipped, or
// fails if everything is required.
func StartIDP(t testing.TB, redirectURI string, people ...IDPUser) (issuer string) {
	t.Helper()
	path, err := buildIDP()
	if err != nil {
		SkipMissing(t, "no identity provider: "+err.Error())
	}
	users := map[string]IDPUser{}
	for _, u := range people {
		users[u.ID] = u
	}
	text, err := json.Marshal(users)
	errtest.Must(t, err)
	file := filepath.Join(t.TempDir(), "users.json")
	errtest.Must(t, os.WriteFile(file, text, 0o600))
	_, port, err := net.SplitHostPort(freeport.Addr(t))
	errtest.Must(t, err)
	log := &Log{}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), "PORT="+port, "REDIRECT_URI="+redirectURI, "USERS_FILE="+file)
	cmd.Stdout, cmd.Stderr = log, log
	errtest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	issuer = "http://localhost:" + port + "/"
	Eventually(t, time.Minute, func() error {
		res, err := http.Get(issuer + ".well-known/openid-configuration")
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
	return issuer
}

// Cookies are the cookies that a browser keeps.
type Cookies map[string]string

// Keep stores the cookies of an answer.
func (c Cookies) Keep(h http.Header) {
	for _, k := range (&http.Response{Header: h}).Cookies() {
		if k.MaxAge < 0 || k.Value == "" {
			delete(c, k.Name)
		} else {
			c[k.Name] = k.Value
		}
	}
}

// String returns the value of the Cookie header.
func (c Cookies) String() string {
	var list []string
	for name, value := range c {
		list = append(list, name+"="+value)
	}
	return strings.Join(list, "; ")
}

package tenancy_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/totptest"
)

// enrol enrols a second factor for the client's person. It returns the app and the recovery codes.
func enrol(t *testing.T, c *apptest.Client, more body) (*totptest.Next, []string) {
	t.Helper()
	var begun struct {
		Secret string `json:"secret"`
		URI    string `json:"otpauth_uri"`
		QR     string `json:"qr_svg"`
	}
	c.Do(t, "POST", "/auth/second-factor", more).Want(200).Into(&begun)
	if !strings.Contains(begun.URI, "secret="+begun.Secret) || !strings.HasPrefix(begun.QR, "<svg ") {
		t.Fatalf("POST /auth/second-factor = %+v, want the secret in the URI and a picture", begun)
	}
	app := &totptest.Next{Secret: begun.Secret, Now: time.Now}
	var done struct {
		Codes []string `json:"recovery_codes"`
	}
	c.Do(t, "POST", "/auth/second-factor/confirm", body{"code": app.Code(t)}).Want(200).Into(&done)
	if len(done.Codes) != 10 {
		t.Fatalf("POST /auth/second-factor/confirm has %d recovery codes, want 10", len(done.Codes))
	}
	return app, done.Codes
}

// TestSecondFactor tests enrolment, sign-ins in one and in two steps, with a token and with a cookie,
// the tenant's setting, and the reset by an administrator, over HTTP and on the command line.
func TestSecondFactor(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		const password = "Long-enough-1"
		var made struct {
			ID string `json:"id"`
		}
		s.Admin.Do(t, "POST", "/tenants", body{"name": "Acme", "domain": "acme.example"}).Want(200, 201).Into(&made)
		admin := s.Admin.With("X-Tenant-ID", made.ID)
		ids := map[string]string{}
		for name, role := range map[string]string{"ann": "admin", "ben": "viewer"} {
			ids[name] = admin.Do(t, "POST", "/users", body{"username": name, "email": name + "@acme.example", "password": password, "roles": []string{role}}).Want(200, 201).Text("id")
		}
		at := s.Anonymous().With("X-Tenant-ID", made.ID)
		login := func(more body) *apptest.Response {
			all := body{"username": "ben", "password": password}
			maps.Copy(all, more)
			return at.Do(t, "POST", "/auth/login", all)
		}
		signedIn := func(r *apptest.Response) *apptest.Client {
			return s.WithToken(r.Want(200).Text("access_token"))
		}
		ben := signedIn(login(nil))
		ben.Do(t, "POST", "/auth/second-factor", body{"password": "wrong-password"}).WantError(403, "confirmation_failed")
		app, codes := enrol(t, ben, body{"password": password})

		challenge := login(nil).WantError(401, "second_factor_required").Text("challenge")
		login(body{"code": "000000x"}).WantError(401, "second_factor_invalid")
		login(body{"password": "wrong-password", "code": codes[0]}).WantError(401, "invalid_credentials")
		second := func(c *apptest.Client, path, code string) *apptest.Response {
			return c.Do(t, "POST", path, body{"challenge": challenge, "code": code})
		}
		code := app.Code(t)
		second(s.Anonymous(), "/auth/login/second-factor", code).WantError(401, "invalid_challenge") // path the default tenant
		second(at.With("Origin", s.URL), "/auth/sessions/second-factor", code).WantError(401, "invalid_challenge")
		ben = signedIn(second(at, "/auth/login/second-factor", code))
		second(at, "/auth/login/second-factor", codes[1]).WantError(401, "invalid_challenge")
		login(body{"code": code}).WantError(401, "second_factor_invalid")
		ben.Do(t, "GET", "/auth/me", nil).Want(200)

		page := at.With("Origin", s.URL)
		challenge = page.Do(t, "POST", "/auth/sessions", body{"username": "ben", "password": password}).WantError(401, "second_factor_required").Text("challenge")
		second(at.With("Origin", "https://evil.example"), "/auth/sessions/second-factor", codes[0]).WantError(403, "cross_origin")
		cookies := apptest.Cookies{}
		cookies.Keep(second(page, "/auth/sessions/second-factor", codes[0]).Want(200).Header)
		s.Anonymous().With("Origin", s.URL).With("Cookie", cookies.String()).Do(t, "GET", "/auth/me", nil).Want(200)
		if left := ben.Do(t, "GET", "/auth/second-factor", nil).Want(200).Get("recovery_codes_left"); left != float64(9) {
			t.Errorf("GET /auth/second-factor shows %v recovery codes, want 9", left)
		}

		ann := signedIn(at.Do(t, "POST", "/auth/login", body{"username": "ann", "password": password}))
		key := s.Key(t, ann, "sandbox", "policies:read", "policies:write")
		wide := s.Key(t, ann, "production", "policies:read")
		for what, c := range map[string]*apptest.Client{"a key for sandbox": key, "another key": wide} {
			c.Do(t, "GET", "/auth/second-factor", nil).Expect(what, 403)
			c.Do(t, "POST", "/auth/second-factor", body{"password": password}).Expect(what, 403)
			c.Do(t, "DELETE", "/users/"+ids["ben"]+"/second-factor", nil).Expect(what, 403)
		}
		ann.Do(t, "PUT", "/tenants/"+made.ID, body{"settings": body{"require_second_factor": true}}).Want(200)
		ann.Do(t, "GET", "/users", nil).WantError(403, "second_factor_enrolment_required")
		ann.Do(t, "POST", "/developer-portal/token", body{}).WantError(403, "second_factor_enrolment_required")
		ann.Do(t, "POST", "/auth/second-factor/disable", body{"password": password, "code": "123456"}).WantError(403, "second_factor_enrolment_required")
		if r := ann.Do(t, "GET", "/auth/me", nil).Want(200); r.Get("must_enrol_second_factor") != true {
			t.Errorf("GET /auth/me = %s, want must_enrol_second_factor", r.Body)
		}
		wide.Do(t, "GET", "/policies", nil).Want(200)
		ben.Do(t, "GET", "/auth/me", nil).Want(200)
		enrol(t, ann, body{})
		ann.Do(t, "GET", "/users", nil).Want(200)

		ann.Do(t, "DELETE", "/users/"+ids["ben"]+"/second-factor", nil).Want(204)
		ann.Do(t, "DELETE", "/users/"+ids["ben"]+"/second-factor", nil).WantError(409, "no_second_factor")
		ben.Do(t, "GET", "/auth/me", nil).Want(401)
		signedIn(login(nil)).Do(t, "GET", "/policies", nil).WantError(403, "second_factor_enrolment_required")

		for _, c := range append(codes, app.Secret) {
			if strings.Contains(s.Log.String(), c) {
				t.Error("the log has a recovery code or the secret")
			}
		}
		checkCommandLine(t, s)
	})
}

// checkCommandLine signs the administrator in with `gatehouse login`, and removes the second factor on
// the server's host.
func checkCommandLine(t *testing.T, s *apptest.Server) {
	t.Helper()
	app, codes := enrol(t, s.Admin, body{"password": apptest.Password})
	program := apptest.Binary(t)
	run := func(env []string, stdin string, args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), append(env, "GATEHOUSE_SESSION="+filepath.Join(t.TempDir(), "session.json"))...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	in := []string{"login", "--url", s.URL, "--password-stdin"}
	if out, err := run(nil, apptest.Password+"\n", in...); err == nil || !strings.Contains(out, "GATEHOUSE_CODE") {
		t.Errorf("gatehouse login without a code = %v %s, want a failure that names GATEHOUSE_CODE", err, out)
	}
	if out, err := run([]string{"GATEHOUSE_CODE=" + app.Code(t)}, apptest.Password+"\n", in...); err != nil {
		t.Errorf("gatehouse login with a code = %v %s, want success", err, out)
	}
	runOnTerminal(t, program, s.URL, []step{
		{"Password: ", apptest.Password},
		{"recovery code: ", "nonsense"},
		{"The code is wrong, or was used already.", ""},
		{"recovery code: ", codes[0]},
		{"Signed in to", ""},
	})

	out, err := run(append(s.Env(), "GATEHOUSE_NEW_PASSWORD=Another-long-1"), "", "admin", "reset-password", "--remove-second-factor")
	if err != nil || !strings.Contains(out, "no second factor") {
		t.Errorf("gatehouse admin reset-password = %v %s, want success and no second factor", err, out)
	}
	s.Login(t, "admin", "Another-long-1")
}

// step is a text that the program shows on a terminal, and the input after it; empty: none.
type step struct{ output, input string }

// runOnTerminal runs `gatehouse login` on a terminal.
func runOnTerminal(t *testing.T, program, url string, steps []step) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	errtest.Must(t, err)
	defer master.Close()
	errtest.Must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	errtest.Must(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	errtest.Must(t, err)
	cmd := exec.Command(program, "login", "--url", url)
	cmd.Env = append(os.Environ(), "GATEHOUSE_SESSION="+filepath.Join(t.TempDir(), "session.json"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	errtest.Must(t, cmd.Start())
	tty.Close()
	output := &apptest.Log{}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			_, _ = output.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	seen := 0
	for _, st := range steps {
		apptest.Eventually(t, 20*time.Second, func() error {
			at := bytes.Index([]byte(output.String())[seen:], []byte(st.output))
			if at < 0 {
				return fmt.Errorf("the terminal shows %s, want %q", output.String(), st.output)
			}
			seen += at + len(st.output)
			return nil
		})
		if st.input != "" {
			errtest.Must(t, errtest.Of(master.WriteString(st.input+"\n")))
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("gatehouse login = %v, want success\n%s", err, output.String())
	}
	if strings.Contains(output.String(), apptest.Password) {
		t.Error("the terminal shows the password")
	}
}

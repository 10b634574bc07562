package tenancy_test

import (
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// loopback lets the server call providers on this machine.
const loopback = "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8,::1/128"

// attempt is a browser's sign-in.
type attempt struct {
	c       *apptest.Client
	cookies apptest.Cookies
	// location is the address of the redirect, query its authorization request.
	location string
	query    url.Values
}

// startSignOn starts a sign-in.
func startSignOn(t *testing.T, c *apptest.Client, tenant, returnTo string) *attempt {
	t.Helper()
	a := &attempt{c: c, cookies: apptest.Cookies{}}
	res := c.Do(t, "GET", "/auth/sso/login?"+url.Values{"tenant_id": {tenant}, "return_to": {returnTo}}.Encode(), nil).Want(302)
	a.cookies.Keep(res.Header)
	a.location = res.Header.Get("Location")
	u, err := url.Parse(a.location)
	errtest.Must(t, err)
	a.query = u.Query()
	return a
}

// finish brings the browser back from the provider.
func (a *attempt) finish(t *testing.T, query url.Values) *apptest.Response {
	t.Helper()
	res := a.c.With("Cookie", a.cookies.String()).With("Sec-Fetch-Site", "cross-site").Do(t, "GET", "/auth/sso/callback?"+query.Encode(), nil)
	a.cookies.Keep(res.Header)
	return res
}

// callbackQuery returns the provider's correct answer.
func (a *attempt) callbackQuery(p *provider) url.Values {
	return url.Values{"code": {p.authorize(a.query)}, "state": a.query["state"], "session_state": {"theirs"}}
}

// me returns the person as whom the browser is signed in.
func (a *attempt) me(t *testing.T) *apptest.Response {
	t.Helper()
	return a.c.With("Cookie", a.cookies.String()).With("Sec-Fetch-Site", "same-origin").Do(t, "GET", "/auth/me", nil)
}

// newCompanyWithProvider creates a company whose people sign in at p.
func newCompanyWithProvider(t *testing.T, s *apptest.Server, name string, p *provider, more body) company {
	t.Helper()
	c := newCompany(t, s, body{"name": name})
	settings := body{"issuer": p.URL, "client_id": "client", "client_secret": "s:cr t", "create_users": true}
	maps.Copy(settings, more)
	c.admin.Do(t, "PUT", c.path("/sign-on"), settings).Want(200)
	return c
}

// verifiedClaims returns the claims of a person with a verified e-mail address.
func verifiedClaims(sub string, more body) map[string]any {
	claims := map[string]any{"sub": sub, "email": sub + "@acme.example", "email_verified": true}
	maps.Copy(claims, more)
	return claims
}

// TestSignOn checks that people sign in at their provider and get the roles and attributes of its
// claims, and lose them when it no longer sends them.
func TestSignOn(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		idp := newProvider(t)
		acme := newCompanyWithProvider(t, s, "Acme", idp, body{
			"name": "Acme Login", "role_claim": "/realm_access/roles", "role_map": body{"staff": []string{"viewer"}, "boss": []string{"Policy Author", "buyer"}},
			"department_claim": "dept", "attribute_claims": body{"clearance": "https://acme.example/clearance"}, "allowed_email_domains": []string{"ACME.example"},
			"audience": "https://api.acme.example", "scopes": []string{"email", "groups"},
		})
		record := acme.admin.Do(t, "GET", acme.path("/sign-on"), nil).Want(200)
		if record.Get("client_secret_set") != true || strings.Contains(string(record.Body), "s:cr t") || record.Get("redirect_uri") != s.URL+"/api/v1/auth/sso/callback" {
			t.Errorf("GET /sign-on = %s, want the redirect URI and no secret", record.Body)
		}
		offer := s.Anonymous().Do(t, "GET", "/auth/sso?tenant_id="+acme.id, nil).Want(200)
		if offer.Get("available") != true || offer.Get("name") != "Acme Login" || offer.Get("password_login") != true {
			t.Errorf("GET /auth/sso = %s, want Acme Login and passwords", offer.Body)
		}

		// The claims come from the ID token. Missing ones come from the provider's user information.
		idp.setClaims(map[string]any{"sub": "ann", "amr": []string{"pwd", "otp"}, "acr": "2", "sid": "theirs-1"})
		idp.info = map[string]any{
			"sub": "ann", "email": "Ann@acme.example", "email_verified": "true", "dept": "Sales", "https://acme.example/clearance": 3,
			"realm_access": body{"roles": []string{"boss", "unknown"}}, "amr": []string{"forged"},
		}
		a := startSignOn(t, s.Anonymous(), acme.id, "/policies?environment=sandbox")
		for name, want := range map[string]string{
			"response_type": "code", "client_id": "client", "scope": "openid email groups", "audience": "https://api.acme.example", "code_challenge_method": "S256",
			"redirect_uri": s.URL + "/api/v1/auth/sso/callback",
		} {
			if a.query.Get(name) != want {
				t.Errorf("the authorization request has %s %q, want %q", name, a.query.Get(name), want)
			}
		}
		res := a.finish(t, a.callbackQuery(idp)).Want(303)
		if res.Header.Get("Location") != "/policies?environment=sandbox" || len(a.cookies) != 1 {
			t.Errorf("the callback leads to %s with the cookies %v, want the policies with one cookie", res.Header.Get("Location"), a.cookies)
		}
		me := a.me(t).Want(200)
		if me.Get("username") != "Ann@acme.example" || me.Get("department") != "Sales" || fmt.Sprint(me.Get("roles")) != "[policy_author buyer]" ||
			fmt.Sprint(me.Get("attributes")) != "map[acr:2 amr:[pwd otp] clearance:3]" {
			t.Errorf("GET /auth/me = %s, want the name, roles and attributes of the claims", me.Body)
		}
		id := me.Text("id")

		// A control reads how the person signed in.
		apptest.Enforce(t, acme.admin, "sandbox")
		apptest.Activate(t, acme.admin, "strong", "sandbox", "package strong\nallow if \"otp\" in input.user.attributes.amr\n", nil)
		wantDecision := func(want string) {
			t.Helper()
			apptest.Eventually(t, time.Minute, func() error {
				res := acme.admin.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": id}, "resource": body{"type": "api", "path": "/x"}}).Want(200)
				if got := res.Get("decision"); got != want {
					return fmt.Errorf("the decision is %v, want %s", got, want)
				}
				return nil
			})
		}
		wantDecision("PERMIT")

		// The provider sends fewer claims: roles, department and attributes go, and earlier sessions end.
		idp.setClaims(verifiedClaims("ann", body{"realm_access": body{"roles": []string{"staff"}}, "sid": "theirs-2"}))
		idp.info = map[string]any{"sub": "ann"}
		again := startSignOn(t, s.Anonymous(), acme.id, "")
		if res := again.finish(t, again.callbackQuery(idp)).Want(303); res.Header.Get("Location") != "/" {
			t.Errorf("the callback leads to %s, want /", res.Header.Get("Location"))
		}
		me = again.me(t).Want(200)
		if me.Get("id") != id || fmt.Sprint(me.Get("roles")) != "[viewer]" || me.Get("department") != "" || fmt.Sprint(me.Get("attributes")) != "map[]" {
			t.Errorf("GET /auth/me after the second sign-in = %s, want the viewer without department and attributes", me.Body)
		}
		a.me(t).Want(401)
		wantDecision("DENY")

		// Signing out leads to the provider's page.
		out := again.c.With("Cookie", again.cookies.String()).With("Origin", s.URL).Do(t, "POST", "/auth/logout", nil).Want(200)
		end, err := url.Parse(fmt.Sprint(out.Get("end_session_url")))
		if err != nil || !strings.HasPrefix(end.String(), idp.URL+"/end?theme=dark&") || end.Query().Get("client_id") != "client" ||
			end.Query().Get("post_logout_redirect_uri") != s.URL+"/login" || strings.Count(end.Query().Get("id_token_hint"), ".") != 2 {
			t.Errorf("POST /auth/logout leads to %s (%v), want the provider's page with our client and return address", end, err)
		}
		again.me(t).Want(401)

		// The audit has no secret.
		log := string(acme.admin.Do(t, "GET", "/audit/events?limit=200", nil).Body)
		for _, secret := range []string{"s:cr t", "access", end.Query().Get("id_token_hint")} {
			if strings.Contains(strings.ReplaceAll(log, "access_requests", ""), `"`+secret+`"`) {
				t.Errorf("the audit has the secret %q", secret)
			}
		}
	}, loopback)
}

// TestCertifiedProvider checks that people sign in and out at a certified provider, which runs as a
// process, as a browser does it.
func TestCertifiedProvider(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite, loopback)
	issuer := apptest.StartIDP(t, s.URL+"/api/v1/auth/sso/callback", apptest.IDPUser{ID: "id1", Username: "ann", Password: "verysecure", Email: "ann@acme.example", EmailVerified: true})
	acme := newCompany(t, s, body{"name": "Acme"})
	acme.admin.Do(t, "PUT", acme.path("/sign-on"), body{"issuer": issuer, "client_id": "web", "client_secret": "secret", "create_users": true, "default_roles": []string{"viewer"}}).Want(200)
	a := startSignOn(t, s.Anonymous(), acme.id, "/")

	// The provider's pages lead back to the server.
	page := &apptest.Client{}
	res := page.Do(t, "GET", a.location, nil).Want(302)
	form, err := url.Parse(res.Header.Get("Location"))
	errtest.Must(t, err)
	posted := url.Values{"id": {form.Query().Get("authRequestID")}, "username": {"ann"}, "password": {"verysecure"}}
	page.Base = strings.TrimSuffix(issuer, "/")
	res = page.With("Content-Type", "application/x-www-form-urlencoded").Do(t, "POST", "/login/username", []byte(posted.Encode())).Want(302)
	page.Base = ""
	res = page.Do(t, "GET", res.Header.Get("Location"), nil).Want(302)
	back, err := url.Parse(res.Header.Get("Location"))
	if err != nil || !strings.HasPrefix(back.String(), s.URL+"/api/v1/auth/sso/callback?") {
		t.Fatalf("the provider sends the browser to %s (%v), want our callback", back, err)
	}
	a.finish(t, back.Query()).Want(303)
	if me := a.me(t).Want(200); me.Get("email") != "ann@acme.example" || fmt.Sprint(me.Get("roles")) != "[viewer]" || fmt.Sprint(me.Get("attributes", "amr")) != "[pwd]" {
		t.Errorf("GET /auth/me = %s, want ann as a viewer with a password", me.Body)
	}

	out := a.c.With("Cookie", a.cookies.String()).With("Origin", s.URL).Do(t, "POST", "/auth/logout", nil).Want(200)
	end, err := url.Parse(fmt.Sprint(out.Get("end_session_url")))
	errtest.Must(t, err)
	// Its client has no return URI, so it shows its own page.
	q := end.Query()
	q.Del("post_logout_redirect_uri")
	if res := page.Do(t, "GET", issuer+strings.TrimPrefix(end.Path, "/")+"?"+q.Encode(), nil); res.Status != 302 || !strings.HasSuffix(res.Header.Get("Location"), "logged-out") {
		t.Errorf("the sign-out at the provider = %d to %q, want 302 to logged-out: %s", res.Status, res.Header.Get("Location"), res.Body)
	}
}

// TestSignOnAbuse checks that nobody signs in with anything but their own sign-in at their own
// provider.
func TestSignOnAbuse(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		idp, evil := newProvider(t), newProvider(t)
		acme := newCompanyWithProvider(t, s, "Acme", idp, nil)
		other := newCompanyWithProvider(t, s, "Other", evil, nil)
		strict := newCompanyWithProvider(t, s, "Strict", idp, body{"create_users": false, "allowed_email_domains": []string{"acme.example"}})
		acme.admin.Do(t, "POST", "/users", body{"username": "local", "email": "local@acme.example", "password": apptest.Password, "roles": []string{"admin"}}).Want(201)
		start := "/auth/sso/login?" + url.Values{"tenant_id": {acme.id}}.Encode()
		for site, status := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 302, "none": 302} {
			s.Anonymous().With("Sec-Fetch-Site", site).Do(t, "GET", start, nil).Want(status)
		}
		elsewhere := s.Anonymous().With("Sec-Fetch-Site", "cross-site").With("Accept", "text/html").Do(t, "GET", start, nil).Want(303)
		if at := elsewhere.Header.Get("Location"); at != "/login?error=cross_origin&tenant_id="+acme.id || elsewhere.Header.Get("Set-Cookie") != "" {
			t.Errorf("a link on another site leads to %s with the cookie %q, want the error cross_origin", at, elsewhere.Header.Get("Set-Cookie"))
		}
		seenCodes := map[string]bool{} // the codes that the test has sent as a browser
		claims := func(more body) map[string]any { return verifiedClaims("mallory", more) }
		hourAgo := time.Now().Add(-time.Hour).Unix()
		for _, c := range []struct {
			what   string
			tenant string
			claims map[string]any
			sign   func(jwt.MapClaims) string
			answer func(a *attempt, q url.Values)
			status int
			code   string
		}{
			{what: "another issuer", claims: claims(body{"iss": evil.URL}), status: 401, code: "invalid_id_token"},
			{what: "an issuer with a slash", claims: claims(body{"iss": idp.URL + "/"}), status: 401, code: "invalid_id_token"},
			{what: "no issuer", claims: claims(body{"iss": nil}), status: 401, code: "invalid_id_token"},
			{what: "another audience", claims: claims(body{"aud": "another"}), status: 401, code: "invalid_id_token"},
			{what: "no audience", claims: claims(body{"aud": nil}), status: 401, code: "invalid_id_token"},
			{what: "several audiences for another party", claims: claims(body{"aud": []string{"client", "another"}, "azp": "another"}), status: 401, code: "invalid_id_token"},
			{what: "several audiences for nobody", claims: claims(body{"aud": []string{"client", "another"}}), status: 401, code: "invalid_id_token"},
			{what: "another party", claims: claims(body{"azp": "another"}), status: 401, code: "invalid_id_token"},
			{what: "no algorithm", claims: claims(nil), sign: unsigned(t), status: 401, code: "invalid_id_token"},
			{what: "the public key as a secret", claims: claims(nil), sign: idp.hmacWithPublicKey, status: 401, code: "invalid_id_token"},
			{what: "another provider's key", claims: claims(nil), sign: evil.signToken, status: 401, code: "invalid_id_token"},
			{what: "expired", claims: claims(body{"exp": hourAgo}), status: 401, code: "invalid_id_token"},
			{what: "without an end", claims: claims(body{"exp": nil}), status: 401, code: "invalid_id_token"},
			{what: "long ago", claims: claims(body{"iat": hourAgo}), status: 401, code: "invalid_id_token"},
			{what: "in the future", claims: claims(body{"iat": time.Now().Add(time.Hour).Unix()}), status: 401, code: "invalid_id_token"},
			{what: "nobody", claims: claims(body{"sub": nil}), status: 401, code: "invalid_id_token"},
			{what: "the nonce of somebody else", claims: claims(body{"nonce": "another"}), status: 401, code: "invalid_id_token"},
			{what: "no nonce", claims: claims(body{"nonce": nil}), status: 401, code: "invalid_id_token"},
			{what: "the state of somebody else", claims: claims(nil), answer: func(_ *attempt, q url.Values) {
				q["state"] = startSignOn(t, s.Anonymous(), acme.id, "/").query["state"]
			}, status: 400, code: "invalid_state"},
			{what: "no state", claims: claims(nil), answer: func(_ *attempt, q url.Values) { q.Del("state") }, status: 400, code: "invalid_state"},
			{what: "two states", claims: claims(nil), answer: func(_ *attempt, q url.Values) { q.Add("state", "x") }, status: 400, code: "invalid_parameter"},
			{what: "no cookie", claims: claims(nil), answer: func(a *attempt, _ url.Values) { clear(a.cookies) }, status: 400, code: "invalid_state"},
			{what: "the cookie of somebody else", claims: claims(nil), answer: func(a *attempt, _ url.Values) {
				a.cookies = startSignOn(t, s.Anonymous(), acme.id, "/").cookies
			}, status: 400, code: "invalid_state"},
			{what: "a made-up cookie", claims: claims(nil), answer: func(a *attempt, _ url.Values) {
				for name, v := range a.cookies {
					a.cookies[name] = v[:len(v)-4] + "AAAA"
				}
			}, status: 400, code: "invalid_state"},
			{what: "at another tenant", claims: claims(nil), answer: func(_ *attempt, q url.Values) { q.Set("tenant_id", other.id) }, status: 400, code: "invalid_state"},
			{what: "a provider's answer that names another", claims: claims(nil), answer: func(_ *attempt, q url.Values) { q.Set("iss", evil.URL) }, status: 400, code: "wrong_issuer"},
			{what: "two issuers", claims: claims(nil), answer: func(_ *attempt, q url.Values) { q["iss"] = []string{idp.URL, evil.URL} }, status: 400, code: "invalid_parameter"},
			{what: "an error", claims: claims(nil), answer: func(_ *attempt, q url.Values) { q.Set("error", "access_denied") }, status: 401, code: "sign_on_denied"},
			{what: "no code", claims: claims(nil), answer: func(_ *attempt, q url.Values) { q.Del("code") }, status: 400, code: "invalid_request"},
			{what: "a made-up code", claims: claims(nil), answer: func(_ *attempt, q url.Values) { q.Set("code", "made-up") }, status: 401, code: "code_refused"},
			{what: "a code of another sign-in", claims: claims(nil), answer: func(_ *attempt, q url.Values) {
				q.Set("code", idp.authorize(startSignOn(t, s.Anonymous(), acme.id, "/").query))
			}, status: 401, code: "code_refused"},
			{what: "an address that is not verified", claims: claims(body{"email_verified": false}), status: 403, code: "email_not_verified"},
			{what: "an address that nobody verified", claims: claims(body{"email_verified": nil}), status: 403, code: "email_not_verified"},
			{what: "no address", claims: claims(body{"email": nil}), status: 403, code: "email_not_verified"},
			{what: "the address of an account here", claims: claims(body{"email": "Local@ACME.example"}), status: 409, code: "account_exists"},
			{what: "the name of an account here", claims: claims(body{"email": "root@acme.example"}), status: 409, code: "account_exists"},
			{what: "nobody is added", tenant: strict.id, claims: claims(nil), status: 403, code: "no_account"},
			{what: "an address of another domain", tenant: strict.id, claims: claims(body{"email": "m@acme.example.evil.test"}), status: 403, code: "email_domain_denied"},
			{what: "an address of a domain in front", tenant: strict.id, claims: claims(body{"email": "m@evilacme.example"}), status: 403, code: "email_domain_denied"},
			{what: "an allowed address that is not verified", tenant: strict.id, claims: claims(body{"email_verified": "false"}), status: 403, code: "email_not_verified"},
		} {
			if c.tenant == "" {
				c.tenant = acme.id
			}
			idp.setClaims(c.claims)
			idp.info = map[string]any{"sub": c.claims["sub"]}
			idp.sign = idp.signToken
			if c.sign != nil {
				idp.sign = c.sign
			}
			attack := func(by *apptest.Client, more url.Values) *apptest.Response {
				t.Helper()
				a := startSignOn(t, s.Anonymous(), c.tenant, "/")
				q := a.callbackQuery(idp)
				if c.answer != nil {
					c.answer(a, q)
				}
				maps.Copy(q, more)
				a.c = by
				res := a.finish(t, q)
				if _, signedIn := a.cookies["gatehouse"]; signedIn {
					t.Errorf("%s: the callback signs in, want a refusal", c.what)
				}
				return res
			}
			if res := attack(s.Anonymous(), nil).ExpectError(c.what, c.status, c.code); res.Header.Get("Location") != "" {
				t.Errorf("%s: the callback leads to %q, want no redirect", c.what, res.Header.Get("Location"))
			}
			if seenCodes[c.code] {
				continue
			}
			seenCodes[c.code] = true
			browser := s.Anonymous().With("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
			res := attack(browser, url.Values{"error_description": {"<script>alert(1)</script>"}})
			page, err := url.Parse(res.Header.Get("Location"))
			errtest.Must(t, err)
			query := page.Query()
			tenant := query.Get("tenant_id")
			query.Del("tenant_id")
			if res.Status != 303 || page.Scheme+page.Host != "" || page.Path != "/login" || query.Encode() != "error="+c.code || len(res.Body) > 0 ||
				tenant != "" && tenant != c.tenant && tenant != other.id {
				t.Errorf("%s: the callback in a browser = %d %s to %q, want the sign-in page with %s", c.what, res.Status, res.Body, res.Header.Get("Location"), c.code)
			}
		}

		// State and code are valid once, also in another browser.
		idp.sign = idp.signToken
		idp.setClaims(verifiedClaims("honest", nil))
		idp.info = map[string]any{"sub": "honest"}
		a := startSignOn(t, s.Anonymous(), acme.id, "/")
		planted := apptest.Cookies{"gatehouse": "acme." + strings.Repeat("A", 43)}
		maps.Copy(planted, a.cookies)
		first := a.callbackQuery(idp)
		replay := &attempt{c: a.c, cookies: planted}
		a.finish(t, first).Want(303)
		calls := idp.codes
		if res := replay.finish(t, first); res.Status != 400 || res.Get("error") != "invalid_state" || idp.codes != calls {
			t.Errorf("the repeated callback = %d %s with %d calls of the provider, want 400 invalid_state and none", res.Status, res.Body, idp.codes-calls)
		}
		// An earlier cookie does not become that of the session.
		fresh := startSignOn(t, s.Anonymous(), acme.id, "/")
		fresh.cookies["gatehouse"] = a.cookies["gatehouse"]
		fresh.finish(t, fresh.callbackQuery(idp)).Want(303)
		if fresh.cookies["gatehouse"] == a.cookies["gatehouse"] {
			t.Error("the new session has the earlier cookie, want a new one")
		}
		a.me(t).Want(401) // the browser's earlier session ended

		// The same subject at another provider is another person, and gets no account here.
		evil.setClaims(verifiedClaims("honest", nil))
		evil.info = map[string]any{"sub": "honest"}
		e := startSignOn(t, s.Anonymous(), other.id, "/")
		e.finish(t, e.callbackQuery(evil)).Want(303)
		mine, theirs := fresh.me(t).Want(200), e.me(t).Want(200)
		if mine.Get("id") == theirs.Get("id") || mine.Get("tenant_id") == theirs.Get("tenant_id") {
			t.Errorf("one subject at two providers is %s and %s, want two people", mine.Body, theirs.Body)
		}
		// After the tenant changes to that provider, the address does not give the account.
		acme.admin.Do(t, "PUT", acme.path("/sign-on"), body{"issuer": evil.URL}).Want(422)
		acme.admin.Do(t, "PUT", acme.path("/sign-on"), body{"issuer": evil.URL, "client_secret": "s:cr t"}).Want(200)
		e = startSignOn(t, s.Anonymous(), acme.id, "/")
		e.finish(t, e.callbackQuery(evil)).ExpectError("an equal address at another provider", 409, "account_exists")
		// A sign-in that started at the earlier provider cannot end at the next.
		stale := startSignOn(t, s.Anonymous(), acme.id, "/")
		acme.admin.Do(t, "PUT", acme.path("/sign-on"), body{"issuer": idp.URL, "client_secret": "s:cr t"}).Want(200)
		stale.finish(t, stale.callbackQuery(evil)).ExpectError("a sign-in over a change of providers", 400, "invalid_state")
		// A sign-in returns only to paths of this server.
		for _, to := range []string{"//evil.test", `/\evil.test`, `\\evil.test`, "https://evil.test/", "/a\tb", "/a\r\nSet-Cookie: x=1", "javascript:alert(1)", "evil.test", " /x", "/é"} {
			if res := s.Anonymous().Do(t, "GET", "/auth/sso/login?"+url.Values{"tenant_id": {acme.id}, "return_to": {to}}.Encode(), nil); res.Status != 400 || res.Header.Get("Location") != "" {
				t.Errorf("GET /auth/sso/login with return_to %q = %d to %q, want 400", to, res.Status, res.Header.Get("Location"))
			}
		}
		// A tenant without a provider looks like an unknown tenant.
		bare := newCompany(t, s, body{"name": "Bare"})
		for _, id := range []string{bare.id, "never-was"} {
			s.Anonymous().Do(t, "GET", "/auth/sso/login?tenant_id="+id, nil).WantError(404, "sign_on_off")
			browser := s.Anonymous().With("Accept", "text/html")
			if res := browser.Do(t, "GET", "/auth/sso/login?tenant_id="+id, nil); res.Status != 303 || res.Header.Get("Location") != "/login?error=sign_on_off&tenant_id="+id {
				t.Errorf("GET /auth/sso/login at %s in a browser = %d to %q, want the sign-in page with sign_on_off", id, res.Status, res.Header.Get("Location"))
			}
			if res := s.Anonymous().Do(t, "GET", "/auth/sso?tenant_id="+id, nil).Want(200); res.Get("available") != false || res.Get("password_login") != true {
				t.Errorf("GET /auth/sso at %s = %s, want passwords only", id, res.Body)
			}
		}
	}, loopback)
}

// TestSignOnSettings checks who may set a provider, and which providers are accepted.
func TestSignOnSettings(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		idp := newProvider(t)
		acme := newCompany(t, s, body{"name": "Acme"})
		at := acme.path("/sign-on")
		acme.admin.Do(t, "GET", at, nil).Want(404)
		base := func(more body) body {
			b := body{"issuer": idp.URL, "client_id": "client"}
			maps.Copy(b, more)
			return b
		}
		for _, c := range []struct {
			what   string
			body   body
			status int
			code   string
		}{
			{"no issuer", body{"client_id": "x"}, 422, "validation_failed"},
			{"no client", body{"issuer": idp.URL}, 422, "validation_failed"},
			{"an address that may not be called", base(body{"issuer": "http://169.254.169.254/latest"}), 422, "target_refused"},
			{"no http beyond the allowed addresses", base(body{"issuer": "http://192.0.2.1"}), 422, "target_refused"},
			{"an issuer with a query", base(body{"issuer": idp.URL + "?x=1"}), 422, "validation_failed"},
			{"another's configuration", base(body{"issuer": idp.URL + "/"}), 422, "provider_unfit"},
			{"nothing there", base(body{"issuer": idp.URL + "/none"}), 422, "provider_unfit"},
			{"roles without a claim", base(body{"role_map": body{"a": []string{"viewer"}}}), 422, "validation_failed"},
			{"a domain with an @", base(body{"allowed_email_domains": []string{"@acme.example"}}), 422, "validation_failed"},
			{"amr from another claim", base(body{"attribute_claims": body{"amr": "x"}}), 422, "validation_failed"},
			{"a scope with a quote", base(body{"scopes": []string{`a"b`}}), 422, "validation_failed"},
			{"the platform's role", base(body{"default_roles": []string{"Platform Admin"}}), 403, "permission_denied"},
		} {
			acme.admin.Do(t, "PUT", at, c.body).ExpectError(c.what, c.status, c.code)
		}
		for _, unfit := range []map[string]any{
			{"issuer": "https://another.example"},
			{"code_challenge_methods_supported": []string{"plain"}},
			{"response_types_supported": []string{"id_token"}},
			{"authorization_endpoint": "javascript:alert(1)"},
			{"authorization_endpoint": "//evil.test/"},
			{"token_endpoint": ""},
			{"jwks_uri": "http://user:pw@127.0.0.1/"},
			{"end_session_endpoint": "file:///etc/passwd"},
		} {
			idp.mu.Lock()
			idp.config = unfit
			idp.mu.Unlock()
			acme.admin.Do(t, "PUT", at, base(nil)).ExpectError(fmt.Sprintf("a provider with %v", unfit), 422, "provider_unfit")
			acme.admin.Do(t, "POST", at+"/check", body{"issuer": idp.URL}).ExpectError(fmt.Sprintf("a check of a provider with %v", unfit), 422, "provider_unfit")
		}
		idp.mu.Lock()
		idp.config = map[string]any{"authorization_response_iss_parameter_supported": true, "token_endpoint_auth_methods_supported": []string{"client_secret_basic"}}
		idp.mu.Unlock()
		acme.admin.Do(t, "PUT", at, base(body{"client_secret": "s:cr t", "create_users": true, "role_claim": "groups", "role_map": body{"staff": []string{"admin"}}})).Want(200)

		// A check shows the configuration of the tenant's provider or of another one, and stores nothing.
		for _, b := range []body{{}, {"issuer": idp.URL}} {
			res := acme.admin.Do(t, "POST", at+"/check", b).Want(200)
			if token, _ := res.Get("token_endpoint").(string); res.Get("issuer") != idp.URL || !strings.HasPrefix(token, idp.URL) {
				t.Errorf("POST /sign-on/check of %v = %s, want the provider's addresses", b, res.Body)
			}
		}
		for issuer, code := range map[string]string{
			"http://169.254.169.254/latest": "target_refused", "http://192.0.2.1": "target_refused", idp.URL + "/none": "provider_unfit",
			idp.URL + "/": "provider_unfit", idp.URL + "?x=1": "validation_failed", "no address": "target_refused",
		} {
			acme.admin.Do(t, "POST", at+"/check", body{"issuer": issuer}).ExpectError(fmt.Sprintf("the check of %q", issuer), 422, code)
		}
		bare := newCompany(t, s, body{"name": "Bare"})
		bare.admin.Do(t, "POST", bare.path("/sign-on/check"), body{}).Want(404)

		// A key with tenants:write alone cannot choose who becomes an administrator.
		key := acme.newKey(t, s, "tenants:write")
		for _, change := range []body{{"client_id": "mine"}, {"role_map": nil}, {"enabled": false}} {
			key.Do(t, "PUT", at, change).Expect(fmt.Sprint(change), 403)
		}
		key.Do(t, "DELETE", at, nil).Want(403)
		other := newCompany(t, s, body{"name": "Other"})
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			other.admin.Do(t, method, at, body{}).Expect("another tenant", 403)
		}

		// A provider that announces that it names itself in its answers must do so.
		idp.setClaims(verifiedClaims("ann", nil))
		idp.info = map[string]any{"sub": "ann"}
		silent := startSignOn(t, s.Anonymous(), acme.id, "/")
		silent.finish(t, silent.callbackQuery(idp)).WantError(400, "wrong_issuer")
		signIn := func() (*attempt, *apptest.Response) {
			t.Helper()
			a := startSignOn(t, s.Anonymous(), acme.id, "/")
			q := a.callbackQuery(idp)
			q.Set("iss", idp.URL)
			return a, a.finish(t, q)
		}
		a, res := signIn()
		res.Want(303)
		id := a.me(t).Want(200).Text("id")

		// Without passwords, people can sign in only at the provider, also for tokens.
		acme.admin.Do(t, "PUT", at, body{"password_login": false}).Want(200)
		login := body{"username": "root", "password": apptest.Password}
		byHeader := s.Anonymous().With("X-Tenant-ID", acme.id)
		byHeader.Do(t, "POST", "/auth/login", login).WantError(403, "password_login_off")
		byHeader.With("Origin", s.URL).Do(t, "POST", "/auth/sessions", login).WantError(403, "password_login_off")
		byHeader.Do(t, "POST", "/auth/token", body{"grant_type": "password", "username": "root", "password": apptest.Password}).WantError(403, "password_login_off")
		acme.admin.Do(t, "PUT", at, body{"password_login": nil}).Want(200)
		byHeader.Do(t, "POST", "/auth/login", login).Want(200)

		// A disabled person cannot sign in, and a deleted person's identity belongs to nobody.
		acme.admin.Do(t, "PUT", "/users/"+id, body{"status": "disabled"}).Want(200)
		_, res = signIn()
		res.WantError(403, "account_disabled")
		acme.admin.Do(t, "DELETE", "/users/"+id, nil).Want(200)
		acme.admin.Do(t, "PUT", at, body{"create_users": false}).Want(200)
		acme.admin.Do(t, "POST", "/users", body{"id": id, "username": "next", "email": "next@acme.example"}).Want(201)
		_, res = signIn()
		res.WantError(403, "no_account")

		// An administrator links an identity to an account. Then its person signs in to this account.
		link := acme.admin.Do(t, "POST", "/users/"+id+"/identities", body{"issuer": idp.URL, "subject": "ann"}).Want(201)
		acme.admin.Do(t, "POST", "/users/"+id+"/identities", body{"issuer": idp.URL, "subject": "ann"}).Want(409)
		a, res = signIn()
		res.Want(303)
		if me := a.me(t).Want(200); me.Get("username") != "next" {
			t.Errorf("GET /auth/me = %s, want next", me.Body)
		}
		root := acme.admin.Do(t, "GET", "/auth/me", nil).Want(200).Text("id") // an account with more rights
		acme.newKey(t, s, "users:write").Do(t, "POST", "/users/"+root+"/identities", body{"issuer": idp.URL, "subject": "mine"}).Want(403)
		acme.admin.Do(t, "DELETE", "/users/"+id+"/identities/"+link.Text("id"), nil).Want(204)
		a.me(t).Want(401)
		acme.admin.Do(t, "DELETE", at, nil).Want(204)
		acme.admin.Do(t, "GET", at, nil).Want(404)
	}, loopback)
}

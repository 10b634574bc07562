package tenancy_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// loopback lets the server call providers on this machine.
const loopback = "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8,::1/128"

// attempt is a sign-in of one browser.
type attempt struct {
	c       *apptest.Client
	cookies apptest.Cookies
	// location is where the browser was sent, query the authorization request.
	location string
	query    url.Values
}

// begin starts a sign-in.
func begin(t *testing.T, c *apptest.Client, tenant, returnTo string) *attempt {
	t.Helper()
	a := &attempt{c: c, cookies: apptest.Cookies{}}
	res := c.Do(t, "GET", "/auth/sso/login?"+url.Values{"tenant_id": {tenant}, "return_to": {returnTo}}.Encode(), nil).Want(302)
	a.cookies.Keep(res.Header)
	a.location = res.Header.Get("Location")
	u, err := url.Parse(a.location)
	if err != nil {
		t.Fatal(err)
	}
	a.query = u.Query()
	return a
}

// back brings the browser back from the provider.
func (a *attempt) back(t *testing.T, query url.Values) *apptest.Response {
	t.Helper()
	res := a.c.With("Cookie", a.cookies.String()).With("Sec-Fetch-Site", "cross-site").Do(t, "GET", "/auth/sso/callback?"+query.Encode(), nil)
	a.cookies.Keep(res.Header)
	return res
}

// answer is the provider's right answer.
func (a *attempt) answer(p *provider) url.Values {
	return url.Values{"code": {p.authorize(a.query)}, "state": a.query["state"], "session_state": {"theirs"}}
}

// me is who the browser is signed in as.
func (a *attempt) me(t *testing.T) *apptest.Response {
	t.Helper()
	return a.c.With("Cookie", a.cookies.String()).With("Sec-Fetch-Site", "same-origin").Do(t, "GET", "/auth/me", nil)
}

// configured is a company whose people sign in at p.
func configured(t *testing.T, s *apptest.Server, name string, p *provider, more body) company {
	t.Helper()
	c := found(t, s, body{"name": name})
	settings := body{"issuer": p.URL, "client_id": "client", "client_secret": "s:cr t", "create_users": true}
	for k, v := range more {
		settings[k] = v
	}
	c.admin.Do(t, "PUT", c.at("/sign-on"), settings).Want(200)
	return c
}

// verified are the claims of a person with a verified e-mail address.
func verified(sub string, more body) map[string]any {
	claims := map[string]any{"sub": sub, "email": sub + "@acme.example", "email_verified": true}
	for k, v := range more {
		claims[k] = v
	}
	return claims
}

// TestSignOn: people come in through their provider, get what it says about them, and
// lose it when it no longer does.
func TestSignOn(t *testing.T) {
	apptest.Inner(t)
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		idp := newProvider(t)
		acme := configured(t, s, "Acme", idp, body{
			"name": "Acme Login", "role_claim": "/realm_access/roles", "role_map": body{"staff": []string{"viewer"}, "boss": []string{"Policy Author", "buyer"}},
			"department_claim": "dept", "attribute_claims": body{"clearance": "https://acme.example/clearance"}, "allowed_email_domains": []string{"ACME.example"},
			"audience": "https://api.acme.example", "scopes": []string{"email", "groups"},
		})
		record := acme.admin.Do(t, "GET", acme.at("/sign-on"), nil).Want(200)
		if record.Get("client_secret_set") != true || strings.Contains(string(record.Body), "s:cr t") || record.Get("redirect_uri") != s.URL+"/api/v1/auth/sso/callback" {
			t.Errorf("the record is %s", record.Body)
		}
		offer := s.Anonymous().Do(t, "GET", "/auth/sso?tenant_id="+acme.id, nil).Want(200)
		if offer.Get("available") != true || offer.Get("name") != "Acme Login" || offer.Get("password_login") != true {
			t.Errorf("the offer is %s", offer.Body)
		}

		// The claims come from the ID token and, where they are not there, from the
		// provider's user information.
		idp.says(map[string]any{"sub": "ann", "amr": []string{"pwd", "otp"}, "acr": "2", "sid": "theirs-1"})
		idp.info = map[string]any{
			"sub": "ann", "email": "Ann@acme.example", "email_verified": "true", "dept": "Sales", "https://acme.example/clearance": 3,
			"realm_access": body{"roles": []string{"boss", "unknown"}}, "amr": []string{"forged"},
		}
		a := begin(t, s.Anonymous(), acme.id, "/policies?environment=sandbox")
		for name, want := range map[string]string{
			"response_type": "code", "client_id": "client", "scope": "openid email groups", "audience": "https://api.acme.example", "code_challenge_method": "S256",
			"redirect_uri": s.URL + "/api/v1/auth/sso/callback",
		} {
			if a.query.Get(name) != want {
				t.Errorf("the authorization request has %s %q, want %q", name, a.query.Get(name), want)
			}
		}
		res := a.back(t, a.answer(idp)).Want(303)
		if res.Header.Get("Location") != "/policies?environment=sandbox" || len(a.cookies) != 1 {
			t.Errorf("signed in to %s with %v", res.Header.Get("Location"), a.cookies)
		}
		me := a.me(t).Want(200)
		if me.Get("username") != "Ann@acme.example" || me.Get("department") != "Sales" || fmt.Sprint(me.Get("roles")) != "[policy_author buyer]" ||
			fmt.Sprint(me.Get("attributes")) != "map[acr:2 amr:[pwd otp] clearance:3]" {
			t.Errorf("signed in as %s", me.Body)
		}
		id, _ := me.Get("id").(string)

		// A control reads how they signed in.
		apptest.Enforce(t, acme.admin, "sandbox")
		apptest.Activate(t, acme.admin, "strong", "sandbox", "package strong\nallow if \"otp\" in input.user.attributes.amr\n", nil)
		decide := func() any {
			return acme.admin.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": id}, "resource": body{"type": "api", "path": "/x"}}).Want(200).Get("decision")
		}
		decides := func(want string) {
			t.Helper()
			apptest.Eventually(t, time.Minute, func() error {
				if got := decide(); got != want {
					return fmt.Errorf("the decision is %v, want %s", got, want)
				}
				return nil
			})
		}
		decides("PERMIT")

		// The provider says less: roles, department and attributes go, earlier sessions end.
		idp.says(verified("ann", body{"realm_access": body{"roles": []string{"staff"}}, "sid": "theirs-2"}))
		idp.info = map[string]any{"sub": "ann"}
		again := begin(t, s.Anonymous(), acme.id, "")
		if res := again.back(t, again.answer(idp)).Want(303); res.Header.Get("Location") != "/" {
			t.Errorf("signed in to %s", res.Header.Get("Location"))
		}
		me = again.me(t).Want(200)
		if me.Get("id") != id || fmt.Sprint(me.Get("roles")) != "[viewer]" || me.Get("department") != "" || fmt.Sprint(me.Get("attributes")) != "map[]" {
			t.Errorf("the second time signed in as %s", me.Body)
		}
		a.me(t).Want(401)
		decides("DENY")

		// Signing out leads to the provider's page for it.
		out := again.c.With("Cookie", again.cookies.String()).With("Origin", s.URL).Do(t, "POST", "/auth/logout", nil).Want(200)
		end, err := url.Parse(fmt.Sprint(out.Get("end_session_url")))
		if err != nil || !strings.HasPrefix(end.String(), idp.URL+"/end?theme=dark&") || end.Query().Get("client_id") != "client" ||
			end.Query().Get("post_logout_redirect_uri") != s.URL+"/login" || strings.Count(end.Query().Get("id_token_hint"), ".") != 2 {
			t.Errorf("signed out to %s", end)
		}
		again.me(t).Want(401)

		// The audit says who came in how, and has no secret.
		log := string(acme.admin.Do(t, "GET", "/audit/events?limit=200", nil).Body)
		for _, secret := range []string{"s:cr t", "access", end.Query().Get("id_token_hint")} {
			if strings.Contains(strings.ReplaceAll(log, "access_requests", ""), `"`+secret+`"`) {
				t.Errorf("the audit has %q", secret)
			}
		}
	}, loopback)
}

// TestCertifiedProvider: people sign in at a certified provider in a process of its own,
// as a browser does it, and sign out there.
func TestCertifiedProvider(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite, loopback)
	issuer := apptest.StartIDP(t, s.URL+"/api/v1/auth/sso/callback", apptest.IDPUser{ID: "id1", Username: "ann", Password: "verysecure", Email: "ann@acme.example", EmailVerified: true})
	acme := found(t, s, body{"name": "Acme"})
	acme.admin.Do(t, "PUT", acme.at("/sign-on"), body{"issuer": issuer, "client_id": "web", "client_secret": "secret", "create_users": true, "default_roles": []string{"viewer"}}).Want(200)
	a := begin(t, s.Anonymous(), acme.id, "/")

	// The provider's own pages, up to its redirect to us.
	page := &apptest.Client{}
	res := page.Do(t, "GET", a.location, nil).Want(302)
	form, err := url.Parse(res.Header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	posted := url.Values{"id": {form.Query().Get("authRequestID")}, "username": {"ann"}, "password": {"verysecure"}}
	page.Base = strings.TrimSuffix(issuer, "/")
	res = page.With("Content-Type", "application/x-www-form-urlencoded").Do(t, "POST", "/login/username", []byte(posted.Encode())).Want(302)
	page.Base = ""
	res = page.Do(t, "GET", res.Header.Get("Location"), nil).Want(302)
	back, err := url.Parse(res.Header.Get("Location"))
	if err != nil || !strings.HasPrefix(back.String(), s.URL+"/api/v1/auth/sso/callback?") {
		t.Fatalf("the provider sends the browser to %s (%v)", back, err)
	}
	a.back(t, back.Query()).Want(303)
	if me := a.me(t).Want(200); me.Get("email") != "ann@acme.example" || fmt.Sprint(me.Get("roles")) != "[viewer]" || fmt.Sprint(me.Get("attributes", "amr")) != "[pwd]" {
		t.Errorf("signed in as %s", me.Body)
	}

	out := a.c.With("Cookie", a.cookies.String()).With("Origin", s.URL).Do(t, "POST", "/auth/logout", nil).Want(200)
	end, err := url.Parse(fmt.Sprint(out.Get("end_session_url")))
	if err != nil {
		t.Fatal(err)
	}
	// Its client has no URI to return to, so that it shows a page of its own.
	q := end.Query()
	q.Del("post_logout_redirect_uri")
	if res := page.Do(t, "GET", issuer+strings.TrimPrefix(end.Path, "/")+"?"+q.Encode(), nil); res.Status != 302 || !strings.HasSuffix(res.Header.Get("Location"), "logged-out") {
		t.Errorf("the sign-out at the provider: %d to %q, %s", res.Status, res.Header.Get("Location"), res.Body)
	}
}

// TestSignOnAbuse: nobody comes in by what is not their own sign-in at their own provider.
func TestSignOnAbuse(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		idp, evil := newProvider(t), newProvider(t)
		acme := configured(t, s, "Acme", idp, nil)
		other := configured(t, s, "Other", evil, nil)
		strict := configured(t, s, "Strict", idp, body{"create_users": false, "allowed_email_domains": []string{"acme.example"}})
		acme.admin.Do(t, "POST", "/users", body{"username": "local", "email": "local@acme.example", "password": apptest.Password, "roles": []string{"admin"}}).Want(201)
		start := "/auth/sso/login?" + url.Values{"tenant_id": {acme.id}}.Encode()
		for site, status := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 302, "none": 302} {
			s.Anonymous().With("Sec-Fetch-Site", site).Do(t, "GET", start, nil).Want(status)
		}
		elsewhere := s.Anonymous().With("Sec-Fetch-Site", "cross-site").With("Accept", "text/html").Do(t, "GET", start, nil).Want(303)
		if at := elsewhere.Header.Get("Location"); at != "/login?error=cross_origin&tenant_id="+acme.id || elsewhere.Header.Get("Set-Cookie") != "" {
			t.Errorf("another site's link leads to %s", at)
		}
		var used url.Values
		shown := map[string]bool{} // the codes that a browser was shown
		claims := func(more body) map[string]any { return verified("mallory", more) }
		hour := time.Now().Add(-time.Hour).Unix()
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
			{what: "another provider's key", claims: claims(nil), sign: evil.signed, status: 401, code: "invalid_id_token"},
			{what: "expired", claims: claims(body{"exp": hour}), status: 401, code: "invalid_id_token"},
			{what: "without an end", claims: claims(body{"exp": nil}), status: 401, code: "invalid_id_token"},
			{what: "long ago", claims: claims(body{"iat": hour}), status: 401, code: "invalid_id_token"},
			{what: "in the future", claims: claims(body{"iat": time.Now().Add(time.Hour).Unix()}), status: 401, code: "invalid_id_token"},
			{what: "nobody", claims: claims(body{"sub": nil}), status: 401, code: "invalid_id_token"},
			{what: "the nonce of somebody else", claims: claims(body{"nonce": "another"}), status: 401, code: "invalid_id_token"},
			{what: "no nonce", claims: claims(body{"nonce": nil}), status: 401, code: "invalid_id_token"},
			{what: "the state of somebody else", claims: claims(nil), answer: func(_ *attempt, q url.Values) {
				q["state"] = begin(t, s.Anonymous(), acme.id, "/").query["state"]
			}, status: 400, code: "invalid_state"},
			{what: "no state", claims: claims(nil), answer: func(_ *attempt, q url.Values) { q.Del("state") }, status: 400, code: "invalid_state"},
			{what: "two states", claims: claims(nil), answer: func(_ *attempt, q url.Values) { q.Add("state", "x") }, status: 400, code: "invalid_parameter"},
			{what: "no cookie", claims: claims(nil), answer: func(a *attempt, _ url.Values) { clear(a.cookies) }, status: 400, code: "invalid_state"},
			{what: "the cookie of somebody else", claims: claims(nil), answer: func(a *attempt, _ url.Values) {
				a.cookies = begin(t, s.Anonymous(), acme.id, "/").cookies
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
				q.Set("code", idp.authorize(begin(t, s.Anonymous(), acme.id, "/").query))
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
			idp.says(c.claims)
			idp.info = map[string]any{"sub": c.claims["sub"]}
			idp.sign = idp.signed
			if c.sign != nil {
				idp.sign = c.sign
			}
			a := begin(t, s.Anonymous(), c.tenant, "/")
			q := a.answer(idp)
			if c.answer != nil {
				c.answer(a, q)
			}
			res := a.back(t, q)
			if res.Status != c.status || res.Get("error") != c.code || res.Header.Get("Location") != "" {
				t.Errorf("%s: %d %s to %q, want %d %s", c.what, res.Status, res.Body, res.Header.Get("Location"), c.status, c.code)
			}
			if _, signedIn := a.cookies["gatehouse"]; signedIn {
				t.Errorf("%s: signed in", c.what)
			}
			used = q
			if shown[c.code] {
				continue
			}
			shown[c.code] = true
			a = begin(t, s.Anonymous(), c.tenant, "/")
			q = a.answer(idp)
			if c.answer != nil {
				c.answer(a, q)
			}
			q.Set("error_description", "<script>alert(1)</script>")
			a.c = a.c.With("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
			res = a.back(t, q)
			page, err := url.Parse(res.Header.Get("Location"))
			if err != nil {
				t.Fatal(err)
			}
			said := page.Query()
			about := said.Get("tenant_id")
			said.Del("tenant_id")
			if res.Status != 303 || page.Scheme+page.Host != "" || page.Path != "/login" || said.Encode() != "error="+c.code || len(res.Body) > 0 ||
				about != "" && about != c.tenant && about != other.id {
				t.Errorf("%s in a browser: %d %s to %q, want the sign-in page with %s", c.what, res.Status, res.Body, res.Header.Get("Location"), c.code)
			}
			if _, signedIn := a.cookies["gatehouse"]; signedIn {
				t.Errorf("%s in a browser: signed in", c.what)
			}
		}

		// A sign-in is used once: not its state, not its code, nor in another browser.
		idp.sign = idp.signed
		idp.says(verified("honest", nil))
		idp.info = map[string]any{"sub": "honest"}
		a := begin(t, s.Anonymous(), acme.id, "/")
		planted := apptest.Cookies{"gatehouse": "acme." + strings.Repeat("A", 43)}
		for name, v := range a.cookies {
			planted[name] = v
		}
		first := a.answer(idp)
		replay := &attempt{c: a.c, cookies: planted}
		a.back(t, first).Want(303)
		calls := idp.codes
		if res := replay.back(t, first); res.Status != 400 || res.Get("error") != "invalid_state" || idp.codes != calls {
			t.Errorf("the second time: %d %s, with %d calls of the provider", res.Status, res.Body, idp.codes-calls)
		}
		if used == nil {
			t.Fatal("nothing was tried")
		}
		// A cookie from before the sign-in does not become the session's.
		fresh := begin(t, s.Anonymous(), acme.id, "/")
		fresh.cookies["gatehouse"] = a.cookies["gatehouse"]
		fresh.back(t, fresh.answer(idp)).Want(303)
		if fresh.cookies["gatehouse"] == a.cookies["gatehouse"] {
			t.Error("the session kept the cookie that was there before")
		}
		a.me(t).Want(401) // the browser's earlier session ended

		// The same subject at another provider is somebody else, and gets no account here.
		evil.says(verified("honest", nil))
		evil.info = map[string]any{"sub": "honest"}
		e := begin(t, s.Anonymous(), other.id, "/")
		e.back(t, e.answer(evil)).Want(303)
		mine, theirs := fresh.me(t).Want(200), e.me(t).Want(200)
		if mine.Get("id") == theirs.Get("id") || mine.Get("tenant_id") == theirs.Get("tenant_id") {
			t.Errorf("two people are one: %s and %s", mine.Body, theirs.Body)
		}
		// When a tenant moves to that provider, it has the address, but not the account.
		acme.admin.Do(t, "PUT", acme.at("/sign-on"), body{"issuer": evil.URL}).Want(422)
		acme.admin.Do(t, "PUT", acme.at("/sign-on"), body{"issuer": evil.URL, "client_secret": "s:cr t"}).Want(200)
		e = begin(t, s.Anonymous(), acme.id, "/")
		if res := e.back(t, e.answer(evil)); res.Status != 409 || res.Get("error") != "account_exists" {
			t.Errorf("an equal address at another provider: %d %s", res.Status, res.Body)
		}
		// A sign-in that began at the provider before does not end at the next.
		stale := begin(t, s.Anonymous(), acme.id, "/")
		acme.admin.Do(t, "PUT", acme.at("/sign-on"), body{"issuer": idp.URL, "client_secret": "s:cr t"}).Want(200)
		if res := stale.back(t, stale.answer(evil)); res.Status != 400 || res.Get("error") != "invalid_state" {
			t.Errorf("a sign-in over a change of providers: %d %s", res.Status, res.Body)
		}
		// Only paths of this server are returned to.
		for _, to := range []string{"//evil.test", `/\evil.test`, `\\evil.test`, "https://evil.test/", "/a\tb", "/a\r\nSet-Cookie: x=1", "javascript:alert(1)", "evil.test", " /x", "/é"} {
			if res := s.Anonymous().Do(t, "GET", "/auth/sso/login?"+url.Values{"tenant_id": {acme.id}, "return_to": {to}}.Encode(), nil); res.Status != 400 || res.Header.Get("Location") != "" {
				t.Errorf("return_to %q: %d to %q", to, res.Status, res.Header.Get("Location"))
			}
		}
		// Who has no provider looks like who is not there.
		bare := found(t, s, body{"name": "Bare"})
		for _, id := range []string{bare.id, "never-was"} {
			if res := s.Anonymous().Do(t, "GET", "/auth/sso/login?tenant_id="+id, nil); res.Status != 404 || res.Get("error") != "sign_on_off" {
				t.Errorf("start at %s: %d %s", id, res.Status, res.Body)
			}
			browser := s.Anonymous().With("Accept", "text/html")
			if res := browser.Do(t, "GET", "/auth/sso/login?tenant_id="+id, nil); res.Status != 303 || res.Header.Get("Location") != "/login?error=sign_on_off&tenant_id="+id {
				t.Errorf("start at %s in a browser: %d to %q", id, res.Status, res.Header.Get("Location"))
			}
			if res := s.Anonymous().Do(t, "GET", "/auth/sso?tenant_id="+id, nil).Want(200); res.Get("available") != false || res.Get("password_login") != true {
				t.Errorf("the offer of %s is %s", id, res.Body)
			}
		}
	}, loopback)
}

// TestSignOnSettings: who may set a provider, and which one.
func TestSignOnSettings(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		idp := newProvider(t)
		acme := found(t, s, body{"name": "Acme"})
		at := acme.at("/sign-on")
		acme.admin.Do(t, "GET", at, nil).Want(404)
		base := func(more body) body {
			b := body{"issuer": idp.URL, "client_id": "client"}
			for k, v := range more {
				b[k] = v
			}
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
			if res := acme.admin.Do(t, "PUT", at, c.body); res.Status != c.status || res.Get("error") != c.code {
				t.Errorf("%s: %d %s, want %d %s", c.what, res.Status, res.Body, c.status, c.code)
			}
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
			if res := acme.admin.Do(t, "PUT", at, base(nil)); res.Status != 422 || res.Get("error") != "provider_unfit" {
				t.Errorf("a provider with %v: %d %s", unfit, res.Status, res.Body)
			}
			if res := acme.admin.Do(t, "POST", at+"/check", body{"issuer": idp.URL}); res.Status != 422 || res.Get("error") != "provider_unfit" {
				t.Errorf("a check of a provider with %v: %d %s", unfit, res.Status, res.Body)
			}
		}
		idp.mu.Lock()
		idp.config = map[string]any{"authorization_response_iss_parameter_supported": true, "token_endpoint_auth_methods_supported": []string{"client_secret_basic"}}
		idp.mu.Unlock()
		acme.admin.Do(t, "PUT", at, base(body{"client_secret": "s:cr t", "create_users": true, "role_claim": "groups", "role_map": body{"staff": []string{"admin"}}})).Want(200)

		// A check says what is there, of the tenant's provider or of another one, and stores nothing.
		for _, b := range []body{{}, {"issuer": idp.URL}} {
			res := acme.admin.Do(t, "POST", at+"/check", b).Want(200)
			if token, _ := res.Get("token_endpoint").(string); res.Get("issuer") != idp.URL || !strings.HasPrefix(token, idp.URL) {
				t.Errorf("the check of %v says %s", b, res.Body)
			}
		}
		for issuer, code := range map[string]string{
			"http://169.254.169.254/latest": "target_refused", "http://192.0.2.1": "target_refused", idp.URL + "/none": "provider_unfit",
			idp.URL + "/": "provider_unfit", idp.URL + "?x=1": "validation_failed", "no address": "target_refused",
		} {
			if res := acme.admin.Do(t, "POST", at+"/check", body{"issuer": issuer}); res.Status != 422 || res.Get("error") != code {
				t.Errorf("the check of %q: %d %s, want 422 %s", issuer, res.Status, res.Body, code)
			}
		}
		bare := found(t, s, body{"name": "Bare"})
		bare.admin.Do(t, "POST", bare.at("/sign-on/check"), body{}).Want(404)

		// A key with tenants:write alone cannot choose who becomes an administrator.
		key := s.Anonymous()
		key.APIKey, _ = acme.admin.Do(t, "POST", acme.at("/api-keys"), body{"name": "ops", "scopes": []string{"tenants:write"}}).Want(201).Get("key").(string)
		for _, change := range []body{{"client_id": "mine"}, {"role_map": nil}, {"enabled": false}} {
			if res := key.Do(t, "PUT", at, change); res.Status != 403 {
				t.Errorf("%v by the key: %d %s", change, res.Status, res.Body)
			}
		}
		if res := key.Do(t, "DELETE", at, nil); res.Status != 403 {
			t.Errorf("removed by the key: %d %s", res.Status, res.Body)
		}
		other := found(t, s, body{"name": "Other"})
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			if res := other.admin.Do(t, method, at, body{}); res.Status != 403 {
				t.Errorf("%s by another tenant: %d %s", method, res.Status, res.Body)
			}
		}

		// A provider that names itself in its answers must do so.
		idp.says(verified("ann", nil))
		idp.info = map[string]any{"sub": "ann"}
		a := begin(t, s.Anonymous(), acme.id, "/")
		if res := a.back(t, a.answer(idp)); res.Status != 400 || res.Get("error") != "wrong_issuer" {
			t.Errorf("an answer without its issuer: %d %s", res.Status, res.Body)
		}
		a = begin(t, s.Anonymous(), acme.id, "/")
		q := a.answer(idp)
		q.Set("iss", idp.URL)
		a.back(t, q).Want(303)
		id, _ := a.me(t).Want(200).Get("id").(string)

		// Without passwords the provider is the only way, also for tokens.
		acme.admin.Do(t, "PUT", at, body{"password_login": false}).Want(200)
		login := body{"username": "root", "password": apptest.Password}
		byHeader := s.Anonymous().With("X-Tenant-ID", acme.id)
		for _, try := range []func() *apptest.Response{
			func() *apptest.Response { return byHeader.Do(t, "POST", "/auth/login", login) },
			func() *apptest.Response { return byHeader.With("Origin", s.URL).Do(t, "POST", "/auth/sessions", login) },
			func() *apptest.Response {
				return byHeader.Do(t, "POST", "/auth/token", body{"grant_type": "password", "username": "root", "password": apptest.Password})
			},
		} {
			if res := try(); res.Status != 403 || res.Get("error") != "password_login_off" {
				t.Errorf("a password: %d %s", res.Status, res.Body)
			}
		}
		acme.admin.Do(t, "PUT", at, body{"password_login": nil}).Want(200)
		byHeader.Do(t, "POST", "/auth/login", login).Want(200)

		// A disabled person stays out, and a deleted one's identity is nobody's.
		acme.admin.Do(t, "PUT", "/users/"+id, body{"status": "disabled"}).Want(200)
		a = begin(t, s.Anonymous(), acme.id, "/")
		q = a.answer(idp)
		q.Set("iss", idp.URL)
		if res := a.back(t, q); res.Status != 403 || res.Get("error") != "account_disabled" {
			t.Errorf("a disabled person: %d %s", res.Status, res.Body)
		}
		acme.admin.Do(t, "DELETE", "/users/"+id, nil).Want(200)
		acme.admin.Do(t, "PUT", at, body{"create_users": false}).Want(200)
		acme.admin.Do(t, "POST", "/users", body{"id": id, "username": "next", "email": "next@acme.example"}).Want(201)
		a = begin(t, s.Anonymous(), acme.id, "/")
		q = a.answer(idp)
		q.Set("iss", idp.URL)
		if res := a.back(t, q); res.Status != 403 || res.Get("error") != "no_account" {
			t.Errorf("the identity of a deleted person: %d %s", res.Status, res.Body)
		}

		// An administrator links an account to an identity; from then on it is theirs.
		link := acme.admin.Do(t, "POST", "/users/"+id+"/identities", body{"issuer": idp.URL, "subject": "ann"}).Want(201)
		acme.admin.Do(t, "POST", "/users/"+id+"/identities", body{"issuer": idp.URL, "subject": "ann"}).Want(409)
		a = begin(t, s.Anonymous(), acme.id, "/")
		q = a.answer(idp)
		q.Set("iss", idp.URL)
		a.back(t, q).Want(303)
		if me := a.me(t).Want(200); me.Get("username") != "next" {
			t.Errorf("signed in as %s", me.Body)
		}
		weak := s.Anonymous()
		weak.APIKey, _ = acme.admin.Do(t, "POST", acme.at("/api-keys"), body{"name": "people", "scopes": []string{"users:write"}}).Want(201).Get("key").(string)
		root, _ := acme.admin.Do(t, "GET", "/auth/me", nil).Want(200).Get("id").(string)
		if res := weak.Do(t, "POST", "/users/"+root+"/identities", body{"issuer": idp.URL, "subject": "mine"}); res.Status != 403 {
			t.Errorf("a stronger account was linked: %d %s", res.Status, res.Body)
		}
		linkID, _ := link.Get("id").(string)
		acme.admin.Do(t, "DELETE", "/users/"+id+"/identities/"+linkID, nil).Want(204)
		a.me(t).Want(401)
		acme.admin.Do(t, "DELETE", at, nil).Want(204)
		acme.admin.Do(t, "GET", at, nil).Want(404)
	}, loopback)
}

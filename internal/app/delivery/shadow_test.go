package delivery_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// Controls of the bouncer's tests, each for the requests below its own path.
const (
	closed  = "package closed\n\nallow := false\n\nreason := \"closed\"\n"
	opened  = "package opened\n\nallow := true\n"
	masking = "package masking\n\nallow := true\n\nmask := {\"ssn\": \"last4\"}\n"
	// Two values for one rule: the evaluation fails.
	crashing = "package crashing\n\nverdict := true if input.action.method != \"\"\n\nverdict := false if input.action.method != \"-\"\n\nallow if verdict\n"
	hanging  = `package hanging

allow if {
	some i in numbers.range(1, 4000)
	some j in numbers.range(1, 4000)
	i * j == -1
}
`
)

// varied answers as applications do.
func varied(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	switch r.URL.Query().Get("as") {
	case "gzip":
		h.Set("Content-Type", "application/json")
		h.Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, `{"ssn":"900-12-3456"}`)
		_ = z.Close()
	case "chunked":
		h.Set("Content-Type", "text/plain; charset=latin1")
		for range 3 {
			_, _ = w.Write([]byte{'a', 0xe9, '\n'})
			w.(http.Flusher).Flush()
		}
	case "missing":
		h.Set("X-Powered-By", "an old one")
		http.Error(w, "no such employee", http.StatusNotFound)
	case "moved":
		h.Add("Set-Cookie", "a=1; Path=/")
		h.Add("Set-Cookie", "b=2; HttpOnly")
		http.Redirect(w, r, "/elsewhere?x=1#y", http.StatusFound)
	case "nothing":
		w.WriteHeader(http.StatusNoContent)
	case "broken":
		w.WriteHeader(http.StatusInternalServerError)
	default:
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "private, max-age=5")
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"method":%q,"uri":%q,"sent":%q,"ssn":"900-12-3456"}`, r.Method, r.RequestURI, body)
	}
}

// TestShadowLetsPass (B8): in shadow mode, answers are those of the application,
// whatever the controls say or do, and each request is in the log once with what
// enforcing would have done.
func TestShadowLetsPass(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	app := apptest.NewBackend(t, varied)
	resources := []int64{}
	want := map[string]string{"closed": "SHADOW_WOULD_DENY", "opened": "ALLOW", "masking": "SHADOW_WOULD_MASK", "crashing": "SHADOW_WOULD_DENY", "hanging": "SHADOW_WOULD_DENY", "free": "NO_MATCH"}
	for name, source := range map[string]string{"closed": closed, "opened": opened, "masking": masking, "crashing": crashing, "hanging": hanging} {
		id := s.Admin.Do(t, "POST", "/resources", body{"name": name, "type": "api", "path": "/" + name + "/**", "environment": "sandbox"}).Want(201).ID()
		apptest.Activate(t, s.Admin, name, "sandbox", source, body{"resource_id": id})
		resources = append(resources, id)
	}
	b := s.Bouncer(t, s.Admin, body{"name": "watcher", "environment": "sandbox", "resource_ids": resources}, app.Addr)
	through, direct := &apptest.Client{Base: b.URL}, &apptest.Client{Base: "http://" + app.Addr}
	expected := map[string]string{} // by the request's id
	for _, name := range slices.Sorted(maps.Keys(want)) {
		for i, as := range []string{"json", "gzip", "chunked", "missing", "moved", "nothing", "broken"} {
			if name == "hanging" && i > 1 {
				break // each takes all of its deadline
			}
			method, sent := "GET", any(nil)
			if i%2 == 0 {
				method, sent = "POST", []byte(`{"a": 1}`)
			}
			path, id := "/"+name+"/1?as="+as, name+"-"+as
			plain := direct.Do(t, method, path, sent)
			got := through.With("X-Request-Id", id).Do(t, method, path, sent)
			plain.Header.Del("Date")
			got.Header.Del("Date")
			if got.Status != plain.Status || !bytes.Equal(got.Body, plain.Body) {
				t.Errorf("%s: %d %q, directly %d %q", id, got.Status, got.Body, plain.Status, plain.Body)
			}
			if d := cmp.Diff(plain.Header, got.Header); d != "" {
				t.Errorf("%s: the header differs from direct access:\n%s", id, d)
			}
			expected[id] = want[name]
		}
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		log := apptest.ByRequest(apptest.DecisionLog(t, s.Admin, "sandbox"))
		for id := range expected {
			if len(log[id]) == 0 {
				return fmt.Errorf("%s is not in the log", id)
			}
		}
		for id, effect := range expected {
			e := log[id]
			if len(e) != 1 || e[0].Effect != effect || e[0].Mode != "shadow" || e[0].BouncerID != b.ID {
				t.Errorf("%s is in the log as %+v, want one %s", id, e, effect)
			}
			if failing := strings.HasPrefix(id, "crashing") || strings.HasPrefix(id, "hanging"); failing != (e[0].Error != "") {
				t.Errorf("%s: the log has the error %q", id, e[0].Error)
			}
		}
		return nil
	})
	t.Logf("99th of 100 times: directly %s, through a control that denies in shadow %s", slowest(t, direct, "/closed/1"), slowest(t, through, "/closed/1"))
}

// slowest is the 99th percentile of a hundred requests.
func slowest(t *testing.T, c *apptest.Client, path string) time.Duration {
	t.Helper()
	took := make([]time.Duration, 100)
	for i := range took {
		began := time.Now()
		c.Do(t, "GET", path, nil)
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[98].Round(10 * time.Microsecond)
}

// TestEnforcementSwitch: sandbox enforces before production may; a bouncer acts
// within a second; one bouncer is rolled back by its configuration, alone.
func TestEnforcementSwitch(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app := s.Admin, apptest.NewBackend(t, nil)
	bouncers := map[string]*apptest.BouncerProcess{}
	for name, env := range map[string]string{"sandbox": "sandbox", "one": "production", "two": "production"} {
		bouncers[name] = s.Bouncer(t, a, body{"name": name, "environment": env}, app.Addr)
	}
	for _, env := range []string{"sandbox", "production"} {
		if mode := a.Do(t, "GET", "/environments/"+env+"/enforcement", nil).Want(200).Get("mode"); mode != "shadow" {
			t.Errorf("%s starts in %v", env, mode)
		}
		apptest.Activate(t, a, "closed", env, closed, nil)
	}
	state := func(want map[string]int) {
		t.Helper()
		for name, status := range want {
			apptest.WaitForStatus(t, &apptest.Client{Base: bouncers[name].URL}, "/x", status, 2*time.Second)
		}
		for name, status := range want { // and stays so
			if got := (&apptest.Client{Base: bouncers[name].URL}).Do(t, "GET", "/x", nil).Status; got != status {
				t.Errorf("%s answers %d, want %d", name, got, status)
			}
		}
	}
	mode := func(env, mode string, status int) {
		t.Helper()
		a.Do(t, "PUT", "/environments/"+env+"/enforcement", body{"mode": mode}).Want(status)
	}
	state(map[string]int{"sandbox": 200, "one": 200, "two": 200})
	mode("production", "enforce", 409)
	mode("production", "loud", 422)
	state(map[string]int{"one": 200})
	mode("sandbox", "enforce", 200)
	state(map[string]int{"sandbox": 403, "one": 200, "two": 200})
	mode("production", "enforce", 200)
	state(map[string]int{"sandbox": 403, "one": 403, "two": 403})
	back := fmt.Sprint("/bouncers/", bouncers["one"].ID)
	a.Do(t, "PUT", back, body{"configuration": body{"enforcement_mode": "shadow"}}).Want(200)
	state(map[string]int{"sandbox": 403, "one": 200, "two": 403})
	a.Do(t, "PUT", back, body{"configuration": body{}}).Want(200)
	state(map[string]int{"one": 403, "two": 403})
	mode("production", "shadow", 200)
	state(map[string]int{"sandbox": 403, "one": 200, "two": 200})
}

// TestNothingForeign: a bundle holds its bouncer's controls and resources, and
// not a name, path, address or word of anybody else's.
func TestNothingForeign(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	resource := func(mark, env string) int64 {
		return a.Do(t, "POST", "/resources", body{
			"name": mark + "-name", "description": mark + "-description", "type": "api", "path": "/" + mark + "-path/**", "original_host": mark + "-host.test", "environment": env,
			"attributes": body{"unit": mark + "-unit"},
		}).Want(201).ID()
	}
	own, read, named, foreign, far := resource("own", "sandbox"), resource("read", "sandbox"), resource("named", "sandbox"), resource("foreign", "sandbox"), resource("far", "production")
	mine := s.Register(t, a, body{"name": "mine-bouncer", "environment": "sandbox", "resource_ids": []int64{own}}, "127.0.0.1:9")
	other := s.Register(t, a, body{"name": "other-bouncer", "environment": "sandbox", "resource_ids": []int64{foreign}, "configuration": body{"headers": []string{"X-Other-Header"}}}, "other-app.test:9")
	say := func(mark, more string) string {
		return "package " + mark + "\n\nallow := true\n\nreason := \"" + mark + "-reason\"" + more + "\n"
	}
	apptest.Activate(t, a, "own-control", "sandbox", say("own", fmt.Sprintf(" if data.resources[\"%d\"].name != \"\"", read)), body{"resource_id": own})
	apptest.Activate(t, a, "named-control", "sandbox", say("named", ""), body{"resource_id": named, "bouncer_id": mine.ID})
	apptest.Activate(t, a, "wide-control", "sandbox", say("wide", ""), nil)
	apptest.Activate(t, a, "foreign-control", "sandbox", say("foreign", ""), body{"resource_id": foreign})
	apptest.Activate(t, a, "far-control", "production", say("far", ""), body{"resource_id": far})
	apptest.Activate(t, a, "drafted-control", "sandbox", say("drafted", ""), body{"status": "draft"})
	// Another tenant's things.
	s.Admin.With("X-Tenant-ID", "t2").Do(t, "POST", "/policies", body{"name": "tenant-control", "environment": "sandbox", "status": "active", "rego_code": say("tenant", "")}).Want(201)
	bundle := func(b *apptest.BouncerProcess) string {
		c := s.Anonymous()
		c.Bearer = b.Token
		return apptest.Unpacked(t, c.Do(t, "GET", fmt.Sprint("/bridge/bundles/", b.ID), nil).Want(200).Body)
	}
	hers := []string{"own-control", "own-reason", "own-name", "own-path", "own-host", "read-name", "named-control", "named-path", "wide-reason", "mine-bouncer"}
	his := []string{"foreign-control", "foreign-reason", "foreign-name", "foreign-path", "foreign-host", "foreign-description", "foreign-unit", "other-bouncer", "other-app", "X-Other-Header"}
	nobodys := []string{"far-", "drafted-", "tenant-control", "tenant-reason", mine.Token, other.Token}
	for who, c := range map[string]struct {
		text      string
		in, never []string
	}{
		"mine":  {bundle(mine), hers, append(his, nobodys...)},
		"other": {bundle(other), his[:5], append(hers[:8], nobodys...)},
	} {
		for _, mark := range c.in {
			if mark != "named-path" && !strings.Contains(c.text, mark) {
				t.Errorf("%s: no %s in the bundle", who, mark)
			}
		}
		for _, mark := range c.never {
			if strings.Contains(c.text, mark) {
				t.Errorf("%s: %s is in the bundle", who, mark)
			}
		}
	}
}

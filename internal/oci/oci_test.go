package oci

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
)

var ctx = context.Background()

// house is a registry behind a handler that can refuse requests. It records its calls.
type house struct {
	*httptest.Server
	mu    sync.Mutex
	calls []string
}

func newHouse(t *testing.T, door func(next http.Handler) http.Handler) *house {
	t.Helper()
	h := &house{}
	inside := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if door != nil {
		inside = door(inside)
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.calls = append(h.calls, r.Method+" "+r.URL.Path)
		h.mu.Unlock()
		inside.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *house) place(t *testing.T, rest string) Reference {
	t.Helper()
	p, err := Parse(strings.Replace(h.URL, "http://", plainScheme, 1) + rest)
	errtest.Must(t, err)
	return p
}

func (h *house) get(t *testing.T, path, accept string) ([]byte, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, h.URL+path, nil)
	errtest.Must(t, err)
	r.Header.Set("Accept", accept)
	res, err := http.DefaultClient.Do(r)
	errtest.Must(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("GET %s = %d, %v, want 200", path, res.StatusCode, err)
	}
	return body, res.Header.Get("Docker-Content-Digest")
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	errtest.Must(t, z.Close())
	return b.Bytes()
}

// TestPush checks that the registry has an image with the file as its only layer, that the same
// file has the same digest, and that another file moves the tag.
func TestPush(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	via, at := outboundtest.Local(t), h.place(t, "/org/policies:production")
	one, two := packed(t, "one"), packed(t, "two")
	first, err := Push(ctx, via, at, Login{}, one, map[string]string{"revision": "7"})
	errtest.Must(t, err)
	text, digest := h.get(t, "/v2/org/policies/manifests/production", "application/vnd.oci.image.manifest.v1+json")
	var manifest struct {
		MediaType   string
		Config      struct{ MediaType string }
		Layers      []struct{ MediaType, Digest string }
		Annotations map[string]string
	}
	errtest.Must(t, json.Unmarshal(text, &manifest))
	if digest != first || manifest.MediaType != "application/vnd.oci.image.manifest.v1+json" || manifest.Config.MediaType != "application/vnd.oci.image.config.v1+json" ||
		len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != "application/vnd.oci.image.layer.v1.tar+gzip" || manifest.Annotations["revision"] != "7" {
		t.Errorf("manifest = %s with the digest %s, want %s", text, digest, first)
	}
	if layer, _ := h.get(t, "/v2/org/policies/blobs/"+manifest.Layers[0].Digest, "*/*"); !bytes.Equal(layer, one) {
		t.Error("the layer differs from the file")
	}
	if again, err := Push(ctx, via, at, Login{}, one, map[string]string{"revision": "7"}); again != first || err != nil {
		t.Errorf("Push of the same file = %s, %v, want %s", again, err, first)
	}
	second, err := Push(ctx, via, at, Login{}, two, nil)
	if err != nil || second == first {
		t.Fatalf("Push of another file = %s, %v, want another digest", second, err)
	}
	if _, digest := h.get(t, "/v2/org/policies/manifests/production", "*/*"); digest != second {
		t.Errorf("digest of the tag = %s, want %s", digest, second)
	}
	if err := Check(ctx, via, at, Login{}); err != nil {
		t.Errorf("Check: %v", err)
	}
}

// TestLogin checks that a registry gets the password if it asks for one, a token of its token
// service if it names one, or the token that was given, and that a wrong credential is reported.
func TestLogin(t *testing.T) {
	t.Parallel()
	challenge := func(w http.ResponseWriter, how string) {
		w.Header().Set("WWW-Authenticate", how)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"<b>no</b>"}]}`)
	}
	basic := newHouse(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); user != "ada" || password != "secret" {
				challenge(w, `Basic realm="registry"`)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	bearer := newHouse(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				if user, password, _ := r.BasicAuth(); user != "ada" || password != "secret" || !strings.Contains(r.URL.RawQuery, "push") {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				_, _ = io.WriteString(w, `{"token":"of-the-service"}`)
				return
			}
			if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer of-the-") {
				challenge(w, `Bearer realm="http://`+r.Host+`/token",service="registry"`)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	via := outboundtest.Local(t)
	for name, c := range map[string]struct {
		h    *house
		l    Login
		want string
	}{
		"basic":            {basic, Login{User: "ada", Password: "secret"}, ""},
		"wrong password":   {basic, Login{User: "ada", Password: "guess"}, "the registry answered 401 UNAUTHORIZED"},
		"nobody":           {basic, Login{}, "the registry answered 401 UNAUTHORIZED"},
		"token service":    {bearer, Login{User: "ada", Password: "secret"}, ""},
		"token given":      {bearer, Login{Token: "of-the-owner"}, ""},
		"no for a service": {bearer, Login{User: "ada", Password: "guess"}, "the registry answered 403"},
	} {
		_, err := Push(ctx, via, c.h.place(t, "/org/policies"), c.l, packed(t, "x"), nil)
		check := Check(ctx, via, c.h.place(t, "/org/policies"), c.l)
		for does, err := range map[string]error{"push": err, "check": check} {
			text := ""
			if err != nil {
				_, text = Describe(err)
			}
			// The answer to a HEAD has no body.
			if text != c.want && (does != "push" || text == "" || !strings.HasPrefix(c.want, text)) {
				t.Errorf("%s, %s: %q, want %q (%v)", name, does, text, c.want, err)
			}
		}
	}
}

// TestGuard checks that no network that is not allowed is called, not even if a registry leads
// there, and that a registry with TLS is never called over plain HTTP.
func TestGuard(t *testing.T) {
	t.Parallel()
	var inner []string
	metadata := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner = append(inner, r.URL.Path) }))
	metadata.Start()
	t.Cleanup(metadata.Close)
	elsewhere := strings.Replace(metadata.URL, "127.0.0.1", "localhost", 1)
	lured := newHouse(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/v2/") {
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+elsewhere+`/latest/token"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			http.Redirect(w, r, elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
		})
	})
	// This client resolves localhost to an address that is not allowed.
	via := outboundtest.New(t, outbound.Config{Resolve: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
	}}, "127.0.0.1/32")
	if _, err := Push(ctx, via, lured.place(t, "/org/policies"), Login{User: "ada", Password: "secret"}, packed(t, "x"), nil); err == nil {
		t.Error("pushed")
	} else if status, text := Describe(err); status != 0 || text != "the registry could not be reached" {
		t.Errorf("%d %s", status, text)
	}
	if len(inner) > 0 {
		t.Errorf("calls of the inner address = %v, want none", inner)
	}
	plain := newHouse(t, nil)
	secure, err := Parse(strings.Replace(plain.URL, "http://", Scheme, 1) + "/org/policies")
	errtest.Must(t, err)
	if _, err := Push(ctx, outboundtest.Local(t), secure, Login{User: "ada", Password: "secret"}, packed(t, "x"), nil); err == nil || len(plain.calls) > 0 {
		t.Errorf("Push to a registry without TLS = %v after the calls %v, want an error without a call", err, plain.calls)
	}
	if _, err := Push(ctx, outboundtest.New(t, outbound.Config{}), plain.place(t, "/org/policies"), Login{}, packed(t, "x"), nil); err == nil || len(plain.calls) > 0 {
		t.Errorf("Push to a loopback address = %v after the calls %v, want an error without a call", err, plain.calls)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"oci://ghcr.io/org/policies":             "https://ghcr.io/v2/ ghcr.io/org/policies",
		"oci://registry.example.com:5000/a/b:v1": "https://registry.example.com:5000/v2/ registry.example.com:5000/a/b:v1",
		"oci+http://127.0.0.1:5000/a:v1":         "http://127.0.0.1:5000/v2/ 127.0.0.1:5000/a:v1",
	} {
		p, err := Parse(address)
		if got := p.URL() + " " + p.tag.String(); err != nil || got != want {
			t.Errorf("Parse(%s) = %s, %v, want %s", address, got, err, want)
		}
	}
	for _, address := range []string{
		"", "oci://", "oci://ghcr.io", "oci://ghcr.io/", "oci:///org/x", "https://ghcr.io/org/x", "oci://user@ghcr.io/x", "oci://ghcr.io/x@sha256:" + strings.Repeat("0", 64),
		"oci://ghcr.io/x?y", "oci://ghcr.io/x#y", "oci://registry/org/x", "oci://ghcr.io/UPPER", "oci://ghcr.io/x:" + strings.Repeat("t", 200), "oci://ghcr.io/a/../b", `oci://ghcr.io\@x.com/a`,
	} {
		if p, err := Parse(address); err == nil {
			t.Errorf("Parse(%s) = %s, want an error", address, p.tag)
		}
	}
}

// TestRedirects checks that no redirect of a registry is followed, whichever call it answers: the
// other host gets no call, so it gets no credential either. A redirected question for a blob is no
// obstacle, because registries that have their blobs elsewhere answer so: the blob is sent again.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var told atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		told.Add(1)
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(other.Close)
	const refused = "the registry answered with a redirect, which is not followed"
	for name, c := range map[string]struct {
		redirected          func(r *http.Request) bool
		wantPush, wantCheck string
	}{
		"every call":   {func(*http.Request) bool { return true }, refused, refused},
		"the greeting": {func(r *http.Request) bool { return r.URL.Path == "/v2/" }, refused, refused},
		"an upload":    {func(r *http.Request) bool { return r.Method == http.MethodPost }, refused, refused},
		"the content":  {func(r *http.Request) bool { return r.Method == http.MethodPatch }, refused, ""},
		"the manifest": {func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/")
		}, refused, ""},
		"the question": {func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/")
		}, refused, ""},
		"a stored blob": {func(r *http.Request) bool {
			return r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/blobs/")
		}, "", ""},
	} {
		for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			lured := newHouse(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch user, _, _ := r.BasicAuth(); {
					case c.redirected(r):
						http.Redirect(w, r, other.URL+r.URL.Path, status)
					case user == "":
						w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
						w.WriteHeader(http.StatusUnauthorized)
					default:
						next.ServeHTTP(w, r)
					}
				})
			})
			via, login := outboundtest.Local(t), Login{User: "ada", Password: "secret"}
			_, push := Push(ctx, via, lured.place(t, "/org/policies"), login, packed(t, "x"), nil)
			check := Check(ctx, via, lured.place(t, "/org/policies"), login)
			for does, of := range map[string]struct {
				err  error
				want string
			}{"push": {push, c.wantPush}, "check": {check, c.wantCheck}} {
				text := ""
				if of.err != nil {
					_, text = Describe(of.err)
				}
				if text != of.want {
					t.Errorf("%s, %d, %s: %q (%v), want %q", name, status, does, text, of.err, of.want)
				}
			}
			if n := told.Swap(0); n > 0 {
				t.Errorf("%s, %d: the other host got %d calls, want none", name, status, n)
			}
		}
	}
}

// TestRedirectedLogin checks that a token service that redirects leads nowhere, with or without the
// password.
func TestRedirectedLogin(t *testing.T) {
	t.Parallel()
	var told atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { told.Add(1) }))
	t.Cleanup(thief.Close)
	var asked atomic.Int32
	lured := newHouse(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				asked.Add(1)
				http.Redirect(w, r, thief.URL+"/token", http.StatusTemporaryRedirect)
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
	})
	for _, login := range []Login{{}, {User: "ada", Password: "secret"}} {
		if _, err := Push(ctx, outboundtest.Local(t), lured.place(t, "/org/policies"), login, packed(t, "x"), nil); err == nil {
			t.Error("pushed")
		}
	}
	if asked.Load() == 0 || told.Load() > 0 {
		t.Errorf("the token service got %d calls and the other host %d, want some and none", asked.Load(), told.Load())
	}
}

// TestPlainByName checks that a registry in plain text is reached by HTTP whatever its name is. By
// itself, the library would do that only for private addresses.
func TestPlainByName(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		plainScheme + "registry:5000/policies":       "http",
		plainScheme + "registry.example/policies:v1": "http",
		Scheme + "registry.example/policies:v1":      "https",
	} {
		p, err := Parse(address)
		if err != nil {
			t.Errorf("Parse(%q): %v", address, err)
			continue
		}
		if got := p.tag.Scheme(); got != want {
			t.Errorf("the scheme of %q is %s, want %s", address, got, want)
		}
	}
}

// TestCheckEndsWithItsCaller checks that a check of a registry that does not answer ends with its
// caller.
func TestCheckEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	asked, over := make(chan struct{}, 10), make(chan struct{})
	h := newHouse(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			asked <- struct{}{}
			<-over
		})
	})
	t.Cleanup(func() { close(over) })
	caller, leave := context.WithCancel(ctx)
	via, at := outboundtest.Local(t), h.place(t, "/policies")
	checked := make(chan error, 1)
	go func() { checked <- Check(caller, via, at, Login{}) }()
	<-asked
	leave()
	if err := <-checked; !errors.Is(err, context.Canceled) {
		t.Errorf("Check = %v, want %v", err, context.Canceled)
	}
}

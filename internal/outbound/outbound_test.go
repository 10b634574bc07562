package outbound

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// refusedForms are spellings of internal addresses, and texts that are not web addresses.
var refusedForms = []string{
	"http://127.0.0.1/", "http://127.1/", "http://127.0.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/",
	"http://0177.0.0.1/", "http://017700000001/", "http://127.0.0.1./", "http://localhost./", "http://127.0.0.010/", "http://0/", "http://0.0.0.0/",
	"http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.1.1/", "http://169.254.169.254/latest/meta-data", "http://100.64.0.1/",
	"http://100.100.100.200/", "http://168.63.129.16/", "http://192.0.0.192/", "http://198.18.0.1/", "http://224.0.0.1/", "http://255.255.255.255/", "http://240.0.0.1/",
	"http://[::1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[0:0:0:0:0:ffff:10.0.0.1]/", "http://[::127.0.0.1]/",
	"http://[fe80::1]/", "http://[fe80::1%25eth0]/", "http://[fc00::1]/", "http://[fd00:ec2::254]/", "http://[ff02::1]/", "http://[fec0::1]/",
	"http://[64:ff9b::7f00:1]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b:1::1]/", "http://[2002:7f00:1::]/", "http://[2001:0:7f00:1::]/", "http://[2001:db8::1]/", "http://[100::1]/",
	"http://user@8.8.8.8/", "http://user:pass@8.8.8.8/", "http://8.8.8.8@127.0.0.1/", "http://8.8.8.8#@127.0.0.1", "http://8.8.8.8\\@127.0.0.1/",
	"http://１２７.０.０.１/", "http://ⓛocalhost/", "http://exämple.com/", "http://127。0。0。1/", "http://exa mple.com/", "http://example.com\t/",
	"http://8.8.8.8:22/", "http://8.8.8.8:25/", "http://8.8.8.8:0/", "http://8.8.8.8:65536/", "http://8.8.8.8:/", "http://8.8.8.8:0080/",
	"ftp://8.8.8.8/", "file:///etc/passwd", "gopher://8.8.8.8/", "javascript:alert(1)", "//8.8.8.8/", "8.8.8.8", "", "http:///x", "http:8.8.8.8", "http://", "unix:///run/x",
	"http://-bad-.com/", "http://a..b/", "http://%31%32%37.0.0.1/", "http://inner.test/", "http://mixed.test/", "http://mapped.test/",
}

// resolver resolves names of internal and public addresses.
func resolver(ctx context.Context, host string) ([]netip.Addr, error) {
	switch host {
	case "inner.test":
		return []netip.Addr{netip.MustParseAddr("10.1.2.3")}, nil
	case "mixed.test":
		return []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("127.0.0.1")}, nil
	case "mapped.test":
		return []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1")}, nil
	case "public.test":
		return []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2606:4700::1")}, nil
	case "empty.test":
		return nil, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// No form of an internal address is called, and no error says why.
func TestRefusedForms(t *testing.T) {
	c := New(Config{AllowHTTP: true, Resolve: resolver, Timeout: time.Second})
	ctx := context.Background()
	var checked, called []string
	for _, raw := range refusedForms {
		err := c.Check(ctx, "/url", raw)
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Kind != fault.Invalid || !errors.Is(err, errRefused) {
			t.Errorf("Check(%q): %v, want it refused", raw, err)
			continue
		}
		checked = append(checked, f.Message)
		_, err = c.Do(ctx, Request{URL: raw})
		if f, ok = errors.AsType[*fault.Error](err); !ok || f.Kind != fault.BadGateway {
			t.Errorf("Do(%q): %v, want BadGateway", raw, err)
			continue
		}
		called = append(called, f.Message)
		if raw == "http://8.8.8.8:/" { // net/http corrects it before the guard sees it
			continue
		}
		if res, err := c.HTTP().Get(raw); err == nil {
			res.Body.Close()
			t.Errorf("HTTP().Get(%q): no error", raw)
		}
	}
	for _, list := range [][]string{checked, called} {
		for _, m := range list {
			if m != list[0] {
				t.Errorf("the messages are %q and %q, want the same, which reveals nothing", m, list[0])
			}
		}
	}
	if len(refusedForms) < 60 {
		t.Errorf("%d forms, want at least 60", len(refusedForms))
	}
}

// Public addresses, and those that the operator allows, can be called.
func TestAllowedForms(t *testing.T) {
	ctx := context.Background()
	c := New(Config{Resolve: resolver})
	for _, raw := range []string{"https://8.8.8.8/x?y=1", "https://public.test:8443/", "https://[2606:4700::1]/", "https://unknown.test/", "https://empty.test/", "https://sub.public.test", "https://SUB.Public.TEST", "https://sub.public.TEST:8443/"} {
		if err := c.Check(ctx, "/url", raw); err != nil {
			t.Errorf("Check(%q): %v, want no error", raw, err)
		}
	}
	if err := c.Check(ctx, "/url", "http://8.8.8.8/"); err == nil {
		t.Error("Check of http://: no error")
	}
	c = New(Config{Resolve: resolver, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	for raw, ok := range map[string]bool{"https://10.9.9.9:25/": true, "https://inner.test/": true, "https://[::ffff:10.0.0.1]/": true, "https://192.168.0.1/": false, "https://mixed.test/": false} {
		if err := c.Check(ctx, "/url", raw); (err == nil) != ok {
			t.Errorf("Check(%q) with 10.0.0.0/8 allowed: %v, want it to pass: %v", raw, err, ok)
		}
	}
}

// local starts a server, and returns a client that may call it and its URL.
func local(t *testing.T, h http.HandlerFunc, change func(*Config)) (*Client, string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	cfg := Config{AllowHTTP: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	if change != nil {
		change(&cfg)
	}
	c := New(cfg)
	t.Cleanup(c.Close)
	return c, s.URL
}

// A call sends method, header and body, and returns the answer.
func TestDo(t *testing.T) {
	c, url := local(t, func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		w.Header().Set("X-Got", r.Method+" "+r.Header.Get("X-Sig")+" "+b.String())
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("thanks"))
	}, nil)
	res, err := c.Do(context.Background(), Request{Method: "POST", URL: url, Header: http.Header{"x-sig": {"s"}}, Body: []byte("hello")})
	if err != nil || !res.OK() || res.Status != 202 || string(res.Body) != "thanks" || res.Header.Get("X-Got") != "POST s hello" || res.Truncated {
		t.Errorf("Do = %+v %v, want 202 thanks", res, err)
	}
}

// A redirect could lead to an internal address. No client follows one, guarded or not, and neither
// does a library with an http.Client of its own.
func TestRedirectIsNotFollowed(t *testing.T) {
	var hits atomic.Int32
	var status atomic.Int32
	guarded, url := local(t, func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		http.Redirect(w, r, "/next", int(status.Load()))
	}, nil)
	get := func(c *http.Client) func() (int, error) {
		return func() (int, error) {
			res, err := c.Get(url)
			if err != nil {
				return 0, err
			}
			return res.StatusCode, res.Body.Close()
		}
	}
	for name, c := range map[string]*Client{"guarded": guarded, "trusted": Trusted(Config{})} {
		for way, call := range map[string]func() (int, error){
			"Do": func() (int, error) {
				res, err := c.Do(context.Background(), Request{URL: url})
				return res.Status, err
			},
			"HTTP":      get(c.HTTP()),
			"Bounded":   get(c.Bounded(1 << 10)),
			"Transport": get(&http.Client{Transport: c.Transport(context.Background(), Bound{Plain: true, MaxReply: 1 << 10})}),
		} {
			for _, code := range []int{301, 302, 303, 307, 308} {
				hits.Store(0)
				status.Store(int32(code))
				got, err := call()
				if way == "Transport" && !errors.Is(err, ErrRedirect) || way != "Transport" && (err != nil || got != code) || hits.Load() != 1 {
					t.Errorf("%s, %s, %d: %d, %v after %d requests, want no more than one", name, way, code, got, err, hits.Load())
				}
			}
		}
	}
}

// Of a large or packed answer, a bounded part is read.
func TestBoundedReply(t *testing.T) {
	c, url := local(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gzip" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(make([]byte, 10<<20))
			_ = z.Close()
			return
		}
		for range 1000 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}, nil)
	for _, path := range []string{"/big", "/gzip"} {
		res, err := c.Do(context.Background(), Request{URL: url + path})
		if err != nil || len(res.Body) > 64<<10 || (path == "/big") != res.Truncated {
			t.Errorf("GET %s: %d bytes, truncated %v, %v, want at most 64 KiB", path, len(res.Body), res.Truncated, err)
		}
	}
}

// An answer that does not end is an error after the timeout.
func TestSlowReply(t *testing.T) {
	c, url := local(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("x"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}, func(cfg *Config) { cfg.Timeout = 100 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // many times the limit of the client
	defer cancel()
	if _, err := c.Do(ctx, Request{URL: url}); !fault.Is(err, fault.BadGateway) || ctx.Err() != nil {
		t.Errorf("Do: %v, want BadGateway before its context ends (%v)", err, ctx.Err())
	}
}

// TestRebinding checks that a name that was public when it was saved is not called after it changes
// to an internal address, and that the address that was checked is the one that is called.
func TestRebinding(t *testing.T) {
	var hits, lookups atomic.Int32
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer inner.Close()
	port := inner.URL[strings.LastIndex(inner.URL, ":"):]
	c := New(Config{AllowHTTP: true, Timeout: 2 * time.Second, Resolve: func(context.Context, string) ([]netip.Addr, error) {
		if lookups.Add(1) == 1 {
			return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}})
	ctx := context.Background()
	errtest.Must(t, c.Check(ctx, "/url", "http://rebind.test"+port))
	if _, err := c.Do(ctx, Request{URL: "http://rebind.test" + port}); !errors.Is(err, errRefused) {
		t.Errorf("Do after the change: %v, want it refused", err)
	}
	if err := c.control("127.0.0.1"+port, webPorts); !errors.Is(err, errRefused) {
		t.Errorf("a connection to loopback: %v, want it refused", err)
	}
	if hits.Load() != 0 {
		t.Errorf("%d requests reached the internal server, want none", hits.Load())
	}
}

// A trusted client may call internal addresses.
func TestTrusted(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer s.Close()
	if res, err := Trusted(Config{}).Do(context.Background(), Request{URL: s.URL}); err != nil || res.Status != 204 {
		t.Errorf("Do = %d %v, want 204", res.Status, err)
	}
}

// A proxy of the environment would be called in place of the address that was checked.
func TestNoProxyOfTheEnvironment(t *testing.T) {
	var hits atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	c := New(Config{AllowHTTP: true, Resolve: resolver, Timeout: time.Second})
	_, _ = c.Do(context.Background(), Request{URL: "http://inner.test/"})
	if hits.Load() != 0 {
		t.Error("the proxy of the environment was called")
	}
}

// A signature is the HMAC of the body, and an empty secret signs nothing.
func TestSignature(t *testing.T) {
	// HMAC-SHA256 test case 2 of RFC 4231.
	want := "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
	got := Signature([]byte("Jefe"), []byte("what do ya want for nothing?"))
	if got != want || !SignatureValid([]byte("Jefe"), []byte("what do ya want for nothing?"), want) {
		t.Errorf("Signature = %s, want %s, which is valid", got, want)
	}
	for _, bad := range []string{"", want[:20], strings.ToUpper(want), want + "0"} {
		if SignatureValid([]byte("Jefe"), []byte("what do ya want for nothing?"), bad) {
			t.Errorf("SignatureValid(%q) = true", bad)
		}
	}
	if SignatureValid(nil, []byte("x"), Signature(nil, []byte("x"))) {
		t.Error("a signature with an empty secret is valid")
	}
}

// FuzzForm checks that an address that passes is the one that net/http calls.
func FuzzForm(f *testing.F) {
	for _, raw := range refusedForms {
		f.Add(raw)
	}
	c := New(Config{AllowHTTP: true, Resolve: resolver})
	f.Fuzz(func(t *testing.T, raw string) {
		good, err := c.form(raw)
		if err != nil {
			return
		}
		r, err := http.NewRequest(http.MethodGet, raw, nil)
		if err != nil || r.URL.Hostname() != good.host || r.URL.User != nil {
			t.Errorf("form(%q): host %q, and net/http would call %v (%v)", raw, good.host, r, err)
		}
	})
}

// Retry-After is a number of seconds or a time, and is bounded.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 15, 9, 30, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "x": 0, "0": 0, "-5": 0, "120": 2 * time.Minute, "99999999": 12 * time.Hour, "99999999999999999999": 0,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
		now.AddDate(1, 0, 0).Format(http.TimeFormat): 12 * time.Hour,
	} {
		r := Response{Header: http.Header{"Retry-After": {value}}}
		if got := r.RetryAfter(now, 12*time.Hour); got != want {
			t.Errorf("Retry-After %q = %s, want %s", value, got, want)
		}
	}
}

// Addresses have the same origin if scheme, host and port are the same.
func TestSameOrigin(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"https://h/x", "https://H/y", true},
		{"https://h/x", "http://h/x", false},
		{"https://h/x", "https://h:444/x", false},
		{"https://h/x", "https://h.evil/x", false},
		{"https://h/x", "://", false},
		{"\x00", "\x00", false},
	} {
		if got := SameOrigin(c.a, c.b); got != c.want {
			t.Errorf("SameOrigin(%s, %s) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

package enforce

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// documentControl is an attribute-based control of the usual size: roles,
// department, clearance, trusted networks.
const documentControl = `package bench

default allow := false

roles := {"reader": {"read"}, "editor": {"read", "write"}, "admin": {"read", "write", "delete"}}

permitted if {
	some r in input.user.roles
	input.action.name in roles[r]
}

trusted if net.cidr_contains("127.0.0.0/8", input.context.ip_address)

trusted if net.cidr_contains("10.0.0.0/8", input.context.ip_address)

allow if {
	permitted
	trusted
	input.resource.data_classification != "restricted"
	startswith(input.request.path, "/docs/")
}

reason := "role, network and classification fit" if allow
`

// BenchmarkProxy compares, over real sockets and the same 200 paths: the
// application alone, a bare httputil.ReverseProxy, and the bouncer with the
// decision cache, with a control evaluated for each request, and in shadow mode.
//
// Eight connections a processor. The bare proxy has a buffer pool, as the
// bouncer has: without one it spends half its time on garbage.
//
//	GOGC=400 go test -run - -bench Proxy -count 5 ./internal/enforce/
func BenchmarkProxy(b *testing.B) {
	payload := bytes.Repeat([]byte("x"), 1024)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(payload)
	}))
	defer app.Close()
	b.Run("direct", func(b *testing.B) { load(b, app.URL) })
	b.Run("ReverseProxy", func(b *testing.B) {
		u, _ := url.Parse(app.URL)
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 256
		rp := httptest.NewServer(&httputil.ReverseProxy{Transport: t, BufferPool: &bufferPool{}, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u); r.SetXForwarded() }})
		defer rp.Close()
		load(b, rp.URL)
	})
	for _, tc := range []struct {
		name, Mode string
		cache      bool
	}{{"bouncer/cached", "enforce", true}, {"bouncer/evaluated", "enforce", false}, {"bouncer/shadow", "shadow", true}} {
		b.Run(tc.name, func(b *testing.B) {
			p := newPlane(b)
			p.discard = true
			p.publish(policySet{
				revision: 1, mode: tc.Mode, controls: []control{{id: 1, source: documentControl, resource: 5}},
				config:    map[string]any{"cache_enabled": tc.cache, "identity": map[string]any{"trusted_proxies": []string{"127.0.0.1"}}},
				resources: []target.Resource{{ID: 5, Type: "api", Path: "/docs/**", Doc: valuetest.Decode(b, `{"id":5,"type":"api","data_classification":"internal"}`)}},
			})
			run := start(b, p, app.URL, nil).at(b, 1)
			defer run.stop()
			load(b, run.url)
		})
	}
}

// load requests the paths in turn, on one kept connection for each goroutine, with little work of its
// own.
func load(b *testing.B, target string) {
	addr := strings.TrimPrefix(target, "http://")
	b.ReportAllocs()
	b.SetParallelism(8)
	before := processorTime()
	defer func() {
		b.ReportMetric(float64(processorTime()-before)/1e3/float64(b.N), "cpu-us/req")
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	}()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		br := bufio.NewReaderSize(c, 8192)
		var requests [200][]byte
		for i := range requests {
			requests[i] = fmt.Appendf(nil, "GET /docs/%d HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\nX-Auth-Request-User: ann\r\nX-Auth-Request-Groups: reader,staff\r\n\r\n", i, addr)
		}
		for i := 0; pb.Next(); i++ {
			if _, err := c.Write(requests[i%len(requests)]); err != nil {
				b.Error(err)
				return
			}
			if err := skipAnswer(br); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// bufferPool is a buffer pool for httputil.
type bufferPool struct{ pool sync.Pool }

func (s *bufferPool) Get() []byte {
	if p, ok := s.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (s *bufferPool) Put(p []byte) { s.pool.Put(&p) }

// processorTime is the processor time of the whole process: client, bouncer and application. It
// varies less than the clock on a busy machine.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// skipAnswer reads an answer of 1024 bytes.
func skipAnswer(br *bufio.Reader) error {
	for first := true; ; first = false {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return fmt.Errorf("the answer is %q", line)
		}
		if len(line) == 2 {
			_, err := br.Discard(1024)
			return err
		}
	}
}

package rest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/memory"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// manyMembers returns a body that takes many times its size when it is decoded.
func manyMembers(n int) string {
	var out strings.Builder
	out.WriteString(`{"name":"x","settings":{"x":{"a":0`)
	for i := range n {
		fmt.Fprintf(&out, `,"k%x":0`, i)
	}
	out.WriteString("}}}")
	return out.String()
}

// TestBodiesInFlight: the decoded size of a tenant's concurrent bodies is limited, even if each
// body is small. A request beyond the limit is refused with Retry-After, while another tenant is
// served. Requests without a credential take no memory from a tenant.
func TestBodiesInFlight(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	g := newRig(t, nil, func(g *rig) {
		hold := func(ctx context.Context, sc scope.Scope, in *createIn) (*struct{}, error) {
			if in.Body.Name == "x" && sc.Tenant == "t1" || sc.Tenant == scope.DefaultTenant && sc.Actor.Kind == "" {
				entered <- struct{}{}
				<-leave
			}
			return nil, nil
		}
		Register(g.Router, Op{ID: "hold", Method: "PUT", Path: "/hold", Reach: ReachTenant, Tags: []string{"T"}, Summary: "Hold"}, hold)
		Register(g.Router, Op{ID: "hold-public", Method: "PUT", Path: "/hold-public", Public: true, Tags: []string{"T"}, Summary: "Hold"}, hold)
	})
	g.bodyPools[memory.Decoded] = memory.New(8<<20, 4<<20, time.Millisecond)
	body := manyMembers(3000) // 25 KiB, which count as 1.5 MiB
	put := func(path, key string) (int, http.Header) {
		w := g.Do(t, resttest.Call{Method: "PUT", Path: path, Body: body, Key: key}.Request())
		return w.Code, w.Header()
	}
	answers := make(chan int, 3)
	for range 2 {
		go func() { code, _ := put("/v1/hold", "full"); answers <- code }()
		<-entered
	}
	go func() {
		w := g.Do(t, resttest.Call{Method: "PUT", Path: "/v1/hold-public", Body: manyMembers(1500)}.Request())
		answers <- w.Code
	}()
	<-entered
	if code, h := put("/v1/hold", "full"); code != http.StatusServiceUnavailable || h.Get("Retry-After") == "" {
		t.Errorf("PUT of a third body of the tenant = %d, Retry-After %q, want 503", code, h.Get("Retry-After"))
	}
	if code, h := put("/v1/hold-public?tenant_id=default", ""); code != http.StatusServiceUnavailable || h.Get("Retry-After") == "" {
		t.Errorf("PUT of a second body without a credential = %d, Retry-After %q, want 503", code, h.Get("Retry-After"))
	}
	if code, _ := put("/v1/hold", "platform"); code != http.StatusNoContent {
		t.Errorf("PUT of another tenant meanwhile = %d, want 204", code)
	}
	w := g.Do(t, resttest.Call{Method: "PUT", Path: "/v1/hold", Body: `{"name":"small"}`, Key: "full"}.Request())
	if w.Code != http.StatusNoContent {
		t.Errorf("PUT of a short body meanwhile = %d, want 204", w.Code)
	}
	close(leave)
	for range 3 {
		if code := <-answers; code != http.StatusNoContent {
			t.Errorf("PUT of a body that finds memory = %d, want 204", code)
		}
	}
	if n := g.bodyPools[memory.Decoded].Taken(); n != 0 {
		t.Errorf("%d bytes stay taken, want none", n)
	}
}

// TestSlowOperationsBoundBodies: an operation without deadlines still ends a connection whose body
// never arrives, whether the caller is known or not.
func TestSlowOperationsBoundBodies(t *testing.T) {
	addr, stop := served(t, func(srv *http.Server) { srv.ReadTimeout = 50 * time.Millisecond }, func(g *rig) {
		ok := func(context.Context, scope.Scope, *createIn) (*struct{}, error) { return nil, nil }
		Register(g.Router, Op{ID: "slow", Method: "PUT", Path: "/slow", Reach: ReachTenant, Slow: true, Tags: []string{"T"}, Summary: "Slow"}, ok)
	})
	for name, head := range map[string]string{"nobody": "", "a key": "X-API-Key: full\r\n"} {
		conn := dial(t, addr)
		errtest.Must(t, errtest.Of(io.WriteString(conn, "PUT /v1/slow HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+head+"Content-Length: 100\r\n\r\n{")))
		if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); err != nil {
			t.Errorf("read of the connection of %s: got %v, want its end", name, err)
		}
		_ = conn.Close()
	}
	wantStop(t, stop)
}

// TestMemoryOfPanics: a handler that panics after it has begun its answer frees its body's memory.
func TestMemoryOfPanics(t *testing.T) {
	for name, cause := range map[string]any{"a panic": "late", "an abort": http.ErrAbortHandler} {
		g := newRig(t, nil, func(g *rig) {
			Raw(g.Router, Op{ID: "cut", Method: "PUT", Path: "/cut", Reach: ReachTenant, Tags: []string{"T"}, Summary: "Cut"}, RawDocs{},
				func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
					if _, err := Body(w, req); err != nil {
						Fail(w, err)
						return
					}
					_, _ = w.Write([]byte("half"))
					panic(cause)
				})
		})
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("%s: recovered %v, want %v", name, p, http.ErrAbortHandler)
				}
			}()
			body := `{"name":"` + strings.Repeat("x", smallBody) + `"}`
			g.ServeHTTP(httptest.NewRecorder(), resttest.Call{Method: "PUT", Path: "/v1/cut", Body: body, Key: "full"}.Request())
		}()
		for i, of := range g.bodyPools {
			if n := of.Taken(); n != 0 {
				t.Errorf("%s: pool %d: %d bytes stay taken", name, i, n)
			}
		}
	}
}

// TestMemoryOfRefusals: a refused body whose rest is discarded releases its memory once.
func TestMemoryOfRefusals(t *testing.T) {
	var g *rig
	addr, stop := served(t, nil, func(of *rig) { g = of })
	body := `{"name":"` + strings.Repeat("x", lingerFrom+1) + `"}` // too long a name
	head := fmt.Sprintf("PUT /v1/widgets/7 HTTP/1.1\r\nHost: x\r\nX-API-Key: full\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	for range 3 {
		if got := rawStatus(t, addr, head+body); !strings.Contains(got, " 422 ") {
			t.Errorf("PUT of a long name = %s, want 422", got)
		}
	}
	wantStop(t, stop)
	for i, of := range g.bodyPools {
		if n := of.Taken(); n != 0 {
			t.Errorf("pool %d: %d bytes stay taken, want none", i, n)
		}
	}
}

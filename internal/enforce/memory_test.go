package enforce

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// inFlight is the number of requests that are held at once.
const inFlight = 24

// overhead is the memory that a request may use besides its body, in bytes: goroutines, connections
// and buffers on both sides of the bouncer, which all run in this process.
const overhead = 192 << 10

// heap returns the memory in use, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoryInFlight checks that a waiting request uses at most a mebibyte, however its body or its
// answer is read.
func TestMemoryInFlight(t *testing.T) {
	fulltest.Only(t)
	if testing.Short() {
		t.Skip("the race detector has a memory of its own")
	}
	const almost = 1<<20 - 4096
	words := strings.Repeat("all is well and nobody is named here ", almost/37+1)[:almost-200]
	prompt := `{"model":"m","messages":[{"role":"user","content":"` + words + `"}]}`
	list := `{"rows":["` + strings.Repeat(`x@y.example","`, almost/14)
	const reads = "package reads\n\nallow if not contains(input.llm.messages[0].content, \"secret\")\n\nallow if input.action.method == \"GET\"\n"
	const masks = "package masks\n\nallow := true\n\nmask contains \"pii:emails\"\n"
	for name, tc := range map[string]struct {
		source, send string
		answer       []string // written, and then nothing more until the end
		kind         string
	}{
		"a prompt that was decided on": {source: reads, send: prompt},
		"a prompt that is masked":      {source: "package m\n\nallow := true\n\nmask contains \"request:pii:emails\" if input.llm.model\n", send: prompt},
		"half of an answer":            {source: masks, answer: []string{list}, kind: "application/json"},
		"by a path":                    {source: masks + "\nmask contains \"rows.0\"\n", answer: []string{list}, kind: "application/json"},
		"a long string of a long one":  {source: masks, answer: []string{`{"a":"` + words + `"` + strings.Repeat(" ", 8192) + `,"b":"\\n`, words}, kind: "application/json"},
		"a long event":                 {source: masks, answer: []string{"data: {\"text\":\"\\n" + words}, kind: "text/event-stream"},
	} {
		t.Run(name, func(t *testing.T) {
			held := holdRequests(inFlight)
			defer held.release()
			app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", tc.kind)
				for _, piece := range tc.answer {
					_, _ = io.WriteString(w, piece)
				}
				if len(tc.answer) > 0 {
					_ = http.NewResponseController(w).Flush()
				}
				held.hold()
			})
			p := newPlane(t)
			p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: tc.source, resource: 5}}, resources: []target.Resource{{ID: 5, Type: "llm", Path: "/**", AuditLevel: "detailed"}}})
			b := start(t, p, app.URL, nil).at(t, 1)
			before := heap()
			var all sync.WaitGroup
			for range inFlight {
				all.Go(func() {
					method := map[bool]string{true: "GET", false: "POST"}[tc.send == ""]
					r, err := http.NewRequest(method, b.url+"/v1/chat", strings.NewReader(tc.send))
					if err != nil {
						held.fail(err.Error())
						return
					}
					r.Header.Set("Content-Type", "application/json")
					res, err := http.DefaultTransport.RoundTrip(r)
					if err != nil {
						held.fail(err.Error())
						return
					}
					defer res.Body.Close()
					_, _ = io.Copy(io.Discard, res.Body)
					held.fail(res.Status) // a failure if the application still waits for it
				})
			}
			held.wait(t)
			// Data in the sockets still arrives, and the log releases what it has synced, so the
			// smallest of several measurements counts.
			each := int64(1 << 62)
			measurements := 0
			eventually(t, "a request in flight to use at most a mebibyte", func() bool {
				measurements++
				each = min(each, (heap()-before)/inFlight)
				return each <= 1<<20+overhead && (len(tc.answer) == 0 || measurements >= 20)
			})
			t.Logf("%s: %d KiB each", name, each>>10)
			if each > 1<<20+overhead {
				t.Errorf("a request in flight uses %d KiB, want at most %d", each>>10, (1<<20+overhead)>>10)
			}
			held.release()
			all.Wait()
		})
	}
}

package enforce

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// Refusals of anonymous clients with long texts, through the proxy and by forward-auth, take little
// room in the log. Each is counted, and each permitted request has its own entry.
func TestFloodOfRefusalsIsCounted(t *testing.T) {
	t.Parallel()
	fulltest.Only(t)
	app := newApplication(t, nil)
	p, b := startPublished(t, app.URL, enforcing("package p\n\nallow if input.resource.path == \"/open\"\n"), func(c *Config) {
		c.TrustedProxies = []string{"127.0.0.1"}
		c.Fold = fold.Limits{Burst: 400, Rate: 1, EqualBurst: 100, EqualRate: 1, ByteBurst: 1 << 20, ByteRate: 1 << 10, Window: time.Hour, Sums: 16, PerOrigin: 4}
	})
	p.set(func() { p.down = true }) // so that events stay in the spool, and can be counted
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	ask := func(path string, head map[string]string) int {
		r, _ := http.NewRequest("GET", b.url+path, nil)
		for k, v := range head {
			r.Header.Set(k, v)
		}
		resp, err := client.Do(r)
		errtest.Must(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	before := b.journal.Spool.Bytes()
	const n = 4000
	long := strings.Repeat("z", 2000)
	refused, passed := 0, 0
	for i := range n {
		status := 0
		switch i % 4 {
		case 0:
			status = ask("/closed", nil)
		case 1:
			status = ask("/_bouncer/auth", map[string]string{"X-Original-Method": "GET", "X-Original-Host": "app.test", "X-Original-Uri": "/closed?" + long})
		case 2:
			status = ask("/closed/"+long, map[string]string{"X-Request-Id": fmt.Sprint("r", i)})
		case 3:
			status = ask("/open", nil)
		}
		if want := map[bool]int{true: 200, false: 403}[i%4 == 3]; status != want {
			t.Fatalf("request %d = %d, want %d", i, status, want)
		}
		if i%4 == 3 {
			passed++
		} else {
			refused++
		}
	}
	b.recorder.WriteFolded(true)
	grown := b.journal.Spool.Bytes() - before
	t.Logf("%d refusals and %d others took %d KiB", refused, passed, grown>>10)
	p.set(func() { p.down = false })
	eventually(t, "the log to arrive", func() bool { return b.journal.Spool.Depth() == 0 })
	own, counted, permits, size := 0, 0, 0, 0
	for _, e := range p.logged(1) {
		result, _ := e["result"].(map[string]any)
		custom, _ := e["custom"].(map[string]any)
		folded, _ := custom["folded"].(map[string]any)
		switch {
		case result["decision"] == "PERMIT":
			permits++
			if folded != nil {
				t.Errorf("a permitted request is counted together with others: %v", e)
			}
		case folded != nil:
			count, _ := folded["count"].(float64)
			counted += int(count)
			if first, last := fmt.Sprint(folded["first"]), fmt.Sprint(folded["last"]); first > last || len(fmt.Sprint(folded["digest"])) != 64 || e["decision_id"] == nil || result["decision"] != "DENY" {
				t.Errorf("the event is %v, want a DENY with id, digest, first and last time in order", e)
			}
		default:
			own++
			size += len(fmt.Sprint(e))
		}
	}
	if size > 2<<20 || grown > 2<<20+int64(passed)*(2<<10) {
		t.Errorf("%d refusals take %d KiB in the log, and the spool grew by %d KiB, want at most 2 MiB and 2 KiB a permitted request", refused, size>>10, grown>>10)
	}
	if n := b.count.LogsFolded.Load(); n != uint64(counted) {
		t.Errorf("the metric counts %d folded refusals, want %d as in the log", n, counted)
	}
	if own+counted != refused || permits != passed || counted == 0 || own > 420 {
		t.Errorf("%d entries and %d counted of %d refusals, %d entries of %d permitted requests, want all, and at most 420 entries of refusals", own, counted, refused, permits, passed)
	}
}

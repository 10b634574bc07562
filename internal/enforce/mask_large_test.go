package enforce

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/maskbody"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// rowsOf returns a JSON document of about size bytes.
func rowsOf(size int) string {
	row := `{"ssn":"canary-1","email":"bea@example.com","text":"nothing here, and nothing there"},`
	return `{"rows":[` + strings.Repeat(row, size/len(row)) + `{}]}`
}

// Masks by path apply to answers up to the limit, compressed or not. The refusal of a larger answer
// names the limit. Afterwards, no disk space or shared memory stays reserved.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	fulltest.Only(t)
	var answer atomic.Pointer[http.HandlerFunc]
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) })
	p := newPlane(t)
	const paths = "package paths\n\nallow := true\n\nmask := {\"rows.*.ssn\": \"redact\"}\n"
	const both = "package both\n\nallow := true\n\nmask := {\"rows.*.ssn\": \"hash\", \"pii:emails\": \"redact\", \"header:X-Secret\": \"remove\"}\n"
	sends := func(kind, doc string, zip, known bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Content-Type", kind)
			h.Set("X-Secret", "canary")
			body := doc
			if zip {
				h.Set("Content-Encoding", "gzip")
				body = gzipped(doc)
			}
			if known {
				h.Set("Content-Length", fmt.Sprint(len(body)))
			}
			_, _ = io.WriteString(w, body)
		}
	}
	large, most, over := rowsOf(3<<20), rowsOf(bodies.MaxMasked-256), rowsOf(bodies.MaxMasked+4096)
	revision := 0
	for name, source := range map[string]string{"paths": paths, "paths and categories": both} {
		revision++
		p.publish(policySet{revision: revision, mode: "enforce", controls: []control{{id: 1, source: source}}})
		b := start(t, p, app.URL, nil).at(t, revision)
		for what, tc := range map[string]struct {
			h      http.HandlerFunc
			status int
			text   string // in the body
		}{
			"large":             {sends("application/json", large, false, true), 200, ""},
			"large, in chunks":  {sends("application/json", large, false, false), 200, ""},
			"large, packed":     {sends("application/problem+json", large, true, true), 200, ""},
			"the most":          {sends("application/json", most, false, false), 200, ""},
			"more":              {sends("application/json", over, false, true), 502, `"path_mask"`},
			"more, in chunks":   {sends("application/json", over, false, false), 502, `"path_mask"`},
			"a bomb":            {sends("application/json", over+strings.Repeat(" ", 64<<20), true, true), 502, `"path_mask"`},
			"large and broken":  {sends("application/json", large[:len(large)-2], false, false), 502, "could not be masked"},
			"a second document": {sends("application/json", large+`{"rows":[{"ssn":"canary"}]}`, false, false), 502, "could not be masked"},
			"not UTF-8":         {sends("application/json", large[:len(large)-3]+",\"\xff canary\"]}", false, false), 502, "could not be masked"},
			"no JSON":           {sends("text/plain", large, false, false), 502, "could not be masked"},
			"cut off": {func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", fmt.Sprint(len(large)+1))
				_, _ = io.WriteString(w, large)
			}, 502, "could not be masked"},
		} {
			answer.Store(&tc.h)
			got := fetch(t, "GET", b.url+"/x", nil)
			if got.status != tc.status || strings.Contains(got.body, "canary") || strings.Contains(fmt.Sprint(got.header), "canary") && source == both || tc.text != "" && !strings.Contains(got.body, tc.text) && !strings.Contains(got.body, strings.ReplaceAll(tc.text, `"`, `\"`)) {
				t.Errorf("%s, %s: %s, want %d %s and no secret", name, what, got, tc.status, tc.text)
			}
			if tc.status == 200 && (!json.Valid([]byte(got.body)) || len(got.body) < 2<<20 || strings.Contains(got.body, "bea@") != (source == paths) || got.header.Get("Content-Length") != fmt.Sprint(len(got.body))) {
				t.Errorf("%s, %s: %s %v, %d bytes, want a large JSON document of the announced length", name, what, got, got.header, len(got.body))
			}
			if m, d := b.bodies.InMemory(), b.bodies.OnDisk(); m != 0 || d != 0 {
				t.Errorf("%s, %s: %d bytes in memory and %d on disk stay reserved, want 0", name, what, m, d)
			}
		}
	}
}

// Many large answers at once stay within the shared memory. Each is masked or refused with the name
// of the limit.
func TestConcurrentLargeAnswers(t *testing.T) {
	t.Parallel()
	fulltest.Only(t)
	doc := rowsOf(4 << 20)
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, doc)
	})
	_, b := startPublished(t, app.URL, enforcing("package paths\n\nallow := true\n\nmask := {\"rows.*.ssn\": \"last4\", \"pii:emails\": \"remove\"}\n"), nil)
	end, watched := make(chan struct{}), make(chan int64)
	go func() {
		most := int64(0)
		for {
			select {
			case <-end:
				watched <- most
				return
			default:
				most = max(most, b.bodies.InMemory())
			}
		}
	}()
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if got := fetch(t, "GET", b.url+"/x", nil); got.status != 200 || strings.Contains(got.body, "canary") {
				t.Errorf("%s, want 200 and no secret", got)
			}
		})
	}
	all.Wait()
	close(end)
	if most, bound := <-watched, int64(maskbody.LargeMaskers*maskbody.CopiesForPrivacy*(4<<20+4096)); most > bound {
		t.Errorf("%d bytes were in memory at once, want at most %d", most, bound)
	}
	// Without room the refusal names the limit, and nothing of the answer passes.
	room := b.bodies.NewReservation()
	if !room.Grow(bodies.MaxBodiesInMemory) {
		t.Fatal("the room for bodies is in use, want all of it free")
	}
	defer room.Release()
	if got := fetch(t, "GET", b.url+"/x", nil); got.status != 503 || !strings.Contains(got.body, "all_bodies") || strings.Contains(got.body, "canary") {
		t.Errorf("without room: %s, want 503 all_bodies and no secret", got)
	}
}

package source

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// fetcher returns a Fetcher that may call this machine.
func fetcher(t *testing.T) *Fetcher {
	t.Helper()
	return fetcherFor(t, nil)
}

// fetcherFor returns a Fetcher that may call this machine and trusts an authority.
func fetcherFor(t *testing.T, roots *x509.CertPool) *Fetcher {
	t.Helper()
	return &Fetcher{Target: outboundtest.New(t, outbound.Config{Timeout: CallTime, MaxReply: MaxBytes, RootCAs: roots}, outboundtest.Loopback), Now: time.Now}
}

// serve starts a source.
func serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s.URL
}

// answerText always answers with the same text.
func answerText(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
}

// serveText starts a source that always answers with the same text.
func serveText(t *testing.T, body string) string {
	t.Helper()
	return serve(t, answerText(body))
}

// get fetches, and fails the test if that fails.
func (f *Fetcher) get(t *testing.T, o Order) Result {
	t.Helper()
	res, err := f.Fetch(t.Context(), o)
	errtest.Must(t, err)
	return res
}

// wantFailure runs a fetch that must fail with a message for the owner of the source.
func (f *Fetcher) wantFailure(t *testing.T, o Order, want string) *Failure {
	t.Helper()
	res, err := f.Fetch(t.Context(), o)
	failure, ok := errors.AsType[*Failure](err)
	if !ok || !strings.Contains(failure.Message, want) {
		t.Fatalf("Fetch = %.200s, %v, want a failure with %q", res.Data.AppendJSON(nil), err, want)
	}
	return failure
}

// TestShapes checks how answers are converted, by configuration.
func TestShapes(t *testing.T) {
	const people = `{"items":[{"id":"ada","name":"Ada","grade":{"level":7},"teams":[{"n":"x"},{"n":"y"}]},{"id":8,"name":"Bob"}]}`
	for _, c := range []struct {
		name, body string
		cfg        Config
		want       string
		records    int
	}{
		{"as it is", `{"grades":{"ada":7}}`, Config{}, `{"grades":{"ada":7}}`, 1},
		{"an array as it is", `[1,2]`, Config{}, `[1,2]`, 2},
		{"the array of records", people, Config{Records: "$.items", Fields: map[string]string{"who": "name"}}, `[{"who":"Ada"},{"who":"Bob"}]`, 2},
		{"each record", people, Config{Records: "$.items[*].teams[*]"}, `[{"n":"x"},{"n":"y"}]`, 2},
		{
			"by key", people,
			Config{Records: "$.items", Key: "id", Fields: map[string]string{"level": "$.grade.level", "teams": "$.teams[*].n"}},
			`{"8":{"teams":[]},"ada":{"level":7,"teams":["x","y"]}}`, 2,
		},
		{"a key twice", `[{"id":1,"v":"a"},{"id":1,"v":"b"}]`, Config{Key: "id"}, `{"1":{"id":1,"v":"b"}}`, 1},
		{"no records", `{"items":[]}`, Config{Records: "$.items", Key: "id"}, `{}`, 0},
		{"names that are no identifiers", `{"a b":{"c.d":[{"e":1}]}}`, Config{Records: `$['a b']["c.d"][0]`}, `[{"e":1}]`, 1},
		{"names of languages", `{"__proto__":{"constructor":1}}`, Config{}, `{"__proto__":{"constructor":1}}`, 1},
		{"one field of an object", `{"a":{"b":1},"c":2}`, Config{Fields: map[string]string{"x": "$.a.b"}}, `{"x":1}`, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.URL = serveText(t, c.body)
			res := fetcher(t).get(t, Order{Config: c.cfg})
			if got := string(res.Data.AppendJSON(nil)); got != c.want || res.Records != c.records {
				t.Errorf("the data is %s of %d records, want %s of %d", got, res.Records, c.want, c.records)
			}
		})
	}
}

// TestPages checks that each kind of pagination works, and makes the expected requests.
func TestPages(t *testing.T) {
	const total = 25
	var calls atomic.Int64
	paged := func(next func(w http.ResponseWriter, r *http.Request, from, size int) string) string {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			q := r.URL.Query()
			size, _ := strconv.Atoi(q.Get("limit"))
			from, _ := strconv.Atoi(q.Get("offset") + q.Get("start"))
			if n, err := strconv.Atoi(q.Get("page")); err == nil {
				from = (n - 1) * size
			}
			if text, ok := strings.CutPrefix(q.Get("after"), "t"); ok {
				from, _ = strconv.Atoi(text)
			}
			items := []map[string]int{}
			for i := from; i < min(from+size, total); i++ {
				items = append(items, map[string]int{"id": i})
			}
			extra := ""
			if from+size < total {
				extra = next(w, r, from, size)
			}
			list, _ := json.Marshal(items)
			fmt.Fprintf(w, `{"items":%s,"next":%s}`, list, map[bool]string{true: "null", false: extra}[extra == ""])
		})
	}
	none := func(http.ResponseWriter, *http.Request, int, int) string { return "" }
	cursor := func(_ http.ResponseWriter, _ *http.Request, from, size int) string {
		return fmt.Sprintf(`"t%d"`, from+size)
	}
	link := func(w http.ResponseWriter, r *http.Request, from, size int) string {
		w.Header().Add("Link", `</first>; rel="first", <http://`+r.Host+`/?limit=10&offset=`+strconv.Itoa(from+size)+`>; title="a, b"; rel="last next"`)
		return ""
	}
	relative := func(_ http.ResponseWriter, _ *http.Request, from, size int) string {
		return fmt.Sprintf(`"?limit=%d&offset=%d"`, size, from+size)
	}
	for name, c := range map[string]struct {
		url   string
		pages Pagination
	}{
		"page":           {paged(none), Pagination{Type: "page"}},
		"offset":         {paged(none), Pagination{Type: "offset"}},
		"offset by name": {paged(none), Pagination{Type: "offset", Parameter: "start"}},
		"cursor":         {paged(cursor), Pagination{Type: "cursor", Parameter: "after", Next: "$.next"}},
		"link":           {paged(link), Pagination{Type: "link"}},
		"URL":            {paged(relative), Pagination{Type: "link", Next: "$.next"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.pages.SizeParameter, c.pages.PageSize = "limit", 10
			o := Order{Config: Config{URL: c.url, Records: "$.items", Key: "id", Pagination: &c.pages}}
			calls.Store(0)
			res := fetcher(t).get(t, o)
			if res.Records != total || calls.Load() != 3 {
				t.Errorf("%d records in %d calls, want %d in 3", res.Records, calls.Load(), total)
			}
			o.Sample = true
			calls.Store(0)
			res = fetcher(t).get(t, o)
			if calls.Load() != 1 || len(res.Sample) != sampled || len(res.Fields) != 1 || res.Fields[0] != (Field{"id", "number"}) {
				t.Errorf("the sample is %v with the fields %v after %d calls, want %d records with the id after one", res.Sample, res.Fields, calls.Load(), sampled)
			}
		})
	}
}

// TestSignIn checks that a source gets the credentials of its kind, and no others.
func TestSignIn(t *testing.T) {
	var got http.Header
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header.Clone(); fmt.Fprint(w, `{}`) })
	tokens := serve(t, func(w http.ResponseWriter, r *http.Request) {
		id, secret, basic := r.BasicAuth()
		if !basic {
			id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
		}
		if id != "gate" || secret != "s3:cret/%" && secret != "s3%3Acret%2F%25" || r.PostFormValue("grant_type") != "client_credentials" || r.PostFormValue("scope") != "read" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"access_token":"tok-%v"}`, basic)
	})
	grant := func(auth string) *OAuth { return &OAuth{TokenURL: tokens, Scope: "read", ClientAuth: auth} }
	client := &Client{ID: "gate", Secret: "s3:cret/%"}
	for want, o := range map[string]Order{
		"":                   {},
		"Bearer t0":          {Credentials: Credentials{Token: "t0"}},
		"Basic YTpiOmM=":     {Credentials: Credentials{Username: "a", Password: "b:c"}},
		"Bearer tok-false":   {Credentials: Credentials{OAuth: client}, Config: Config{OAuth: grant("")}},
		"Bearer tok-true":    {Credentials: Credentials{OAuth: client}, Config: Config{OAuth: grant("basic")}},
		"ApiKey of a header": {Credentials: Credentials{Headers: map[string]string{"Authorization": "ApiKey of a header"}}, Config: Config{Headers: map[string]string{"X-Shown": "1"}}},
	} {
		o.Config.URL = url
		fetcher(t).get(t, o)
		if got.Get("Authorization") != want {
			t.Errorf("Authorization = %q, want %q", got.Get("Authorization"), want)
		}
	}
	o := Order{Config: Config{URL: url, OAuth: grant("")}, Credentials: Credentials{OAuth: &Client{ID: "gate", Secret: "wrong"}}}
	if f := fetcher(t).wantFailure(t, o, "returned no token"); f.Status != 401 {
		t.Errorf("the status of the failure is %d, want 401", f.Status)
	}
}

// TestHostileSources checks that no answer of a source can exceed the bounds, and a failure does not quote the
// answer.
func TestHostileSources(t *testing.T) {
	const canary = "canary-4711"
	var inside atomic.Int64
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { inside.Add(1) })
	keyed := Config{Records: "$.items", Key: "id"}
	paged := func(p Pagination) Config { return Config{Records: "$.items", Pagination: &p} }
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		cfg    Config
		want   string
	}{
		"an endless body": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, Config{}, "larger than 8 MiB"},
		"a redirect to another host": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, http.StatusFound) }, Config{}, "answered 302"},
		"a next page at another host": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"items":[1],"next":%q}`, elsewhere)
		}, paged(Pagination{Type: "link", Next: "$.next"}), "another host"},
		"a next page that is the same": {
			func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"items":[1]}`) },
			paged(Pagination{Type: "page"}), "page 2 is the same",
		},
		"an error with a body":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); fmt.Fprint(w, canary) }, Config{}, "answered 500 (Internal Server Error)"},
		"an unknown status":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(599) }, Config{}, "answered 599"},
		"304 that was not asked":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, Config{}, "answered 304"},
		"a closed connection":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Config{}, "could not be reached"},
		"no JSON":                   {answerText(canary), Config{}, "not JSON"},
		"gzip that was not asked":   {answerText("\x1f\x8b\x08\x00canary"), Config{}, "not JSON"},
		"an empty answer":           {answerText(""), Config{}, "not JSON"},
		"two documents":             {answerText(`{} {}`), Config{}, "not JSON"},
		"deep nesting":              {answerText(strings.Repeat("[", 100_000)), Config{}, "not JSON"},
		"a huge number":             {answerText(`{"n":1e400}`), Config{}, "not JSON"},
		"a huge integer":            {answerText(`{"n":` + strings.Repeat("9", 400) + `}`), Config{}, "not JSON"},
		"members twice":             {answerText(`{"role":"user","role":"admin"}`), Config{}, "not JSON"},
		"members by case":           {answerText(`{"role":"user","Role":"admin"}`), Config{}, "not JSON"},
		"bad UTF-8":                 {answerText("{\"a\":\"\xff\"}"), Config{}, "not JSON"},
		"a lone surrogate":          {answerText(`{"a":"\ud800"}`), Config{}, "not JSON"},
		"more values than fit":      {answerText("[" + strings.Repeat("1,", 1_100_000) + "1]"), Config{}, "not JSON"},
		"more records than fit":     {answerText("[" + strings.Repeat("1,", MaxRecords) + "1]"), Config{}, "more than 50000 records"},
		"no key":                    {answerText(`{"items":[{"id":"a"},{"name":"b"}]}`), keyed, "record 2 has no key at id"},
		"a key of another type":     {answerText(`{"items":[{"id":[1]}]}`), keyed, "record 1 has no key"},
		"an empty key":              {answerText(`{"items":[{"id":""}]}`), keyed, "record 1 has no key"},
		"a fraction as key":         {answerText(`{"items":[{"id":1.5}]}`), keyed, "record 1 has no key"},
		"a key of 501 bytes":        {answerText(`{"items":[{"id":"` + strings.Repeat("k", 501) + `"}]}`), keyed, "record 1 has no key"},
		"keys by case":              {answerText(`{"items":[{"id":"Bob"},{"id":"bob"}]}`), keyed, "differ only in case"},
		"a cursor that is a list":   {answerText(`{"items":[1],"next":[1]}`), paged(Pagination{Type: "cursor", Next: "$.next"}), "neither a text nor an integer"},
		"a cursor that never ends":  {counting(), paged(Pagination{Type: "cursor", Next: "$.next"}), "more than 1000 pages"},
		"a value taken many times":  {answerText(`{"items":[{"id":1,"big":"` + strings.Repeat("x", 1<<20) + `"}]}`), Config{Records: "$.items", Fields: everyField("big")}, "larger than 8 MiB"},
		"a cursor of 5000 bytes":    {answerText(`{"items":[1],"next":"` + strings.Repeat("c", 5000) + `"}`), paged(Pagination{Type: "cursor", Next: "$.next"}), "longer than 4000"},
		"a next page of gopher":     {answerText(`{"items":[1],"next":"gopher://x/"}`), paged(Pagination{Type: "link", Next: "$.next"}), "another host"},
		"a next page with password": {answerText(`{"items":[1],"next":"//user:pass@10.0.0.1/"}`), paged(Pagination{Type: "link", Next: "$.next"}), "another host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cfg.URL = serve(t, c.answer)
			if f := fetcher(t).wantFailure(t, Order{Config: c.cfg}, c.want); strings.Contains(f.Message, "canary") {
				t.Errorf("the failure is %q, want nothing of the answer", f.Message)
			}
		})
	}
	t.Cleanup(func() {
		if inside.Load() != 0 {
			t.Errorf("another host got %d requests, want none", inside.Load())
		}
	})
}

// counting is a source that always has another page.
func counting() http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"items":[1],"next":%d}`, n.Add(1)) }
}

// everyField returns as many fields as are allowed, all with the same path.
func everyField(from string) map[string]string {
	out := map[string]string{}
	for i := range maxFields {
		out["f"+strconv.Itoa(i)] = from
	}
	return out
}

// TestSlowSource checks that the time limit ends a fetch from a source that sends a byte now and then.
func TestSlowSource(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			fmt.Fprint(w, " ")
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
			}
		}
	})
	f := fetcher(t)
	f.Limit = 200 * time.Millisecond
	f.wantFailure(t, Order{Config: Config{URL: url}}, "took longer than 200ms")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.Fetch(ctx, Order{Config: Config{URL: url}})
	if _, failed := errors.AsType[*Failure](err); err == nil || failed {
		t.Errorf("an interrupted fetch = %v, want an error that is no failure of the source", err)
	}
}

// TestUnchanged checks that a source without changes is not read again.
func TestUnchanged(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if w.Header().Set("ETag", `"v1"`); r.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, `{"a":1}`)
	})
	f, o := fetcher(t), Order{Config: Config{URL: url}}
	first := f.get(t, o)
	if first.Unchanged || first.State.ETag != `"v1"` {
		t.Fatalf("the first fetch = %+v, want the data with its ETag", first)
	}
	o.State, o.Previous = first.State, first.Data
	if again := f.get(t, o); !again.Unchanged || again.State != first.State {
		t.Errorf("the second fetch = %+v, want it unchanged", again)
	}
	o.Previous = value.Value{} // without the data, its ETag must not be sent
	if again := f.get(t, o); again.Unchanged {
		t.Errorf("a fetch without the earlier data = %+v, want the data", again)
	}
}

// TestIncremental checks that changes are merged by key, deleted records are removed, and everything is read
// again after a while.
func TestIncremental(t *testing.T) {
	source := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var since []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", source.Format(http.TimeFormat))
		since = append(since, r.URL.Query().Get("updated_since"))
		if since[len(since)-1] == "" {
			fmt.Fprint(w, `[{"id":"a","v":1},{"id":"b","v":1}]`)
			return
		}
		fmt.Fprint(w, `[{"id":"a","v":2},{"id":"b","deleted":true},{"id":"c","v":1,"deleted":0}]`)
	})
	f := fetcher(t)
	now := source.Add(3 * time.Second) // our clock differs
	f.Now = func() time.Time { return now }
	o := Order{Config: Config{URL: url, Key: "id", Fields: map[string]string{"v": "v"}, Incremental: &Incremental{Parameter: "updated_since", Deleted: "deleted"}}}
	wantData := func(want string) {
		t.Helper()
		res := f.get(t, o)
		if got := string(res.Data.AppendJSON(nil)); got != want {
			t.Errorf("the data is %s, want %s", got, want)
		}
		o.State, o.Previous = res.State, res.Data
	}
	wantData(`{"a":{"v":1},"b":{"v":1}}`)
	wantData(`{"a":{"v":2},"c":{"v":1}}`)
	now = now.Add(25 * time.Hour)
	wantData(`{"a":{"v":1},"b":{"v":1}}`)
	if want := []string{"", "2026-03-01T11:59:59Z", ""}; fmt.Sprint(since) != fmt.Sprint(want) {
		t.Errorf("the requests have updated_since %q, want %q", since, want)
	}
}

// TestSampleIsBrief checks that a sample stays small, whatever the records are.
func TestSampleIsBrief(t *testing.T) {
	url := serveText(t, `[{"long":"`+strings.Repeat("é", 100_000)+`","list":[`+strings.Repeat("1,", 10_000)+`1],"deep":`+strings.Repeat(`{"x":`, 30)+`1`+strings.Repeat("}", 30)+`,"mixed":1},{"mixed":"a"}]`)
	res := fetcher(t).get(t, Order{Config: Config{URL: url}, Sample: true})
	size := 0
	for _, v := range res.Sample {
		size += len(v.AppendJSON(nil))
	}
	if size > 4000 || len(res.Sample) != 2 {
		t.Errorf("the sample has %d records with %d bytes, want 2 with at most 4000", len(res.Sample), size)
	}
	if fmt.Sprint(res.Fields) != "[{deep object} {list array} {long string} {mixed mixed}]" {
		t.Errorf("the fields are %v, want deep, list, long and mixed with their types", res.Fields)
	}
}

// TestLarge checks that a fetch calls Large once before it takes much memory, for whatever reason. An error of
// Large ends the fetch. A small fetch does not call Large.
func TestLarge(t *testing.T) {
	f := fetcher(t)
	pages := func(n, size int) Config {
		return Config{URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
			at := r.URL.Query().Get("page")
			if last, _ := strconv.Atoi(at); last > n {
				fmt.Fprint(w, `[]`)
				return
			}
			fmt.Fprintf(w, `[{"page":%s,"text":"%s"}]`, at, strings.Repeat("x", size))
		}), Records: "$[*]", Pagination: &Pagination{Type: "page", Parameter: "page", First: new(int)}}
	}
	for name, c := range map[string]struct {
		config Config
		want   int
	}{
		"small": {pages(2, 100), 0}, "a large page": {pages(1, 300<<10), 1}, "many pages": {pages(4, 100<<10), 1}, "both": {pages(3, 300<<10), 1},
	} {
		called := 0
		o := Order{Config: c.config, Large: func(context.Context) error { called++; return nil }}
		if f.get(t, o); called != c.want {
			t.Errorf("%s: Large is called %d times, want %d", name, called, c.want)
		}
		if c.want == 0 {
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		o.Large = func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }
		if _, err := f.Fetch(ctx, o); err == nil {
			t.Errorf("%s: a fetch that is cancelled in Large: no error", name)
		}
		o.Large = func(context.Context) error { return ErrBusy }
		_, err := f.Fetch(t.Context(), o)
		if _, failed := errors.AsType[*Failure](err); failed || !errors.Is(err, ErrBusy) {
			t.Errorf("%s: Fetch = %v, want ErrBusy, which is no failure of the source", name, err)
		}
	}
}

package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// server starts a server that answers each request with the next of the answers.
func server(t *testing.T, answers ...http.HandlerFunc) (*Client, *[]time.Duration, *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(calls.Add(1))
		answers[min(n, len(answers))-1](w, r)
	}))
	t.Cleanup(s.Close)
	var waits []time.Duration
	c := &Client{URL: s.URL, Key: "k", Wait: func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }}
	return c, &waits, &calls
}

func answer(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func dropped(w http.ResponseWriter, _ *http.Request) {
	panic(http.ErrAbortHandler)
}

func TestDo(t *testing.T) {
	fine := answer(200, `{"n":1}`)
	for name, c := range map[string]struct {
		method, key string
		answers     []http.HandlerFunc
		calls       int
		waits       []time.Duration
		status      int
	}{
		"at once":                      {"POST", "", []http.HandlerFunc{fine}, 1, nil, 0},
		"a busy server is asked again": {"POST", "", []http.HandlerFunc{answer(503, `{}`, "Retry-After", "3"), answer(429, `{}`, "Retry-After", "7"), fine}, 3, []time.Duration{3 * time.Second, 7 * time.Second}, 0},
		"a wait is bounded":            {"GET", "", []http.HandlerFunc{answer(429, `{}`, "Retry-After", "86400"), fine}, 2, []time.Duration{30 * time.Second}, 0},
		"waits grow by themselves":     {"GET", "", []http.HandlerFunc{answer(503, ``), answer(503, ``), fine}, 3, []time.Duration{250 * time.Millisecond, 500 * time.Millisecond}, 0},
		"not for ever":                 {"GET", "", []http.HandlerFunc{answer(503, ``, "Retry-After", "0")}, 5, make([]time.Duration, 4), 503},
		"a refusal stands":             {"POST", "key", []http.HandlerFunc{answer(422, `{"error":"tests_failed","message":"no"}`)}, 1, nil, 422},
		"broken, and safe to repeat":   {"POST", "key", []http.HandlerFunc{dropped, fine}, 2, []time.Duration{250 * time.Millisecond}, 0},
		"a redirect is not followed":   {"GET", "", []http.HandlerFunc{answer(302, ``, "Location", "http://127.0.0.1:1/")}, 1, nil, 302},
	} {
		t.Run(name, func(t *testing.T) {
			cl, waits, calls := server(t, c.answers...)
			var out struct{ N int }
			err := cl.Do(t.Context(), c.method, "/x", c.key, map[string]int{"a": 1}, &out)
			refused, _ := errors.AsType[*Error](err)
			if (err != nil) != (c.status != 0) || c.status != 0 && (refused == nil || refused.Status != c.status) || c.status == 0 && out.N != 1 {
				t.Errorf("error %v, answer %+v", err, out)
			}
			if int(calls.Load()) != c.calls || !slices.Equal(*waits, c.waits) {
				t.Errorf("%d calls with waits %v, want %d with %v", calls.Load(), *waits, c.calls, c.waits)
			}
		})
	}
}

// TestNotTwice: a request is not sent again if the server may have executed it.
func TestNotTwice(t *testing.T) {
	cl, _, calls := server(t, dropped)
	if err := cl.Do(t.Context(), "POST", "/x", "", struct{}{}, nil); err == nil || calls.Load() != 1 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

func TestBase(t *testing.T) {
	for in, want := range map[string]string{
		"https://g.example.com": "https://g.example.com/api/v1", "http://h:1/api/v1/": "http://h:1/api/v1", "https://h/gate": "https://h/gate/api/v1",
		"h:1": "", "ftp://h": "", "": "", "https://u:p@h": "", "https://h?x=1": "",
	} {
		if got, err := Base(in); got != want || (err == nil) != (want != "") {
			t.Errorf("Base(%q) = %q, %v", in, got, err)
		}
	}
}

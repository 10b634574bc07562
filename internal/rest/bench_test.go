package rest

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// sink is a ResponseWriter that costs nothing.
type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkAdmission measures what the API adds to a Raw operation on the hot path: routing,
// credential, rate limit, permission, body, metrics, headers.
func BenchmarkAdmission(b *testing.B) {
	g := newRig(b, func(s *Config) {
		w := cache.Window{Count: 1, Reset: time.Now()}
		s.Count = func(context.Context, string, string, int64, time.Duration) (cache.Window, error) { return w, nil }
	}, nil)
	g.Spec = nil
	const body = `{"user":{"id":"ada","roles":["hr"]},"action":{"name":"read"},"resource":{"path":"/employees/1"}}`
	req := resttest.Call{Method: "POST", Path: "/api/v1/raw", Key: "full", Headers: []string{"Content-Type", "application/json"}}.Request()
	req.ContentLength = int64(len(body))
	w := &sink{h: http.Header{}}
	reader := strings.NewReader("")
	req.Body = readCloser{reader}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		reader.Reset(body)
		g.ServeHTTP(w, req)
	}
}

// BenchmarkWrite measures a Register operation with a body.
func BenchmarkWrite(b *testing.B) {
	g := newRig(b, nil, nil)
	const body = `{"name":"x","kind":"a","parts":[{"size":2,"material":"oak"}],"settings":{"a":1}}`
	req := resttest.Call{Method: "PUT", Path: "/api/v1/widgets/7", Key: "full", Headers: []string{"Content-Type", "application/json"}}.Request()
	req.ContentLength = int64(len(body))
	w := &sink{h: http.Header{}}
	reader := strings.NewReader("")
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		reader.Reset(body)
		req.Body = readCloser{reader}
		g.ServeHTTP(w, req)
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// BenchmarkList measures a Register operation that returns a list of 100 records.
func BenchmarkList(b *testing.B) {
	type out struct {
		Body struct {
			Items []widget `json:"items" doc:"Widgets"`
			Total int      `json:"total" doc:"Number in total"`
		}
	}
	var page out
	for n := range int64(100) {
		page.Body.Items = append(page.Body.Items, widget{ID: n, Name: "widget", Kind: "a", Parts: []part{{Size: 2, Material: "oak"}}, CreatedAt: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)})
	}
	page.Body.Total = len(page.Body.Items)
	g := newRig(b, nil, func(g *rig) {
		Register(g.Router, Op{ID: "list-many", Method: "GET", Path: "/many", Tags: []string{"Widgets"}},
			func(context.Context, scope.Scope, *listIn) (*out, error) { return &page, nil })
	})
	req := resttest.Call{Method: "GET", Path: "/api/v1/many?limit=100&kind=a", Key: "full"}.Request()
	w := &sink{h: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		g.ServeHTTP(w, req)
	}
}

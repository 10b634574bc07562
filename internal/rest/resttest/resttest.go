// Package resttest sends requests to a rest.Router in tests and checks each answer
// against the OpenAPI document.
package resttest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// Call is a request in one line.
type Call struct {
	Method, Path, Body string
	// Key is the API key; empty: none.
	Key string
	// Headers are alternating names and values.
	Headers []string
}

// Request returns the request.
func (c Call) Request() *http.Request {
	var body io.Reader
	if c.Body != "" {
		body = strings.NewReader(c.Body)
	}
	req := httptest.NewRequestWithContext(context.Background(), c.Method, "/", body)
	u, err := url.Parse("http://example.com" + c.Path)
	if err != nil {
		panic(err)
	}
	req.URL.Path, req.URL.RawPath, req.URL.RawQuery = u.Path, u.RawPath, u.RawQuery
	if c.Key != "" {
		req.Header.Set("X-API-Key", c.Key)
	}
	for i := 0; i+1 < len(c.Headers); i += 2 {
		req.Header.Add(c.Headers[i], c.Headers[i+1])
	}
	return req
}

// Recorder sends requests to a handler.
type Recorder struct {
	Handler http.Handler
	// Spec is the document that answers must match; nil: they are not checked.
	Spec *openapi3.T
	// Pattern returns the path of a request's operation as the document names it; empty if there is
	// none.
	Pattern func(req *http.Request) string
}

// Do sends a request and checks the answer against the document.
func (r *Recorder) Do(t testing.TB, req *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler.ServeHTTP(w, req)
	if r.Spec != nil {
		r.check(t, req, w)
	}
	return w
}

// check compares an answer with the document, if it contains the operation.
func (r *Recorder) check(t testing.TB, req *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	path := r.Pattern(req)
	item := r.Spec.Paths.Value(path)
	if item == nil || item.GetOperation(req.Method) == nil {
		return
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: req, Route: &routers.Route{Spec: r.Spec, Path: path, PathItem: item, Method: req.Method, Operation: item.GetOperation(req.Method)},
		},
		Status: w.Code, Header: w.Header(),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	in.SetBodyBytes(w.Body.Bytes())
	if err := openapi3filter.ValidateResponse(t.Context(), in); err != nil {
		t.Errorf("%s %s: the answer is not as documented: %v\n%d %s", req.Method, req.URL, err, w.Code, w.Body)
	}
}

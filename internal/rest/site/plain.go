package site

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// challengePath is the prefix under which an ACME server looks for the answer to a challenge (RFC
// 8555, section 8.3).
const challengePath = "/.well-known/acme-challenge/"

// Plain serves the listener without TLS, if the API is served over TLS: ACME challenges, and
// requests that Open allows. It redirects all other requests to the same address over TLS (308,
// which keeps the method).
type Plain struct {
	// Port is the port at which clients reach the TLS listener; empty or 443: the usual one.
	Port string
	// Challenge returns the answer to an ACME challenge of type http-01; ok is false if there is
	// none.
	Challenge func(ctx context.Context, host, token string) (answer string, ok bool)
	// Open reports whether API may serve a request without TLS.
	Open func(req *http.Request) bool
	API  http.Handler
}

// ServeHTTP implements http.Handler.
func (p Plain) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if token, ok := strings.CutPrefix(req.URL.Path, challengePath); ok {
		if answer, ok := p.Challenge(req.Context(), Name(req.Host), token); ok {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Cache-Control", "no-store")
			_, _ = w.Write([]byte(answer)) // the peer may have gone
			return
		}
	}
	if p.Open(req) {
		p.API.ServeHTTP(w, req)
		return
	}
	p.redirect(w, req)
}

// redirect redirects a client to the same address over TLS.
func (p Plain) redirect(w http.ResponseWriter, req *http.Request) {
	host := req.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if host == "" || strings.ContainsAny(host, `/\@?#%" `) {
		http.Error(w, "the request names no host", http.StatusBadRequest)
		return
	}
	if p.Port != "" && p.Port != "443" {
		host = net.JoinHostPort(host, p.Port)
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	to := url.URL{Scheme: "https", Host: host, Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery}
	h := w.Header()
	h.Set("Location", to.String())
	h.Set("Cache-Control", "no-store")
	h.Set("Connection", "close") // the next request needs another connection
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusPermanentRedirect)
	_, _ = w.Write([]byte("This address is served over TLS only.\n")) // the peer may have gone
}

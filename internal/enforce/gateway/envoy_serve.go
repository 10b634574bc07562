package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/extauthz"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/wire"
)

// Server serves ext_authz over gRPC. All methods of a nil Server do nothing.
type Server struct {
	srv *extauthz.Server
	l   net.Listener
}

// Listen listens for Envoy. It returns nil when address is empty.
func (g *Gateway) Listen(ctx context.Context, address, certFile, keyFile string) (*Server, error) {
	if address == "" {
		return nil, nil
	}
	var secure *tls.Config
	if certFile != "" {
		var err error
		if secure, err = wire.TLSConfig(certFile, keyFile); err != nil {
			return nil, fmt.Errorf("bouncer: %w", err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("bouncer: ext_authz: %w", err)
	}
	g.Log.Info("the bouncer answers Envoy's ext_authz", "address", l.Addr().String())
	return &Server{extauthz.NewServer(g.checkCall, secure), l}, nil
}

// Serve answers checks until Stop.
func (s *Server) Serve() error {
	if s == nil {
		return nil
	}
	return s.srv.Serve(s.l)
}

// Close stops the server and aborts running checks.
func (s *Server) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Stop(ctx)
}

// Stop stops the server. It lets running checks finish until ctx ends.
func (s *Server) Stop(ctx context.Context) {
	if s != nil {
		s.srv.Stop(ctx)
	}
}

// The paths of ext_authz over HTTP. Envoy puts its path_prefix before the original path.
// The second prefix also names the resource of the route. Clients cannot choose between
// them, because the original path starts after the prefix.
const (
	envoyPrefix    = request.OwnPrefix + "ext_authz"
	envoyForPrefix = request.OwnPrefix + "ext_authz_for/"
)

// EnvoyTarget returns the original target in a raw one, and the resource that it names. ok is
// false if the request is not a check.
func EnvoyTarget(raw string) (target, resource string, ok bool) {
	if rest, found := strings.CutPrefix(raw, envoyPrefix); found && (rest == "" || rest[0] == '/' || rest[0] == '?') {
		return rest, "", true
	}
	rest, found := strings.CutPrefix(raw, envoyForPrefix)
	if !found {
		return "", "", false
	}
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		return rest[i:], rest[:i], true
	}
	return "", rest, true
}

// EnvoyHTTP answers ext_authz over HTTP, where Envoy sends the original method, path,
// host and the allowed headers. Status 200 allows the request. Envoy sends any other answer
// to the client, but takes 5xx as a failure, which it can be configured to let pass. So 5xx
// becomes 403.
func (g *Gateway) EnvoyHTTP(w http.ResponseWriter, r *http.Request, outer *request.Inbound, st *settings.State, target, resource string) {
	c := &extauthz.Check{
		Peer: outer.Peer, Method: r.Method, Host: r.Host, Target: target, ID: outer.ID, Header: textproto.MIMEHeader(r.Header),
		Scheme: outer.Scheme(), Have: extauthz.BodyOf(r.Method),
	}
	if !outer.Trusted { // any client can send this request; a loopback address alone proves nothing
		g.writeEnvoy(w, g.refuseCheck(st, outer, request.Refuse(http.StatusForbidden, "untrusted_proxy", "only the proxies that the bouncer trusts may use this endpoint")))
		return
	}
	if resource != "" {
		c.Extensions = map[string]string{extensionResource: resource}
	}
	if lines := r.Header[extauthz.PartialBody]; len(lines) > 0 {
		g.envoyBody(w, r, outer, c, len(lines) == 1 && lines[0] == "false")
	}
	g.writeEnvoy(w, g.check(r.Context(), c))
}

// envoyBody reads the part of the body that Envoy sent.
func (g *Gateway) envoyBody(w http.ResponseWriter, r *http.Request, in *request.Inbound, c *extauthz.Check, whole bool) {
	body := bodies.NewClientBody(w, r.Body, g.Now, in.At)
	data, err := io.ReadAll(io.LimitReader(body, bodies.MaxFromGateway+1))
	c.Body, c.Have = data, extauthz.Partial
	if whole && err == nil && len(data) <= bodies.MaxFromGateway {
		c.Have = extauthz.Whole
	}
}

// writeEnvoy writes an answer as HTTP.
func (g *Gateway) writeEnvoy(w http.ResponseWriter, a *extauthz.Answer) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	for _, f := range a.Reply {
		h.Set(f.Name, f.Value)
	}
	if word, ok := a.Metadata["decision"].(string); ok {
		h.Set(header.Decision, word)
	}
	if code, ok := a.Metadata["status"].(string); ok {
		h.Set(header.Status, code)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(g.Now().Add(bodies.ClientWriteTimeout))
	if a.OK {
		for _, f := range a.Set {
			h.Set(f.Name, f.Value)
		}
		h.Set(extauthz.RemoveHeaders, strings.Join(allReserved(a), ","))
		h.Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
		return
	}
	status := a.Status
	if status >= 500 || status < 400 { // 200 would allow the request
		status = http.StatusForbidden
	}
	h.Set("Content-Length", strconv.Itoa(len(a.Text)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, a.Text)
}

// allReserved returns the fields that Envoy must remove with ext_authz over HTTP. Envoy
// sends only some headers of the request, so all reserved fields are removed.
func allReserved(a *extauthz.Answer) []string {
	out := slices.Clone(a.Remove)
	for _, name := range header.Reserved() {
		set := slices.ContainsFunc(a.Set, func(f extauthz.Field) bool { return strings.EqualFold(f.Name, name) })
		if !set && !SetByEnvoy[name] {
			out = append(out, strings.ToLower(name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

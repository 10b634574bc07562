package enforce

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

// checks is the gRPC side of the bouncer; nil when there is none.
type checks struct {
	srv *extauthz.Server
	l   net.Listener
}

// openChecks listens for Envoy, if it is configured to.
func (b *Bouncer) openChecks(ctx context.Context) (*checks, error) {
	if b.cfg.GRPCListen == "" {
		return nil, nil
	}
	var secure *tls.Config
	if b.cfg.TLSCert != "" {
		var err error
		if secure, err = wire.TLSConfig(b.cfg.TLSCert, b.cfg.TLSKey); err != nil {
			return nil, fmt.Errorf("bouncer: %w", err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", b.cfg.GRPCListen)
	if err != nil {
		return nil, fmt.Errorf("bouncer: ext_authz: %w", err)
	}
	b.log.Info("the bouncer answers Envoy's ext_authz", "address", l.Addr().String())
	return &checks{extauthz.NewServer(b.check, secure), l}, nil
}

// serve answers until stop; without a listener it waits for nothing.
func (c *checks) serve() error {
	if c == nil {
		return nil
	}
	return c.srv.Serve(c.l)
}

// close breaks off what runs.
func (c *checks) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c.stop(ctx)
}

// stop lets what runs come to an end, within the time of ctx.
func (c *checks) stop(ctx context.Context) {
	if c != nil {
		c.srv.Stop(ctx)
	}
}

// The paths of the HTTP flavour: Envoy puts its path_prefix before the original
// path. The second one names the resource that the route is about; only the
// operator chooses between them, for the original path begins behind them.
const (
	envoyPrefix    = ownPrefix + "ext_authz"
	envoyForPrefix = ownPrefix + "ext_authz_for/"
)

// envoyTarget takes the original target out of a raw one; ok is false for a
// request that is no check.
func envoyTarget(raw string) (target, resource string, ok bool) {
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

// envoyHTTP answers the HTTP flavour of ext_authz: the original method, path,
// host and allowed headers. 200 lets pass; to any other answer Envoy adds
// nothing and hands it to the client, but for 5xx, which are failures to Envoy
// and may be told to let pass: they become 403.
func (b *Bouncer) envoyHTTP(w http.ResponseWriter, r *http.Request, outer *request.Inbound, st *settings.State, target, resource string) {
	c := &extauthz.Check{
		Peer: outer.Peer, Method: r.Method, Host: r.Host, Target: target, ID: outer.ID, Header: textproto.MIMEHeader(r.Header),
		Scheme: outer.Scheme(), Have: extauthz.BodyOf(r.Method),
	}
	if !outer.Trusted { // anybody can knock here: loopback alone is no proof
		b.writeEnvoy(w, b.refuseCheck(st, outer, request.Refuse(http.StatusForbidden, "untrusted_proxy", "only the proxies that the bouncer trusts may use this endpoint")))
		return
	}
	if resource != "" {
		c.Extensions = map[string]string{extensionResource: resource}
	}
	if lines := r.Header[extauthz.PartialBody]; len(lines) > 0 {
		b.envoyBody(w, r, outer, c, len(lines) == 1 && lines[0] == "false")
	}
	b.writeEnvoy(w, b.check(r.Context(), c))
}

// envoyBody reads what Envoy sent of the body.
func (b *Bouncer) envoyBody(w http.ResponseWriter, r *http.Request, in *request.Inbound, c *extauthz.Check, whole bool) {
	body := bodies.FromClient(w, r.Body, b.cfg.Now, in.At)
	data, err := io.ReadAll(io.LimitReader(body, bodies.MaxFromGateway+1))
	c.Body, c.Have = data, extauthz.Partial
	if whole && err == nil && len(data) <= bodies.MaxFromGateway {
		c.Have = extauthz.Whole
	}
}

// writeEnvoy writes an answer as HTTP.
func (b *Bouncer) writeEnvoy(w http.ResponseWriter, a *extauthz.Answer) {
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
	_ = http.NewResponseController(w).SetWriteDeadline(b.cfg.Now().Add(clientWrite))
	if a.OK {
		for _, f := range a.Set {
			h.Set(f.Name, f.Value)
		}
		h.Set(extauthz.RemoveHeaders, strings.Join(removedBlind(a), ","))
		h.Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
		return
	}
	status := a.Status
	if status >= 500 || status < 400 { // 200 would let pass
		status = http.StatusForbidden
	}
	h.Set("Content-Length", strconv.Itoa(len(a.Text)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, a.Text)
}

// removedBlind are the fields that Envoy is to remove in the HTTP flavour, which
// shows us the allowed headers alone: the reserved ones go whether they are there
// or not.
func removedBlind(a *extauthz.Answer) []string {
	out := slices.Clone(a.Remove)
	for _, name := range header.Reserved() {
		set := slices.ContainsFunc(a.Set, func(f extauthz.Field) bool { return strings.EqualFold(f.Name, name) })
		if !set && !envoysOwn[name] {
			out = append(out, strings.ToLower(name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

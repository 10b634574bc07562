// Package extauthz implements Envoy's external authorization protocol, version 3
// (envoy.service.auth.v3.Authorization over gRPC). It translates a CheckRequest into a Check, and
// an Answer into a CheckResponse. It decides nothing.
//
//	Envoy ──CheckRequest──► Server ──Check──► Decide
//	      ◄─CheckResponse──        ◄─Answer──
//
// A refusal is always a denied_response and never a gRPC error, because Envoy's failure_mode_allow
// lets requests pass on errors.
package extauthz

import (
	"cmp"
	"context"
	"net/netip"
	"net/textproto"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"
)

// PartialBody is the header in which Envoy says whether it sent only part of the body. Envoy sets
// it whenever it buffers a body, and removes a client's own.
const PartialBody = "X-Envoy-Auth-Partial-Body"

// RemoveHeaders is the header in which the HTTP variant lists the request headers that Envoy must
// remove.
const RemoveHeaders = "X-Envoy-Auth-Headers-To-Remove"

// Check is a request that Envoy asks about.
type Check struct {
	// Peer is the address of Envoy; invalid for a local socket.
	Peer netip.Addr
	// Source is the address of the client; invalid if Envoy does not say.
	Source netip.Addr
	// Principal is the client's name in its verified certificate, SNI the server name in its TLS
	// handshake. Both are empty if Envoy does not say.
	Principal, SNI string
	// ID is Envoy's x-request-id.
	ID string
	// Target is the raw request target: path and query, not decoded.
	Method, Host, Target, Scheme string
	// Header holds the request's header fields by canonical name, without pseudo-header fields.
	Header textproto.MIMEHeader
	// Merged means that several lines of one name were joined by commas.
	Merged bool
	// Body is what Envoy sent of the body. Have says how much that is.
	Body []byte
	Have Body
	// Extensions are the context_extensions of the route.
	Extensions map[string]string
}

// Body says how much of a request's body is known.
type Body uint8

const (
	// Unseen means that there may be a body, which Envoy did not send.
	Unseen Body = iota
	// Partial means that Envoy sent the beginning.
	Partial
	// Whole means that the body is complete, and possibly empty.
	Whole
)

// Field is one header field.
type Field struct{ Name, Value string }

// Answer is the answer to a check.
type Answer struct {
	OK bool
	// Status and Text are sent to the client if the request is denied. Status 200 is for protocols
	// whose refusals are ordinary answers, such as JSON-RPC.
	Status int
	Text   string
	// Set are request fields that get exactly this value, Remove those that are removed.
	Set    []Field
	Remove []string
	// Reply are fields of the answer to the client, whether allowed or denied.
	Reply []Field
	// Metadata is Envoy's dynamic metadata of the filter: strings, numbers and booleans.
	Metadata map[string]any
}

// Decide answers a check. It must not panic.
type Decide func(ctx context.Context, c *Check) *Answer

// read translates a CheckRequest. Missing parts become empty; Decide refuses those that it needs.
func read(req *authv3.CheckRequest, peer netip.Addr) *Check {
	attributes := req.GetAttributes()
	r := attributes.GetRequest().GetHttp()
	c := &Check{
		Peer: peer, Source: address(attributes.GetSource().GetAddress()), Principal: attributes.GetSource().GetPrincipal(), SNI: attributes.GetTlsSession().GetSni(),
		ID: r.GetId(), Method: r.GetMethod(), Host: r.GetHost(), Target: target(r), Scheme: r.GetScheme(), Extensions: attributes.GetContextExtensions(),
		Body: r.GetRawBody(),
	}
	if len(c.Body) == 0 {
		c.Body = []byte(r.GetBody())
	}
	c.header(r)
	c.Have = bodyState(c, r.GetSize())
	if len(r.GetBody()) > 0 && len(r.GetRawBody()) > 0 && r.GetBody() != string(r.GetRawBody()) {
		c.Have = Partial // two different bodies: it is unknown which one the application gets
	}
	return c
}

// target returns the path with its query. It returns "", which is always refused, if parts of the
// request contradict each other. Envoy has the query in the path and sends no fragment; other
// gateways may separate them.
func target(r *authv3.AttributeContext_HttpRequest) string {
	path, query := r.GetPath(), r.GetQuery()
	if _, has, had := strings.Cut(path, "?"); r.GetFragment() != "" || had && query != "" && query != has {
		return ""
	} else if !had && query != "" {
		path += "?" + query
	}
	says := func(name, value string) bool {
		switch {
		case name == ":path":
			return value == r.GetPath()
		case name == ":method":
			return value == r.GetMethod()
		case name == ":authority", strings.EqualFold(name, "host"):
			return strings.EqualFold(value, r.GetHost())
		}
		return true
	}
	for name, value := range r.GetHeaders() {
		if !says(name, value) {
			return ""
		}
	}
	for _, h := range r.GetHeaderMap().GetHeaders() {
		if value := string(h.GetRawValue()); !says(h.GetKey(), cmp.Or(value, h.GetValue())) {
			return ""
		}
	}
	return path
}

// address returns the address of a socket; invalid if it has none.
func address(a *corev3.Address) netip.Addr {
	at, _ := netip.ParseAddr(a.GetSocketAddress().GetAddress())
	return at.Unmap()
}

// header reads the header fields, in either of the forms that Envoy uses.
func (c *Check) header(r *authv3.AttributeContext_HttpRequest) {
	lines := r.GetHeaderMap().GetHeaders()
	c.Header = make(textproto.MIMEHeader, len(r.GetHeaders())+len(lines))
	add := func(name, value string) {
		if name == "" || name[0] == ':' {
			return
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		c.Header[name] = append(c.Header[name], value)
	}
	for name, value := range r.GetHeaders() {
		add(name, value)
		c.Merged = true
	}
	for _, h := range lines {
		value := h.GetValue()
		if raw := h.GetRawValue(); len(raw) > 0 {
			value = string(raw)
		}
		add(h.GetKey(), value)
	}
}

// bodyState returns how much of the body is known. If Envoy does not say, there is no body only if the
// request's head says so: a body over HTTP/2 needs no length.
func bodyState(c *Check, size int64) Body {
	length := c.Header.Get("Content-Length")
	switch lines := c.Header[PartialBody]; {
	case len(lines) == 1 && lines[0] == "false":
		return Whole
	case len(lines) > 0:
		return Partial
	case len(c.Body) > 0:
		return Partial // Envoy does not say that the body is complete
	case length == "0":
		return Whole
	case length != "" || size > 0 || c.Header.Get("Transfer-Encoding") != "":
		return Unseen
	}
	return BodyOf(c.Method)
}

// BodyOf returns what is known of the body if the request does not say anything about it. Methods
// that usually have a body are Unseen.
func BodyOf(method string) Body {
	switch method {
	case "GET", "HEAD", "OPTIONS", "DELETE":
		return Whole
	}
	return Unseen
}

// write translates an Answer.
func write(a *Answer) *authv3.CheckResponse {
	out := &authv3.CheckResponse{Status: &rpc.Status{Code: int32(codes.OK)}}
	if metadata, err := structpb.NewStruct(a.Metadata); err == nil { // cannot fail: our own texts and numbers
		out.DynamicMetadata = metadata
	}
	if a.OK {
		out.HttpResponse = &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
			Headers: fields(a.Set), HeadersToRemove: a.Remove, ResponseHeadersToAdd: fields(a.Reply),
		}}
		return out
	}
	status := typev3.StatusCode(a.Status)
	if _, known := typev3.StatusCode_name[int32(status)]; !known || a.Status < 400 && a.Status != 200 {
		status = typev3.StatusCode_Forbidden
	}
	out.Status = &rpc.Status{Code: int32(code(int(status))), Message: "denied"}
	out.HttpResponse = &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
		Status: &typev3.HttpStatus{Code: status}, Headers: fields(a.Reply), Body: a.Text,
	}}
	return out
}

// fields replace existing fields of the same name.
func fields(list []Field) []*corev3.HeaderValueOption {
	out := make([]*corev3.HeaderValueOption, 0, len(list))
	for _, f := range list {
		out = append(out, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: strings.ToLower(f.Name), Value: f.Value},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return out
}

// code returns the gRPC status for an HTTP status. It is never OK.
func code(status int) codes.Code {
	switch status {
	case 400, 405, 413, 415:
		return codes.InvalidArgument
	case 401:
		return codes.Unauthenticated
	case 429:
		return codes.ResourceExhausted
	case 500:
		return codes.Internal
	case 502, 503, 504:
		return codes.Unavailable
	}
	return codes.PermissionDenied
}

// Package extauthz speaks Envoy's external authorization protocol, version 3
// (envoy.service.auth.v3.Authorization over gRPC): it turns a CheckRequest into
// what was asked, and an answer into a CheckResponse. It decides nothing.
//
//	Envoy ──CheckRequest──► Server ──Check──► Decide
//	      ◄─CheckResponse──        ◄─Answer──
//
// Only a failure of Decide itself, which has none to give, would be an error of
// gRPC: Envoy's failure_mode_allow would let the request pass then, so that
// every refusal is a denied_response.
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

// PartialBody is the header by which Envoy says whether the body that it sends
// is all of it. It is there whenever Envoy holds a body; Envoy removes a
// client's own.
const PartialBody = "X-Envoy-Auth-Partial-Body"

// RemoveHeaders is the header by which the HTTP flavour names the request's
// headers that Envoy is to remove.
const RemoveHeaders = "X-Envoy-Auth-Headers-To-Remove"

// Check is a request that Envoy holds.
type Check struct {
	// Peer is the other end of the connection: Envoy. Not valid: a local socket.
	Peer netip.Addr
	// Source is the client as Envoy sees it; not valid when Envoy does not say.
	Source netip.Addr
	// Principal is the client's name in its verified certificate, SNI the name
	// that it asked TLS for; both empty unless Envoy says so.
	Principal, SNI string
	// ID is Envoy's x-request-id.
	ID string
	// Target is the raw request target: path and query, nothing decoded.
	Method, Host, Target, Scheme string
	// Header holds the request's fields by canonical name, without pseudo fields.
	Header textproto.MIMEHeader
	// Merged is set when lines of one name were joined by commas.
	Merged bool
	// Body is what Envoy sent of the body, and Have what that is.
	Body []byte
	Have Body
	// Extensions is the context_extensions of the route.
	Extensions map[string]string
}

// Body says what is known of a request's body.
type Body uint8

const (
	// Unseen says that there may be a body, and Envoy did not send it.
	Unseen Body = iota
	// Partial says that Envoy sent the beginning.
	Partial
	// Whole says that all of it is there, which may be nothing.
	Whole
)

// Field is one header field.
type Field struct{ Name, Value string }

// Answer is what becomes of a request.
type Answer struct {
	OK bool
	// Status and Text are the answer to the client of a request that is denied.
	// 200 is for protocols whose refusals are answers, such as JSON-RPC.
	Status int
	Text   string
	// Set are fields of the request that get exactly this value, Remove fields
	// that go.
	Set    []Field
	Remove []string
	// Reply are fields of the answer to the client, either way.
	Reply []Field
	// Metadata is Envoy's dynamic metadata of the filter: texts, numbers, truths.
	Metadata map[string]any
}

// Decide answers a check. It must not panic.
type Decide func(ctx context.Context, c *Check) *Answer

// read turns a CheckRequest into a Check. Nothing in it is missing so much that
// it could not be asked about: what is empty is refused by who decides.
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
	c.Have = have(c, r.GetSize())
	if len(r.GetBody()) > 0 && len(r.GetRawBody()) > 0 && r.GetBody() != string(r.GetRawBody()) {
		c.Have = Partial // two bodies: which of them the application gets nobody says
	}
	return c
}

// target is the path with its query; empty, which nobody takes, where the members of
// a question contradict one another. Envoy has the query in the path, and no
// fragment; other gateways may have them apart.
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

func address(a *corev3.Address) netip.Addr {
	at, err := netip.ParseAddr(a.GetSocketAddress().GetAddress())
	if err != nil {
		return netip.Addr{}
	}
	return at.Unmap()
}

// header reads the fields in either form that Envoy sends them in.
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

// have tells what the body is. Without Envoy's word on it there is none only
// where the request's head says so: over HTTP/2 a body needs no length.
func have(c *Check, size int64) Body {
	length := c.Header.Get("Content-Length")
	switch lines := c.Header[PartialBody]; {
	case len(lines) == 1 && lines[0] == "false":
		return Whole
	case len(lines) > 0:
		return Partial
	case len(c.Body) > 0:
		return Partial // a body without Envoy's word that it is all
	case length == "0":
		return Whole
	case length != "" || size > 0 || c.Header.Get("Transfer-Encoding") != "":
		return Unseen
	}
	return BodyOf(c.Method)
}

// BodyOf is what a request without any word on its body may have: methods that
// bring one count as Unseen.
func BodyOf(method string) Body {
	switch method {
	case "GET", "HEAD", "OPTIONS", "DELETE":
		return Whole
	}
	return Unseen
}

// write turns an Answer into a CheckResponse.
func write(a *Answer) *authv3.CheckResponse {
	out := &authv3.CheckResponse{Status: &rpc.Status{Code: int32(codes.OK)}}
	if metadata, err := structpb.NewStruct(a.Metadata); err == nil { // our own texts and numbers
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

// fields replace whatever there is of the same name.
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

// code is the status of gRPC that stands for one of HTTP; never OK.
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
